//! AddressClaims: each gets the address it names or one of its pool, and shows it. No error is final: whatever a claim
//! waits for wakes it.

pub mod adopt;
pub mod observe;
pub mod plan;
pub mod pools;
pub mod status;

use std::sync::Arc;

use fipd_core::{Answer, Ledger, NetworkId, Release, ReleaseScope, Request};
use k8s_openapi::jiff;

use super::names::{self, FINALIZER};
use crate::{
    config::PoolFacts,
    controller::{
        ReconcileError,
        conditions::CONFLICT,
        context::Context,
        meta::Meta,
        queue::Next,
        reconcile::Controller,
        store::Key,
        unserved::{Unserved, contended, refused},
        waiters::LedgerEvent,
    },
    ipam::IpamError,
    systems::claims::settings::ClaimsSettings,
};
use observe::Claim;
use plan::{Asker, Plan};
use pools::{Place, Wish};
use serde::de::IgnoredAny;
use status::{Outcome, Shown};

/// The controller of all claims of a cluster.
pub struct Claims {
    context: Context<Claim>,
}

impl Controller for Claims {
    type View = Claim;

    const METRIC: &'static str = "addressclaim";
    const WORKERS: usize = 16;

    fn context(&self) -> &Context<Claim> {
        &self.context
    }

    /// An edit of a pool may change what any claim shows.
    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        let (woken, edited) = self.context.waiters.affected(ledger, event);
        for key in woken {
            self.context.queue.add(key);
        }
        if edited {
            self.context.queue_all();
        }
    }

    async fn reconcile(
        &self,
        key: &Key,
        claim: Option<Arc<Claim>>,
    ) -> Result<Next, ReconcileError> {
        match claim {
            Some(claim) => self.serve(key, &claim).await,
            None => Ok(self.gone(key)),
        }
    }

    /// The address is free before the finalizer goes.
    async fn release(
        &self,
        key: &Key,
        meta: &Meta,
        _: Option<Arc<Claim>>,
    ) -> Result<Next, ReconcileError> {
        self.context.waiters.wait(key, None);
        if !meta.has_finalizer(FINALIZER) {
            return Ok(Next::Done);
        }
        let request = Request::Release(Release {
            scope: ReleaseScope::Holder(self.context.holder(key, &meta.uid)),
            actor: self.context.site.actor(),
            reason: "deleted".into(),
        });
        self.context.site.ipam.submit(request).await?;
        self.context.drop_finalizer(key, meta, FINALIZER).await?;
        Ok(Next::Done)
    }
}

impl Claims {
    pub fn new(context: Context<Claim>) -> Arc<Self> {
        Arc::new(Self { context })
    }

    /// There is no such object: a lease that it left waits for the sweep of the cluster, which may look at once.
    fn gone(&self, key: &Key) -> Next {
        let site = &self.context.site;
        self.context.waiters.wait(key, None);
        let identity = self.context.identity(key);
        site.ipam.forget_waiter(&identity);
        let left = site.ipam.read(|ledger| {
            !ledger.leases_of(&identity).is_empty() || !ledger.contentions_of(&identity).is_empty()
        });
        if left {
            site.session.suspect();
        }
        Next::Done
    }

    async fn serve(&self, key: &Key, claim: &Claim) -> Result<Next, ReconcileError> {
        let asker = Asker {
            holder: self.context.holder(key, &claim.meta.uid),
            tenant: names::tenant(&self.context.site.name, &key.namespace),
            created: claim.meta.created,
            actor: self.context.site.actor(),
        };
        let place = Place {
            cluster: &self.context.site.id,
            namespace: &key.namespace,
            settings: self.context.site.session.settings.of::<ClaimsSettings>(),
        };
        let wish = self
            .context
            .site
            .ipam
            .read(|ledger| pools::wish(ledger, &place, &claim.spec));
        let network = wish.as_ref().ok().map(|wish| wish.pool.spec.network);
        if let Ok(wish) = &wish {
            self.expected(wish).await?;
        }
        let outcome = match self
            .context
            .site
            .ipam
            .read(|ledger| plan::plan(ledger, &asker, wish))
        {
            Plan::Show(shown) => {
                self.protect(key, claim).await?;
                Ok(shown)
            }
            Plan::Unserved(problem) => Err(problem),
            Plan::Ask(request) => {
                self.protect(key, claim).await?;
                self.ask(*request, network.unwrap_or(NetworkId::DEFAULT))
                    .await?
            }
        };
        self.show(key, claim, outcome).await
    }

