//! Metrics of mail.

use metrics::Counter;

pub(crate) struct MailMeters {
    pub(crate) sent: Counter,
    pub(crate) failed: Counter,
    pub(crate) answered: Counter,
    pub(crate) refused: Counter,
    pub(crate) ignored: Counter,
}

impl MailMeters {
    /// A mail server has accepted a letter, and it will not be sent again.
    pub(super) fn sent(&self) {
        self.sent.increment(1);
    }

    /// A letter was not accepted.
    pub(super) fn failed(&self) {
        self.failed.increment(1);
    }

    /// A reply was carried out.
    pub(super) fn answered(&self) {
        self.answered.increment(1);
    }

    /// A reply of a known author had no effect.
    pub(super) fn refused(&self) {
        self.refused.increment(1);
    }

    /// A mail was not a reply.
    pub(super) fn ignored(&self) {
        self.ignored.increment(1);
    }
}
