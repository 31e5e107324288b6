//! Watches that begin anew after each failure, and whose first list ends.
//!
//! kube's watcher asks for page after page as long as the server names another; a server that does so for ever would never let it
//! answer.

use std::{fmt::Debug, time::Duration};

use futures::{Stream, StreamExt as _, stream};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Config, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::answers::{PAGE, Unbounded};
use crate::backoff::Backoff;

/// Until all objects of a kind are listed.
pub(super) const LIST: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A watch of one kind.
pub struct Watch<K: Resource + 'static> {
    api: Api<K>,
    config: Config,
    events: stream::BoxStream<'static, watcher::Result<Event<K>>>,
    /// How long a list may take.
    most: Duration,
    /// When the list that is under way has to be complete.
    listing: Option<Instant>,
    pauses: Backoff,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType: Clone> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    pub fn new(api: Api<K>, config: Config) -> Self {
        let config = config.page_size(PAGE);
        let events = begin(&api, &config);
        Self {
            api,
            config,
            events,
            most: LIST,
            listing: Some(Instant::now() + LIST),
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    /// The next event, or what failed; the watch goes on after a pause then. May be cancelled.
    pub async fn next(&mut self) -> watcher::Result<Event<K>> {
        let event = match self.listing {
            Some(end) => match tokio::time::timeout_at(end, self.events.next()).await {
                Ok(event) => event,
                Err(_) => {
                    self.restart();
                    return Err(failed(format!(
                        "the list is not complete after {} s: the API server names page after page",
                        self.most.as_secs()
                    )));
                }
            },
            None => self.events.next().await,
        };
        match &event {
            Some(Ok(Event::Init)) => self.listing = Some(Instant::now() + self.most),
            Some(Ok(Event::InitDone)) => {
                self.listing = None;
                self.pauses.reset();
            }
            Some(Ok(Event::InitApply(_) | Event::Apply(_) | Event::Delete(_))) => {}
            Some(Err(error)) => {
                let page = self.config.page_size.unwrap_or(PAGE);
                // A watch that was under way goes on from where it was.
                let exceeded = self.listing.and_then(|_| Unbounded::of(error));
                match exceeded.and_then(|exceeded| exceeded.smaller_page(page)) {
                    Some(page) => self.by_pages_of(page),
                    // A list that failed begins with another Init, after kube's pause.
                    None => self.listing = None,
                }
            }
            None => self.restart(),
        }
        event.unwrap_or_else(|| Err(failed("the watch has ended".to_owned())))
    }

    /// Begins with a new list at once.
    fn by_pages_of(&mut self, page: u32) {
        self.config.page_size = Some(page);
        self.listing = Some(Instant::now() + self.most);
        self.events = begin(&self.api, &self.config);
    }

    /// Begins with a new list, after a pause: what came cannot be kept.
    pub fn restart(&mut self) {
        let (api, config, pause) = (self.api.clone(), self.config.clone(), self.pauses.pause());
        self.listing = Some(Instant::now() + pause + self.most);
        let events = async move {
            tokio::time::sleep(pause).await;
            begin(&api, &config)
        };
        self.events = stream::once(events).flatten().boxed();
    }

    pub fn into_stream(self) -> impl Stream<Item = watcher::Result<Event<K>>> + Send {
        stream::unfold(self, |mut watch| async {
            let event = watch.next().await;
            Some((event, watch))
        })
    }
}

fn begin<K>(api: &Api<K>, config: &Config) -> stream::BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api.clone(), config.clone())
        .default_backoff()
        .boxed()
}

fn failed(why: String) -> watcher::Error {
    watcher::Error::InitialListFailed(kube::Error::Service(why.into()))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
    };

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, client::Body};
    use parking_lot::Mutex;

    use super::*;
    use crate::clusters::{answers::Bounded, explain, memory::Memory};

    #[tokio::test]
    async fn pages_for_ever_end_and_the_watch_begins_anew() {
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let serve = move |_| {
            let page = count.fetch_add(1, Ordering::SeqCst);
            let list = serde_json::json!({
                "kind": "ConfigMapList", "apiVersion": "v1", "items": [],
                "metadata": { "resourceVersion": "1", "continue": page.to_string() },
            });
            async move {
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(http::Response::new(Body::from(
                    list.to_string().into_bytes(),
                )))
            }
        };
        let client = Client::new(tower::service_fn(serve), "default");
        let api: Api<ConfigMap> = Api::all(client);
        let mut watch = Watch::new(api, Config::default());
        watch.most = Duration::from_millis(200);
        watch.listing = Some(Instant::now() + watch.most);
        assert!(matches!(watch.next().await, Ok(Event::Init)));
        let error = watch.next().await.unwrap_err();
        let said = explain(&error);
        assert!(said.contains("names page after page"), "{said}");
        let pages = asked.load(Ordering::SeqCst);
        assert!(pages > 10, "it went on until then: {pages}");
        // Nothing is asked for during the pause.
        let idle = tokio::time::timeout(Duration::from_millis(100), watch.next()).await;
        assert!(idle.is_err());
        assert!(asked.load(Ordering::SeqCst) <= pages + 1);
    }

    #[tokio::test]
    async fn a_first_list_whose_pages_are_too_long_is_begun_again_by_smaller_ones() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        let serve = move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let limit = query
                .split('&')
                .find_map(|part| part.strip_prefix("limit="));
            let limit: Option<usize> = limit.and_then(|limit| limit.parse().ok());
            heard.lock().push(limit);
            let note = "x".repeat(limit.unwrap_or_default() * (300 << 10));
            let list = format!(
                r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[
                    {{"metadata":{{"name":"a","annotations":{{"note":"{note}"}}}}}}]}}"#
            );
            async { Ok::<_, Infallible>(http::Response::new(Body::from(list.into_bytes()))) }
        };
        let memory = Memory::default();
        let bounded = Bounded::new(tower::service_fn(serve), memory.clone());
        let api: Api<ConfigMap> = Api::all(Client::new(bounded, "default"));
        let mut watch = Watch::new(api, Config::default());
        let mut listed = Vec::new();
        let (mut failures, mut done) = (0, false);
        while !done {
            match watch.next().await {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => listed.extend(object.metadata.name),
                Ok(Event::InitDone) => done = true,
                Ok(Event::Apply(_) | Event::Delete(_)) => {}
                Err(_) => failures += 1,
            }
        }
        assert_eq!((listed, failures), (vec!["a".to_owned()], 2));
        let pages = asked.lock()[..3].to_vec();
        assert_eq!(pages, [Some(250), Some(125), Some(62)]);
    }
}
