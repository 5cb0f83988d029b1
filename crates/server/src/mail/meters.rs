//! What is counted of mail.

use metrics::Counter;

pub(crate) struct MailMeters {
    pub(crate) sent: Counter,
    pub(crate) failed: Counter,
    pub(crate) answered: Counter,
    pub(crate) refused: Counter,
    pub(crate) ignored: Counter,
}

impl MailMeters {
    /// A mail server has taken a letter, and it will not be sent again.
    pub(super) fn sent(&self) {
        self.sent.increment(1);
    }

    /// It has not.
    pub(super) fn failed(&self) {
        self.failed.increment(1);
    }

    /// A reply has done what it said.
    pub(super) fn answered(&self) {
        self.answered.increment(1);
    }

    /// A reply of somebody we wrote to has changed nothing.
    pub(super) fn refused(&self) {
        self.refused.increment(1);
    }

    /// A mail was nobody's answer.
    pub(super) fn ignored(&self) {
        self.ignored.increment(1);
    }
}
