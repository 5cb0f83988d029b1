//! Invariants after every run, checked on the stored records.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_engine as engine;
use legwork_model::compile::compile;
use legwork_model::event::{Event, KeyEvent, Performer, Record, SiteEvent};
use legwork_model::id::{ActivityId, AgentId, InstanceId, StreamId, StreamKind};
use legwork_model::schema::Schema;
use legwork_model::yaml;
use legwork_site::{Answer, List, Request, Worklist};

use crate::actors::Ledger;
use crate::material::key_stream;
use crate::world::World;

/// A site recovered from the store answers like the running one.
pub(crate) fn recovered_equals_running(
    world: &mut World,
    agents: &[AgentId],
) -> Result<(), String> {
    let running = look_around(world, agents)?;
    let (recovered, _) = world.recovered()?;
    let before = world.swap_site(recovered);
    let fresh = look_around(world, agents)?;
    world.swap_site(before);
    if running == fresh {
        return Ok(());
    }
    Err(format!("a recovered site differs:\n running: {running:#?}\n recovered: {fresh:#?}"))
}

/// What every agent sees and what is open, without what may differ between two incarnations.
fn look_around(world: &mut World, agents: &[AgentId]) -> Result<Vec<String>, String> {
    let mut seen = Vec::new();
    for agent in agents {
        let agent = agent.clone();
        let worklist = Worklist { agent, since: None, limit: 1_000, wait_until: None };
        if let Ok(Answer::Worklist(view)) = world.ask_calmly(Request::Worklist(worklist))? {
            let mut items: Vec<String> = view
                .items
                .iter()
                .map(|item| format!("{} {:?}", item.activity, item.claimed_by))
                .collect();
            items.sort();
            seen.push(items.join("; "));
        }
    }
    let list = List { limit: 1_000, ..List::default() };
    if let Ok(Answer::Instances { instances, .. }) = world.ask_calmly(Request::List(list))? {
        seen.extend(instances.iter().map(|info| {
            format!("{} {:?} {} incidents", info.instance, info.lifecycle, info.incidents)
        }));
    }
    Ok(seen)
}

/// Everything acknowledged is stored exactly once; nothing happened twice; every end is proper.
pub(crate) fn histories(world: &World, ledger: &Ledger) -> Result<(), String> {
    let streams = world.streams()?;
    let schemas = schemas(&streams)?;
    let mut completed: BTreeMap<ActivityId, Performer> = BTreeMap::new();
    for (stream, bytes) in &streams {
        let StreamKind::Instance(id) = stream.kind() else { continue };
        let records = bytes
            .iter()
            .map(|bytes| Record::<Event>::from_bytes(bytes).map_err(|error| error.to_string()))
            .collect::<Result<Vec<_>, _>>()?;
        let Some(Event::Created(created)) = records.first().and_then(|r| r.events.first()) else {
            return Err(format!("{id} does not begin with its creation"));
        };
        let schema = schemas.get(&created.version).ok_or("an unknown version")?;
        for event in records.iter().flat_map(|record| &record.events) {
            if let Event::Completed(done) = event {
                let step = schema.node(done.activity.node).name.clone();
                let iteration = done.activity.iteration.clone();
                let activity = ActivityId { instance: id, step, iteration };
                if completed.insert(activity.clone(), done.by.clone()).is_some() {
                    return Err(format!("{activity} was completed twice"));
                }
            }
        }
        proper_end(id, schema, &records)?;
    }
    for id in ledger.started.keys() {
        if !streams.contains_key(&StreamId::from(*id)) {
            return Err(format!("{id} was acknowledged and is lost"));
        }
    }
    keys(&streams, ledger)?;
    for activity in ledger.completed.keys() {
        if !completed.contains_key(activity) {
            return Err(format!("the completion of {activity} was acknowledged and is lost"));
        }
    }
    Ok(())
}

