//! Worklists in sentences: who sees what, who holds what, and what a reader is told.
//!
//! Each test is a short story: what happens, then what a person's list is.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::sync::Arc;

use legwork_model::compile::compile;
use legwork_model::id::{Activity, AgentId, InstanceId, NodeId};
use legwork_model::rule::Rule;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::{Cursor, Delta, ItemKey, Organisation, Performers, Resolved, Worklists};

const BANK: &str = "
organisation: bank
agents:
  ann: { roles: [clerk], substitutes: [ben], absent: [{ from: 2026-07-01, to: 2026-07-31 }] }
  ben: { roles: [clerk] }
  cora: { roles: [clerk, manager], substitutes: [ben], absent: [{ from: 2026-07-01, to: 2026-07-31 }] }
  dan: { roles: [manager], substitutes: [eve, fay], absent: [{ from: 2026-07-01, to: 2026-07-31 }] }
  eve: {}
  fay: {}
";
const SPRING: &str = "2026-04-01T09:00:00Z";
const SUMMER: &str = "2026-07-10T09:00:00Z";

struct Story {
    bank: Organisation,
    lists: Worklists,
    schema: Arc<Schema>,
    now: Timestamp,
}

struct Did<'a>(&'a str);

impl Performers for Did<'_> {
    fn performer(&self, _: &str) -> Option<AgentId> {
        Some(self.0.into())
    }

    fn starter(&self) -> Option<AgentId> {
        None
    }
}

impl Story {
    fn begin(now: &str) -> Self {
        let (bank, findings) = Organisation::parse(BANK);
        assert!(findings.is_empty(), "{findings:?}");
        let bank = bank.unwrap();
        let source = "process: loan\nsteps: [{ step: approve, who: Role(manager) }]\n";
        let (definition, _) = legwork_model::yaml::parse(source);
        let schema = Arc::new(compile(&definition.unwrap(), 1).unwrap());
        Self { lists: Worklists::new(1, &bank), bank, schema, now: now.parse().unwrap() }
    }

    fn resolve(&self, rule: &str, performer: &str) -> Resolved {
        self.bank.resolve(&rule.parse::<Rule>().unwrap(), &Did(performer))
    }

    fn offer(&mut self, item: u128, rule: &str) {
        self.offer_after(item, rule, "nobody");
    }

    /// Offers an item whose preceding step was done by a performer.
    fn offer_after(&mut self, item: u128, rule: &str, performer: &str) {
        let resolved = self.resolve(rule, performer);
        self.lists.offer(&key(item), &self.schema, &resolved, self.now);
    }

    fn claim(&mut self, item: u128, by: &str) {
        assert!(self.lists.claim(&key(item), &by.into(), self.now));
    }

    fn read(&self, agent: &str, since: Option<Cursor>, limit: usize) -> Delta {
        self.lists.list(&self.bank, &agent.into(), self.now, since, limit)
    }

    /// The list of an agent: `1 2(ann) 3(ann for ann)`, with holders and, for a stand-in, for whom.
    fn list(&self, agent: &str) -> String {
        show(&self.read(agent, None, 100))
    }

    fn changed(&self, agent: &str, cursor: Cursor) -> bool {
        self.lists.changed_since(&self.bank, &agent.into(), self.now, cursor)
    }

    fn may_work_on(&self, agent: &str, item: u128) -> bool {
        self.lists.may_work_on(&self.bank, &agent.into(), &key(item), self.now)
    }
}

fn key(item: u128) -> ItemKey {
    ItemKey { instance: InstanceId(item), activity: Activity::once(NodeId(1)) }
}

fn show(delta: &Delta) -> String {
    let mut words: Vec<String> = Vec::new();
    if delta.reset {
        words.push("reset:".into());
    }
    words.extend(delta.removed.iter().map(|gone| format!("-{}", gone.key.instance.0)));
    for view in &delta.items {
        let holder = view.item.claimed_by.as_ref().map(|by| format!("({by})")).unwrap_or_default();
        let absent = view.on_behalf_of.as_ref().map(|a| format!("[for {a}]")).unwrap_or_default();
        words.push(format!("{}{holder}{absent}", view.key.instance.0));
    }
    if delta.more {
        words.push("…".into());
    }
    words.join(" ")
}

