//! Mail: letters of the site are sent, replies are read and carried out.
//!
//! Invariant: off by default. Only mail waits for a mail server. The log names agents and
//! activities, never addresses, words or tokens.

mod inbox;
mod meters;
mod pop3;
mod post;
mod recent_answers;
mod sender;
mod smtp;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::http::App;

pub(crate) use inbox::FromInbox;
#[cfg(test)]
pub(crate) use inbox::{Fate, Inbox};
pub(crate) use meters::MailMeters;
pub(crate) use post::Post;
pub use post::Unusable;

/// Sends the letters of this server's site; `reads` says whether the inbox is read as well.
pub(crate) async fn run(app: Arc<App>, post: Arc<Post>, reads: bool) {
    let meters = app.meters.mail();
    let mut tasks = JoinSet::new();
    tasks.spawn(sender::Sender::new(app.clone(), post.clone(), meters.clone()).run());
    if let Some((inbox, every)) = post.inbox.clone().filter(|_| reads) {
        tasks.spawn(inbox::Inbox::new(app, post, meters).run(inbox, every));
    }
    while tasks.join_next().await.is_some() {}
}
