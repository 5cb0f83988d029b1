//! The log of a server, as an operator reads it.

use anyhow::Result;
use legwork_e2e::fixture::{self, activity};
use legwork_e2e::{Folder, Server};

/// The lines written since `seen`, which grows by them. A request is logged before it is answered.
fn news<'l>(log: &'l str, seen: &mut usize) -> &'l str {
    let news = &log[*seen..];
    *seen = log.len();
    news
}

#[tokio::test]
async fn a_request_is_logged_with_the_instances_it_is_about_and_without_their_data() -> Result<()> {
    let folder = Folder::new()?;
    let server: Server = folder.server("store", &["--log", "debug"]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let mut seen = server.log().len();
    let instance = fixture::start(&client, "Zoe").await?;
    let item = activity(instance, "look").to_string();
    let mut logged = |expected: &[&str]| {
        let log = server.log();
        let news = news(&log, &mut seen);
        let named = format!("instance={instance}");
        assert!(!news.contains("Zoe"), "{news}");
        let holds = |line: &str| expected.iter().chain([&&*named]).all(|part| line.contains(part));
        assert!(news.lines().any(holds), "{expected:?}: {news}");
    };
    logged(&["path=\"/v1/instances\"", "status=201"]);
    server.run(&["work", "claim", &item, "--as", "bob"])?.succeeded()?;
    logged(&["/claim", "activity=", ":look"]);
    server.run(&["work", "claim", &item, "--as", "dora"])?.refused()?;
    logged(&["status=409", "code=\"held_by\""]);
    server.run(&["work", "complete", &item, "--as", "bob", "--set", "ok=true"])?.succeeded()?;
    logged(&["/complete"]);
    let exec = r#"echo '{"receipt": "r1"}'"#;
    server.run(&["jobs", "work", "book", "--once", "--exec", exec])?.succeeded()?;
    logged(&["path=\"/v1/jobs/"]);
    Ok(())
}
