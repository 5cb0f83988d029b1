//! Invariants at the end of a run.

use std::collections::{BTreeMap, BTreeSet};

use legwork_engine::State;
use legwork_model::event::{Event, Parcel, Received, Record};
use legwork_model::id::{Activity, ElementId, InstanceId, StreamId, StreamKind};
use legwork_model::schema::Schema;
use legwork_site::{Answer, Lifecycle, Request};

use super::crew::{Crew, has_all};
use super::{Cluster, histories, oracle, story};

/// Checks everything; returns the number of completed activities.
pub(crate) fn all(cluster: &mut Cluster, crew: &Crew) -> Result<usize, String> {
    let mut done: BTreeMap<InstanceId, BTreeSet<Activity>> = BTreeMap::new();
    for (place, world) in cluster.worlds.iter().enumerate() {
        for (stream, records) in world.streams()? {
            let StreamKind::Instance(instance) = stream.kind() else { continue };
            let schema = cluster.schema(instance);
            let done_here = history(&schema, instance, &records)
                .map_err(|reason| format!("{reason}\n{}", story::of(cluster, instance)))?;
            for activity in done_here {
                if !done.entry(instance).or_default().insert(activity.clone()) {
                    return Err(format!(
                        "{activity:?} of {instance} was done twice, also at {place}"
                    ));
                }
            }
        }
    }
    for activity in &crew.acknowledged {
        let schema = cluster.schema(activity.instance);
        let mut done = done.get(&activity.instance).into_iter().flatten();
        if !done.any(|done| oracle::named(&schema, activity.instance, done) == *activity) {
            return Err(format!("{activity} was acknowledged, and stands in no history"));
        }
    }
    keys(cluster, crew)?;
    histories::check(cluster, &done.keys().copied().collect())?;
    for (&instance, &place) in crew.started() {
        let Some(done) = done.get(&instance) else {
            // A start whose answer was lost in a crash before the commit.
            continue;
        };
        let schema = cluster.schema(instance);
        let expected = oracle::outcome(&schema, instance)?;
        let show = Request::Show { instance, wait_until: None };
        let reply = cluster.worlds[place].ask_calmly(show)?;
        let Answer::Instance(view) = reply.map_err(|refusal| refusal.to_string())? else {
            return Err("no instance was answered".to_owned());
        };
        if view.info.lifecycle == Lifecycle::Aborted && crew.abort_asked.contains(&instance) {
            if !done.is_subset(&expected.done) {
                return Err(format!("{instance} was aborted and has done more than it could"));
            }
            continue;
        }
        if *done != expected.done {
            let missing: Vec<_> = expected.done.difference(done).collect();
            let more: Vec<_> = done.difference(&expected.done).collect();
            return Err(format!("{instance}: not done {missing:?}, done besides {more:?}"));
        }
        if view.info.lifecycle != Lifecycle::Completed {
            return Err(format!("{instance} is {:?} at its start", view.info.lifecycle));
        }
        let end = oracle::named(&schema, instance, &Activity::once(schema.end()));
        has_all(cluster, place, &end, &view.info.result)?;
        let results: BTreeMap<String, _> =
            view.info.result.iter().map(|(n, v)| (n.to_string(), v.to_json())).collect();
        if results != expected.results {
            let expected = expected.results;
            return Err(format!("{instance} comes to {results:?} instead of {expected:?}"));
        }
    }
    Ok(done.values().map(BTreeSet::len).sum())
}

/// Under each key at most one case was started, at any server.
fn keys(cluster: &Cluster, crew: &Crew) -> Result<(), String> {
    let mut stored = BTreeSet::new();
    for world in &cluster.worlds {
        stored.extend(world.streams()?.into_keys());
    }
    for (key, drawn) in &crew.keys().drawn {
        let started: Vec<&InstanceId> =
            drawn.iter().filter(|id| stored.contains(&StreamId::from(**id))).collect();
        if started.len() > 1 {
            return Err(format!("{key:?} has started {started:?}"));
        }
    }
    Ok(())
}

/// Replays a history entry by entry and checks that each was due when it came, and that no entry
/// and no version of a data element came twice; returns the activities done here.
fn history(
    schema: &Schema,
    instance: InstanceId,
    records: &[Vec<u8>],
) -> Result<Vec<Activity>, String> {
    let (mut own, mut state) = (Vec::new(), None);
    let (mut entries, mut versions) = (BTreeSet::new(), BTreeSet::new());
    for bytes in records {
        let Record { at, events } = Record::from_bytes(bytes).map_err(|error| error.to_string())?;
        for event in events {
            let is_own = !matches!(event, Event::Received(_));
            own.extend(event.ends().filter(|_| is_own));
            for event in one_by_one(event) {
                if let Some(twice) = ended_by(&event).filter(|entry| !entries.insert(entry.clone()))
                {
                    return Err(format!("{instance}: {twice:?} came twice"));
                }
                for version in brought_by(&event) {
                    if !versions.insert(version.clone()) {
                        return Err(format!("{instance}: the value of {version:?} came twice"));
                    }
                }
                if let Some(activity) = ended_by(&event)
                    && !state.as_ref().is_none_or(|state| is_due(schema, state, &activity))
                {
                    return Err(format!("{instance}: {activity:?} was not due when it came"));
                }
                let record = Record { at, events: vec![event] };
                state = match state {
                    None => legwork_engine::replay(schema, [&record].into_iter()),
                    Some(mut state) => {
                        let changes = &mut Vec::new();
                        legwork_engine::evolve(schema, &mut state, &record.events[0], at, changes);
                        Some(state)
                    }
                };
            }
        }
    }
    Ok(own)
}

/// The received entries, each as if it had come alone.
fn one_by_one(event: Event) -> Vec<Event> {
    let Event::Received(received) = event else { return vec![event] };
    let Received { from, number, parcel, entries } = *received;
    let alone =
        |entries, parcel| Event::Received(Box::new(Received { from, number, parcel, entries }));
    let nothing = || Parcel::Control { passages: Vec::new(), order: None };
    let mut events: Vec<Event> =
        entries.into_iter().map(|entry| alone(vec![entry], nothing())).collect();
    events.push(alone(Vec::new(), parcel));
    events
}

/// The activity that an event ends, also a received one.
fn ended_by(event: &Event) -> Option<Activity> {
    if let Event::Received(received) = event {
        received.entries.first()?.event.ends()
    } else {
        event.ends()
    }
}

/// The versions of data elements whose values an event adds: written here, with an entry, or
/// fetched.
fn brought_by(event: &Event) -> Vec<(ElementId, Activity)> {
    if let Event::Received(received) = event {
        let entries = received.entries.iter();
        entries.flat_map(|entry| brought_by(&entry.event)).collect()
    } else if let Event::Fetched { values } = event {
        values.iter().map(|value| (value.element, value.writer.clone())).collect()
    } else if let Event::Created(created) = event {
        let start = Activity::once(Schema::START);
        created.inputs.iter().map(|(element, _)| (*element, start.clone())).collect()
    } else if let Event::Completed(done) = event {
        done.writes.iter().map(|(element, _)| (*element, done.activity.clone())).collect()
    } else {
        Vec::new()
    }
}

fn is_due(schema: &Schema, state: &State, activity: &Activity) -> bool {
    // An abort has withdrawn the open activities.
    state.lifecycle().has_ended()
        || state.activity(schema, activity.node) == *activity
            && state.node_state(activity.node).is_pending()
}
