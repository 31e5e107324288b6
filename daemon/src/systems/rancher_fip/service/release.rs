//! A Service that goes, or is not ours any more: what it held and what was written on it.

use std::sync::Arc;

use fipd_core::{Family, Holder, Lease, ReleaseScope};

use super::{
    Services, apply,
    fresh_read::{fresh, really_wishes},
    observe::Svc,
    plan::Match,
    status::BEHIND,
    validate::{self, Wish},
};
use crate::{
    controller::{Reconciled, client::CallError, meta::View as _, queue::Next, store::Key},
    systems::rancher_fip::names::{FINALIZER, ServiceRef},
};

impl Services {
    /// No Service that matters is seen under this name. What it holds goes once a fresh read finds it turned into
    /// one that is not ours; where there is none, or another in its place, the sweep of the cluster decides.
    pub(super) async fn unseen(&self, key: &Key) -> Reconciled {
        self.forget(key);
        let held = self.held(&self.service(key, &"".into()));
        if held.is_empty() {
            return Ok(Next::Done);
        }
        let Some(svc) = fresh(&self.context, key).await? else {
            self.context.site.session.suspect();
            return Ok(Next::Done);
        };
        if svc.matters() {
            // The watch is behind.
            return Ok(Next::After(BEHIND));
        }
        let service = self.service(key, &svc.uid);
        self.disown(&service, &svc, &held).await
    }

    /// A Service that lives on, is not ours, or not any more, and has something of ours.
    pub(super) async fn disown_once_confirmed(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        held: &[Arc<Lease>],
    ) -> Reconciled {
        let Some(fresh) = fresh(&self.context, &service.key).await? else {
            return Ok(Next::After(BEHIND));
        };
        let has_lease = !held.is_empty();
        if fresh.uid != svc.uid
            || fresh.terminating
            || validate::is_ours(&fresh, self.settings.class_less, has_lease)
            || super::uses_unserved(&fresh, held)
        {
            // The watch is behind.
            return Ok(Next::After(BEHIND));
        }
        self.disown(service, &fresh, held).await
    }

    /// A Service that is being deleted: what it has goes, our finalizer last. One without that finalizer may live
    /// on for others; its leases are for the sweep, once it is gone.
    pub(super) async fn finalize(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        held: &[Arc<Lease>],
    ) -> Reconciled {
        if !svc.has_finalizer() || self.is_anothers(&service.key, svc) {
            return Ok(Next::Done);
        }
        // Other finalizers keep it for who knows how long: it must not show what may soon be another's.
        let lives_on = svc.finalizers.len() > 1;
        if lives_on {
            self.hide(service, svc, held).await?;
        }
        self.end(service, svc, held).await?;
        self.shown.lock().forget(&service.key);
        if lives_on && let Some(patch) = apply::disclaim(svc) {
            self.patch(service, &patch).await?;
            return Ok(Next::Done);
        }
        let meta = svc.meta();
        let drop = self.context.drop_finalizer(&service.key, &meta, FINALIZER);
        drop.await?;
        Ok(Next::Done)
    }

    /// Takes everything of ours from a Service that a fresh read found to be not ours. What another instance of
    /// its name has is for the sweep of the cluster.
    async fn disown(&self, service: &ServiceRef, svc: &Svc, held: &[Arc<Lease>]) -> Reconciled {
        let holder = service.holder();
        let (held, others): (Vec<_>, Vec<_>) =
            held.iter().cloned().partition(|lease| has(lease, &holder));
        if !others.is_empty() {
            self.context.site.session.suspect();
        }
        self.hide(service, svc, &held).await?;
        self.end(service, svc, &held).await?;
        self.shown.lock().forget(&service.key);
        if let Some(patch) = apply::disclaim(svc) {
            match self.patch(service, &patch).await {
                Ok(()) | Err(CallError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Next::Done)
    }

    /// Ends what one instance of a Service has: announcer's objects, leases, places in queues.
    async fn end(&self, service: &ServiceRef, svc: &Svc, held: &[Arc<Lease>]) -> Reconciled<()> {
        self.announcer.withdraw(service, svc).await?;
        let holder = service.holder();
        for lease in held.iter().filter(|lease| has(lease, &holder)) {
            self.leave_to_heir(service, lease).await?;
        }
        self.unwritten.lock().remove(&service.uid);
        let reason = if svc.terminating {
            "the Service is deleted"
        } else {
            "the Service is not ours any more"
        };
        let (site, scope) = (&self.context.site, ReleaseScope::Holder(holder));
        Ok(site.release(scope, reason).await?)
    }

    /// Gives back what a Service that lives on does not wish any more. A family it does without takes its
    /// FloatingIP along; otherwise that object moves to the new address, unless it was there before fipd.
    pub(super) async fn release_surplus(
        &self,
        service: &ServiceRef,
        wish: &Wish,
        found: &Match,
    ) -> Reconciled<()> {
        let goes = |lease: &&Arc<Lease>| {
            let family = Family::of(lease.key.address);
            !wish.families.contains(&family) || found.kept.contains_key(&family)
        };
        let surplus: Vec<_> = found.surplus.iter().filter(goes).collect();
        if surplus.is_empty() || !really_wishes(&self.context, service, wish).await? {
            return Ok(());
        }
        for lease in surplus {
            if !wish.families.contains(&Family::of(lease.key.address))
                || self.was_there(service, lease.key)
            {
                self.leave_to_heir(service, lease).await?;
            } else {
                let reason = "another address took its place";
                self.free(service, lease, reason).await?;
            }
        }
        Ok(())
    }

    /// Leaves a lease to its heir; where it has none it is free at once.
    async fn leave_to_heir(&self, service: &ServiceRef, lease: &Lease) -> Reconciled<()> {
        let reason = "given up by its Service";
        let Some(to) = self.heir_of(service, lease.key) else {
            return self.free(service, lease, reason).await;
        };
        let (site, from) = (&self.context.site, holder_of(lease, service));
        Ok(site.hand_over(from, to, lease.key, reason).await?)
    }

    async fn free(&self, service: &ServiceRef, lease: &Lease, reason: &str) -> Reconciled<()> {
        let holder = holder_of(lease, service);
        let scope = ReleaseScope::HolderAddresses(holder, vec![lease.key]);
        Ok(self.context.site.release(scope, reason).await?)
    }
}

fn has(lease: &Lease, holder: &Holder) -> bool {
    lease.members.iter().any(|member| member.holder == *holder)
}

/// The member of the lease that is this Service, of whatever instance.
fn holder_of(lease: &Lease, service: &ServiceRef) -> Holder {
    let own = service.holder();
    let mut holders = lease.members.iter().map(|member| &member.holder);
    let member = holders.find(|holder| holder.identity == own.identity);
    member.cloned().unwrap_or(own)
}
