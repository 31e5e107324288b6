//! What a Service shows: its addresses, and Events for what it waits for.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use fipd_core::{Family, Identity, Lease, LeaseKey, Ledger, NetworkId, Text};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;
use tokio::time::Instant;

use super::{Services, announce, apply, observe::Svc};
use crate::{
    controller::{
        Reconciled,
        client::{CallError, Patch},
        conditions::{CONFLICT, also_used},
        kind::SERVICE,
        store::Key,
    },
    systems::rancher_fip::names::{self, FLOATING_IP, ServiceRef},
};

/// A watch may be behind our own write for so long before the write is repeated.
pub const BEHIND: Duration = Duration::from_secs(3);

/// What counts of an API server's answer to a write.
#[derive(Deserialize)]
struct WriteAnswer {
    metadata: ObjectMeta,
}

/// The statuses of Services as last written, and when.
#[derive(Default)]
pub(super) struct LastShown(BTreeMap<Key, (Text, Vec<IpAddr>, Instant)>);

impl LastShown {
    fn note(&mut self, service: &ServiceRef, addresses: &[IpAddr], now: Instant) {
        let written = (Text::clone(&service.uid), addresses.to_vec(), now);
        self.0.insert(service.key.clone(), written);
    }

    /// Nothing of the Service is shown any more.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Whether the status was written like this just now, and the watch is behind.
    fn has(&self, service: &ServiceRef, addresses: &[IpAddr], now: Instant) -> bool {
        let last = self.0.get(&service.key);
        last.is_some_and(|(uid, written, at)| {
            *uid == service.uid && written == addresses && now.duration_since(*at) < BEHIND
        })
    }
}

impl Services {
    /// Marks the Service and shows its addresses, in one write where both are new: no status without the finalizer that
    /// tells of its end. What follows is left to do then, unless it was written just now and the watch is behind.
    pub(super) async fn show(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        addresses: &[IpAddr],
    ) -> Reconciled<()> {
        let claim = apply::claim(svc, service, addresses, self.settings.announce);
        if claim.is_some() {
            // The marks name the addresses and the announcer.
            self.warn_unannounced(service, svc, addresses);
        }
        match (claim, apply::show(svc, addresses)) {
            (claim, Some(_)) if self.shown.lock().has(service, addresses, Instant::now()) => {
                if let Some(claim) = claim.filter(|_| svc.has_finalizer()) {
                    self.patch(service, &claim).await?;
                }
                self.context.queue.add_after(service.key.clone(), BEHIND);
                return Ok(());
            }
            (claim, Some(status)) => {
                let patch = match &claim {
                    Some(claim) => apply::both(claim, status),
                    None => status,
                };
                let finalized = self.show_status(service, addresses, &patch).await?;
                if let Some(claim) = claim.filter(|_| !finalized) {
                    self.patch(service, &claim).await?;
                }
                // Before status and finalizer are written, the next try writes both.
                let mut shown = self.shown.lock();
                shown.note(service, addresses, Instant::now());
            }
            (Some(claim), None) => self.patch(service, &claim).await?,
            (None, None) => {}
        }
        self.follow_ups.add(service.key.clone());
        Ok(())
    }

    /// Changes the metadata of the Service.
    pub(super) async fn patch(&self, service: &ServiceRef, patch: &Value) -> Result<(), CallError> {
        let (target, remote) = (SERVICE.target(&service.key), &self.context.remote);
        remote.patch(&target, Patch::Strategic, patch).await
    }

    /// Changes its status; what it is afterwards.
    async fn patch_status<T: DeserializeOwned>(
        &self,
        service: &ServiceRef,
        patch: &Value,
    ) -> Result<T, CallError> {
        let (target, remote) = (SERVICE.target(&service.key), &self.context.remote);
        let patched = remote.patch_status_seen(&target, Patch::Strategic, patch);
        patched.await
    }

    /// Says that nobody answers for the addresses, where that is certain.
    fn warn_unannounced(&self, service: &ServiceRef, svc: &Svc, addresses: &[IpAddr]) {
        if let Some(why) = announce::unannounced(self.settings.announce, svc.class.as_deref()) {
            let addresses = listed(addresses, " and ");
            let note = format!("nobody announces {addresses} on the network: {why}");
            let (key, uid) = (&service.key, &service.uid);
            self.context.warn(key, uid, "NotAnnounced", note);
        }
    }

    /// Whether the Service has our finalizer afterwards: API servers take metadata with a Service's status, but do not
    /// promise to.
    async fn show_status(
        &self,
        service: &ServiceRef,
        addresses: &[IpAddr],
        patch: &Value,
    ) -> Reconciled<bool> {
        let written: WriteAnswer = self.patch_status(service, patch).await?;
        let (key, uid) = (&service.key, &service.uid);
        let note = format!("{} assigned", listed(addresses, ", "));
        self.context.note(key, uid, "AddressAssigned", note);
        let finalizers = written.metadata.finalizers.unwrap_or_default();
        Ok(finalizers.iter().any(|one| one == names::FINALIZER))
    }