    /// A network gives to this cluster only once it has adopted it: it must know that it waits for it.
    async fn expected(&self, wish: &Wish) -> Result<(), ReconcileError> {
        let network = wish.pool.spec.network;
        let session = &self.context.site.session;
        if session
            .networks(&self.context.site.system)
            .contains(&network)
        {
            return Ok(());
        }
        let name = self
            .context
            .site
            .ipam
            .read(|ledger| ledger.network(network).map(|network| network.name.clone()));
        let facts = PoolFacts {
            cluster: &session.names,
            system: &self.context.site.system,
            namespace: None,
            interface: None,
            vlan: None,
            pool: &wish.pool.spec.name,
            annotation: name.as_deref(),
        };
        let found = session.network_of(&facts).await;
        found
            .map(drop)
            .map_err(|error| ReconcileError::internal(error.to_string()))
    }

    /// The finalizer comes before the address, so that no claim goes without giving back. Taken off by hand, it comes
    /// back.
    async fn protect(&self, key: &Key, claim: &Claim) -> Result<(), ReconcileError> {
        let add = self
            .context
            .add_finalizer::<IgnoredAny>(key, &claim.meta, FINALIZER);
        add.await.map(drop)
    }

    async fn ask(&self, request: Request, network: NetworkId) -> Result<Outcome, ReconcileError> {
        let lease = match self.context.site.ipam.submit(request).await {
            Ok(Answer::Granted { leases, .. }) => leases
                .into_iter()
                .next()
                .ok_or_else(|| ReconcileError::internal("an allocation without lease"))?,
            Ok(Answer::Adopted { lease }) => lease,
            Ok(Answer::Contended { lease }) => return Ok(Err(contended(&lease))),
            Ok(other) => return Err(ReconcileError::unexpected(&other)),
            Err(IpamError::Refused(refusal)) => return Ok(Err(refused(&refusal, network))),
            Err(error) => return Err(error.into()),
        };
        Ok(Ok(self
            .context
            .site
            .ipam
            .read(|ledger| Shown::of(ledger, &lease))))
    }

    /// Writes the status, once for each change.
    async fn show(
        &self,
        key: &Key,
        claim: &Claim,
        outcome: Outcome,
    ) -> Result<Next, ReconcileError> {
        let cause = outcome
            .as_ref()
            .err()
            .and_then(|problem| problem.cause.clone());
        if self.context.waiters.wait(key, cause.clone()) {
            self.context
                .site
                .ipam
                .forget_waiter(&self.context.identity(key));
        }
        let after = status::desired(claim, &outcome, jiff::Timestamp::now());
        let status = (&claim.status, &after);
        self.context
            .write_status(key, &claim.meta.uid, status)
            .await?;
        self.tell(key, claim, &outcome);
        Ok(cause.map_or(Next::Done, |cause| Next::After(cause.ask_again())))
    }

    fn tell(&self, key: &Key, claim: &Claim, outcome: &Outcome) {
        let uid = &claim.meta.uid;
        if let Some(message) = status::conflict(outcome) {
            self.context.warn(key, uid, CONFLICT, message);
            return;
        }
        match outcome {
            Ok(shown) if claim.recorded() != Some(shown.address) => {
                let note = format!("{} of pool {} is allocated", shown.address, shown.pool);
                self.context.note(key, uid, "Allocated", note);
            }
            Ok(_) => {}
            Err(Unserved {
                reason, message, ..
            }) => self.context.warn(key, uid, reason, message.clone()),
        }
    }
}
