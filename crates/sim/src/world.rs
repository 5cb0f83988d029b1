//! The driver: the same cycle as the server's, with a clock, a store and a network under the
//! seed's control.
//!
//! A crash may come before the commit (the batch is lost, and so are its answers) or after it (the
//! batch is there, the answers are lost). Nothing else is ever lost.

mod look;
mod others;
mod reads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use legwork_model::id::{InstanceId, ServerId, StreamId, StreamKind};
use legwork_model::time::Timestamp;
use legwork_placement::Topology;
use legwork_site::{
    Answer, Append, Call, Config, Credential, Due, FileWanted, Gauges, Input, Member, Message,
    Output, Refusal, Request, RequestId, Site, Stream,
};
use legwork_store::{self as store, Batch, EventStore, Version, memory::Memory};

use crate::dice::Dice;
use others::{Incoming, Others};

pub(crate) type Reply = Result<Answer, Refusal>;

pub(crate) struct World {
    site: Site,
    store: Memory,
    config: Config,
    now: Timestamp,
    inbox: Vec<Incoming>,
    /// Reads requested by the site; some take longer than others.
    reads: Vec<Output>,
    answers: BTreeMap<RequestId, Reply>,
    /// Requests whose answers were lost in a crash.
    lost: Vec<RequestId>,
    asked: Vec<RequestId>,
    last_request: u64,
    calm: bool,
    pub(crate) crashes: u32,
    /// Messages to other sites, released with the answers.
    said: Vec<(Arc<str>, Message)>,
    others: Others,
    /// Calls of executors, likewise.
    calls: Vec<Call>,
    /// Due starts of schedules, likewise.
    due: Vec<Due>,
    /// The contents of files stored here: they survive crashes.
    blobs: BTreeSet<[u8; 32]>,
    /// Contents that have to be fetched.
    wanted: Vec<(InstanceId, FileWanted)>,
    /// The marks about moving stores, given to the site again after each crash.
    marks: Vec<Mark>,
    is_down: bool,
}

/// The operator's knowledge of moving stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    GivenAway { change: u32 },
    Moved { change: u32, server: ServerId },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Crash {
    No,
    BeforeCommit,
    AfterCommit,
}