    /// A Service that has no lease (an admin took it) must not go on showing an address that another got.
    pub(super) async fn hide_anothers(&self, service: &ServiceRef, svc: &Svc) -> Reconciled<()> {
        let identity = service.holder().identity;
        let addresses = marked_addresses(svc);
        let anothers = self.context.site.ipam.find_network(|ledger, network| {
            is_anothers(ledger, network, &addresses, &identity).then_some(())
        });
        if anothers.is_some()
            && let Some(patch) = apply::show(svc, &[])
        {
            let _: IgnoredAny = self.patch_status(service, &patch).await?;
        }
        Ok(())
    }

    /// Takes addresses that were given by us off the status, before another may get them.
    pub(super) async fn hide(
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

    pub(super) fn warn_of_contenders(
        &self,
        service: &ServiceRef,
        kept: &BTreeMap<Family, Arc<Lease>>,
    ) {
        for lease in kept.values() {
            let others = lease.contenders.iter();
            let others: Vec<String> = others.map(|one| one.holder.identity.to_string()).collect();
            if let Some(note) = also_used(lease.key.address, &others) {
                let (key, uid) = (&service.key, &service.uid);
                self.context.warn(key, uid, CONFLICT, note);
            }
        }
    }
}

fn listed(addresses: &[IpAddr], between: &str) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(between)
}

/// Whether the addresses in the status are those we gave.
fn shows_ours(svc: &Svc, held: &[Arc<Lease>]) -> bool {
    let noted = svc.mark(FLOATING_IP).unwrap_or("").split(',');
    let noted = noted.filter_map(|text| text.parse().ok());
    let mut given = noted.chain(held.iter().map(|lease| lease.key.address));
    given.any(|address| svc.is_given(address))
}

/// What a Service that we marked shows.
fn marked_addresses(svc: &Svc) -> Vec<IpAddr> {
    let texts = svc.ingress.iter().filter(|_| svc.is_marked());
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Whether one of these addresses is leased in the network, and not to this identity.
fn is_anothers(
    ledger: &Ledger,
    network: NetworkId,
    addresses: &[IpAddr],
    identity: &Identity,
) -> bool {
    let place = |address: &IpAddr| LeaseKey {
        network,
        address: *address,
    };
    let mut leases = addresses.iter().filter_map(|one| ledger.lease(place(one)));
    leases.any(|lease| !lease.held_by(identity))
}

#[cfg(test)]
mod tests {
    use fipd_core::{ClusterId, Holder, Network, Op};

    use super::*;
    use crate::systems::rancher_fip::{
        names::{FINALIZER, HOLDER, KIND_SERVICE},
        sample,
    };

    const OTHERS: NetworkId = NetworkId(7);

    fn identity(name: &str) -> Identity {
        names::identity(&ClusterId("c".into()), KIND_SERVICE, &Key::new("ns", name))
    }

    fn ledger(owner: &str) -> Ledger {
        let mut ledger = Ledger::new();
        ledger.apply(&Op::PutNetwork(Network {
            id: OTHERS,
            name: "others".into(),
            hold: None,
        }));
        let holder = Holder {
            identity: identity(owner),
            instance: "u".into(),
        };
        let key = LeaseKey {
            network: OTHERS,
            ..sample::place("10.0.0.5")
        };
        ledger.apply(&Op::PutLease(Arc::new(sample::lease(key, Some(holder)))));
        ledger
    }

    #[test]
    fn an_address_that_another_got_is_hidden() {
        let marked = Svc {
            finalizers: vec![FINALIZER.into()],
            marks: BTreeMap::from([(HOLDER, "x".into())]),
            ingress: vec!["10.0.0.5".into()],
            ..Svc::default()
        };
        let web = identity("web");
        let shows_anothers = |ledger: &Ledger, svc: &Svc, identity: &Identity| {
            let addresses = marked_addresses(svc);
            let mut networks = ledger.networks();
            networks.any(|one| is_anothers(ledger, one.id, &addresses, identity))
        };
        assert!(shows_anothers(&ledger("api"), &marked, &web));
        assert!(!shows_anothers(&ledger("web"), &marked, &web), "its own");
        assert!(
            !shows_anothers(&Ledger::new(), &marked, &web),
            "nobody has it"
        );
        let elsewhere = Svc {
            ingress: vec!["".into(), "10.0.0.6".into()],
            ..marked.clone()
        };
        assert!(!shows_anothers(&ledger("api"), &elsewhere, &web));
        let unmarked = Svc {
            finalizers: vec![],
            ..marked
        };
        assert!(!shows_anothers(&ledger("api"), &unmarked, &web));
    }

    #[test]
    fn a_status_that_was_written_just_now_is_not_written_again() {
        let service = |uid: &str| ServiceRef {
            cluster: ClusterId("c".into()),
            key: Key::new("ns", "web"),
            uid: uid.into(),
        };
        let (one, now) = (service("1"), Instant::now());
        let addresses = [sample::place("10.0.0.5").address];
        let mut last = LastShown::default();
        assert!(!last.has(&one, &addresses, now));
        last.note(&one, &addresses, now);
        assert!(last.has(&one, &addresses, now + BEHIND / 2));
        assert!(!last.has(&one, &addresses, now + BEHIND), "it was lost");
        assert!(!last.has(&one, &[], now), "other addresses");
        assert!(
            !last.has(&service("2"), &addresses, now),
            "another instance"
        );
    }
}
