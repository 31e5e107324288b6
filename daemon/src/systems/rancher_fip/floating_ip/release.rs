//! The end of a FloatingIP. An address that nobody uses is free before the finalizer goes; one that a Service shows stays with
//! that Service, until no complete list of its cluster shows it.

use std::net::IpAddr;

use fipd_core::{Holder, Lease, Text};
use k8s_openapi::jiff;

use super::{
    FloatingIpController,
    in_use::{self, Word},
    observe::Fip,
    unassigned::Whereabouts,
};
use crate::controller::{
    ReconcileError, Reconciled,
    client::CallError,
    conditions::{ConditionUpdate, set},
    store::Key,
};

impl FloatingIpController {
    /// Leaves the addresses of an object that is deleted to the Services that use them, by its labels.
    pub(super) async fn leave_to_users(&self, key: &Key, fip: &Fip) -> Reconciled<()> {
        // A lease handed over before the object was seen names no instance.
        let unnamed = self.context.holder(key, &Text::from(""));
        let named = self.context.holder(key, &fip.meta.uid);
        let ipam = &self.context.site.ipam;
        for lease in ipam.read(|ledger| ledger.leases_of(&named.identity)) {
            let holds = |from: &&Holder| lease.members.iter().any(|one| one.holder == **from);
            if let Some(from) = [&named, &unnamed].into_iter().find(holds)
                && let Some(to) = self.address_user(key, fip, lease.key.address).await?
            {
                self.leave_to(key, fip, &lease, from.clone(), to).await?;
            }
        }
        self.give_back(unnamed, "deleted").await
    }

    /// Who uses an address of the object and keeps it.
    async fn address_user(
        &self,
        key: &Key,
        fip: &Fip,
        address: IpAddr,
    ) -> Reconciled<Option<Holder>> {
        let Some(called) = in_use::cluster(key, fip) else {
            return Ok(None);
        };
        let word = match self.user.rancher.guest_called(called) {
            Some((cluster, guest)) => {
                let services = fip.users();
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
    ) -> Reconciled<()> {
        let note = in_use::note(lease.key.address, fip, &to);
        let (site, reason) = (
            &self.context.site,
            "its FloatingIP is deleted while a Service uses the address",
        );
        site.hand_over(from, to, lease.key, reason).await?;
        self.say_kept(key, fip, &note).await?;
        self.context.warn(key, &fip.meta.uid, in_use::REASON, note);
        Ok(())
    }

    /// For who follows the object to its end, or finds it kept by a finalizer of others.
    async fn say_kept(&self, key: &Key, fip: &Fip, note: &str) -> Reconciled<()> {
        let mut after = fip.status.clone();
        let says = ConditionUpdate::ready(false, in_use::REASON, note);
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
}

#[cfg(test)]
mod tests;
