"""What comes in: tasks, verdicts and cancellations, each checked before anything is done.

Invariant: nothing happens for a request whose signature does not fit; connections, bodies and the
time they take are bounded.
"""

from __future__ import annotations

import contextlib
import json
import re
import selectors
import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Optional

from . import signature
from .calls import is_usable, now_ms
from .memory import Admission, Reply
from .words import Failure, Judged, Outcome, Task

if TYPE_CHECKING:
    from .executor import Executor

BODY_BYTES_MAX = 20 << 20  # all values of a case, and some more
CONNECTIONS_MAX = 200  # each has a thread
TASK_CHARS_MAX = 400
WAIT_S = 30  # for the head and the body of a request


class _Refusal(Exception):
    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], executor: Executor) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)
        self.executor = executor
        self.prefix = ""
        self._asked = 0
        self._quiet = threading.Condition()
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def server_bind(self) -> None:
        # The one of HTTPServer looks the name of the machine up, which may take long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    @contextlib.contextmanager
    def asked(self) -> Iterator[None]:
        """While a request is under way."""
        with self._quiet:
            self._asked += 1
        try:
            yield
        finally:
            with self._quiet:
                self._asked -= 1
                self._quiet.notify_all()

    def wait_quiet(self, seconds: float) -> None:
        with self._quiet:
            self._quiet.wait_for(lambda: self._asked == 0, seconds)

    def process_request(self, request: Any, client_address: Any) -> None:
        # Those beyond wait in the queue of the machine.
        self._places.acquire()
        try:
            super().process_request(request, client_address)
        except Exception:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are the caller's business."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = WAIT_S
    wbufsize = -1  # head and body go in one packet
    disable_nagle_algorithm = True
    server: Server

    def do_POST(self) -> None:
        with self.server.asked():
            self._post()

    def _post(self) -> None:
        task: Optional[str] = None
        try:
            place = self._place()
            body = self._body()
            if place == "/tasks":
                task, answer = self._task(body)
            elif place == "/verdicts":
                answer = self._verdict(body)
            else:
                self.server.executor._memory.cancel(_name(body))
                answer = (200, {}, False)
        except _Refusal as refusal:
            answer = (refusal.status, {"error": str(refusal)}, False)
        try:
            if task is not None and self._is_gone():
                raise ConnectionResetError("nobody waits for the answer")
            self._say(*answer)
        except OSError:
            if task is not None and answer[0] != 202:
                self.server.executor._unheard(task)
            raise

    def do_GET(self) -> None:
        self.close_connection = True
        self._say(405, {"error": "use POST"}, False)

    do_PUT = do_DELETE = do_PATCH = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line."""

    def _place(self) -> str:
        path = self.path.partition("?")[0]
        for place in ("/tasks", "/verdicts", "/cancellations"):
            if path == self.server.prefix + place:
                return place
        self.close_connection = True
        raise _Refusal(404, "there are /tasks, /verdicts and /cancellations here")

    def _body(self) -> Any:
        """What is asked, if the signature fits."""
        # Until the body is read, what follows is no request.
        keep, self.close_connection = self.close_connection, True
        header = self.headers.get(signature.HEADER)
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length, re.ASCII) or int(length) > BODY_BYTES_MAX:
            raise _Refusal(
                413, f"say the length of the body; it has at most {BODY_BYTES_MAX} bytes"
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise _Refusal(400, "the body ends too early")
        self.close_connection = keep
        secret = self.server.executor._secret
        try:
            signature.verify(secret, self.command, self.path, body, header, now_ms())
        except signature.Refused as refused:
            raise _Refusal(401, str(refused)) from None
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _Refusal(400, f"the body is not JSON ({error})") from None

    def _task(self, wire: Any) -> tuple[Optional[str], tuple[int, Any, bool]]:
        executor = self.server.executor
        name = _name(wire)
        try:
            task = Task.read(wire)
        except ValueError as error:
            raise _Refusal(400, f"the task is not understood: {error}") from None
        if task.type not in executor._types:
            raise _Refusal(404, "tasks of this type are not done here")
        if not is_usable(task.callback):
            raise _Refusal(400, "the callback cannot be called: it is no http(s):// address")
        admission = executor._begin(task)
        if admission is Admission.BUSY:
            error = "as many tasks as the limit allows are under way; ask again later"
            return None, (429, self._declined(error), True)
        if admission is Admission.CLOSED:
            error = "no more tasks are taken here now; ask again later"
            return None, (503, self._declined(error), True)
        answer = executor._memory.answer(name, executor._patience)
        if isinstance(answer, Outcome):
            if answer.failure is None:
                feedback = {**executor._memory.load(), "took_ms": answer.took_ms}
                return name, (200, {"data": answer.data, **feedback}, False)
            status = 500 if answer.failure.retry else 422
            return name, (status, self._declined(answer.failure.reason), False)
        if answer is Reply.TAKEN:
            return name, (202, executor._memory.load(), False)
        if answer is Reply.OVER:
            error = "the task was cancelled, or has its verdict"
            return None, (409, self._declined(error), False)
        return None, (503, self._declined("the task is not known any more; ask again"), True)

    def _declined(self, error: str) -> dict[str, Any]:
        return {"error": error, **self.server.executor._memory.load()}

    def _verdict(self, wire: Any) -> tuple[int, Any, bool]:
        executor = self.server.executor
        name, verdict = _name(wire), wire.get("verdict")
        if verdict not in ("ack", "nack"):
            raise _Refusal(400, "a verdict is `ack` or `nack`")
        judged = executor._memory.judge(name)
        if isinstance(judged, Judged):
            failure = executor._judge(verdict, judged)
            return (500, _error(failure), False) if failure else (200, {}, False)
        if judged is Reply.CONFIRMED:
            return 200, {}, False
        return 503, {"error": "the verdict is being seen to; say it again"}, True

    def _is_gone(self) -> bool:
        """Whether the caller has hung up: writing would seem to go well all the same."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.connection, selectors.EVENT_READ)
            return bool(selector.select(0)) and not self.connection.recv(1, socket.MSG_PEEK)

    def _say(self, status: int, body: Any, later: bool) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if later:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


def _name(wire: Any) -> str:
    name = wire.get("task") if isinstance(wire, dict) else None
    if not isinstance(name, str) or len(name) > TASK_CHARS_MAX:
        raise _Refusal(400, f"name the task, in at most {TASK_CHARS_MAX} characters")
    return name


def _error(failure: Failure) -> dict[str, str]:
    return {"error": failure.reason}
