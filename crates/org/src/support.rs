//! What the tests of this crate share: an organisation, a past and a schema.
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
        start: Vec::new(),
        result: Vec::new(),
        data: Vec::new(),
        steps: Vec::new(),
    };
    Arc::new(legwork_model::compile::compile(&definition, 1).unwrap())
}
