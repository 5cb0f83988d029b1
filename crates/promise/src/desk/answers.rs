//! What those at home here could do, without anything being promised.

use legwork_model::time::Timestamp;

use super::Desk;
use super::lane::Lane;
use crate::plan::Window;
use crate::supply::Work;
use crate::task::{ResourceId, Task};

impl Desk {
    /// Whether it could be promised.
    pub fn could(&mut self, task: &Task) -> bool {
        self.any_of_those(task, |id, lanes| {
            let windows = task.windows_for(id);
            lanes.iter_mut().any(|lane| windows.iter().any(|it| lane.fits(*it, task.service)))
        })
    }

    /// The part of their time that those here have left, in thousandths: of the one with the most.
    pub fn factor(&self) -> i64 {
        let lanes = self.resources.values().flat_map(|resource| &resource.lanes);
        lanes.map(|lane| lane.factor.value()).max().unwrap_or(0)
    }

    /// The earliest moment for which somebody here could promise it.
    pub fn earliest(&mut self, task: &Task) -> Option<Timestamp> {
        let mut least: Option<Timestamp> = None;
        self.any_of_those(task, |id, lanes| {
            let times = task.times_for(id);
            let found = lanes.iter_mut().filter_map(|lane| {
                let earliest = |time: &Window| {
                    let earliest = lane.earliest(time.release, task.service)?;
                    (earliest <= time.deadline).then_some(earliest)
                };
                times.iter().filter_map(earliest).min()
            });
            least = least.into_iter().chain(found).min();
            false
        });
        least
    }

    /// Equation (1) for the one who has the most left up to a moment, of those who can do the task.
    pub fn surplus(&self, who: &[ResourceId], until: Timestamp) -> Work {
        let here = who.iter().filter_map(|id| self.resources.get(id));
        let lanes = here.flat_map(|resource| &resource.lanes);
        lanes.map(|lane| lane.plan.surplus(until)).max().unwrap_or_default()
    }

    /// The quick answer: whether a task that comes from elsewhere is worth the test.
    pub fn seems_to_fit(&mut self, task: &Task) -> bool {
        self.any_of_those(task, |_, lanes| {
            lanes.iter_mut().any(|Lane { plan, factor, .. }| {
                factor.accepts(task.service, plan.time_until(task.window.deadline))
            })
        })
    }

    /// What the test said about a task that seemed to fit.
    pub fn learn(&mut self, task: &Task, was_right: bool) {
        self.any_of_those(task, |_, lanes| {
            lanes.iter_mut().for_each(|lane| lane.factor.learn(was_right));
            false
        });
    }

    /// Whether something is so of one of those at home here who can do a task. It is looked no further then.
    fn any_of_those(
        &mut self,
        task: &Task,
        mut is_so: impl FnMut(&ResourceId, &mut [Lane]) -> bool,
    ) -> bool {
        // A server may have thousands of plans, and a task few who can do it.
        task.who.iter().any(|id| {
            self.resources.get_mut(id).is_some_and(|resource| is_so(id, &mut resource.lanes))
        })
    }
}