#[test]
fn an_item_is_offered_to_all_its_actors_and_to_nobody_else() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    story.offer(2, "Role(manager)");
    assert_eq!(story.list("ann"), "reset: 1");
    assert_eq!(story.list("cora"), "reset: 1 2");
    assert_eq!(story.list("dan"), "reset: 2");
    assert_eq!(story.list("eve"), "reset:");
    assert_eq!(story.list("stranger"), "reset:");
}

#[test]
fn a_claimed_item_leaves_the_lists_of_the_others() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    story.offer(2, "Role(clerk)");
    let (ann, ben) = (story.read("ann", None, 10).cursor, story.read("ben", None, 10).cursor);
    assert!(!story.changed("ann", ann));
    story.claim(1, "ann");
    assert!(story.changed("ben", ben));
    assert_eq!(show(&story.read("ann", Some(ann), 10)), "1(ann)");
    assert_eq!(show(&story.read("ben", Some(ben), 10)), "-1");
    assert_eq!(story.list("ann"), "reset: 1(ann) 2");
    assert_eq!(story.list("ben"), "reset: 2");
    // The loser still may; the engine names the holder.
    assert!(story.may_work_on("ben", 1));
    assert!(!story.may_work_on("dan", 1));
    assert_eq!(story.lists.item(&key(1)).unwrap().claimed_by, Some("ann".into()));
}

#[test]
fn a_released_item_is_offered_again_at_its_old_place() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    story.offer(2, "Role(clerk)");
    story.claim(1, "ann");
    let ben = story.read("ben", None, 10).cursor;
    assert!(story.lists.release(&key(1)));
    assert_eq!(show(&story.read("ben", Some(ben), 10)), "1");
    assert_eq!(story.list("ben"), "reset: 1 2");
}

#[test]
fn the_longest_waiting_comes_first_in_whatever_order_a_recovery_offers() {
    let mut story = Story::begin(SPRING);
    let spring = story.now;
    let read_before = story.read("ann", None, 10).cursor;
    for (item, minutes) in [(1, 3), (2, 1), (3, 2)] {
        story.now = Timestamp(spring.0 + minutes * 60_000);
        story.offer(item, "Role(clerk)");
    }
    assert_eq!(story.list("ann"), "reset: 2 3 1");
    assert_eq!(show(&story.read("ann", Some(read_before), 10)), "2 3 1");
    story.lists.start_afresh();
    assert_eq!(show(&story.read("ann", Some(read_before), 10)), "reset: 2 3 1");
}

#[test]
fn a_removed_item_can_be_named_when_its_instance_is_forgotten() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    let ann = story.read("ann", None, 10).cursor;
    story.lists.withdraw(&key(1));
    let removed = &story.read("ann", Some(ann), 10).removed[0];
    assert_eq!(&*removed.schema.node(removed.key.activity.node).name, "approve");
}

#[test]
fn an_agent_who_could_not_see_an_item_is_not_told_that_it_is_gone() {
    let mut story = Story::begin(SUMMER);
    // Eve prepared the third: so Fay stands in for Dan at that item, and nowhere else.
    let rule = "Role(manager) EXCEPT NodePerformingAgent(prepare)";
    story.offer_after(3, rule, "eve");
    let readers = ["ben", "eve", "fay"];
    let cursors = readers.map(|agent| story.read(agent, None, 10).cursor);
    story.offer_after(1, "Role(clerk) EXCEPT NodePerformingAgent(prepare)", "ben");
    story.offer_after(2, rule, "nobody");
    story.claim(1, "ann");
    for item in [1, 2, 3] {
        assert!(story.lists.withdraw(&key(item)));
    }
    let told = [0, 1, 2].map(|n| show(&story.read(readers[n], Some(cursors[n]), 10)));
    // Ben stands in for Cora, who is a manager; he prepared the first.
    assert_eq!(told, ["-2 -3", "-2", "-3"]);
}

#[test]
fn a_delegated_item_belongs_to_its_new_holder() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    story.claim(1, "ann");
    let ann = story.read("ann", None, 10).cursor;
    assert!(story.lists.may_be_given(&"eve".into(), &key(1)));
    assert!(story.lists.delegate(&key(1), &"eve".into(), story.now));
    assert_eq!(show(&story.read("ann", Some(ann), 10)), "-1");
    assert_eq!(story.list("eve"), "reset: 1(eve)");
    assert!(story.may_work_on("eve", 1));
}