impl World {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        Self::of(Config {
            // Small, so that eviction, loading and snapshots happen all the time.
            resident_max: dice.below(12),
            snapshot_every: 2 + dice.below(6) as u64,
            waiting_max: 1_000,
            // Often so small that a history is sent in several messages.
            part_bytes: if dice.chance(40) { 1 + dice.below(400) } else { 1 << 20 },
            life: dice.roll(),
            ..Config::default()
        })
    }

    pub(crate) fn of(config: Config) -> Self {
        Self {
            site: Site::new(config.clone()),
            store: Memory::default(),
            now: Timestamp(1_000_000),
            config,
            inbox: Vec::new(),
            reads: Vec::new(),
            answers: BTreeMap::new(),
            lost: Vec::new(),
            asked: Vec::new(),
            last_request: 0,
            calm: false,
            crashes: 0,
            said: Vec::new(),
            others: Others::default(),
            calls: Vec::new(),
            due: Vec::new(),
            blobs: BTreeSet::new(),
            wanted: Vec::new(),
            marks: Vec::new(),
            is_down: false,
        }
    }

    /// Another host with everything that is stored here.
    pub(crate) fn copy(&self, dice: &mut Dice) -> Result<Self, String> {
        let mut world = Self::of(Config { life: dice.roll(), ..self.config.clone() });
        let failed = |error: store::Error| format!("copy: {error}");
        let closed = self.store.closed_streams(None, usize::MAX).map_err(failed)?;
        let closed: BTreeMap<StreamId, Vec<u8>> =
            closed.into_iter().map(|closed| (closed.stream, closed.summary)).collect();
        for (stream, records) in self.streams()? {
            let last = records.len().saturating_sub(1);
            for (place, record) in records.into_iter().enumerate() {
                let close = closed.get(&stream).filter(|_| place == last).cloned();
                let expected = Version(place as u64);
                let append = store::Append { stream, expected, record, close };
                let batch = Batch { appends: vec![append], ..Batch::default() };
                world.store.commit(batch).map_err(failed)?;
            }
        }
        (world.now, world.calm, world.blobs) = (self.now, self.calm, self.blobs.clone());
        // The requesters there do not take answers from here for theirs.
        world.last_request = self.last_request + 1_000_000;
        let (site, outputs) = world.recovered()?;
        world.site = site;
        world.carry_out(outputs)?;
        Ok(world)
    }

    /// Tells the site about a moving store, now and after each crash.
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.marks.push(mark);
        self.inbox.insert(0, mark.input().into());
    }

    pub(crate) fn is_marked(&self, mark: Mark) -> bool {
        self.marks.contains(&mark)
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Of the topology of the site.
    pub(crate) fn epoch(&self) -> u32 {
        self.topology().map_or(0, |topology| topology.epoch)
    }

    pub(crate) fn topology(&self) -> Option<&Arc<Topology>> {
        self.site.seat().map(|seat| &seat.topology)
    }

    /// The process dies, and does not come up again before it is told to.
    pub(crate) fn stop(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.is_down = true;
        self.crash(dice)
    }

    pub(crate) fn come_up(&mut self) {
        self.is_down = false;
    }

    /// The instances that are open in the store.
    pub(crate) fn open_instances(&self) -> Result<Vec<InstanceId>, String> {
        let mut open = Vec::new();
        let visit = &mut |stream: store::OpenStream| {
            if let StreamKind::Instance(id) = stream.stream.kind() {
                open.push(id);
            }
            ControlFlow::Continue(())
        };
        self.store.open_streams(None, visit).map_err(|error| format!("read: {error}"))?;
        Ok(open)
    }

    /// All requests to this host will not be answered here.
    pub(crate) fn take_asked(&mut self) -> Vec<RequestId> {
        self.lost.append(&mut self.asked);
        self.lost.extend(std::mem::take(&mut self.answers).into_keys());
        std::mem::take(&mut self.lost)
    }

    /// Requests to the previous host get no answer.
    pub(crate) fn lose(&mut self, asked: Vec<RequestId>) {
        self.lost.extend(asked);
    }

    /// A member of a cluster.
    pub(crate) fn member(dice: &mut Dice, member: Member) -> Self {
        let mut world = Self::new(dice);
        world.config.member = Some(member);
        world.site = Site::new(world.config.clone());
        world
    }

    pub(crate) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.site.next_timeout()
    }

    pub(crate) fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    pub(crate) fn take_wanted(&mut self) -> Vec<(InstanceId, FileWanted)> {
        std::mem::take(&mut self.wanted)
    }

    /// Uploads a file.
    pub(crate) fn upload(&mut self, blob: [u8; 32]) {
        self.blobs.insert(blob);
    }

    pub(crate) fn has_blob(&self, blob: &[u8; 32]) -> bool {
        self.blobs.contains(blob)
    }

    /// A content was fetched; never one that was here before.
    pub(crate) fn brought(
        &mut self,
        blob: [u8; 32],
        instances: Vec<InstanceId>,
    ) -> Result<(), String> {
        if !self.blobs.insert(blob) {
            return Err(format!("a file of {instances:?} was brought twice"));
        }
        for instance in instances {
            self.inbox.push(Input::FilesHere { instance, blobs: vec![blob] }.into());
        }
        Ok(())
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.inbox.is_empty() || !self.reads.is_empty()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// From here on there are no faults.
    pub(crate) fn calm(&mut self) {
        self.calm = true;
    }

    pub(crate) fn ask(&mut self, request: Request) -> RequestId {
        self.ask_as(Credential::None, request)
    }

    pub(crate) fn ask_as(&mut self, credential: Credential, request: Request) -> RequestId {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.inbox.push(Input::Request { id, credential, request }.into());
        self.asked.push(id);
        id
    }

    /// Asks and turns until the answer is there; for setup and observation, without crashes.
    pub(crate) fn ask_calmly(&mut self, request: Request) -> Result<Reply, String> {
        let id = self.ask(request);
        let was = std::mem::replace(&mut self.calm, true);
        for _ in 0..16 {
            self.turn(&mut Dice::new(0))?;
            if let Some(reply) = self.answers.remove(&id) {
                self.calm = was;
                return Ok(reply);
            }
        }
        Err(format!("{id:?} is not answered"))
    }

    /// The requester does not wait for the answer any more.
    pub(crate) fn hang_up(&mut self, id: RequestId) {
        self.asked.retain(|asked| *asked != id);
        self.inbox.push(Input::Cancelled { id }.into());
    }

    /// Whether a request will still be answered.
    pub(crate) fn is_asked(&self, id: RequestId) -> bool {
        self.asked.contains(&id)
    }

    pub(crate) fn reply(&mut self, id: RequestId) -> Option<Reply> {
        self.answers.remove(&id)
    }

    pub(crate) fn take_lost(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.lost)
    }

    /// One batch: inputs in, a commit, answers out; and time passes.
    pub(crate) fn turn(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.cycle(dice)?;
        self.pass_time(dice);
        Ok(())
    }

    /// One batch: inputs in, a commit, answers out; or a crash before or after the commit.
    pub(crate) fn cycle(&mut self, dice: &mut Dice) -> Result<(), String> {
        if self.is_down {
            self.inbox.clear();
            self.lost.append(&mut self.asked);
            return Ok(());
        }
        let crash = match dice.below(100) {
            _ if self.calm => Crash::No,
            0..3 => Crash::BeforeCommit,
            3..6 => Crash::AfterCommit,
            6.. => Crash::No,
        };
        self.cycle_with(crash, dice)
    }

    fn cycle_with(&mut self, crash: Crash, dice: &mut Dice) -> Result<(), String> {
        self.serve_reads(dice)?;
        let (mut outputs, mut said) = (Vec::new(), Vec::new());
        for incoming in std::mem::take(&mut self.inbox) {
            self.handle(incoming, &mut outputs, &mut said);
        }
        self.handle(Input::Settle.into(), &mut outputs, &mut said);
        if crash == Crash::BeforeCommit {
            return self.crash(dice);
        }
        let answers = self.carry_out(outputs)?;
        self.said.extend(said);
        self.follow_numbers();
        if crash == Crash::AfterCommit {
            return self.crash(dice);
        }
        self.asked.retain(|id| !answers.contains_key(id));
        self.answers.extend(answers);
        Ok(())
    }

    fn carry_out(&mut self, outputs: Vec<Output>) -> Result<BTreeMap<RequestId, Reply>, String> {
        let mut batch = Batch::default();
        let mut answers = BTreeMap::new();
        let (mut said, mut calls, mut due) = (Vec::new(), Vec::new(), Vec::new());
        for output in outputs {
            match output {
                Output::Append(Append { stream, expected, record, close }) => {
                    let (stream, expected) = (StreamId(stream), Version(expected));
                    batch.appends.push(store::Append { stream, expected, record, close });
                }
                Output::Snapshot { stream, version, bytes } => {
                    let (stream, version) = (StreamId(stream), Version(version));
                    batch.snapshots.push(store::Snapshot { stream, version, bytes });
                }
                Output::Answer { id, answer } => {
                    if answers.insert(id, answer).is_some() || self.answers.contains_key(&id) {
                        return Err(format!("{id:?} is answered twice"));
                    }
                }
                Output::Send { to, message } => {
                    said.extend(self.site.name_of(to).map(|name| (name, message)));
                }
                Output::Call(call) => calls.push(*call),
                Output::Start(wanted) => due.push(*wanted),
                Output::FetchFiles { instance, files } => {
                    let is_here = |file: &FileWanted| self.blobs.contains(&file.blob);
                    let (here, missing): (Vec<_>, Vec<_>) = files.into_iter().partition(is_here);
                    self.wanted.extend(missing.into_iter().map(|file| (instance, file)));
                    self.reads.push(Output::FetchFiles { instance, files: here });
                }
                read @ (Output::Load { .. }
                | Output::ReadHistory { .. }
                | Output::ReadOwn { .. }
                | Output::ReadEntries { .. }
                | Output::ReadCatalog { .. }
                | Output::ReadClosed { .. }) => self.reads.push(read),
                Output::Notice { text } => return Err(text),
                Output::Broken { instance, reason } => return Err(broken(instance, &reason)),
            }
        }
        self.store.commit(batch).map_err(|error| format!("commit: {error}"))?;
        self.said.extend(said);
        self.calls.extend(calls);
        self.due.extend(due);
        Ok(answers)
    }

    /// The process dies and recovers from the store.
    fn crash(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.crashes += 1;
        self.inbox.clear();
        self.reads.clear();
        self.said.clear();
        self.others = Others::default();
        self.calls.clear();
        self.due.clear();
        self.wanted.clear();
        self.lost.append(&mut self.asked);
        // Up to a minute of downtime, and the clock of the next machine may be behind.
        self.now = Timestamp(self.now.0 + dice.below(90_000) as i64 - 30_000);
        self.config.life = dice.roll();
        let (site, outputs) = self.recovered()?;
        self.site = site;
        self.carry_out(outputs)?;
        Ok(())
    }

    /// A site recovered from the store, and its first outputs.
    pub(crate) fn recovered(&mut self) -> Result<(Site, Vec<Output>), String> {
        let mut site = Site::new(self.config.clone());
        let mut outputs = VecDeque::new();
        self.store
            .open_streams(None, &mut |open| {
                let snapshot = open.snapshot.map(|snapshot| (snapshot.version.0, snapshot.bytes));
                let stream = Stream { id: open.stream.0, snapshot, records: open.records };
                outputs.extend(site.handle(Input::Recovered(stream), self.now));
                if open.stream == StreamId::SITE {
                    outputs.extend(site.handle(Input::SiteRecovered, self.now));
                }
                ControlFlow::Continue(())
            })
            .map_err(|error| format!("recovery: {error}"))?;
        let mut later = Vec::new();
        while let Some(output) = outputs.pop_front() {
            if matches!(output, Output::Load { .. }) {
                let input = self.read(output)?;
                outputs.extend(site.handle(input, self.now));
            } else {
                later.push(output);
            }
        }
        // Before any other input.
        for mark in &self.marks {
            later.extend(site.handle(mark.input(), self.now));
        }
        match site.faults() {
            [] => Ok((site, later)),
            faults => Err(format!("recovery: {faults:?}")),
        }
    }

    fn pass_time(&mut self, dice: &mut Dice) {
        let mut step = dice.below(400) as i64;
        if self.calm {
            // Nothing to wait for: advance to the next event.
            step = self.site.next_timeout().map_or(50, |due| (due.0 - self.now.0).max(1));
        } else if dice.chance(2) {
            step = -(dice.below(5_000) as i64);
        } else if dice.chance(5) {
            step = dice.below(120_000) as i64;
        }
        self.now = Timestamp(self.now.0 + step);
    }

    /// Every stream with its records.
    pub(crate) fn streams(&self) -> Result<BTreeMap<StreamId, Vec<Vec<u8>>>, String> {
        let failed = |error: store::Error| format!("read: {error}");
        let mut ids = Vec::new();
        self.store
            .open_streams(None, &mut |open| {
                ids.push(open.stream);
                ControlFlow::Continue(())
            })
            .map_err(failed)?;
        let closed = self.store.closed_streams(None, usize::MAX).map_err(failed)?;
        ids.extend(closed.into_iter().map(|closed| closed.stream));
        ids.into_iter()
            .map(|id| Ok((id, self.store.read(id, Version(0), usize::MAX).map_err(failed)?)))
            .collect()
    }

    /// The records of the site's own stream.
    pub(crate) fn catalog(&self) -> Result<Vec<Vec<u8>>, String> {
        let records = self.store.read(StreamId::SITE, Version(0), usize::MAX);
        records.map_err(|error| format!("read: {error}"))
    }

    pub(crate) fn swap_site(&mut self, other: Site) -> Site {
        std::mem::replace(&mut self.site, other)
    }

    /// A digest of everything stored.
    pub(crate) fn digest(&self) -> Result<u64, String> {
        let mut digest = 0xCBF2_9CE4_8422_2325_u64;
        for (id, records) in self.streams()? {
            let bytes = id.0.to_be_bytes().into_iter().chain(records.into_iter().flatten());
            for byte in bytes {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
            }
        }
        Ok(digest)
    }

    pub(crate) fn gauges(&self) -> Gauges {
        self.site.gauges()
    }

    pub(crate) fn describe(&self) -> String {
        let (mode, held) = (self.site.mode(), self.site.held());
        format!("{mode:?}, {held} held, {:?}", self.gauges())
    }
}

impl Mark {
    fn input(self) -> Input {
        match self {
            Self::GivenAway { change } => Input::GivenAway { change },
            Self::Moved { change, server } => Input::Moved { change, server },
        }
    }
}

fn broken(instance: InstanceId, reason: &str) -> String {
    format!("{instance} is broken: {reason}")
}
