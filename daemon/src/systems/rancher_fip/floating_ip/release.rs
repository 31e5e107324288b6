//! The end of a FloatingIP. An address that nobody uses is free before the finalizer goes; one that a Service shows stays with
//! that Service, until no complete list of its cluster shows it.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Handover, Holder, Lease, Release, ReleaseScope, Request, Text};
use fipd_crds::floating_ip::FloatingIP;
use k8s_openapi::jiff;
use kube::core::PartialObjectMeta;

use super::{
    FloatingIps,
    in_use::{self, Word},
    observe::{self, Fip},
    status,
    unassigned::Whereabouts,
};
use crate::{
    controller::{
        ReconcileError,
        client::CallError,
        conditions::{ConditionUpdate, set},
        queue::Next,
        store::Key,
    },
    systems::rancher_fip::{kinds::FLOATING_IP, names::FINALIZER},
};

impl FloatingIps {
    /// The object is being deleted: its leases are decided before its finalizer goes.
    pub(super) async fn finalize(&self, key: &Key, fip: &Fip) -> Result<Next, ReconcileError> {
        self.context.waiters.wait(key, None);
        if !fip.has_finalizer() {
            return Ok(Next::Done);
        }
        for (from, lease) in self.own(key, &fip.meta.uid) {
            if let Some(to) = self.user(key, fip, lease.key.address).await? {
                self.leave_to(key, fip, &lease, from, to).await?;
            }
        }
        // A lease handed over before the object was seen names no instance.
        for instance in [&fip.meta.uid, &Text::from("")] {
            self.give_back(self.context.holder(key, instance), "deleted")
                .await?;
        }
        self.context
            .drop_finalizer(key, &fip.meta, FINALIZER)
            .await?;
        Ok(Next::Done)
    }

    /// The same for one that does not fit its schema: its labels still tell who uses the address.
    pub(super) async fn finalize_malformed(&self, key: &Key) -> Result<Next, ReconcileError> {
        let read = self.data.remote.get(&FLOATING_IP.target(key)).await?;
        let Some(object): Option<PartialObjectMeta<FloatingIP>> = read else {
            return Ok(Next::Done);
        };
        let fip = observe::slim(FloatingIP {
            metadata: object.metadata,
            ..FloatingIP::default()
        });
        self.finalize(key, &fip).await
    }

    /// The leases that the object itself has.
    fn own(&self, key: &Key, uid: &Text) -> Vec<(Holder, Arc<Lease>)> {
        let identity = self.context.identity(key);
        let leases = self
            .context
            .site
            .ipam
            .read(|ledger| ledger.leases_of(&identity));
        let own = |holder: &&Holder| {
            holder.identity == identity && (holder.instance == *uid || holder.instance.is_empty())
        };
        let member = |lease: Arc<Lease>| {
            let mut holders = lease.members.iter().map(|member| &member.holder);
            let holder = holders.find(own).cloned();
            holder.map(|holder| (holder, lease))
        };
        leases.into_iter().filter_map(member).collect()
    }

    /// Who uses an address of the object and keeps it.
    async fn user(
        &self,
        key: &Key,
        fip: &Fip,
        address: IpAddr,
    ) -> Result<Option<Holder>, ReconcileError> {
        let Some(called) = in_use::cluster(key, fip) else {
            return Ok(None);
        };
        let word = match self.rancher.guest_called(called) {
            Some((cluster, guest)) => {
                let services = in_use::named(fip);
                match guest.shows(address) {
                    Some(service) => Word::Shows(service),
                    // The list may be behind, and from before an outage.
                    None => match guest.ask(&services, address).await {
                        Ok(Some(service)) => Word::Shows(service),
                        Ok(None) => Word::ShowsNowhere,
                        Err(_) => Word::Silent(cluster),
                    },
                }
            }
            None if self.whereabouts(key, fip).await? == Whereabouts::Gone => Word::ShowsNowhere,
            None => Word::Unconnected,
        };
        Ok(in_use::keeper(&self.context.site.id, key, fip, word))
    }

    async fn leave_to(
        &self,
        key: &Key,
        fip: &Fip,
        lease: &Lease,
        from: Holder,
        to: Holder,
    ) -> Result<(), ReconcileError> {
        let note = in_use::note(lease.key.address, fip, &to);
        let request = Request::Handover(Handover {
            from,
            to,
            keys: vec![lease.key],
            actor: self.context.site.actor(),
            reason: "its FloatingIP is deleted while a Service uses the address".into(),
        });
        self.context.site.ipam.submit(request).await?;
        self.say_kept(key, fip, &note).await?;
        self.context.warn(key, &fip.meta.uid, in_use::REASON, note);
        Ok(())
    }

    /// For who follows the object to its end, or finds it kept by a finalizer of others.
    async fn say_kept(&self, key: &Key, fip: &Fip, note: &str) -> Result<(), ReconcileError> {
        let mut after = fip.status.clone();
        let says = ConditionUpdate {
            kind: status::READY,
            status: false,
            reason: in_use::REASON,
            message: note.to_owned(),
        };
        let now = jiff::Timestamp::now();
        set(&mut after.conditions, &says, fip.meta.generation, now);
        let change = (&fip.status, &after);
        let write = self.context.write_status(key, &fip.meta.uid, change);
        match write.await {
            // An object that does not fit its schema takes no condition either; the Event says it.
            Err(ReconcileError::Call(CallError::Rejected(..) | CallError::NotFound(_))) => Ok(()),
            written => written,
        }
    }

    pub(super) async fn give_back(
        &self,
        holder: Holder,
        reason: &str,
    ) -> Result<(), ReconcileError> {
        let scope = ReleaseScope::Holder(holder);
        let request = Request::Release(Release {
            scope,
            actor: self.context.site.actor(),
            reason: reason.into(),
        });
        self.context.site.ipam.submit(request).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
