//! The bytes on a link: frames, each a length, a kind and a content.
//!
//! Invariant: pure. Encoded frames decode to the same; all other bytes are refused with a reason
//! before they take more memory than their kind may. A length is a varint (seven bits per byte,
//! lowest first), so that a small message has two bytes of framing.

use bytes::{Buf, Bytes, BytesMut};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::files::{FileReply, FileRequest};
use crate::moving::{StoreReply, StoreRequest};

/// The protocol version; another one is refused.
pub(crate) const VERSION: u32 = 3;

/// A message must fit into a record of its receiver.
const MESSAGE_BYTES_MAX: usize = legwork_site::RECORD_BYTES_MAX + (1 << 20);
/// Bodies of requests are limited before; heads and framing are extra.
const REQUEST_BYTES_MAX: usize = 4 << 20;
pub(crate) const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// The list of chunks of the largest file, or one portion of them.
const FILE_BYTES_MAX: usize = 1 << 20;
/// The requested streams of a store with their start indices.
const STORE_REQUEST_BYTES_MAX: usize = 64 << 10;
/// For everything before authentication, and for reasons.
const WORDS_BYTES_MAX: usize = 4 << 10;
/// A length has at most this many bytes.
const LENGTH_BYTES_MAX: usize = 4;

/// One frame on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The first frame, from the dialling side.
    Hello(Hello),
    /// The reply that accepts it.
    Welcome(Welcome),
    /// The reply that rejects it; the connection is closed afterwards.
    Refused(String),
    /// The third reply: the target server is not in this process.
    NotHere,
    Ping,
    Pong,
    /// A message between sites.
    Message(Bytes),
    /// A request that came to the wrong server.
    Request(u64, Passed),
    Response(u64, Answered),
    /// The requester is gone.
    Cancel(u64),
    /// About the content of a file.
    FileRequest(u64, FileRequest),
    FileReply(u64, FileReply),
    /// From another process that is to hold the target server.
    StoreRequest(u64, StoreRequest),
    StoreReply(u64, StoreReply),
    /// Of a later release, which expects that it may be ignored.
    Unknown,
}

/// The dialling side.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Hello {
    #[n(0)]
    pub(crate) version: u32,
    #[n(1)]
    pub(crate) name: String,
    /// The number of the server in the catalog.
    #[n(2)]
    pub(crate) server: u16,
    /// The epoch of its topology; `NOT_JOINED` without a catalog, and so without a number.
    #[n(3)]
    pub(crate) epoch: u32,
    /// The target server.
    #[n(4)]
    pub(crate) to: String,
    /// The server of the certificate: its process holds the speaking server.
    #[n(5)]
    pub(crate) host: String,
    /// The address of that process.
    #[n(6)]
    pub(crate) address: String,
}

impl Hello {
    pub(crate) const NOT_JOINED: u32 = 0;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Welcome {
    #[n(0)]
    pub(crate) version: u32,
    #[n(1)]
    pub(crate) epoch: u32,
}

/// A request as its caller sent it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Passed {
    #[n(0)]
    pub(crate) method: String,
    /// Path and query.
    #[n(1)]
    pub(crate) target: String,
    #[n(2)]
    pub(crate) headers: Vec<Header>,
    #[n(3)]
    pub(crate) body: ByteVec,
}

/// Its response.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Answered {
    #[n(0)]
    pub(crate) status: u16,
    #[n(1)]
    pub(crate) headers: Vec<Header>,
    #[n(2)]
    pub(crate) body: ByteVec,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Header(#[n(0)] pub(crate) String, #[n(1)] pub(crate) ByteVec);

/// Why bytes on a link are malformed. Later bytes cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a frame of kind {kind} has {bytes} bytes, at most {max} are taken")]
    TooLong { kind: u8, bytes: usize, max: usize },
    #[error("the length of a frame makes no sense")]
    Length,
    #[error("a frame of kind {kind} cannot be read: {why}")]
    Content { kind: u8, why: String },
}

