//! AddressClaims: each gets the address it names or one of its pool, and shows it. No error is final: whatever a claim
//! waits for wakes it.

pub mod adopt;
pub mod observe;
pub mod plan;
pub mod pools;
pub mod status;

use std::sync::Arc;

use fipd_core::{
    Answer, Holder, Identity, Ledger, NetworkId, Release, ReleaseScope, Request, Text,
};
use fipd_crds::fipd_io::AddressClaim;
use k8s_openapi::{api::core::v1::ObjectReference, jiff};
use kube::Resource;
use serde_json::json;

use super::{
    API,
    names::{self, FINALIZER, KIND_CLAIM},
};
use crate::{
    config::PoolFacts,
    controller::{
        Trouble,
        client::{Patch, Remote, Target},
        conflict::CONFLICT,
        events::Events,
        merge::change,
        queue::{Next, Queue},
        site::Site,
        store::{Key, Malformed, Objects, Seen},
        unserved::{Problem, refused},
        waiters::{News, Wakes},
    },
    ipam::IpamError,
};
use observe::Claim;
use plan::{Asker, Plan};
use pools::{Place, Wish};
use status::{Outcome, Shown};

/// The controller of all claims of a cluster.
pub struct Claims {
    site: Arc<Site>,
    remote: Remote,
    events: Arc<Events>,
    wakes: Wakes,
    pub objects: Arc<Objects<Claim>>,
    pub queue: Arc<Queue<Key>>,
}

impl Claims {
    pub fn new(
        site: Arc<Site>,
        remote: Remote,
        events: Arc<Events>,
        queue: Arc<Queue<Key>>,
    ) -> Arc<Self> {
        let wakes = Wakes::new(site.system.clone(), site.id.clone(), KIND_CLAIM);
        Arc::new(Self {
            site,
            remote,
            events,
            wakes,
            objects: Objects::new(),
            queue,
        })
    }

    /// Queues the claims that a change of the ledger concerns. An edit of a pool may change what any claim shows.
    pub fn heard(&self, ledger: &Ledger, news: &News<'_>) {
        let (woken, edited) = self.wakes.heard(ledger, news);
        for key in woken {
            self.queue.add(key);
        }
        if edited {
            let keys = self.objects.keys();
            keys.into_iter().for_each(|key| self.queue.add(key));
        }
    }

