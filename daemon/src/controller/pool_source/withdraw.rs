//! How a pool goes: with its object, or where its kind is switched off.

use std::sync::Arc;

use fipd_core::{Action, Ledger, Origin, Pool, PoolEdit, PoolSpec, Refusal, Request};

use super::{PoolController, PoolSource, not_ready};
use crate::{
    clock,
    controller::{
        ReconcileError, Reconciled, client::CallError, conditions::ConditionUpdate,
        confirm_absence::RECHECK_AFTER, meta::Meta, owned::identify, queue::Next,
        reconcile::Controller, site::Site, store::Key,
    },
    ipam::IpamError,
};

/// Holders that a condition names.
const NAMED: usize = 5;

impl<S: PoolSource> PoolController<S> {
    /// The kind is switched off: nothing of fipd stays in the object.
    pub(super) async fn disown(
        &self,
        key: &Key,
        meta: &Meta,
        object: Option<&S::View>,
    ) -> Reconciled {
        let why = self.source.off().unwrap_or_default();
        let pool = self.existing(key);
        if let Some(pool) = &pool {
            close(&self.context.site, pool, why).await?;
        }
        self.drop_finalizer(key, meta).await?;
        match object.filter(|_| pool.is_some()) {
            Some(object) => {
                let says = not_ready("Off", format!("{why}; addresses in use stay"));
                self.show(key, object, Err(says)).await
            }
            None => Ok(Next::Done),
        }
    }

    /// The object is being deleted. It goes with its pool, or before it where addresses are in use for too long: the leases
    /// stay, and the pool goes with the last one. Without a finalizer it defines a pool until it is gone.
    pub(super) async fn finalize(
        &self,
        key: &Key,
        meta: &Meta,
        object: Option<Arc<S::View>>,
    ) -> Reconciled {
        match (S::FINALIZER, object) {
            (None, Some(object)) => return self.reconcile(key, Some(object)).await,
            (Some(finalizer), object) if meta.has_finalizer(finalizer) => {
                if let Some(pool) = self.withdraw(key).await?
                    && let Some(next) = self.wait(key, meta, object.as_deref(), &pool).await?
                {
                    return Ok(next);
                }
                self.drop_finalizer(key, meta).await?;
            }
            (None, None) | (Some(_), _) => {}
        }
        Ok(Next::Done)
    }

    /// What to do while the pool is in use; `None`: the object goes all the same.
    async fn wait(
        &self,
        key: &Key,
        meta: &Meta,
        object: Option<&S::View>,
        pool: &Pool,
    ) -> Reconciled<Option<Next>> {
        let site = &self.context.site;
        let says = site.ipam.read(|ledger| in_use(ledger, pool));
        let wait = self.source.release_wait();
        let since = meta.deleted.unwrap_or_default();
        let rest = wait.map_or(Some(RECHECK_AFTER), |wait| wait.left(since, clock::now()));
        let shown = match object {
            Some(object) => self.show(key, object, Err(says.clone())).await?,
            None => Next::Done,
        };
        let Some(rest) = rest else {
            self.leave_used(key, meta, &says).await?;
            return Ok(None);
        };
        Ok(Some(match shown {
            Next::After(pause) => Next::After(pause.min(rest)),
            Next::Done | Next::Retry => Next::After(rest),
        }))
    }

    /// Records what outlives the object.
    async fn leave_used(&self, key: &Key, meta: &Meta, says: &ConditionUpdate) -> Reconciled<()> {
        let note = format!(
            "the object goes before its pool, which is closed and is removed with its last lease: {}",
            says.message
        );
        let what = format!("{} {key}: {note}", self.context.kind.kind);
        let site = &self.context.site;
        let write = site.ipam.note(Action::ClusterChanged, what, site.actor());
        write.await?;
        self.context.warn(key, &meta.uid, "AddressesKept", note);
        Ok(())
    }

