"""The executor protocol over real sockets: what an executor answers, says and remembers."""

import logging
import logging.handlers
import queue
import sys
import threading
import unittest

from legwork_executor import Executor, Failure, Judged
from legwork_executor.calls import now_ms

from .world import PATIENCE, SECRET, World

SHORT = 0.01  # what a verdict may take where its absence is tested


def setUpModule():
    logging.disable(logging.CRITICAL)


def tearDownModule():
    logging.disable(logging.NOTSET)


class Protocol(unittest.TestCase):
    def world(self, executor, **answers):
        world = World(executor, **answers)
        self.addCleanup(world.gone)
        return world

    def scoring(self, **options):
        """Counts how often it is called, and gives seven points."""
        executor = Executor("crm", SECRET, **options)
        self.begun = []

        @executor.on("score")
        def score(task):
            self.begun.append(task.task)
            return {"points": 7, "of": task.inputs["amount"]}

        return executor

    def waiting(self, **options):
        """Waits for a permit; everything is told later."""
        executor = Executor("crm", SECRET, **{"patience": 0, **options})
        self.gate = threading.Semaphore(0)

        @executor.on("score")
        def score(task):
            if not self.gate.acquire(timeout=PATIENCE):
                raise Failure.again("nobody opened")
            return {"for": task.task}

        return executor

    def test_it_registers_until_it_is_heard(self):
        executor = self.scoring(
            domain="north", at_once=2, regularly=[("1h", "5m")], reserve=10
        )
        executor.on("mail", limit=4)(lambda task: None)
        # To a redirect nothing is sent.
        world = self.world(executor, registrations=[503, 401, 307])
        for _ in range(4):
            call = world.registration()
            self.assertEqual(call["token"], "Bearer lw_token")
            self.assertEqual(
                call["body"],
                {
                    "url": world.url,
                    "secret": SECRET,
                    "types": {"score": {}, "mail": {"limit": 4}},
                    "limit": 16,
                    "at_once": 2,
                    "regularly": [{"every": "1h", "takes": "5m"}],
                    "reserve": 10,
                    "domain": "north",
                    "verdicts": True,
                    "holds": [],
                },
            )

    def test_what_is_not_signed_well_does_nothing(self):
        world = self.world(self.scoring())
        task = world.task("t1", "score")
        for reason, how in (
            ("not signed", {"sign": False}),
            ("clocks", {"now": now_ms() - 301_000}),
            ("clocks", {"now": now_ms() + 301_000}),
            ("secret", {"secret": SECRET[::-1]}),
        ):
            for path in ("/tasks", "/verdicts", "/cancellations"):
                answer = world.say(path, task, **how)
                self.assertEqual(answer.status, 401)
                self.assertIn(reason, answer.body["error"])
        self.assertEqual(self.begun, [])
        self.assertEqual(world.give("t1").status, 200)

    def test_a_quick_task_is_answered_at_once_and_a_repetition_begins_nothing(self):
        world = self.world(self.scoring())
        for name in ("t1", "t1", "t2"):
            answer = world.give(name)
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.body, {"data": {"points": 7, "of": 1200}})
        self.assertEqual(self.begun, ["t1", "t2"])

    def test_failures_say_whether_to_try_again(self):
        executor = Executor("crm", SECRET)

        @executor.on("again")
        def again(task):
            raise Failure.again("no answer from the bank")

        @executor.on("forever")
        def forever(task):
            raise Failure.forever("no such customer")

        executor.on("error")(lambda task: task.inputs["missing"])
        executor.on("exit")(lambda task: sys.exit("gone"))
        executor.on("list")(lambda task: [1])
        executor.on("nan")(lambda task: {"x": float("nan")})
        executor.on("none")(lambda task: None)
        world = self.world(executor)
        for kind, status, body in (
            ("again", 500, {"error": "no answer from the bank"}),
            ("again", 500, {"error": "no answer from the bank"}),
            ("forever", 422, {"error": "no such customer"}),
            ("error", 500, {"error": "'missing'"}),
            ("exit", 500, {"error": "gone"}),
            ("none", 200, {"data": {}}),
        ):
            answer = world.give(kind, kind)
            self.assertEqual((answer.status, answer.body), (status, body))
        for kind, status in (("list", 422), ("nan", 422), ("other", 404)):
            self.assertEqual(world.give(kind, kind).status, status)
        self.assertEqual(world.say("/tasks", {"task": "x"}).status, 400)
        self.assertEqual(world.say("/tasks", []).status, 400)
        self.assertEqual(world.say("/other", {}).status, 404)
        self.assertEqual(world.give("x" * 401, "again").status, 400)

    def test_a_late_result_is_sent_until_it_is_received(self):
        world = self.world(self.waiting(), results=[503, 200, 307])
        self.assertEqual(world.give("t1").status, 202)
        self.assertEqual(world.give("t1").status, 202)
        self.gate.release()
        for _ in range(4):
            self.assertEqual(world.result(), {"task": "t1", "data": {"for": "t1"}})
        self.assertEqual(world.give("t1").status, 202, "like the first time")
        world.gone()
        self.assertTrue(world.results.empty(), "nothing is sent after it was received")

    def test_a_result_that_nobody_waited_for_is_sent(self):
        world = self.world(self.waiting(patience=PATIENCE))
        world.hang_up("t1")
        self.gate.release()
        self.assertEqual(world.result()["task"], "t1")

    def test_a_late_failure_is_sent_too(self):
        executor = Executor("crm", SECRET, patience=0)
        gate = threading.Event()

        @executor.on("score")
        def score(task):
            gate.wait(PATIENCE)
            raise Failure.forever("no such customer")

        world = self.world(executor)
        self.assertEqual(world.give("t1").status, 202)
        gate.set()
        self.assertEqual(
            world.result(), {"task": "t1", "error": "no such customer", "retry": False}
        )

    def test_it_registers_again_when_it_is_not_known(self):
        world = self.world(self.waiting(), results=[404])
        world.registration()
        self.assertEqual(world.give("t1").status, 202)
        self.gate.release()
        world.registration()
        for _ in range(2):
            self.assertEqual(world.result()["task"], "t1")

    def test_verdicts_are_passed_on_and_confirmed(self):
        executor, acks, nacks = self.scoring(), [], []
        executor.on_ack(acks.append)
        executor.on_nack(nacks.append)
        world = self.world(executor)
        world.give("t1")
        world.give("t2")
        for _ in range(2):
            self.assertEqual(world.judge("t1", "ack").status, 200)
            self.assertEqual(world.judge("t2", "nack").status, 200)
            self.assertEqual(world.judge("t3", "nack").status, 200, "nobody knows it")
        data = {"points": 7, "of": 1200}
        self.assertEqual(acks, [Judged("t1", "case/step", data)])
        self.assertEqual(nacks, [Judged("t2", "case/step", data), Judged("t3")])
        self.assertEqual(world.judge("t1", "perhaps").status, 400)

    def test_a_verdict_whose_hook_fails_is_not_confirmed(self):
        executor, called = self.scoring(), []

        @executor.on_nack
        def undo(judged):
            called.append(judged.task)
            if len(called) == 1:
                raise OSError("locked")

        world = self.world(executor)
        world.give("t1")
        answer = world.judge("t1", "nack")
        self.assertEqual((answer.status, answer.body), (500, {"error": "locked"}))
        self.assertEqual(world.judge("t1", "nack").status, 200)
        self.assertEqual(world.judge("t2", "ack").status, 200, "there is nothing to do")
        self.assertEqual(called, ["t1", "t1"])

    def test_a_result_without_a_verdict_is_sent_again_until_it_has_one(self):
        executor = self.waiting(verdict_patience=SHORT)

        @executor.on_nack
        def undo(judged):
            if judged.task == "t1":
                raise OSError("locked")

        world = self.world(executor, results=[202, 503])
        self.assertEqual(world.give("t1").status, 202)
        self.gate.release()
        for _ in range(3):
            self.assertEqual(world.result(), {"task": "t1", "data": {"for": "t1"}})
        self.assertEqual(world.judge("t1", "nack").status, 500, "but it was heard")
        while not world.results.empty():
            world.result()
        self.assertEqual(world.give("t2").status, 202)
        self.gate.release()
        on_their_way = 0
        for _ in range(6):
            while world.result()["task"] != "t2":
                on_their_way += 1
        self.assertLessEqual(on_their_way, 1, "it is sent after its verdict")
        self.assertEqual(world.judge("t2", "nack").status, 200)

    def test_a_result_that_was_answered_at_once_is_sent_again_too_and_a_failure_is_not(self):
        executor = self.scoring(verdict_patience=SHORT)
        executor.on("fail")(lambda task: task.inputs["missing"])
        world = self.world(executor)
        self.assertEqual(world.give("f1", "fail").status, 500)
        self.assertEqual(world.give("t1").status, 200)
        for _ in range(3):
            self.assertEqual(
                world.result(), {"task": "t1", "data": {"points": 7, "of": 1200}}
            )
        self.assertEqual(world.give("t1").status, 200, "like the first time")

    def test_without_verdicts_nothing_is_sent_again_that_was_received(self):
        executor = self.waiting(verdicts=False, verdict_patience=SHORT)
        world = self.world(executor, results=[202, 503, 503])
        for name, times in (("t1", 1), ("t2", 3)):
            self.assertEqual(world.give(name).status, 202)
            self.gate.release()
            for _ in range(times):
                self.assertEqual(world.result()["task"], name)
        world.gone()
        self.assertTrue(world.results.empty())

    def test_a_cancelled_task_stops_if_it_can(self):
        executor = Executor("crm", SECRET, patience=0, limit=1)
        begun = []

        @executor.on("score")
        def score(task):
            begun.append(task.task)
            if task.wait_cancelled(PATIENCE):
                raise Failure.again("cancelled")

        world = self.world(executor)
        self.assertEqual(world.give("t1").status, 202)
        for _ in range(2):
            self.assertEqual(world.cancel("t1").status, 200)
        self.assertEqual(world.give("t1").status, 202, "like the first time")
        self.assertEqual(world.cancel("t2").status, 200, "it comes before its task")
        self.assertEqual(world.give("t2").status, 409)
        world.gone()
        self.assertEqual(begun, ["t1"])
        self.assertTrue(world.results.empty(), "nobody waits for it")

    def test_what_goes_on_after_a_cancellation_is_told(self):
        world = self.world(self.waiting())
        self.assertEqual(world.give("t1").status, 202)
        self.assertEqual(world.cancel("t1").status, 200)
        self.gate.release()
        self.assertEqual(world.result()["task"], "t1", "it will be judged")

    def test_what_a_second_server_gives_waits_and_both_hear_how_much_there_is(self):
        world = self.world(self.waiting(limit=1))
        self.assertEqual(world.give("t1").status, 202)
        self.assertEqual(world.told, {"has": 1, "holds": ["t1"]})
        other = dict(world.task("t2", "score"), server="east-2")  # of the same process
        self.assertEqual(world.say("/tasks", other).status, 202, "it waits for its turn")
        both = {"has": 2, "holds": ["t1", "t2"]}
        self.assertEqual(world.told, both)
        self.assertEqual(world.give("t3").status, 429, "one of each server")
        self.assertEqual(world.told, both, "also who is refused hears it")
        for _ in range(2):
            self.gate.release()
            done = world.result()["task"]
            both["holds"].remove(done)
            self.assertEqual(world.told["holds"], both["holds"])
            self.assertEqual(world.told["has"], len(both["holds"]))
            self.assertIn("took_ms", world.told)

    def test_no_more_is_begun_than_the_limit_allows(self):
        world = self.world(self.waiting(limit=2))
        self.assertEqual(world.give("t1").status, 202)
        self.assertEqual(world.give("t2").status, 202)
        busy = world.give("t3")
        self.assertEqual((busy.status, busy.headers["Retry-After"]), (429, "1"))
        self.assertEqual(world.give("t1").status, 202, "a repetition begins nothing")
        self.gate.release()
        world.result()
        self.assertEqual(world.give("t3").status, 202)
        self.gate.release(2)
        world.result()
        world.result()

    def test_what_it_has_beyond_its_hands_waits_and_is_not_begun_once_cancelled(self):
        executor = Executor("crm", SECRET, patience=0, at_once=1)
        begun, gate = [], threading.Semaphore(0)

        @executor.on("score")
        def score(task):
            begun.append(task.task)
            gate.acquire(timeout=PATIENCE)

        world = self.world(executor)
        for name in ("t1", "t2", "t3"):
            self.assertEqual(world.give(name).status, 202)
        self.assertEqual(world.cancel("t2").status, 200)
        for name in ("t1", "t3"):
            gate.release()
            self.assertEqual(world.result()["task"], name)
        world.gone()
        self.assertEqual(begun, ["t1", "t3"])

    def test_whoever_stops_finishes_what_was_begun_and_begins_nothing(self):
        world = self.world(self.waiting(limit=1_000))
        self.assertEqual(world.give("t1").status, 202)
        closing = threading.Thread(target=world.gone)
        closing.start()
        begun = 1
        # It hears of the end when it comes to it.
        while world.give(f"u{begun}").status != 503:
            begun += 1
        self.gate.release(begun)
        for _ in range(begun):
            world.result()
        closing.join(PATIENCE)
        self.assertFalse(closing.is_alive())

    def test_it_says_once_that_it_is_registered(self):
        said = queue.Queue()
        log, handler = logging.getLogger("legwork_executor"), logging.handlers.QueueHandler(said)
        log.addHandler(handler)
        self.addCleanup(log.removeHandler, handler)
        self.addCleanup(log.setLevel, log.level)
        log.setLevel(logging.INFO)
        logging.disable(logging.NOTSET)
        self.addCleanup(logging.disable, logging.CRITICAL)
        world = self.world(self.scoring(), registrations=[503])
        lines = [said.get(timeout=PATIENCE).getMessage() for _ in range(2)]
        self.assertIn("is said again", lines[0])
        self.assertEqual(lines[1], f"registered as crm at {world.url}")

    def test_run_returns_when_it_is_stopped(self):
        executor = self.scoring()
        executor.stop()
        executor.run(port=0, legwork="http://127.0.0.1:9")

    def test_what_cannot_work_is_refused_before_it_starts(self):
        executor = self.scoring()
        for reason, wrong in (
            ("at least 32", lambda: Executor("crm", "short")),
            ("at least 1", lambda: Executor("crm", SECRET, limit=0)),
            ("at least 1", lambda: Executor("crm", SECRET, at_once=0)),
            ("at least 1", lambda: executor.on("mail", limit=0)),
            ("does nothing", lambda: Executor("crm", SECRET).start(0, "http://a")),
            ("say with `url`", lambda: executor.start(0, "http://a", host="0.0.0.0")),
            ("write it like", lambda: executor.start(0, "http://a", url="ftp://crm")),
            ("write it like", lambda: executor.start(0, "http://a", url="http://u:p@crm")),
        ):
            with self.assertRaisesRegex(ValueError, reason):
                wrong()
