//! Several people at one worklist.

use std::time::Duration;

use anyhow::{Context, Result};
use legwork_e2e::fixture::{self, activity};
use legwork_e2e::{Folder, Server};
use legwork_model::id::InstanceId;
use serde_json::json;

async fn office() -> Result<(Folder, Server, InstanceId)> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let instance = fixture::start(&client, "tea").await?;
    Ok((folder, server, instance))
}

#[tokio::test]
async fn the_loser_of_a_claim_is_told_by_whom() -> Result<()> {
    let (_folder, server, _) = office().await?;
    for who in ["bob", "dora"] {
        assert!(server.run(&["work", "list", "--as", who])?.succeeded()?.contains("Look at it"));
    }
    server.run(&["work", "claim", "look", "--as", "bob"])?.succeeded()?;
    let said = server.run(&["work", "claim", "look", "--as", "dora"])?.refused()?;
    assert!(said.contains("bob"), "{said}");
    let complete = ["work", "complete", "look", "--as", "dora", "--set", "ok=true"];
    assert!(server.run(&complete)?.refused()?.contains("bob"));
    server.run(&["work", "release", "look", "--as", "bob"])?.succeeded()?;
    server.run(&complete)?.succeeded()?;
    let again = server.run(&["work", "complete", "look", "--as", "bob", "--set", "ok=true"])?;
    assert!(again.refused()?.contains("look"));
    Ok(())
}

#[tokio::test]
async fn of_many_who_claim_at_once_exactly_one_wins() -> Result<()> {
    let (_folder, server, instance) = office().await?;
    let item = activity(instance, "look");
    let mut tasks = tokio::task::JoinSet::new();
    for attempt in 0..32 {
        let (client, item) = (server.client()?, item.clone());
        let agent = if attempt % 2 == 0 { "bob" } else { "dora" };
        tasks.spawn(async move { (agent, client.claim(&item, Some(agent)).await) });
    }
    let results = tasks.join_all().await;
    let found = server.client()?.instance(instance, Duration::ZERO).await?;
    let holder = found.nodes[0].holder.clone().context("nobody holds it")?;
    for (agent, result) in results {
        match result {
            Ok(()) => assert_eq!(*agent, *holder),
            Err(error) => assert!(error.to_string().contains(&*holder), "{error}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn nobody_sees_or_touches_what_is_not_theirs() -> Result<()> {
    let (_folder, server, instance) = office().await?;
    assert_eq!(server.run(&["work", "list", "--as", "carla"])?.succeeded()?, "nothing to do\n");
    let id = activity(instance, "look").to_string();
    for order in ["show", "claim", "release"] {
        let problem = server.run(&["work", order, &id, "--as", "carla", "--json"])?.problem()?;
        assert_eq!(problem["code"], json!("no_such_item"), "{order}");
    }
    let nobody = server.run(&["work", "list", "--as", "zoe", "--json"])?.problem()?;
    assert_eq!(nobody["code"], json!("no_such_agent"));
    let unnamed = server.run(&["work", "list"])?.refused()?;
    assert!(unnamed.contains("--as AGENT"), "{unnamed}");
    Ok(())
}

#[tokio::test]
async fn an_item_is_handed_on_and_a_wrong_result_changes_nothing() -> Result<()> {
    let (_folder, server, instance) = office().await?;
    server.run(&["work", "claim", "last", "--as", "bob"])?.succeeded()?;
    server.run(&["work", "delegate", "last", "--as", "bob", "--to", "dora"])?.succeeded()?;
    let before = server.run(&["show", "last", "--json"])?.json()?;
    for (set, code) in [
        ("ok=perhaps", "wrong_type"),
        ("receipt=x", "not_written"),
        ("colour=red", "unknown_element"),
    ] {
        let complete = ["work", "complete", "look", "--as", "dora", "--set", set, "--json"];
        assert_eq!(server.run(&complete)?.problem()?["code"], json!(code));
    }
    let missing = server.run(&["work", "complete", "look", "--as", "dora", "--json"])?.problem()?;
    assert_eq!(missing["code"], json!("missing_output"));
    assert_eq!(server.run(&["show", &instance.to_string(), "--json"])?.json()?, before);
    server.run(&["work", "complete", "look", "--as", "dora", "--set", "ok=false"])?.succeeded()?;
    Ok(())
}

#[tokio::test]
async fn changes_of_a_worklist_are_pushed() -> Result<()> {
    let (_folder, server, instance) = office().await?;
    let client = server.client()?;
    let mut events = client.worklist_events(Some("bob"), None).await?;
    let first = events.next().await?.context("no list")?;
    assert_eq!((first.reset, first.items.len()), (true, 1));
    let item = activity(instance, "look");
    client.claim(&item, Some("dora")).await?;
    let change = events.next().await?.context("no change")?;
    let holder = change.items.iter().find_map(|item| item.claimed_by.as_deref());
    assert!(holder == Some("dora") || change.removed.contains(&item), "{change:?}");
    let second = fixture::start(&client, "coffee").await?;
    let change = events.next().await?.context("no change")?;
    assert_eq!(change.items[0].activity, activity(second, "look"));
    Ok(())
}
