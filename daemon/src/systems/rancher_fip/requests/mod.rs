//! What the stock LB controller of a downstream cluster asks for through [`crate::api::fip_v1`].
//!
//! ```text
//!  claim --authorize--> asker --known (fresh list)--> decide --> create | attach --> address book --> answer
//! ```
//!
//! The objects are read after each call was made, under a lock of the project: no step waits for a watch. Calls that wait for
//! their turn share one reading. The address book is asked here, for the object as its holder, so that the answer is durable;
//! the FloatingIP controller only shows it.

mod authorize;
mod decide;
mod give;
mod list;
mod release;
mod turn;

use std::{collections::BTreeMap, future::Future, net::IpAddr, sync::Arc, time::Instant};

use fipd_core::{Action, Holder, NetworkId, System, Text};
use fipd_crds::{
    floating_ip::FloatingIP,
    labels::{RELEASED_BY, services},
};
use futures::future::BoxFuture;
use http::StatusCode;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    floating_ip::observe,
    names::{self, KIND_FLOATING_IP, PROJECT},
    rancher::{Data, Ranchers},
};
use crate::{
    controller::{
        client::{CallError, Patch, Target},
        merge_patch::diff,
        store::Key,
    },
    fip_v1::{Asker, Claim, Denied, FipRelease, FloatingIps, Given, PoolFigures, Row, Wish},
    ipam::Ipam,
    systems::rancher_fip::kinds::FLOATING_IP,
};
use authorize::HostsOfGuests;
use decide::Known;
use turn::{Reading, Turn, TurnKey, Turns};

/// How often a change that somebody else made meanwhile is answered by looking again.
const TRIES: usize = 5;

/// The right to change what a project has.
type ProjectTurn = Turn<Vec<Known>>;

/// Decides for all management clusters.
#[derive(Clone)]
pub struct Requests {
    ranchers: Ranchers,
    ipam: Ipam,
    /// One call of a project at a time, with its FloatingIPs.
    turns: Turns<Vec<Known>>,
    /// Reads of a project's Secret.
    secrets: Turns<Result<Option<Secret>, Denied>>,
    hosts: Arc<HostsOfGuests>,
}

/// One call of an LB controller, and the management cluster that it is about.
struct ProjectCall {
    all: Requests,
    data: Arc<Data>,
    asker: Asker,
}

impl Requests {
    pub fn new(ranchers: Ranchers, ipam: Ipam) -> Self {
        Self {
            ranchers,
            ipam,
            turns: Turns::default(),
            secrets: Turns::default(),
            hosts: Arc::default(),
        }
    }

    /// A call in the cluster where fipd decides it.
    fn call(&self, asker: Asker) -> Result<ProjectCall, Denied> {
        let data = self.ranchers.get(&asker.management).data();
        let data = data.filter(|data| data.leads());
        Ok(ProjectCall {
            data: data.ok_or_else(Denied::elsewhere)?,
            all: self.clone(),
            asker,
        })
    }

    /// Decides in the project's turn, to the end though nobody may wait for it: what was written in vain is taken back
    /// before the next has its turn.
    async fn decided<T, F>(
        &self,
        asker: Asker,
        decide: impl FnOnce(ProjectCall, ProjectTurn) -> F + Send,
    ) -> Result<T, Denied>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Denied>> + Send + 'static,
    {
        let call = self.call(asker)?;
        let (data, whose) = (Arc::clone(&call.data), call.asker.clone());
        let turn = while_leading(&data, async { Ok(self.turns.next(whose.turn()).await) }).await?;
        let decided = decide(call, turn);
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            if let Err(said) = tell.send(decided.await) {
                let why = said.err().map(|denied| denied.message);
                tracing::warn!(
                    project = whose.project,
                    cluster = whose.cluster,
                    why,
                    "an LB controller was not told in time what was decided"
                );
            }
        });
        let told = async { told.await.unwrap_or_else(|_| Err(Denied::late())) };
        while_leading(&data, told).await
    }
}

