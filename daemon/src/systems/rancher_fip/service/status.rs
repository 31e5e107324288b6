//! What a Service shows: its addresses, and Events for what it waits for.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use fipd_core::{Family, Identity, Lease, LeaseKey, Ledger, Text};
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
        ReconcileError,
        client::{CallError, Patch},
        kind::SERVICE,
        queue::Next,
        store::Key,
        unserved::{Unserved, contended},
        waiters::Cause,
    },
    systems::rancher_fip::names::{self, ServiceRef},
};

/// A watch may be behind our own write for so long before the write is repeated.
pub(super) const BEHIND: Duration = Duration::from_secs(3);

/// What counts of an API server's answer to a write.
#[derive(Deserialize)]
struct Written {
    metadata: ObjectMeta,
}

impl Services {
    /// Marks the Service and shows its addresses, in one write where both are new: no status without the finalizer that
    /// tells of its end.
    pub(super) async fn show(
        &self,
        service: &ServiceRef,
        svc: &Svc,
        addresses: &[IpAddr],
    ) -> Result<(), ReconcileError> {
        let claim = apply::claim(svc, service, addresses, self.settings.announce);
        if claim.is_some() {
            // The marks name the addresses and the announcer.
            self.warn_unannounced(service, svc, addresses);
        }
        match (claim, apply::show(svc, addresses)) {
            (claim, Some(_)) if self.just_written(service, addresses) => {
                if let Some(claim) = claim.filter(|_| svc.has_finalizer()) {
                    self.patch(service, &claim).await?;
                }
                self.context.queue.add_after(service.key.clone(), BEHIND);
                return Ok(());
            }
            (Some(claim), Some(status)) => {
                let both = apply::both(&claim, status);
                if !self.show_status(service, addresses, &both).await? {
                    self.patch(service, &claim).await?;
                }
                self.note_written(service, addresses);
            }
            (None, Some(status)) => {
                self.show_status(service, addresses, &status).await?;
                self.note_written(service, addresses);
            }
            (Some(claim), None) => self.patch(service, &claim).await?,
            (None, None) => {}
        }
        self.follow_ups.add(service.key.clone());
        Ok(())
    }

    /// Changes the metadata of the Service.
    pub(super) async fn patch(&self, service: &ServiceRef, patch: &Value) -> Result<(), CallError> {
        let target = SERVICE.target(&service.key);
        let patched = self.context.remote.patch(&target, Patch::Strategic, patch);
        patched.await
    }

    /// Changes its status; what it is afterwards.
    pub(super) async fn patch_status<T: DeserializeOwned>(
        &self,
        service: &ServiceRef,
        patch: &Value,
    ) -> Result<T, CallError> {
        let (target, remote) = (SERVICE.target(&service.key), &self.context.remote);
        let patched = remote.patch_status_seen(&target, Patch::Strategic, patch);
        patched.await
    }

    pub(super) fn warn(&self, service: &ServiceRef, reason: &'static str, note: String) {
        self.context.warn(&service.key, &service.uid, reason, note);
    }

    /// Says that nobody answers for the addresses, where that is certain.
    fn warn_unannounced(&self, service: &ServiceRef, svc: &Svc, addresses: &[IpAddr]) {
        if let Some(why) = announce::unannounced(self.settings.announce, svc.class.as_deref()) {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let note = format!(
                "nobody announces {} on the network: {why}",
                addresses.join(" and ")
            );
            self.warn(service, "NotAnnounced", note);
        }
    }

    /// Whether the Service has our finalizer afterwards: API servers take metadata with a Service's status, but do not
    /// promise to.
    async fn show_status(
        &self,
        service: &ServiceRef,
        addresses: &[IpAddr],
        patch: &Value,
    ) -> Result<bool, ReconcileError> {
        let written: Written = self.patch_status(service, patch).await?;
        self.say_shown(service, addresses);
        let finalizers = written.metadata.finalizers.unwrap_or_default();
        Ok(finalizers.iter().any(|one| one == names::FINALIZER))
    }

