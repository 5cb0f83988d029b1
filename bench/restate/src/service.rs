//! The workloads as a Restate service, served to the peer as an HTTP/2 endpoint by its Rust SDK.
//!
//! Invariant: a case that returns has had every one of its steps made durable by the server.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use anyhow::Result;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use restate_sdk::hyper::HyperEndpoint;
use restate_sdk::prelude::*;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(crate) const STEPS_PER_CASE: usize = 10;

/// The endpoint while it serves; dropping it closes the listener.
pub(crate) struct Endpointed {
    pub(crate) address: SocketAddr,
    pub(crate) waiting: Arc<Waiting>,
    _stop: oneshot::Sender<()>,
}

/// Serves on a free loopback port, with room for `cases` waiting cases.
pub(crate) async fn serve(cases: usize) -> Result<Endpointed> {
    let waiting = Arc::new(Waiting::new(cases));
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let endpoint = Endpoint::builder().bind(Bench { waiting: Arc::clone(&waiting) }).build();
    tokio::spawn(accept(listener, HyperEndpoint::new(endpoint), stopped));
    Ok(Endpointed { address, waiting, _stop: stop })
}

/// Like the SDK's own server, except that small frames leave at once: with Nagle's algorithm they
/// would wait for the acknowledgement of the frame before.
async fn accept(listener: TcpListener, endpoint: HyperEndpoint, mut stop: oneshot::Receiver<()>) {
    loop {
        let stream = tokio::select! {
            Ok((stream, _)) = listener.accept() => stream,
            _ = &mut stop => return,
        };
        // Without it the stream still works, just slower.
        let _ = stream.set_nodelay(true);
        let connection = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), endpoint.clone());
        tokio::spawn(connection);
    }
}

type Step<'a> = Pin<Box<dyn Future<Output = Result<(), TerminalError>> + Send + 'a>>;

struct Bench {
    waiting: Arc<Waiting>,
}

#[service]
impl Bench {
    #[handler]
    async fn sequence(&self, ctx: Context<'_>) -> HandlerResult<()> {
        for _ in 0..STEPS_PER_CASE {
            ctx.run(|| async { Ok(()) }).await?;
        }
        Ok(())
    }

    #[handler]
    async fn fanout(&self, ctx: Context<'_>) -> HandlerResult<()> {
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(STEPS_PER_CASE);
        for _ in 0..STEPS_PER_CASE {
            steps.push(Box::pin(ctx.run(|| async { Ok(()) })));
        }
        // The SDK cannot join runs: one that waits looks at the journal only when new input comes
        // while it is the one being polled. But a single poll executes a no-op run and sends its
        // result to the server, which logs and acknowledges results in the order they were sent.
        // So each is polled once, all ten are in flight together, and the acknowledgement of the
        // last covers all of them.
        let Some(mut last) = steps.pop() else { return Ok(()) };
        poll_fn(|cx| {
            for step in &mut steps {
                let _ = step.as_mut().poll(cx);
            }
            Poll::Ready(())
        })
        .await;
        last.as_mut().await?;
        Ok(())
    }

    /// Waits with its stream to the service held open: the faster way to be woken.
    #[handler(inactivity_timeout = "1h")]
    async fn wait_attached(&self, ctx: Context<'_>, case: u64) -> HandlerResult<()> {
        self.wait(ctx, case).await
    }

    /// Waits suspended, that is without any stream: the smaller way to wait.
    #[handler(inactivity_timeout = "100ms")]
    async fn wait_suspended(&self, ctx: Context<'_>, case: u64) -> HandlerResult<()> {
        self.wait(ctx, case).await
    }
}

impl Bench {
    async fn wait(&self, ctx: Context<'_>, case: u64) -> HandlerResult<()> {
        let (id, decision) = ctx.awakeable::<String>();
        self.waiting.registered(case, id);
        decision.await?;
        self.waiting.finished();
        Ok(())
    }
}

/// The state that the waiting handlers share with the load generator, in the same process.
pub(crate) struct Waiting {
    ids: Mutex<Vec<Option<String>>>,
    registered: AtomicUsize,
    finished: AtomicUsize,
}

impl Waiting {
    fn new(cases: usize) -> Self {
        Self {
            ids: Mutex::new(vec![None; cases]),
            registered: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
        }
    }

    pub(crate) fn registered_count(&self) -> usize {
        self.registered.load(Ordering::Acquire)
    }

    pub(crate) fn finished_count(&self) -> usize {
        self.finished.load(Ordering::Acquire)
    }

    /// The awakeables to resolve, one for each case that waits.
    pub(crate) fn ids(&self) -> Vec<String> {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter().flatten().cloned().collect()
    }

    /// A resumed handler registers again with the same id and is not counted twice.
    fn registered(&self, case: u64, id: String) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = usize::try_from(case).ok().and_then(|case| ids.get_mut(case));
        if let Some(slot) = slot
            && slot.replace(id).is_none()
        {
            self.registered.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn finished(&self) {
        self.finished.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumed_case_is_registered_once() {
        let waiting = Waiting::new(2);
        waiting.registered(1, "sign_b".to_owned());
        waiting.registered(1, "sign_b".to_owned());
        waiting.registered(2, "sign_of_no_case".to_owned());
        assert_eq!(waiting.registered_count(), 1);
        assert_eq!(waiting.ids(), ["sign_b"]);
    }
}