#[test]
fn a_withdrawn_item_is_gone_for_everybody() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    let ann = story.read("ann", None, 10).cursor;
    assert!(story.lists.withdraw(&key(1)));
    assert!(!story.lists.withdraw(&key(1)));
    assert_eq!(show(&story.read("ann", Some(ann), 10)), "-1");
    assert_eq!(story.list("ben"), "reset:");
    assert!(story.lists.is_empty());
}

#[test]
fn a_substitute_sees_the_items_of_the_absent() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(manager)");
    story.offer(2, "Role(manager)");
    story.claim(2, "dan");
    let eve = story.read("eve", None, 10).cursor;
    assert_eq!(story.list("eve"), "reset:");
    story.now = SUMMER.parse().unwrap();
    assert!(story.changed("eve", eve));
    assert_eq!(show(&story.read("eve", Some(eve), 10)), "reset: 1[for dan] 2(dan)[for dan]");
    assert!(story.may_work_on("eve", 1));
    assert!(story.may_work_on("eve", 2));
    // The absent agent may still look, and act.
    assert_eq!(story.list("dan"), "reset: 1 2(dan)");
}

#[test]
fn four_eyes_hold_under_substitution() {
    let mut story = Story::begin(SUMMER);
    // Ben prepared it, so he must not approve it, not even in place of Cora.
    story.offer_after(1, "Role(manager) EXCEPT NodePerformingAgent(prepare)", "ben");
    story.offer_after(2, "Role(manager) EXCEPT NodePerformingAgent(prepare)", "ann");
    assert_eq!(story.list("ben"), "reset: 2[for cora]");
    assert!(!story.may_work_on("ben", 1));
    assert!(!story.lists.may_be_given(&"ben".into(), &key(1)));
    story.claim(1, "cora");
    assert_eq!(story.list("ben"), "reset: 2[for cora]");
    assert!(!story.lists.sees(&story.bank, &"ben".into(), &key(1), story.now));
    // Eve stands in for Dan and did nothing before.
    assert_eq!(story.list("eve"), "reset: 2[for dan]");
}

#[test]
fn a_long_list_is_read_in_pages_while_it_changes() {
    let mut story = Story::begin(SPRING);
    (1..=9).for_each(|item| story.offer(item, "Role(clerk)"));
    let first = story.read("ann", None, 4);
    assert_eq!(show(&first), "reset: 1 2 3 4 …");
    // Behind the reader one item is claimed and one completed; ahead of the reader one is claimed;
    // one is new.
    story.claim(2, "ben");
    story.lists.withdraw(&key(3));
    story.claim(7, "ben");
    story.offer(10, "Role(clerk)");
    let second = story.read("ann", Some(first.cursor), 4);
    assert_eq!(show(&second), "-2 -3 -7 5 6 8 9 …");
    story.lists.release(&key(2));
    story.lists.release(&key(7));
    let third = story.read("ann", Some(second.cursor), 4);
    assert_eq!(show(&third), "2 7 10");
    assert!(!story.changed("ann", third.cursor));
    assert_eq!(show(&story.read("ann", Some(third.cursor), 4)), "");
}

#[test]
fn cursors_of_another_incarnation_or_another_person_start_afresh() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    let cursor = story.read("ann", None, 10).cursor;
    assert_eq!(show(&story.read("ben", Some(cursor), 10)), "reset: 1");
    let restarted = Worklists::new(2, &story.bank);
    story.lists = restarted;
    story.offer(1, "Role(clerk)");
    assert!(story.changed("ann", cursor));
    assert_eq!(show(&story.read("ann", Some(cursor), 10)), "reset: 1");
}

#[test]
fn a_cursor_from_the_future_hides_nothing() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    let text = story.read("ann", None, 10).cursor.to_string();
    for part in [2, 4] {
        let mut parts: Vec<&str> = text.split('-').collect();
        parts[part] = "7fffffffffffffff";
        let forged: Cursor = parts.join("-").parse().unwrap();
        assert!(story.changed("ann", forged));
        assert_eq!(show(&story.read("ann", Some(forged), 10)), "reset: 1");
    }
}

#[test]
fn forgotten_removals_lead_to_a_fresh_read() {
    let mut story = Story::begin(SPRING);
    story.offer(0, "Role(clerk)");
    let ann = story.read("ann", None, 10).cursor;
    for item in 1..=100 {
        story.offer(item, "Role(clerk)");
        story.lists.withdraw(&key(item));
    }
    assert!(story.changed("ann", ann));
    assert_eq!(show(&story.read("ann", Some(ann), 10)), "reset: 0");
}

