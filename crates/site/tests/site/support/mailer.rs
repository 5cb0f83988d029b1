//! Whoever sends letters, as a site knows it.

use std::time::Duration;

use legwork_site::*;

use super::Harness;

pub(crate) fn as_mailer(site: &mut Harness, errand: Mailing) -> Answer {
    let before = std::mem::replace(&mut site.credential, Credential::Mailer);
    // The clock of a server never stands still.
    site.pass(Duration::from_millis(1));
    let answer = site.ask(Request::Mail(errand)).unwrap();
    site.credential = before;
    answer
}

/// The letter that is due next.
pub(crate) fn next(site: &mut Harness) -> Option<Letter> {
    loop {
        match as_mailer(site, Mailing::Next) {
            Answer::Letter { letter: Some(letter), .. } => return Some(*letter),
            Answer::Letter { letter: None, more: true } => {}
            Answer::Letter { letter: None, more: false } => return None,
            other => panic!("{other:?}"),
        }
    }
}
