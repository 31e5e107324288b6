//! Whether a workload, a pod that is of none, or the address of a pod may be stored.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{Identity, Lease, LeaseKey, LeaseState, Ledger, System};
use fipd_crds::flat_network::{
    FlatNetworkIPSpec,
    names::{ATTACHMENT, DEFAULT_NETWORK, IP, NETWORKS, SUBNET},
};
use serde_json::Value;

use super::{
    BookReader, FlatFacts, KIND_IP, KIND_POD, for_now, holder_text, is_here,
    kinds::POD,
    subnet::object_of,
    template::{PodTemplate, attached, is_owned, is_same},
};
use crate::{
    admission::{
        ReviewedKind,
        review::{Object, Question, Verdict},
        spec,
    },
    controller::store::Key,
    systems::flat_network::names::pod_key,
    validation::{
        Wrong,
        flat_network::{
            annotations::{AskedFields, PodAddresses, keep_seconds},
            interfaces::{PodInterface, no_partner, pod_of},
            mac::MacAddress,
            multus,
            subnet::FlatSubnet,
            workload::{WorkloadFacts, WorkloadRef, check_asked, check_free, no_subnet, remarks},
        },
    },
};

/// What a workload, pod or address asks for, which makes sense by itself.
pub struct WorkloadWrite {
    asks: Vec<AskedAddress>,
    workload: WorkloadRef,
    /// How many pods there are to be at once.
    pods: Option<u64>,
    /// Whether what made it was judged already, so that what others have is not asked again.
    is_owned: bool,
    warnings: Vec<String>,
}

/// What is asked for on one interface.
struct AskedAddress {
    asked: PodAddresses,
    fields: AskedFields,
    /// It is to be of the partner of the subnet.
    is_partner: bool,
}

impl WorkloadWrite {
    /// Of the pods of a workload, or of one pod: rules W2 and W7. What says nothing new passes, and what Multus is not told of
    /// is not checked.
    pub fn of_template(kind: &ReviewedKind, question: &Question) -> Result<Self, Verdict> {
        let template = PodTemplate::of(kind).ok_or_else(Verdict::allowed)?;
        let annotations = template.annotations(&question.object);
        let before = question.before().map(|old| template.annotations(old));
        if before.is_some_and(|before| is_same(&before, &annotations)) {
            return Err(Verdict::allowed());
        }
        let path = template.path;
        if !multus::is_told(&annotations) {
            let text = format!(
                "{path}: the pods get no interface on the flat network without {NETWORKS} or {DEFAULT_NETWORK}, which name {ATTACHMENT}; nothing was checked"
            );
            return Err(Verdict::warned(vec![text]));
        }
        let interfaces = PodInterface::read_all(path, &annotations)?;
        if interfaces.is_empty() {
            let text = format!(
                "{path}: the pods get no address on the flat network, as that takes both {IP} and {SUBNET}"
            );
            return Err(Verdict::warned(vec![text]));
        }
        keep_seconds(path, &annotations)?;
        if *kind == POD && !question.name.is_empty() {
            for one in &interfaces {
                one.id.object_name(path, &question.name)?;
            }
        }
        let asks = interfaces.into_iter().map(|one| AskedAddress {
            asked: one.asked,
            fields: one.fields,
            is_partner: one.id.is_partner,
        });
        Ok(Self {
            asks: asks.collect(),
            workload: WorkloadRef::new(template.kind, &question.namespace, &question.name),
            pods: template.count(&question.object),
            is_owned: is_owned(kind, &question.object),
            warnings: attached(path, &annotations).into_iter().collect(),
        })
    }

    /// Of the address of a pod.
    pub fn of_ip(question: &Question) -> Result<Self, Verdict> {
        let before = question.before();
        if before.is_some_and(|old| old.spec == question.object.spec) {
            return Err(Verdict::allowed());
        }
        let asked = PodAddresses::of_ip(&spec::<FlatNetworkIPSpec>(&question.object.spec)?)?;
        if let Some(old) = before {
            keeps(&asked, old)?;
        }
        let asks = vec![AskedAddress {
            asked,
            fields: AskedFields::of_ip(),
            is_partner: false,
        }];
        Ok(Self {
            asks,
            workload: WorkloadRef::new(KIND_POD, &question.namespace, pod_of(&question.name)),
            pods: None,
            is_owned: false,
            warnings: Vec::new(),
        })
    }

    /// Rules W1, W3 to W6 and W8 to W12.
    pub fn judge(
        &self,
        facts: &dyn FlatFacts,
        book: &impl BookReader,
    ) -> Result<Vec<String>, Verdict> {
        let mut warnings = self.warnings.clone();
        for ask in &self.asks {
            match self.judge_one(ask, facts, book) {
                Ok(remarks) => warnings.extend(remarks),
                // The pod waits for it, and an Event says so.
                Err(AskRefused::NotYet(wrong)) if self.is_owned => warnings.push(wrong.to_string()),
                Err(AskRefused::NotYet(wrong) | AskRefused::Never(wrong)) => {
                    return Err(for_now(wrong));
                }
            }
        }
        Ok(warnings)
    }

