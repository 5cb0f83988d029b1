//! Parts written as text: `0@5 north: decided a` is record 0, at moment 5.

use super::*;

/// `RECORD@MOMENT [SERVER:] KIND [STEP] [<FROM] [>TO] [#NUMBER]`
fn part(server: &str, lines: &[&str], has_more: bool) -> Part<String> {
    let line = |text: &String| {
        let (place, rest) = text.split_once(' ').unwrap();
        let (record, at) = place.split_once('@').unwrap();
        let (of, rest) = rest.split_once(": ").unwrap_or((server, rest));
        let mut words = rest.split(' ');
        let mut line = Line {
            record: record.parse().unwrap(),
            at: Timestamp(at.parse().unwrap()),
            server: of.into(),
            kind: words.next().unwrap().into(),
            step: None,
            iteration: Vec::new(),
            from: None,
            to: None,
            number: None,
        };
        for word in words {
            match word.split_at(1) {
                ("<", from) => line.from = Some(from.into()),
                (">", to) => line.to = Some(to.into()),
                ("#", number) => line.number = number.parse().ok(),
                (_, _) => line.step = Some(word.into()),
            }
        }
        line
    };
    let lines = lines.iter().map(|line| (*line).to_owned()).collect();
    Part::new(server.into(), lines, has_more, line)
}

const NORTH: [&str; 6] = [
    "0@1 created",
    "1@2 completed a",
    "1@2 sent >south #1",
    "2@4 delivered >south #1",
    "3@3 south: completed b",
    "3@9 received <south #1",
];
/// Its clock is behind.
const SOUTH: [&str; 6] = [
    "0@1 north: created",
    "0@2 north: completed a",
    "0@1 received <north #1",
    "1@2 claimed b",
    "2@3 completed b",
    "2@3 sent >north #1",
];
const WHOLE: [&str; 9] = [
    "0@1 created",
    "1@2 completed a",
    "1@2 sent >south #1",
    "0@1 received <north #1",
    "1@2 claimed b",
    "2@3 completed b",
    "2@3 sent >north #1",
    "2@4 delivered >south #1",
    "3@9 received <south #1",
];

fn whole(parts: Vec<Part<String>>) -> Vec<String> {
    let merged = merge(parts, &mut Frontier::default(), 100, false);
    assert!(!merged.has_more && !merged.is_cut, "{merged:?}");
    merged.entries
}

#[test]
fn an_entry_stands_after_its_predecessors_whatever_the_clocks_say() {
    let parts = vec![part("south", &SOUTH, false), part("north", &NORTH, false)];
    assert_eq!(whole(parts), WHOLE);
}

/// All pages of what servers hold.
fn pages(held: &[(&str, &[&str])], limit: u64) -> Vec<String> {
    let (mut frontier, mut all) = (Frontier::default(), Vec::new());
    loop {
        let window = |(server, lines): &(&str, &[&str])| {
            let from = frontier.records(server);
            let number = |line: &str| line.split_once('@').unwrap().0.parse::<u64>().unwrap();
            let rest = lines.iter().copied().filter(|line| number(line) >= from);
            let rest: Vec<&str> = rest.collect();
            let is_past = |line: &&&str| {
                let mut words = line.split(['@', ' ']).skip(1);
                let at = words.next().unwrap().parse().unwrap();
                let is_own = !words.next().unwrap().ends_with(':');
                is_own && frontier.is_past(server, Timestamp(at))
            };
            let past = rest.iter().find(is_past).map_or(u64::MAX, |line| number(line) + 1);
            let end = past.max(from + limit);
            let here = rest.iter().copied().filter(|line| number(line) < end);
            let here: Vec<&str> = here.collect();
            part(server, &here, here.len() < rest.len())
        };
        let parts = held.iter().map(window).collect();
        let merged = merge(parts, &mut frontier, limit as usize, false);
        assert!(!merged.is_cut, "{limit}: {frontier}");
        all.extend(merged.entries);
        if !merged.has_more {
            return all;
        }
        frontier = frontier.to_string().parse().unwrap();
    }
}

#[test]
fn pages_of_any_length_add_up_to_the_whole() {
    for limit in 1..8 {
        assert_eq!(pages(&[("north", &NORTH), ("south", &SOUTH)], limit), WHOLE, "{limit}");
    }
}

