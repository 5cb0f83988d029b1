//! Tokens: who may call what.

use crate::support::{Harness, activate, activity, claim, complete};
use legwork_model::id::{ActivityId, AgentId, InstanceId};
use legwork_site::*;

fn issue(bank: &mut Harness, name: &str, scope: &str) -> Credential {
    let mut hash = [0; 32];
    hash[..name.len()].copy_from_slice(name.as_bytes());
    let scopes = vec![scope.parse().unwrap()];
    bank.ask(Request::IssueToken { name: name.to_owned(), hash, scopes }).unwrap();
    Credential::Token(hash)
}

#[test]
fn without_tokens_everybody_may_do_everything_and_from_the_first_on_nothing() {
    let mut bank = Harness::bank();
    let hash = [9; 32];
    let scopes = vec![Scope::Worker];
    let refused = bank.refusal(Request::IssueToken { name: "w".into(), hash, scopes });
    assert!(refused.ends_with("(first_token_not_admin)"), "{refused}");
    let admin = issue(&mut bank, "root", "admin");
    let refused = bank.refusal(Request::Definitions { after: None, limit: 10 });
    assert!(refused.ends_with("(unauthenticated)"), "{refused}");
    bank.credential = Credential::Token([1; 32]);
    assert!(
        bank.refusal(Request::Definitions { after: None, limit: 10 })
            .ends_with("(unauthenticated)")
    );
    bank.credential = admin;
    bank.ask(Request::Definitions { after: None, limit: 10 }).unwrap();
    bank.restart();
    bank.ask(Request::Definitions { after: None, limit: 10 }).unwrap();
}

#[test]
fn a_scope_allows_its_own_business_only() {
    let mut bank = Harness::bank();
    let admin = issue(&mut bank, "root", "admin");
    bank.credential = admin.clone();
    let ann = issue(&mut bank, "ann", "work:ann");
    let robot = issue(&mut bank, "robot", "worker");
    let starter = issue(&mut bank, "desk", "start");
    bank.credential = starter;
    let loan = bank.start(1);
    bank.ask(Request::Show { instance: loan, wait_until: None }).unwrap();
    for request in [
        claim("ann", loan, "capture"),
        activate("credit-score", 1, None),
        Request::Abort { instance: loan, reason: String::new() },
        Request::Deploy { source: String::new() },
        Request::Tokens { after: None, limit: 10 },
    ] {
        assert!(bank.refusal(request).ends_with("(forbidden)"));
    }
    bank.credential = ann;
    assert_eq!(bank.items("ann"), ["capture"]);
    let ben = AgentId::from("ben");
    let worklist = Worklist { agent: ben, since: None, limit: 1, wait_until: None };
    for request in [
        Request::Worklist(worklist),
        claim("ben", loan, "capture"),
        Request::Complete(complete("ben", loan, "capture")),
        Request::Show { instance: loan, wait_until: None },
        activate("credit-score", 1, None),
    ] {
        assert!(bank.refusal(request).ends_with("(forbidden)"));
    }
    bank.ask(Request::Complete(complete("ann", loan, "capture"))).unwrap();
    bank.credential = robot;
    assert_eq!(bank.jobs("credit-score", 1).len(), 1);
    bank.credential = admin;
    bank.ask(Request::RevokeToken { name: "robot".into() }).unwrap();
    let refused = bank.refusal(Request::RevokeToken { name: "root".into() });
    assert!(refused.ends_with("(last_admin_token)"), "{refused}");
}

#[test]
fn the_plan_of_an_executor_is_not_for_everybody_who_works() {
    let mut bank = Harness::bank();
    let admin = issue(&mut bank, "root", "admin");
    bank.credential = admin.clone();
    let ann = issue(&mut bank, "ann", "work:ann");
    let anybody = issue(&mut bank, "portal", "work:*");
    let robot = issue(&mut bank, "robot", "worker");
    let starter = issue(&mut bank, "desk", "start");
    for (credential, code) in [
        (ann, "(forbidden)"),
        (anybody, "(forbidden)"),
        (robot, "(no_such_resource)"),
        (starter, "(no_such_resource)"),
        (admin, "(no_such_resource)"),
    ] {
        bank.credential = credential;
        let refused = bank.refusal(Request::Plan { resource: ResourceId::Executor("x".into()) });
        assert!(refused.ends_with(code), "{refused}");
    }
}

#[test]
fn whoever_may_not_see_the_plan_of_a_person_hears_which_scope_it_takes() {
    let mut bank = Harness::bank();
    let admin = issue(&mut bank, "root", "admin");
    bank.credential = admin.clone();
    let ann = issue(&mut bank, "ann", "work:ann");
    let starter = issue(&mut bank, "desk", "start");
    let plan = || Request::Plan { resource: ResourceId::Person("ben".into()) };
    for credential in [ann, starter] {
        bank.credential = credential;
        let refused = bank.refusal(plan());
        assert!(refused.starts_with("the token lacks the scope work:ben;"), "{refused}");
    }
    bank.credential = admin;
    assert!(bank.ask(plan()).is_ok());
}

/// Everything that somebody can do with an item.
fn deeds(agent: &str, activity: &ActivityId) -> [Request; 5] {
    let (agent, activity) = (AgentId::from(agent), activity.clone());
    let done = complete(agent.as_str(), activity.instance, &activity.step);
    [
        Request::Item { agent: agent.clone(), activity: activity.clone() },
        Request::Claim { agent: agent.clone(), activity: activity.clone() },
        Request::Release { agent: agent.clone(), activity: activity.clone() },
        Request::Delegate { agent: agent.clone(), activity: activity.clone(), to: agent },
        Request::Complete(Complete { activity, ..done }),
    ]
}

#[test]
fn an_item_of_others_is_refused_like_one_that_does_not_exist() {
    let mut bank = Harness::bank();
    let admin = issue(&mut bank, "root", "admin");
    bank.credential = admin;
    let cleo = issue(&mut bank, "cleo", "work:cleo");
    let (loan, damaged) = (bank.start(1), bank.start(2));
    bank.corrupt(damaged);
    bank.restart();
    assert_eq!(bank.site.gauges().instances_broken, 1);
    bank.credential = cleo;
    let mut told = Vec::new();
    for activity in [
        activity(loan, "capture"),
        activity(loan, "score"),
        activity(loan, "verdict"),
        activity(loan, "no-such-step"),
        activity(damaged, "capture"),
        activity(InstanceId(99), "capture"),
    ] {
        for request in deeds("cleo", &activity) {
            let refusal = bank.ask(request).unwrap_err();
            let message = refusal.message.replace(&activity.to_string(), "ITEM");
            told.push((refusal.kind, refusal.code, message));
        }
    }
    let message = "there is no item ITEM for `cleo`".to_owned();
    assert!(told.iter().all(|one| *one == (Kind::NotFound, "no_such_item", message.clone())));
}
