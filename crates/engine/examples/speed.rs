//! How fast is the engine alone? Steps per second of one core, without encoding and without I/O.
//!
//! Runs cases of ten automatic steps after one another, one command a step, each answered with
//! events and the next state. The same number of cases always prints the same hash, so that a
//! changed result is noticed; under callgrind, divide the instructions by the steps.
//!
//! `cargo run --release -p legwork-engine --example speed -- [cases]`

use std::sync::Arc;
use std::time::Instant;

use legwork_engine::{Command, Lifecycle, Rejection, create, decide};
use legwork_model::compile::compile;
use legwork_model::event::{Created, Performer};
use legwork_model::id::ElementId;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::value::Value;
use legwork_model::yaml;

const STEPS: u64 = 10;
const CASES_DEFAULT: u64 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cases = match std::env::args().nth(1) {
        Some(cases) => cases.parse()?,
        None => CASES_DEFAULT,
    };
    let schema = sequence()?;
    let begun = Instant::now();
    let mut hash = Fnv::default();
    for case in 0..cases {
        run(&schema, case, &mut hash)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let steps = (cases * STEPS) as f64;
    println!("steps={steps} hash={:016x}", hash.0);
    println!("steps_per_s={:.0} ns_per_step={:.0}", steps / seconds, seconds * 1e9 / steps);
    Ok(())
}

/// One case from its start to its end.
fn run(schema: &Schema, case: u64, hash: &mut Fnv) -> Result<(), Rejection> {
    let worker: Arc<str> = Arc::from("worker-1");
    let created = Created {
        process: schema.process.clone(),
        version: schema.version,
        by: Performer::Agent("ann".into()),
        inputs: vec![
            (ElementId(0), Value::Int(case as i64)),
            (ElementId(1), Value::String("a customer".to_owned())),
        ],
        deadline: None,
    };
    let mut now = Timestamp(case as i64);
    let mut decision = create(schema, created, now)?;
    while decision.state.lifecycle() == Lifecycle::Running {
        let Some(due) = decision.changes.pop() else { break };
        let command = Command::Complete {
            activity: due.activity,
            by: Performer::Worker(worker.clone()),
            started_at: now,
            outputs: Vec::new(),
            answer: None,
            request: None,
            channel: None,
        };
        now = Timestamp(now.0 + 1);
        decision = decide(schema, &decision.state, command, now)?;
        hash.add(decision.events.len() as u64);
        hash.add(decision.changes.len() as u64);
    }
    hash.add(decision.state.lifecycle() as u64);
    if case.is_multiple_of(1_000) {
        decision.state.to_bytes().iter().for_each(|byte| hash.add(u64::from(*byte)));
    }
    Ok(())
}

fn sequence() -> Result<Schema, String> {
    let steps = (1..=STEPS).map(|step| format!("  - {{ step: s{step}, job: noop }}\n"));
    let source = format!(
        "process: sequence\ndata: {{ number: int, customer: string }}\n\
         start: [number, customer]\nsteps:\n{}",
        steps.collect::<String>()
    );
    let (definition, findings) = yaml::parse(&source);
    let definition = definition.ok_or_else(|| format!("{findings:?}"))?;
    compile(&definition, 1).map_err(|error| error.to_string())
}

/// The FNV-1a hash, over numbers.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x0000_0100_0000_01b3);
    }
}
