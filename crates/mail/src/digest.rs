//! Digests: one letter instead of many, with counts only.
//!
//! Invariant: a person's own work is counted separately from the work of others, and from changed
//! promises.

use crate::letter::{Letter, message_id};
use crate::rules::Kind;

impl Letter<'_> {
    /// A digest of letters of these kinds; `about` is part of its id.
    pub fn digest(&self, kinds: impl Iterator<Item = Kind>, about: &str) -> String {
        let groups: Vec<Group> = kinds.map(group).collect();
        let all = [
            Group::Own,
            Group::Others,
            Group::Late,
            Group::Danger,
            Group::Revoked,
            Group::Promised,
        ];
        let said = all.into_iter().filter_map(|group| {
            counted(group, groups.iter().filter(|other| **other == group).count())
        });
        let (subjects, mut text): (Vec<String>, String) = said.unzip();
        let subject = capital(&subjects.join("; "));
        text.push_str(
            "\nThey are not told one by one: there were too many letters in the last hour.\n",
        );
        if let Some(link) = self.link {
            text.push_str(&format!("\n{}\n", link.replace("{activity}", "")));
        }
        let id = message_id(&format!("digest {} {about}", self.agent), self.from);
        self.message(&id, &subject, &text)
    }
}

/// The words for the letters of a group in subject and text, if there are any.
fn counted(group: Group, count: usize) -> Option<(String, String)> {
    let s = if count == 1 { "" } else { "s" };
    let (subject, text) = match group {
        _ if count == 0 => return None,
        Group::Own => (
            format!("You have {count} item{s} to do"),
            format!("Put on your worklist, or waiting there: {count} item{s}.\n"),
        ),
        Group::Others => (
            format!("not done yet: {count} item{s}"),
            format!("Offered to people of yours and not done yet: {count} item{s}.\n"),
        ),
        Group::Late => (
            format!("late: {count} case{s}"),
            format!(
                "Started by you, or with something for you to do, and late: {count} case{s}.\n"
            ),
        ),
        Group::Danger => (
            format!("in danger: {count} case{s}"),
            format!("Started by you, and with more to do than there is time: {count} case{s}.\n"),
        ),
        Group::Revoked => (
            format!("not promised any more: {count} case{s}"),
            format!("Started by you and not promised any more: {count} case{s}.\n"),
        ),
        Group::Promised => (
            format!("promised again: {count} case{s}"),
            format!("Started by you and promised again: {count} case{s}.\n"),
        ),
    };
    Some((subject, text))
}

/// The groups that a digest counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Own,
    /// Escalations: the items are on the worklists of others.
    Others,
    Late,
    Danger,
    Revoked,
    Promised,
}

fn group(kind: Kind) -> Group {
    match kind {
        Kind::Assignment | Kind::Reminder => Group::Own,
        Kind::Escalation => Group::Others,
        Kind::Revocation => Group::Revoked,
        Kind::Promise => Group::Promised,
        Kind::Late => Group::Late,
        Kind::Danger => Group::Danger,
    }
}

/// Capitalises the first letter of a sentence.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use legwork_model::id::AgentId;
    use legwork_model::time::Timestamp;
    use legwork_model::zone::Zone;

    use super::*;
    use crate::mime;
    use crate::reply::read;

    #[test]
    fn the_same_digest_has_the_same_id_and_nobody_answers_it() {
        let (agent, at) = (AgentId::from("ann"), Timestamp(0));
        let (from, to) = ("legwork@example.com", "ann@example.com");
        let letter = Letter { from, to, agent: &agent, at, link: None, zone: &Zone::UTC };
        let digest = |about: &str| letter.digest([Kind::Assignment; 37].into_iter(), about);
        assert!(read(digest("these").as_bytes()).is_err());
        assert_eq!(digest("these"), digest("these"));
        assert_ne!(digest("these"), digest("those"));
    }

    #[test]
    fn a_digest_tells_what_is_to_be_done_from_what_others_have_not_done() {
        let all = |kinds: &[(Kind, usize)]| {
            let kinds = kinds.iter().copied();
            let kinds = kinds.flat_map(|(kind, count)| std::iter::repeat_n(kind, count));
            let (from, to) = ("legwork@example.com", "eva@example.com");
            let agent = &AgentId::from("eva");
            let letter = Letter { from, to, agent, at: Timestamp(0), link: None, zone: &Zone::UTC };
            let message = letter.digest(kinds, "these");
            let subject = message.lines().find(|line| line.starts_with("Subject:")).unwrap();
            let text = mime::read(message.as_bytes()).text.unwrap().replace("\r\n", "\n");
            format!("{subject}\n\n{text}")
        };
        let digest = |own: usize, reminders: usize, others: usize| {
            let own = [(Kind::Assignment, own), (Kind::Reminder, reminders)];
            all(&[&own[..], &[(Kind::Escalation, others)]].concat())
        };
        let promises = [(Kind::Revocation, 12), (Kind::Promise, 1)];
        insta::assert_snapshot!(all(&promises), @"
            Subject: Not promised any more: 12 cases; promised again: 1 case

            Started by you and not promised any more: 12 cases.
            Started by you and promised again: 1 case.

            They are not told one by one: there were too many letters in the last hour.
            ");
        insta::assert_snapshot!(digest(30, 7, 0), @"
            Subject: You have 37 items to do

            Put on your worklist, or waiting there: 37 items.

            They are not told one by one: there were too many letters in the last hour.
            ");
        insta::assert_snapshot!(digest(0, 1, 12), @"
            Subject: You have 1 item to do; not done yet: 12 items

            Put on your worklist, or waiting there: 1 item.
            Offered to people of yours and not done yet: 12 items.

            They are not told one by one: there were too many letters in the last hour.
            ");
        insta::assert_snapshot!(digest(0, 0, 12), @"
            Subject: Not done yet: 12 items

            Offered to people of yours and not done yet: 12 items.

            They are not told one by one: there were too many letters in the last hour.
            ");
    }
}
