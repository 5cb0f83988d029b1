//! People and programs use a server, from the first deployment to the end of a case.

use serde_json::{Value as Json, json};

use super::support::{Fixture, LETTER, call};

#[tokio::test]
async fn a_case_goes_from_start_to_end_through_a_program_and_a_person() {
    let f = Fixture::furnished().await;
    let instance = f.letter_to_sign().await;
    let list = f.ok(call("GET /v1/worklist?agent=ann")).await;
    assert_eq!(list["items"][0]["title"], "Sign the letter");
    assert_eq!(list["items"][0]["takes_ms"], 300_000);
    let item = list["items"][0]["activity"].as_str().unwrap();

    let detail = f.ok(call(&format!("GET /v1/work/{item}?agent=ann"))).await;
    assert_eq!(detail["inputs"], json!({"text": "Dear Zoe"}));
    assert_eq!(detail["outputs"][0]["type"], "bool");

    f.ok(call(&format!("POST /v1/work/{item}/claim")).json(json!({"agent": "ann"}))).await;
    let sign = json!({"agent": "ann", "data": {"signed": true}});
    f.ok(call(&format!("POST /v1/work/{item}/complete")).json(sign)).await;

    let choice = format!("{instance}:send");
    let detail = f.ok(call(&format!("GET /v1/work/{choice}?agent=ben"))).await;
    assert_eq!(detail["answers"][0], json!({"answer": "post", "title": "By post"}));
    let decide = json!({"agent": "ben", "answer": "post"});
    f.ok(call(&format!("POST /v1/work/{choice}/complete")).json(decide)).await;

    let shown = f.ok(call(&format!("GET /v1/instances/{instance}"))).await;
    assert_eq!(shown["state"], "completed");
    assert_eq!(shown["result"], json!({"text": "Dear Zoe", "signed": true}));
    let history = f.ok(call(&format!("GET /v1/instances/{instance}/history"))).await;
    let kinds: Vec<&str> = history["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["created", "completed", "claimed", "completed", "completed"]);
    assert_eq!(history["entries"][1]["by"], json!({"worker": "w1"}));
    assert_eq!(history["entries"][3]["by"], json!({"agent": "ann"}));
    f.stop().await;
}

#[tokio::test]
async fn second_claim_is_refused_naming_the_holder() {
    let f = Fixture::furnished().await;
    let item = format!("{}:sign", f.letter_to_sign().await);
    f.ok(call(&format!("POST /v1/work/{item}/claim")).json(json!({"agent": "ann"}))).await;
    let second = call(&format!("POST /v1/work/{item}/claim")).json(json!({"agent": "ben"}));
    let answered = f.send(second).await;
    assert_eq!((answered.status, &answered.json()["code"]), (409, &json!("held_by")));
    assert!(answered.json()["detail"].as_str().unwrap().contains("ann"));

    let hand = json!({"agent": "ann", "to": "ben"});
    f.ok(call(&format!("POST /v1/work/{item}/delegate")).json(hand)).await;
    f.ok(call(&format!("POST /v1/work/{item}/release")).json(json!({"agent": "ben"}))).await;
    f.ok(call(&format!("POST /v1/work/{item}/claim")).json(json!({"agent": "ann"}))).await;
    f.stop().await;
}

#[tokio::test]
async fn wrong_outputs_are_refused_and_nothing_changes() {
    let f = Fixture::furnished().await;
    let instance = f.letter_to_sign().await;
    let before = f.ok(call(&format!("GET /v1/instances/{instance}"))).await;
    let complete = format!("POST /v1/work/{instance}:sign/complete");
    for (body, code) in [
        (json!({"agent": "ann", "data": {"signed": "yes"}}), "wrong_type"),
        (json!({"agent": "ann", "data": {}}), "missing_output"),
        (json!({"agent": "ann", "data": {"signed": true, "weight": 1}}), "unknown_element"),
        (json!({"agent": "ann", "data": {"signed": true}, "answer": "x"}), "answer_unexpected"),
    ] {
        assert_eq!(f.refused(call(&complete).json(body)).await, (422, code.to_owned()));
    }
    assert_eq!(f.ok(call(&format!("GET /v1/instances/{instance}"))).await, before);
    f.stop().await;
}

#[tokio::test]
async fn a_repeated_start_answers_the_same_instance() {
    let f = Fixture::furnished().await;
    let start = |n: i32| {
        let body = json!({"process": "plain", "data": {"n": n}});
        call("POST /v1/instances").header("idempotency-key", "k1").json(body)
    };
    let first = f.send(start(1)).await;
    let again = f.send(start(1)).await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.json()["instance"], again.json()["instance"]);
    assert_eq!(again.json()["repeated"], true);
    assert_eq!(f.send(start(2)).await.status, 409, "the same key for another request");
    let list = f.ok(call("GET /v1/instances?process=plain")).await;
    assert_eq!(list["instances"].as_array().unwrap().len(), 1);
    f.stop().await;
}

