//! FlatNetworkSubnets as sources of pools.

mod accepted;
#[cfg(test)]
mod conformance_tests;
mod shown;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fipd_core::{
    AddressSpec, Holder, Lease, Ledger, Pool, PoolSpec, PoolUsage, Request, Span, System,
};
use fipd_crds::{
    flat_network::{FlatNetworkSubnet, FlatNetworkSubnetSpec, FlatNetworkSubnetStatus},
    labels::NETWORK,
};
use k8s_openapi::jiff;
use serde_json::{Value, json};

use self::accepted::has_followed;
pub use self::accepted::{AcceptedSubnets, left_behind};
use super::{
    ip::FlatIpView,
    names::{ACTIVE, FLAT_IP, IPV6TO4, SUBNET_REMOVE},
    settings::FlatNetworkSettings,
    workload::reservation,
};
use crate::{
    config::{PoolLink, ReleaseWait},
    controller::{
        address_user::settle::AddressAsker,
        conditions::{ConditionUpdate, INVALID, REFUSED},
        meta::{Meta, View},
        pool_source::{
            Eligible, Leaving, OUT_OF_RANGE, PoolController, PoolReport, PoolSource, PoolState,
            SourceFacts, not_ready,
        },
        site::Site,
        store::{Key, Objects},
    },
    validation::{
        flat_network::{
            clash, labels, link::mode_name, pools, spans, spelling, subnet::FlatSubnet,
        },
        mirror::MirrorOf,
    },
};

/// A FlatNetworkSubnet, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct SubnetView {
    pub meta: Meta,
    /// In the current spelling.
    pub spec: FlatNetworkSubnetSpec,
    pub status: FlatNetworkSubnetStatus,
    /// It is written in the spelling of 2024.
    pub is_old: bool,
    /// The labels by which the originals select subnets, as they are.
    pub labels: SubnetLabels,
    /// The network (routing domain) that an annotation of fipd's names.
    pub network: Option<String>,
    /// Pods get a 6to4 address as well.
    pub has_6to4: bool,
}

/// The labels that the originals write: what was accepted last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubnetLabels {
    pub master: Option<String>,
    pub vlan: Option<String>,
    pub flat_mode: Option<String>,
    pub mode: Option<String>,
}

impl View for SubnetView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl SubnetView {
    pub fn of(object: FlatNetworkSubnet) -> Self {
        let meta = &object.metadata;
        let label = |key: &str| meta.labels.as_ref()?.get(key).cloned();
        let annotation = |key: &str| meta.annotations.as_ref()?.get(key).cloned();
        let current = spelling::current(&object.spec);
        Self {
            is_old: current.is_some(),
            labels: SubnetLabels {
                master: label("master"),
                vlan: label("vlan"),
                flat_mode: label("flatMode"),
                mode: label("mode"),
            },
            network: annotation(NETWORK),
            has_6to4: annotation(IPV6TO4).is_some_and(|text| !text.is_empty()),
            meta: Meta::of(meta),
            spec: current.unwrap_or(object.spec),
            status: object.status.unwrap_or_default(),
        }
    }

    /// What it means, where it is well written.
    pub fn read(&self) -> Option<FlatSubnet> {
        FlatSubnet::read(&self.spec).ok()
    }
}

impl SubnetLabels {
    /// Those of a subnet.
    fn of(subnet: &FlatSubnet) -> Self {
        Self {
            master: Some(labels::name(&subnet.master)),
            vlan: Some(subnet.vlan.to_string()),
            flat_mode: Some(subnet.kind.as_str().to_owned()),
            mode: Some(mode_name(subnet.kind).to_owned()),
        }
    }
}

/// The controller of all FlatNetworkSubnets of a cluster.
pub type Subnets = PoolController<SubnetSource>;

/// What FlatNetworkSubnets say of pools.
pub struct SubnetSource {
    pub settings: FlatNetworkSettings,
    pub subnets: Arc<Objects<SubnetView>>,
    pub ips: Arc<Objects<FlatIpView>>,
    pub accepted: Arc<AcceptedSubnets>,
}

impl PoolSource for SubnetSource {
    type View = SubnetView;
    type Status = FlatNetworkSubnetStatus;

