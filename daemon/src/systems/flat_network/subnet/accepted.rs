//! Subnets as they were accepted last: an edit that is refused changes nothing.
//!
//! The status has them, which fipd alone writes, and a status rests for a second: what was accepted within it is remembered here.
//! A subnet of the original has labels instead, which anyone may edit.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Ledger, Pool, Text};
use parking_lot::Mutex;

use super::{SubnetLabels, SubnetView, link_of};
use crate::{
    config::default_network,
    systems::flat_network::names::ACTIVE,
    validation::{
        Wrong,
        flat_network::{changes, pools, subnet::FlatSubnet},
    },
};

/// By the UIDs of subnets.
#[derive(Debug, Default)]
pub struct AcceptedSubnets(Mutex<BTreeMap<Text, Arc<FlatSubnet>>>);

impl AcceptedSubnets {
    pub fn note(&self, uid: &Text, subnet: FlatSubnet) {
        self.0.lock().insert(Text::clone(uid), subnet.into());
    }

    pub fn forget(&self, uid: &Text) {
        self.0.lock().remove(uid);
    }

    /// What its pods are served by; `None`: it was never accepted.
    pub fn in_force(&self, subnet: &SubnetView) -> Option<Arc<FlatSubnet>> {
        // The original accepted it.
        let of_original = || {
            let active = subnet.status.phase == ACTIVE;
            active.then(|| subnet.read()).flatten().map(Arc::new)
        };
        self.accepted(subnet).or_else(of_original)
    }

    fn accepted(&self, subnet: &SubnetView) -> Option<Arc<FlatSubnet>> {
        let noted = self.0.lock().get(&subnet.meta.uid).cloned();
        let written = || FlatSubnet::read(subnet.status.accepted.as_ref()?).ok();
        noted.or_else(|| written().map(Arc::new))
    }

    /// The first field by which pods are attached in another way than was accepted; `None`: they are not. `has_followed`: the
    /// pool is where the VLAN takes it. Only a kill leaves it ahead of the status, as what is accepted in this run is noted; the
    /// labels, written in between, then tell which of the other fields were accepted with the VLAN.
    pub fn moved(
        &self,
        subnet: &SubnetView,
        now: &FlatSubnet,
        has_followed: impl FnOnce() -> bool,
    ) -> Option<&'static str> {
        let Some(before) = self.accepted(subnet) else {
            return relabelled(&subnet.labels, now);
        };
        let vlan = before.vlan != now.vlan;
        let is_noted = || self.0.lock().contains_key(&subnet.meta.uid);
        let followed = vlan && !is_noted() && has_followed();
        if followed && subnet.labels == SubnetLabels::of(now) {
            return None;
        }
        first([
            before.master != now.master,
            vlan && !followed,
            before.kind.as_str() != now.kind.as_str(),
        ])
    }
}

/// Whether the pool is already in the network that the VLAN has by default. An accepted edit moves the pool before the status
/// says so, which fipd may not have lived to write.
pub(super) fn has_followed(ledger: &Ledger, pool: &Pool, now: &FlatSubnet) -> bool {
    let wanted = default_network(link_of(now).vlan);
    let network = ledger.network(pool.spec.network);
    pool.spec.network_by_default && network.is_some_and(|network| network.name == wanted)
}

/// Why the VLAN may not be so while addresses of the pool are in use: nobody chose its network, and it is not that of the VLAN.
/// An earlier object of the name was on another VLAN, or an older address book was put back.
pub fn left_behind(ledger: &Ledger, pool: &Pool, now: &FlatSubnet) -> Option<Wrong> {
    if !pool.spec.network_by_default || has_followed(ledger, pool, now) {
        return None;
    }
    let network = ledger.network(pool.spec.network)?;
    let own = ledger
        .usage(pool.id)
        .is_some_and(|usage| usage.attributed > 0);
    let others = match own {
        true => Vec::new(),
        false => pools::overlaps(ledger, network.id, Some(pool.id), &now.given()),
    };
    let others = pools::names(&others);
    Some(changes::left_in(&network.name, &others, now))
}

