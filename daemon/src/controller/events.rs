//! Kubernetes Events of fipd: written off the path of any reconcile, each (object, reason, text) once in a
//! while only. Losing one is no failure.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{clusters::EventRecorder, controller::client::DEADLINE};

/// The same thing is said of the same object again after this time at the earliest.
const AGAIN: Duration = Duration::from_secs(600);
/// How many sayings are remembered; beyond it the oldest are forgotten.
const REMEMBERED: usize = 4096;
/// How many Events may wait to be written; beyond it they are dropped.
const WAITING: usize = 8192;

/// Says things of the objects of one cluster.
pub struct Events {
    sender: mpsc::Sender<(Event, ObjectReference)>,
    said: Mutex<BTreeMap<EventKey, Instant>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct EventKey {
    uid: String,
    reason: &'static str,
    note: String,
}

impl Events {
    /// Starts the writer, which ends with `cancel`. `idle` is waited for before each Event, so that
    /// writing them never competes with what users wait for.
    pub fn start<F>(
        recorder: EventRecorder,
        cancel: CancellationToken,
        idle: impl Fn() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let (sender, mut receiver) = mpsc::channel::<(Event, ObjectReference)>(WAITING);
        tokio::spawn(async move {
            while let Some(Some((event, object))) =
                cancel.run_until_cancelled(receiver.recv()).await
            {
                idle().await;
                match tokio::time::timeout(DEADLINE, recorder.publish(&event, &object)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::debug!(%error, reason = event.reason, "an Event was not written")
                    }
                    Err(_) => {
                        tracing::debug!(reason = event.reason, "an Event was not written in time")
                    }
                }
            }
        });
        Self {
            sender,
            said: Mutex::new(BTreeMap::new()),
        }
    }

    /// Something went as it should.
    pub fn normal(&self, object: &ObjectReference, reason: &'static str, note: impl Into<String>) {
        self.say(EventType::Normal, object, reason, note.into());
    }

    /// Somebody should look.
    pub fn warning(&self, object: &ObjectReference, reason: &'static str, note: impl Into<String>) {
        self.say(EventType::Warning, object, reason, note.into());
    }

    fn say(
        &self,
        type_: EventType,
        object: &ObjectReference,
        reason: &'static str,
        mut note: String,
    ) {
        // The API refuses longer notes.
        note.truncate(note.floor_char_boundary(1024));
        let key_of_event = EventKey {
            uid: object.uid.clone().unwrap_or_default(),
            reason,
            note: note.clone(),
        };
        if !self.is_due(key_of_event) {
            return;
        }
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(note),
            action: "Reconcile".into(),
            secondary: None,
        };
        if self.sender.try_send((event, object.clone())).is_err() {
            tracing::debug!(reason, "too many Events are waiting; one was dropped");
        }
    }

    /// Of which objects (by UID) something was said, and the reasons.
    #[cfg(test)]
    pub fn said(&self) -> Vec<(String, &'static str)> {
        let said = self.said.lock();
        said.keys()
            .map(|one| (one.uid.clone(), one.reason))
            .collect()
    }

    fn is_due(&self, key_of_event: EventKey) -> bool {
        let now = Instant::now();
        let mut said = self.said.lock();
        if said
            .get(&key_of_event)
            .is_some_and(|last| now.duration_since(*last) < AGAIN)
        {
            return false;
        }
        if said.len() >= REMEMBERED {
            said.retain(|_, last| now.duration_since(*last) < AGAIN);
        }
        if said.len() >= REMEMBERED {
            said.clear();
        }
        said.insert(key_of_event, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_is_said_once_until_time_passes() {
        let (sender, mut receiver) = mpsc::channel(8);
        let events = Events {
            sender,
            said: Mutex::new(BTreeMap::new()),
        };
        let object = ObjectReference {
            uid: Some("u".into()),
            ..ObjectReference::default()
        };
        events.warning(&object, "Full", "no address");
        events.warning(&object, "Full", "no address");
        events.warning(&object, "Full", "still no address");
        tokio::time::advance(AGAIN).await;
        events.normal(&object, "Full", "no address");
        let mut said = 0;
        while receiver.try_recv().is_ok() {
            said += 1;
        }
        assert_eq!(said, 3);
    }

    #[tokio::test]
    async fn long_texts_are_cut_at_a_character() {
        let (sender, mut receiver) = mpsc::channel(8);
        let said = Mutex::default();
        let text = format!("x{}", "ä".repeat(600));
        Events { sender, said }.warning(&ObjectReference::default(), "Long", text);
        let (event, _) = receiver.try_recv().unwrap();
        assert_eq!(event.note.unwrap().len(), 1023);
    }
}
