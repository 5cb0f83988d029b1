//! Shows progress if an operation takes longer than a second.
//!
//! Invariant: only on a terminal, only on standard error, and gone without a trace at the end.

use std::io::Read;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const SILENCE: Duration = Duration::from_secs(1);
const SPINNER: &str = "{spinner} {msg} ({elapsed})";
const BYTES_OF: &str = "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}";
const BYTES: &str = "{spinner} {msg} {bytes}, {bytes_per_sec}";
const THINGS_OF: &str = "{msg} {wide_bar} {pos} of {len}";
const TICK: Duration = Duration::from_millis(120);

/// Waits, with a spinner after a second.
pub(crate) async fn waiting<T>(what: &str, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    tokio::select! {
        done = &mut future => return done,
        () = tokio::time::sleep(SILENCE) => {}
    }
    let bar = visible(ProgressBar::new_spinner(), SPINNER);
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(TICK);
    let done = future.await;
    bar.finish_and_clear();
    done
}

/// A spinner with changing messages, visible from the first one.
#[derive(Default)]
pub(crate) struct Spinner {
    bar: Option<ProgressBar>,
}

impl Spinner {
    pub(crate) fn say(&mut self, what: &str) {
        let bar = self.bar.get_or_insert_with(|| {
            let bar = visible(ProgressBar::new_spinner(), SPINNER);
            bar.enable_steady_tick(TICK);
            bar
        });
        bar.set_message(what.to_owned());
    }

    pub(crate) fn stop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A progress bar.
pub(crate) struct Progress {
    bar: ProgressBar,
    template: &'static str,
    since: Instant,
    shown: bool,
}

impl Progress {
    /// Bytes out of a known number.
    pub(crate) fn bytes_of(total: u64, what: &str) -> Self {
        Self::new(ProgressBar::hidden(), BYTES_OF, what).with_length(total)
    }

    /// Bytes of an unknown number.
    pub(crate) fn bytes(what: &str) -> Self {
        Self::new(ProgressBar::hidden(), BYTES, what)
    }

    /// Things out of a known number.
    pub(crate) fn things_of(total: usize, what: &str) -> Self {
        Self::new(ProgressBar::hidden(), THINGS_OF, what).with_length(total as u64)
    }

    pub(crate) fn advance(&mut self, by: u64) {
        self.bar.inc(by);
        if !self.shown && self.since.elapsed() >= SILENCE {
            self.shown = true;
            self.bar = visible(self.bar.clone(), self.template);
        }
    }

    fn new(bar: ProgressBar, template: &'static str, what: &str) -> Self {
        bar.set_message(what.to_owned());
        Self { bar, template, since: Instant::now(), shown: false }
    }

    fn with_length(self, total: u64) -> Self {
        self.bar.set_length(total);
        self
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Reads and shows the progress.
pub(crate) struct Watched<R> {
    pub(crate) reader: R,
    pub(crate) progress: Progress,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.reader.read(into)?;
        self.progress.advance(bytes as u64);
        Ok(bytes)
    }
}

fn visible(bar: ProgressBar, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    // Hidden if standard error is no terminal.
    bar.set_draw_target(ProgressDrawTarget::stderr());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_soon_over_is_not_told_of() {
        let mut progress = Progress::bytes_of(10, "reading");
        progress.advance(4);
        assert!(!progress.shown && progress.bar.is_hidden());
        assert_eq!((progress.bar.position(), progress.bar.length()), (4, Some(10)));
    }

    #[test]
    fn what_takes_longer_than_a_second_is_told_of_from_then_on() {
        let mut progress = Progress::things_of(3, "deploying");
        progress.advance(1);
        progress.since -= SILENCE;
        progress.advance(1);
        assert!(progress.shown);
        assert_eq!((progress.bar.position(), &*progress.bar.message()), (2, "deploying"));
        let bar = progress.bar.clone();
        drop(progress);
        assert!(bar.is_finished(), "it must not stay on the terminal");
    }

    #[test]
    fn reading_through_it_changes_nothing_and_counts_every_byte() {
        let progress = Progress::bytes("restoring");
        let bar = progress.bar.clone();
        let mut watched = Watched { reader: &b"some bytes"[..], progress };
        let mut read = String::new();
        watched.read_to_string(&mut read).unwrap();
        assert_eq!((read.as_str(), bar.position()), ("some bytes", 10));
    }

    #[test]
    fn a_spinner_says_the_latest_and_goes_away() {
        let mut spinner = Spinner::default();
        spinner.say("opening");
        spinner.say("reading");
        let bar = spinner.bar.clone().unwrap();
        assert_eq!(bar.message(), "reading");
        spinner.stop();
        assert!(bar.is_finished() && spinner.bar.is_none());
    }

    #[test]
    fn templates_are_sound() {
        for template in [SPINNER, BYTES_OF, BYTES, THINGS_OF] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[tokio::test]
    async fn waiting_answers_what_is_waited_for() {
        assert_eq!(waiting("it", async { 7 }).await, 7);
    }
}