    const METRIC: &'static str = "flatnetworksubnet";
    const FINALIZER: Option<&'static str> = Some(SUBNET_REMOVE);
    const LEAVING: Leaving = Leaving::Refused;
    const AMBIGUOUS_IS_UNREADY: bool = true;
    const LISTED: usize = status::LISTED;
    const COUNTS_TEXTS: bool = true;

    fn facts<'a>(&'a self, subnet: &'a SubnetView) -> SourceFacts<'a> {
        SourceFacts {
            network: subnet.network.as_deref(),
            ..SourceFacts::default()
        }
    }

    fn own_link(&self, subnet: &SubnetView) -> Option<PoolLink> {
        subnet.read().map(|subnet| link_of(&subnet))
    }

    fn eligible(&self, ledger: &Ledger, mirror: &MirrorOf<'_>, subnet: &SubnetView) -> Eligible {
        if subnet.meta.is_terminating() {
            self.accepted.forget(&subnet.meta.uid);
        }
        let existing = ledger.mirror(&System::flat_network(), mirror.cluster, mirror.object);
        let refused = match existing {
            None => REFUSED_AT_FIRST,
            Some(_) => REFUSED,
        };
        match self.judge(ledger, mirror, subnet) {
            None => Eligible::Yes,
            Some(why) => Eligible::No(not_ready(refused, why)),
        }
    }

    fn obstacle(
        &self,
        ledger: &Ledger,
        mirror: Option<&Pool>,
        wanted: &PoolSpec,
        subnet: &SubnetView,
    ) -> Option<String> {
        overlap(ledger, mirror, wanted, subnet, || self.was_served(subnet))
    }

    fn spec(&self, mirror: &MirrorOf<'_>, subnet: &SubnetView) -> Result<PoolSpec, String> {
        let read = FlatSubnet::read(&subnet.spec).map_err(|wrong| wrong.to_string())?;
        let partner = read.check_partner(&subnet.meta.name);
        partner.map_err(|wrong| wrong.to_string())?;
        spec(mirror, &read)
    }

    fn accepted(&self, subnet: &SubnetView) {
        if let Some(read) = subnet.read() {
            self.accepted.note(&subnet.meta.uid, read);
        }
    }

    /// Of a subnet that could not be served when the cluster was adopted, pods may have addresses.
    fn shown_already(
        &self,
        site: &Site,
        subnet: (&Key, &SubnetView),
        existing: Option<&Pool>,
        wanted: &PoolSpec,
    ) -> Vec<Request> {
        // Of one that is a pool, the ledger knows better than what is shown.
        if existing.is_some() {
            return Vec::new();
        }
        let users = shown::users(self.ips.all(), subnet, wanted).into_iter();
        let adopted = users.map(|user| {
            let asker = AddressAsker {
                holder: Holder {
                    identity: user
                        .key
                        .identity(site.system.clone(), &site.id, FLAT_IP.kind),
                    instance: user.uid,
                },
                created: user.created,
                actor: site.actor(),
            };
            let tenant = (!user.is_leaked).then(|| site.tenant_of(&user.key.namespace));
            asker.adopt(user.place.into(), tenant)
        });
        adopted.collect()
    }

    /// The network address for an address with host bits, the labels by which the originals select, and the current spelling.
    fn correction(&self, subnet: &SubnetView) -> Option<Value> {
        let read = subnet.read()?;
        let cidr = read.cidr.to_string();
        let labels = SubnetLabels::of(&read);
        let mut patch = json!({});
        if subnet.labels != labels {
            patch["metadata"] = json!({ "labels": {
                "master": labels.master, "vlan": labels.vlan,
                "flatMode": labels.flat_mode, "mode": labels.mode,
            } });
        }
        if subnet.is_old {
            patch["spec"] = serde_json::to_value(&subnet.spec).ok()?;
            patch["spec"]["podDefaultGateway"] = Value::Null;
        }
        if subnet.spec.cidr != cidr {
            patch["spec"]["cidr"] = json!(cidr);
        }
        (patch != json!({})).then_some(patch)
    }

    fn remark(&self, subnet: &SubnetView) -> Option<(&'static str, String)> {
        let nothing = subnet.read()?.remark()?;
        Some(("NoAddresses", nothing))
    }