impl ProjectCall {
    /// The project's FloatingIPs, as they are or as they were when the call that has its turn was made.
    async fn known(&self, turn: &mut ProjectTurn) -> Result<Reading<Vec<Known>>, Denied> {
        if let Some(mut reading) = turn.take() {
            for one in &mut reading.what {
                self.consult(one);
            }
            return Ok(reading);
        }
        let at = Instant::now();
        let what = self.read().await?;
        Ok(Reading { at, what })
    }

    /// The project's FloatingIPs as they are.
    async fn read(&self) -> Result<Vec<Known>, Denied> {
        if !self.data.leads() {
            return Err(Denied::elsewhere());
        }
        let label = format!("{PROJECT}%3D{}", self.asker.project);
        let keep = |object| Some(self.look(serde_json::from_value(object).ok()?));
        let (remote, all) = (&self.data.remote, self.target(""));
        let objects = remote.list_kept(&all, &label, keep).await;
        objects.map_err(|error| failed(&error))
    }

    fn look(&self, object: FloatingIP) -> Known {
        let name: Text = object.metadata.name.clone().unwrap_or_default().into();
        let labels = object.metadata.labels.clone().unwrap_or_default();
        let left = object.annotations().get(RELEASED_BY).cloned();
        let mut known = Known {
            name,
            labels,
            fip: observe::view(object),
            network: None,
            address: None,
            held: false,
            contended: false,
            left: left.unwrap_or_default(),
        };
        self.consult(&mut known);
        known
    }

    /// What the address book says of the object.
    fn consult(&self, known: &mut Known) {
        let identity = self.holder(known).identity;
        let leases = self.all.ipam.read(|ledger| ledger.addresses_of(&identity));
        let lease = leases.first();
        let held = lease.map(|lease| lease.key.address);
        known.address = held.or_else(|| known.fip.shown());
        known.held = held.is_some();
        known.contended = lease.is_some_and(|lease| !lease.contenders.is_empty());
        known.network = self.network(&known.fip.pool);
    }

    /// The network of a pool, once it is mirrored.
    fn network(&self, pool: &str) -> Option<NetworkId> {
        self.all.ipam.read(|ledger| {
            let pool = ledger.mirror(&System::rancher_fip(), &self.data.cluster, pool)?;
            Some(pool.spec.network)
        })
    }