fn relabelled(labels: &SubnetLabels, now: &FlatSubnet) -> Option<&'static str> {
    let now = SubnetLabels::of(now);
    let other = |before: &Option<String>, now: &Option<String>| before.is_some() && before != now;
    first([
        other(&labels.master, &now.master),
        other(&labels.vlan, &now.vlan),
        other(&labels.flat_mode, &now.flat_mode),
    ])
}

fn first(changes: [bool; 3]) -> Option<&'static str> {
    let fields = ["spec.master", "spec.vlan", "spec.flatMode"].into_iter();
    let mut changed = fields.zip(changes).filter(|(_, changed)| *changed);
    changed.next().map(|(field, _)| field)
}

#[cfg(test)]
mod tests {
    use fipd_crds::flat_network::FlatNetworkSubnet;
    use serde_json::{Value, json};

    use super::*;

    fn spec(vlan: u16) -> Value {
        json!({ "flatMode": "macvlan", "master": "eth0", "vlan": vlan, "cidr": "10.1.2.0/24" })
    }

    fn subnet(vlan: u16, labels: Value, status: Value) -> SubnetView {
        let object = json!({
            "metadata": { "name": "lab", "uid": "u", "labels": labels },
            "spec": spec(vlan),
            "status": status,
        });
        let object: FlatNetworkSubnet = serde_json::from_value(object).expect("a subnet");
        SubnetView::of(object)
    }

    fn moved(subnets: &AcceptedSubnets, subnet: &SubnetView) -> Option<&'static str> {
        subnets.moved(subnet, &subnet.read().expect("a subnet"), || false)
    }

    /// Defect 20 of g.1: labels decide only where fipd has not accepted anything yet.
    #[test]
    fn g1_20_labels_that_somebody_edits_hide_no_change() {
        let subnets = AcceptedSubnets::default();
        let labels = |vlan: &str| json!({ "master": "eth0", "vlan": vlan, "flatMode": "macvlan" });
        let accepted = |vlan: u16| json!({ "accepted": spec(vlan) });
        let none = json!({});
        let of_original = subnet(20, labels("10"), none.clone());
        assert_eq!(moved(&subnets, &of_original), Some("spec.vlan"));
        let unlabelled = subnet(20, none.clone(), none);
        assert_eq!(moved(&subnets, &unlabelled), None, "nothing is known");
        let edited = subnet(20, labels("20"), accepted(10));
        assert_eq!(moved(&subnets, &edited), Some("spec.vlan"));
        let same = subnet(10, labels("7"), accepted(10));
        assert_eq!(moved(&subnets, &same), None);
        // The status is yet to be written.
        subnets.note(&edited.meta.uid, edited.read().expect("a subnet"));
        assert_eq!(moved(&subnets, &edited), None);
        subnets.forget(&edited.meta.uid);
        assert_eq!(moved(&subnets, &edited), Some("spec.vlan"));
    }

    /// Also after a restart, of which nothing is remembered.
    #[test]
    fn what_was_accepted_last_is_in_force() {
        let subnets = AcceptedSubnets::default();
        let vlan = |subnet: &SubnetView| subnets.in_force(subnet).map(|subnet| subnet.vlan);
        let none = json!({});
        let phase = |phase: &str| json!({ "phase": phase });
        assert_eq!(vlan(&subnet(10, none.clone(), none.clone())), None);
        assert_eq!(vlan(&subnet(10, none.clone(), phase("Failed"))), None);
        assert_eq!(vlan(&subnet(10, none.clone(), phase("Active"))), Some(10));
        let accepted = json!({ "phase": "Failed", "accepted": spec(10) });
        let mut edited = subnet(20, none, accepted);
        assert_eq!(vlan(&edited), Some(10));
        edited.spec.cidr = "x".to_owned();
        assert_eq!(vlan(&edited), Some(10));
        let noted = subnet(30, json!({}), json!({}));
        subnets.note(&noted.meta.uid, noted.read().expect("a subnet"));
        assert_eq!(vlan(&edited), Some(30), "the status is yet to be written");
    }
}
