//! Bounds on what an API server answers, below every client of a cluster: nothing is read past them.
//!
//! An answer has a greatest length and a deadline, a watch a greatest length of each line. What is being read is charged to the
//! [`Memory`] of the way to the cluster.

use std::{
    error::Error,
    iter,
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body, Bytes, Frame};
use kube::client::Body as Sent;
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, Service};

use super::memory::{Charge, Memory, OverBudget};

/// The longest answer, in bytes.
const ANSWER: usize = 32 << 20;
/// The longest line of a watch, in bytes. API servers take objects of 3 MiB at most.
const LINE: usize = 4 << 20;
/// Until an answer is there as a whole, or a watch has begun.
const DEADLINE: Duration = Duration::from_secs(30);

/// Objects per page of a list: each page costs a round trip.
pub const PAGE: u32 = 250;
/// The same where these take too much memory or time. Fifty of ten times the usual greatest size fit into an answer.
pub const SMALL_PAGE: u32 = 50;

/// Why an answer was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbounded {
    #[error("the answer is longer than {} MiB and was not read to its end", ANSWER >> 20)]
    Answer,
    #[error("a line of the watch is longer than {} MiB; the watch was ended", LINE >> 20)]
    Line,
    #[error("the answer was not there as a whole within {} s", DEADLINE.as_secs())]
    Late,
    #[error(transparent)]
    Memory(#[from] OverBudget),
}

impl Unbounded {
    /// The bound that a call exceeded, by its error and the causes of that.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut causes = iter::successors(Some(error), |&error| error.source());
        causes.find_map(|error| error.downcast_ref().copied())
    }

    /// How many objects to ask for in place of `page` of them; `None`: fewer would be no better.
    pub fn smaller_page(self, page: u32) -> Option<u32> {
        let least = match self {
            Self::Answer => 1,
            Self::Late | Self::Memory(_) => SMALL_PAGE,
            Self::Line => return None,
        };
        (page > least).then(|| least.max(page / 2))
    }
}

/// A service whose answers have bounds.
pub struct Bounded<S> {
    inner: S,
    memory: Memory,
}

impl<S> Bounded<S> {
    pub fn new(inner: S, memory: Memory) -> Self {
        Self { inner, memory }
    }
}

impl<S, B> Service<Request<Sent>> for Bounded<S>
where
    S: Service<Request<Sent>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let is_watch = request.uri().query().is_some_and(is_watch);
        let path: Box<str> = request.uri().path().into();
        let charge = self.memory.charge();
        let call = self.inner.call(request);
        Box::pin(async move {
            let end = Instant::now() + DEADLINE;
            let response = match timeout_at(end, call).await {
                Ok(response) => response.map_err(Into::into)?,
                Err(_) => return Err(Unbounded::Late.into()),
            };
            Ok(response.map(|body| {
                let reading = AnswerReader {
                    body,
                    path,
                    charge,
                    read: 0,
                    end: (!is_watch).then_some(end),
                };
                StreamBody::new(stream::try_unfold(reading, AnswerReader::next).boxed())
            }))
        })
    }
}

fn is_watch(query: &str) -> bool {
    let mut parts = query.split('&');
    parts.any(|part| matches!(part, "watch=true" | "watch=1"))
}

/// The body of an answer.
pub type Answer = StreamBody<BoxStream<'static, Result<Frame<Bytes>, BoxError>>>;

/// What has been read of an answer.
struct AnswerReader<B> {
    body: B,
    path: Box<str>,
    charge: Charge,
    /// Bytes read, of a watch those of the line that has not ended.
    read: usize,
    /// `None`: a watch.
    end: Option<Instant>,
}

impl<B> AnswerReader<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    async fn next(mut self) -> Result<Option<(Frame<Bytes>, Self)>, BoxError> {
        let next = match self.end {
            Some(end) => timeout_at(end, self.body.frame()).await,
            None => Ok(self.body.frame().await),
        };
        let next = next.map_err(|_| self.refused(Unbounded::Late))?;
        let Some(frame) = next.transpose().map_err(Into::into)? else {
            return Ok(None);
        };
        if let Some(bytes) = frame.data_ref() {
            self.take(bytes).map_err(|why| self.refused(why))?;
        }
        Ok(Some((frame, self)))
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Unbounded> {
        if self.end.is_some() {
            self.read = self.read.saturating_add(bytes.len());
            if self.read > ANSWER {
                return Err(Unbounded::Answer);
            }
        } else {
            let first = bytes.iter().position(|byte| *byte == b'\n');
            if self.read.saturating_add(first.unwrap_or(bytes.len())) > LINE {
                return Err(Unbounded::Line);
            }
            let last = bytes.iter().rposition(|byte| *byte == b'\n');
            self.read = match last {
                Some(last) => bytes.len() - last - 1,
                None => self.read + bytes.len(),
            };
        }
        Ok(self.charge.set(self.read)?)
    }

