//! The guide's page on executors is true: its JSON is that of the API, its programs are tested.

use legwork_api::executors::{
    CancelRequest, ExecutorRequest, Registered, TaskDone, TaskRequest, TaskResult, VerdictRequest,
};
use legwork_api::signature::{Signed, sign};
use legwork_model::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

const PAGE: &str = include_str!("../../../docs/guide/executors.md");

/// The code blocks of a language.
fn blocks(page: &'static str, info: &str) -> Vec<&'static str> {
    let begin = format!("```{info}\n");
    page.split(&begin as &str).skip(1).filter_map(|rest| rest.split("```\n").next()).collect()
}

/// The request and the answer in a block, each an object that begins a line.
fn shown(block: &str) -> Option<[Json; 2]> {
    let (request, answer) = block.split_once("\n\n")?;
    let json = |text: &str| serde_json::from_str(text.split_once('\n')?.1).ok();
    Some([json(request)?, json(answer)?])
}

fn reads<T: DeserializeOwned>(json: &Json) {
    assert!(serde_json::from_value::<T>(json.clone()).is_ok(), "{json}");
}

#[test]
fn requests_and_answers_are_those_of_the_api() {
    let mut count = 0;
    for block in blocks(PAGE, "text") {
        let head = block.lines().next().unwrap();
        if !head.starts_with("P") {
            continue;
        }
        let [request, answer] = shown(block).unwrap();
        match head {
            "PUT /v1/executors/crm" => {
                reads::<ExecutorRequest>(&request);
                reads::<Registered>(&answer);
            }
            "POST {url}/tasks" => {
                reads::<TaskRequest>(&request);
                reads::<TaskDone>(&answer);
            }
            "POST /v1/executors/crm/results" => reads::<TaskResult>(&request),
            "POST {url}/verdicts" => reads::<VerdictRequest>(&request),
            "POST {url}/cancellations" => reads::<CancelRequest>(&request),
            other => panic!("what is this? {other}"),
        }
        count += 1;
    }
    assert_eq!(count, 6);
}

#[test]
fn the_signature_is_that_of_the_bytes_shown() {
    let shown = blocks(PAGE, "text");
    let signature = shown.iter().find_map(|block| block.strip_prefix("Legwork-Signature: "));
    let signed = shown.iter().find_map(|block| block.trim().strip_prefix("1763260000000.POST "));
    let (target, body) = signed.unwrap().split_once('.').unwrap();
    let request = Signed { method: "POST", target, body: body.as_bytes() };
    let secret = "0123456789abcdef0123456789abcdef";
    assert!(PAGE.contains(&format!("with the secret `{secret}`")));
    let made = sign(secret, &request, Timestamp(1_763_260_000_000));
    assert_eq!(Some(made.as_str()), signature.map(str::trim));
}

#[test]
fn the_programs_are_those_that_are_tested() {
    let example = include_str!("../examples/score.rs");
    let [shown] = blocks(PAGE, "rust")[..] else { panic!("one program in Rust") };
    assert!(example.ends_with(&format!("\n\n{shown}")), "the sample is not the one shown");
    let readme = include_str!("../../../sdk/python/README.md");
    assert_eq!(blocks(PAGE, "python"), blocks(readme, "python"));
}
