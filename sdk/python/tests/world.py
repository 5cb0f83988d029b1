"""An executor on a real socket, a small Legwork that it speaks to, and calls as Legwork makes them.

Nothing is waited for by time alone; every wait is for something that is heard.
"""

import http.client
import json
import queue
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from legwork_executor import signature
from legwork_executor.calls import now_ms

SECRET = "0123456789abcdef0123456789abcdef"
# Far more than anything takes; only a failure waits for it.
PATIENCE = 60


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


class World:
    """Legwork answers these to registrations and results first, then 200 and 202."""

    def __init__(self, executor, registrations=(), results=()):
        self.executor = executor
        self.registrations, self.results = queue.Queue(), queue.Queue()
        scripts = {
            ("PUT", "/v1/executors/crm"): (self.registrations, list(registrations), 200),
            ("POST", "/v1/executors/crm/results"): (self.results, list(results), 202),
        }
        self._legwork = ThreadingHTTPServer(("127.0.0.1", 0), _legwork(scripts))
        self._legwork.daemon_threads = True
        threading.Thread(target=self._legwork.serve_forever, args=(0.01,), daemon=True).start()
        self.address = f"http://127.0.0.1:{self._legwork.server_port}"
        self.url = executor.start(0, self.address, token="lw_token")
        self._gone = False
        self.told = {}  # what the executor has said of itself last

    def task(self, name, kind):
        return {
            "task": name,
            "key": "case/step",
            "attempt": 1,
            "type": kind,
            "size": 12.0,
            "process": "loan",
            "inputs": {"amount": 1200},
            "deadline": "2026-11-16T02:30:00.000Z",
            "callback": f"{self.address}/v1/executors/crm/results",
        }

    def give(self, name, kind="score"):
        return self.say("/tasks", self.task(name, kind))

    def judge(self, name, verdict):
        return self.say("/verdicts", {"task": name, "verdict": verdict})

    def cancel(self, name):
        return self.say("/cancellations", {"task": name})

    def hang_up(self, name, kind="score"):
        """Gives a task, and does not wait for the answer."""
        connection = self._ask("/tasks", self.task(name, kind), SECRET, now_ms(), True)
        connection.close()

    def say(self, path, body, secret=SECRET, now=None, sign=True):
        moment = now_ms() if now is None else now
        connection = self._ask(path, body, secret, moment, sign)
        try:
            answer = connection.getresponse()
            body = self._hear(json.loads(answer.read()))
            return Answer(answer.status, answer.headers, body)
        finally:
            connection.close()

    def _ask(self, path, body, secret, moment, sign):
        data = json.dumps(body).encode()
        signed = signature.sign(secret, "POST", path, data, moment)
        headers = {signature.HEADER: signed} if sign else {}
        netloc = urllib.parse.urlsplit(self.url).netloc
        connection = http.client.HTTPConnection(netloc, timeout=PATIENCE)
        connection.request("POST", path, data, headers)
        return connection

    def registration(self):
        return self.registrations.get(timeout=PATIENCE)

    def result(self):
        """The next result; it is signed."""
        call = self.results.get(timeout=PATIENCE)
        signature.verify(SECRET, "POST", call["path"], call["raw"], call["signature"], now_ms())
        return self._hear(call["body"])

    def _hear(self, body):
        """Goes on without what the executor says of itself."""
        told = ("has", "holds", "took_ms")
        self.told = {name: body[name] for name in told if name in body}
        return {name: value for name, value in body.items() if name not in told}

    def gone(self):
        """When this returns, nothing more is said."""
        if not self._gone:
            self._gone = True
            self.executor.close()
            self._legwork.shutdown()
            self._legwork.server_close()


def _legwork(scripts):
    class Legwork(BaseHTTPRequestHandler):
        def hear(self):
            heard, statuses, last = scripts[(self.command, self.path)]
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            status = statuses.pop(0) if statuses else last
            heard.put(
                {
                    "path": self.path,
                    "token": self.headers.get("Authorization"),
                    "signature": self.headers.get(signature.HEADER),
                    "raw": raw,
                    "body": json.loads(raw),
                }
            )
            self.send_response(status)
            if status == 307:
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_PUT = do_POST = hear

        def log_message(self, *_):
            pass

    return Legwork
