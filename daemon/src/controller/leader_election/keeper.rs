//! One Lease of a cluster: taking it, renewing it, letting it go.

use std::time::Duration;

use fipd_core::Text;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::record::{Next, ObservedLease, RENEW, RETRY, Record, next};
use crate::controller::{
    client::{CallError, Patch, Remote, Target},
    kind::{LEASE, NAMESPACE},
};

/// For one call: a second one must fit in before the lease counts as lost.
const CALL: Duration = Duration::from_secs(4);

/// Why a lease is not ours yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Somebody else holds it.
    Held(Text),
    /// It cannot be read or written.
    Failed(String),
}

/// Why a lease is not ours any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    #[error("{0} holds it")]
    Taken(Text),
    #[error("it could not be renewed for {} s", RENEW.as_secs())]
    Expired,
}

/// Whoever wants or holds one Lease.
pub struct LeaseRenewer {
    remote: Remote,
    target: Target,
    me: Text,
    observed: ObservedLease,
    /// Of the object that `observed` is of.
    version: Option<String>,
    /// When the last write that succeeded began.
    renewed: Option<Duration>,
    epoch: Instant,
}

impl LeaseRenewer {
    pub fn new(remote: Remote, namespace: &str, name: &str, me: &Text) -> Self {
        let target = LEASE.named(namespace, name);
        Self {
            remote,
            target,
            me: Text::clone(me),
            observed: ObservedLease::default(),
            version: None,
            renewed: None,
            epoch: Instant::now(),
        }
    }

    pub fn name(&self) -> &str {
        &self.target.name
    }

    pub fn namespace(&self) -> &str {
        &self.target.namespace
    }

    /// Looks who has it.
    pub async fn watch(&mut self) {
        if let Err(error) = self.look().await {
            tracing::debug!(lease = self.name(), %error, "not seen");
        }
    }

    /// Tries until the lease is ours; `false`: cancelled. `tell` hears why it is not yet.
    pub async fn acquire(&mut self, cancel: &CancellationToken, tell: impl Fn(Waits)) -> bool {
        loop {
            match cancel.run_until_cancelled(self.attempt()).await {
                None => {
                    // A write that was cut off may have arrived.
                    self.release().await;
                    return false;
                }
                Some(Ok(None)) => return true,
                Some(Ok(Some(holder))) => tell(Waits::Held(holder)),
                Some(Err(error)) => tell(Waits::Failed(error.to_string())),
            }
            tokio::select! {
                () = cancel.cancelled() => return false,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// Renews the lease for as long as it is ours; why it is not any more.
    pub async fn keep(&mut self) -> Loss {
        loop {
            tokio::time::sleep(RETRY).await;
            let left = self.deadline().saturating_sub(self.now());
            match tokio::time::timeout(left, self.renew()).await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(holder))) => return Loss::Taken(holder),
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name(), %error, "not renewed; it is tried again");
                }
                Err(_) => {}
            }
            if self.now() >= self.deadline() {
                return Loss::Expired;
            }
        }
    }

    /// Lets go of the lease if it is ours, so that the next one need not wait.
    pub async fn release(&mut self) {
        if let Err(error) = self.try_release().await {
            tracing::warn!(lease = self.name(), %error, "not let go; others take it once it has expired");
        }
    }

    async fn try_release(&mut self) -> Result<(), CallError> {
        self.renewed = None;
        self.look().await?;
        match self.observed.record.clone() {
            Some(record) if record.holder == self.me => {
                self.write(record.released(jiff::Timestamp::now())).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// One look and what follows from it; who holds the lease instead.
    async fn attempt(&mut self) -> Result<Option<Text>, CallError> {
        self.look().await?;
        match next(&self.observed, &self.me, self.renewed, self.now()) {
            Next::Acquire | Next::Renew => self.take().await.map(|()| None),
            Next::Wait(_) | Next::Lost => {
                let record = self.observed.record.as_ref();
                Ok(record.map(|record| Text::clone(&record.holder)))
            }
        }
    }

    /// A renewal that begins without a look: nobody else writes what is ours.
    async fn renew(&mut self) -> Result<Option<Text>, CallError> {
        if self.version.is_some() {
            match self.take().await {
                Err(CallError::Conflict(..) | CallError::NotFound(_)) => {}
                other => return other.map(|()| None),
            }
        }
        self.attempt().await
    }

    async fn take(&mut self) -> Result<(), CallError> {
        let begun = self.now();
        let before = self.observed.record.as_ref();
        let record = Record::taken(before, &self.me, jiff::Timestamp::now());
        self.write(record).await?;
        self.renewed = Some(begun);
        Ok(())
    }

    async fn look(&mut self) -> Result<(), CallError> {
        let lease: Option<Lease> = self.call(self.remote.get(&self.target)).await?;
        self.version = lease
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.clone());
        let spec = |lease: Lease| Record::of(&lease.spec.unwrap_or_default());
        let now = self.now();
        self.observed.see(lease.map(spec), now);
        Ok(())
    }

    /// Writes the record unless somebody else has written meanwhile.
    async fn write(&mut self, record: Record) -> Result<(), CallError> {
        let written: Lease = match &self.version {
            Some(version) => {
                let body =
                    json!({ "metadata": { "resourceVersion": version }, "spec": record.spec() });
                let patch = self.remote.patch_seen(&self.target, Patch::Merge, &body);
                self.call(patch).await?
            }
            None => self.create(&record).await?,
        };
        self.version = written.metadata.resource_version;
        let now = self.now();
        self.observed.see(Some(record), now);
        Ok(())
    }

    /// The first lease of a site makes the namespace.
    async fn create(&self, record: &Record) -> Result<Lease, CallError> {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": self.target.name, "namespace": self.target.namespace },
            "spec": record.spec(),
        });
        let create = || self.call(self.remote.create_seen(&self.target, &body));
        match create().await {
            Err(CallError::NotFound(_)) => self.make_namespace().await?,
            other => return other,
        }
        create().await
    }

    async fn make_namespace(&self) -> Result<(), CallError> {
        let target = NAMESPACE.named("", &self.target.namespace);
        let body: Value = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": target.name },
        });
        match self.call(self.remote.create(&target, &body)).await {
            Err(CallError::Conflict(..)) => Ok(()),
            other => other,
        }
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        tokio::time::timeout(CALL, call).await.unwrap_or_else(|_| {
            let why = format!("no answer from the API server within {} s", CALL.as_secs());
            Err(CallError::Unavailable(self.target.to_string(), why))
        })
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn deadline(&self) -> Duration {
        self.renewed.map_or(Duration::ZERO, |at| at + RENEW)
    }
}
