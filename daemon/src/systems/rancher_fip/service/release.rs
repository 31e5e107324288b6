//! A Service that goes, or is not ours any more: what it held and what was written on it.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{ClusterId, Handover, Holder, Lease, LeaseKey, ReleaseScope, Request, Text};
use serde::de::IgnoredAny;

use super::{
    Services, announce, apply, object,
    observe::Svc,
    plan::Match,
    status::BEHIND,
    validate::{self, Wish},
};
use crate::{
    controller::{
        ReconcileError, Reconciled, client::CallError, kind::Kind, meta::View as _,
        owned::delete_listed, queue::Next, store::Key,
    },
    systems::rancher_fip::{
        names::{self, FINALIZER, FLOATING_IP, FOR_SERVICE, HOLDER, KIND_FLOATING_IP, ServiceRef},
        pool::validate::family_of,
        rancher::Data,
        service::announce::reader,
        settings::Announce,
    },
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
        let Some(svc) = self.fresh(key).await? else {
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
        let Some(fresh) = self.fresh(&service.key).await? else {
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
        self.shown.lock().remove(&service.key);
        if lives_on && let Some(patch) = apply::disclaim(svc) {
            self.patch(service, &patch).await?;
            return Ok(Next::Done);
        }
        let meta = svc.meta();
        let drop = self.context.drop_finalizer(&service.key, &meta, FINALIZER);
        drop.await?;
        Ok(Next::Done)
    }

    /// Whether the finalizer, which has the same name for all of the family, is that of another program: we left no
    /// mark, and a FloatingIP of another is for this Service, or it is not known whether one is.
    fn is_anothers(&self, key: &Key, svc: &Svc) -> bool {
        if svc.mark(HOLDER).is_some() {
            return false;
        }
        let Some(data) = self.rancher.data() else {
            return true;
        };
        let made = match self.rancher_cluster() {
            Some(cluster) => data.stock.made_for(&cluster, key),
            None => data.stock.made_for_any(key),
        };
        !made.is_empty()
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
        self.shown.lock().remove(&service.key);
        if let Some(patch) = apply::disclaim(svc) {
            match self.patch(service, &patch).await {
                Ok(()) | Err(CallError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Next::Done)
    }

    /// Takes addresses that were given by us off the status, before another may get them.
    async fn hide(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        held: &[Arc<Lease>],
    ) -> Result<(), CallError> {
        let Some(patch) = apply::show(svc, &[]).filter(|_| shows_ours(svc, held)) else {
            return Ok(());
        };
        match self.patch_status::<IgnoredAny>(service, &patch).await {
            Err(CallError::NotFound(_)) => Ok(()),
            // A Service of another type has no such status any more.
            Err(CallError::Rejected(..)) if !svc.balanced => Ok(()),
            result => result.map(drop),
        }
    }

    /// Ends what one instance of a Service has: announcer's objects, leases, places in queues.
    async fn end(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        held: &[Arc<Lease>],
    ) -> Result<(), ReconcileError> {
        self.unannounce(service, svc).await?;
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
        self.free(ReleaseScope::Holder(holder), reason).await
    }

    /// Gives back what a Service that lives on does not wish any more. A family it does without takes its
    /// FloatingIP along; otherwise that object moves to the new address, unless it was there before fipd.
    pub(super) async fn release_surplus(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        wish: &Wish,
        found: &Match,
    ) -> Result<(), ReconcileError> {
        let goes = |lease: &&Arc<Lease>| {
            let family = family_of(lease.key.address);
            !wish.families.contains(&family) || found.kept.contains_key(&family)
        };
        let surplus: Vec<_> = found.surplus.iter().filter(goes).collect();
        if surplus.is_empty() || !self.really_wishes(service, wish).await? {
            return Ok(());
        }
        for lease in surplus {
            if !wish.families.contains(&family_of(lease.key.address))
                || self.was_there(service, lease.key)
            {
                self.leave_to_heir(service, lease).await?;
            } else {
                let holder = holder_of(lease, service, &svc.uid);
                self.release(&holder, vec![lease.key], "another address took its place")
                    .await?;
            }
        }
        Ok(())
    }

    /// Leaves a lease to its heir; where it has none it is free at once.
    async fn leave_to_heir(
        &self,
        service: &ServiceRef,
        lease: &Lease,
    ) -> Result<(), ReconcileError> {
        let from = holder_of(lease, service, &service.uid);
        let reason = "given up by its Service";
        let Some(to) = self.heir(service, lease.key) else {
            return self.release(&from, vec![lease.key], reason).await;
        };
        let request = Request::Handover(Handover {
            from,
            to,
            keys: vec![lease.key],
            actor: self.context.actor(),
            reason: reason.into(),
        });
        self.context.submit(request).await?;
        Ok(())
    }

    /// Who gets a lease when its Service goes: the FloatingIP that shows it. One that fipd made is then deleted and frees
    /// it. `None` where no FloatingIP was ever written.
    pub(super) fn heir(&self, service: &ServiceRef, key: LeaseKey) -> Option<Holder> {
        if self.unwritten.lock().contains(&service.uid) {
            return None;
        }
        self.shown_by(service, key)
    }

    /// Whether the FloatingIP of a lease is one that another program made.
    fn was_there(&self, service: &ServiceRef, key: LeaseKey) -> bool {
        let shown = self.shown_by(service, key);
        shown.is_some_and(|fip| !service.made(&fip.identity.name))
    }

    /// The FloatingIP of a lease as its holder; `None` where the lease has none.
    fn shown_by(&self, service: &ServiceRef, key: LeaseKey) -> Option<Holder> {
        let management = self.management()?;
        let data = self.rancher.data();
        let cluster = match (self.rancher_cluster(), &data) {
            (Some(cluster), _) => cluster,
            // Rancher does not say what it calls this cluster; the object itself says whose address it shows.
            (None, Some(data)) => return recorded(data, &management, service, key.address),
            // Rancher was not seen yet, and there the object may be. Until then nobody else gets the address: the lease
            // goes to an object that is nowhere, and from that to the one that shows it or to nobody.
            (None, None) => self.context.site.id.to_string(),
        };
        let lease = self.context.read(|ledger| ledger.lease(key).cloned())?;
        let wanted = self.context.read(|ledger| {
            object::wanted(
                ledger,
                &management,
                data.as_deref(),
                service,
                &cluster,
                &lease,
                &|key| self.lives(key),
            )
        })?;
        let fip = data.as_ref().and_then(|data| data.fips.get(&wanted.key));
        Some(Holder {
            identity: names::identity(&management, KIND_FLOATING_IP, &wanted.key),
            instance: fip.map_or_else(|| "".into(), |fip| Text::clone(&fip.meta.uid)),
        })
    }

    /// Deletes the announcer's objects of a Service. Objects that fipd may not see or delete hold up nobody's
    /// address; the sweep takes them once it may.
    async fn unannounce(&self, service: &ServiceRef, svc: &Svc) -> Result<(), ReconcileError> {
        let mode = self.settings.announce;
        let taken_over = self.announced.lock().remove(&service.key).is_some();
        let made = taken_over || announce::shows_objects(mode, svc);
        match mode {
            Announce::None | Announce::KubeVip => return Ok(()),
            Announce::Metallb | Announce::Purelb => {}
        }
        for kind in announce::KINDS.iter().filter(|kind| reader(**kind) == mode) {
            match self.delete_objects(kind, &service.uid).await {
                // The announcer is not installed (any more).
                Ok(()) | Err(CallError::NotFound(_)) => {}
                Err(CallError::Rejected(_, why)) => {
                    if made {
                        self.warn_of_left(service, kind, &why);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !taken_over {
            self.delete_originals(service, svc).await?;
        }
        Ok(())
    }

    async fn delete_objects(&self, kind: &Kind, uid: &str) -> Result<(), CallError> {
        let label = format!("{FOR_SERVICE}%3D{uid}");
        let remote = &self.context.remote;
        let all = remote.list(&kind.all(), &label).await?;
        delete_listed(remote, *kind, &all, |_, _| true).await
    }

    fn warn_of_left(&self, service: &ServiceRef, kind: &Kind, why: &str) {
        let note = format!(
            "{} objects with label {FOR_SERVICE}={} may be left: {why}; delete them, or give fipd the right to",
            kind.kind, service.uid
        );
        self.warn(service, "AnnouncementLeft", note);
    }
}

/// The FloatingIP that says that it shows this address of the Service.
fn recorded(
    data: &Data,
    management: &ClusterId,
    service: &ServiceRef,
    address: IpAddr,
) -> Option<Holder> {
    let fips = data.fips_of(&service.cluster, &service.key);
    let (key, fip) = fips
        .into_iter()
        .find(|(_, fip)| fip.recorded() == Some(address))?;
    Some(Holder {
        identity: names::identity(management, KIND_FLOATING_IP, &key),
        instance: Text::clone(&fip.meta.uid),
    })
}

fn has(lease: &Lease, holder: &Holder) -> bool {
    lease.members.iter().any(|member| member.holder == *holder)
}

/// The member of the lease that is this Service, of whatever instance.
fn holder_of(lease: &Lease, service: &ServiceRef, uid: &Text) -> Holder {
    let identity = service.holder().identity;
    let member = lease
        .members
        .iter()
        .find(|member| member.holder.identity == identity);
    member.map_or_else(
        || Holder {
            identity,
            instance: Text::clone(uid),
        },
        |member| member.holder.clone(),
    )
}

/// Whether the addresses in the status are those we gave.
fn shows_ours(svc: &Svc, held: &[Arc<Lease>]) -> bool {
    let given: Vec<IpAddr> = svc
        .mark(FLOATING_IP)
        .unwrap_or("")
        .split(',')
        .filter_map(|text| text.parse().ok())
        .chain(held.iter().map(|lease| lease.key.address))
        .collect();
    svc.ingress.iter().any(|text| {
        text.parse()
            .is_ok_and(|address: IpAddr| given.contains(&address))
    })
}