    fn written(&self, subnet: &SubnetView) -> FlatNetworkSubnetStatus {
        subnet.status.clone()
    }

    fn status(
        &self,
        subnet: &SubnetView,
        report: &PoolReport,
        now: jiff::Timestamp,
    ) -> FlatNetworkSubnetStatus {
        status::desired(subnet, report, &self.macs(&subnet.meta.name), now)
    }

    /// The workload for whose pods it is kept; empty for one that is in use.
    fn entry(&self, lease: &Lease) -> String {
        let workload = reservation::kept_for(lease);
        workload.map_or_else(String::new, |workload| workload.to_string())
    }

    /// A subnet in use is held until nothing uses it.
    fn release_wait(&self) -> Option<ReleaseWait> {
        None
    }

    fn warnings(&self, state: &PoolState) -> Vec<(&'static str, String)> {
        [
            (OUT_OF_RANGE, state.out_of_range()),
            (status::OVERLAP, state.overlap.clone()),
        ]
        .into_iter()
        .filter_map(|(reason, text)| Some((reason, text?)))
        .collect()
    }
}

/// Reason: the subnet was never served.
const REFUSED_AT_FIRST: &str = INVALID;

impl SubnetSource {
    /// Why the subnet may not be as it is; `None`: it may.
    fn judge(&self, ledger: &Ledger, mirror: &MirrorOf<'_>, subnet: &SubnetView) -> Option<String> {
        let namespace = mirror.object.split('/').next().unwrap_or_default();
        if *namespace != *self.settings.namespace {
            return Some(format!(
                "invalid subnet namespace {namespace:?}: a FlatNetworkSubnet counts in {} alone; make it there",
                self.settings.namespace
            ));
        }
        // What is badly written is refused by what it is to be.
        let read = subnet.read()?;
        let existing = ledger.mirror(&System::flat_network(), mirror.cluster, mirror.object);
        let usage = existing.and_then(|pool| ledger.usage(pool.id));
        let followed = || existing.is_some_and(|pool| has_followed(ledger, pool, &read));
        let moved = self.accepted.moved(subnet, &read, followed);
        if let Some((pool, usage)) = existing.zip(usage) {
            // The ledger keeps a pool in its network also while its addresses are in use through another one.
            let left = || left_behind(ledger, pool, &read).filter(|_| usage.in_use());
            let stays = fixed(pool, &usage, moved, (subnet, &read));
            let stays = stays.or_else(|| Some(left()?.to_string()));
            if stays.is_some() {
                return stays;
            }
        }
        // One that was served before is, whatever it clashes with: the ledger keeps the addresses apart.
        let covered = |pool: &Arc<Pool>| {
            let before: Vec<Span> = pool.spec.addresses.iter().map(AddressSpec::span).collect();
            spans::minus(&read.listed(), &before).is_empty()
        };
        let served = match existing {
            None => self.was_served(subnet),
            Some(pool) => {
                let same = |before| before == read.cidr;
                // Another object of the name was served.
                let own = pool.spec.origin == mirror.origin(System::flat_network());
                let fits = covered(pool) && pool.spec.subnet.is_none_or(same);
                own && fits && moved.is_none()
            }
        };
        (!served).then(|| self.clash(&read, &subnet.meta)).flatten()
    }

    /// Whether pods may have addresses of a subnet that is no pool yet. The original calls one failed that has served before.
    fn was_served(&self, subnet: &SubnetView) -> bool {
        let shows = |ip: &Arc<FlatIpView>| {
            *ip.spec.subnet == *subnet.meta.name && !ip.status.addr.is_empty()
        };
        subnet.status.phase == ACTIVE || self.ips.values().iter().any(shows)
    }

    /// What of other subnets is in the way of a new or wider one.
    fn clash(&self, read: &FlatSubnet, meta: &Meta) -> Option<String> {
        let others = self.subnets.all().into_iter();
        // Of two new ones the older goes first.
        let new = |other: &SubnetView| {
            let is_older = (other.meta.created, &other.meta.uid) < (meta.created, &meta.uid);
            let counts = other.status.phase.is_empty() && is_older;
            counts.then(|| other.read()).flatten().map(Arc::new)
        };
        let others: Vec<(Key, Arc<FlatSubnet>)> = others
            .filter(|(_, other)| other.meta.uid != meta.uid && !other.meta.is_terminating())
            .filter(|(key, _)| *key.namespace == *self.settings.namespace)
            .filter_map(|(key, other)| {
                let counts = self.accepted.in_force(&other).or_else(|| new(&other));
                Some((key, counts?))
            })
            .collect();
        let others = others.iter().map(|(key, other)| (&*key.name, &**other));
        let clashes = clash::clashes(read, others);
        clash::refuse(&clashes).err().map(|wrong| wrong.to_string())
    }

