//! An executor for tests and benchmarks, as a user would write one: it works at a given speed, and
//! keeps a ledger.
//!
//! Invariant: every answer, acknowledgement and cancellation is written to the ledger first.

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use legwork_executor::{Executor, Failure, Task};
use legwork_testbed::ledger::{Did, Ledger};
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The secret that the executors of tests and benchmarks share with their servers.
pub const SECRET: &str = "a secret of tests and benchmarks";
/// The resolution of timers: a task that is late by less begins where the one before has ended.
const LATE_MAX: Duration = Duration::from_millis(10);

/// The behaviour of an executor.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[arg(long)]
    pub name: String,

    /// Where it registers
    #[arg(long)]
    pub legwork: String,

    #[arg(long)]
    pub listen: SocketAddr,

    /// What it writes down
    #[arg(long)]
    pub ledger: Option<PathBuf>,

    /// It writes nothing down
    #[arg(long)]
    pub no_ledger: bool,

    /// A type of tasks, and the milliseconds that a unit of one takes
    #[arg(long = "does", value_name = "TYPE=MS", value_parser = pace)]
    pub does: Vec<(String, f64)>,

    /// A type of tasks at which it fails, and at once
    #[arg(long, value_name = "TYPE")]
    pub fails: Option<String>,

    /// How many tasks it may have, those that wait included
    #[arg(long, default_value_t = 1_000)]
    pub limit: u32,

    /// On how many of them it works at a time
    #[arg(long)]
    pub at_once: Option<u32>,

    /// It does not want to be told what counts
    #[arg(long)]
    pub no_verdicts: bool,
}

fn pace(text: &str) -> Result<(String, f64), String> {
    let (kind, ms) = text.split_once('=').ok_or("write TYPE=MS")?;
    let ms: f64 = ms.parse().map_err(|_| format!("`{ms}` is no number"))?;
    if ms >= 0.0 { Ok((kind.to_owned(), ms)) } else { Err("time goes forward".to_owned()) }
}

/// Serves until standard input ends: its starter is gone then.
pub async fn serve(options: Options) -> Result<()> {
    let listener = TcpListener::bind(options.listen).await?;
    println!("{}", listener.local_addr()?);
    let ledger = options.ledger.as_deref().filter(|_| !options.no_ledger);
    let ledger = ledger.map(Ledger::open).transpose()?;
    let book = Arc::new(Book { ledger });
    let free = Arc::new(Mutex::new(Instant::now()));
    let mut executor = Executor::new(&options.name, SECRET)
        .limit(options.limit)
        .verdicts(!options.no_verdicts)
        .on_ack({
            let book = book.clone();
            move |judged| std::future::ready(book.judged(Did::Acked, &judged))
        })
        .on_nack({
            let book = book.clone();
            move |judged| std::future::ready(book.judged(Did::Nacked, &judged))
        });
    for (kind, ms) in &options.does {
        let (book, free) = (book.clone(), free.clone());
        let (ms, fails) = (*ms, options.fails.as_ref() == Some(kind));
        executor = executor.on(kind, move |task| {
            let (book, free) = (book.clone(), free.clone());
            async move { work(task, ms, fails, &book, &free).await }
        });
    }
    if let Some(at_once) = options.at_once {
        executor = executor.at_once(at_once);
    }
    let ended = input_ended()?;
    executor.serve_until(listener, &options.legwork, None, ended).await.context("it cannot serve")
}

fn input_ended() -> Result<impl Future<Output = ()>> {
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        // Nothing is ever written there, and its end may no longer be awaited.
        let _ = std::io::stdin().read(&mut [0]);
        let _ = ended.send(());
    })?;
    Ok(async move { drop(end.await) })
}

async fn work(
    task: Task,
    ms: f64,
    fails: bool,
    book: &Arc<Book>,
    free: &Mutex<Instant>,
) -> Result<Json, Failure> {
    let mut open = Open::begin(book.clone(), task)?;
    if fails {
        open.end(Did::Failed)?;
        return Err(Failure::again("this is what it cannot do"));
    }
    if ms > 0.0 {
        let takes = Duration::from_secs_f64(ms * open.task.size / 1_000.0);
        let now = Instant::now();
        let was_free = || *free.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = if now - was_free() < LATE_MAX { was_free() } else { now };
        tokio::time::sleep_until(begun + takes).await;
        *free.lock().unwrap_or_else(PoisonError::into_inner) = begun + takes;
    }
    open.end(Did::Done)?;
    Ok(json!({}))
}

/// The ledger, if there is one.
struct Book {
    ledger: Option<Ledger>,
}

impl Book {
    fn write(&self, did: Did, task: &str, key: Option<&str>) -> Result<(), Failure> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let written = ledger.write(did, task, key);
        written.map_err(|error| Failure::again(format!("the ledger: {error:#}")))
    }

    fn judged(&self, did: Did, judged: &legwork_executor::Judged) -> Result<(), Failure> {
        self.write(did, &judged.task, judged.key.as_deref())
    }
}

/// A begun task; if dropped before its end, it was cancelled.
struct Open {
    book: Arc<Book>,
    task: Task,
    has_ended: bool,
}

impl Open {
    fn begin(book: Arc<Book>, task: Task) -> Result<Self, Failure> {
        book.write(Did::Begun, &task.task, Some(&task.key))?;
        Ok(Self { book, task, has_ended: false })
    }

    fn end(&mut self, did: Did) -> Result<(), Failure> {
        self.has_ended = true;
        self.book.write(did, &self.task.task, Some(&self.task.key))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.has_ended {
            // A cancellation does not wait for this.
            drop(self.end(Did::Cancelled));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_a_type_and_a_time() {
        assert_eq!(pace("score=0.5"), Ok(("score".to_owned(), 0.5)));
        for wrong in ["score", "score=", "score=x", "score=-1"] {
            assert!(pace(wrong).is_err(), "{wrong}");
        }
    }
}
