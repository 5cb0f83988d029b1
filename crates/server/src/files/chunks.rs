//! Content-defined chunking, so that a changed document has most chunks unchanged.
//!
//! Invariant: pure. The same content has the same chunks everywhere (FastCDC of 2020). Chunks from
//! another server are verified by hash: each one, and the whole content.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use fastcdc::v2020::FastCDC;
use legwork_store::BLOB_BYTES_MAX;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// The sizes of chunks. All but the last chunk of a content have at least the minimum.
const CHUNK_BYTES_MIN: usize = 16 << 10;
const CHUNK_BYTES_USUAL: usize = 64 << 10;
pub(super) const CHUNK_BYTES_MAX: usize = 256 << 10;
/// The bytes requested at once: one portion lets the small messages on the link pass before the
/// next.
const PORTION_BYTES: usize = CHUNK_BYTES_MAX;
/// The most chunks in one portion: chunks of minimal size, and the last one of a content.
pub(super) const PORTION_CHUNKS_MAX: usize = PORTION_BYTES / CHUNK_BYTES_MIN + 1;
/// The chunks of the largest content.
const CHUNKS_MAX: usize = BLOB_BYTES_MAX / CHUNK_BYTES_MIN + 1;
/// The compression level, and the least saving that is worth the decompression: one part in 20.
const LEVEL: i32 = 3;
const SAVING: usize = 20;

pub(super) type Hash = [u8; 32];

/// A piece of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Chunk {
    #[cbor(n(0), with = "minicbor::bytes")]
    pub(super) hash: Hash,
    #[n(1)]
    pub(super) bytes: u32,
}

/// A chunk on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Packed {
    #[n(0)]
    Plain(#[n(0)] ByteVec),
    #[n(1)]
    Compressed(#[n(0)] ByteVec),
}

/// An inconsistency in the answers of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lie {
    #[error("its list of chunks does not make up the file")]
    List,
    #[error("a chunk is not what its list says")]
    Chunk,
    #[error("its chunks do not make up the file")]
    Whole,
    #[error("its answer is not to what was asked")]
    Answer,
}

/// The chunks of a content, in order.
pub(super) fn cut(content: &[u8]) -> Vec<Chunk> {
    pieces(content)
        .map(|piece| Chunk { hash: *blake3::hash(piece).as_bytes(), bytes: piece.len() as u32 })
        .collect()
}

fn pieces(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    FastCDC::new(content, CHUNK_BYTES_MIN, CHUNK_BYTES_USUAL, CHUNK_BYTES_MAX)
        .filter_map(|chunk| content.get(chunk.offset..chunk.offset + chunk.length))
}

pub(super) fn pack(chunk: &[u8]) -> Packed {
    match zstd::bulk::compress(chunk, LEVEL) {
        Ok(small) if small.len() + chunk.len() / SAVING <= chunk.len() => {
            Packed::Compressed(small.into())
        }
        Ok(_) | Err(_) => Packed::Plain(chunk.to_vec().into()),
    }
}

fn unpack(packed: Packed, chunk: &Chunk) -> Result<Bytes, Lie> {
    let bytes: Vec<u8> = match packed {
        Packed::Plain(bytes) => bytes.into(),
        // It never becomes larger than its list says.
        Packed::Compressed(small) => {
            zstd::bulk::decompress(&small, chunk.bytes as usize).map_err(|_| Lie::Chunk)?
        }
    };
    if bytes.len() != chunk.bytes as usize || blake3::hash(&bytes) != chunk.hash {
        return Err(Lie::Chunk);
    }
    Ok(bytes.into())
}

/// Chunks that are present, by hash.
pub(super) type Have = BTreeMap<Hash, Bytes>;

/// A content being assembled.
#[derive(Debug)]
pub(super) struct Assembly {
    chunks: Vec<Chunk>,
    have: Have,
    /// Those found in another content.
    found: BTreeSet<Hash>,
}

impl Assembly {
    /// With chunks received before, from any server. The size need not be known.
    pub(super) fn new(
        chunks: Vec<Chunk>,
        size: Option<u64>,
        have: Have,
    ) -> Result<Self, (Lie, Have)> {
        let fits = |chunk: &Chunk| (1..=CHUNK_BYTES_MAX).contains(&(chunk.bytes as usize));
        let sum: u64 = chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum();
        let is_known = size.is_none_or(|size| size == sum) && sum <= BLOB_BYTES_MAX as u64;
        if chunks.len() > CHUNKS_MAX || !chunks.iter().all(fits) || !is_known {
            return Err((Lie::List, have));
        }
        Ok(Self { chunks, have, found: BTreeSet::new() })
    }

