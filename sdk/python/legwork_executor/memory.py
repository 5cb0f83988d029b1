"""What the executor has been given, and what came of it: why a repetition begins nothing.

Invariant: a task has one answer, and keeps it; at most TASKS_MAX tasks and BYTES_MAX bytes of
results are remembered. What Legwork has not heard yet is never forgotten: when there is no room but
theirs, new tasks wait. A result that is told is unjudged until its first verdict, or until it is
forgotten. Everything happens under one lock, which is here.
"""

from __future__ import annotations

import enum
import itertools
import math
import threading
import time
from collections import Counter, OrderedDict
from typing import Any, Optional, Union

from .words import Judged, Outcome, Task

TASKS_MAX = 10_000
BYTES_MAX = 64 << 20
SENDING_MAX = 256  # each has a thread
HOLDS_MAX = 1_000  # tasks of which the names are told
REMIND_S_MIN = 0.01
REMIND_S_MAX = 600.0  # the longest pause, unless the first is longer


class Phase(enum.Enum):
    WORKING = "working"
    SENDING = "sending"  # by callback, and not received yet
    TOLD = "told"  # Legwork has the result
    JUDGING = "judging"  # the hook is being called
    OVER = "over"  # cancelled or judged: only the name is kept


class Admission(enum.Enum):
    KNOWN = "known"
    NEW = "new"
    BUSY = "busy"  # too many at a time
    CLOSED = "closed"  # the executor stops, or remembers all it can


class Reply(enum.Enum):
    TAKEN = "taken"  # the result comes by callback
    OVER = "over"  # it was cancelled or has its verdict
    LATER = "later"  # a verdict that is being seen to
    CONFIRMED = "confirmed"


Answer = Union[Reply, Outcome]
_Giver = tuple[str, str]


def _giver(task: Task) -> _Giver:
    """Servers of one process share a callback, and an older one says no name."""
    return task.callback, task.server


class _Entry:
    """The inputs are not kept: they may be large."""

    def __init__(self, task: Optional[Task]) -> None:
        self.phase = Phase.WORKING
        self.key = task.key if task else None
        self.callback = task.callback if task else None
        self.cancelled = task._cancelled if task else None
        self.answer: Optional[Answer] = None
        self.outcome: Optional[Outcome] = None
        self.pause: Optional[float] = None  # before Legwork is reminded of the result


