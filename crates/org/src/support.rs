//! Shared by the tests of this crate: an organisation, a history and a schema.
//!
//! Everything is read from text, as it is in production.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::definition::Definition;
use legwork_model::finding::Spanned;
use legwork_model::id::AgentId;
use legwork_model::schema::Schema;

use crate::organisation::Organisation;
use crate::resolve::Performers;

pub(crate) fn organisation(source: &str) -> Organisation {
    match Organisation::parse(source) {
        (Some(organisation), _) => organisation,
        (None, findings) => panic!("{findings:#?}"),
    }
}

/// `ann did a; bob started`
pub(crate) fn past(text: &str) -> Past {
    let mut past = Past::default();
    for clause in text.split(';').map(str::trim).filter(|clause| !clause.is_empty()) {
        match clause.split(' ').collect::<Vec<_>>()[..] {
            [agent, "did", step] => {
                past.performers.insert(step.to_owned(), agent.into());
            }
            [agent, "started"] => past.starter = Some(agent.into()),
            _ => panic!("not a past: {clause}"),
        }
    }
    past
}

#[derive(Default)]
pub(crate) struct Past {
    performers: BTreeMap<String, AgentId>,
    starter: Option<AgentId>,
}

impl Performers for Past {
    fn performer(&self, step: &str) -> Option<AgentId> {
        self.performers.get(step).cloned()
    }

    fn starter(&self) -> Option<AgentId> {
        self.starter.clone()
    }
}

/// A process without steps.
pub(crate) fn schema() -> Arc<Schema> {
    let definition = Definition {
        process: Spanned::nowhere("nothing".into()),
        title: None,
        availability: None,
        late: None,
        start: Vec::new(),
        result: Vec::new(),
        data: Vec::new(),
        steps: Vec::new(),
    };
    Arc::new(legwork_model::compile::compile(&definition, 1).unwrap())
}

/// A hospital and a bank in one, so that every form of rule has something to find.
pub(crate) const HOSPITAL: &str = "
organisation: general-hospital
units:
  hospital: { title: General Hospital, manager: weber }
  oncology: { in: hospital, manager: lang }
  ward-3: { in: oncology }
  surgery: { in: hospital, manager: roth }
positions:
  director: { unit: hospital, roles: [physician] }
  head-of-oncology: { unit: oncology, roles: [physician] }
  ward-nurse: { unit: ward-3, roles: [nurse] }
  surgeon: { unit: surgery, roles: [physician] }
agents:
  weber: { name: Dr Weber, positions: [director] }
  lang: { name: Dr Lang, positions: [head-of-oncology], abilities: [chemotherapy] }
  roth: { name: Dr Roth }
  ann:
    name: Ann Berger
    positions: [ward-nurse]
    abilities: [chemotherapy]
    substitutes: [ben, cora]
    absent:
      - { from: 2026-12-20, to: 2027-01-06 }
  ben: { positions: [ward-nurse], substitutes: [dan], absent: [{ from: 2026-12-24T12:00:00Z }] }
  cora: { positions: [surgeon], roles: [nurse] }
  dan: {}
";