    /// A Service that has no lease (an admin took it) must not go on showing an address that another got.
    pub(super) async fn hide_anothers(
        &self,
        service: &ServiceRef,
        svc: &Svc,
    ) -> Result<(), ReconcileError> {
        let identity = service.holder().identity;
        let anothers = self
            .context
            .read(|ledger| shows_anothers(ledger, svc, &identity));
        if anothers && let Some(patch) = apply::show(svc, &[]) {
            let _: IgnoredAny = self.patch_status(service, &patch).await?;
        }
        Ok(())
    }

    fn say_shown(&self, service: &ServiceRef, addresses: &[IpAddr]) {
        let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let (key, uid) = (&service.key, &service.uid);
        let note = format!("{} assigned", list.join(", "));
        self.context.note(key, uid, "AddressAssigned", note);
    }

    pub(super) fn wait(&self, service: &ServiceRef, problem: Unserved) -> Next {
        self.waits_for(&service.key, problem.cause.clone());
        self.warn(service, problem.reason, problem.message);
        problem
            .cause
            .map_or(Next::Done, |cause| Next::After(cause.ask_again()))
    }

    pub(super) fn waits_for(&self, key: &Key, cause: Option<Cause>) {
        if self.context.waiters.wait(key, cause) {
            let identity = self.context.identity(key);
            self.context.site.ipam.forget_waiter(&identity);
        }
    }

    /// Status and finalizer are written. Before both are, the next try writes both.
    fn note_written(&self, service: &ServiceRef, addresses: &[IpAddr]) {
        let (uid, at) = (Text::clone(&service.uid), Instant::now());
        let mut shown = self.shown.lock();
        shown.insert(service.key.clone(), (uid, addresses.to_vec(), at));
    }

    /// Whether the status was written like this just now, and the watch is behind.
    fn just_written(&self, service: &ServiceRef, addresses: &[IpAddr]) -> bool {
        let shown = self.shown.lock();
        shown.get(&service.key).is_some_and(|(uid, written, at)| {
            *uid == service.uid && written == addresses && at.elapsed() < BEHIND
        })
    }

    /// A Service that has no lease waits for the end of the address it still shows: when another gets it, it is
    /// to be hidden.
    pub(super) fn still_shown(&self, service: &ServiceRef, svc: &Svc) -> Option<Cause> {
        if !svc.is_marked() || !self.held(service).is_empty() {
            return None;
        }
        let address: IpAddr = svc.ingress.first()?.parse().ok()?;
        let place = self.context.read(|ledger| place(ledger, address));
        place.map(Cause::Address)
    }

    /// The Service shows an address that another holds.
    pub(super) fn contended(&self, service: &ServiceRef) -> Option<Unserved> {
        let identity = service.holder().identity;
        let contentions = self.context.read(|ledger| ledger.contentions_of(&identity));
        contentions.first().map(|lease| contended(lease))
    }

    pub(super) fn warn_of_contenders(
        &self,
        service: &ServiceRef,
        kept: &BTreeMap<Family, Arc<Lease>>,
    ) {
        for lease in kept.values().filter(|lease| !lease.contenders.is_empty()) {
            let others: Vec<String> = lease
                .contenders
                .iter()
                .map(|one| one.holder.identity.to_string())
                .collect();
            let note = format!(
                "{} is also used by {}; end one of the two uses",
                lease.key.address,
                others.join(", ")
            );
            self.warn(service, "AddressConflict", note);
        }
    }
}

/// Where an address is given from.
fn place(ledger: &Ledger, address: IpAddr) -> Option<LeaseKey> {
    let mut keys = ledger.networks().map(|network| LeaseKey {
        network: network.id,
        address,
    });
    keys.find(|key| !ledger.pools_at(*key).is_empty())
}

/// Whether a Service that we marked shows an address that is leased, and not to this identity.
fn shows_anothers(ledger: &Ledger, svc: &Svc, identity: &Identity) -> bool {
    let texts = svc.ingress.iter().filter(|_| svc.is_marked());
    let mut addresses = texts.filter_map(|text| text.parse::<IpAddr>().ok());
    addresses.any(|address| {
        ledger.networks().any(|network| {
            let key = LeaseKey {
                network: network.id,
                address,
            };
            ledger
                .lease(key)
                .is_some_and(|lease| !lease.held_by(identity))
        })
    })
}

#[cfg(test)]
mod tests {
    use fipd_core::{ClusterId, Holder, Network, NetworkId, Op};

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
}
