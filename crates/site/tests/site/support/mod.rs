//! A site with a clock that stands still and a store in a map, told what to do in short lines.
//!
//! One harness knows the boundary; the tests are data.

pub(crate) mod crane;
pub(crate) mod depot;
pub(crate) mod group;
pub(crate) mod mailer;
pub(crate) mod office;
pub(crate) mod tour;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{ActivityId, AgentId, InstanceId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;
use serde_json::json;

pub(crate) const LOAN: &str = r#"
process: loan
data: { amount: int, risk: int, approved: bool }
start: [amount]
result: [approved?]
steps:
  - step: capture
    who: Role(clerk)
    reads: [amount]
    writes: [amount?]
  - step: score
    job: credit-score
    retry: { times: 1, pause: 10s }
    reads: [amount]
    writes: [risk]
  - choice: verdict
    who: Role(clerk) EXCEPT NodePerformingAgent(capture)
    reads: [risk]
    branches:
      - name: approve
        steps:
          - step: pay
            job: payment
            writes: [approved]
      - name: reject
"#;

pub(crate) const BANK: &str = r#"
organisation: bank
agents:
  ann: { name: Ann, roles: [clerk], substitutes: [dan], absent: [{ from: 2026-02-01, to: 2026-02-28 }] }
  ben: { name: Ben, roles: [clerk] }
  cleo: { name: Cleo, roles: [guard] }
  dan: { name: Dan, roles: [guard] }
"#;

/// The records of a stream, and its summary once it is closed.
type Stored = (Vec<Vec<u8>>, Option<Vec<u8>>);

pub(crate) struct Harness {
    pub(crate) site: Site,
    pub(crate) now: Timestamp,
    pub(crate) config: Config,
    pub(crate) credential: Credential,
    pub(crate) snapshot_bytes_max: usize,
    /// Whether what the site wants to read is kept waiting.
    pub(crate) hold_reads: bool,
    held_reads: Vec<StreamId>,
    /// What was said to executors.
    pub(crate) calls: Vec<Call>,
    /// What schedules want started.
    pub(crate) due: Vec<Due>,
    /// What the site has noticed, where that is expected.
    pub(crate) notices: Option<Vec<String>>,
    /// What the site has set apart, and why.
    pub(crate) broken: Vec<(InstanceId, String)>,
    snapshots: BTreeMap<u128, (u64, Vec<u8>)>,
    streams: BTreeMap<u128, Stored>,
    last: u64,
    replies: BTreeMap<RequestId, Result<Answer, Refusal>>,
}

impl Harness {
    pub(crate) fn new() -> Self {
        let now: Timestamp = "2026-01-10T08:00:00Z".parse().unwrap();
        let config = Config { life: 1 << 40, ..Config::default() };
        Self {
            site: Site::new(config.clone()),
            now,
            config,
            credential: Credential::None,
            snapshot_bytes_max: 0,
            hold_reads: false,
            held_reads: Vec::new(),
            calls: Vec::new(),
            due: Vec::new(),
            notices: None,
            broken: Vec::new(),
            snapshots: BTreeMap::new(),
            streams: BTreeMap::new(),
            last: 0,
            replies: BTreeMap::new(),
        }
    }

    /// With the bank and its loan in force.
    pub(crate) fn bank() -> Self {
        let mut harness = Self::new();
        harness.ask(Request::PublishOrganisation { source: BANK.to_owned() }).unwrap();
        harness.ask(Request::Deploy { source: LOAN.to_owned() }).unwrap();
        harness
    }

    pub(crate) fn send(&mut self, request: Request) -> RequestId {
        self.last += 1;
        let id = RequestId(self.last);
        let credential = self.credential.clone();
        self.feed(Input::Request { id, credential, request });
        id
    }

    pub(crate) fn reply(&mut self, id: RequestId) -> Option<Result<Answer, Refusal>> {
        self.replies.remove(&id)
    }

    pub(crate) fn ask(&mut self, request: Request) -> Result<Answer, Refusal> {
        let id = self.send(request);
        self.feed(Input::Settle);
        self.reply(id).expect("an answer")
    }

    pub(crate) fn refusal(&mut self, request: Request) -> String {
        match self.ask(request) {
            Err(refusal) => refusal.to_string(),
            Ok(answer) => panic!("not refused: {answer:?}"),
        }
    }

