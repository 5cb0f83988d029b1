//! Ids and moments as JSON text, for `#[serde(with = "…")]`.
//!
//! Writing takes no `String`: job answers carry hundreds of ids. It goes through a small buffer
//! all the same, because the JSON writer looks for characters to escape in every piece it gets.

use std::fmt::{self, Display, Write};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let mut buffer = Buffer::default();
    match write!(buffer, "{value}") {
        Ok(()) => to.serialize_str(buffer.text()),
        Err(fmt::Error) => to.collect_str(value),
    }
}

/// Room for an instance id, the name of a step and an iteration.
const BUFFER_BYTES: usize = 120;

struct Buffer {
    bytes: [u8; BUFFER_BYTES],
    len: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { bytes: [0; BUFFER_BYTES], len: 0 }
    }
}

impl Buffer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    from.deserialize_str(Parse(PhantomData))
}

struct Parse<T>(PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for Parse<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Text or nothing.
pub(crate) mod option {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::serialize(value, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        Ok(Option::<Wrapped<T>>::deserialize(from)?.map(|Wrapped(value)| value))
    }

    #[derive(Deserialize)]
    #[serde(bound = "T: FromStr<Err: Display>")]
    struct Wrapped<T>(#[serde(with = "super")] T);
}

/// A list of texts.
pub(crate) mod list {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Display, S: Serializer>(
        values: &[T],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(Shown))
    }

    struct Shown<'a, T>(&'a T);

    impl<T: Display> Serialize for Shown<'_, T> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            super::serialize(self.0, to)
        }
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<Wrapped<T>>::deserialize(from)?;
        Ok(texts.into_iter().map(|Wrapped(value)| value).collect())
    }

    #[derive(Deserialize)]
    #[serde(bound = "T: FromStr<Err: Display>")]
    struct Wrapped<T>(#[serde(with = "super")] T);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_written_whole() {
        for len in [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, 1_000] {
            let (text, mut json) = ("\"ä".repeat(len), Vec::new());
            serialize(&text, &mut serde_json::Serializer::new(&mut json)).unwrap();
            assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
        }
    }
}