#[test]
fn a_new_organisation_changes_who_sees_what() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    story.offer(2, "Role(manager)");
    story.offer(3, "Role(clerk)");
    story.claim(3, "ben");
    let cursor = story.read("eve", None, 10).cursor;
    let (bank, _) =
        Organisation::parse("organisation: bank\nagents:\n  ann: {}\n  eve: { roles: [clerk] }\n");
    story.bank = bank.unwrap();
    let rules = ["Role(clerk)", "Role(manager)", "Role(clerk)"];
    let bank = &story.bank;
    let told = story.lists.reoffer(bank, |key, item| {
        assert_eq!(&*item.schema.process, "loan");
        let rule: Rule = rules[key.instance.0 as usize - 1].parse().unwrap();
        bank.resolve(&rule, &Did("nobody"))
    });
    assert_eq!(told.without_actors, [key(2)]);
    assert_eq!(told.without_holder, [key(3)]);
    assert_eq!(show(&story.read("eve", Some(cursor), 10)), "reset: 1");
    assert_eq!(story.list("ann"), "reset:");
    // Ben has left and can work on nothing any more.
    assert!(!story.may_work_on("ben", 3));
    story.lists.release(&key(3));
    assert_eq!(story.list("eve"), "reset: 1 3");
}

#[test]
fn an_offer_repeated_replaces_the_one_before() {
    let mut story = Story::begin(SPRING);
    story.offer(1, "Role(clerk)");
    story.claim(1, "ann");
    let ann = story.read("ann", None, 10).cursor;
    story.offer(1, "Role(manager)");
    assert_eq!(show(&story.read("ann", Some(ann), 10)), "-1");
    assert_eq!(story.list("dan"), "reset: 1");
    assert_eq!(story.lists.len(), 1);
    assert_eq!(story.lists.claimed(), 0);
}

#[test]
fn actors_of_an_older_organisation_are_taken_by_name() {
    let mut story = Story::begin(SPRING);
    let old = story.resolve("Role(clerk)", "nobody");
    let (bank, _) = Organisation::parse("organisation: bank\nagents: { aaron: , ben: , zoe: }\n");
    story.bank = bank.unwrap();
    story.lists = Worklists::new(1, &story.bank);
    story.lists.offer(&key(1), &story.schema, &old, story.now);
    assert_eq!(story.list("ben"), "reset: 1");
    assert_eq!(story.list("aaron"), "reset:");
    assert_eq!(story.list("zoe"), "reset:");
}

#[test]
fn pages_have_a_limit_of_their_own() {
    let mut story = Story::begin(SPRING);
    (0..1_500).for_each(|item| story.offer(item, "Role(clerk)"));
    let page = story.read("ann", None, usize::MAX);
    assert_eq!(page.items.len(), legwork_org::PAGE_MAX);
    assert!(page.more);
    assert_eq!(story.read("ann", None, 0).items.len(), 1);
}

#[test]
fn only_those_whose_lists_have_changed_are_told_to_look() {
    let mut story = Story::begin(SPRING);
    let concerned = |story: &mut Story, waiting: &[&str]| {
        let waiting: Vec<AgentId> = waiting.iter().map(|name| AgentId::from(*name)).collect();
        let concerned = story.lists.take_concerned(waiting.iter());
        concerned.iter().map(AgentId::as_str).collect::<Vec<_>>().join(" ")
    };
    let all = ["ann", "ben", "cora", "dan", "eve"];
    assert_eq!(concerned(&mut story, &all), "ann ben cora dan eve", "nobody has looked yet");
    assert_eq!(concerned(&mut story, &all), "");
    story.offer(1, "Role(manager)");
    assert_eq!(concerned(&mut story, &all), "cora dan");
    story.offer(2, "Role(manager)");
    assert_eq!(concerned(&mut story, &["dan"]), "dan", "fewer wait than are concerned");
    story.claim(1, "dan");
    assert_eq!(concerned(&mut story, &all), "cora dan");
    story.claim(2, "stranger");
    assert_eq!(concerned(&mut story, &["cora"]), "cora");
    story.lists.withdraw(&key(1));
    assert_eq!(concerned(&mut story, &all), "dan", "he held it");
    story.lists.start_afresh();
    assert_eq!(concerned(&mut story, &["eve"]), "eve");
}