    /// The rest is not read: the connection is closed with the body.
    fn refused(&self, why: Unbounded) -> BoxError {
        self.charge
            .memory()
            .refused(format!("{}: {why}", self.path));
        why.into()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::TryStreamExt as _;
    use k8s_openapi::api::core::v1::{ConfigMap, Service as Svc};
    use kube::{
        Api, Client,
        api::{ListParams, WatchParams},
    };

    use super::*;
    use crate::clusters::explain;

    type Frames = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

    /// Endless where nobody stops reading.
    fn endless(begin: &'static str, more: &'static str) -> Frames {
        let more = Bytes::from(more.repeat((64 << 10) / more.len()));
        let frames = stream::once(async move { Bytes::from(begin) }).chain(stream::repeat(more));
        StreamBody::new(frames.map(|bytes| Ok(Frame::data(bytes))).boxed())
    }

    fn client(memory: &Memory, answer: impl Fn() -> Frames + Send + 'static) -> Client {
        let serve = move |_| std::future::ready(Ok::<_, Infallible>(Response::new(answer())));
        let bounded = Bounded::new(tower::service_fn(serve), memory.clone());
        Client::new(bounded, "default")
    }

    #[tokio::test]
    async fn an_endless_answer_is_cut_and_says_so() {
        let memory = Memory::default();
        let client = client(&memory, || endless("{\"items\":[\"", "x"));
        let api: Api<ConfigMap> = Api::all(client);
        let error = api.list(&ListParams::default()).await.unwrap_err();
        let said = explain(&error);
        assert!(said.contains("the answer is longer than 32 MiB"), "{said}");
        let trouble = memory.trouble().unwrap();
        assert!(trouble.starts_with("/api/v1/configmaps: "), "{trouble}");
    }

    #[tokio::test]
    async fn an_endless_line_ends_its_watch() {
        let memory = Memory::default();
        let client = client(&memory, || endless("{\"type\":\"", "x"));
        let api: Api<Svc> = Api::all(client);
        let events = api.watch(&WatchParams::default(), "1").await.unwrap();
        let error = Box::pin(events).try_next().await.unwrap_err();
        let said = explain(&error);
        assert!(
            said.contains("a line of the watch is longer than 4 MiB"),
            "{said}"
        );
        assert!(memory.trouble().is_some());
    }

    #[tokio::test]
    async fn a_watch_may_be_as_long_as_its_lines_are_short() {
        const EVENT: &str = concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"1"}}}"#,
            "\n"
        );
        let memory = Memory::default();
        let client = client(&memory, || endless(EVENT, EVENT));
        let api: Api<Svc> = Api::all(client);
        let events = api.watch(&WatchParams::default(), "1").await.unwrap();
        let wanted = ANSWER / EVENT.len() + 10;
        let seen = Box::pin(events.into_stream()).take(wanted).count().await;
        assert_eq!(seen, wanted, "more than an answer may have");
        assert_eq!(memory.trouble(), None);
    }

    #[tokio::test]
    async fn a_cluster_without_memory_fails_alone() {
        let (hog, other) = (Memory::default(), Memory::default());
        let mut all = hog.charge();
        while all.add(1 << 20).is_ok() {}
        let list = || {
            let text = format!("{{\"items\":[],\"pad\":\"{}\"}}", "x".repeat(2 << 20));
            let frame = Ok(Frame::data(Bytes::from(text)));
            StreamBody::new(stream::iter([frame]).boxed())
        };
        let api: Api<ConfigMap> = Api::all(client(&hog, list));
        let error = api.list(&ListParams::default()).await.unwrap_err();
        assert!(explain(&error).contains("more memory than the 8 MiB"));
        let api: Api<ConfigMap> = Api::all(client(&other, list));
        // It is read as a whole, and has no metadata.
        let error = api.list(&ListParams::default()).await.err();
        let read = error.is_none_or(|error| !explain(&error).contains("memory"));
        assert!(read && other.trouble().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_its_client_wait_for_ever_does_not() {
        let serve = |_| {
            let busy = Response::builder().status(429);
            let busy = busy.header("retry-after", "1000000000");
            std::future::ready(Ok::<_, BoxError>(busy.body(Sent::empty()).unwrap()))
        };
        let retry = tower::retry::RetryLayer::new(kube::client::retry::RetryPolicy::server_retry());
        let retried = tower::ServiceBuilder::new().layer(retry);
        let retried = retried.service(tower::service_fn(serve));
        let bounded = Bounded::new(retried, Memory::default());
        let api: Api<Svc> = Api::all(Client::new(bounded, "default"));
        let watch = api.watch(&WatchParams::default(), "1").await;
        let said = explain(&watch.err().unwrap());
        assert!(said.contains("within 30 s"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_trickles_has_a_deadline() {
        let memory = Memory::default();
        let client = client(&memory, || {
            let drops = stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
            });
            StreamBody::new(drops.boxed())
        });
        let began = Instant::now();
        let api: Api<ConfigMap> = Api::all(client);
        let error = api.list(&ListParams::default()).await.unwrap_err();
        assert!(explain(&error).contains("within 30 s"), "{error}");
        assert_eq!(began.elapsed().as_secs(), DEADLINE.as_secs());
    }
}