#[test]
fn many_entries_of_one_moment_keep_their_order_in_short_pages() {
    // South does much while its clock stands still. East receives part of what south has done before the transfer.
    let south = [
        "0@5 north: created",
        "0@5 received <north #1",
        "1@5 claimed b",
        "2@5 released b",
        "3@5 completed b",
        "3@5 sent >north #1",
    ];
    let north = [
        "0@6 created",
        "0@6 sent >south #1",
        "1@5 south: completed b",
        "1@8 received <south #1",
        "2@9 sent >east #1",
    ];
    let east = [
        "0@6 north: created",
        "0@5 south: completed b",
        "0@5 received <north #1",
        "1@5 received <north #1",
    ];
    let held: [(&str, &[&str]); 3] = [("east", &east), ("north", &north), ("south", &south)];
    let parts = held.iter().map(|(server, lines)| part(server, lines, false)).collect();
    let expected = whole(parts);
    assert_eq!(expected.len(), 11);
    for limit in 1..8 {
        assert_eq!(pages(&held, limit), expected, "{limit}");
    }
}

#[test]
fn an_entry_recorded_after_sending_a_transfer_stands_before_its_arrival() {
    // South's clock is behind.
    let south = ["0@1 north: created", "0@9 north: completed b", "0@2 received <north #1"];
    let north = ["0@1 created", "0@1 sent >south #1", "1@8 claimed b", "2@9 completed b"];
    let expected = [&north[..], &south[2..]].concat();
    for limit in 1..5 {
        assert_eq!(pages(&[("north", &north), ("south", &south)], limit), expected, "{limit}");
    }
}

#[test]
fn entries_of_the_moment_at_the_end_of_a_page_keep_their_order() {
    let south = ["0@5 north: created", "0@5 north: completed b", "0@2 received <north #1"];
    let north = [
        "0@5 created",
        "0@5 sent >south #1",
        "1@5 claimed b",
        "2@5 completed b",
        "3@5 claimed c",
        "4@5 completed c",
    ];
    let expected = [&north[..4], &south[2..], &north[4..]].concat();
    for limit in 1..6 {
        assert_eq!(pages(&[("north", &north), ("south", &south)], limit), expected, "{limit}");
    }
}

#[test]
fn copies_of_entries_of_an_unreachable_server_are_shown_once_across_pages() {
    let north = ["0@3 south: created", "0@4 east: completed a", "0@9 received <east #1"];
    let west =
        ["0@3 south: created", "0@4 east: completed a", "0@8 received <east #1", "1@9 completed c"];
    let parts = || vec![part("north", &north, false), part("west", &west, false)];
    let expected = [
        "0@3 south: created",
        "0@4 east: completed a",
        "0@8 received <east #1",
        "0@9 received <east #1",
        "1@9 completed c",
    ];
    assert_eq!(whole(parts()), expected);
    let (mut frontier, mut all) = (Frontier::default(), Vec::new());
    frontier.miss("east".into());
    for _ in 0..3 {
        // Read again from the beginning.
        all.extend(merge(parts(), &mut frontier, 1, false).entries);
        frontier = frontier.to_string().parse().unwrap();
    }
    assert_eq!(all, expected);
    assert!(frontier.is_missed("east") && !frontier.is_missed("north"));
}

#[test]
fn missing_entries_are_waited_for_unless_they_are_lost() {
    let parts = || vec![part("south", &SOUTH, false), part("north", &NORTH[..1], false)];
    let merged = merge(parts(), &mut Frontier::default(), 100, false);
    assert!(merged.is_cut, "{merged:?}");
    assert_eq!(merged.entries, ["0@1 created"]);
    let merged = merge(parts(), &mut Frontier::default(), 100, true);
    let copy = "0@2 north: completed a";
    assert_eq!(merged.entries[..3], ["0@1 created", copy, "0@1 received <north #1"]);
}

#[test]
fn a_redirected_transfer_has_a_number_of_its_new_receiver() {
    let north = ["0@1 created", "0@1 sent >south #1", "1@2 redirected <south >east"];
    let east = ["0@0 received <north #1"];
    let expected = [&north[..], &east[..]].concat();
    assert_eq!(whole(vec![part("east", &east, false), part("north", &north, false)]), expected);
}

#[test]
fn a_cursor_is_one_word_and_no_other_text_is_accepted() {
    assert_eq!("0".parse::<Frontier>().unwrap(), Frontier::default());
    for text in ["", "7", "north-1", "north-1.x.3", "a~b.1"] {
        assert!(text.parse::<Frontier>().is_err(), "{text}");
    }
}
