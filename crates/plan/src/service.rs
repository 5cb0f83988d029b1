//! Service times: the definition's value until enough runs were observed.

use minicbor::{Decode, Encode};

use crate::supply::Work;

/// Observations of one step: count and mean duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Encode, Decode)]
pub struct Seen {
    #[n(0)]
    count: u32,
    #[n(1)]
    mean: f64,
    /// The sum of squared differences from the mean.
    #[n(2)]
    spread: f64,
}

/// The number of observations before they count.
const COUNT_MIN: u32 = 8;
/// The most by which the definition's value is corrected, as a factor either way.
const CORRECTED_MAX: i64 = 4;

impl Seen {
    pub fn add(&mut self, took: Work) {
        let took = took.0.max(0) as f64;
        self.count = self.count.saturating_add(1);
        let off = took - self.mean;
        self.mean += off / f64::from(self.count);
        self.spread += off * (took - self.mean);
    }

    /// The planned duration of a step: enough in nearly all cases.
    pub fn refine(&self, said: Work) -> Work {
        if self.count < COUNT_MIN {
            return said;
        }
        let deviation = (self.spread / f64::from(self.count - 1)).sqrt();
        let seen = (self.mean + 2.0 * deviation).ceil() as i64;
        Work(seen.clamp(said.0 / CORRECTED_MAX, said.0.saturating_mul(CORRECTED_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(times: &[i64]) -> Seen {
        let mut seen = Seen::default();
        times.iter().for_each(|took| seen.add(Work(*took)));
        seen
    }

    #[test]
    fn the_definition_counts_until_enough_was_seen() {
        assert_eq!(seen(&[10; 7]).refine(Work(100)), Work(100));
        assert_eq!(seen(&[40; 8]).refine(Work(100)), Work(40));
    }

    #[test]
    fn what_varies_is_given_more_time_and_nothing_is_corrected_beyond_measure() {
        let varied = seen(&[40, 60, 40, 60, 40, 60, 40, 60]).refine(Work(100));
        assert!((Work(70)..=Work(73)).contains(&varied), "{varied:?}");
        assert_eq!(seen(&[1; 20]).refine(Work(100)), Work(25));
        assert_eq!(seen(&[100_000; 20]).refine(Work(100)), Work(400));
    }
}
