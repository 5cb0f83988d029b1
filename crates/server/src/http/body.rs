//! Reading what a caller sends, within limits.
//!
//! Invariant: no body, however large, deep or slow, costs more than its limit; each limit has its
//! own code, and malformed JSON is answered with its line and column.

use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use legwork_api::definitions::Source;
use legwork_api::endpoints::Verb;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::exchange::Exchange;
use super::reply::{Refused, Result};
use super::route::Size;

/// How long a body may pause, all pauses together.
const PATIENCE: Duration = Duration::from_secs(20);
/// What is slower than this counts as a pause.
const BYTES_PER_S_MIN: usize = 32 << 10;
/// How much of a body that is too large is read and thrown away, so that a caller who does not
/// listen while it sends still gets the answer.
const DRAIN_BYTES_MAX: usize = 256 << 20;
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);

/// The body of a request, from a connection or from another server.
pub(crate) trait Incoming: Body<Data = Bytes, Error: Display> {}

impl<B: Body<Data = Bytes, Error: Display>> Incoming for B {}

/// Reads the body, up to the size limit of the endpoint; a request that takes none has an empty one.
pub(super) async fn take_in(x: &Exchange<'_>, body: impl Incoming) -> Result<Bytes> {
    let limits = &x.app.limits;
    let bytes_max = match x.route.size {
        Size::Json => limits.body_bytes_max,
        Size::Source => limits.source_bytes_max,
        Size::File => limits.file_bytes_max,
    };
    match x.route.verb {
        Verb::Post | Verb::Put => read(body, bytes_max).await,
        Verb::Get | Verb::Delete => Ok(Bytes::new()),
    }
}

/// Reads a body as a whole.
pub(crate) async fn read(body: impl Incoming, bytes_max: usize) -> Result<Bytes> {
    let mut body = pin!(body);
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max {
        drain(body).await;
        return Err(too_large(bytes_max));
    }
    let begun = Instant::now();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let received = first.len().max(rest.len());
        let patience = PATIENCE + Duration::from_secs((received / BYTES_PER_S_MIN) as u64);
        let Ok(frame) = timeout_at(begun + patience, body.frame()).await else {
            let detail = "the rest of the body did not come in time; send it without pauses";
            return Err(Refused::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail));
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            let detail = format!("the body broke off: {error}; send it again");
            Refused::bad_request("body_incomplete", detail)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if received + data.len() > bytes_max {
            drain(body).await;
            return Err(too_large(bytes_max));
        }
        // Nearly every body comes in one piece: it is passed on without a copy.
        if first.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.reserve(announced);
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Throws a body away.
pub(crate) async fn drain<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let discard = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    // Whoever is slower than this gets no answer, only the end of the connection.
    let _ = timeout(DRAIN_PATIENCE, discard).await;
}

fn too_large(bytes_max: usize) -> Refused {
    let detail = format!("the body has more than {bytes_max} bytes; send less at once");
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

/// Reads JSON.
pub(crate) fn json<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: &[u8],
    depth_max: usize,
) -> Result<T> {
    if media_type(headers) != "application/json" {
        return Err(wrong_type(headers, "application/json"));
    }
    if let Some((line, column)) = too_deep(body, depth_max) {
        let detail = format!(
            "the JSON nests deeper than {depth_max} levels at line {line}, column {column}; \
             flatten it, or upload it as a file"
        );
        return Err(Refused::bad_request("too_deep", detail));
    }
    serde_json::from_slice(body).map_err(|error| malformed::<T>(&error, body))
}

/// The YAML of a definition or an organisation: as it is, or as JSON `{"source": "…"}`.
pub(crate) fn source(headers: &HeaderMap, body: &[u8], depth_max: usize) -> Result<String> {
    match media_type(headers) {
        "application/json" => json::<Source>(headers, body, depth_max).map(|json| json.source),
        "text/yaml" | "application/yaml" | "application/x-yaml" | "text/x-yaml" => {
            std::str::from_utf8(body).map(str::to_owned).map_err(|error| {
                let detail = format!("the text is not UTF-8: {error}; save it as UTF-8");
                Refused::bad_request("not_utf8", detail)
            })
        }
        _ => Err(wrong_type(headers, "text/yaml or application/json")),
    }
}