#[tokio::test]
async fn starts_with_and_without_keys_are_listed_newest_first() {
    let f = Fixture::furnished().await;
    let mut started = Vec::new();
    for n in 0..6 {
        let start = call("POST /v1/instances").json(json!({"process": "plain", "data": {"n": n}}));
        let keyed = n % 2 == 0;
        let start = if keyed { start.header("idempotency-key", &format!("k{n}")) } else { start };
        started.insert(0, f.ok(start).await["instance"].clone());
    }
    for ended in [false, true] {
        let query = if ended { "ended" } else { "open" };
        let list = f.ok(call(&format!("GET /v1/instances?state={query}"))).await;
        let listed = list["instances"].as_array().unwrap().iter();
        assert_eq!(listed.map(|one| one["instance"].clone()).collect::<Vec<_>>(), started);
        for instance in started.iter().filter(|_| !ended) {
            let instance = instance.as_str().unwrap();
            f.send(call(&format!("POST /v1/instances/{instance}/abort"))).await;
        }
    }
    f.stop().await;
}

#[tokio::test]
async fn a_repeated_completion_is_answered_like_the_first_and_another_is_refused() {
    let f = Fixture::furnished().await;
    let item = format!("{}:sign", f.letter_to_sign().await);
    let complete = |key: &str| {
        let body = json!({"agent": "ann", "data": {"signed": key != "other"}});
        let key = if key == "other" { "a" } else { key };
        call(&format!("POST /v1/work/{item}/complete")).header("idempotency-key", key).json(body)
    };
    assert_eq!(f.send(complete("a")).await.status, 204);
    assert_eq!(f.send(complete("a")).await.status, 204);
    assert_eq!(f.refused(complete("b")).await.0, 409);
    let reused = (409, "idempotency_key_reused".to_owned());
    assert_eq!(f.refused(complete("other")).await, reused);
    f.stop().await;
}

