//! Suspending, resuming, aborting, ending.

use insta::assert_snapshot;

use super::support::play;

const BOTH: &str = "
process: p
data: { n: int }
steps:
  - parallel: both
    branches:
      - steps: [{ step: held, who: Agent() }, { step: next, who: Agent() }]
      - steps: [{ step: free, who: Agent() }]
      - steps: [{ step: job, job: j }]
";

#[test]
fn while_suspended_what_is_held_goes_on_and_nothing_new_is_taken_up() {
    assert_snapshot!(play(BOTH, "
        start
        claim held by ann
        suspend
        suspend
        claim free by bob
        delegate free by bob to eve
        complete free by bob
        delegate held by ann to bob
        complete held by bob
        fail job no paper
        complete job by worker
        open
        resume
        open
        resume
    "), @"
    > start
      held Activated
      free Activated
      job Activated
    > claim held by ann
      held Activated -> Selected
    > suspend
      instance Suspended
    > suspend
      refused instance_suspended: the instance is suspended; resume it first
    > claim free by bob
      refused instance_suspended: the instance is suspended; resume it first
    > delegate free by bob to eve
      refused instance_suspended: the instance is suspended; resume it first
    > complete free by bob
      refused instance_suspended: the instance is suspended; resume it first
    > delegate held by ann to bob
      held Selected -> Selected
    > complete held by bob
      held Selected -> Completed
      next Activated
    > fail job no paper
      job: failed (no paper), again at 1000 ms
      job Activated -> Activated
    > complete job by worker
      job Activated -> Completed
    > open
      next Activated, not offered, since 0
      free Activated, not offered, since 0
    > resume
      instance Running
    > open
      next Activated, offered, since 0
      free Activated, offered, since 0
    > resume
      refused not_suspended: the instance is not suspended; it goes on by itself, nothing is left to do
    ");
}

#[test]
fn aborting_withdraws_everything_open_and_ends_the_instance() {
    assert_snapshot!(play(BOTH, "
        start
        claim held by ann
        fail! job broken
        abort not needed any more
        show
        open
        complete held by ann
        claim free by ann
        release held by ann
        delegate held by ann to bob
        fail job late
        retry job
        raise free
        suspend
        resume
        abort again
    "), @r#"
    > start
      held Activated
      free Activated
      job Activated
    > claim held by ann
      held Activated -> Selected
    > fail! job broken
      job: failed (broken)
      job: RetriesExhausted { attempts: 1, error: "broken" }
      job Activated -> Failed
    > abort not needed any more
      aborted: not needed any more
      held Selected -> NotActivated
      free Activated -> NotActivated
      job Failed -> NotActivated
      instance Aborted
    > show
      +start +both ·held ·next ·free ·job ·both/join ·end
    > open
    > complete held by ann
      refused instance_ended: the instance was aborted; start another one if more is to be done
    > claim free by ann
      refused instance_ended: the instance was aborted; start another one if more is to be done
    > release held by ann
      refused instance_ended: the instance was aborted; start another one if more is to be done
    > delegate held by ann to bob
      refused instance_ended: the instance was aborted; start another one if more is to be done
    > fail job late
      refused instance_ended: the instance was aborted; start another one if more is to be done
    > retry job
      refused instance_ended: the instance was aborted; start another one if more is to be done
    > raise free
      refused instance_ended: the instance was aborted; start another one if more is to be done
    > suspend
      refused instance_ended: the instance was aborted; start another one if more is to be done
    > resume
      refused instance_ended: the instance was aborted; start another one if more is to be done
    > abort again
      refused instance_ended: the instance was aborted; start another one if more is to be done
    "#);
}

#[test]
fn a_completed_instance_refuses_everything() {
    assert_snapshot!(play("{ process: p, steps: [{ step: a, job: j }] }", "
        start
        complete a by worker
        complete a by worker
        suspend
        abort late
    "), @"
    > start
      a Activated
    > complete a by worker
      a Activated -> Completed
      instance Completed
    > complete a by worker
      refused instance_ended: the instance was completed; start another one if more is to be done
    > suspend
      refused instance_ended: the instance was completed; start another one if more is to be done
    > abort late
      refused instance_ended: the instance was completed; start another one if more is to be done
    ");
}

#[test]
fn a_process_without_steps_ends_as_it_starts() {
    assert_snapshot!(play("{ process: p, steps: [] }", "
        start
        show
        suspend
    "), @"
    > start
    > show
      +start +end
    > suspend
      refused instance_ended: the instance was completed; start another one if more is to be done
    ");
}
