//! What is published is kept in all its versions, and comes up again with what is in force alone.

use crate::support::{BANK, Harness, LOAN, start};
use legwork_model::event::{Performer, Record, SiteEvent};
use legwork_model::id::{InstanceId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;
use serde_json::json;

fn publish(bank: &mut Harness, source: &str) -> Result<Answer, Refusal> {
    bank.ask(Request::PublishOrganisation { source: source.to_owned() })
}

fn deploy(bank: &mut Harness, source: &str) -> Result<Answer, Refusal> {
    bank.ask(Request::Deploy { source: source.to_owned() })
}

fn small(process: &str, title: &str) -> String {
    format!("process: {process}\ntitle: \"v{title}\"\nsteps: []\n")
}

/// Version and text of an organisation.
fn organisation(bank: &mut Harness, version: Option<u32>) -> (u32, String) {
    match bank.ask(Request::Organisation { version }).unwrap() {
        Answer::Organisation { version, source, .. }
        | Answer::OrganisationText { version, source } => (version, source.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_version_of_the_organisation_can_be_read_also_after_a_restart() {
    let mut bank = Harness::bank();
    let later = BANK.replace("Cleo", "Clara");
    publish(&mut bank, &later).unwrap();
    deploy(&mut bank, &small("other", "Other")).unwrap();
    for _ in 0..2 {
        assert_eq!(organisation(&mut bank, Some(1)), (1, BANK.to_owned()));
        assert_eq!(organisation(&mut bank, Some(2)), (2, later.clone()));
        assert_eq!(organisation(&mut bank, None), (2, later.clone()));
        for version in [0, 3] {
            let refused = bank.refusal(Request::Organisation { version: Some(version) });
            assert!(refused.ends_with("(no_organisation)"), "{refused}");
        }
        let page = |bank: &mut Harness, after, limit| match bank
            .ask(Request::OrganisationVersions { after, limit })
            .unwrap()
        {
            Answer::Versions { versions, more } => {
                (versions.iter().map(|it| it.version).collect::<Vec<_>>(), more)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(page(&mut bank, 0, 10), (vec![1, 2], false));
        assert_eq!(page(&mut bank, 0, 1), (vec![1], true));
        assert_eq!(page(&mut bank, 1, 1), (vec![2], false));
        bank.restart();
    }
    publish(&mut bank, BANK).unwrap();
    assert_eq!(organisation(&mut bank, Some(3)), (3, BANK.to_owned()));
    assert_eq!(bank.items("ann"), Vec::<String>::new());
}

#[test]
fn instances_of_old_versions_go_on_after_a_restart() {
    let mut bank = Harness::bank();
    let first = bank.start(1);
    deploy(&mut bank, &LOAN.replace("step: capture", "step: note").replace("(capture)", "(note)"))
        .unwrap();
    bank.start(2);
    bank.restart();
    assert_eq!(bank.items("ben"), ["capture", "note"]);
    let started = bank.ask(start_version(InstanceId(3), 1)).unwrap();
    let Answer::Started { instance, .. } = started else { panic!("{started:?}") };
    assert_eq!((instance.version, first), (1, InstanceId(1)));
}

#[test]
fn an_old_text_that_cannot_be_read_any_more_holds_up_nobody_else() {
    let deployed = |version, source: &str| {
        let (process, by) = ("loan".into(), Performer::System);
        let event =
            SiteEvent::DefinitionDeployed { process, version, source: source.to_owned(), by };
        Record { at: Timestamp::default(), events: vec![event] }.to_bytes()
    };
    let mut bank = Harness::new();
    let records = vec![deployed(1, "of another age"), deployed(2, LOAN)];
    bank.feed(Input::Recovered(Stream { id: StreamId::SITE.0, snapshot: None, records }));
    bank.feed(Input::SiteRecovered);
    assert_eq!(bank.site.faults(), [""; 0]);
    let refused = bank.refusal(start_version(InstanceId(1), 1));
    assert!(refused.ends_with("(definition_unreadable)"), "{refused}");
    bank.ask(start_version(InstanceId(2), 2)).unwrap();
    let records = vec![deployed(3, "nonsense")];
    bank.feed(Input::Recovered(Stream { id: StreamId::SITE.0, snapshot: None, records }));
    bank.feed(Input::SiteRecovered);
    assert_eq!(bank.site.faults().len(), 1, "the latest has to be understood");
}

#[test]
fn a_site_takes_so_much_and_says_what_to_do_then() {
    let mut bank = Harness::bank();
    let bytes = (LOAN.len() + 500) as u64;
    bank.config.limits = Limits {
        processes: 2,
        versions: 3,
        definition_bytes: bytes,
        organisations: 2,
        tokens: 2,
        ..Limits::default()
    };
    bank.restart();
    deploy(&mut bank, &small("two", "1")).unwrap();
    let refused = |answer: Result<Answer, Refusal>, code: &str, next: &str| {
        let refusal = answer.unwrap_err();
        assert_eq!((refusal.kind, refusal.code), (Kind::Conflict, code), "{refusal}");
        assert!(refusal.message.contains(next), "{refusal}");
    };
    let code = "too_many_definitions";
    refused(deploy(&mut bank, &small("three", "1")), code, "as a version of another process");
    // The number of processes says nothing about versions of those that are there.
    deploy(&mut bank, &small("two", "2")).unwrap();
    deploy(&mut bank, &small("two", "3")).unwrap();
    refused(deploy(&mut bank, &small("two", "4")), code, "give it another name");
    deploy(&mut bank, &small("two", "3")).unwrap();
    refused(deploy(&mut bank, &format!("{LOAN}\n#{:600}", "")), code, "shorten this one");

    publish(&mut bank, &BANK.replace("Ben", "Bo")).unwrap();
    refused(publish(&mut bank, BANK), "too_many_organisations", "less often");

    let token = |name: &str, byte: u8| Request::IssueToken {
        name: name.to_owned(),
        hash: [byte; 32],
        scopes: vec![Scope::Admin],
    };
    bank.ask(token("one", 1)).unwrap();
    bank.credential = Credential::Token([1; 32]);
    bank.ask(token("two", 2)).unwrap();
    refused(bank.ask(token("three", 3)), "too_many_tokens", "revoke an unused token");
    bank.ask(Request::RevokeToken { name: "two".to_owned() }).unwrap();
    bank.ask(token("three", 3)).unwrap();
}

fn start_version(instance: InstanceId, version: u32) -> Request {
    match start(instance, json!({ "amount": 1 }), None) {
        Request::Start(start) => Request::Start(Start { version: Some(version), ..start }),
        other => other,
    }
}