    fn judge_one(
        &self,
        ask: &AskedAddress,
        facts: &dyn FlatFacts,
        book: &impl BookReader,
    ) -> Result<Vec<String>, AskRefused> {
        let (asked, fields) = (&ask.asked, &ask.fields);
        let named = facts.subnet(&asked.subnet);
        let subnet = named.ok_or_else(|| AskRefused::NotYet(no_subnet(fields, asked)))?;
        if ask.is_partner {
            let wrong = |why: String| AskRefused::NotYet(no_partner(&fields.subnet, &why));
            return facts
                .partner(&asked.subnet)
                .map_err(wrong)
                .map(|_| Vec::new());
        }
        check_asked(asked, fields, &subnet).map_err(AskRefused::Never)?;
        if self.is_owned {
            return Ok(Vec::new());
        }
        let leases = book.look(|ledger| leases(ledger, facts, asked));
        let taken = self.taken(ask, facts, &leases);
        let known = taken.facts((ask, self.pods), &subnet);
        check_free(&known).map_err(AskRefused::Never)?;
        Ok(remarks(&known))
    }

    /// What others have of what is asked for.
    fn taken(
        &self,
        ask: &AskedAddress,
        facts: &dyn FlatFacts,
        leases: &[(IpAddr, Arc<Lease>)],
    ) -> TakenAddresses {
        let mut taken = TakenAddresses::default();
        let pod = Key::new(&self.workload.namespace, &self.workload.name);
        let is_pod = self.workload.kind == KIND_POD;
        let above = is_pod.then(|| facts.workload_of(&pod)).flatten();
        let is_own_pod = |key: &Key| {
            let of = facts.workload_of(key);
            let owns = |own: &WorkloadRef| {
                of.as_ref() == Some(own) || own.has_ordinal(&key.namespace, &key.name)
            };
            is_pod && *key == pod || owns(&self.workload) || above.as_ref().is_some_and(owns)
        };
        let is_own = |identity: &Identity| {
            let key = Key::new(&identity.namespace, &identity.name);
            let itself = |own: &WorkloadRef| {
                *own == WorkloadRef::new(&identity.kind, &identity.namespace, &identity.name)
            };
            is_here(identity, facts)
                && match &*identity.kind {
                    KIND_IP => is_own_pod(&pod_key(&key)),
                    _ => itself(&self.workload) || above.as_ref().is_some_and(itself),
                }
        };
        for (address, lease) in leases {
            // What cools has no owner, and is free within a time.
            let Some(owner) = lease.owner().map(|owner| &owner.identity) else {
                continue;
            };
            if !is_own(owner) {
                let by = holder_text(owner, facts);
                // What a pod gave back to its workload is reserved as well.
                let kept = is_here(owner, facts) && *owner.kind != *KIND_IP;
                match kept || lease.state == LeaseState::Reserved {
                    true => taken.reserved.insert(*address, by),
                    false => taken.used.insert(*address, by),
                };
            }
        }
        for mac in &ask.asked.macs {
            let user = facts.mac_user(&ask.asked.subnet, mac);
            if let Some(user) = user.filter(|user| !is_own_pod(user)) {
                taken.macs.insert(mac.clone(), format!("pod {user}"));
            }
        }
        taken
    }
}

/// Why an address is refused.
enum AskRefused {
    /// Something is missing that may come.
    NotYet(Wrong),
    Never(Wrong),
}

/// What others have.
#[derive(Default)]
struct TakenAddresses {
    reserved: BTreeMap<IpAddr, String>,
    used: BTreeMap<IpAddr, String>,
    macs: BTreeMap<MacAddress, String>,
}

impl TakenAddresses {
    fn facts<'a>(
        &'a self,
        (ask, pods): (&'a AskedAddress, Option<u64>),
        subnet: &'a FlatSubnet,
    ) -> WorkloadFacts<'a> {
        WorkloadFacts {
            asked: &ask.asked,
            fields: &ask.fields,
            subnet,
            pods,
            reserved: &self.reserved,
            used: &self.used,
            used_macs: &self.macs,
        }
    }
}

/// A pod keeps the address that it has for as long as it is there.
fn keeps(asked: &PodAddresses, old: &Object) -> Result<(), Wrong> {
    let held = old.status.get("addr").and_then(Value::as_str);
    let held: Option<IpAddr> = held.and_then(|text| text.parse().ok());
    let Some(held) = held.map(|address| address.to_canonical()) else {
        return Ok(());
    };
    let fields = AskedFields::of_ip();
    let before = old.spec.get("subnet").and_then(Value::as_str);
    if before.is_some_and(|before| before.trim() != asked.subnet) {
        let allowed = format!(
            "the pod has {held} of the subnet that was here; change the annotations of its workload, which makes another pod"
        );
        return Err(Wrong::new(fields.subnet, &asked.subnet, allowed));
    }
    if asked.is_specific() && !asked.addresses.contains(&held) {
        let allowed = format!("the pod has {held} and keeps it; leave that among the addresses");
        let first = asked.addresses.first().map(ToString::to_string);
        return Err(Wrong::new(fields.ip, &first.unwrap_or_default(), allowed));
    }
    Ok(())
}

/// The leases of the addresses in the network of the subnet; none where that has no pool yet.
fn leases(
    ledger: &Ledger,
    facts: &dyn FlatFacts,
    asked: &PodAddresses,
) -> Vec<(IpAddr, Arc<Lease>)> {
    let system = System::flat_network();
    let pool = ledger.mirror(&system, facts.id(), &object_of(facts, &asked.subnet));
    let Some(network) = pool.map(|pool| pool.spec.network) else {
        return Vec::new();
    };
    let lease = |address: &IpAddr| {
        let key = LeaseKey {
            network,
            address: *address,
        };
        Some((*address, Arc::clone(ledger.lease_around(key)?)))
    };
    asked.addresses.iter().filter_map(lease).collect()
}