    /// Takes equal chunks from another local content.
    pub(super) fn take_from(&mut self, similar: &Bytes) {
        let mut lacking: BTreeMap<Hash, u32> =
            self.lacking().map(|(_, chunk)| (chunk.hash, chunk.bytes)).collect();
        if lacking.is_empty() {
            return;
        }
        for piece in pieces(similar) {
            let hash = *blake3::hash(piece).as_bytes();
            if lacking.remove(&hash).is_some() {
                self.have.insert(hash, similar.slice_ref(piece));
                self.found.insert(hash);
            }
        }
    }

    /// The missing chunks, each once, in portions to request one by one.
    pub(super) fn portions(&self) -> Vec<Vec<u32>> {
        let (mut portions, mut portion, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut asked = BTreeSet::new();
        for (place, chunk) in self.lacking() {
            if !asked.insert(chunk.hash) {
                continue;
            }
            let is_full =
                bytes + chunk.bytes as usize > PORTION_BYTES || portion.len() == PORTION_CHUNKS_MAX;
            if is_full && !portion.is_empty() {
                portions.push(std::mem::take(&mut portion));
                bytes = 0;
            }
            bytes += chunk.bytes as usize;
            portion.push(place);
        }
        portions.extend((!portion.is_empty()).then_some(portion));
        portions
    }

    /// Adds a requested portion.
    pub(super) fn put(&mut self, portion: &[u32], packed: Vec<Packed>) -> Result<(), Lie> {
        if portion.len() != packed.len() {
            return Err(Lie::Answer);
        }
        for (place, packed) in portion.iter().zip(packed) {
            let chunk = self.chunks.get(*place as usize).ok_or(Lie::Answer)?;
            let bytes = unpack(packed, chunk)?;
            self.have.insert(chunk.hash, bytes);
        }
        Ok(())
    }

    /// The received chunks of a portion.
    pub(super) fn chunks_at(&self, portion: &[u32]) -> impl Iterator<Item = (Hash, Bytes)> {
        let chunks = portion.iter().filter_map(|place| self.chunks.get(*place as usize));
        chunks.filter_map(|chunk| Some((chunk.hash, self.have.get(&chunk.hash)?.clone())))
    }

    /// The whole content, if its hash matches.
    pub(super) fn finish(&self, blob: Hash) -> Result<Vec<u8>, Lie> {
        let size = self.chunks.iter().map(|chunk| chunk.bytes as usize).sum();
        let mut content = Vec::with_capacity(size);
        for chunk in &self.chunks {
            content.extend_from_slice(self.have.get(&chunk.hash).ok_or(Lie::Whole)?);
        }
        if blake3::hash(&content) == blob { Ok(content) } else { Err(Lie::Whole) }
    }

    /// The received chunks, for another attempt. Locally found ones will be found again.
    pub(super) fn into_have(self) -> Have {
        let Self { mut have, found, .. } = self;
        have.retain(|hash, _| !found.contains(hash));
        have
    }

    fn lacking(&self) -> impl Iterator<Item = (u32, &Chunk)> {
        let chunks = (0_u32..).zip(&self.chunks);
        chunks.filter(|(_, chunk)| !self.have.contains_key(&chunk.hash))
    }
}

/// Bytes without repetitions that cannot be compressed.
#[cfg(test)]
pub(crate) fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed;
    let mut roll = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB)
    };
    (0..size.div_ceil(8)).flat_map(|_| roll().to_le_bytes()).take(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(content: &[u8], portion: &[u32]) -> Vec<Packed> {
        let pieces: Vec<&[u8]> = pieces(content).collect();
        portion.iter().map(|place| pack(pieces[*place as usize])).collect()
    }

    /// Transfers a content; returns the bytes on the wire, and the number of portions.
    fn bring(content: &[u8], similar: &[Vec<u8>]) -> (usize, usize) {
        let mut assembly =
            Assembly::new(cut(content), Some(content.len() as u64), Have::new()).unwrap();
        for similar in similar {
            assembly.take_from(&similar.clone().into());
        }
        let (mut bytes, portions) = (0, assembly.portions());
        for portion in &portions {
            let packed = packed(content, portion);
            bytes += packed
                .iter()
                .map(|packed| match packed {
                    Packed::Plain(bytes) | Packed::Compressed(bytes) => bytes.len(),
                })
                .sum::<usize>();
            assembly.put(portion, packed).unwrap();
        }
        assert_eq!(assembly.portions(), Vec::<Vec<u32>>::new());
        assert_eq!(assembly.finish(*blake3::hash(content).as_bytes()).unwrap(), content);
        (bytes, portions.len())
    }

    #[test]
    fn a_content_is_cut_everywhere_alike() {
        // These hashes must not change: servers of different releases must find the same chunks.
        let chunks = cut(&noise(7, 300_000));
        let told: Vec<(u32, u8)> = chunks.iter().map(|c| (c.bytes, c.hash[0])).collect();
        assert_eq!(told, GOLDEN);
        assert_eq!(cut(&[]), []);
        assert_eq!(cut(b"short").len(), 1);
    }

    const GOLDEN: [(u32, u8); 4] = [(67_848, 80), (134_100, 29), (17_691, 44), (80_361, 52)];

    #[test]
    fn of_a_changed_document_only_the_changed_chunks_go() {
        let old = noise(1, 5_000_000);
        assert_eq!(bring(&old, &[]).0, old.len(), "noise cannot be compressed");
        let mut new = old.clone();
        new.splice(2_000_000..2_000_010, b"something longer".iter().copied());
        let (bytes, _) = bring(&new, &[noise(2, 100_000), old]);
        assert!(bytes < 3 * CHUNK_BYTES_MAX, "{bytes} bytes for a change of 16");
    }

    #[test]
    fn what_repeats_within_a_document_goes_once() {
        let page = noise(3, 1_000_000);
        let (bytes, _) = bring(&page.repeat(5), &[]);
        assert!(bytes < 2_000_000, "{bytes} bytes for a page five times");
    }

    #[test]
    fn what_can_be_compressed_is() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|n| n.to_string().into_bytes()).collect();
        let (bytes, _) = bring(&text, &[]);
        assert!(bytes < text.len() / 2, "{bytes} of {}", text.len());
    }

    #[test]
    fn no_portion_holds_up_a_link_for_long() {
        let content = noise(4, 3_000_000);
        let assembly = Assembly::new(cut(&content), Some(3_000_000), Have::new()).unwrap();
        let portions = assembly.portions();
        assert!(portions.len() >= 3_000_000 / PORTION_BYTES);
        for portion in portions {
            let size: usize =
                portion.iter().map(|n| assembly.chunks[*n as usize].bytes as usize).sum();
            assert!(size <= PORTION_BYTES && portion.len() <= PORTION_CHUNKS_MAX);
        }
    }

    #[test]
    fn lies_are_found_out() {
        let content = noise(5, 400_000);
        let (chunks, size) = (cut(&content), 400_000_u64);
        let lie = |chunks: Vec<Chunk>, size: u64| {
            Assembly::new(chunks, Some(size), Have::new()).unwrap_err().0
        };
        assert_eq!(lie(chunks.clone(), size + 1), Lie::List);
        let empty = Chunk { hash: [0; 32], bytes: 0 };
        assert_eq!(lie([vec![empty], chunks.clone()].concat(), size), Lie::List);
        let huge = Chunk { hash: [0; 32], bytes: CHUNK_BYTES_MAX as u32 + 1 };
        assert_eq!(lie(vec![huge], u64::from(huge.bytes)), Lie::List);
        let mut assembly = Assembly::new(chunks.clone(), Some(size), Have::new()).unwrap();
        assert_eq!(assembly.put(&[0, 1], packed(&content, &[0])), Err(Lie::Answer));
        assert_eq!(assembly.put(&[0], packed(&content, &[1])), Err(Lie::Chunk));
        let bomb = zstd::bulk::compress(&vec![0; 10 << 20], 3).unwrap();
        assert_eq!(assembly.put(&[0], vec![Packed::Compressed(bomb.into())]), Err(Lie::Chunk));
        for portion in assembly.portions() {
            assembly.put(&portion, packed(&content, &portion)).unwrap();
        }
        assert_eq!(assembly.finish([9; 32]), Err(Lie::Whole), "chunks of another file");
    }

    #[test]
    fn what_one_source_gave_the_next_need_not() {
        let content = noise(6, 1_000_000);
        let mut first = Assembly::new(cut(&content), Some(1_000_000), Have::new()).unwrap();
        let portions = first.portions();
        first.put(&portions[0], packed(&content, &portions[0])).unwrap();
        let second = Assembly::new(cut(&content), Some(1_000_000), first.into_have()).unwrap();
        assert_eq!(second.portions(), portions[1..]);
    }
}
