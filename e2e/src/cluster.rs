//! A cluster on loopback: several domains, each with one server, `<domain>-1`.
//!
//! Invariant: the ports of one topology differ. They are not held until the servers are up.

use anyhow::{Result, ensure};
use legwork_testbed::free_port;

use crate::command::legwork;
use crate::server::{Folder, Server};

/// Writes `topology.yaml` and creates the folders of all servers, `cluster/<domain>-1`.
pub fn init(folder: &Folder, domains: &[&str]) -> Result<()> {
    folder.file("topology.yaml", topology(domains)?)?;
    let args = ["--json", "cluster", "init", "topology.yaml", "--out", "cluster"];
    let made = legwork(folder.path(), &args)?.json()?;
    ensure!(made["servers"].as_array().map(Vec::len) == Some(domains.len()), "{made}");
    Ok(())
}

/// Starts a server of the cluster and waits until it is ready.
pub async fn up(folder: &Folder, name: &str) -> Result<Server> {
    folder.server(name, &["--cluster", &format!("cluster/{name}")]).await
}

fn topology(domains: &[&str]) -> Result<String> {
    // All are held until the last one is chosen, so that they differ.
    let mut held = Vec::new();
    let mut text = "topology: cluster\ndomains:\n".to_owned();
    for domain in domains {
        let port = free_port()?;
        let address = port.local_addr()?;
        held.push(port);
        text.push_str(&format!(
            "  {domain}:\n    servers:\n      {domain}-1: {{ address: \"{address}\", \
             api: \"http://{domain}.example:7700\" }}\n"
        ));
    }
    Ok(text)
}
