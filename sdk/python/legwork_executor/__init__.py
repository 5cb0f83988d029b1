"""A ready executor: an HTTP server that does automatic steps for Legwork.

Invariant: a task is begun at most once while it is remembered, whatever is repeated; what came of
it is told until Legwork has heard it, and a result until it is judged; nothing unsigned is listened
to. Standard library only.
"""

from .executor import Executor
from .words import Failure, Judged, Task

__all__ = ["Executor", "Failure", "Judged", "Task"]