    /// Gives an object these labels, and the note who left it; `None`: somebody changed it since it was read.
    async fn relabel(
        &self,
        one: &Known,
        after: &BTreeMap<String, String>,
        left: &str,
    ) -> Result<Option<Known>, Denied> {
        let labels = diff(&json!(one.labels), &json!(after)).unwrap_or_else(|| json!({}));
        let mut patch = json!({ "metadata": {
            "uid": &*one.fip.meta.uid, "resourceVersion": one.fip.meta.version, "labels": labels,
        } });
        if left != one.left {
            patch["metadata"]["annotations"] = json!({ RELEASED_BY: left });
        }
        let (remote, target) = (&self.data.remote, self.target(&one.name));
        match remote.patch_seen(&target, Patch::Merge, &patch).await {
            Ok(object) => {
                let now = self.look(object);
                self.note(&now).await;
                Ok(Some(now))
            }
            Err(CallError::Conflict(..) | CallError::NotFound(_)) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Has it in the audit log who uses an object now.
    async fn note(&self, one: &Known) {
        let Self { all, data, asker } = self;
        let users = services(&one.labels).into_iter();
        let users: Vec<String> = users
            .map(|user| format!("{}/{}", user.namespace, user.name))
            .collect();
        let users = match &*users {
            [] => "no Service".to_owned(),
            users => format!("Services {} of {}", users.join(", "), asker.cluster),
        };
        let address = one.address.map(|address| format!(" ({address})"));
        let what = format!(
            "{}: FloatingIP {}/{}{} is used by {users}",
            data.cluster.0,
            asker.namespace,
            one.name,
            address.unwrap_or_default()
        );
        let noted = (all.ipam).note(Action::ServicesChanged, what, self.actor());
        if let Err(error) = noted.await {
            tracing::warn!(%error, name = &*one.name, "who uses a FloatingIP is not in the audit log");
        }
    }

    /// The project's FloatingIP of this name; without one, all in its namespace.
    fn target(&self, name: &str) -> Target {
        FLOATING_IP.named(&self.asker.namespace, name)
    }

    /// The holder of what the object has.
    fn holder(&self, one: &Known) -> Holder {
        let key = Key::new(&self.asker.namespace, &one.name);
        let uid = Text::clone(&one.fip.meta.uid);
        names::holder(&self.data.cluster, KIND_FLOATING_IP, &key, uid)
    }

    /// Who asks, for the audit log.
    fn actor(&self) -> Text {
        format!("fip-v1:{}/{}", self.asker.project, self.asker.cluster).into()
    }
}

impl Reading<Vec<Known>> {
    /// With what this call made of some.
    fn with(mut self, changed: impl IntoIterator<Item = Known>) -> Self {
        for one in changed {
            self.what.retain(|other| other.name != one.name);
            self.what.push(one);
        }
        self
    }
}

impl FloatingIps for Requests {
    fn authorize<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Asker, Denied>> {
        Box::pin(self.verified(claim))
    }

    fn request(&self, asker: Asker, wish: Wish) -> BoxFuture<'_, Result<Given, Denied>> {
        Box::pin(self.decided(asker, |call, mut turn| async move {
            call.give(&wish, &mut turn).await
        }))
    }

    fn release(&self, asker: Asker, fip_release: FipRelease) -> BoxFuture<'_, Result<(), Denied>> {
        Box::pin(self.decided(asker, |call, mut turn| async move {
            call.release_fip(&fip_release, &mut turn).await
        }))
    }

    fn delete(&self, asker: Asker, address: IpAddr) -> BoxFuture<'_, Result<(), Denied>> {
        Box::pin(self.decided(asker, move |call, mut turn| async move {
            call.give_back(address, &mut turn).await
        }))
    }

    fn list(&self, asker: Asker) -> BoxFuture<'_, Result<Vec<Row>, Denied>> {
        Box::pin(async move {
            let call = self.call(asker)?;
            let known = while_leading(&call.data, call.read()).await?;
            Ok(list::rows(&call.asker, &known))
        })
    }

    fn figures(&self) -> Result<BTreeMap<String, PoolFigures>, Denied> {
        let all = self.ranchers.leading();
        if all.is_empty() {
            return Err(Denied::elsewhere());
        }
        let pools = all.iter();
        Ok(pools
            .flat_map(|(_, data)| list::pools(&self.ipam, data))
            .collect())
    }

    fn not_leading(&self) -> usize {
        self.ranchers.not_leading()
    }
}

impl Asker {
    fn turn(&self) -> TurnKey {
        (Text::clone(&self.management), self.project.clone())
    }
}

/// An API server did not do what it was asked. What a webhook denied the client must hear; the rest is for the log.
fn failed(error: &CallError) -> Denied {
    tracing::warn!(%error, "a request of an LB controller failed in the management cluster");
    match error {
        CallError::Unavailable(..) => Denied::late(),
        CallError::Rejected(_, why) if why.contains("denied the request") => {
            Denied::new(StatusCode::INTERNAL_SERVER_ERROR, why)
        }
        CallError::NotFound(_) | CallError::Conflict(..) | CallError::Rejected(..) => {
            let message = "the management cluster did not do it; the log of fipd says why";
            Denied::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

/// Waits no longer when somebody else may lead there. What is committed by then is found when the client asks again.
async fn while_leading<T>(
    data: &Data,
    call: impl Future<Output = Result<T, Denied>>,
) -> Result<T, Denied> {
    tokio::select! {
        biased;
        () = data.deposed() => Err(Denied::elsewhere()),
        said = call => said,
    }
}

#[cfg(test)]
mod tests;
