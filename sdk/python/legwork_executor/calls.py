"""What the executor says to Legwork: that it is there, and what came of a task.

Invariant: said again, with growing pauses, until it is heard. No redirect is followed, and no proxy
comes between: the path is signed.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Optional

from . import signature
from .words import Outcome

log = logging.getLogger("legwork_executor")

RECEIVED = 202  # stored, or known to come too late
UNKNOWN = 404  # Legwork does not know this executor any more
PATIENCE_S = 30
ANSWER_BYTES_MAX = 1 << 20
MESSAGE_BYTES_MAX = 1 << 20  # a server reads no more


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def register(legwork: str, name: str, token: Optional[str], body: dict[str, Any]) -> int:
    """The status. `legwork` may be several addresses, with commas: the first there is used."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token.strip()}"
    data = json.dumps(body).encode()
    failure: Optional[Exception] = None
    for base in legwork.split(","):
        base = base.strip().rstrip("/")
        base = base if "://" in base else f"http://{base}"
        url = f"{base}/v1/executors/{urllib.parse.quote(name, safe='')}"
        try:
            return _send(urllib.request.Request(url, data, headers, method="PUT"))
        except OSError as error:
            failure = failure or error
    raise failure or ValueError("no address of Legwork is given")


def send_result(url: str, secret: str, task: str, outcome: Outcome, load: dict[str, Any]) -> int:
    """The status. `load` says which tasks there are still."""
    if outcome.failure is None:
        body: dict[str, Any] = {"task": task, "data": outcome.data}
    else:
        body = {"task": task, "error": outcome.failure.reason, "retry": outcome.failure.retry}
    body["has"] = load["has"]
    if outcome.took_ms is not None:
        body["took_ms"] = outcome.took_ms
    data = json.dumps({**body, "holds": load["holds"]}).encode()
    if len(data) > MESSAGE_BYTES_MAX:
        data = json.dumps(body).encode()  # the result is what has to be heard
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="POST")
    signed = signature.sign(secret, "POST", request.selector, data, now_ms())
    request.add_header(signature.HEADER, signed)
    return _send(request)


def until_heard(
    what: str,
    call: Callable[[], Optional[int]],
    is_heard: Callable[[int], bool],
    pause_s: float,
    closing: threading.Event,
) -> None:
    """Calls until it is heard, or answers nothing because there is nothing to say any more."""
    while not closing.is_set():
        try:
            status = call()
            if status is None or is_heard(status):
                return
            log.warning("%s is said again: the answer was %s", what, status)
        except (OSError, ValueError, http.client.HTTPException) as error:
            log.warning("%s is said again: %s", what, error)
        closing.wait(pause_s)
        pause_s = min(pause_s * 2, PATIENCE_S)


def is_usable(url: str) -> bool:
    """Whether a result can be sent there."""
    try:
        parts = urllib.parse.urlsplit(url)
        parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None


def _send(request: urllib.request.Request) -> int:
    try:
        with _opener.open(request, timeout=PATIENCE_S) as answer:
            answer.read(ANSWER_BYTES_MAX)
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
