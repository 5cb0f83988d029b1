//! An HTTP/1.1 client with exactly one keep-alive connection to a loopback address.
//!
//! Invariant: a call ends within its time limit, and every answer other than 2xx is an error with
//! the server's message, so no figure counts a failed call.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
const CALL_TIME_MAX: Duration = Duration::from_secs(60);
const QUOTED_CHARS_MAX: usize = 500;

/// One client of the closed loop: one connection, one call at a time.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        ensure!(address.ip().is_loopback(), "{address} is not a loopback address");
        let stream = timeout(CONNECT_TIME_MAX, TcpStream::connect(address))
            .await
            .with_context(|| format!("no connection to {address} within {CONNECT_TIME_MAX:?}"))?
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // A broken connection shows up as an error of the call that uses it.
        tokio::spawn(connection);
        Ok(Self { sender, host: HeaderValue::from_str(&address.to_string())? })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Bytes> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// Sends a JSON body, or none at all if `body` is empty.
    pub(crate) async fn post(&mut self, path: &str, body: Bytes) -> Result<Bytes> {
        self.call(Method::POST, path, body).await
    }

    async fn call(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        timeout(CALL_TIME_MAX, self.exchange(method, path, body))
            .await
            .with_context(|| format!("no answer to {path} within {CALL_TIME_MAX:?}"))?
    }

    async fn exchange(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.host);
        if !body.is_empty() {
            request = request
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .header(ACCEPT, HeaderValue::from_static("application/json"));
        }
        self.sender.ready().await?;
        let answer = self.sender.send_request(request.body(Full::new(body))?).await?;
        let status = answer.status();
        let content = answer.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            let quoted: String =
                String::from_utf8_lossy(&content).chars().take(QUOTED_CHARS_MAX).collect();
            bail!("{path} answered {status}: {quoted}");
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn refusal_of_the_server_is_an_error_that_quotes_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 7\r\n\r\nno such";
            stream.write_all(answer).await.unwrap();
        });
        let mut client = Client::connect(address).await.unwrap();
        let error = client.post("/Bench/none", Bytes::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "/Bench/none answered 404 Not Found: no such");
    }

    #[tokio::test]
    async fn address_beyond_this_machine_is_refused() {
        let address = "192.0.2.1:80".parse().unwrap();
        assert!(Client::connect(address).await.is_err());
    }
}
