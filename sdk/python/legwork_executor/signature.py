"""Signatures: how an executor knows that Legwork calls, and Legwork that the executor does.

Invariant: pure; the time is an argument. What was signed with another secret, changed on the way or
is older (or newer) than five minutes is refused, and the comparison takes the same time wherever
the difference is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Optional

HEADER = "Legwork-Signature"
DRIFT_MS_MAX = 5 * 60 * 1000
SECRET_CHARS_MIN = 32

_MOMENT = re.compile(r"[0-9]{1,15}", re.ASCII)
_TAG = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Refused(Exception):
    """Why a signature does not count."""


def sign(secret: str, method: str, target: str, body: bytes, now_ms: int) -> str:
    """The value of the header; `target` is path and query as in the request line."""
    return f"t={now_ms},v1={_tag(secret, str(now_ms), method, target, body)}"


def verify(
    secret: str, method: str, target: str, body: bytes, header: Optional[str], now_ms: int
) -> None:
    """Raises `Refused` unless it is from somebody who knows the secret, and not too old."""
    if header is None:
        raise Refused(
            "the request is not signed; send the header `Legwork-Signature: t=MILLIS,v1=HEX`"
        )
    parts: dict[str, str] = {}
    for part in header.split(","):
        name, sep, value = part.strip().partition("=")
        # Parts of other names are for later versions.
        if not sep or (name in ("t", "v1") and name in parts):
            raise _unreadable()
        parts[name] = value
    moment, tag = parts.get("t", ""), parts.get("v1", "")
    if not _MOMENT.fullmatch(moment) or not _TAG.fullmatch(tag):
        raise _unreadable()
    if abs(now_ms - int(moment)) > DRIFT_MS_MAX:
        raise Refused(
            "the request was signed more than five minutes ago or ahead; set the clocks right"
        )
    if not hmac.compare_digest(tag, _tag(secret, moment, method, target, body)):
        raise Refused(
            "the signature does not fit the request; use the secret of the registration, and let "
            "no proxy change the path or the body"
        )


def _tag(secret: str, moment: str, method: str, target: str, body: bytes) -> str:
    signed = f"{moment}.{method} {target}.".encode() + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def _unreadable() -> Refused:
    return Refused(
        "the signature cannot be read; write it `t=MILLIS,v1=HEX`, in lower-case digits"
    )
