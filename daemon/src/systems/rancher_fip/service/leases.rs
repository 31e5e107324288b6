//! The leases of a Service: what it holds, asks for and gives back.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{Adopt, Allocate, Answer, Family, Lease, LeaseKey, NetworkId, Request};

use super::{Services, observe::Svc, plan::PoolsByFamily};
use crate::{
    controller::{
        ReconcileError, Reconciled,
        address_user::settle::holds,
        unserved::{Unserved, contended},
        waiters::Cause,
    },
    ipam::IpamError,
    systems::rancher_fip::{floating_ip::validate::refused, names::ServiceRef},
};

/// What was granted, or why not.
type Granted = Result<BTreeMap<Family, Arc<Lease>>, Unserved>;

impl Services {
    /// Asks for addresses of pools, which are all of one network.
    pub(super) async fn request(
        &self,
        ask: Allocate,
        pools: &PoolsByFamily,
    ) -> Reconciled<Granted> {
        let network = pools
            .values()
            .next()
            .map_or(NetworkId::DEFAULT, |pool| pool.spec.network);
        match self.context.submit(Request::Allocate(ask)).await {
            Ok(Answer::Granted { leases, .. }) => {
                let by_family = |lease: Arc<Lease>| (Family::of(lease.key.address), lease);
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
    ) -> Reconciled<()> {
        let holder = service.holder();
        for lease in kept.values().filter(|lease| !holds(lease, &holder)) {
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

    /// All leases of the Service, by whatever instance of its name.
    pub(super) fn held(&self, service: &ServiceRef) -> Vec<Arc<Lease>> {
        let identity = service.holder().identity;
        self.context.read(|ledger| ledger.leases_of(&identity))
    }

    /// The Service shows an address that another holds.
    pub(super) fn contended(&self, service: &ServiceRef) -> Option<Unserved> {
        let identity = service.holder().identity;
        let contentions = self.context.read(|ledger| ledger.contentions_of(&identity));
        contentions.first().map(|lease| contended(lease))
    }

    /// A Service that has no lease waits for the end of the address it still shows: when another gets it, it is
    /// to be hidden.
    pub(super) fn still_shown(&self, service: &ServiceRef, svc: &Svc) -> Option<Cause> {
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