#[tokio::test]
async fn a_second_completion_of_a_job_is_refused_for_itself() {
    let f = Fixture::furnished().await;
    for n in 0..3 {
        let body = json!({"process": "plain", "data": {"n": n}});
        f.ok(call("POST /v1/instances").json(body)).await;
    }
    let activate = json!({"worker": "w", "types": ["plain"], "max": 10, "lease_ms": 60_000});
    let jobs = f.ok(call("POST /v1/jobs/activate").json(activate.clone())).await;
    let jobs: Vec<Json> = jobs["jobs"].as_array().unwrap().clone();
    assert_eq!(jobs.len(), 3);
    assert_eq!(jobs[0]["attempt"], 1);
    let report = |job: &Json| json!({"job": job["job"], "lease": job["lease"]});
    let extend = json!({"worker": "w", "lease_ms": 90_000, "jobs": [report(&jobs[0])]});
    let extended = f.ok(call("POST /v1/jobs/extend").json(extend)).await;
    assert_eq!(extended["results"][0]["ok"], true);
    let back = json!({"worker": "w", "jobs": [report(&jobs[2])]});
    let given_back = f.ok(call("POST /v1/jobs/return").json(back.clone())).await;
    assert_eq!(given_back["results"][0]["ok"], true);
    let again = f.ok(call("POST /v1/jobs/activate").json(activate.clone())).await;
    assert_eq!(
        (&again["jobs"][0]["job"], &again["jobs"][0]["attempt"]),
        (&jobs[2]["job"], &json!(1))
    );
    let late = f.ok(call("POST /v1/jobs/return").json(back)).await;
    assert_eq!(late["results"][0]["problem"]["code"], "lease_lost");
    let both = json!({"worker": "w", "jobs": [report(&jobs[0]), report(&jobs[0])]});
    let results = f.ok(call("POST /v1/jobs/complete").json(both)).await;
    assert_eq!(results["results"][0], json!({"ok": true}));
    assert_eq!(results["results"][1]["ok"], false);
    assert_eq!(results["results"][1]["problem"]["status"], 409);
    let fail = json!({"worker": "w", "jobs": [{"job": jobs[1]["job"], "lease": jobs[1]["lease"],
        "error": "no paper", "retry": false}]});
    assert_eq!(f.ok(call("POST /v1/jobs/fail").json(fail)).await["results"][0]["ok"], true);
    let incidents = f.ok(call("GET /v1/incidents")).await;
    assert_eq!(incidents["incidents"][0]["kind"], "retries_exhausted");
    let failures = &incidents["incidents"][0]["failures"];
    assert_eq!(failures.as_array().unwrap().len(), 1);
    assert_eq!(failures[0]["by"], json!({"worker": "w"}));
    assert_eq!(failures[0]["error"], "no paper");
    let instance = jobs[1]["job"].as_str().unwrap().split(':').next().unwrap();
    let shown = f.ok(call(&format!("GET /v1/instances/{instance}"))).await;
    let of_nodes = |node: &Json| node.get("failures").cloned();
    let told: Vec<_> = shown["nodes"].as_array().unwrap().iter().filter_map(of_nodes).collect();
    assert_eq!(told, std::slice::from_ref(failures), "the instance tells the same");
    let resolve = format!("POST /v1/activities/{}/resolve", jobs[1]["job"].as_str().unwrap());
    f.ok(call(&resolve).json(json!({"action": "retry"}))).await;
    let jobs = f.ok(call("POST /v1/jobs/activate").json(activate)).await;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
    f.stop().await;
}

#[tokio::test]
async fn a_worker_that_waits_gets_the_job_when_it_comes_up() {
    let f = Fixture::furnished().await;
    let activate =
        json!({"worker": "w", "types": ["plain"], "max": 1, "lease_ms": 1_000, "wait_ms": 60_000});
    let start = json!({"process": "plain", "data": {"n": 7}});
    let (jobs, _) = tokio::join!(
        f.ok(call("POST /v1/jobs/activate").json(activate)),
        f.ok(call("POST /v1/instances").json(start)),
    );
    assert_eq!(jobs["jobs"][0]["data"], json!({"n": 7}));
    f.stop().await;
}

#[tokio::test]
async fn a_caller_who_starts_and_waits_gets_the_result() {
    let f = Fixture::furnished().await;
    let start = json!({"process": "plain", "data": {"n": 7}, "wait_ms": 60_000});
    let work = async {
        let job = f.take_job("plain").await;
        f.complete_job(&job, json!({})).await;
    };
    let (started, ()) = tokio::join!(f.ok(call("POST /v1/instances").json(start)), work);
    assert_eq!((&started["state"], &started["result"]), (&json!("completed"), &json!({"n": 7})));
    f.stop().await;
}

#[tokio::test]
async fn a_worklist_is_read_by_what_has_changed() {
    let f = Fixture::furnished().await;
    let first = f.ok(call("GET /v1/worklist?agent=ann")).await;
    assert_eq!((&first["reset"], &first["items"]), (&json!(true), &json!([])));
    let cursor = first["cursor"].as_str().unwrap();
    let wait = format!("GET /v1/worklist?agent=ann&since={cursor}&wait_ms=60000");
    let (second, instance) = tokio::join!(f.ok(call(&wait)), f.letter_to_sign());
    assert_eq!(second["reset"], false);
    assert_eq!(second["items"][0]["activity"], format!("{instance}:sign"));

    let cursor = second["cursor"].as_str().unwrap();
    let sign = json!({"agent": "ben", "data": {"signed": true}});
    f.ok(call(&format!("POST /v1/work/{instance}:sign/complete")).json(sign)).await;
    let third = f.ok(call(&format!("GET /v1/worklist?agent=ann&since={cursor}"))).await;
    assert_eq!(third["removed"], json!([format!("{instance}:sign")]));
    assert_eq!(third["items"][0]["activity"], format!("{instance}:send"));
    f.stop().await;
}

