"""The ten lines of the README do what they say."""

import os
import pathlib
import unittest
from unittest import mock

from legwork_executor import Executor

from .world import SECRET, World

README = pathlib.Path(__file__).parent.parent / "README.md"


class Readme(unittest.TestCase):
    def test_the_program_does_its_tasks(self):
        program = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
        with mock.patch.dict(os.environ, {"CRM_SECRET": SECRET}):
            with mock.patch.object(Executor, "run", autospec=True) as run:
                exec(compile(program, str(README), "exec"), {})
        (executor,), given = run.call_args
        self.assertEqual(given, {"port": 7001, "legwork": "http://127.0.0.1:7700"})
        world = World(executor)
        self.addCleanup(world.gone)
        self.assertEqual(world.give("t1").body, {"data": {"points": 1}})
