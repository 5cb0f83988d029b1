//! Large data goes straight from a server that has it to the one that reads it, as in section 5.3
//! of the paper; the examples of figure 6 and section 6 are named after their ids.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::*;
use serde_json::json;

const MB: u64 = 1_000_000;
const CASE: InstanceId = InstanceId(7 << 16 | 1);

/// Figure 6: d1 goes from a to its readers, whichever way control takes.
const FIGURE_6: &str = "
process: case
data: { d1: file, yes: bool }
start: [yes]
steps:
  - { step: a, job: a, at: s1, writes: [d1] }
  - { step: b, job: b, at: s2 }
  - parallel: p
    branches:
      - steps: [{ step: c, job: c, at: s3, reads: [d1] }, { step: d, job: d, at: s3 }]
      - steps: [{ step: e, job: e, at: s4, reads: [d1] }, { step: f, job: f, at: s4, reads: [d1] }]
  - { step: g, job: g, at: s5 }
  - choice: x
    branches:
      - { name: read, when: yes, steps: [{ step: h, job: h, at: s5, reads: [d1] }] }
      - { name: leave, otherwise: true }
";

/// Section 6: of five documents c needs three; b and d write two of them anew in each iteration.
const SECTION_6: &str = "
process: case
data: { d1: file, d2: file, d3: file, d4: file, d5: file, rounds: int }
steps:
  - { step: a, job: a, at: s1, writes: [d1, d2, d3, d4, d5] }
  - loop: l
    steps:
      - { step: b, job: b, at: s2, writes: [d1, d2] }
      - { step: c, job: c, at: s3, reads: [d1, d2, d3] }
      - { step: d, job: d, at: s4, writes: [rounds] }
    until: rounds == 10
    max: 20
";

/// The document comes back to where it was asked for.
const RETURN: &str = "
process: case
data: { d1: file }
result: [d1]
steps:
  - { step: a, job: a, at: s2, writes: [d1] }
";

/// Somebody needs the content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fetch {
    at: u16,
    file: FileWanted,
}

/// The records of a stream, and whether it is closed.
type Stored = (Vec<Vec<u8>>, bool);

/// Sites that hear each other at once; those that fetch files are played by the test.
struct Group {
    sites: Vec<Site>,
    topology: Arc<str>,
    config: Config,
    streams: Vec<BTreeMap<u128, Stored>>,
    /// Which contents are where.
    blobs: Vec<BTreeSet<[u8; 32]>>,
    fetches: Vec<Fetch>,
    /// What was offered, by anybody to anybody.
    offers: Vec<Offer>,
    /// How many records were read for each of them that needed any.
    read: Vec<usize>,
    /// Whether contents are brought at once.
    brings: bool,
    /// Servers that hear nothing.
    away: BTreeSet<ServerId>,
    now: Timestamp,
    last: u64,
}

impl Group {
    /// Servers 0 to 5, each in the domain of its number: s0 to s5.
    fn new(definition: &str) -> Self {
        let domain = |n| {
            let at = format!("{{ address: \"s{n}:1\", api: \"http://s{n}\" }}");
            format!("  s{n}: {{ servers: {{ s{n}: {at} }} }}\n")
        };
        let domains: String = (0..6).map(domain).collect();
        let topology: Arc<str> = format!("topology: six\ndomains:\n{domains}").into();
        let mut group = Self {
            sites: (0..6).map(|n| site(n, &topology, Config::default())).collect(),
            topology,
            config: Config::default(),
            streams: vec![BTreeMap::new(); 6],
            blobs: vec![BTreeSet::new(); 6],
            fetches: Vec::new(),
            offers: Vec::new(),
            read: Vec::new(),
            brings: true,
            away: BTreeSet::new(),
            now: Timestamp(1_000_000),
            last: 0,
        };
        group.pass(Duration::ZERO);
        let source = definition.to_owned();
        group.ask(0, Request::Deploy { source }).unwrap();
        group
    }

