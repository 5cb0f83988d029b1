//! The rights of each token.

use anyhow::{Context, Result};
use legwork_api::jobs::ActivateRequest;
use legwork_e2e::Folder;
use legwork_e2e::fixture::{self, activity};
use serde_json::json;

#[tokio::test]
async fn each_token_does_what_its_scopes_allow_and_nothing_else() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    fixture::deploy(&server.client()?).await?;
    // Without an administrator the next token could not be created.
    let first = server.run(&["token", "create", "bob", "--scope", "work:bob", "--json"])?;
    assert_eq!(first.problem()?["code"], json!("first_token_not_admin"));
    let token = |admin: Option<&str>, name: &str, scope: &str| -> Result<String> {
        let mut args = vec!["token", "create", name, "--scope", scope];
        args.extend(admin.map(|admin| ["--token", admin]).into_iter().flatten());
        Ok(server.run(&args)?.succeeded()?.trim().to_owned())
    };
    let admin = token(None, "root", "admin")?;
    let intake = token(Some(&admin), "intake", "start")?;
    let bob = token(Some(&admin), "bob", "work:bob")?;
    let portal = token(Some(&admin), "portal", "work:*")?;
    let mailer = token(Some(&admin), "mailer", "worker")?;

    let instance = fixture::start(&server.client_with(&intake)?, "tea").await?;
    let item = activity(instance, "look").to_string();
    let show = format!("show {instance}");
    let suspend = format!("suspend {instance}");
    let show_bob = format!("work show {item} --as bob");
    let show_dora = format!("work show {item} --as dora");
    // The allowed commands: admin, start, work:bob, work:*, worker.
    let table = [
        ("token list", "y----"),
        ("incidents", "y----"),
        ("start errand --set what=x", "yy---"),
        (&*show, "yy---"),
        ("work list --as bob", "y-yy-"),
        ("work list --as dora", "y--y-"),
        (&*show_bob, "y-yy-"),
        (&*show_dora, "y--y-"),
        ("backup all.lwb --force", "y----"),
        (&*suspend, "y----"),
    ];
    let tokens = [&admin, &intake, &bob, &portal, &mailer];
    for (command, allowed) in table {
        for (token, allowed) in tokens.iter().zip(allowed.chars()) {
            let mut args: Vec<&str> = command.split(' ').collect();
            args.extend(["--token", token, "--json"]);
            let outcome = server.run(&args)?;
            match allowed {
                'y' => {
                    outcome.succeeded().with_context(|| format!("{command} as {token}"))?;
                }
                _ => {
                    let problem = outcome.problem().with_context(|| command.to_owned())?;
                    assert_eq!(problem["code"], json!("forbidden"), "{command}: {problem}");
                }
            }
        }
    }
    for (token, allowed) in tokens.iter().zip("y---y".chars()) {
        let request = ActivateRequest {
            worker: "w1".into(),
            types: vec!["book".into()],
            max: 1,
            lease_ms: 1_000,
            wait_ms: 0,
        };
        let taken = server.client_with(token)?.activate(&request).await;
        let code = taken.as_ref().err().and_then(|error| error.code());
        assert_eq!(code, (allowed == '-').then_some("forbidden"), "{taken:?}");
    }
    Ok(())
}

#[tokio::test]
async fn from_the_first_token_on_nothing_goes_without() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &["--listen", "0.0.0.0:0"]).await?;
    assert!(server.url().contains("127.0.0.1"), "{} is open to everybody", server.url());
    assert!(server.log().contains("no token"), "{}", server.log());
    let admin = server.run(&["token", "create", "root", "--scope", "admin"])?.succeeded()?;
    let admin = admin.trim();
    let refused = server.run(&["list"])?.refused()?;
    assert!(refused.contains("LEGWORK_TOKEN"), "{refused}");
    let wrong = server.run(&["list", "--token", "lw_wrong", "--json"])?.problem()?;
    assert_eq!(wrong["code"], json!("unauthenticated"));
    server.run(&["list", "--token", admin])?.succeeded()?;
    server
        .run(&["token", "create", "bob", "--scope", "work:bob", "--token", admin])?
        .succeeded()?;
    let last = server.run(&["token", "revoke", "root", "--token", admin, "--json"])?.problem()?;
    assert_eq!(last["code"], json!("last_admin_token"));
    server
        .run(&["token", "create", "second", "--scope", "admin", "--token", admin])?
        .succeeded()?;
    server.run(&["token", "revoke", "root", "--token", admin])?.succeeded()?;
    assert!(server.run(&["list", "--token", admin])?.refused()?.contains("token"));
    for entry in std::fs::read_dir(folder.path())? {
        let path = entry?.path();
        if path.is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            assert!(!text.contains(admin), "a secret is in {}", path.display());
        }
    }
    Ok(())
}
