//! FlatNetworkIPs: each gets an address of its subnet, of those that it names where it names some, and keeps it until its pod is
//! gone.

#[cfg(test)]
mod conformance_tests;
pub mod leaked;
#[cfg(test)]
mod release_tests;
mod silence;
mod status;
pub mod wish;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use fipd_core::{Holder, LeaseKey, Ledger, PoolId, PoolSpec, Tenant};
use fipd_crds::flat_network::{FlatNetworkIP, FlatNetworkIPSpec, FlatNetworkIPStatus};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference},
    jiff,
};
use parking_lot::Mutex;

use super::{
    names::{
        CHOSEN_MAC, FLAT_IP, FURTHER_INTERFACES, INTERFACE, IP_REMOVE, IPV6TO4, KEEP_SECONDS,
        KEPT_SINCE, WORKLOAD, pod_key,
    },
    pod::{alive, observe::used},
    settings::FlatNetworkSettings,
    subnet::SubnetView,
    workload::Workloads,
};
use crate::clusters::adoption::Sighting;
use crate::controller::{
    Reconciled,
    address_user::{
        AddressController, AddressHooks, AddressUser, Edits, ShownAddress, ShownNetwork,
        outcome::AddressOutcome,
        refusal::FixedFields,
        settle::{AddressWish, Inheritance, Wished},
    },
    kind::{Kind, NODE, POD},
    meta::{Meta, View},
    queue::Next,
    site::Site,
    store::{Key, Objects},
    waiters::LedgerEvent,
};
use crate::validation::flat_network::workload::WorkloadRef;

use silence::SeenNodes;
pub use status::to_the_second;

/// Between two looks at a pod that is not gone yet.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The same at workloads that are not known yet.
const SOON: Duration = Duration::from_secs(1);
/// What the audit log says.
const RETURNED: &str = "its pod is gone, and its workload names it";

/// A FlatNetworkIP, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct FlatIpView {
    pub meta: Meta,
    pub spec: FlatNetworkIPSpec,
    pub status: FlatNetworkIPStatus,
    pub labels: BTreeMap<String, String>,
    pub owners: Vec<OwnerReference>,
    /// The interface of the pod, where it is not that of the address which is called like the pod.
    pub interface: Option<String>,
    /// The other interfaces of its pod, where it is the address of the first.
    pub further: Option<String>,
    /// Whether it has an address of 6to4 as well, as its subnet says it.
    pub ipv6to4: Option<String>,
    /// The MAC of those that its pod names.
    pub mac: Option<String>,
    /// What its pod is of.
    pub workload: Option<WorkloadRef>,
    /// How many seconds the next pod of its name is waited for.
    pub keeps: Option<u32>,
    /// Since when it waits for that.
    pub kept_since: Option<jiff::Timestamp>,
}

impl View for FlatIpView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl FlatIpView {
    pub fn of(object: FlatNetworkIP) -> Self {
        let meta = &object.metadata;
        let annotation = |key: &str| meta.annotations.as_ref()?.get(key);
        Self {
            labels: meta.labels.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            mac: annotation(CHOSEN_MAC)
                .cloned()
                .filter(|mac| !mac.is_empty()),
            interface: annotation(INTERFACE).cloned(),
            ipv6to4: annotation(IPV6TO4).cloned(),
            further: annotation(FURTHER_INTERFACES).cloned(),
            workload: annotation(WORKLOAD).and_then(|text| {
                let (kind, name) = text.split_once('/')?;
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                Some(WorkloadRef::new(kind, namespace, name))
            }),
            keeps: annotation(KEEP_SECONDS)
                .and_then(|text| text.parse().ok())
                .filter(|seconds| *seconds <= PoolSpec::MAX_STICKY),
            kept_since: annotation(KEPT_SINCE).and_then(|at| at.parse().ok()),
            meta: Meta::of(meta),
            spec: object.spec,
            status: object.status.unwrap_or_default(),
        }
    }
}

impl FlatIpView {
    /// Whether it is the address of this pod. Of one that does not fit its schema only its owners are known: the pod, or the
    /// StatefulSet of both.
    fn is_of(&self, pod: &Pod) -> bool {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let owners = pod.metadata.owner_references.iter().flatten();
        let mut uids = owners.map(|owner| &*owner.uid).chain([uid]);
        match &*self.spec.pod_id {
            "" => uids.any(|uid| self.owners.iter().any(|owner| owner.uid == uid)),
            pod_id => pod_id == uid,
        }
    }
}

/// The FlatNetworkIPs of a cluster.
pub struct FlatIps {
    /// Namespace of the subnets.
    pub settings: FlatNetworkSettings,
    subnets: Arc<Objects<SubnetView>>,
    /// Those that name several addresses, none of which is free, by the pool.
    waiting: Mutex<BTreeMap<PoolId, BTreeSet<Key>>>,
    /// The nodes of pods that end.
    nodes: SeenNodes,
    /// They keep addresses for their pods.
    workloads: OnceLock<Workloads>,
}

/// The controller of all FlatNetworkIPs of a cluster.
pub type FlatIpController = AddressController<FlatIps>;

