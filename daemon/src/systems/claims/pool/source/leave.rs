//! How what follows an object goes: with the object, or where `pool-objects` is switched off.

use std::sync::Arc;

use fipd_core::{Action, Ledger, Origin, Pool, PoolEdit, PoolSpec, Refusal, Request};

use super::{super::kind::object_name, POOL_FINALIZER, Sources};
use crate::{
    clock,
    controller::{
        ReconcileError, conditions::ConditionUpdate, meta::Meta, queue::Next, site::Site,
        store::Key,
    },
    ipam::IpamError,
    systems::claims::{
        pool::{observe::Object, status::not_ready},
        settings::ClaimsSettings,
    },
};

/// Why the pools of all objects are closed.
const OFF: &str = "pool-objects is off for this cluster";
/// Holders that a condition names.
const NAMED: usize = 5;

impl Sources {
    /// `pool-objects` is off: nothing of fipd stays in the object.
    pub(super) async fn disown(
        &self,
        key: &Key,
        meta: &Meta,
        object: Option<&Object>,
    ) -> Result<Next, ReconcileError> {
        let pool = self.existing(key);
        if let Some(pool) = &pool {
            close(&self.context.site, pool, OFF).await?;
        }
        self.context
            .drop_finalizer(key, meta, POOL_FINALIZER)
            .await?;
        match object.filter(|_| pool.is_some()) {
            Some(object) => {
                let says = not_ready("Off", format!("{OFF}; addresses in use stay"));
                self.show(key, object, Some(says)).await
            }
            None => Ok(Next::Done),
        }
    }

    /// The object is being deleted. It goes with its pool, or before it where addresses are in use for too long; their leases
    /// stay, and the pool is removed with the last one.
    pub(super) async fn finalize(
        &self,
        key: &Key,
        meta: &Meta,
        object: Option<&Object>,
    ) -> Result<Next, ReconcileError> {
        if !meta.has_finalizer(POOL_FINALIZER) {
            return Ok(Next::Done);
        }
        if let Some(pool) = self.withdraw(key).await? {
            let site = &self.context.site;
            let says = site.ipam.read(|ledger| in_use(ledger, &pool));
            let wait = site.session.settings.of::<ClaimsSettings>().release_wait;
            let rest = wait.left(meta.deleted.unwrap_or_default(), clock::now());
            let shown = match object {
                Some(object) => self.show(key, object, Some(says.clone())).await?,
                None => Next::Done,
            };
            if let Some(rest) = rest {
                return Ok(match shown {
                    Next::After(pause) => Next::After(pause.min(rest)),
                    Next::Done | Next::Retry => Next::After(rest),
                });
            }
            self.leave_used(key, meta, &says).await?;
        }
        self.context
            .drop_finalizer(key, meta, POOL_FINALIZER)
            .await?;
        Ok(Next::Done)
    }

    /// ConditionUpdate what outlives the object.
    async fn leave_used(
        &self,
        key: &Key,
        meta: &Meta,
        says: &ConditionUpdate,
    ) -> Result<(), ReconcileError> {
        let note = format!(
            "the object goes before its pool, which is closed and is removed with its last lease: {}",
            says.message
        );
        let what = format!("{} {}: {note}", self.context.kind.kind, object_name(key));
        let actor = self.context.site.actor();
        self.context
            .site
            .ipam
            .note(Action::ClusterChanged, what, actor)
            .await?;
        self.context.warn(key, &meta.uid, "AddressesKept", note);
        Ok(())
    }

    /// Deletes the pool, or closes it while it is in use; the pool that is left.
    pub(super) async fn withdraw(&self, key: &Key) -> Result<Option<Arc<Pool>>, ReconcileError> {
        let Some(pool) = self.existing(key) else {
            return Ok(None);
        };
        let delete = Request::DeletePool {
            pool: pool.id,
            actor: self.context.site.actor(),
        };
        match self.context.site.ipam.submit(delete).await {
            Ok(_) | Err(IpamError::Refused(Refusal::UnknownPool(_))) => return Ok(None),
            Err(IpamError::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
        close(&self.context.site, &pool, "its object is deleted").await?;
        Ok(Some(pool))
    }
}

/// Closes all that objects of the cluster made, where they are not to make pools any more.
pub async fn close_all(site: &Site) -> Result<(), ReconcileError> {
    let of_site = |pool: &Arc<Pool>| {
        matches!(&pool.spec.origin, Origin::Mirror { system, cluster, .. }
            if *system == site.system && *cluster == site.id)
    };
    for pool in site.ipam.pools().into_iter().filter(of_site) {
        close(site, &pool, OFF).await?;
    }
    Ok(())
}

/// The pool gives nothing new. One that cannot be closed goes on as it is.
async fn close(site: &Site, pool: &Pool, reason: &str) -> Result<(), ReconcileError> {
    if pool.spec.closed {
        return Ok(());
    }
    let spec = PoolSpec {
        closed: true,
        ..pool.spec.clone()
    };
    let close = Request::UpdatePool(PoolEdit {
        pool: pool.id,
        spec,
        if_generation: None,
        force: false,
        reason: reason.into(),
        actor: site.actor(),
    });
    match site.ipam.submit(close).await {
        Ok(_) | Err(IpamError::Refused(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Who keeps a pool from going.
fn in_use(ledger: &Ledger, pool: &Pool) -> ConditionUpdate {
    let leases = ledger.pool_leases(pool.id, None, Ledger::SCAN);
    let held: Vec<String> = leases
        .iter()
        .filter_map(|lease| {
            Some(format!(
                "{} by {}",
                lease.key.address,
                lease.owner()?.identity
            ))
        })
        .collect();
    let more = if held.len() > NAMED { ", ..." } else { "" };
    let named: Vec<String> = held.into_iter().take(NAMED).collect();
    let message = format!(
        "it goes when its addresses are free; held are {}{more}",
        named.join(", ")
    );
    not_ready("InUse", message)
}

#[cfg(test)]
mod tests;