#[tokio::test]
async fn an_item_of_an_instance_that_ended_is_removed_from_the_list() {
    let f = Fixture::furnished().await;
    let instance = f.letter_to_sign().await;
    let before = f.ok(call("GET /v1/worklist?agent=ann")).await;
    f.ok(call(&format!("POST /v1/instances/{instance}/abort"))).await;
    let cursor = before["cursor"].as_str().unwrap();
    let after = f.ok(call(&format!("GET /v1/worklist?agent=ann&since={cursor}"))).await;
    let gone = after["removed"] == json!([format!("{instance}:sign")]);
    assert!(gone || after["reset"] == json!(true), "{after}");
    f.stop().await;
}

#[tokio::test]
async fn instances_are_suspended_resumed_and_aborted() {
    let f = Fixture::furnished().await;
    let instance = f.letter_to_sign().await;
    let path = |order: &str| format!("POST /v1/instances/{instance}/{order}");
    let state =
        async || f.ok(call(&format!("GET /v1/instances/{instance}"))).await["state"].clone();
    f.ok(call(&path("suspend"))).await;
    assert_eq!(state().await, "suspended");
    f.ok(call(&path("resume")).json(json!({}))).await;
    assert_eq!(state().await, "running");
    f.ok(call(&path("abort")).json(json!({"reason": "no stamps"}))).await;
    assert_eq!(state().await, "aborted");
    assert_eq!(f.refused(call(&path("suspend"))).await, (409, "instance_ended".to_owned()));
    let ended = f.ok(call("GET /v1/instances?state=ended")).await;
    assert_eq!(ended["instances"][0]["instance"], instance.as_str());
    let history = f.ok(call(&format!("GET /v1/instances/{instance}/history"))).await;
    let last = history["entries"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["kind"], &last["detail"]), (&json!("aborted"), &json!("no stamps")));
    f.stop().await;
}

