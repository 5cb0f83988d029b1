"""What handlers and hooks are given, and how they say that something failed.

Invariant: a failure is either tried again or not, and its reason fits into a history.
"""

from __future__ import annotations

import datetime
import threading
from dataclasses import dataclass, field
from typing import Any, Optional

REASON_CHARS_MAX = 1_000


class Failure(Exception):
    """Raised by a handler. Any other exception counts as `Failure.again`."""

    def __init__(self, reason: str, retry: bool = True) -> None:
        super().__init__(reason)
        self.reason = str(reason)[:REASON_CHARS_MAX]
        self.retry = retry

    @classmethod
    def again(cls, reason: str) -> Failure:
        """It may go well another time, or elsewhere."""
        return cls(reason, retry=True)

    @classmethod
    def forever(cls, reason: str) -> Failure:
        """It will fail again: somebody has to look at it."""
        return cls(reason, retry=False)


@dataclass(frozen=True)
class Task:
    """One attempt at a step."""

    task: str  # this assignment
    key: str  # the same for every attempt at the step: an idempotency key
    attempt: int
    type: str
    size: float
    process: str
    inputs: dict[str, Any]
    deadline: datetime.datetime  # after that it is given to somebody else
    callback: str
    server: str = ""  # which gives it, where there are several
    _cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Nobody waits for it any more: a long handler looks now and then, and raises."""
        return self._cancelled.is_set()

    def wait_cancelled(self, seconds: float) -> bool:
        """Sleeps, unless nobody waits for it any more."""
        return self._cancelled.wait(seconds)

    @classmethod
    def read(cls, wire: Any) -> Task:
        """Raises ValueError; fields that are not known are for later versions."""
        kinds = {
            "task": str,
            "key": str,
            "attempt": int,
            "type": str,
            "size": (int, float),
            "process": str,
            "inputs": dict,
            "deadline": str,
            "callback": str,
        }
        if not isinstance(wire, dict):
            raise ValueError("it is not an object")
        for name, kind in kinds.items():
            if not isinstance(wire.get(name), kind) or isinstance(wire[name], bool):
                raise ValueError(f"`{name}` is missing or of the wrong type")
        values = {name: wire[name] for name in kinds}
        moment = values["deadline"].replace("Z", "+00:00")
        values["deadline"] = datetime.datetime.fromisoformat(moment)
        values["size"] = float(values["size"])
        server = wire.get("server")
        values["server"] = server if isinstance(server, str) else ""
        return cls(**values)


@dataclass(frozen=True)
class Judged:
    """A result of ours that was judged.

    It may have been given before this process began, and a verdict whose hook failed comes again: a
    hook goes by the name of the task.
    """

    task: str
    key: Optional[str] = None  # unknown for a task that is not remembered
    data: Optional[dict[str, Any]] = None  # unknown like the key, and absent for failures


@dataclass(frozen=True)
class Outcome:
    """What came of a task: data or a failure, and how large that is."""

    data: Optional[dict[str, Any]]
    failure: Optional[Failure]
    size: int
    took_ms: Optional[int] = field(default=None, compare=False)  # how long the handler worked