/// At most one instance was started under each key, and the key's own stream names it.
fn keys(streams: &BTreeMap<StreamId, Vec<Vec<u8>>>, ledger: &Ledger) -> Result<(), String> {
    let mut used = 0;
    for (&key, keyed) in &ledger.keyed {
        let is_there = |id: &&InstanceId| streams.contains_key(&StreamId::from(**id));
        let started: Vec<InstanceId> = keyed.drawn.iter().filter(is_there).copied().collect();
        let mut told = Vec::new();
        for bytes in streams.get(&key_stream(key)).into_iter().flatten() {
            let record =
                Record::<KeyEvent>::from_bytes(bytes).map_err(|error| error.to_string())?;
            told.extend(record.events.iter().map(|KeyEvent::Started { instance, .. }| *instance));
        }
        if started.len() > 1 || started != told {
            return Err(format!("key {key} has started {started:?} and tells of {told:?}"));
        }
        if keyed.answered.is_some() && keyed.answered != started.first().copied() {
            return Err(format!(
                "key {key} was answered with {:?}, not {started:?}",
                keyed.answered
            ));
        }
        used += started.len();
    }
    let all = streams.keys().filter(|stream| stream.kind() == StreamKind::Key).count();
    if all == used { Ok(()) } else { Err(format!("{all} keys are stored, {used} were used")) }
}

/// The listing of ended instances has every instance once, newest first, and nothing else.
pub(crate) fn listing(world: &mut World) -> Result<(), String> {
    let streams = world.streams()?;
    let stored = streams.keys().rev().filter_map(|stream| match stream.kind() {
        StreamKind::Instance(id) => Some(id),
        StreamKind::Site
        | StreamKind::Plans
        | StreamKind::Key
        | StreamKind::Mail
        | StreamKind::Schedules
        | StreamKind::Executors => None,
    });
    let mut listed = Vec::new();
    let mut before = None;
    loop {
        let list = List { ended: true, limit: 7, before, ..List::default() };
        let answer = world.ask_calmly(Request::List(list))?;
        let Ok(Answer::Instances { instances, next }) = answer else {
            return Err(format!("a listing answers {answer:?}"));
        };
        listed.extend(instances.iter().map(|info| info.instance));
        before = next;
        if next.is_none() {
            break;
        }
    }
    let stored: Vec<InstanceId> = stored.collect();
    if listed == stored { Ok(()) } else { Err(format!("{stored:?} are listed as {listed:?}")) }
}

fn proper_end(id: InstanceId, schema: &Schema, records: &[Record<Event>]) -> Result<(), String> {
    let state = engine::replay(schema, records.iter()).ok_or("a history without a beginning")?;
    match state.lifecycle() {
        engine::Lifecycle::Aborted => Ok(()),
        engine::Lifecycle::Completed => {
            let left = schema.nodes.iter().find(|node| match state.node_state(node.id) {
                engine::NodeState::Completed | engine::NodeState::Skipped => false,
                engine::NodeState::NotActivated
                | engine::NodeState::Activated
                | engine::NodeState::Selected
                | engine::NodeState::Failed => true,
            });
            match left {
                None => Ok(()),
                Some(node) => Err(format!("{id} has ended with `{}` undone", node.name)),
            }
        }
        open @ (engine::Lifecycle::Running | engine::Lifecycle::Suspended) => {
            Err(format!("{id} is still {open:?}"))
        }
    }
}

/// The definitions in the site's own stream.
fn schemas(
    streams: &BTreeMap<StreamId, Vec<Vec<u8>>>,
) -> Result<BTreeMap<u32, Arc<Schema>>, String> {
    let mut schemas = BTreeMap::new();
    for bytes in streams.get(&StreamId::SITE).into_iter().flatten() {
        let record = Record::<SiteEvent>::from_bytes(bytes).map_err(|error| error.to_string())?;
        for event in record.events {
            if let SiteEvent::DefinitionDeployed { version, source, .. } = event {
                let (definition, findings) = yaml::parse(&source);
                let definition = definition.ok_or_else(|| format!("{findings:?}"))?;
                let schema = compile(&definition, version).map_err(|error| error.to_string())?;
                schemas.insert(version, Arc::new(schema));
            }
        }
    }
    Ok(schemas)
}