impl FlatIps {
    pub fn new(settings: &FlatNetworkSettings, subnets: &Arc<Objects<SubnetView>>) -> Self {
        Self {
            settings: settings.clone(),
            subnets: Arc::clone(subnets),
            waiting: Mutex::default(),
            nodes: SeenNodes::default(),
            workloads: OnceLock::new(),
        }
    }

    /// What the address book calls the subnet of this name.
    pub fn subnet_object(&self, name: &str) -> String {
        Key::new(&self.settings.namespace, name).to_string()
    }

    /// These keep addresses from now on.
    pub fn tell_workloads(&self, workloads: Workloads) {
        let first = self.workloads.set(workloads);
        debug_assert!(first.is_ok(), "there are workloads already");
    }

    /// Notes whether the object waits for any of the addresses that it names.
    fn note_waiting(&self, key: &Key, pool: Option<PoolId>) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
        if let Some(pool) = pool {
            waiting.entry(pool).or_default().insert(key.clone());
        }
    }
}

impl AddressUser for FlatIps {
    type Raw = FlatNetworkIP;
    type View = FlatIpView;
    type Status = FlatNetworkIPStatus;

    const KIND: Kind = FLAT_IP;
    const METRIC: &'static str = "flatnetworkip";
    const FINALIZER: &'static str = IP_REMOVE;
    const FINALIZER_FIRST: bool = false;
    const INHERITS: Inheritance = Inheritance::Wished;
    const EDITS: Edits<FlatIpView> = Edits::Refused(|ip| -> FixedFields<'_> {
        FixedFields {
            address: "spec.addrs",
            pool: Some(("spec.subnet", &ip.spec.subnet, "FlatNetworkSubnet")),
        }
    });
    const OTHERS_ALLOCATE: bool = true;
    const SHOWS_POOL: bool = false;
    const TENANT: &'static str = "tenant";
    const CHARGE_REASON: &'static str = "its cluster goes by another name";

    fn view(raw: FlatNetworkIP) -> FlatIpView {
        FlatIpView::of(raw)
    }

    fn tenant(site: &Site, key: &Key, _: &FlatIpView) -> Option<Tenant> {
        Some(site.tenant_of(&key.namespace))
    }

    fn wish(&self, ledger: &Ledger, site: &Site, key: &Key, ip: &FlatIpView) -> Wished {
        let own = key.identity(site.system.clone(), &site.id, FLAT_IP.kind);
        let pool = wish::pool(ledger, site, &self.subnet_object(&ip.spec.subnet), ip)?;
        let wanted = wish::addresses(&ip.spec)?;
        let recorded = ip.status.addr.parse().ok();
        let recorded = recorded.filter(|_| ledger.leases_of(&own).is_empty());
        let workload = ip.workload.as_ref().map(|of| {
            let key = Key::new(&of.namespace, &of.name);
            key.identity(site.system.clone(), &site.id, &of.kind)
        });
        let chosen = match recorded {
            Some(_) => wish::ChosenAddress::default(),
            None => {
                let who = (&own, workload.as_ref());
                let chosen = wish::choose(ledger, who, &pool, &wanted);
                let waits = chosen.is_err() && wanted.len() > 1;
                self.note_waiting(key, waits.then_some(pool.id));
                chosen?
            }
        };
        Ok(AddressWish {
            recorded,
            kept: chosen.kept,
            ..AddressWish::new(site.tenant_of(&key.namespace), pool, chosen.address)
        })
    }

    fn conditions(ip: &FlatIpView) -> &[Condition] {
        &ip.status.conditions
    }

    fn shows_address(ip: &FlatIpView) -> bool {
        !ip.status.addr.is_empty()
    }

    /// What the original wrote, or fipd.
    fn shown(
        &self,
        ledger: &Ledger,
        site: &Site,
        _: &Key,
        ip: &FlatIpView,
    ) -> Option<ShownAddress> {
        let address = ip.status.addr.parse().ok()?;
        let pool = site.mirror_in(ledger, &self.subnet_object(&ip.spec.subnet))?;
        Some(ShownAddress {
            address,
            length: None,
            network: ShownNetwork::Known(pool.spec.network),
            user: None,
        })
    }

    fn last_status(ip: &FlatIpView) -> &FlatNetworkIPStatus {
        &ip.status
    }

    fn status(
        ip: &FlatIpView,
        outcome: &AddressOutcome,
        now: jiff::Timestamp,
    ) -> FlatNetworkIPStatus {
        status::desired(ip, outcome, now)
    }
}