    /// The MACs that pods of the subnet have because they name them.
    fn macs(&self, subnet: &str) -> Vec<String> {
        let ips = self.ips.values().into_iter();
        let named = ips.filter(|ip| ip.spec.subnet == subnet && !ip.spec.macs.is_empty());
        let mut macs: Vec<String> = named
            .map(|ip| ip.status.mac.clone())
            .filter(|mac| !mac.is_empty())
            .collect();
        macs.sort();
        macs.dedup();
        macs
    }
}

/// What may not be so while addresses of the subnet are in use; `moved`: the first field that was accepted otherwise.
fn fixed(
    pool: &Pool,
    usage: &PoolUsage,
    moved: Option<&'static str>,
    (subnet, read): (&SubnetView, &FlatSubnet),
) -> Option<String> {
    if usage.attributed == 0 {
        return None;
    }
    if let Some(field) = moved {
        return Some(format!(
            "{field} may not change while addresses of the subnet are in use; write what it was, or make another subnet"
        ));
    }
    let moves = pool.spec.subnet.is_some_and(|before| before != read.cidr);
    moves.then(|| {
        format!(
            "spec.cidr {:?} may not change while addresses of the subnet are in use; write what it was, or make another subnet",
            subnet.spec.cidr
        )
    })
}

/// Which pools of the network, of whatever system, give what a new subnet would give, or one that is wider or in another
/// network than before. One that was served before fipd is served whatever it overlaps: the ledger keeps the addresses apart.
fn overlap(
    ledger: &Ledger,
    mirror: Option<&Pool>,
    wanted: &PoolSpec,
    subnet: &SubnetView,
    was_served: impl FnOnce() -> bool,
) -> Option<String> {
    let read = subnet.read()?;
    let network = wanted.network;
    let before = mirror.filter(|pool| pool.spec.network == network && !pool.spec.closed);
    let served = match mirror {
        None => was_served(),
        Some(_) => before.is_some_and(|pool| gives_same(&pool.spec, wanted)),
    };
    if served {
        return None;
    }
    let before = before.and_then(|pool| ledger.pool_spans(pool.id, Span::of_net(read.cidr)));
    let had = before.map(|spans| [spans.assignable, spans.withheld].concat());
    let more = spans::minus(&read.given(), &had.unwrap_or_default());
    let own = mirror.map(|pool| pool.id);
    let overlaps = pools::overlaps(ledger, network, own, &more);
    pools::refuse(&overlaps)
        .err()
        .map(|wrong| wrong.to_string())
}

fn gives_same(one: &PoolSpec, other: &PoolSpec) -> bool {
    let given = |spec: &PoolSpec| (spec.gateway, spec.subnet, spec.ends);
    let same_lists = one.addresses == other.addresses && one.exclusions == other.exclusions;
    same_lists && given(one) == given(other)
}

/// What decides its network.
pub fn link_of(subnet: &FlatSubnet) -> PoolLink {
    PoolLink {
        vlan: Some(subnet.vlan).filter(|vlan| *vlan != 0),
        physical: Some(subnet.master.as_str().into()),
        unread: false,
    }
}

/// The pool that a subnet describes, or the rule that it breaks.
fn spec(mirror: &MirrorOf<'_>, subnet: &FlatSubnet) -> Result<PoolSpec, String> {
    let spec = PoolSpec {
        name: mirror.pool_name(&System::flat_network()),
        origin: mirror.origin(System::flat_network()),
        ..subnet.pool()
    };
    spec.validate().map_err(|wrong| wrong.to_string())?;
    Ok(spec)
}

/// What is said of a subnet that is no pool, or not as it is written now.
pub fn failure(ready: &ConditionUpdate) -> Option<&str> {
    (!ready.status).then_some(&ready.message)
}
