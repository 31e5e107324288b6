//! The leases of a Service: what it holds, asks for and gives back.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{
    Adopt, Allocate, Answer, Family, Handover, Holder, Lease, LeaseKey, LeaseState, NetworkId,
    Release, ReleaseScope, Request,
};

use super::{observe::Svc, plan::PoolsByFamily};
use crate::{
    controller::{
        ReconcileError,
        context::Context,
        unserved::{Unserved, contended},
        waiters::Cause,
    },
    ipam::IpamError,
    systems::rancher_fip::{
        floating_ip::validate::refused, names::ServiceRef, pool::validate::family_of,
    },
};

/// What was granted, or why not.
type Granted = Result<BTreeMap<Family, Arc<Lease>>, Unserved>;

/// What Services hold in the address book.
pub struct ServiceLeases {
    context: Arc<Context<Svc>>,
}

impl ServiceLeases {
    pub fn new(context: Arc<Context<Svc>>) -> Self {
        Self { context }
    }

    /// Asks for addresses of pools, which are all of one network.
    pub async fn ask(
        &self,
        ask: Allocate,
        pools: &PoolsByFamily,
    ) -> Result<Granted, ReconcileError> {
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
    pub async fn renew(
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

    pub async fn release(
        &self,
        holder: &Holder,
        keys: Vec<LeaseKey>,
        reason: &str,
    ) -> Result<(), ReconcileError> {
        let scope = ReleaseScope::HolderAddresses(holder.clone(), keys);
        self.free(scope, reason).await
    }

    pub async fn free(&self, scope: ReleaseScope, reason: &str) -> Result<(), ReconcileError> {
        let request = Request::Release(Release {
            scope,
            actor: self.context.actor(),
            reason: reason.into(),
        });
        self.context.submit(request).await?;
        Ok(())
    }

    /// Gives a lease to another holder.
    pub async fn transfer(
        &self,
        from: Holder,
        to: Holder,
        key: LeaseKey,
        reason: &str,
    ) -> Result<(), ReconcileError> {
        let request = Request::Handover(Handover {
            from,
            to,
            keys: vec![key],
            actor: self.context.actor(),
            reason: reason.into(),
        });
        self.context.submit(request).await?;
        Ok(())
    }

    /// All leases of the Service, by whatever instance of its name.
    pub fn held(&self, service: &ServiceRef) -> Vec<Arc<Lease>> {
        let identity = service.holder().identity;
        self.context.read(|ledger| ledger.leases_of(&identity))
    }

    /// The Service shows an address that another holds.
    pub fn contended(&self, service: &ServiceRef) -> Option<Unserved> {
        let identity = service.holder().identity;
        let contentions = self.context.read(|ledger| ledger.contentions_of(&identity));
        contentions.first().map(|lease| contended(lease))
    }

    /// A Service that has no lease waits for the end of the address it still shows: when another gets it, it is
    /// to be hidden.
    pub fn still_shown(&self, service: &ServiceRef, svc: &Svc) -> Option<Cause> {
        if !svc.is_marked() || !self.held(service).is_empty() {
            return None;
        }
        let address: IpAddr = svc.ingress.first()?.parse().ok()?;
        // Where it is given from.
        let place = self.context.site.ipam.find_network(|ledger, network| {
            let key = LeaseKey { network, address };
            (!ledger.pools_at(key).is_empty()).then_some(key)
        });
        place.map(Cause::Address)
    }
}
