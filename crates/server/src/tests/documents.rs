//! Documents among servers on loopback.

use serde_json::{Value as Json, json};

use super::servers::{Cluster, Node};
use super::support::call;

/// Written in the first domain, read in the third and, after a change, once more.
const REPORT: &str = "
process: report
data: { report: file }
result: [report]
steps:
  - { step: write, job: write, at: north, writes: [report] }
  - { step: pass, job: pass, at: south }
  - { step: read, job: read, at: east, reads: [report] }
  - { step: mend, job: mend, at: south, reads: [report], writes: [report] }
  - { step: sign, job: sign, at: east, reads: [report] }
";

impl Node {
    async fn upload(&self, content: &[u8]) -> Json {
        self.ok(call("PUT /v1/files?name=report.pdf").body("application/pdf", content.to_vec()))
            .await
    }

    /// Waits for a job, checks that its input file is here, and completes it.
    async fn work_on(&self, kind: &str, expected: &[u8], data: Json) {
        let activate = json!({"worker": "w", "types": [kind], "max": 1, "lease_ms": 60_000, "wait_ms": 30_000});
        let jobs = self.ok(call("POST /v1/jobs/activate").json(activate)).await;
        let job = &jobs["jobs"][0];
        let blob = job["data"]["report"]["blob"].as_str().unwrap();
        let file = self.send(call(&format!("GET /v1/files/{blob}"))).await;
        assert_eq!((file.status, &file.body[..] == expected), (200, true), "{kind}");
        let done = json!({"worker": "w",
            "jobs": [{"job": job["job"], "lease": job["lease"], "data": data}]});
        let results = self.ok(call("POST /v1/jobs/complete").json(done)).await;
        assert_eq!(results, json!({"results": [{"ok": true}]}), "{kind} at {}", self.name);
    }

    /// Bytes of large data sent to another server.
    fn large_to(&self, peer: &str) -> u64 {
        self.row(peer).sent.kinds.iter().find(|(name, _)| *name == "large").unwrap().1
    }
}

#[tokio::test]
async fn a_document_goes_straight_to_its_reader_and_then_only_what_has_changed() {
    let cluster = Cluster::new(&["north", "south", "east"]);
    let mut nodes = Vec::new();
    for name in ["north-1", "south-1", "east-1"] {
        nodes.push(cluster.start(name).await);
    }
    let [north, south, east] = &nodes[..] else { panic!("three") };
    north.ok(call("POST /v1/definitions").body("text/yaml", REPORT)).await;
    for (node, peer) in
        [(north, "south-1"), (south, "east-1"), (east, "south-1"), (east, "north-1")]
    {
        node.until_up(peer).await;
    }
    let first = crate::files::noise(1, 2_000_000);
    let mut second = first.clone();
    second.splice(900_000..900_000, *b"an inserted word");
    let start = json!({"process": "report"});
    let started = north.ok(call("POST /v1/instances").json(start)).await;
    let file = north.upload(&first).await;
    north.work("write", json!({"report": file})).await;
    south.work("pass", json!({})).await;
    east.work_on("read", &first, json!({})).await;
    assert_eq!(north.large_to("south-1"), 0, "not by way of the one between");
    let whole = north.large_to("east-1");
    assert!((2_000_000..2_020_000).contains(&whole), "{whole}");
    let file = south.upload(&second).await;
    south.work_on("mend", &first, json!({"report": file})).await;
    east.work_on("sign", &second, json!({})).await;
    let changed = south.large_to("east-1");
    assert!(changed < 600_000, "{changed} bytes for a change of 16");
    let ended = north.ended(started["instance"].as_str().unwrap()).await;
    assert_eq!((&ended["state"], &ended["result"]["report"]), (&json!("completed"), &file));
    let blob = file["blob"].as_str().unwrap();
    let result = north.send(call(&format!("GET /v1/files/{blob}"))).await;
    assert_eq!((result.status, result.body[..] == second), (200, true));
    for node in nodes {
        node.server.stop().await;
    }
}

#[tokio::test]
async fn a_file_handed_in_at_another_server_goes_along() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    const FORM: &str = "
process: form
data: { form: file }
result: [form]
steps:
  - { step: fill, who: Agent(ann), at: north, writes: [form] }
