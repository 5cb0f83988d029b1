//! The state of every node, one byte each.
//!
//! Small processes are stored inline: a million waiting instances then need no allocation for their
//! markings. Reading beyond the last node returns `NotActivated`, writing there does nothing.

use minicbor::{Decode, Decoder, Encode, Encoder};

use super::NodeState;

/// The inline capacity that does not grow the type beyond three words.
const IN_PLACE_MAX: usize = 22;

#[derive(Clone)]
pub(crate) enum Nodes {
    Few { len: u8, states: [NodeState; IN_PLACE_MAX] },
    Many(Box<[NodeState]>),
}

impl Nodes {
    pub(crate) fn new(len: usize) -> Self {
        match u8::try_from(len) {
            Ok(few) if len <= IN_PLACE_MAX => {
                Self::Few { len: few, states: [NodeState::NotActivated; IN_PLACE_MAX] }
            }
            Ok(_) | Err(_) => Self::Many(vec![NodeState::NotActivated; len].into()),
        }
    }

    pub(crate) fn states(&self) -> &[NodeState] {
        match self {
            Self::Few { len, states } => &states[..usize::from(*len).min(IN_PLACE_MAX)],
            Self::Many(states) => states,
        }
    }

    fn states_mut(&mut self) -> &mut [NodeState] {
        match self {
            Self::Few { len, states } => &mut states[..usize::from(*len).min(IN_PLACE_MAX)],
            Self::Many(states) => states,
        }
    }

    pub(crate) fn get(&self, place: u32) -> NodeState {
        self.states().get(place as usize).copied().unwrap_or(NodeState::NotActivated)
    }

    pub(crate) fn set(&mut self, place: u32, to: NodeState) {
        if let Some(state) = self.states_mut().get_mut(place as usize) {
            *state = to;
        }
    }
}

impl PartialEq for Nodes {
    fn eq(&self, other: &Self) -> bool {
        self.states() == other.states()
    }
}

impl Eq for Nodes {}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.states().fmt(f)
    }
}

/// As a byte string.
impl<C> Encode<C> for Nodes {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        let bytes: Vec<u8> = self.states().iter().map(|&state| state as u8).collect();
        e.bytes(&bytes)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Nodes {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        let bytes = d.bytes()?;
        let mut nodes = Self::new(bytes.len());
        for (state, &byte) in nodes.states_mut().iter_mut().zip(bytes) {
            let known = NodeState::ALL.iter().find(|known| **known as u8 == byte);
            *state = *known.ok_or_else(|| minicbor::decode::Error::message("not a node state"))?;
        }
        Ok(nodes)
    }
}
