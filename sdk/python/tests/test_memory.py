"""What is remembered, for how long, and how much of it."""

import dataclasses
import unittest

from legwork_executor.memory import HOLDS_MAX, Admission, Memory, Phase, Reply
from legwork_executor.words import Failure, Judged, Outcome, Task


def task(name):
    return Task.read(
        {
            "task": name,
            "key": "case/step",
            "attempt": 1,
            "type": "score",
            "size": 1.0,
            "process": "loan",
            "inputs": {},
            "deadline": "2026-11-16T02:30:00.000Z",
            "callback": "http://a/b",
        }
    )


def done(size=10):
    return Outcome({"points": 7}, None, size)


class Remembering(unittest.TestCase):
    def setUp(self):
        self.memory = Memory()

    def admit(self, name, limit=16, limit_of=None):
        return self.memory.admit(task(name), limit, limit_of)

    def quick(self, name, size=10):
        self.assertIs(self.admit(name), Admission.NEW)
        self.assertFalse(self.memory.finished(task(name), done(size)))

    def slow(self, name):
        self.assertIs(self.admit(name), Admission.NEW)
        self.assertIs(self.memory.answer(name, 0), Reply.TAKEN)
        self.assertTrue(self.memory.finished(task(name), done()))

    def test_a_repetition_is_answered_like_the_first_time(self):
        self.quick("a")
        self.assertIs(self.admit("a"), Admission.KNOWN)
        self.assertEqual(self.memory.answer("a", 0), done())
        self.slow("b")
        self.memory.sent("b")
        self.assertIs(self.admit("b"), Admission.KNOWN)
        self.assertIs(self.memory.answer("b", 0), Reply.TAKEN)

    def test_an_answer_that_was_not_heard_is_sent(self):
        self.quick("a")
        self.assertTrue(self.memory.unheard("a"))
        self.assertFalse(self.memory.unheard("a"))
        self.assertEqual(self.memory.sending("a"), done())
        self.assertEqual(self.memory.callback("a"), "http://a/b")

    def test_a_verdict_is_passed_on_once_and_leaves_only_the_name(self):
        self.quick("a")
        judged = Judged("a", "case/step", {"points": 7})
        self.assertEqual(self.memory.judge("a"), judged)
        self.assertIs(self.memory.judge("a"), Reply.LATER)
        self.memory.judged("a", False)
        self.assertEqual(self.memory.judge("a"), judged)
        self.memory.judged("a", True)
        self.assertIs(self.memory.judge("a"), Reply.CONFIRMED)
        self.assertIs(self.memory.answer("a", 0), Reply.OVER)
        self.assertEqual(self.memory._bytes, 0)

    def test_a_verdict_for_what_is_not_known_is_passed_on_too(self):
        self.assertEqual(self.memory.judge("x"), Judged("x"))
        self.memory.judged("x", False)
        self.assertEqual(len(self.memory), 0)
        self.assertEqual(self.memory.judge("x"), Judged("x"))
        self.memory.judged("x", True)
        self.assertIs(self.memory.judge("x"), Reply.CONFIRMED)
        self.assertTrue(self.memory.stop(0))

    def test_a_verdict_ends_the_sending(self):
        self.slow("a")
        self.assertEqual(self.memory.judge("a").task, "a")
        self.assertIsNone(self.memory.sending("a"))
        self.memory.sent("a")
        self.memory.judged("a", True)
        self.assertTrue(self.memory.stop(0))

    def test_a_result_is_unjudged_from_when_it_is_told_until_its_verdict_or_it_is_forgotten(self):
        self.memory = Memory(tasks_max=1, verdict_patience=0)
        self.assertIs(self.admit("a"), Admission.NEW)
        self.assertIsNone(self.memory.unjudged("a"), "it is not done")
        self.memory.finished(task("a"), Outcome(None, Failure.again("no answer"), 10))
        self.assertIsNone(self.memory.unjudged("a"), "failures are not judged")
        self.slow("b")
        self.assertIsNone(self.memory.unjudged("b"), "it is not told")
        self.memory.sent("b")
        self.memory.cancel("b")
        for _ in range(3):
            self.assertEqual(self.memory.remind(), "b")
            self.assertEqual(self.memory.unjudged("b"), ("http://a/b", done()))
            self.assertEqual(self.memory._unjudged, {}, "once at a time")
            self.memory.reminded("b")
        self.assertEqual(list(self.memory._unjudged), [0.08], "the pauses grow")
        self.memory.judge("b")
        self.assertIsNone(self.memory.unjudged("b"))
        self.memory.judged("b", False)
        self.assertIsNone(self.memory.unjudged("b"), "the verdict comes again")
        self.quick("c")
        self.quick("d")
        self.assertIsNone(self.memory.unjudged("c"), "it is forgotten")
        self.assertEqual([list(due) for due in self.memory._unjudged.values()], [["d"]])
        self.memory.stop(0)
        self.assertIsNone(self.memory.remind())

    def test_what_is_cancelled_may_stop_or_be_told(self):
        self.memory.cancel("a")
        self.assertIs(self.admit("a"), Admission.KNOWN)
        self.assertIs(self.memory.answer("a", 0), Reply.OVER)
        for name, outcome, sent in (
            ("b", Outcome(None, Failure.again("stopped"), 1), False),
            ("c", done(), True),
        ):
            begun = task(name)
            self.assertIs(self.memory.admit(begun, 16, None), Admission.NEW)
            self.memory.cancel(name)
            self.assertTrue(begun.cancelled)
            self.assertEqual(self.memory.finished(begun, outcome), sent)
            self.assertIs(self.memory.answer(name, 0), Reply.TAKEN)

    def test_what_one_server_gives_refuses_nothing_of_another_and_both_are_told_of_all(self):
        other = dataclasses.replace(task("b"), callback="http://b")
        self.assertIs(self.admit("a", 1, 1), Admission.NEW)
        self.assertIs(self.admit("c", 1), Admission.BUSY)
        self.assertIs(self.memory.admit(other, 1, 1), Admission.NEW)
        self.assertEqual(self.memory.load(), {"has": 2, "holds": ["a", "b"]})
        self.memory.finished(other, done())
        self.assertEqual(self.memory.load(), {"has": 1, "holds": ["a"]})

    def test_of_many_tasks_not_all_names_are_told(self):
        for number in range(HOLDS_MAX + 1):
            self.assertIs(self.admit(str(number), HOLDS_MAX * 2), Admission.NEW)
        load = self.memory.load()
        self.assertEqual((load["has"], len(load["holds"])), (HOLDS_MAX + 1, HOLDS_MAX))

    def test_servers_of_one_process_share_a_callback_and_are_told_apart_by_name(self):
        east, west = (dataclasses.replace(task(name), server=name) for name in ("east", "west"))
        self.assertIs(self.memory.admit(east, 1, 1), Admission.NEW)
        self.assertIs(self.memory.admit(west, 1, 1), Admission.NEW)
        more = dataclasses.replace(task("more"), server="east")
        self.assertIs(self.memory.admit(more, 1, 1), Admission.BUSY)
        self.memory.finished(east, done())
        self.assertIs(self.memory.admit(more, 1, 1), Admission.NEW)

    def test_no_more_are_begun_than_fit(self):
        self.assertIs(self.admit("a", 3, 2), Admission.NEW)
        self.assertIs(self.admit("b", 3, 2), Admission.NEW)
        self.assertIs(self.admit("c", 3, 2), Admission.BUSY)
        self.assertIs(self.admit("c", 2), Admission.BUSY)
        self.assertIs(self.admit("a", 1), Admission.KNOWN)
        self.memory.finished(task("a"), done())
        self.assertFalse(self.memory.stop(0))
        self.assertIs(self.admit("c", 3, 2), Admission.CLOSED)

    def test_the_oldest_that_is_told_is_forgotten_first(self):
        self.memory = Memory(tasks_max=3)
        self.slow("a")
        for name in "bcd":
            self.quick(name)
        self.assertEqual(set(self.memory._tasks), set("acd"))
        self.slow("b")
        self.slow("e")
        self.assertIs(self.admit("f"), Admission.CLOSED, "all wait to be told")
        self.memory.sent("e")
        self.assertIs(self.admit("f"), Admission.NEW)
        self.assertEqual(set(self.memory._tasks), set("abf"))

    def test_large_results_are_forgotten_sooner(self):
        self.memory = Memory(bytes_max=1_000)
        self.quick("a", 600)
        self.quick("b", 600)
        self.quick("c")
        self.assertEqual(set(self.memory._tasks), set("bc"))
        self.assertEqual(self.memory._bytes, 610)

    def test_the_phases_are_counted(self):
        self.slow("a")
        self.quick("b")
        self.memory.cancel("c")
        self.assertEqual(self.memory._phases[Phase.SENDING], 1)
        self.assertEqual(sum(self.memory._phases.values()), len(self.memory))