";
    const PEOPLE: &str = "organisation: o\nagents: { ann: { name: Ann } }";
    north.ok(call("PUT /v1/organisation").body("text/yaml", PEOPLE)).await;
    north.ok(call("POST /v1/definitions").body("text/yaml", FORM)).await;
    south.until_deployed("form").await;
    south.until_up("north-1").await;
    north.until_up("south-1").await;
    let started = north.ok(call("POST /v1/instances").json(json!({"process": "form"}))).await;
    let instance = started["instance"].as_str().unwrap();
    let complete = format!("POST /v1/work/{instance}:fill/complete");
    let missing = json!({"blob": "ab".repeat(32), "size": 3});
    let body = |file: &Json| json!({"agent": "ann", "data": {"form": file}});
    let refused = south.send(call(&complete).json(body(&missing))).await;
    assert_eq!((refused.status, &refused.json()["code"]), (404, &json!("no_such_file")));
    let file = south.upload(b"filled in").await;
    south.ok(call(&complete).json(body(&file))).await;
    let blob = file["blob"].as_str().unwrap();
    let stored = north.send(call(&format!("GET /v1/files/{blob}"))).await;
    assert_eq!((stored.status, &stored.body[..]), (200, &b"filled in"[..]));
    // A file at the server that controls the step stays there, whichever server is told of the
    // completion.
    let started = north.ok(call("POST /v1/instances").json(json!({"process": "form"}))).await;
    let instance = started["instance"].as_str().unwrap();
    let before = north.large_to("south-1");
    let file = north.upload(&crate::files::noise(5, 4_000_000)).await;
    let complete = format!("POST /v1/work/{instance}:fill/complete");
    south.ok(call(&complete).json(body(&file))).await;
    let ended = north.ended(instance).await;
    assert_eq!((&ended["state"], &ended["result"]["form"]), (&json!("completed"), &file));
    assert_eq!(north.large_to("south-1"), before, "bytes for a file that nobody reads there");
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test]
async fn a_file_can_be_fetched_at_any_server() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    north.until_up("south-1").await;
    let content = crate::files::noise(3, 700_000);
    let file = south.upload(&content).await;
    let get = format!("GET /v1/files/{}", file["blob"].as_str().unwrap());
    let stored = north.send(call(&get)).await;
    assert_eq!((stored.status, stored.body[..] == content), (200, true));
    let unknown = north.send(call(&format!("GET /v1/files/{}", "ab".repeat(32)))).await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("no_such_file")));
    // The file stays.
    south.server.stop().await;
    assert_eq!(north.send(call(&get)).await.status, 200);
    north.server.stop().await;
}

#[tokio::test]
async fn only_agents_who_see_an_item_open_its_files_at_any_server() {
    const CLAIM: &str = "
process: claim
data: { photo: file, note: string }
start: [note]
steps:
  - { step: shoot, job: shoot, at: east, writes: [photo] }
  - { step: look, who: Role(clerk), at: south, reads: [photo, note] }
";
    const PEOPLE: &str = "organisation: o\nagents: { ann: { roles: [clerk] }, ben: { name: Ben } }";
    let cluster = Cluster::new(&["north", "south", "east"]);
    let mut nodes = Vec::new();
    for name in ["north-1", "south-1", "east-1"] {
        nodes.push(cluster.start(name).await);
    }
    let [north, south, east] = &nodes[..] else { panic!("three") };
    north.ok(call("PUT /v1/organisation").body("text/yaml", PEOPLE)).await;
    north.ok(call("POST /v1/definitions").body("text/yaml", CLAIM)).await;
    for (node, peer) in [(north, "south-1"), (north, "east-1"), (south, "east-1")] {
        node.until_up(peer).await;
    }
    for node in [south, east] {
        node.until_deployed("claim").await;
    }
    let content = crate::files::noise(5, 300_000);
    let photo = east.upload(&content).await;
    let start = json!({"process": "claim", "data": {"note": "dented"}});
    let started = north.ok(call("POST /v1/instances").json(start)).await;
    east.work("shoot", json!({"photo": photo})).await;
    let look = format!("/v1/work/{}:look", started["instance"].as_str().unwrap());
    let at_south = format!("GET {look}?agent=ann");
    super::servers::until_some(async || {
        (south.send(call(&at_south)).await.status == 200).then_some(())
    })
    .await;
    for node in &nodes {
        let photo = node.send(call(&format!("GET {look}/file?element=photo&agent=ann"))).await;
        assert_eq!((photo.status, photo.body[..] == content), (200, true), "{}", node.name);
        let name = photo.headers["content-disposition"].to_str().unwrap();
        assert_eq!(name, "attachment; filename*=UTF-8''report%2Epdf");
        let note = node.send(call(&format!("GET {look}/file?element=note&agent=ann"))).await;
        let detail = note.json()["detail"].to_string();
        assert_eq!((note.status, &note.json()["code"]), (404, &json!("no_such_file")));
        assert!(detail.contains("has no file `note`; its files: `photo`"), "{detail}");
        let other = node.send(call(&format!("GET {look}/file?element=photo&agent=ben"))).await;
        assert_eq!((other.status, &other.json()["code"]), (404, &json!("no_such_item")));
    }
    for node in nodes {
        node.server.stop().await;
    }
}