    pub(crate) fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for output in self.site.handle(input, self.now) {
                match output {
                    Output::Append(Append { stream, expected, record, close }) => {
                        let (records, closed) = self.streams.entry(stream).or_default();
                        assert_eq!(records.len() as u64, expected, "appends are in order");
                        assert!(closed.is_none(), "nothing follows the end");
                        records.push(record);
                        *closed = close;
                    }
                    Output::Snapshot { stream, version, bytes } => {
                        self.snapshot_bytes_max = self.snapshot_bytes_max.max(bytes.len());
                        self.snapshots.insert(stream, (version, bytes));
                    }
                    Output::Answer { id, answer } => {
                        assert!(self.replies.insert(id, answer).is_none(), "answered once");
                    }
                    Output::Load { stream, .. } if self.hold_reads => self.held_reads.push(stream),
                    Output::Load { stream, whole } => {
                        inputs.push(Input::Loaded(self.stream(stream.0, !whole)));
                    }
                    Output::ReadHistory { id, instance, from, limit } => {
                        let all = self.stream(instance.0, false).records;
                        let first = all.first().cloned();
                        let records = all.into_iter().skip(from as usize).take(limit).collect();
                        inputs.push(Input::HistoryRead { id, instance, first, records });
                    }
                    Output::ReadClosed { id, before, limit } => {
                        let streams = self.streams.range(..before.0).rev();
                        let streams = streams
                            .filter_map(|(&stream, (_, closed))| {
                                Some(ClosedStream { stream, summary: closed.clone()? })
                            })
                            .take(limit)
                            .collect();
                        inputs.push(Input::ClosedRead { id, streams });
                    }
                    Output::ReadOwn { id, record } => {
                        let all = self.stream(StreamId::SITE.0, false).records;
                        let record = all.into_iter().nth(record as usize);
                        inputs.push(Input::OwnRead { id, record });
                    }
                    Output::Call(call) => self.calls.push(*call),
                    Output::Start(due) => self.due.push(*due),
                    Output::Broken { instance, reason } => self.broken.push((instance, reason)),
                    Output::Notice { text } => match &mut self.notices {
                        Some(notices) => notices.push(text),
                        None => panic!("{text}"),
                    },
                    Output::Send { .. }
                    | Output::ReadEntries { .. }
                    | Output::ReadCatalog { .. }
                    | Output::FetchFiles { .. } => {
                        panic!("this site is alone")
                    }
                }
            }
        }
    }

    /// Reads what was kept waiting.
    pub(crate) fn read_held(&mut self) {
        self.hold_reads = false;
        for stream in std::mem::take(&mut self.held_reads) {
            self.feed(Input::Loaded(self.stream(stream.0, true)));
        }
    }

    /// The streams of instances, and of keys.
    pub(crate) fn count_streams(&self) -> (usize, usize) {
        let keys = self.streams.range(StreamId::KEYS.0..).count();
        (self.streams.range(1..).count() - keys, keys)
    }

    fn stream(&self, id: u128, with_snapshot: bool) -> Stream {
        let Some((records, closed)) = self.streams.get(&id) else {
            return Stream { id, ..Stream::default() };
        };
        let is_wanted = with_snapshot && closed.is_none();
        let snapshot = self.snapshots.get(&id).filter(|_| is_wanted).cloned();
        let from = snapshot.as_ref().map_or(0, |(version, _)| *version as usize);
        Stream { id, snapshot, records: records[from..].to_vec() }
    }

    pub(crate) fn has_snapshot(&self, stream: StreamId) -> bool {
        self.snapshots.contains_key(&stream.0)
    }

    /// The first record of a stream is no longer what was written.
    pub(crate) fn corrupt(&mut self, stream: impl Into<StreamId>) {
        let (records, _) = self.streams.get_mut(&stream.into().0).unwrap();
        records[0] = vec![0xFF, 0x00];
    }

    /// Puts other bytes in the place of these, in all records of a stream; answers how often.
    pub(crate) fn rewrite(&mut self, stream: impl Into<StreamId>, from: &[u8], to: &[u8]) -> usize {
        assert_eq!(from.len(), to.len());
        let (records, _) = self.streams.get_mut(&stream.into().0).unwrap();
        let mut count = 0;
        for record in records {
            while let Some(place) = record.windows(from.len()).position(|part| part == from) {
                record[place..place + to.len()].copy_from_slice(to);
                count += 1;
            }
        }
        count
    }

    /// Everything in memory is gone; the streams are not.
    pub(crate) fn restart(&mut self) {
        self.config.life += 1 << 40;
        self.site = Site::new(self.config.clone());
        let open: Vec<u128> = self
            .streams
            .iter()
            .filter(|(_, (_, closed))| closed.is_none())
            .map(|(&id, _)| id)
            .collect();
        for id in open {
            self.feed(Input::Recovered(self.stream(id, true)));
            if id == StreamId::SITE.0 {
                self.feed(Input::SiteRecovered);
            }
        }
    }

    /// How many records a stream has.
    pub(crate) fn records(&self, stream: StreamId) -> usize {
        self.streams.get(&stream.0).map_or(0, |(records, _)| records.len())
    }

    /// The snapshot of an open stream is of another version.
    pub(crate) fn corrupt_snapshot(&mut self, stream: impl Into<StreamId>) {
        let stream = stream.into().0;
        let version = self.streams[&stream].0.len() as u64;
        self.snapshots.insert(stream, (version, vec![0xFF, 0x00]));
    }

    /// The latest snapshot of a stream.
    pub(crate) fn snapshot_of(&self, stream: StreamId) -> Option<&(u64, Vec<u8>)> {
        self.snapshots.get(&stream.0)
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.feed(Input::Settle);
    }

    pub(crate) fn start(&mut self, number: u128) -> InstanceId {
        let instance = InstanceId(number);
        self.ask(start(instance, json!({ "amount": 100 }), None)).unwrap();
        instance
    }

    pub(crate) fn items(&mut self, agent: &str) -> Vec<String> {
        self.worklist(agent).iter().map(|item| item.activity.step.to_string()).collect()
    }

    /// The same, with their cases.
    pub(crate) fn activities(&mut self, agent: &str) -> Vec<String> {
        self.worklist(agent).iter().map(|item| item.activity.to_string()).collect()
    }

    fn worklist(&mut self, agent: &str) -> Vec<ItemInfo> {
        let agent = AgentId::from(agent);
        let worklist = Worklist { agent, since: None, limit: 100, wait_until: None };
        match self.ask(Request::Worklist(worklist)).unwrap() {
            Answer::Worklist(view) => view.items,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn jobs(&mut self, kind: &str, max: usize) -> Vec<Job> {
        match self.ask(activate(kind, max, None)).unwrap() {
            Answer::Jobs(jobs) => jobs,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn report(&mut self, job: &Job, data: serde_json::Value) -> Result<(), String> {
        let lease = JobLease { activity: job.activity.clone(), lease: job.lease };
        let jobs = vec![JobResult { job: lease, data: data_of(data) }];
        let request = Request::CompleteJobs { worker: Arc::from("robot"), jobs };
        match self.ask(request).unwrap() {
            Answer::JobResults(mut results) => {
                results.remove(0).map_err(|refusal| refusal.to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn states(&mut self, instance: InstanceId) -> String {
        match self.ask(Request::Show { instance, wait_until: None }).unwrap() {
            Answer::Instance(view) => {
                let nodes = view.nodes.iter();
                let nodes: Vec<_> =
                    nodes.map(|node| format!("{}={:?}", node.name, node.state)).collect();
                format!("{:?}: {}", view.info.lifecycle, nodes.join(" "))
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn data_of(json: serde_json::Value) -> Data {
    json.as_object().unwrap().clone().into_iter().collect()
}

pub(crate) fn start(
    instance: InstanceId,
    data: serde_json::Value,
    key: Option<Box<Key>>,
) -> Request {
    Request::Start(Start {
        instance,
        process: Arc::from("loan"),
        version: None,
        data: data_of(data),
        agent: None,
        key,
        wait_until: None,
        deadline: None,
    })
}

/// The key of that number, on a request of that content.
pub(crate) fn key(number: u128, request: u64) -> Option<Box<Key>> {
    Some(Box::new(Key { stream: StreamId::of_key(number), request }))
}

pub(crate) fn activate(kind: &str, max: usize, wait_until: Option<Timestamp>) -> Request {
    Request::Activate(Activate {
        worker: Arc::from("robot"),
        types: vec![Arc::from(kind)],
        max,
        lease: Duration::from_secs(60),
        wait_until,
    })
}

pub(crate) fn activity(instance: InstanceId, step: &str) -> ActivityId {
    ActivityId { instance, step: Arc::from(step), iteration: Default::default() }
}

pub(crate) fn claim(agent: &str, instance: InstanceId, step: &str) -> Request {
    Request::Claim { agent: AgentId::from(agent), activity: activity(instance, step) }
}

pub(crate) fn complete(agent: &str, instance: InstanceId, step: &str) -> Complete {
    Complete {
        agent: AgentId::from(agent),
        activity: activity(instance, step),
        data: Data::new(),
        answer: None,
        request: None,
    }
}
