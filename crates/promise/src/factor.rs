//! The quick answer: whether a task from elsewhere is worth the test.
//!
//! The *factor* is the part of its time that a resource has left, kept with its plan and made anew when the
//! plan changes. It says nothing about when the time is left, so it may be wrong; how often it was is
//! learned, and who seems to fit is tested in any case.

use crate::plan::Plan;
use crate::supply::Work;

const THOUSAND: i64 = 1_000;
/// A yes that was wrong makes the next one harder by so many thousandths, one that was right easier.
const WRONG: i64 = 40;
const RIGHT: i64 = 10;
const MARGIN_MIN: i64 = -300;
const MARGIN_MAX: i64 = 1_000;
/// Of so many that do not seem to fit one is tested in spite of it: else nobody would learn.
const TRIED: u32 = 8;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor {
    /// In thousandths.
    value: i64,
    margin: i64,
    refused: u32,
}

impl Default for Factor {
    fn default() -> Self {
        Self { value: THOUSAND, margin: 0, refused: 0 }
    }
}

impl Factor {
    /// The plan has changed.
    pub(crate) fn refresh(&mut self, plan: &Plan) {
        let (window, left) = plan.prospect();
        self.value = (left.0.max(0).saturating_mul(THOUSAND)).checked_div(window.0).unwrap_or(0);
    }

    pub(crate) fn value(&self) -> i64 {
        self.value
    }

    /// Whether so much work seems to fit into so much time.
    pub(crate) fn accepts(&mut self, service: Work, time: Work) -> bool {
        let (service, time) = (i128::from(service.0), i128::from(time.0));
        let needed = service * i128::from(THOUSAND + self.margin);
        if time >= service && time * i128::from(self.value) >= needed {
            return true;
        }
        self.refused += 1;
        time >= service && self.refused.is_multiple_of(TRIED)
    }

    /// What the test said about one that seemed to fit.
    pub(crate) fn learn(&mut self, was_right: bool) {
        let margin = if was_right { self.margin - RIGHT } else { self.margin + WRONG };
        self.margin = margin.clamp(MARGIN_MIN, MARGIN_MAX);
    }
}