impl FlatIps {
    /// Whether a pod may use its address still, and when to look again.
    async fn still_used(
        ips: &FlatIpController,
        key: &Key,
        ip: &FlatIpView,
    ) -> Reconciled<Option<Next>> {
        let pod = pod_key(key);
        // The originals may have served a pod that is called like a further address.
        let namesake = Some(key).filter(|key| **key != pod);
        for pod in [Some(&pod), namesake].into_iter().flatten() {
            if let Some(next) = Self::is_user(ips, pod, (key, ip)).await? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    async fn is_user(
        ips: &FlatIpController,
        pod: &Key,
        (key, ip): (&Key, &FlatIpView),
    ) -> Reconciled<Option<Next>> {
        let remote = &ips.context.remote;
        let Some(pod) = remote.get::<Pod>(&POD.target(pod)).await? else {
            return Ok(None);
        };
        if alive::is_finished(&pod) {
            return Ok(None);
        }
        if !ip.is_of(&pod) {
            // Its node may have given a successor the address while fipd was away.
            let uses = used(&pod.metadata)
                .iter()
                .any(|one| one.to_string() == ip.status.addr);
            return Ok(uses.then_some(Next::After(LOOK_AGAIN)));
        }
        let nodes = &ips.user.nodes;
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(node) = alive::node_to_ask(&pod, || nodes.ending(key, uid)) {
            let found = remote.get::<Node>(&NODE.named("", node)).await?;
            let state = alive::NodeState::of(found.as_ref());
            let limit = ips.user.settings.dead_node_limit.0;
            if state.is_lost(nodes.note(key, uid, state), limit) {
                let note = format!(
                    "its pod ended on node {node}, which does not answer: the address is released"
                );
                ips.context.warn(key, &ip.meta.uid, "NodeLost", note);
                return Ok(None);
            }
        }
        Ok(Some(Next::After(LOOK_AGAIN)))
    }

    /// Gives what the pod has back to its workload, where that names it. Somebody else who uses the address comes first.
    async fn return_kept(
        ips: &FlatIpController,
        key: &Key,
        ip: &FlatIpView,
    ) -> Reconciled<Option<Next>> {
        let Some(workload) = ip.workload.as_ref().filter(|_| !ip.spec.addrs.is_empty()) else {
            return Ok(None);
        };
        let Some(workloads) = ips.user.workloads.get() else {
            return Ok(Some(Next::After(SOON)));
        };
        if !workloads.knows(&workload.kind) {
            return Ok(Some(Next::After(SOON)));
        }
        let own = ips.context.holder(key, &ip.meta.uid);
        let kept: Vec<(LeaseKey, Holder)> = ips.context.read(|ledger| {
            let held = ledger.addresses_of(&own.identity).into_iter();
            let held = held.filter(|one| one.owner() == Some(&own) && one.contenders.is_empty());
            let kept = held.filter_map(|one| {
                let keeper = workloads.keeper(ledger, workload, one.key)?;
                Some((one.key, keeper))
            });
            kept.collect()
        });
        for (place, keeper) in kept {
            let site = &ips.context.site;
            site.transfer(own.clone(), keeper, place, RETURNED).await?;
        }
        Ok(None)
    }
}

impl AddressHooks for FlatIps {
    /// An address stays for as long as its pod may use it, and then passes to its workload, where that names it.
    async fn before_release(
        ips: &FlatIpController,
        key: &Key,
        ip: &FlatIpView,
    ) -> Reconciled<Option<Next>> {
        ips.user.note_waiting(key, None);
        match Self::still_used(ips, key, ip).await? {
            Some(next) => Ok(Some(next)),
            None => Self::return_kept(ips, key, ip).await,
        }
    }

    fn unshown(ips: &FlatIpController, shown: &BTreeSet<LeaseKey>) -> Vec<Sighting> {
        leaked::sightings(ips, shown)
    }

    /// That of one which somebody tore away passes to a workload of its namespace that names it.
    fn heir(ips: &FlatIpController, place: LeaseKey) -> Option<Holder> {
        let workloads = ips.user.workloads.get()?;
        ips.context.read(|ledger| {
            let lease = ledger.lease(place)?;
            let is_ours = lease.contenders.is_empty() && lease.prefix().is_address();
            let owner = lease.owner().filter(|_| is_ours)?;
            workloads.heir(ledger, &owner.identity.namespace, place)
        })
    }

    /// Those that wait for any of several addresses.
    fn affected(ips: &FlatIpController, _: &Ledger, event: &LedgerEvent<'_>) {
        let waiting = ips.user.waiting.lock();
        let queue = |keys: &BTreeSet<Key>| {
            let keys = keys.iter().cloned();
            keys.for_each(|key| ips.context.queue.add(key));
        };
        match event {
            LedgerEvent::Everything => waiting.values().for_each(queue),
            LedgerEvent::Changes(changes) => {
                let pools: BTreeSet<PoolId> = changes
                    .iter()
                    .flat_map(|change| change.pools.iter().copied())
                    .collect();
                let touched = waiting.iter().filter(|(pool, _)| pools.contains(pool));
                touched.for_each(|(_, keys)| queue(keys));
            }
        }
    }

    async fn absent(ips: &FlatIpController, key: &Key) -> Reconciled {
        ips.user.note_waiting(key, None);
        ips.user.nodes.forget(key);
        Ok(Next::Done)
    }
}

/// Queues the address of a pod.
pub fn queue(ips: &Arc<FlatIpController>) -> impl Fn(&Key) + Send + Sync + 'static {
    let queue = Arc::clone(&ips.context.queue);
    move |key| queue.add(key.clone())
}
