//! Ids and moments as JSON text, for `#[serde(with = "…")]`.
//!
//! Writing goes straight into the output, without a `String` in between: job answers carry
//! hundreds of ids.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
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
            Some(value) => to.collect_str(value),
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
            to.collect_str(self.0)
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
