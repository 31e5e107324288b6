//! Which range a new guest gets its address from. Pure.

use crate::controller::store::Key;

/// A FloatingIPRange, as far as it says whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeOffer {
    pub name: String,
    /// Display name of the Harvester cluster.
    pub harvester: String,
    /// Its network, without namespace.
    pub network: String,
}

/// The networks of the machines of one pool, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolNetworks {
    pub control_plane: bool,
    pub networks: Vec<String>,
}

/// The range, and what is worth an Event about the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeChoice {
    pub range: String,
    pub note: Option<String>,
}

/// Chooses among ranges that are offered in the order of their names. The networks of control-plane machines come before
/// those of others, and a range of one of them before any other range of the Harvester; `None`: it has none.
pub fn choose(
    harvester: &str,
    pools: &[PoolNetworks],
    ranges: &[RangeOffer],
) -> Option<RangeChoice> {
    let ours = || ranges.iter().filter(|one| one.harvester == harvester);
    let of = |network: &String| ours().find(|one| one.network == *network);
    let (first, rest): (Vec<_>, Vec<_>) = pools.iter().partition(|pool| pool.control_plane);
    let mut networks = first
        .into_iter()
        .chain(rest)
        .flat_map(|pool| &pool.networks);
    // The first pool and its first network were all that the original looked at.
    let looked_at = pools.first().and_then(|pool| pool.networks.first());
    let original = looked_at.and_then(of).or_else(|| ours().next())?;
    let Some(chosen) = networks.find_map(of) else {
        let range = original.name.clone();
        let note = format!(
            "no FloatingIPRange of Harvester cluster {harvester:?} is of a network of its machines; the first one by name is taken: {range}"
        );
        let note = Some(note);
        return Some(RangeChoice { range, note });
    };
    let other = (chosen.name != original.name).then(|| {
        format!(
            "range {} of network {} is taken; kube-fip-operator would have taken {}, since it looked at the first interface of the first machine pool alone",
            chosen.name, chosen.network, original.name
        )
    });
    Some(RangeChoice {
        range: chosen.name.clone(),
        note: other,
    })
}

/// The FloatingIP that a new guest gets, as the original names it.
pub fn first_floating_ip(namespace: &str, cluster: &str) -> Key {
    Key::new(namespace, &format!("{cluster}-kubevip"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(name: &str, harvester: &str, network: &str) -> RangeOffer {
        RangeOffer {
            name: name.into(),
            harvester: harvester.into(),
            network: network.into(),
        }
    }

    fn pool(control_plane: bool, networks: &[&str]) -> PoolNetworks {
        PoolNetworks {
            control_plane,
            networks: networks.iter().map(|one| (*one).to_owned()).collect(),
        }
    }

    fn ranges() -> Vec<RangeOffer> {
        vec![
            offer("a", "hv-1", "vlan-9"),
            offer("b", "hv-1", "vlan-1"),
            offer("c", "hv-1", "vlan-2"),
            offer("d", "hv-2", "vlan-1"),
        ]
    }

    fn chosen(harvester: &str, pools: &[PoolNetworks]) -> Option<(String, Option<String>)> {
        let choice = choose(harvester, pools, &ranges())?;
        Some((choice.range, choice.note))
    }

    #[test]
    fn the_network_of_the_machines_names_the_range() {
        let one = [pool(true, &["vlan-1"])];
        assert_eq!(chosen("hv-1", &one), Some(("b".into(), None)));
        assert_eq!(chosen("hv-2", &one), Some(("d".into(), None)));
        assert_eq!(chosen("hv-3", &one), None, "nobody offers it one");
    }

    #[test]
    fn without_a_range_of_its_network_the_first_by_name_is_taken_and_told() {
        for pools in [vec![pool(true, &["vlan-7"])], vec![pool(true, &[])], vec![]] {
            let (range, note) = chosen("hv-1", &pools).expect("a range");
            assert_eq!(range, "a");
            assert!(note.is_some_and(|note| note.contains("first one by name")));
        }
    }

    #[test]
    fn control_plane_pools_and_all_interfaces_are_looked_at() {
        let workers_first = [pool(false, &["vlan-2"]), pool(true, &["vlan-1"])];
        let (range, note) = chosen("hv-1", &workers_first).expect("a range");
        assert_eq!(range, "b");
        assert!(note.is_some_and(|note| note.contains("would have taken c")));
        let second = [pool(true, &["vlan-7", "vlan-2"])];
        let (range, note) = chosen("hv-1", &second).expect("a range");
        assert_eq!(range, "c");
        assert!(note.is_some_and(|note| note.contains("would have taken a")));
    }
}
