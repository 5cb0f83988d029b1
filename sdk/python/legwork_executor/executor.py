"""The executor: what it does, for how many at a time, and under which name.

Invariant: whoever stops takes nothing new, and goes when what was begun is done and told, or the
time of grace is over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import logging
import queue
import threading
import time
import urllib.parse
from typing import Any, Callable, Optional, Sequence, TypeVar

from . import calls
from .memory import Admission, Memory
from .server import Server
from .signature import SECRET_CHARS_MIN
from .words import Failure, Judged, Outcome, Task

log = logging.getLogger("legwork_executor")

RESULT_BYTES_MAX = (1 << 20) - (8 << 10)  # a server takes bodies of 1 MiB
PAUSE_S = 0.1  # the first one
REMINDERS_MAX = 32  # at a time; each has a thread
POLL_S = 0.1  # how soon it hears that it is to end
CANCELLED = Failure.again("it was cancelled")
FAREWELL_S = 2  # for answers to be written when everything else is done

Handler = Callable[[Task], Any]
Hook = Callable[[Judged], Any]
H = TypeVar("H", bound=Handler)
K = TypeVar("K", bound=Hook)


class Executor:
    """An HTTP server that does automatic steps; see the README for ten lines that use it."""

    def __init__(
        self,
        name: str,
        secret: str,
        *,
        limit: int = 16,
        at_once: Optional[int] = None,
        rate: Optional[str] = None,
        weight: Optional[int] = None,
        regularly: Sequence[tuple[str, str]] = (),
        reserve: Optional[int] = None,
        domain: Optional[str] = None,
        verdicts: bool = True,
        patience: float = 1.0,
        grace: float = 30.0,
        verdict_patience: float = 30.0,
    ) -> None:
        """`limit`: tasks that it has at a time; `at_once`: on how many of them it works, the
        others wait for their turn; `rate`: how many it is given in so long (`10/s`, `600/m`);
        `weight`: its part where tasks are given out by weights; `regularly`: pairs such as
        `("1h", "5m")` for what it does beside its tasks, here five minutes in every hour, at times
        of its own; `reserve`: the per cent of its time, up to 90, that is promised only after a
        fault, such as the loss of another executor; `patience`: what takes longer (in seconds) is told later, by
        callback; `grace`: how long it waits for what it has begun when it stops;
        `verdict_patience`: a result without a verdict is sent again, first after this time, then
        with doubling pauses up to ten minutes."""
        if len(secret) < SECRET_CHARS_MIN:
            raise ValueError(
                f"the secret of executor `{name}` has {len(secret)} characters; "
                f"give it at least {SECRET_CHARS_MIN}"
            )
        if limit < 1 or (at_once is not None and at_once < 1):
            raise ValueError("a limit of 0 lets nothing through; give at least 1")
        self._name = name
        self._secret = secret
        self._limit = limit
        self._at_once = at_once
        # What several servers give beyond that waits for a hand.
        self._hands = threading.BoundedSemaphore(at_once or limit)
        self._hands_of: dict[str, threading.BoundedSemaphore] = {}
        self._rate, self._weight = rate, weight
        self._regularly = [{"every": every, "takes": takes} for every, takes in regularly]
        self._reserve = reserve
        self._domain = domain
        self._verdicts = verdicts
        self._patience = patience
        self._grace = grace
        self._types: dict[str, tuple[Handler, Optional[int]]] = {}
        self._rates: dict[str, Optional[str]] = {}
        self._ack: Optional[Hook] = None
        self._nack: Optional[Hook] = None
        self._memory = Memory(verdict_patience=verdict_patience if verdicts else None)
        self._reminders = threading.BoundedSemaphore(REMINDERS_MAX)
        self._server: Optional[Server] = None
        self._url = ""
        self._closing = threading.Event()
        self._unknown = threading.Event()
        # A signal handler may put into it whatever the main thread is at.
        self._stops: queue.SimpleQueue[None] = queue.SimpleQueue()

    def on(
        self, type: str, limit: Optional[int] = None, rate: Optional[str] = None
    ) -> Callable[[H], H]:
        """Does tasks of the type, `limit` of them at a time, `rate` of them in so long (`10/s`). The
        handler gives a dict, the values of the step's outputs, or raises; handlers run in
        threads."""
        if limit is not None and limit < 1:
            raise ValueError("a limit of 0 lets nothing through; give at least 1")

        def add(handler: H) -> H:
            self._types[type] = (handler, limit)
            if limit is not None:
                self._hands_of[type] = threading.BoundedSemaphore(limit)
            self._rates[type] = rate
            return handler

        return add

    def on_ack(self, hook: K) -> K:
        """The result counts: make it final. If this raises, the verdict comes again."""
        self._ack = hook
        return hook

    def on_nack(self, hook: K) -> K:
        """The result does not count: undo it. If this raises, the verdict comes again."""
        self._nack = hook
        return hook

    def run(
        self,
        port: int,
        legwork: str,
        *,
        token: Optional[str] = None,
        host: str = "127.0.0.1",
        url: Optional[str] = None,
    ) -> None:
        """Registers at Legwork and does tasks until `stop` is called or Ctrl-C is pressed. `url` is
        the address under which Legwork reaches it, with the path it calls below."""
        if not log.hasHandlers():
            # The program has set up nothing: whoever started it is to see how it goes.
            log.addHandler(logging.StreamHandler())
            log.setLevel(logging.INFO)
        self.start(port, legwork, token=token, host=host, url=url)
        try:
            self._stops.get()
        except KeyboardInterrupt:
            pass
        finally:
            self.close()

    def stop(self) -> None:
        """Lets `run` return; may be called by a signal handler."""
        self._stops.put(None)

    def start(
        self,
        port: int,
        legwork: str,
        *,
        token: Optional[str] = None,
        host: str = "127.0.0.1",
        url: Optional[str] = None,
    ) -> str:
        """Like `run`, in threads of its own, until `close`; gives the address it is reached at."""
        if not self._types:
            raise ValueError(f"executor `{self._name}` does nothing; add a type of task with `on`")
        if url is None and host in ("", "0.0.0.0", "::"):
            raise ValueError(
                "the executor listens at all addresses of the machine; say with `url` under which "
                "one Legwork reaches it"
            )
        prefix = _path(url) if url else ""
        self._server = Server((host, port), self)
        self._server.prefix = prefix
        literal = f"[{host}]" if ":" in host else host
        self._url = (url or f"http://{literal}:{self._server.server_port}").rstrip("/")
        serving = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)
        serving.start()
        registering = threading.Thread(target=self._register, args=(legwork, token), daemon=True)
        registering.start()
        if self._verdicts:
            threading.Thread(target=self._remind, daemon=True).start()
        return self._url

    def close(self) -> None:
        """Takes no more tasks, waits for what was begun, and ends."""
        if not self._memory.stop(self._grace):
            log.warning("the time of grace is over; what is under way is left")
        self._closing.set()
        self._unknown.set()
        if self._server:
            self._server.shutdown()
            self._server.wait_quiet(FAREWELL_S)
            self._server.server_close()

    def _register(self, legwork: str, token: Optional[str]) -> None:
        types = self._types.items()
        body = _said(
            url=self._url,
            secret=self._secret,
            types={kind: _said(limit=own, rate=self._rates[kind]) for kind, (_, own) in types},
            limit=self._limit,
            at_once=self._at_once,
            rate=self._rate,
            weight=self._weight,
            regularly=self._regularly or None,
            reserve=self._reserve,
            domain=self._domain,
            verdicts=self._verdicts,
        )
        while not self._closing.is_set():
            calls.until_heard(
                f"the registration of `{self._name}`",
                lambda: calls.register(legwork, self._name, token, self._with_holds(body)),
                self._is_registered,
                PAUSE_S,
                self._closing,
            )
            self._unknown.wait()
            self._unknown.clear()

    def _with_holds(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "holds": self._memory.load()["holds"]}

    def _is_registered(self, status: int) -> bool:
        if 200 <= status < 300:
            log.info("registered as %s at %s", self._name, self._url)
            return True
        return False

    def _begin(self, task: Task) -> Admission:
        handler, limit = self._types[task.type]
        admission = self._memory.admit(task, self._limit, limit)
        if admission is Admission.NEW:
            work = threading.Thread(target=self._work, args=(task, handler), daemon=True)
            try:
                work.start()
            except RuntimeError as error:
                self._memory.finished(task, _failed(Failure.again(_words(error))))
        return admission

    def _work(self, task: Task, handler: Handler) -> None:
        with self._hands_of.get(task.type) or contextlib.nullcontext(), self._hands:
            # Whoever gave it up while it waited need not have it done.
            begun = time.monotonic()
            outcome = _failed(CANCELLED) if task.cancelled else _outcome(handler, task)
            took_ms = int((time.monotonic() - begun) * 1000)
            outcome = dataclasses.replace(outcome, took_ms=took_ms)
        if self._memory.finished(task, outcome):
            self._send(task.task)

    def _unheard(self, task: str) -> None:
        if self._memory.unheard(task):
            threading.Thread(target=self._send, args=(task,), daemon=True).start()

    def _send(self, task: str) -> None:
        url = self._memory.callback(task)

        def send() -> Optional[int]:
            outcome = self._memory.sending(task)
            if outcome is None or url is None:
                return None
            return self._send_once(url, task, outcome)

        what = f"the result of `{task}`"
        calls.until_heard(what, send, calls.RECEIVED.__eq__, PAUSE_S, self._closing)
        self._memory.sent(task)

    def _send_once(self, url: str, task: str, outcome: Outcome) -> int:
        load = self._memory.load()
        status = calls.send_result(url, self._secret, task, outcome, load)
        if status == calls.UNKNOWN:
            self._unknown.set()
        return status

    def _remind(self) -> None:
        """A server that was killed before it stored a result does not know of it."""
        while True:
            # After an outage many are due at once.
            self._reminders.acquire()
            task = self._memory.remind()
            if task is None:
                return
            try:
                threading.Thread(target=self._send_again, args=(task,), daemon=True).start()
            except RuntimeError as error:
                log.warning("the result of `%s` is sent again: %s", task, error)
                self._memory.reminded(task)
                self._reminders.release()

    def _send_again(self, task: str) -> None:
        try:
            unjudged = self._memory.unjudged(task)
            if unjudged and not self._closing.is_set():
                log.info("there is no verdict: the result of `%s` is sent again", task)
                self._send_once(unjudged[0], task, unjudged[1])
        except (OSError, ValueError, http.client.HTTPException) as error:
            log.warning("the result of `%s` is sent again: %s", task, error)
        finally:
            self._memory.reminded(task)
            self._reminders.release()

    def _judge(self, verdict: str, judged: Judged) -> Optional[Failure]:
        hook = self._ack if verdict == "ack" else self._nack
        failure: Optional[Failure] = None
        try:
            if hook:
                hook(judged)
        except Failure as raised:
            failure = raised
        except BaseException as error:  # this thread is nobody else's to end
            log.exception("the hook for `%s` failed", judged.task)
            failure = Failure.again(_words(error))
        self._memory.judged(judged.task, failure is None)
        return failure


def _outcome(handler: Handler, task: Task) -> Outcome:
    try:
        data = handler(task)
    except Failure as failure:
        return _failed(failure)
    except BaseException as error:  # this thread is nobody else's to end
        log.exception("the handler for `%s` failed", task.task)
        return _failed(Failure.again(_words(error)))
    data = {} if data is None else data
    if not isinstance(data, dict):
        return _failed(Failure.forever("the handler did not give a dict; mend the executor"))
    try:
        size = len(json.dumps(data, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return _failed(Failure.forever(f"the result is not JSON ({error}); mend the executor"))
    if size > RESULT_BYTES_MAX:
        reason = f"the result has more than {RESULT_BYTES_MAX} bytes; put large values into files"
        return _failed(Failure.forever(reason))
    return Outcome(data, None, size)


def _failed(failure: Failure) -> Outcome:
    return Outcome(None, failure, len(failure.reason))


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _path(url: str) -> str:
    """What Legwork puts in front of `/tasks` in the request line."""
    parts = urllib.parse.urlsplit(url)
    if not calls.is_usable(url) or parts.query or parts.fragment:
        raise ValueError(
            f"`{url}` is not a usable address; write it like http://crm.example:7001/legwork"
        )
    return parts.path.rstrip("/")


def _said(**fields: Any) -> dict[str, Any]:
    """What is said of all that could be."""
    return {name: value for name, value in fields.items() if value is not None}
