//! The end of a FloatingIP. An address that nobody uses is free before the finalizer goes; one that a Service shows stays with
//! that Service, until no complete list of its cluster shows it.

use std::net::IpAddr;

use fipd_core::{ClusterId, Holder, Lease, Text};
use k8s_openapi::jiff;

use super::{FloatingIpController, observe::Fip, unassigned::Whereabouts};
use crate::{
    controller::{
        ReconcileError, Reconciled,
        client::CallError,
        conditions::{ConditionUpdate, set},
        store::Key,
    },
    systems::rancher_fip::names::{self, KIND_SERVICE, ServiceRef},
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
        let Some(called) = user_cluster(key, fip) else {
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
        Ok(keeper(&self.context.site.id, key, fip, word))
    }

    async fn leave_to(
        &self,
        key: &Key,
        fip: &Fip,
        lease: &Lease,
        from: Holder,
        to: Holder,
    ) -> Reconciled<()> {
        let note = kept_note(lease.key.address, fip, &to);
        let (site, reason) = (
            &self.context.site,
            "its FloatingIP is deleted while a Service uses the address",
        );
        site.transfer(from, to, lease.key, reason).await?;
        self.say_kept(key, fip, &note).await?;
        self.context.warn(key, &fip.meta.uid, KEPT, note);
        Ok(())
    }

    /// For who follows the object to its end, or finds it kept by a finalizer of others.
    async fn say_kept(&self, key: &Key, fip: &Fip, note: &str) -> Reconciled<()> {
        let mut after = fip.status.clone();
        let says = ConditionUpdate::ready(false, KEPT, note);
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

/// Reason of the condition and the Event.
const KEPT: &str = "AddressKept";

/// What is known of the use of an address in the cluster that the object names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Shows(ServiceRef),
    /// It answers, or Rancher has no such cluster any more.
    ShowsNowhere,
    /// It is connected and does not answer.
    Silent(ClusterId),
    /// fipd is not connected to it: only the object tells who uses the address.
    Unconnected,
}

/// Rancher's id of the cluster whose Services may use the address of the object; `None`: nobody does. One that fipd wrote for
/// a Service has a lease of its own only once that Service gave it up.
fn user_cluster<'a>(key: &Key, fip: &'a Fip) -> Option<&'a str> {
    let ours = fip
        .holder
        .as_ref()
        .is_some_and(|service| service.made(&key.name));
    fip.cluster.as_deref().filter(|_| !ours)
}

/// Who keeps the address; `None`: it is free.
fn keeper(management: &ClusterId, key: &Key, fip: &Fip, word: Word) -> Option<Holder> {
    let called = user_cluster(key, fip)?;
    let services = fip.users();
    match word {
        Word::Shows(service) => Some(service.holder()),
        Word::ShowsNowhere => None,
        Word::Silent(cluster) => {
            let service = services.first()?;
            Some(names::holder(&cluster, KIND_SERVICE, service, "".into()))
        }
        Word::Unconnected => match services.as_slice() {
            [] => None,
            [service] => Some(names::reported_service(management, called, service)),
            // No Service of this name gives it up for the others.
            [_, _, ..] => Some(names::reported_service(management, called, key)),
        },
    }
}

/// What is said of an address that outlives its object.
fn kept_note(address: IpAddr, fip: &Fip, to: &Holder) -> String {
    let identity = &to.identity;
    let cluster = fip.cluster.as_deref().unwrap_or_default();
    let end = if identity.interface.is_empty() {
        "until that cluster shows it no more"
    } else {
        "fipd is not connected to that cluster; where nobody uses the address, `fipd lease release` frees it"
    };
    format!(
        "{address} stays with Service {}/{} of cluster {cluster}, which uses it: {end}",
        identity.namespace, identity.name
    )
}

#[cfg(test)]
mod tests;