    fn ask(&mut self, place: usize, request: Request) -> Result<Answer, Refusal> {
        self.last += 1;
        let id = RequestId(self.last);
        let mut answer = None;
        let request = Input::Request { id, credential: Credential::None, request };
        for input in [request, Input::Settle] {
            answer = self.feed(place, input).remove(&id).or(answer);
        }
        answer.unwrap_or_else(|| panic!("{id:?} is not answered"))
    }

    /// Gives an input to a site, and to all what follows from it.
    fn feed(&mut self, place: usize, input: Input) -> BTreeMap<RequestId, Result<Answer, Refusal>> {
        let (mut inputs, mut answers) = (VecDeque::from([(place, input)]), BTreeMap::new());
        while let Some((place, input)) = inputs.pop_front() {
            for output in self.sites[place].handle(input, self.now) {
                match output {
                    Output::Append(Append { stream, record, close, .. }) => {
                        let (records, closed) = self.streams[place].entry(stream).or_default();
                        assert!(!*closed, "nothing follows the end");
                        records.push(record);
                        *closed = close.is_some();
                    }
                    Output::Answer { id, answer } => drop(answers.insert(id, answer)),
                    Output::Send { to, message } => {
                        if let Message::Migration(message::Migration::Offer(offer)) = &message {
                            self.offers.push((**offer).clone());
                        }
                        let from = ServerId(place as u16);
                        if !self.away.contains(&to) {
                            inputs.push_back((usize::from(to.0), Input::Message { from, message }));
                        }
                    }
                    Output::Load { stream, .. } => {
                        inputs.push_back((place, Input::Loaded(self.stream(place, stream.0))));
                    }
                    Output::ReadEntries { instance, to, number, from } => {
                        let records =
                            self.stream(place, instance.0).records.split_off(from as usize);
                        self.read.push(records.len());
                        let input = Input::EntriesRead { instance, to, number, from, records };
                        inputs.push_back((place, input));
                    }
                    Output::ReadHistory { id, instance, from, limit } => {
                        let records = self.stream(place, instance.0).records;
                        let first = records.first().cloned();
                        let records = records.into_iter().skip(from as usize).take(limit).collect();
                        let input = Input::HistoryRead { id, instance, first, records };
                        inputs.push_back((place, input));
                    }
                    Output::ReadCatalog { to, from, limit } => {
                        let records = self.stream(place, 0).records.into_iter();
                        let records = records.skip(from as usize).take(limit).collect();
                        inputs.push_back((place, Input::CatalogRead { to, from, records }));
                    }
                    Output::FetchFiles { instance, files } => {
                        let blobs = self.bring(place, files);
                        inputs.push_back((place, Input::FilesHere { instance, blobs }));
                    }
                    Output::Snapshot { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        answers
    }

    /// Plays the one who fetches: what is here needs no word to anybody.
    fn bring(&mut self, place: usize, files: Vec<FileWanted>) -> Vec<[u8; 32]> {
        let mut here = Vec::new();
        for file in files {
            if !self.blobs[place].contains(&file.blob) {
                self.fetches.push(Fetch { at: place as u16, file: file.clone() });
                if !self.brings {
                    continue;
                }
                let source = usize::from(file.sources[0].0);
                assert!(self.blobs[source].contains(&file.blob), "a source has it");
                self.blobs[place].insert(file.blob);
            }
            here.push(file.blob);
        }
        here
    }

    fn stream(&self, place: usize, id: u128) -> Stream {
        let records = self.streams[place].get(&id).map(|(records, _)| records.clone());
        Stream { id, snapshot: None, records: records.unwrap_or_default() }
    }

    fn start(&mut self, place: usize, data: serde_json::Value) {
        let start = Start {
            instance: CASE,
            process: Arc::from("case"),
            version: None,
            data: data.as_object().unwrap().clone().into_iter().collect(),
            agent: None,
            key: None,
            wait_until: None,
            deadline: None,
        };
        self.ask(place, Request::Start(start)).unwrap();
    }

    /// The jobs that are offered at a server now.
    fn jobs(&mut self, place: usize, step: &str) -> Vec<Job> {
        let activate = Activate {
            worker: Arc::from("robot"),
            types: vec![Arc::from(step)],
            max: 1,
            lease: Duration::from_secs(60),
            wait_until: None,
        };
        match self.ask(place, Request::Activate(activate)).unwrap() {
            Answer::Jobs(jobs) => jobs,
            other => panic!("{other:?}"),
        }
    }

    /// Does a step. A file is given as its number: it is stored here, has 5 MB.
    fn does(&mut self, place: usize, step: &str, files: &[(&str, u8)], rounds: Option<u32>) {
        let job = self.jobs(place, step).pop().unwrap_or_else(|| panic!("{step} is not offered"));
        let mut data = Data::new();
        for (name, number) in files {
            let blob = [*number; 32];
            self.blobs[place].insert(blob);
            let hex: String = blob.iter().map(|byte| format!("{byte:02x}")).collect();
            data.insert((*name).to_owned(), json!({ "blob": hex, "size": 5 * MB }));
        }
        data.extend(rounds.map(|rounds| ("rounds".to_owned(), json!(rounds))));
        self.report(place, job, data);
    }

    fn report(&mut self, place: usize, job: Job, data: Data) {
        let job = JobLease { activity: job.activity, lease: job.lease };
        let jobs = vec![JobResult { job, data }];
        let request = Request::CompleteJobs { worker: Arc::from("robot"), jobs };
        match self.ask(place, request).unwrap() {
            Answer::JobResults(results) => results.into_iter().for_each(|result| result.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for place in 0..6 {
            self.feed(place, Input::Settle);
        }
    }

    fn take_fetches(&mut self) -> Vec<Fetch> {
        std::mem::take(&mut self.fetches)
    }

    fn restart(&mut self, place: usize) {
        self.sites[place] = site(place as u16, &self.topology, self.config.clone());
        let open: Vec<u128> = self.streams[place]
            .iter()
            .filter(|(_, (_, closed))| !closed)
            .map(|(&id, _)| id)
            .collect();
        for id in open {
            self.feed(place, Input::Recovered(self.stream(place, id)));
            if id == 0 {
                self.feed(place, Input::SiteRecovered);
            }
        }
        self.feed(place, Input::Settle);
    }

    /// Makes all sites anew with another size of messages.
    fn part_bytes(&mut self, part_bytes: usize) {
        self.config.part_bytes = part_bytes;
        (0..6).for_each(|place| self.restart(place));
    }

    /// Everything up to the reader c of figure 6, whose content is not brought.
    fn at_c() -> Self {
        let mut group = Self::new(FIGURE_6);
        group.brings = false;
        group.start(1, json!({ "yes": true }));
        group.does(1, "a", &[("d1", 1)], None);
        group.does(2, "b", &[], None);
        group
    }
}

fn site(place: u16, topology: &Arc<str>, config: Config) -> Site {
    let member = Member { name: format!("s{place}").into(), topology: topology.clone() };
    Site::new(Config { member: Some(member), ..config })
}

fn from(at: u16, blob: u8, sources: &[u16], similar: &[u8]) -> Fetch {
    let sources = sources.iter().map(|server| ServerId(*server)).collect();
    let similar = similar.iter().map(|number| [*number; 32]).collect();
    Fetch { at, file: FileWanted { blob: [blob; 32], size: 5 * MB, similar, sources } }
}

#[test]
fn a3_5_a_document_goes_to_its_readers_and_not_by_way_of_those_between() {
    let mut group = Group::new(FIGURE_6);
    group.start(1, json!({ "yes": true }));
    group.does(1, "a", &[("d1", 1)], None);
    assert_eq!(group.take_fetches(), [], "b does not read it");
    group.does(2, "b", &[], None);
    assert_eq!(group.take_fetches(), [from(3, 1, &[1], &[]), from(4, 1, &[1], &[])]);
    for (place, step) in [(3, "c"), (3, "d"), (4, "e"), (4, "f")] {
        group.does(place, step, &[], None);
    }
    assert_eq!(group.take_fetches(), [], "e had it where f is");
    group.does(5, "g", &[], None);
    assert_eq!(group.take_fetches(), [from(5, 1, &[1, 3, 4], &[])]);
    group.does(5, "h", &[], None);
}

#[test]
fn a3_5_what_is_not_activated_asks_for_nothing() {
    let mut group = Group::new(FIGURE_6);
    group.start(1, json!({ "yes": false }));
    group.does(1, "a", &[("d1", 1)], None);
    for (place, step) in [(2, "b"), (3, "c"), (3, "d"), (4, "e"), (4, "f"), (5, "g")] {
        group.does(place, step, &[], None);
    }
    let asked: Vec<u16> = group.fetches.iter().map(|fetch| fetch.at).collect();
    assert_eq!(asked, [3, 4], "h was not chosen");
}

#[test]
fn a3_9_of_250_mb_105_go_to_the_reader() {
    let mut group = Group::new(SECTION_6);
    group.start(1, json!({}));
    let all = [("d1", 1), ("d2", 2), ("d3", 3), ("d4", 4), ("d5", 5)];
    group.does(1, "a", &all, None);
    let mut sent = Vec::new();
    for round in 1..=10_u8 {
        let (d1, d2) = (10 * round, 10 * round + 1);
        group.does(2, "b", &[("d1", d1), ("d2", d2)], None);
        let fetches = group.take_fetches();
        assert!(fetches.iter().all(|fetch| fetch.at == 3), "c alone reads");
        sent.push(fetches.iter().map(|fetch| fetch.file.size).sum::<u64>() / MB);
        group.does(3, "c", &[], None);
        group.does(4, "d", &[], Some(u32::from(round)));
    }
    assert_eq!(sent, [15, 10, 10, 10, 10, 10, 10, 10, 10, 10]);
    assert_eq!(sent.iter().sum::<u64>(), 105, "instead of 5 x 5 MB in each of 10 iterations");
}

#[test]
fn of_a_long_history_only_what_may_be_lacking_is_read() {
    let mut group = Group::new(SECTION_6);
    group.start(1, json!({}));
    group.does(1, "a", &[("d1", 1), ("d2", 2), ("d3", 3), ("d4", 4), ("d5", 5)], None);
    for round in 1..10 {
        group.read.clear();
        group.does(2, "b", &[("d1", 10 + round), ("d2", 20 + round)], None);
        group.does(3, "c", &[], None);
        group.does(4, "d", &[], Some(round.into()));
    }
    assert!(group.streams[2][&CASE.0].0.len() > 25, "there is much more");
    assert!(group.read.len() >= 3 && group.read.iter().all(|read| *read <= 8), "{:?}", group.read);
}

#[test]
fn a_step_is_offered_when_the_contents_of_all_it_reads_are_here() {
    let mut group = Group::at_c();
    assert!(group.jobs(3, "c").is_empty());
    assert_eq!(group.take_fetches(), [from(3, 1, &[1], &[]), from(4, 1, &[1], &[])]);
    group.feed(3, Input::FilesHere { instance: CASE, blobs: vec![[9; 32]] });
    assert!(group.jobs(3, "c").is_empty(), "something else has come");
    group.feed(3, Input::FilesHere { instance: CASE, blobs: vec![[1; 32]] });
    assert_eq!(group.jobs(3, "c").len(), 1);
}

#[test]
fn what_does_not_come_is_asked_for_over_and_over_with_longer_pauses() {
    let mut group = Group::at_c();
    group.take_fetches();
    group.pass(Duration::from_secs(1));
    assert_eq!(group.take_fetches(), [], "it may be under way");
    let mut asked = 0;
    for _ in 0..120 {
        group.pass(Duration::from_secs(5));
        asked += group.take_fetches().iter().filter(|fetch| fetch.at == 3).count();
    }
    assert!((10..20).contains(&asked), "{asked} times in 10 minutes");
}

#[test]
fn the_cheapest_source_is_named_first_also_when_a_content_is_asked_for_again() {
    let mut group = Group::at_c();
    group.brings = true;
    group.pass(Duration::from_secs(3));
    for (place, step) in [(3, "c"), (3, "d"), (4, "e"), (4, "f")] {
        group.does(place, step, &[], None);
    }
    group.take_fetches();
    group.brings = false;
    group.does(5, "g", &[], None);
    assert_eq!(group.take_fetches(), [from(5, 1, &[1, 3, 4], &[])]);
    group.pass(Duration::from_secs(3));
    assert_eq!(group.take_fetches(), [from(5, 1, &[1, 3, 4], &[])]);
}

#[test]
fn earlier_versions_are_named_to_find_unchanged_parts_in() {
    let mut group = Group::new(SECTION_6);
    group.start(1, json!({}));
    let all = [("d1", 1), ("d2", 2), ("d3", 3), ("d4", 4), ("d5", 5)];
    group.does(1, "a", &all, None);
    group.does(2, "b", &[("d1", 10), ("d2", 11)], None);
    group.take_fetches();
    group.does(3, "c", &[], None);
    group.does(4, "d", &[], Some(1));
    group.does(2, "b", &[("d1", 20), ("d2", 21)], None);
    let fetches = group.take_fetches();
    assert_eq!(fetches, [from(3, 20, &[2], &[10]), from(3, 21, &[2], &[11])]);
}

#[test]
fn after_a_restart_the_contents_are_asked_after_once_more() {
    let mut group = Group::at_c();
    group.take_fetches();
    group.restart(3);
    assert_eq!(group.take_fetches()[0], from(3, 1, &[1], &[]));
    group.blobs[3].insert([1; 32]);
    group.restart(3);
    assert_eq!(group.take_fetches(), [], "the one who fetches has found it here");
    assert_eq!(group.jobs(3, "c").len(), 1);
}

#[test]
fn an_instance_is_over_when_the_contents_of_its_results_are_where_it_was_started() {
    let mut group = Group::new(RETURN);
    group.brings = false;
    group.start(1, json!({}));
    let is_closed = |group: &Group, place: usize| group.streams[place][&CASE.0].1;
    group.does(2, "a", &[("d1", 1)], None);
    assert_eq!(group.take_fetches(), [from(1, 1, &[2], &[])]);
    assert_eq!((is_closed(&group, 1), is_closed(&group, 2)), (false, true));
    group.restart(1);
    assert_eq!(group.take_fetches()[0], from(1, 1, &[2], &[]), "not forgotten");
    group.feed(1, Input::FilesHere { instance: CASE, blobs: vec![[1; 32]] });
    assert!(is_closed(&group, 1));
    match group.ask(1, Request::Show { instance: CASE, wait_until: None }).unwrap() {
        Answer::Instance(view) => assert_eq!(view.info.result.len(), 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(group.take_fetches(), [], "whoever looks at it later asks for nothing");
}

/// A loop makes a long history, then control moves on.
const LONG: &str = "
process: case
data: { done: bool, text: string }
steps:
  - loop: l
    steps:
      - { step: a, job: a, at: s1, writes: [text, done] }
    until: done
    max: 20000
  - { step: b, job: b, at: s2, reads: [text] }
";

#[test]
fn a_long_history_goes_in_parts_and_each_entry_once() {
    let mut group = Group::new(LONG);
    group.part_bytes(500);
    group.start(1, json!({}));
    for round in 0..100 {
        let job = group.jobs(1, "a").pop().unwrap();
        let data = json!({ "text": "some words ".repeat(10), "done": round == 99 });
        group.report(1, job, data.as_object().unwrap().clone().into_iter().collect());
    }
    let offers: Vec<&Offer> = group.offers.iter().filter(|offer| offer.entries.is_some()).collect();
    assert!(offers.len() > 5, "{} messages", offers.len());
    let (last, parts) = offers.split_last().unwrap();
    assert!(parts.iter().all(|part| part.is_part) && !last.is_part);
    let entries = offers.iter().flat_map(|offer| offer.entries.iter().flatten());
    let ended: Vec<_> = entries.filter_map(|entry| entry.event.ends()).collect();
    let once: BTreeSet<_> = ended.iter().collect();
    assert_eq!((ended.len(), once.len()), (1 + 100 + 100, 1 + 100 + 100));
    let messages = offers.len();
    assert_eq!(group.jobs(2, "b").len(), 1);
    // A start, a hundred steps and as many decisions, and none of it beyond what was allowed.
    let records = &group.streams[2][&CASE.0].0;
    assert!(records.iter().all(|record| record.len() < 2_000));
    let history = Request::History { instance: CASE, from: 0, limit: 1_000 };
    let Ok(Answer::History { entries, .. }) = group.ask(2, history) else { panic!("a history") };
    let received = entries.iter().filter(|entry| entry.kind == "received");
    let numbers: Vec<Option<u32>> = received.map(|entry| entry.number).collect();
    assert_eq!(numbers, vec![Some(1); messages], "parts have the number of their parcel");
}

/// Two branches write at different servers, and a third reads both.
const JOINED: &str = "
process: case
data: { x: string, y: string, z: string }
steps:
  - parallel: p
    branches:
      - steps: [{ step: a, job: a, at: s1, writes: [x, z] }]
      - steps: [{ step: b, job: b, at: s2, writes: [y] }]
  - { step: c, job: c, at: s3, reads: [x, y, z] }
";

impl Group {
    /// Does a step that writes texts of so many bytes.
    fn writes(&mut self, place: usize, step: &str, texts: &[(&str, usize)]) {
        let job = self.jobs(place, step).pop().unwrap();
        let data = texts.iter().map(|(name, size)| ((*name).to_owned(), json!("x".repeat(*size))));
        self.report(place, job, data.collect());
    }
}

#[test]
fn what_each_server_may_take_in_is_not_refused_where_it_comes_together() {
    let mut group = Group::new(JOINED);
    group.config.data_bytes_max = 2_500;
    (0..6).for_each(|place| group.restart(place));
    group.start(1, json!({}));
    group.writes(1, "a", &[("x", 1_000), ("z", 1_000)]);
    group.writes(2, "b", &[("y", 1_000)]);
    assert_eq!(group.jobs(3, "c").len(), 1, "3,000 bytes are more than one server would take");
}

#[test]
fn large_values_come_one_after_the_other_where_they_do_not_fit_into_a_message() {
    let mut group = Group::new(JOINED);
    group.part_bytes(5_000);
    group.start(1, json!({}));
    group.writes(1, "a", &[("x", 4_000), ("z", 4_000)]);
    group.writes(2, "b", &[("y", 9_000)]);
    let job = group.jobs(3, "c").pop().unwrap();
    let sizes: Vec<usize> = job.inputs.iter().map(|(_, value)| value.content_bytes()).collect();
    assert_eq!(sizes, [4_000, 9_000, 4_000]);
}

/// Two steps at one server read what was written at two others.
const APART: &str = "
process: case
data: { x: string, y: string }
steps:
  - { step: a, job: a, at: s1, writes: [x] }
  - { step: b, job: b, at: s2, writes: [y] }
  - { step: m, job: m, at: s3 }
  - parallel: p
    branches:
      - steps: [{ step: c, job: c, at: s3, reads: [x] }]
      - steps: [{ step: d, job: d, at: s3, reads: [y] }]
";

#[test]
fn a_step_does_not_wait_for_a_value_that_only_another_step_reads() {
    let mut group = Group::new(APART);
    group.start(1, json!({}));
    group.writes(1, "a", &[("x", 4_000)]);
    group.writes(2, "b", &[("y", 4_000)]);
    group.away.insert(ServerId(1));
    group.does(3, "m", &[], None);
    assert!(group.jobs(3, "c").is_empty(), "its value is at a server that is away");
    assert_eq!(group.jobs(3, "d").len(), 1, "its own value can be had");
    group.away.clear();
    group.pass(Duration::from_secs(3));
    assert_eq!(group.jobs(3, "c").len(), 1);
}
