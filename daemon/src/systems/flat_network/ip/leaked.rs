//! Addresses that the original counts as used and that no FlatNetworkIP shows (g1-1). They are adopted for objects that are gone,
//! so that the rule of absence frees them and nothing else.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use fipd_core::{AddressSpec, LeaseKey, PoolSpec, Span};
use fipd_crds::flat_network::{FlatNetworkSubnetSpec, FlatNetworkSubnetStatus, FlatRange};

use super::FlatIpController;
use crate::{
    clusters::adoption::Sighting, controller::store::Key,
    systems::flat_network::subnet::SubnetView, validation::flat_network::spans,
};

/// The most of one subnet.
const MOST: usize = 10_000;

/// Those of networks that have not adopted the cluster yet; `shown`: what objects show.
pub fn sightings(ips: &FlatIpController, shown: &BTreeSet<LeaseKey>) -> Vec<Sighting> {
    let site = &ips.context.site;
    let adopting = |subnet: &Key| {
        ips.context.read(|ledger| {
            let pool = site.mirror_in(ledger, &subnet.to_string())?;
            let adopted = ledger.truly_adopted(pool.spec.network, &site.id, &site.system);
            (!adopted).then(|| Arc::clone(pool))
        })
    };
    let mut all = Vec::new();
    for (subnet, view) in ips.user.subnets.all() {
        let Some(pool) = adopting(&subnet) else {
            continue;
        };
        for address in leaked(&pool.spec, &view, shown) {
            let key = LeaseKey {
                network: pool.spec.network,
                address,
            };
            let owner = owner(&subnet, address);
            all.push(Sighting {
                holder: ips.context.holder(&owner, &view.meta.uid),
                tenant: None,
                uses: vec![key.prefix(None)],
                since: view.meta.created,
            });
        }
    }
    all
}

/// The object that has a leaked address of the subnet, if only it were there.
pub fn owner(subnet: &Key, address: IpAddr) -> Key {
    let name = format!("{}.used-ip.{address}", subnet.name).replace(':', ".");
    Key::new(&subnet.namespace, &name)
}

/// The addresses of the pool's network that the status of the subnet has, and neither an object nor the gateway.
pub fn leaked(pool: &PoolSpec, subnet: &SubnetView, shown: &BTreeSet<LeaseKey>) -> Vec<IpAddr> {
    let net = pool.subnet.filter(|_| counts_here(subnet));
    let Some(net) = net.map(Span::of_net) else {
        return Vec::new();
    };
    let status = &subnet.status;
    let used = status.used_ip.iter().filter_map(span);
    let used: Vec<Span> = used.filter(|span| net.covers(span)).collect();
    let gateways = [pool.gateway, status.gateway.parse().ok()];
    let shown = shown.iter().filter(|key| key.network == pool.network);
    let known = shown
        .map(|key| key.address)
        .chain(gateways.into_iter().flatten());
    let known: Vec<Span> = known.map(Span::single).collect();
    let left = spans::minus(&used, &known).into_iter();
    left.flat_map(|span| {
        let numbers = span.first..=span.last;
        numbers.map(move |first| Span { first, ..span }.first_address())
    })
    .take(MOST)
    .collect()
}

/// Whether the status is about the network in which the subnet is to be: fipd may have counted in that of another VLAN.
fn counts_here(subnet: &SubnetView) -> bool {
    let place = |spec: &FlatNetworkSubnetSpec| (spec.master.clone(), spec.vlan);
    let counted = subnet.status.accepted.as_ref();
    counted.is_none_or(|counted| place(counted) == place(&subnet.spec))
}

/// How many addresses the status of a subnet counts as used, beside its gateway and those that objects show.
pub fn count(status: &FlatNetworkSubnetStatus, shown: &BTreeSet<IpAddr>) -> u128 {
    let used: Vec<Span> = status.used_ip.iter().filter_map(span).collect();
    let gateway = status.gateway.parse().ok();
    let known = shown.iter().copied().chain(gateway).map(Span::single);
    let left = spans::minus(&used, &known.collect::<Vec<_>>());
    let sizes = left.iter().map(|span| span.last - span.first);
    sizes.fold(0, |sum: u128, size| {
        sum.saturating_add(size).saturating_add(1)
    })
}

fn span(range: &FlatRange) -> Option<Span> {
    let (from, to) = (range.from.parse().ok()?, range.to.parse().ok()?);
    let range = AddressSpec::Range(from, to);
    (from <= to && from.is_ipv4() == to.is_ipv4()).then(|| range.span())
}

#[cfg(test)]
mod tests {
    use fipd_core::testing;
    use fipd_crds::flat_network::FlatNetworkSubnet;

    use super::*;

    /// Defect 1 of g.1.
    #[test]
    fn g1_1_what_is_used_and_shown_by_nobody_is_leaked() {
        let pool = PoolSpec {
            subnet: "10.0.0.0/24".parse().ok(),
            gateway: "10.0.0.1".parse().ok(),
            ..testing::pool_spec("lab", &["10.0.0.0/24"])
        };
        let found = |used: &[(&str, &str)]| -> Vec<String> {
            let range = |(from, to): &(&str, &str)| FlatRange {
                from: (*from).to_owned(),
                to: (*to).to_owned(),
                ..FlatRange::default()
            };
            let mut object = FlatNetworkSubnet::new("lab", FlatNetworkSubnetSpec::default());
            object.status = Some(FlatNetworkSubnetStatus {
                used_ip: used.iter().map(range).collect(),
                ..FlatNetworkSubnetStatus::default()
            });
            let shown = BTreeSet::from([testing::key_of("10.0.0.3")]);
            let found = leaked(&pool, &SubnetView::of(object), &shown);
            found.iter().map(ToString::to_string).collect()
        };
        assert_eq!(found(&[("10.0.0.1", "10.0.0.3")]), ["10.0.0.2"]);
        assert_eq!(found(&[("10.0.0.8", "10.0.0.9")]), ["10.0.0.8", "10.0.0.9"]);
        for nonsense in [
            ("x", "10.0.0.9"),
            ("10.0.0.9", "10.0.0.8"),
            ("10.0.0.9", "::1"),
        ] {
            assert!(found(&[nonsense]).is_empty(), "{nonsense:?}");
        }
        assert!(found(&[("10.0.1.1", "10.0.1.2")]).is_empty(), "outside");
    }

    /// The original counts the gateway or not.
    #[test]
    fn g1_1_the_gateway_is_no_leak_and_hides_none() {
        let shown = ["10.0.0.2", "10.0.0.3"].map(|address| address.parse().unwrap());
        let lost = |from: &str, to: &str| {
            let range = FlatRange {
                from: from.to_owned(),
                to: to.to_owned(),
                ..FlatRange::default()
            };
            let status = FlatNetworkSubnetStatus {
                gateway: "10.0.0.1".to_owned(),
                used_ip: vec![range],
                ..FlatNetworkSubnetStatus::default()
            };
            count(&status, &shown.into())
        };
        assert_eq!(lost("10.0.0.1", "10.0.0.3"), 0);
        assert_eq!(lost("10.0.0.2", "10.0.0.4"), 1);
        assert_eq!(lost("10.0.0.1", "10.0.0.5"), 2);
    }
}