    /// There is no such object, where a fresh read of this cluster says so too: quotas and quarantines go with a pool.
    pub(super) async fn gone(&self, key: &Key) -> Reconciled {
        let pool = self.existing(key);
        if pool.is_none_or(|pool| self.goes_later(&pool)) {
            return Ok(Next::Done);
        }
        self.verify().await?;
        if self.source.covers(&key.namespace)
            && let Some(next) = self.still_there(key).await?
        {
            return Ok(next);
        }
        self.verify().await?;
        self.unserved.forget(key);
        self.withdraw(key).await?;
        Ok(Next::Done)
    }

    /// When to look again at an object that a fresh read finds, or whose kind is not served; `None`: it is gone.
    async fn still_there(&self, key: &Key) -> Reconciled<Option<Next>> {
        let kind = self.context.kind().named(&key.namespace, "");
        let is_it = |object| Some(identify(&object)?.0).filter(|found| found == key);
        match self.context.remote.list_kept(&kind, "", is_it).await {
            // The watch is behind.
            Ok(there) => Ok((!there.is_empty()).then_some(Next::After(RECHECK_AFTER))),
            // An API server that starts may serve a kind late.
            Err(CallError::NotFound(_)) => Ok(self.unserved.missing(key).map(Next::After)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it is closed, and has leases: the last of them has it looked at again.
    fn goes_later(&self, pool: &Pool) -> bool {
        let usage = self.context.read(|ledger| ledger.usage(pool.id));
        pool.spec.closed && usage.is_some_and(|usage| usage.held() > 0)
    }

    /// Another cluster may answer by now.
    async fn verify(&self) -> Reconciled<()> {
        let verified = self.context.site.session.verify_identity().await;
        verified.map_err(|error| ReconcileError::internal(error.to_string()))
    }

    /// Deletes the pool, or closes it while it is in use; the pool that is left.
    async fn withdraw(&self, key: &Key) -> Reconciled<Option<Arc<Pool>>> {
        let Some(pool) = self.existing(key) else {
            return Ok(None);
        };
        let delete = Request::DeletePool {
            pool: pool.id,
            actor: self.context.actor(),
        };
        match self.context.submit(delete).await {
            Ok(_) | Err(IpamError::Refused(Refusal::UnknownPool(_))) => return Ok(None),
            Err(IpamError::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
        close(&self.context.site, &pool, "its object is deleted").await?;
        Ok(Some(pool))
    }

    async fn drop_finalizer(&self, key: &Key, meta: &Meta) -> Reconciled<()> {
        match S::FINALIZER {
            Some(finalizer) => self.context.drop_finalizer(key, meta, finalizer).await,
            None => Ok(()),
        }
    }
}

/// Closes the pools of all objects of the system in the cluster.
pub async fn close_all(site: &Site, why: &str) -> Reconciled<()> {
    let of_site = |pool: &Arc<Pool>| {
        matches!(&pool.spec.origin, Origin::Mirror { system, cluster, .. }
            if *system == site.system && *cluster == site.id)
    };
    for pool in site.ipam.pools().into_iter().filter(of_site) {
        close(site, &pool, why).await?;
    }
    Ok(())
}

/// The pool gives nothing new. One that cannot be closed goes on as it is.
async fn close(site: &Site, pool: &Pool, reason: &str) -> Reconciled<()> {
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
        // What an admin changed since stays; the change brings this back.
        if_generation: Some(pool.generation),
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
    let held = leases.iter().filter_map(|lease| {
        let owner = &lease.owner()?.identity;
        Some(format!("{} by {owner}", lease.key.address))
    });
    let mut named: Vec<String> = held.take(NAMED + 1).collect();
    let more = if named.len() > NAMED { ", ..." } else { "" };
    named.truncate(NAMED);
    let message = format!(
        "it goes when its addresses are free; held are {}{more}",
        named.join(", ")
    );
    not_ready("InUse", message)
}
