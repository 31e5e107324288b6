//! Where the pods of a subnet are attached, as it was accepted last.
//!
//! The status has it, which fipd alone writes, and a status rests for a second: what was accepted within it is remembered here.
//! A subnet of the original has labels instead, which anyone may edit.

use std::collections::BTreeMap;

use fipd_core::Text;
use fipd_crds::flat_network::AcceptedLink;
use parking_lot::Mutex;

use super::{SubnetLabels, SubnetView};
use crate::validation::flat_network::subnet::FlatSubnet;

/// By the UIDs of subnets.
#[derive(Debug, Default)]
pub struct AcceptedLinks(Mutex<BTreeMap<Text, AcceptedLink>>);

impl AcceptedLinks {
    pub fn note(&self, uid: &Text, link: AcceptedLink) {
        self.0.lock().insert(Text::clone(uid), link);
    }

    pub fn forget(&self, uid: &Text) {
        self.0.lock().remove(uid);
    }

    /// The first field by which pods are attached in another way than was accepted; `None`: they are not.
    pub fn moved(&self, subnet: &SubnetView, now: &FlatSubnet) -> Option<&'static str> {
        let noted = self.0.lock().get(&subnet.meta.uid).cloned();
        match noted.or_else(|| subnet.status.accepted.clone()) {
            Some(accepted) => changed(&accepted, &link(now)),
            None => relabelled(&subnet.labels, now),
        }
    }
}

/// Where the pods of the subnet are attached.
pub fn link(subnet: &FlatSubnet) -> AcceptedLink {
    AcceptedLink {
        master: subnet.master.clone(),
        vlan: subnet.vlan.into(),
        flat_mode: subnet.kind.as_str().to_owned(),
    }
}

fn changed(before: &AcceptedLink, now: &AcceptedLink) -> Option<&'static str> {
    first([
        before.master != now.master,
        before.vlan != now.vlan,
        before.flat_mode != now.flat_mode,
    ])
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

    fn subnet(vlan: u16, labels: Value, status: Value) -> SubnetView {
        let object = json!({
            "metadata": { "name": "lab", "uid": "u", "labels": labels },
            "spec": { "flatMode": "macvlan", "master": "eth0", "vlan": vlan, "cidr": "10.1.2.0/24" },
            "status": status,
        });
        let object: FlatNetworkSubnet = serde_json::from_value(object).expect("a subnet");
        SubnetView::of(object)
    }

    fn moved(links: &AcceptedLinks, subnet: &SubnetView) -> Option<&'static str> {
        links.moved(subnet, &subnet.read().expect("a subnet"))
    }

    /// Defect 20 of g.1: labels decide only where fipd has not accepted anything yet.
    #[test]
    fn g1_20_labels_that_somebody_edits_hide_no_change() {
        let links = AcceptedLinks::default();
        let labels = |vlan: &str| json!({ "master": "eth0", "vlan": vlan, "flatMode": "macvlan" });
        let accepted = |vlan: u16| json!({ "accepted": { "master": "eth0", "vlan": vlan, "flatMode": "macvlan" } });
        let none = json!({});
        let of_original = subnet(20, labels("10"), none.clone());
        assert_eq!(moved(&links, &of_original), Some("spec.vlan"));
        let unlabelled = subnet(20, none.clone(), none);
        assert_eq!(moved(&links, &unlabelled), None, "nothing is known");
        let edited = subnet(20, labels("20"), accepted(10));
        assert_eq!(moved(&links, &edited), Some("spec.vlan"));
        let same = subnet(10, labels("7"), accepted(10));
        assert_eq!(moved(&links, &same), None);
        // The status is yet to be written.
        links.note(&edited.meta.uid, link(&edited.read().expect("a subnet")));
        assert_eq!(moved(&links, &edited), None);
        links.forget(&edited.meta.uid);
        assert_eq!(moved(&links, &edited), Some("spec.vlan"));
    }
}