/// The frame of a message, the most common kind.
pub(crate) fn message(content: &[u8]) -> Vec<u8> {
    framed(KIND_MESSAGE, content)
}

impl Frame {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Hello(hello) => framed(KIND_HELLO, &cbor(hello)),
            Self::Welcome(welcome) => framed(KIND_WELCOME, &cbor(welcome)),
            Self::Refused(reason) => {
                let end = reason.floor_char_boundary(WORDS_BYTES_MAX / 2);
                framed(KIND_REFUSED, &reason.as_bytes()[..end])
            }
            Self::NotHere => framed(KIND_NOT_HERE, &[]),
            Self::Ping => framed(KIND_PING, &[]),
            Self::Pong => framed(KIND_PONG, &[]),
            Self::Message(content) => message(content),
            Self::Request(id, passed) => framed(KIND_REQUEST, &cbor(&(id, passed))),
            Self::Response(id, answered) => framed(KIND_RESPONSE, &cbor(&(id, answered))),
            Self::Cancel(id) => framed(KIND_CANCEL, &cbor(id)),
            Self::FileRequest(id, request) => framed(KIND_FILE_REQUEST, &cbor(&(id, request))),
            Self::FileReply(id, reply) => framed(KIND_FILE_REPLY, &cbor(&(id, reply))),
            Self::StoreRequest(id, request) => framed(KIND_STORE_REQUEST, &cbor(&(id, request))),
            Self::StoreReply(id, reply) => framed(KIND_STORE_REPLY, &cbor(&(id, reply))),
            Self::Unknown => Vec::new(),
        }
    }
}

/// Takes the first complete frame from the buffer, with its size; `None` if it is incomplete.
/// `is_known`: the other side is authenticated.
pub(crate) fn take(
    buffer: &mut BytesMut,
    is_known: bool,
) -> Result<Option<(Frame, u64)>, Malformed> {
    let Some((length, head)) = length(buffer)? else { return Ok(None) };
    let Some(kind) = buffer.get(head).copied() else { return Ok(None) };
    let max = if is_known { bytes_max(kind) } else { WORDS_BYTES_MAX };
    if length > max {
        return Err(Malformed::TooLong { kind, bytes: length, max });
    }
    if buffer.len() < head + length {
        buffer.reserve(head + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(head);
    let mut content = buffer.split_to(length).freeze();
    content.advance(1);
    let frame = understand(kind, content)?;
    Ok(Some((frame, (head + length) as u64)))
}

const KIND_HELLO: u8 = 0;
const KIND_WELCOME: u8 = 1;
const KIND_REFUSED: u8 = 2;
const KIND_PING: u8 = 3;
const KIND_PONG: u8 = 4;
const KIND_MESSAGE: u8 = 5;
const KIND_REQUEST: u8 = 6;
const KIND_RESPONSE: u8 = 7;
const KIND_CANCEL: u8 = 8;
const KIND_FILE_REQUEST: u8 = 9;
const KIND_FILE_REPLY: u8 = 10;
const KIND_NOT_HERE: u8 = 11;
const KIND_STORE_REQUEST: u8 = 12;
const KIND_STORE_REPLY: u8 = 13;

fn bytes_max(kind: u8) -> usize {
    match kind {
        KIND_MESSAGE => MESSAGE_BYTES_MAX,
        KIND_REQUEST => REQUEST_BYTES_MAX,
        // With some margin: the body is limited, the rest is small.
        KIND_RESPONSE => RESPONSE_BYTES_MAX + (1 << 20),
        KIND_FILE_REPLY => FILE_BYTES_MAX,
        KIND_STORE_REQUEST => STORE_REQUEST_BYTES_MAX,
        // A portion, and one more record.
        KIND_STORE_REPLY => MESSAGE_BYTES_MAX + (4 << 20),
        KIND_HELLO..=KIND_PONG | KIND_CANCEL | KIND_FILE_REQUEST | KIND_NOT_HERE => WORDS_BYTES_MAX,
        _ => MESSAGE_BYTES_MAX,
    }
}

fn understand(kind: u8, content: Bytes) -> Result<Frame, Malformed> {
    Ok(match kind {
        KIND_HELLO => Frame::Hello(read(kind, &content)?),
        KIND_WELCOME => Frame::Welcome(read(kind, &content)?),
        KIND_REFUSED => Frame::Refused(String::from_utf8_lossy(&content).into_owned()),
        KIND_NOT_HERE => Frame::NotHere,
        KIND_PING => Frame::Ping,
        KIND_PONG => Frame::Pong,
        KIND_MESSAGE => Frame::Message(content),
        KIND_REQUEST => {
            let (id, passed) = read(kind, &content)?;
            Frame::Request(id, passed)
        }
        KIND_RESPONSE => {
            let (id, answered) = read(kind, &content)?;
            Frame::Response(id, answered)
        }
        KIND_CANCEL => Frame::Cancel(read(kind, &content)?),
        KIND_FILE_REQUEST => {
            let (id, request) = read(kind, &content)?;
            Frame::FileRequest(id, request)
        }
        KIND_FILE_REPLY => {
            let (id, reply) = read(kind, &content)?;
            Frame::FileReply(id, reply)
        }
        KIND_STORE_REQUEST => {
            let (id, request) = read(kind, &content)?;
            Frame::StoreRequest(id, request)
        }
        KIND_STORE_REPLY => {
            let (id, reply) = read(kind, &content)?;
            Frame::StoreReply(id, reply)
        }
        _ => Frame::Unknown,
    })
}

fn framed(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut left = content.len() + 1;
    let mut frame = Vec::with_capacity(left + LENGTH_BYTES_MAX);
    while left >= 0x80 {
        frame.push(left as u8 | 0x80);
        left >>= 7;
    }
    frame.push(left as u8);
    frame.push(kind);
    frame.extend_from_slice(content);
    frame
}

/// The length of the first frame with its kind, and the size of the length.
fn length(buffer: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut length = 0;
    for (place, byte) in buffer.iter().take(LENGTH_BYTES_MAX).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            // A frame has at least a kind.
            return if length == 0 {
                Err(Malformed::Length)
            } else {
                Ok(Some((length, place + 1)))
            };
        }
    }
    if buffer.len() < LENGTH_BYTES_MAX { Ok(None) } else { Err(Malformed::Length) }
}

