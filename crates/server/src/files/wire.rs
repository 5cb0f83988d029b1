//! Requests and replies between servers about contents of files.
//!
//! Invariant: a reply is bounded by its request: a list by the limit of a file, chunks by the
//! requested portion. Numbers in `#[n(…)]` are the wire format.

use minicbor::{Decode, Encode};

use super::chunks::{Chunk, Hash, Packed};

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum FileRequest {
    /// Which chunks does this content have?
    #[n(0)]
    List {
        #[cbor(n(0), with = "minicbor::bytes")]
        blob: Hash,
    },
    /// Some chunks of a content, by index in the list.
    #[n(1)]
    Chunks {
        #[cbor(n(0), with = "minicbor::bytes")]
        blob: Hash,
        #[n(1)]
        places: Vec<u32>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum FileReply {
    /// This server does not have it, or cannot read it now.
    #[n(0)]
    NotHere,
    #[n(1)]
    List(#[n(0)] Vec<Chunk>),
    /// In the order of the request.
    #[n(2)]
    Chunks(#[n(0)] Vec<Packed>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(what: &impl Encode<()>) -> String {
        minicbor::to_vec(what).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_bytes_are_a_promise() {
        let blob = [0xAB; 32];
        let name = "ab".repeat(32);
        assert_eq!(hex(&FileRequest::List { blob }), format!("8200815820{name}"));
        let chunks = FileRequest::Chunks { blob, places: vec![3, 70_000] };
        assert_eq!(hex(&chunks), format!("8201825820{name}82031a00011170"));
        assert_eq!(hex(&FileReply::NotHere), "820080");
        let list = FileReply::List(vec![Chunk { hash: blob, bytes: 65_536 }]);
        assert_eq!(hex(&list), format!("82018181825820{name}1a00010000"));
        let plain = Packed::Plain(vec![1, 2].into());
        let small = Packed::Compressed(vec![3].into());
        let chunks = FileReply::Chunks(vec![plain, small]);
        assert_eq!(hex(&chunks), "820281828200814201028201814103");
    }

    #[test]
    fn what_was_said_is_understood() {
        let request = FileRequest::Chunks { blob: [1; 32], places: vec![0, 1, 2] };
        assert_eq!(
            minicbor::decode::<FileRequest>(&minicbor::to_vec(&request).unwrap()).unwrap(),
            request
        );
        let reply = FileReply::Chunks(vec![Packed::Plain(vec![7; 300].into())]);
        assert_eq!(
            minicbor::decode::<FileReply>(&minicbor::to_vec(&reply).unwrap()).unwrap(),
            reply
        );
    }
}