fn malformed<T: DeserializeOwned>(error: &serde_json::Error, body: &[u8]) -> Refused {
    let text = match (error.is_data(), serde_json::from_slice::<Value>(body)) {
        (true, _) => error.to_string(),
        (false, Err(why)) => {
            let detail = format!("the body is not JSON: {why}");
            return Refused::bad_request("malformed_json", detail);
        }
        // Where only some words are taken, anything but text is called malformed although it is not.
        (false, Ok(value)) => match serde_json::from_value::<T>(value) {
            Err(why) => format!("{why} at line {} column {}", error.line(), error.column()),
            Ok(_) => error.to_string(),
        },
    };
    let code = if text.starts_with("unknown field") { "unknown_field" } else { "unexpected_json" };
    Refused::bad_request(code, format!("the JSON does not fit: {text}"))
}

/// The content type without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

fn wrong_type(headers: &HeaderMap, expected: &str) -> Refused {
    let found: String = media_type(headers).chars().take(64).collect();
    let found = if found.is_empty() { "none".to_owned() } else { format!("`{found}`") };
    let detail = format!("the content type must be {expected}, it is {found}; set the header");
    Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_content_type", detail)
}

/// The place where brackets nest too deeply. Looked for before parsing: recursion would come
/// too late to tell it from malformed text.
fn too_deep(json: &[u8], depth_max: usize) -> Option<(usize, usize)> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (place, byte) in json.iter().enumerate() {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    return Some(line_and_column(json, place));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn line_and_column(text: &[u8], place: usize) -> (usize, usize) {
    let before = &text[..place];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;
    use hyper::header::HeaderValue;
    use legwork_api::instances::StartRequest;
    use tokio::time::{Sleep, sleep};

    use super::*;

    fn parse(content_type: &'static str, body: &[u8]) -> Result<StartRequest> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        json(&headers, body, 64)
    }

    #[test]
    fn bodies_that_do_not_fit_are_refused_by_code_and_place() {
        for (content_type, body, code, detail) in [
            ("application/json", "{\n \"process\": }", "malformed_json", "line 2 column 13"),
            ("application/json", "", "malformed_json", "EOF"),
            ("application/json", "{\"process\":\"a\",\"dat\":1}", "unknown_field", "`dat`"),
            ("application/json", "{\"process\":1}", "unexpected_json", "expected a string"),
            ("application/json", "{\"version\":1}", "unexpected_json", "missing field `process`"),
            (
                "application/json",
                "{\"process\":\"a\",\n\"deadline\":{\"at\":\"2026-11-20T17:00:00Z\",\"unpromised\":true}}",
                "unexpected_json",
                "boolean `true`, expected string or map at line 2",
            ),
            (
                "application/json",
                "{\"process\":\"a\",\"deadline\":{\"at\":\"2026-11-20T17:00:00Z\",\"unpromised\":tru}}",
                "malformed_json",
                "expected ident",
            ),
            ("text/plain", "{\"process\":\"a\"}", "wrong_content_type", "`text/plain`"),
        ] {
            let refused = parse(content_type, body.as_bytes()).unwrap_err();
            assert_eq!(refused.code(), code, "{body}");
            assert!(format!("{refused:?}").contains(detail), "{refused:?}");
        }
        parse("application/json; charset=utf-8", b"{\"process\":\"a\"}").unwrap();
    }

    /// One byte every ten seconds.
    struct Dripping(Pin<Box<Sleep>>);

    impl Body for Dripping {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
            self.0.as_mut().poll(cx).map(|()| {
                self.0 = Box::pin(sleep(Duration::from_secs(10)));
                Some(Ok(Frame::data(Bytes::from_static(b"x"))))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_drop_by_drop_is_not_waited_for() {
        let begun = Instant::now();
        let dripping = Dripping(Box::pin(sleep(Duration::ZERO)));
        let refused = read(dripping, 1 << 20).await.unwrap_err();
        assert_eq!(refused.code(), "body_timeout");
        assert!(begun.elapsed() <= PATIENCE + Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[test]
    fn json_nests_to_the_limit_and_no_deeper() {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!("{{\"process\":\"[[[[\\\"[\",\n\"data\":{{\"x\":{open}{close}}}}}")
        };
        parse("application/json", nested(62).as_bytes()).unwrap();
        let refused = parse("application/json", nested(63).as_bytes()).unwrap_err();
        assert_eq!(refused.code(), "too_deep");
        assert!(format!("{refused:?}").contains("line 2, column 75"), "{refused:?}");
        let hostile = "[".repeat(1 << 20);
        assert_eq!(parse("application/json", hostile.as_bytes()).unwrap_err().code(), "too_deep");
    }
}