class Memory:
    def __init__(
        self,
        tasks_max: int = TASKS_MAX,
        bytes_max: int = BYTES_MAX,
        verdict_patience: Optional[float] = None,
    ) -> None:
        """Without a patience no verdicts come, and nobody is reminded of a result."""
        self._changed = threading.Condition()
        self._tasks: dict[str, _Entry] = {}
        # Those that may be forgotten, in the order in which they became so.
        self._forgettable: OrderedDict[str, None] = OrderedDict()
        # What is unjudged, and when Legwork is reminded of it: for each pause, the soonest first.
        self._unjudged: dict[float, OrderedDict[str, float]] = {}
        self._verdict_patience = (
            None if verdict_patience is None else max(verdict_patience, REMIND_S_MIN)
        )
        self._tasks_max = tasks_max
        self._bytes_max = bytes_max
        self._bytes = 0
        # By their server and their type: limits are those of each server.
        self._working: Counter[tuple[_Giver, str]] = Counter()
        self._held: dict[str, None] = {}  # the names of these
        self._phases: Counter[Phase] = Counter()
        self._stopping = False

    def admit(self, task: Task, limit: int, limit_of: Optional[int]) -> Admission:
        """A new task counts as begun from here on."""
        with self._changed:
            if task.task in self._tasks:
                return Admission.KNOWN
            if self._stopping or self._phases[Phase.SENDING] >= SENDING_MAX:
                return Admission.CLOSED
            giver = _giver(task)
            of_type = self._working[giver, task.type]
            own = sum(n for (other, _), n in self._working.items() if other == giver)
            if own >= limit or (limit_of or limit) <= of_type:
                return Admission.BUSY
            if not self._make_room():
                return Admission.CLOSED
            self._working[giver, task.type] += 1
            self._held[task.task] = None
            self._insert(task.task, _Entry(task))
            return Admission.NEW

    def load(self) -> dict[str, Any]:
        """What every answer says: how many tasks there are now, of all servers, those that wait for
        their turn included, and their names."""
        with self._changed:
            holds = list(itertools.islice(self._held, HOLDS_MAX))
            return {"has": sum(self._working.values()), "holds": holds}

    def answer(self, task: str, patience: float) -> Answer:
        """What is answered to the task, now or when it is done; after the patience it is taken."""
        end = time.monotonic() + patience
        with self._changed:
            while True:
                entry = self._tasks.get(task)
                if entry is None:
                    return Reply.LATER
                left = end - time.monotonic()
                if entry.answer is None and left <= 0:
                    entry.answer = Reply.TAKEN
                    self._changed.notify_all()
                if entry.answer is not None:
                    return entry.answer
                self._changed.wait(left)

    def finished(self, task: Task, outcome: Outcome) -> bool:
        """Whether the result has to be sent: nobody waits for it any more."""
        with self._changed:
            self._working[_giver(task), task.type] -= 1
            self._working += Counter()  # forgets those that are none
            self._held.pop(task.task, None)
            self._changed.notify_all()
            entry = self._tasks.get(task.task)
            if entry is None or entry.phase is not Phase.WORKING:
                return False
            if task.cancelled and outcome.failure is not None:
                self._shift(task.task, Phase.OVER)
                return False
            entry.outcome = outcome
            self._bytes += outcome.size
            if entry.answer is None:
                entry.answer = outcome
                self._shift(task.task, Phase.TOLD)
                return False
            self._shift(task.task, Phase.SENDING)
            return True

    def unheard(self, task: str) -> bool:
        """The answer could not be written: whether the result has to be sent."""
        with self._changed:
            entry = self._tasks.get(task)
            if entry is None or entry.phase is not Phase.TOLD:
                return False
            entry.answer = Reply.TAKEN
            self._shift(task, Phase.SENDING)
            return True

    def sending(self, task: str) -> Optional[Outcome]:
        """What is still to be sent: a verdict tells that it has come."""
        with self._changed:
            entry = self._tasks.get(task)
            return entry.outcome if entry and entry.phase is Phase.SENDING else None

    def callback(self, task: str) -> Optional[str]:
        with self._changed:
            entry = self._tasks.get(task)
            return entry.callback if entry else None

    def sent(self, task: str) -> None:
        with self._changed:
            entry = self._tasks.get(task)
            if entry and entry.phase is Phase.SENDING:
                self._shift(task, Phase.TOLD)

    def remind(self) -> Optional[str]:
        """Waits until Legwork is to be reminded of a result: send it, then `reminded`. Nothing when
        the executor stops."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                firsts = [next(iter(due.items())) for due in self._unjudged.values()]
                task, moment = min(firsts, key=lambda first: first[1], default=("", math.inf))
                if moment <= now:
                    self._take_due(task)
                    return task
                self._changed.wait(min(moment - now, threading.TIMEOUT_MAX))
            return None

    def unjudged(self, task: str) -> Optional[tuple[str, Outcome]]:
        """Where the result is sent again, unless there is a verdict by now."""
        with self._changed:
            entry = self._tasks.get(task)
            if entry is None or entry.pause is None or not (entry.callback and entry.outcome):
                return None
            return entry.callback, entry.outcome

    def reminded(self, task: str) -> None:
        """The next time is after twice the pause."""
        with self._changed:
            entry = self._tasks.get(task)
            if entry and entry.pause is not None:
                longest = max(self._verdict_patience or 0.0, REMIND_S_MAX)
                self._remind_after(task, min(entry.pause * 2, longest))
                self._changed.notify_all()

    def cancel(self, task: str) -> None:
        """Nobody waits for it any more. What is done stays done, and will be judged."""
        with self._changed:
            entry = self._tasks.get(task)
            if entry is None:
                # The task itself may come after: it must not be begun.
                if self._make_room():
                    self._insert(task, _Entry(None))
                    self._shift(task, Phase.OVER)
            elif entry.phase is Phase.WORKING and entry.cancelled:
                # A thread cannot be ended; the handler is told, and may go on to the end.
                entry.cancelled.set()
                entry.answer = entry.answer or Reply.TAKEN
                self._changed.notify_all()

    def judge(self, task: str) -> Union[Judged, Reply]:
        """Call the hook, then `judged`; or there is nothing to call."""
        with self._changed:
            entry = self._tasks.get(task)
            if entry is None:
                if not self._make_room():
                    return Reply.LATER
                entry = self._insert(task, _Entry(None))
            if entry.phase is Phase.OVER:
                return Reply.CONFIRMED
            if entry.phase is Phase.JUDGING:
                return Reply.LATER
            if entry.phase is Phase.WORKING and entry.cancelled:
                # The result is that of an earlier life of this executor.
                entry.cancelled.set()
            self._shift(task, Phase.JUDGING)
            return Judged(task, entry.key, entry.outcome.data if entry.outcome else None)

    def judged(self, task: str, well: bool) -> None:
        """The hook went well, or the verdict comes again."""
        with self._changed:
            entry = self._tasks.get(task)
            if entry is None or entry.phase is not Phase.JUDGING:
                return
            if well:
                self._shift(task, Phase.OVER)
            elif entry.outcome:
                self._shift(task, Phase.TOLD)
            else:
                self._forget(task)

    def stop(self, grace: float) -> bool:
        """Takes no more; whether all that was begun is done and told within the time of grace."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            return self._changed.wait_for(self._is_idle, grace)

    def __len__(self) -> int:
        return len(self._tasks)

    def _is_idle(self) -> bool:
        busy = sum(self._working.values())
        return not (busy or self._phases[Phase.SENDING] or self._phases[Phase.JUDGING])

    def _insert(self, task: str, entry: _Entry) -> _Entry:
        self._tasks[task] = entry
        self._phases[entry.phase] += 1
        return entry

    def _shift(self, task: str, phase: Phase) -> None:
        entry = self._tasks[task]
        was_judged = entry.phase is Phase.JUDGING
        self._remind_after(task, None)
        self._forgettable.pop(task, None)
        self._phases[entry.phase] -= 1
        self._phases[phase] += 1
        entry.phase = phase
        if phase is Phase.OVER:
            self._bytes -= entry.outcome.size if entry.outcome else 0
            entry.outcome = entry.key = entry.callback = entry.cancelled = None
            # Whoever was told to wait is told so again.
            if entry.answer is not Reply.TAKEN:
                entry.answer = Reply.OVER
        if phase in (Phase.TOLD, Phase.OVER):
            self._forgettable[task] = None
        if phase is Phase.TOLD and not was_judged and entry.outcome and not entry.outcome.failure:
            self._remind_after(task, self._verdict_patience)
        self._changed.notify_all()

    def _remind_after(self, task: str, pause: Optional[float]) -> None:
        """Legwork is reminded of the result after the pause; without one, not at all."""
        self._take_due(task)
        self._tasks[task].pause = pause
        if pause is not None:
            self._unjudged.setdefault(pause, OrderedDict())[task] = time.monotonic() + pause

    def _take_due(self, task: str) -> None:
        pause = self._tasks[task].pause
        due = self._unjudged.get(pause) if pause is not None else None
        if pause is not None and due is not None:
            due.pop(task, None)
            if not due:
                del self._unjudged[pause]

    def _make_room(self) -> bool:
        """Forgets the oldest until there is room for one more."""
        while len(self._tasks) >= self._tasks_max or self._bytes > self._bytes_max:
            if not self._forgettable:
                return False
            self._forget(next(iter(self._forgettable)))
        return True

    def _forget(self, task: str) -> None:
        self._remind_after(task, None)
        entry = self._tasks.pop(task)
        self._forgettable.pop(task, None)
        self._phases[entry.phase] -= 1
        self._bytes -= entry.outcome.size if entry.outcome else 0
        self._changed.notify_all()
