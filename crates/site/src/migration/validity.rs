//! Validation of messages about an instance against its definition.
//!
//! Invariant: no identifier in a message is looked up unless the definition has it. The servers of a cluster are not
//! hostile, but a faulty one must not crash others or corrupt what they store.

use legwork_model::event::{Entry, Event, FetchedValue};
use legwork_model::id::{Activity, ElementId, InstanceId, ServerId};
use legwork_model::schema::Schema;

use crate::Site;
use crate::message::{Deadline, Message, Migration, Offer, Wanted};
use crate::output::Output;

impl Site {
    /// Whether a message about an instance fits its definition. If not, the operator is notified, and the message
    /// counts as lost.
    pub(crate) fn fits(&mut self, from: ServerId, id: InstanceId, message: &Message) -> bool {
        let fits = match message {
            Message::Migration(message) => self.migration_fits(id, message),
            Message::Deadline(Deadline::Replanned { replanned, .. }) => {
                self.cases.instances.state(id).is_none_or(|(schema, _)| {
                    let mut nodes = replanned.legs.iter().map(|leg| leg.node.0 as usize);
                    nodes.all(|node| node < schema.nodes.len())
                })
            }
            Message::Catalog(_)
            | Message::Worklist(_)
            | Message::Registrar(_)
            | Message::Key(_)
            | Message::Deadline(_) => true,
        };
        if !fits {
            let text = format!(
                "a message of server {} about {id} does not fit the definition of that instance and \
                 is ignored; check that all servers run the same version",
                from.0
            );
            self.out.push(Output::Notice { text });
        }
        fits
    }

    fn migration_fits(&self, id: InstanceId, message: &Migration) -> bool {
        let schema = self.cases.instances.state(id).map(|(schema, _)| schema);
        match message {
            Migration::Offer(offer) => self.offer_fits(id, offer),
            Migration::Known { last, .. } => {
                schema.is_none_or(|schema| last.iter().all(|known| has_activity(schema, known)))
            }
            Migration::Have { values, .. } => {
                schema.is_none_or(|schema| values.iter().all(|value| has_value(schema, value)))
            }
            Migration::Want { values, .. } => {
                schema.is_none_or(|schema| values.iter().all(|value| has_version(schema, value)))
            }
            Migration::Ack { .. } => true,
        }
    }

    fn offer_fits(&self, id: InstanceId, offer: &Offer) -> bool {
        let named = self.catalog.schema_of(&offer.process, offer.version);
        let schema = match (self.cases.instances.state(id), &named) {
            (Some((schema, _)), _) => {
                if schema.process != offer.process || schema.version != offer.version {
                    return false;
                }
                schema
            }
            (None, Ok(schema)) => schema,
            // Not known or not readable here: the offer is held or refused anyway.
            (None, Err(_)) => return true,
        };
        let passages = offer.parcel.passages();
        let mut activities = passages.iter().flat_map(|passage| [&passage.source, &passage.target]);
        activities.all(|activity| has_activity(schema, activity))
            && offer.entries.iter().flatten().all(|entry| has_entry(schema, entry))
    }
}

fn has_activity(schema: &Schema, activity: &Activity) -> bool {
    let node = schema.nodes.get(activity.node.0 as usize);
    node.is_some_and(|node| node.loops.len() == activity.iteration.0.len())
}

fn has_element(schema: &Schema, element: ElementId) -> bool {
    (element.0 as usize) < schema.elements.len()
}

fn has_version(schema: &Schema, version: &Wanted) -> bool {
    has_element(schema, version.element) && has_activity(schema, &version.writer)
}

fn has_value(schema: &Schema, value: &FetchedValue) -> bool {
    has_element(schema, value.element) && has_activity(schema, &value.writer)
}

fn has_entry(schema: &Schema, entry: &Entry) -> bool {
    let written = if let Event::Created(created) = &entry.event {
        &created.inputs[..]
    } else if let Event::Completed(done) = &entry.event {
        &done.writes[..]
    } else {
        &[]
    };
    let mut elements = written.iter().map(|(element, _)| element).chain(&entry.elsewhere);
    entry.event.ends().is_some_and(|activity| has_activity(schema, &activity))
        && elements.all(|element| has_element(schema, *element))
}