fn cbor(what: &impl Encode<()>) -> Vec<u8> {
    // Writing to memory cannot fail.
    minicbor::to_vec(what).unwrap_or_default()
}

fn read<'b, T: Decode<'b, ()>>(kind: u8, content: &'b [u8]) -> Result<T, Malformed> {
    minicbor::decode(content).map_err(|error| Malformed::Content { kind, why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header("content-type".to_owned(), b"text/yaml".to_vec().into())
    }

    fn frames() -> Vec<Frame> {
        let passed = Passed {
            method: "POST".to_owned(),
            target: "/v1/work/x/claim?a=b".to_owned(),
            headers: vec![header()],
            body: vec![7; 300].into(),
        };
        let answered =
            Answered { status: 201, headers: vec![header()], body: vec![9; 70_000].into() };
        let hello = Hello {
            version: VERSION,
            name: "north-2".to_owned(),
            server: 3,
            epoch: 12,
            to: "lab-1".to_owned(),
            host: "north-1".to_owned(),
            address: "10.0.0.1:7710".to_owned(),
        };
        vec![
            Frame::Hello(hello),
            Frame::Welcome(Welcome { version: VERSION, epoch: 12 }),
            Frame::Refused("not in the topology".to_owned()),
            Frame::NotHere,
            Frame::Ping,
            Frame::Pong,
            Frame::Message(Bytes::from_static(b"abc")),
            Frame::Message(Bytes::from(vec![1; 200])),
            Frame::Request(1 << 40, passed),
            Frame::Response(2, answered),
            Frame::Cancel(2),
            Frame::FileRequest(3, FileRequest::List { blob: [5; 32] }),
            Frame::FileReply(3, FileReply::NotHere),
            Frame::StoreRequest(4, StoreRequest::Digest),
            Frame::StoreReply(4, StoreReply::Digest([7; 32])),
        ]
    }

    fn all(mut buffer: BytesMut) -> Result<Vec<Frame>, Malformed> {
        let mut taken = Vec::new();
        while let Some((frame, _)) = take(&mut buffer, true)? {
            taken.push(frame);
        }
        Ok(taken)
    }

    #[test]
    fn frames_come_out_as_they_were_put_however_they_are_cut() {
        let bytes: Vec<u8> = frames().iter().flat_map(Frame::to_bytes).collect();
        for portion in [1, 2, 3, 7, 100, 65_536, bytes.len()] {
            let (mut buffer, mut taken, mut counted) = (BytesMut::new(), Vec::new(), 0);
            for piece in bytes.chunks(portion) {
                buffer.extend_from_slice(piece);
                while let Some((frame, bytes)) = take(&mut buffer, true).unwrap() {
                    taken.push(frame);
                    counted += bytes;
                }
            }
            assert_eq!(taken, frames());
            assert_eq!(counted, bytes.len() as u64);
        }
    }

    #[test]
    fn an_answer_with_all_streams_that_are_remembered_as_written_to_fits() {
        use crate::moving::{Mark, STREAMS_MAX, Stream};
        let stream = Stream(legwork_model::id::StreamId(u128::MAX));
        let mark = Mark { life: u64::MAX, number: u64::MAX };
        let streams = Some(vec![stream; STREAMS_MAX]);
        let frame = Frame::StoreReply(u64::MAX, StoreReply::Written { streams, mark });
        let (taken, _) = take(&mut BytesMut::from(&frame.to_bytes()[..]), true).unwrap().unwrap();
        assert!(taken == frame);
    }

    #[test]
    fn a_small_message_costs_two_bytes_of_framing() {
        assert_eq!(message(&[7; 100]).len(), 102);
        assert_eq!(message(&[7; 1_000]).len(), 1_003);
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_it_has_come() {
        let head = |length: usize, kind| {
            let bytes = [length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8];
            let last = (length >> 21) as u8;
            let bytes = [bytes[0], bytes[1], bytes[2] | 0x80, last, kind];
            BytesMut::from(&bytes[..])
        };
        let too_long = |kind, bytes, max| Err(Malformed::TooLong { kind, bytes, max });
        let bytes = MESSAGE_BYTES_MAX + 1;
        assert_eq!(take(&mut head(bytes, 5), true), too_long(5, bytes, MESSAGE_BYTES_MAX));
        assert_eq!(take(&mut head(5_000, 2), true), too_long(2, 5_000, WORDS_BYTES_MAX));
        // An unauthenticated peer can send little.
        assert_eq!(take(&mut head(5_000, 5), false), too_long(5, 5_000, WORDS_BYTES_MAX));
        assert_eq!(take(&mut head(5_000, 5), true), Ok(None));
    }

    #[test]
    fn lengths_that_make_no_sense_are_refused() {
        assert_eq!(all(BytesMut::from(&[0][..])), Err(Malformed::Length));
        assert_eq!(all(BytesMut::from(&[0xff; 9][..])), Err(Malformed::Length));
        assert_eq!(all(BytesMut::from(&[0xff; 3][..])), Ok(Vec::new()));
    }

    #[test]
    fn frames_of_a_later_release_are_passed_over() {
        let mut bytes = framed(200, b"news");
        bytes.extend(Frame::Ping.to_bytes());
        assert_eq!(all(BytesMut::from(&bytes[..])), Ok(vec![Frame::Unknown, Frame::Ping]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = all(BytesMut::from(&bytes[..]));
        }

        #[test]
        fn frames_with_a_byte_changed_are_taken_or_refused(place in 0..200_usize, byte: u8) {
            let mut bytes: Vec<u8> = frames().iter().flat_map(Frame::to_bytes).collect();
            bytes[place] = byte;
            let _ = all(BytesMut::from(&bytes[..]));
        }
    }
}
