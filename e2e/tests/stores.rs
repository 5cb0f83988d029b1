//! A folder that cannot be the store of a server is refused: with reason and remedy, and unchanged.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::client::InstanceQuery;
use legwork_e2e::{Folder, contents, fixture, legwork};

#[test]
fn a_file_is_no_store() -> Result<()> {
    let folder = Folder::new()?;
    folder.file("notes", "mine")?;
    let said = folder.server_refused("notes")?;
    assert!(said.contains("is not a store: it is not a directory; choose an empty"), "{said}");
    assert_eq!(std::fs::read(folder.path().join("notes"))?, b"mine");
    Ok(())
}

#[test]
fn a_folder_with_something_else_in_it_is_no_store() -> Result<()> {
    let folder = Folder::new()?;
    std::fs::create_dir(folder.path().join("papers"))?;
    folder.file("papers/notes", "mine")?;
    let said = folder.server_refused("papers")?;
    assert!(said.contains("notes; choose an empty or a new directory"), "{said}");
    Ok(())
}

#[test]
fn a_folder_that_cannot_be_made_is_named_with_a_way_on() -> Result<()> {
    let folder = Folder::new()?;
    let said = folder.server_refused("/proc/legwork")?;
    assert!(said.contains("creating /proc/legwork failed"), "{said}");
    assert!(said.contains("; check the path, or name a directory"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_damaged_store_is_refused_and_left_as_it_is() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    for _ in 0..20 {
        fixture::start(&client, "tea").await?;
    }
    assert!(server.terminate()?.success());
    let store = folder.path().join("store");
    let files = contents(&store)?;
    let holds = |bytes: &[u8]| bytes.windows(7).position(|window| window == b"fixture");
    let (file, bytes, place) = files
        .iter()
        .find_map(|(file, bytes)| Some((file, bytes, holds(bytes)?)))
        .context("no file holds the organisation")?;
    let mut damaged = bytes.clone();
    damaged[place] ^= 0xFF;
    std::fs::write(file, &damaged)?;
    let before = contents(&store)?;
    let said = folder.server_refused("store")?;
    assert!(said.contains("is damaged") && said.contains("restore the last backup"), "{said}");
    ensure!(contents(&store)? == before, "a refused store was changed");
    // Repaired, it opens, and everything is there: the refusal was justified.
    std::fs::write(file, bytes)?;
    let server = folder.server("store", &[]).await?;
    let open = server.client()?.instances(&InstanceQuery::default()).await?.instances;
    assert_eq!(open.len(), 20);
    Ok(())
}

#[tokio::test]
async fn a_store_is_compacted_when_no_server_uses_it_and_holds_the_same_after() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let instance = fixture::start(&client, "tea").await?;
    let data = folder.path().join("store").display().to_string();
    let said = legwork(folder.path(), &["compact", "--data", &data])?.refused()?;
    assert!(said.contains("in use by another process"), "{said}");
    let before = client.instance(instance, Duration::ZERO).await?;
    assert!(server.terminate()?.success());
    let report = legwork(folder.path(), &["compact", "--data", &data, "--json"])?.json()?;
    assert!(report["bytes"].as_u64() > Some(0), "{report}");
    let server = folder.server("store", &[]).await?;
    assert_eq!(server.client()?.instance(instance, Duration::ZERO).await?, before);
    let said = legwork(folder.path(), &["compact", "--data", "nowhere"])?.refused()?;
    assert!(said.contains("there is no store in nowhere"), "{said}");
    assert!(!folder.path().join("nowhere").exists());
    Ok(())
}
