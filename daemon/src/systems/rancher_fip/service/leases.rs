//! The leases of a Service: what it holds, asks for and gives back.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{
    Adopt, Allocate, Answer, Family, Holder, Lease, LeaseKey, LeaseState, NetworkId, Release,
    ReleaseScope, Request, Text,
};

use super::{
    Services,
    observe::Svc,
    plan::{self, PoolsByFamily},
    pools,
    validate::Wish,
};
use crate::{
    controller::{ReconcileError, unserved::Unserved},
    ipam::IpamError,
    systems::rancher_fip::{
        floating_ip::validate::refused, names::ServiceRef, pool::validate::family_of,
    },
};

/// What was granted, or why not.
type Granted = Result<BTreeMap<Family, Arc<Lease>>, Unserved>;

impl Services {
    /// Asks for what is missing. Where the second family is optional each is asked for alone.
    pub(super) async fn allocate(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        wish: &Wish,
        found: &plan::Match,
        named: Option<PoolsByFamily>,
    ) -> Result<(BTreeMap<Family, Arc<Lease>>, Option<Unserved>), ReconcileError> {
        let ready = named
            .map_or_else(|| self.pools(wish), Ok)
            .and_then(|pools| {
                let project = self.project(&service.key.namespace)?;
                let missing = pools::served(wish, found, &pools)?;
                Ok((pools, project, missing))
            });
        let (pools, project, missing) = match ready {
            Ok(ready) => ready,
            Err(problem) => return Ok((BTreeMap::new(), Some(problem))),
        };
        let groups: Vec<&[Family]> = if wish.second_optional {
            missing.chunks(1).collect()
        } else {
            vec![missing.as_slice()]
        };
        let (mut granted, mut trouble) = (BTreeMap::new(), None);
        for families in groups.into_iter().filter(|families| !families.is_empty()) {
            let (holder, actor) = (service.holder(), self.context.actor());
            let ask = plan::allocate(
                &holder,
                &project.tenant,
                wish,
                families,
                &pools,
                svc.created,
                &actor,
            );
            match self.ask(ask, &pools).await? {
                Ok(leases) => granted.extend(leases),
                Err(problem) => trouble = Some(problem),
            }
        }
        if !granted.is_empty() && found.kept.is_empty() {
            self.unwritten.lock().insert(Text::clone(&service.uid));
        }
        Ok((granted, trouble))
    }

    async fn ask(&self, ask: Allocate, pools: &PoolsByFamily) -> Result<Granted, ReconcileError> {
        let network = pools
            .values()
            .next()
            .map_or(NetworkId::DEFAULT, |pool| pool.spec.network);
        match self.context.submit(Request::Allocate(ask)).await {
            Ok(Answer::Granted { leases, .. }) => {
                let by_family = |lease: Arc<Lease>| (family_of(lease.key.address), lease);
                Ok(Ok(leases.into_iter().map(by_family).collect()))
            }
            Ok(other) => Err(ReconcileError::unexpected(&other)),
            Err(IpamError::Refused(refusal)) => Ok(Err(refused(&refusal, network))),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes this instance of the Service the holder of leases that an earlier one of its name left or that were reserved
    /// for it.
    pub(super) async fn renew(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        kept: &BTreeMap<Family, Arc<Lease>>,
    ) -> Result<(), ReconcileError> {
        let holder = service.holder();
        let has = |lease: &&Arc<Lease>| {
            lease.state == LeaseState::Allocated
                && lease.members.iter().any(|member| member.holder == holder)
        };
        for lease in kept.values().filter(|lease| !has(lease)) {
            let adopt = Adopt {
                key: lease.key,
                holder: holder.clone(),
                tenant: lease.tenant.clone(),
                since: svc.created,
                actor: self.context.actor(),
            };
            self.context.submit(Request::Adopt(adopt)).await?;
        }
        Ok(())
    }

    pub(super) async fn release(
        &self,
        holder: &Holder,
        keys: Vec<LeaseKey>,
        reason: &str,
    ) -> Result<(), ReconcileError> {
        let scope = ReleaseScope::HolderAddresses(holder.clone(), keys);
        self.free(scope, reason).await
    }

    pub(super) async fn free(
        &self,
        scope: ReleaseScope,
        reason: &str,
    ) -> Result<(), ReconcileError> {
        let request = Request::Release(Release {
            scope,
            actor: self.context.actor(),
            reason: reason.into(),
        });
        self.context.submit(request).await?;
        Ok(())
    }

    /// All leases of the Service, by whatever instance of its name.
    pub(super) fn held(&self, service: &ServiceRef) -> Vec<Arc<Lease>> {
        let identity = service.holder().identity;
        self.context.read(|ledger| ledger.leases_of(&identity))
    }
}
