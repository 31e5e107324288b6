//! Who has addresses of a subnet that is no pool yet, as objects and the original show it. Pure.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{LeaseKey, PoolSpec, Text, Timestamp};

use super::SubnetView;
use crate::{
    controller::store::Key,
    systems::flat_network::ip::{FlatIpView, leaked},
};

/// Who has an address.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ShownUser {
    pub key: Key,
    pub uid: Text,
    pub created: Timestamp,
    pub place: LeaseKey,
    /// The original counts it as used, and no object shows it.
    pub is_leaked: bool,
}

/// All users of a subnet whose pool is to be as `wanted`; `ips`: those of all subnets.
pub(super) fn users(
    ips: Vec<(Key, Arc<FlatIpView>)>,
    (of, subnet): (&Key, &SubnetView),
    wanted: &PoolSpec,
) -> Vec<ShownUser> {
    let place = |address| LeaseKey {
        network: wanted.network,
        address,
    };
    let own = ips.into_iter();
    let own = own.filter(|(_, ip)| *ip.spec.subnet == *subnet.meta.name);
    let own = own.filter_map(|(key, ip)| {
        Some(ShownUser {
            place: place(ip.status.addr.parse().ok()?),
            uid: Text::clone(&ip.meta.uid),
            created: ip.meta.created,
            is_leaked: false,
            key,
        })
    });
    let mut users: Vec<ShownUser> = own.collect();
    // Of two with one address the older one keeps it.
    users.sort_by_key(|user| user.created);
    let shown: BTreeSet<LeaseKey> = users.iter().map(|user| user.place).collect();
    let leaked = leaked::leaked(wanted, subnet, &shown).into_iter();
    users.extend(leaked.map(|address| ShownUser {
        key: leaked::owner(of, address),
        uid: Text::clone(&subnet.meta.uid),
        created: subnet.meta.created,
        place: place(address),
        is_leaked: true,
    }));
    users
}

#[cfg(test)]
mod tests {
    use fipd_core::NetworkId;
    use fipd_crds::flat_network::{FlatNetworkIP, FlatNetworkSubnet};
    use serde_json::json;

    use super::*;

    /// Defect 1 of g.1: also of a subnet that could not be served when the cluster was adopted.
    #[test]
    fn g1_1_what_the_original_leaked_is_taken_in_with_what_pods_show() {
        let object = json!({
            "metadata": { "name": "lab", "uid": "u" },
            "spec": { "flatMode": "macvlan", "master": "eth0", "cidr": "10.1.2.0/24", "gateway": "10.1.2.1" },
            "status": { "gateway": "10.1.2.1", "usedIP": [{ "from": "10.1.2.1", "to": "10.1.2.3" }] },
        });
        let object: FlatNetworkSubnet = serde_json::from_value(object).unwrap();
        let subnet = SubnetView::of(object);
        let ips = [
            ("web", "lab", "10.1.2.2"),
            ("db", "other", "10.1.2.3"),
            ("new", "lab", ""),
        ];
        let ips = ips.map(|(name, of, address)| {
            let object = json!({
                "metadata": { "name": name, "namespace": "ns", "uid": name },
                "spec": { "subnet": of, "podId": "p" }, "status": { "addr": address },
            });
            let object: FlatNetworkIP = serde_json::from_value(object).unwrap();
            (Key::new("ns", name), Arc::new(FlatIpView::of(object)))
        });
        let wanted = PoolSpec {
            network: NetworkId(7),
            ..subnet.read().unwrap().pool()
        };
        let of = Key::new("cattle-flat-network", "lab");
        let found = users(ips.into(), (&of, &subnet), &wanted);
        let found: Vec<_> = found
            .iter()
            .map(|one| {
                let (key, address) = (one.key.to_string(), one.place.address.to_string());
                (key, &*one.uid, address, one.is_leaked)
            })
            .collect();
        let leaked = "cattle-flat-network/lab.used-ip.10.1.2.3".to_owned();
        assert_eq!(
            found,
            [
                ("ns/web".to_owned(), "web", "10.1.2.2".to_owned(), false),
                (leaked, "u", "10.1.2.3".to_owned(), true),
            ]
        );
    }

    #[test]
    fn what_fipd_counted_on_another_vlan_is_no_leak() {
        let leaked = |accepted: Option<i64>| {
            let spec = |vlan: i64| json!({ "flatMode": "macvlan", "master": "eth0", "vlan": vlan, "cidr": "10.1.2.0/24" });
            let object = json!({
                "metadata": { "name": "lab", "uid": "u" }, "spec": spec(111),
                "status": {
                    "accepted": accepted.map(spec),
                    "usedIP": [{ "from": "10.1.2.1", "to": "10.1.2.1" }],
                },
            });
            let object: FlatNetworkSubnet = serde_json::from_value(object).unwrap();
            let subnet = SubnetView::of(object);
            let of = Key::new("cattle-flat-network", "lab");
            let wanted = subnet.read().unwrap().pool();
            users(Vec::new(), (&of, &subnet), &wanted).len()
        };
        let found = [None, Some(111), Some(110)].map(leaked);
        assert_eq!(found, [1, 1, 0]);
    }
}