    /// Brings one claim up to date.
    pub async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        match self.try_reconcile(&key).await {
            Ok(next) => next,
            Err(trouble) => trouble.next(KIND_CLAIM, &key),
        }
    }

    async fn try_reconcile(&self, key: &Key) -> Result<Next, Trouble> {
        match self.objects.seen(key) {
            None => Ok(self.gone(key)),
            Some(Seen::Malformed(object)) => self.malformed(key, &object).await,
            Some(Seen::Good(claim)) if claim.terminating => {
                self.let_go(key, &claim.uid, &claim.finalizers).await
            }
            Some(Seen::Good(claim)) => self.serve(key, &claim).await,
        }
    }

    /// There is no such object: a lease that it left waits for the sweep of the cluster, which may look at once.
    fn gone(&self, key: &Key) -> Next {
        self.wakes.wait(key, None);
        let identity = self.identity(key);
        self.site.ipam.forget_waiter(&identity);
        let left = self.site.ipam.read(|ledger| {
            !ledger.leases_of(&identity).is_empty() || !ledger.contentions_of(&identity).is_empty()
        });
        if left {
            self.site.session.suspect();
        }
        Next::Done
    }

    async fn serve(&self, key: &Key, claim: &Claim) -> Result<Next, Trouble> {
        let asker = Asker {
            holder: self.holder(key, &claim.uid),
            tenant: names::tenant(&self.site.name, &key.namespace),
            created: claim.created,
            actor: self.site.actor(),
        };
        let place = Place {
            cluster: &self.site.id,
            namespace: &key.namespace,
            settings: &self.site.session.settings.claims,
        };
        let wish = self
            .site
            .ipam
            .read(|ledger| pools::wish(ledger, &place, &claim.spec));
        let network = wish.as_ref().ok().map(|wish| wish.pool.spec.network);
        if let Ok(wish) = &wish {
            self.expected(wish).await?;
        }
        let outcome = match self
            .site
            .ipam
            .read(|ledger| plan::plan(ledger, &asker, wish))
        {
            Plan::Show(shown) => {
                self.protect(key, claim).await?;
                Ok(shown)
            }
            Plan::Problem(problem) => Err(problem),
            Plan::Ask(request) => {
                self.protect(key, claim).await?;
                self.ask(*request, network.unwrap_or(NetworkId::DEFAULT))
                    .await?
            }
        };
        self.show(key, claim, outcome).await
    }

    /// A network gives to this cluster only once it has adopted it: it must know that it waits for it.
    async fn expected(&self, wish: &Wish) -> Result<(), Trouble> {
        let network = wish.pool.spec.network;
        let session = &self.site.session;
        if session.networks(&self.site.system).contains(&network) {
            return Ok(());
        }
        let name = self
            .site
            .ipam
            .read(|ledger| ledger.network(network).map(|network| network.name.clone()));
        let facts = PoolFacts {
            cluster: &session.names,
            system: &self.site.system,
            namespace: None,
            interface: None,
            vlan: None,
            pool: &wish.pool.spec.name,
            annotation: name.as_deref(),
        };
        let found = session.network_of(&facts).await;
        found
            .map(drop)
            .map_err(|error| Trouble::internal(error.to_string()))
    }

    /// The finalizer comes before the address, so that no claim goes without giving back. Taken off by hand, it comes
    /// back.
    async fn protect(&self, key: &Key, claim: &Claim) -> Result<(), Trouble> {
        if claim.has_finalizer() {
            return Ok(());
        }
        // A merge patch replaces the whole list, so it must be the list that was read.
        let mut finalizers = claim.finalizers.clone();
        finalizers.push(FINALIZER.into());
        let patch = json!({ "metadata": {
            "uid": &*claim.uid, "resourceVersion": claim.version, "finalizers": finalizers,
        } });
        self.remote
            .patch(&target(key), Patch::Merge, &patch)
            .await?;
        Ok(())
    }

    async fn ask(&self, request: Request, network: NetworkId) -> Result<Outcome, Trouble> {
        let lease = match self.site.ipam.submit(request).await {
            Ok(Answer::Granted { leases, .. }) => leases
                .into_iter()
                .next()
                .ok_or_else(|| Trouble::internal("an allocation without lease"))?,
            Ok(Answer::Adopted { lease }) => lease,
            Ok(Answer::Contended { lease }) => return Ok(Err(plan::contended(&lease))),
            Ok(other) => return Err(Trouble::unexpected(&other)),
            Err(IpamError::Refused(refusal)) => return Ok(Err(refused(&refusal, network))),
            Err(error) => return Err(error.into()),
        };
        Ok(Ok(self.site.ipam.read(|ledger| Shown::of(ledger, &lease))))
    }

    /// Writes the status, once for each change.
    async fn show(&self, key: &Key, claim: &Claim, outcome: Outcome) -> Result<Next, Trouble> {
        let cause = outcome
            .as_ref()
            .err()
            .and_then(|problem| problem.cause.clone());
        if self.wakes.wait(key, cause.clone()) {
            self.site.ipam.forget_waiter(&self.identity(key));
        }
        let after = status::desired(claim, &outcome, jiff::Timestamp::now());
        let patch =
            change(&claim.status, &after).map_err(|error| Trouble::internal(error.to_string()))?;
        if let Some(patch) = patch {
            let body = json!({ "metadata": { "uid": &*claim.uid }, "status": patch });
            self.remote
                .patch_status(&target(key), Patch::Merge, &body)
                .await?;
        }
        self.tell(key, claim, &outcome);
        Ok(cause.map_or(Next::Done, |cause| Next::After(cause.ask_again())))
    }

    fn tell(&self, key: &Key, claim: &Claim, outcome: &Outcome) {
        let reference = reference(key, &claim.uid);
        if let Some(message) = status::conflict(outcome) {
            self.events.warning(&reference, CONFLICT, message);
            return;
        }
        match outcome {
            Ok(shown) if claim.recorded() != Some(shown.address) => {
                let note = format!("{} of pool {} is allocated", shown.address, shown.pool);
                self.events.normal(&reference, "Allocated", note);
            }
            Ok(_) => {}
            Err(Problem {
                reason, message, ..
            }) => self.events.warning(&reference, reason, message.clone()),
        }
    }

    async fn malformed(&self, key: &Key, object: &Malformed) -> Result<Next, Trouble> {
        let uid: Text = object.uid.as_str().into();
        if object.deleted.is_some() {
            return self.let_go(key, &uid, &object.finalizers).await;
        }
        let note = format!(
            "the object does not fit its schema ({}); it is left as it is",
            object.error
        );
        self.events
            .warning(&reference(key, &uid), "Malformed", note);
        Ok(Next::Done)
    }

    /// The object is being deleted: its address is free before its finalizer goes.
    async fn let_go(&self, key: &Key, uid: &Text, finalizers: &[String]) -> Result<Next, Trouble> {
        self.wakes.wait(key, None);
        if !finalizers.iter().any(|one| one == FINALIZER) {
            return Ok(Next::Done);
        }
        let request = Request::Release(Release {
            scope: ReleaseScope::Holder(self.holder(key, uid)),
            actor: self.site.actor(),
            reason: "deleted".into(),
        });
        self.site.ipam.submit(request).await?;
        self.remote
            .drop_finalizer(&target(key), uid, finalizers, FINALIZER)
            .await?;
        Ok(Next::Done)
    }

    fn identity(&self, key: &Key) -> Identity {
        names::identity(&self.site.id, key)
    }

    fn holder(&self, key: &Key, uid: &Text) -> Holder {
        Holder {
            identity: self.identity(key),
            instance: Text::clone(uid),
        }
    }
}

fn reference(key: &Key, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(AddressClaim::api_version(&()).into_owned()),
        kind: Some(KIND_CLAIM.into()),
        namespace: Some(key.namespace.to_string()),
        name: Some(key.name.to_string()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// The object in the API.
pub fn target(key: &Key) -> Target {
    Target {
        api: API,
        plural: "addressclaims",
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
    }
}
