//! A set of series and its last text.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::sync::Semaphore;

pub(super) struct Page {
    registry: Registry,
    /// One text at a time is made.
    pub rendering: Arc<Semaphore>,
    last: Mutex<Option<Arc<str>>>,
}

impl Page {
    pub fn new(registry: Registry) -> Arc<Self> {
        Arc::new(Self {
            registry,
            rendering: Arc::new(Semaphore::new(1)),
            last: Mutex::default(),
        })
    }

    /// The text of all series. While one is being made, which takes a walk over all leases and asks the disk,
    /// everybody else gets the last one.
    pub async fn text(self: &Arc<Self>) -> Arc<str> {
        let rendering = Arc::clone(&self.rendering);
        let last = || self.last.lock().clone();
        let permit = match (rendering.clone().try_acquire_owned(), last()) {
            (Err(_), Some(last)) => return last,
            (Err(_), None) => rendering.acquire_owned().await.ok(),
            (Ok(permit), _) => Some(permit),
        };
        let page = Arc::clone(self);
        let rendered = tokio::task::spawn_blocking(move || {
            let text: Arc<str> = page.render().into();
            *page.last.lock() = Some(Arc::clone(&text));
            drop(permit);
            text
        });
        match rendered.await {
            Ok(text) => text,
            Err(error) => {
                tracing::error!(%error, "metrics could not be written");
                last().unwrap_or_default()
            }
        }
    }

    fn render(&self) -> String {
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &self.registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        text
    }
}
