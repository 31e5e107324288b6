//! Pool and NamespacedPool objects of a cluster's own admins and users, as sources of pools.
//!
//! Where `pool-objects` was switched off, objects are let go and what they made is closed; its leases stay. Switched on
//! again, it follows its object as before.

use fipd_core::{Ledger, Pool, PoolSpec, System};
use fipd_crds::fipd_io::PoolStatus;
use k8s_openapi::jiff;

use super::{observe::PoolObject, validate};
use crate::{
    config::{ReleaseWait, SystemSettings},
    controller::pool_source::{
        Eligible, Leaving, PoolController, PoolReport, PoolSource, SourceFacts, not_ready,
        pool_status,
    },
    systems::claims::{names::POOL_FINALIZER, settings::ClaimsSettings},
    validation::mirror::MirrorOf,
};

/// Why the pools of all objects are closed.
pub const OFF: &str = "pool-objects is off for this cluster";

/// The controller of the objects of one of the two kinds.
pub type ClaimPools = PoolController<ClaimPoolSource>;

/// What objects of both kinds say of pools.
pub struct ClaimPoolSource {
    pub settings: ClaimsSettings,
}

impl PoolSource for ClaimPoolSource {
    type View = PoolObject;
    type Status = PoolStatus;

    const METRIC: &'static str = "pool";
    const FINALIZER: Option<&'static str> = Some(POOL_FINALIZER);
    const LEAVING: Leaving = Leaving::Refused;
    const AMBIGUOUS_IS_UNREADY: bool = true;

    fn facts<'a>(&'a self, object: &'a PoolObject) -> SourceFacts<'a> {
        let network = Some(&*object.spec.network).filter(|network| !network.is_empty());
        SourceFacts {
            network,
            ..SourceFacts::default()
        }
    }

    fn spec(&self, mirror: &MirrorOf<'_>, object: &PoolObject) -> Result<PoolSpec, String> {
        validate::spec(mirror, &object.spec)
    }

    fn written(&self, object: &PoolObject) -> PoolStatus {
        object.status.clone()
    }

    fn status(&self, object: &PoolObject, report: &PoolReport, now: jiff::Timestamp) -> PoolStatus {
        pool_status::desired(&object.status, object.meta.generation, report, now)
    }

    /// fipd writes no NamespacedPool, and one hides no pool of fipd's own.
    fn eligible(&self, ledger: &Ledger, mirror: &MirrorOf<'_>, object: &PoolObject) -> Eligible {
        let name = mirror.object;
        if name.contains('/') {
            return Eligible::Yes;
        }
        if object.ours {
            return Eligible::Own;
        }
        let own = |pool: &Pool| *pool.spec.name == *name && self.settings.offers(pool);
        let system = System::claims();
        let hides = ledger.mirror(&system, mirror.cluster, name).is_none()
            && ledger.find_pool(name).is_ok_and(|pool| own(pool));
        let message = "fipd has a pool of this name for this cluster; give this one another name";
        match hides {
            true => Eligible::No(not_ready("NameTaken", message)),
            false => Eligible::Yes,
        }
    }

    fn off(&self) -> Option<&'static str> {
        (!self.settings.pool_objects).then_some(OFF)
    }

    fn release_wait(&self) -> Option<ReleaseWait> {
        Some(self.settings.release_wait)
    }
}
