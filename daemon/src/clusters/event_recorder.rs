//! Writes Kubernetes Events.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, Recorder, Reporter},
};

/// Writes each Event as an object of its own.
///
/// A [`Recorder`] treats an Event as a repeat if object and reason are those of an earlier one: it raises a count and keeps the
/// old text, so that a second mistake of a kind would never be shown. Callers do not repeat themselves.
#[derive(Clone)]
pub struct EventRecorder {
    client: Client,
    reporter: Reporter,
}

impl EventRecorder {
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter }
    }

    pub async fn publish(
        &self,
        event: &Event,
        object: &ObjectReference,
    ) -> Result<(), kube::Error> {
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        recorder.publish(event, object).await
    }
}