#[tokio::test]
async fn lists_come_in_pages() {
    let f = Fixture::furnished().await;
    let mut started = Vec::new();
    for n in 0..5 {
        let body = json!({"process": "plain", "data": {"n": n}});
        started.push(f.ok(call("POST /v1/instances").json(body)).await["instance"].clone());
    }
    let mut seen = Vec::new();
    let mut path = "GET /v1/instances?limit=2".to_owned();
    loop {
        let page = f.ok(call(&path)).await;
        let instances = page["instances"].as_array().unwrap();
        seen.extend(instances.iter().map(|instance| instance["instance"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("GET /v1/instances?limit=2&cursor={next}");
    }
    started.reverse();
    assert_eq!(seen, started);
    f.stop().await;
}

#[tokio::test]
async fn definitions_are_checked_deployed_and_read_back_word_for_word() {
    let f = Fixture::furnished().await;
    let again = f.ok(call("POST /v1/definitions").json(json!({"source": LETTER}))).await;
    assert_eq!((&again["version"], &again["unchanged"]), (&json!(1), &json!(true)));
    let changed = LETTER.replace("Write a letter", "Write a nice letter");
    let second = f.ok(call("POST /v1/definitions").body("text/yaml", changed.clone())).await;
    assert_eq!(second["version"], 2);
    let shown = f.ok(call("GET /v1/definitions/letter")).await;
    assert_eq!(
        (&shown["source"], &shown["title"]),
        (&json!(changed), &json!("Write a nice letter"))
    );
    let shown = f.ok(call("GET /v1/definitions/letter?version=1")).await;
    assert_eq!(shown["source"], LETTER);
    let broken = LETTER.replace("reads: [to]", "reads: [nothing]");
    let answered = f.send(call("POST /v1/definitions").body("text/yaml", broken.clone())).await;
    assert_eq!((answered.status, &answered.json()["code"]), (422, &json!("check_failed")));
    assert!(answered.json()["findings"][0]["line"].as_u64().unwrap() > 1);
    let check = f.ok(call("POST /v1/check").json(json!({"source": broken}))).await;
    assert_eq!(check["ok"], false);
    let fine = json!({"source": LETTER, "organisation": "organisation: [broken"});
    let check = f.ok(call("POST /v1/check").json(fine)).await;
    assert_eq!(check["ok"], false);
    assert!(!check["organisation_findings"].as_array().unwrap().is_empty());
    f.stop().await;
}

#[tokio::test]
async fn checking_finds_what_deploying_would_find() {
    let f = Fixture::furnished().await;
    for broken in [
        LETTER.replace("reads: [to]", "reads: [nothing]"),
        // The actors depend on the current organisation.
        LETTER.replace("Role(clerk)", "Role(cleric)"),
        LETTER.replace("steps:", "stops:"),
        "process: [".to_owned(),
    ] {
        let check = f.ok(call("POST /v1/check").json(json!({"source": broken}))).await;
        let deploy = f.send(call("POST /v1/definitions").body("text/yaml", broken.clone())).await;
        assert_eq!((deploy.status, &check["ok"]), (422, &json!(false)), "{broken}");
        assert_eq!(check["findings"], deploy.json()["findings"], "{broken}");
    }
    let check = f.ok(call("POST /v1/check").json(json!({"source": LETTER}))).await;
    assert_eq!(check, json!({"ok": true, "findings": [], "organisation_findings": []}));
    f.stop().await;
}

#[tokio::test]
async fn a_file_is_stored_once_and_fetched_by_its_hash() {
    let f = Fixture::new().await;
    let content = "content".repeat(50_000);
    let upload = || call("PUT /v1/files?name=a.txt").body("text/plain", content.clone());
    let stored = f.ok(upload()).await;
    assert_eq!(stored, f.ok(upload()).await);
    assert_eq!((&stored["size"], &stored["media_type"]), (&json!(350_000), &json!("text/plain")));
    let blob = stored["blob"].as_str().unwrap();
    let fetched = f.send(call(&format!("GET /v1/files/{blob}"))).await;
    assert_eq!((fetched.status, &fetched.body[..]), (200, content.as_bytes()));
    let unknown = format!("GET /v1/files/{}", "ab".repeat(32));
    assert_eq!(f.refused(call(&unknown)).await, (404, "no_such_file".to_owned()));
    f.stop().await;
}

const PAPER: &str = "
process: paper
data: { draft: file, notes: json, review: file }
start: [draft, notes?]
steps:
  - { step: review, job: review, reads: [draft], writes: [review] }
";

#[tokio::test]
async fn a_file_must_be_stored_before_it_is_handed_in() {
    let f = Fixture::new().await;
    f.ok(call("POST /v1/definitions").body("text/yaml", PAPER)).await;
    let start = |draft: &Json, notes: &Json| {
        let data = json!({ "draft": draft, "notes": notes });
        call("POST /v1/instances").json(json!({ "process": "paper", "data": data }))
    };
    let missing = json!({ "blob": "ab".repeat(32), "size": 7 });
    let no_such_file = (404, "no_such_file".to_owned());
    assert_eq!(f.refused(start(&missing, &json!(1))).await, no_such_file);
    let stored = f.ok(call("PUT /v1/files").body("text/plain", "content")).await;
    let mut other_size = stored.clone();
    other_size["size"] = json!(8);
    assert_eq!(f.refused(start(&other_size, &json!(1))).await, no_such_file);
    // Other data may look alike.
    let notes = json!({ "blob": "ab".repeat(32), "size": 7, "page": 1 });
    f.ok(start(&stored, &notes)).await;
    f.ok(start(&stored, &json!(1))).await;
    let asked = json!({ "worker": "w", "types": ["review"], "max": 2, "lease_ms": 60_000 });
    let jobs = f.ok(call("POST /v1/jobs/activate").json(asked)).await;
    let job = |place: usize, review: &Json| {
        let job = &jobs["jobs"][place];
        json!({ "job": job["job"], "lease": job["lease"], "data": { "review": review } })
    };
    let jobs = json!([job(0, &missing), job(1, &stored)]);
    let body = json!({ "worker": "w", "jobs": jobs });
    let results = f.ok(call("POST /v1/jobs/complete").json(body)).await;
    assert_eq!(results["results"][0]["problem"]["code"], "no_such_file");
    assert_eq!(results["results"][1], json!({ "ok": true }), "each is answered for itself");
    f.stop().await;
}
