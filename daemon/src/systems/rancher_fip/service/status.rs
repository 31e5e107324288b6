//! What is written on a Service: its addresses and marks, and Events for what it waits for.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use fipd_core::{Identity, Lease, LeaseKey, Ledger, NetworkId, Text};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{ServiceTurn, Services, announce, observe::Svc, originals, plan::LeasesByFamily};
use crate::{
    controller::{
        Reconciled,
        client::{CallError, Patch},
        conditions::{CONFLICT, also_used},
        kind::SERVICE,
        store::Key,
    },
    systems::rancher_fip::{
        names::{
            FINALIZER, FLOATING_IP, HOLDER, KUBE_VIP_ADDRESSES, PURELB_GROUP, SERVICE_LABEL,
            SERVICE_NAMESPACE_LABEL, ServiceRef,
        },
        settings::Announce,
    },
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
        turn: &ServiceTurn<'_>,
        addresses: &[IpAddr],
    ) -> Reconciled<()> {
        let ServiceTurn { service, svc, .. } = turn;
        let claim = claim(svc, service, addresses, self.settings().announce);
        if claim.is_some() {
            // The marks name the addresses and the announcer.
            self.warn_unannounced(service, svc, addresses);
        }
        match (claim, show(svc, addresses)) {
            (claim, Some(_)) if self.shown.lock().has(service, addresses, Instant::now()) => {
                if let Some(claim) = claim.filter(|_| svc.has_finalizer()) {
                    self.patch(service, &claim).await?;
                }
                self.context.queue.add_after(service.key.clone(), BEHIND);
                return Ok(());
            }
            (claim, Some(status)) => {
                let patch = match &claim {
                    Some(claim) => both(claim, status),
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
        if let Some(why) = announce::unannounced(self.settings().announce, svc.class.as_deref()) {
            let addresses = listed(addresses, " and ");
            let note = format!("nobody announces {addresses} on the network: {why}");
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
    ) -> Reconciled<bool> {
        let written: WriteAnswer = self.patch_status(service, patch).await?;
        let (key, uid) = (&service.key, &service.uid);
        let note = format!("{} assigned", listed(addresses, ", "));
        self.context.note(key, uid, "AddressAssigned", note);
        let finalizers = written.metadata.finalizers.unwrap_or_default();
        Ok(finalizers.iter().any(|one| one == FINALIZER))
    }

    /// A Service that has no lease (an admin took it) must not go on showing an address that another got.
    pub(super) async fn hide_anothers(&self, service: &ServiceRef, svc: &Svc) -> Reconciled<()> {
        let identity = service.holder().identity;
        let addresses = marked_addresses(svc);
        let anothers = self.context.site.ipam.find_network(|ledger, network| {
            is_anothers(ledger, network, &addresses, &identity).then_some(())
        });
        if anothers.is_some()
            && let Some(patch) = show(svc, &[])
        {
            let _: IgnoredAny = self.patch_status(service, &patch).await?;
        }
        Ok(())
    }

    /// Takes addresses that were given by us off the status, before another may get them.
    pub(super) async fn hide(&self, turn: &ServiceTurn<'_>) -> Result<(), CallError> {
        let ServiceTurn { service, svc, held } = turn;
        let Some(patch) = show(svc, &[]).filter(|_| shows_ours(svc, held)) else {
            return Ok(());
        };
        match self.patch_status::<IgnoredAny>(service, &patch).await {
            Err(CallError::NotFound(_)) => Ok(()),
            // A Service of another type has no such status any more.
            Err(CallError::Rejected(..)) if !svc.balanced => Ok(()),
            result => result.map(drop),
        }
    }

    pub(super) fn warn_of_contenders(&self, service: &ServiceRef, kept: &LeasesByFamily) {
        for lease in kept.values() {
            let others = lease.contenders.iter();
            let others: Vec<String> = others.map(|one| one.holder.identity.to_string()).collect();
            if let Some(note) = also_used(lease.key.address, &others) {
                self.warn(service, CONFLICT, note);
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

/// Whether one of these addresses is leased in the network, itself or in a prefix, and not to this identity.
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
    let leases = addresses.iter().map(place);
    let mut leases = leases.filter_map(|one| ledger.lease_around(one));
    leases.any(|lease| !lease.held_by(identity))
}

/// All annotations and labels that fipd ever writes on a Service.
const ANNOTATIONS: [&str; 4] = [FLOATING_IP, HOLDER, KUBE_VIP_ADDRESSES, PURELB_GROUP];
const LABELS: [&str; 2] = [SERVICE_LABEL, SERVICE_NAMESPACE_LABEL];

/// The patch (strategic) that marks the Service as holding `addresses`; `None` if it is marked.
pub fn claim(
    svc: &Svc,
    service: &ServiceRef,
    addresses: &[IpAddr],
    announce: Announce,
) -> Option<Value> {
    let (annotations, labels) = marks(svc, service, addresses, announce);
    let annotations = changes(svc, &ANNOTATIONS, &annotations, addresses);
    let labels = changes(svc, &LABELS, &labels, addresses);
    let mut metadata = filled(annotations, labels);
    if !svc.has_finalizer() {
        metadata.insert("finalizers".into(), json!([FINALIZER]));
    }
    wrap(metadata, svc)
}

/// The patch (strategic) that takes everything of ours off a Service that lives on.
pub fn disclaim(svc: &Svc) -> Option<Value> {
    let gone = |keys: &[&'static str]| -> Map<String, Value> {
        let there = keys.iter().filter(|key| svc.marks.contains_key(*key));
        there.map(|key| ((*key).to_owned(), Value::Null)).collect()
    };
    let mut metadata = filled(gone(&ANNOTATIONS), gone(&LABELS));
    if svc.has_finalizer() {
        let key = "$deleteFromPrimitiveList/finalizers";
        metadata.insert(key.into(), json!([FINALIZER]));
    }
    wrap(metadata, svc)
}

/// The patch of the status that shows `addresses`; `None` if it does.
pub fn show(svc: &Svc, addresses: &[IpAddr]) -> Option<Value> {
    let shown = svc.ingress.iter().map(|text| text.parse().ok());
    if shown.eq(addresses.iter().copied().map(Some)) {
        return None;
    }
    let ingress = addresses
        .iter()
        .map(|address| json!({ "ip": address.to_string() }));
    let ingress: Option<Vec<Value>> = (!addresses.is_empty()).then(|| ingress.collect());
    Some(
        json!({ "metadata": { "uid": &*svc.uid }, "status": { "loadBalancer": { "ingress": ingress } } }),
    )
}

/// A patch of the status that also does what `claim` does.
pub fn both(claim: &Value, mut status: Value) -> Value {
    if let (Some(all), Some(metadata)) = (status.as_object_mut(), claim.get("metadata")) {
        all.insert("metadata".to_owned(), metadata.clone());
    }
    status
}

type ServiceMarks = BTreeMap<&'static str, String>;

/// Annotations and labels of a Service that has these addresses.
fn marks(
    svc: &Svc,
    service: &ServiceRef,
    addresses: &[IpAddr],
    announce: Announce,
) -> (ServiceMarks, ServiceMarks) {
    let list = listed(addresses, ",");
    let mut labels = ServiceMarks::new();
    if matches!(announce, Announce::Metallb | Announce::Purelb) {
        labels.insert(SERVICE_LABEL, service.key.name.to_string());
        labels.insert(SERVICE_NAMESPACE_LABEL, service.key.namespace.to_string());
    }
    let mut annotations =
        ServiceMarks::from([(FLOATING_IP, list.clone()), (HOLDER, service.to_string())]);
    match (announce, addresses.first()) {
        (Announce::KubeVip, _) => {
            annotations.insert(KUBE_VIP_ADDRESSES, list);
        }
        (Announce::Purelb, Some(first)) => {
            let group = originals::group_name(svc, &service.key, *first);
            annotations.insert(PURELB_GROUP, group);
        }
        (Announce::None | Announce::Metallb | Announce::Purelb, _) => {}
    }
    (annotations, labels)
}

/// Metadata with those of both that are there.
fn filled(annotations: Map<String, Value>, labels: Map<String, Value>) -> Map<String, Value> {
    let parts = [("annotations", annotations), ("labels", labels)];
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    parts
        .map(|(name, part)| (name.to_owned(), Value::Object(part)))
        .collect()
}

/// What to set and what to take off. A mark that is not wanted is taken off only where we set it: everything
/// but an announcer's annotation on a Service that was not ours before.
fn changes(
    svc: &Svc,
    keys: &[&'static str],
    wanted: &ServiceMarks,
    addresses: &[IpAddr],
) -> Map<String, Value> {
    let mut changes = Map::new();
    for key in keys {
        match (svc.mark(key), wanted.get(key)) {
            (Some(before), Some(after)) if before == after => {}
            (_, Some(after)) => {
                changes.insert((*key).to_owned(), json!(after));
            }
            (Some(before), None) if svc.is_marked() || names_address(before, addresses) => {
                changes.insert((*key).to_owned(), Value::Null);
            }
            (Some(_) | None, None) => {}
        }
    }
    changes
}

fn names_address(text: &str, addresses: &[IpAddr]) -> bool {
    text.split(',').any(|one| {
        one.trim()
            .parse()
            .is_ok_and(|address: IpAddr| addresses.contains(&address))
    })
}

fn wrap(mut metadata: Map<String, Value>, svc: &Svc) -> Option<Value> {
    if metadata.is_empty() {
        return None;
    }
    metadata.insert("uid".into(), json!(&*svc.uid));
    Some(json!({ "metadata": metadata }))
}

#[cfg(test)]
mod tests {
    use fipd_core::{ClusterId, Holder, Network, Op};

    use super::*;
    use crate::{
        controller::store::Key,
        systems::rancher_fip::{
            names::{self, FINALIZER, HOLDER, KIND_SERVICE},
            sample,
        },
    };

    const OTHERS: NetworkId = NetworkId(7);

    fn identity(name: &str) -> Identity {
        names::identity(&ClusterId("c".into()), KIND_SERVICE, &Key::new("ns", name))
    }

    fn ledger(owner: &str) -> Ledger {
        leased(owner, "10.0.0.5", 32)
    }

    fn leased(owner: &str, address: &str, length: u8) -> Ledger {
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
            ..sample::place(address)
        };
        let lease = Lease {
            length,
            ..sample::lease(key, Some(holder))
        };
        ledger.apply(&Op::PutLease(Arc::new(lease)));
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
        let prefix = |owner: &str| leased(owner, "10.0.0.4", 30);
        assert!(shows_anothers(&prefix("api"), &elsewhere, &web));
        assert!(!shows_anothers(&prefix("web"), &elsewhere, &web));
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

    fn service() -> ServiceRef {
        ServiceRef {
            cluster: ClusterId("c".into()),
            key: Key::new("ns", "web"),
            uid: "u".into(),
        }
    }

    fn v4() -> Vec<IpAddr> {
        vec!["10.0.0.5".parse().expect("v4")]
    }

    fn svc() -> Svc {
        Svc {
            uid: "u".into(),
            balanced: true,
            ..Svc::default()
        }
    }

    /// What the API server would make of our patch.
    fn patched(mut svc: Svc, patch: &Value) -> Svc {
        let keys = ANNOTATIONS
            .iter()
            .map(|key| ("annotations", *key))
            .chain(LABELS.iter().map(|key| ("labels", *key)));
        for (part, key) in keys {
            match patch["metadata"][part].get(key) {
                Some(Value::String(value)) => drop(svc.marks.insert(key, value.clone())),
                Some(_) => drop(svc.marks.remove(key)),
                None => {}
            }
        }
        if patch["metadata"].get("finalizers").is_some() {
            svc.finalizers.push(FINALIZER.into());
        }
        svc
    }

    #[test]
    fn one_patch_marks_a_new_service_and_then_none() {
        for announce in [
            Announce::None,
            Announce::KubeVip,
            Announce::Metallb,
            Announce::Purelb,
        ] {
            let patch = claim(&svc(), &service(), &v4(), announce).expect("a patch");
            assert_eq!(patch["metadata"]["uid"], "u");
            assert_eq!(patch["metadata"]["finalizers"], json!([FINALIZER]));
            assert_eq!(patch["metadata"]["annotations"][FLOATING_IP], "10.0.0.5");
            let marked = patched(svc(), &patch);
            assert_eq!(
                claim(&marked, &service(), &v4(), announce),
                None,
                "{announce:?}"
            );
        }
    }

    #[test]
    fn another_announcer_takes_the_former_ones_marks_away() {
        let marked = patched(
            svc(),
            &claim(&svc(), &service(), &v4(), Announce::KubeVip).expect("a patch"),
        );
        let patch = claim(&marked, &service(), &v4(), Announce::Purelb).expect("a patch");
        assert_eq!(
            patch["metadata"]["annotations"][KUBE_VIP_ADDRESSES],
            Value::Null
        );
        assert_eq!(
            patch["metadata"]["annotations"][PURELB_GROUP],
            "ip4-10.0.0.5"
        );
        let mut foreign = svc();
        foreign.marks.insert(KUBE_VIP_ADDRESSES, "0.0.0.0".into());
        let patch = claim(&foreign, &service(), &v4(), Announce::None).expect("a patch");
        assert_eq!(
            patch["metadata"]["annotations"].get(KUBE_VIP_ADDRESSES),
            None,
            "it is not ours"
        );
    }

    #[test]
    fn a_group_that_the_original_named_keeps_its_name() {
        let mut stock = svc();
        let name = "rancher-fip-ns-web";
        stock.marks.insert(PURELB_GROUP, name.into());
        let patch = claim(&stock, &service(), &v4(), Announce::Purelb).expect("a patch");
        assert_eq!(patch["metadata"]["annotations"].get(PURELB_GROUP), None);
        let marked = patched(stock.clone(), &patch);
        assert_eq!(marked.mark(PURELB_GROUP), Some(name));
        stock
            .marks
            .insert(PURELB_GROUP, "rancher-fip-ns-other".into());
        let patch = claim(&stock, &service(), &v4(), Announce::Purelb).expect("a patch");
        let group = &patch["metadata"]["annotations"][PURELB_GROUP];
        assert_eq!(group, "ip4-10.0.0.5");
    }

    #[test]
    fn everything_comes_off_again() {
        let marked = patched(
            svc(),
            &claim(&svc(), &service(), &v4(), Announce::Metallb).expect("a patch"),
        );
        let patch = disclaim(&marked).expect("a patch");
        assert_eq!(
            patch["metadata"]["labels"],
            json!({ SERVICE_LABEL: null, SERVICE_NAMESPACE_LABEL: null })
        );
        assert_eq!(
            patch["metadata"]["$deleteFromPrimitiveList/finalizers"],
            json!([FINALIZER])
        );
        assert_eq!(disclaim(&svc()), None);
    }

    #[test]
    fn defect_17_one_patch_marks_and_shows() {
        let claim = claim(&svc(), &service(), &v4(), Announce::None).expect("a patch");
        let both = both(&claim, show(&svc(), &v4()).expect("a patch"));
        assert_eq!(both["metadata"], claim["metadata"]);
        assert_eq!(both["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(both["metadata"]["uid"], json!(&*svc().uid));
        assert_eq!(
            both["status"]["loadBalancer"]["ingress"],
            json!([{ "ip": "10.0.0.5" }])
        );
    }

    #[test]
    fn the_status_is_written_once() {
        let patch = show(&svc(), &v4()).expect("a patch");
        assert_eq!(
            patch["status"]["loadBalancer"]["ingress"],
            json!([{ "ip": "10.0.0.5" }])
        );
        let shown = Svc {
            ingress: vec!["10.0.0.5".into()],
            ..svc()
        };
        assert_eq!(show(&shown, &v4()), None);
        assert_eq!(
            show(&shown, &[]).expect("a patch")["status"]["loadBalancer"]["ingress"],
            Value::Null
        );
        assert_eq!(show(&svc(), &[]), None);
    }
}
