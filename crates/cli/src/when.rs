//! Times for people, in the zone of the reader: `TZ`, or the zone of the machine.
//!
//! Invariant: only this module of the CLI formats times for people. Programs (`--json`) get UTC in RFC
//! 3339, and so do printed commands.

use std::sync::LazyLock;

use legwork_model::time::Timestamp;
use legwork_model::zone::Zone;

/// The form of moments from servers: `2026-11-17T00:06:36.319Z`.
const RFC_3339_CHARS: usize = 24;

static HERE: LazyLock<Zone> = LazyLock::new(here);

#[cfg(not(test))]
fn here() -> Zone {
    jiff::tz::TimeZone::system().into()
}

/// Tests are the same on every machine.
#[cfg(test)]
fn here() -> Zone {
    Zone::UTC
}

/// The zone of all shown times.
pub(crate) fn zone() -> &'static Zone {
    &HERE
}

/// `2026-03-01 10:30`: enough for plans and lists.
pub(crate) fn minute(moment: Timestamp) -> String {
    HERE.minute(moment)
}

/// `2026-03-01 10:30:05`: where the order matters.
pub(crate) fn second(moment: Timestamp) -> String {
    HERE.second(moment)
}

/// From one moment to another: `2026-03-01 10:30–12:00`.
pub(crate) fn span(from: Timestamp, to: Timestamp) -> String {
    HERE.span(from, to)
}

/// The text of a server with its times in local form. The earliest possible time is rounded up, all
/// others down.
pub(crate) fn in_text(text: &str, earliest: Option<Timestamp>) -> String {
    replaced(text, |moment| match Some(moment) == earliest {
        true => HERE.minute_up(moment),
        false => minute(moment),
    })
}

/// The same to the second.
pub(crate) fn in_text_to_second(text: &str) -> String {
    replaced(text, second)
}

fn replaced(text: &str, shown_as: impl Fn(Timestamp) -> String) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(place) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(place);
        shown.push_str(before);
        let moment = from.get(..RFC_3339_CHARS).filter(|text| text.ends_with('Z'));
        let moment = moment.and_then(|text| text.parse().ok());
        let digits = from.len() - from.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (taken, after) = from.split_at(if moment.is_some() { RFC_3339_CHARS } else { digits });
        shown.push_str(&moment.map_or_else(|| taken.to_owned(), &shown_as));
        rest = after;
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_the_text_of_a_server_are_shown_as_all_others() {
        let said =
            "not for 2026-11-17T00:06:36.319Z: 2 of 30, 2026-11-17T00:06Z is é 2026-11-17T09";
        let shown = "not for 2026-11-17 00:06Z: 2 of 30, 2026-11-17T00:06Z is é 2026-11-17T09";
        assert_eq!(in_text(said, None), shown);
        let said = "no answer; next attempt at 2026-11-17T00:06:36.319Z";
        assert_eq!(in_text_to_second(said), "no answer; next attempt at 2026-11-17 00:06:36Z");
        let said = "not at 2026-11-17T00:06:01.000Z, but at 2026-11-17T00:06:36.319Z";
        let earliest = "2026-11-17T00:06:36.319Z".parse().ok();
        assert_eq!(in_text(said, earliest), "not at 2026-11-17 00:06Z, but at 2026-11-17 00:07Z");
    }
}
