//! Which range a new guest gets its address from. Pure.

use std::sync::Arc;

use crate::{
    controller::store::Key,
    guests::{
        GuestUnready,
        hosting::{Hosting, Machine, MachineRef},
    },
};

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
    /// The one that kube-fip-operator looked at: that of the older field, else the first.
    pub original: Option<String>,
    /// Why its networks are not known.
    pub unread: Option<GuestUnready>,
}

/// The range, and what is worth an Event about the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeChoice {
    pub range: String,
    pub note: Option<String>,
}

/// The cloud credential of a guest on Harvester; `None`: it runs elsewhere, where no range is for it.
///
/// # Errors
/// The reference to it cannot be read.
pub fn credential(hosting: &Hosting) -> Result<Option<&(String, String)>, GuestUnready> {
    match hosting {
        Hosting::BareMetal => Ok(None),
        // Of another cloud.
        Hosting::Harvester { machines, .. } if machines.is_empty() => Ok(None),
        Hosting::Harvester { credential, .. } => Ok(Some(credential)),
        Hosting::Unclear(text) => Err(GuestUnready::BadCredentialName(text.clone())),
    }
}

/// The networks of all machine pools; `found` looks up a HarvesterConfig. A pool whose networks are not known says why: it
/// matters only where no pool before it decides.
///
/// # Errors
/// None names a network.
pub fn networks(
    machines: &[MachineRef],
    found: impl Fn(&str) -> Option<Arc<Machine>>,
) -> Result<Vec<PoolNetworks>, GuestUnready> {
    let pools = machines.iter().map(|machine| {
        let read = read(machine, found(&machine.config));
        read.unwrap_or_else(|unready| PoolNetworks {
            control_plane: machine.control_plane,
            networks: Vec::new(),
            original: None,
            unread: Some(unready),
        })
    });
    let pools: Vec<PoolNetworks> = pools.collect();
    let names_none = |pool: &PoolNetworks| pool.networks.is_empty() && pool.unread.is_none();
    if pools.iter().all(names_none) {
        let first = machines.first().map(|machine| machine.config.clone());
        return Err(GuestUnready::NoNetwork(first.unwrap_or_default()));
    }
    Ok(pools)
}

fn read(machine: &MachineRef, found: Option<Arc<Machine>>) -> Result<PoolNetworks, GuestUnready> {
    let config = || machine.config.clone();
    let found = found.ok_or_else(|| GuestUnready::NoMachineConfig(config()))?;
    match &found.unqualified {
        Some(network) => Err(GuestUnready::BadNetworkName {
            config: config(),
            network: network.clone(),
        }),
        None => Ok(PoolNetworks {
            control_plane: machine.control_plane,
            networks: found.networks.clone(),
            original: found.older.as_ref().or(found.networks.first()).cloned(),
            unread: None,
        }),
    }
}

/// Chooses among ranges that are offered in the order of their names. The networks of control-plane machines come before
/// those of others, and a range of one of them before any other range of the Harvester; `None`: it has none.
///
/// # Errors
/// The networks of a pool that may decide are not known.
pub fn choose(
    harvester: &str,
    pools: &[PoolNetworks],
    ranges: &[RangeOffer],
) -> Result<Option<RangeChoice>, GuestUnready> {
    let ours = || ranges.iter().filter(|one| one.harvester == harvester);
    let of = |network: &String| ours().find(|one| one.network == *network);
    let Some(first) = ours().next() else {
        return Ok(None);
    };
    let of_machines = of_machines(pools, of)?;
    let chosen = of_machines.unwrap_or(first);
    // The first pool and one network of it were all that the original looked at. It took nothing where it could not read that.
    let looked_at = pools.first().filter(|pool| pool.unread.is_none());
    let original = looked_at.map_or(chosen, |pool| {
        pool.original.as_ref().and_then(of).unwrap_or(first)
    });
    let mut notes = Vec::new();
    if of_machines.is_none() {
        notes.push(format!(
            "no FloatingIPRange of Harvester cluster {harvester:?} is of a network of its machines; the first one by name is taken: {}",
            chosen.name
        ));
    }
    if chosen.name != original.name {
        notes.push(format!(
            "range {} of network {} is taken; kube-fip-operator would have taken {}, since it looked at one interface of the first machine pool alone",
            chosen.name, chosen.network, original.name
        ));
    }
    Ok(Some(RangeChoice {
        range: chosen.name.clone(),
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    }))
}

/// The range of the first network of the pools that has one.
fn of_machines<'a>(
    pools: &[PoolNetworks],
    of: impl Fn(&String) -> Option<&'a RangeOffer>,
) -> Result<Option<&'a RangeOffer>, GuestUnready> {
    let (first, rest): (Vec<_>, Vec<_>) = pools.iter().partition(|pool| pool.control_plane);
    for pool in first.into_iter().chain(rest) {
        if let Some(unready) = &pool.unread {
            return Err(unready.clone());
        }
        if let Some(range) = pool.networks.iter().find_map(&of) {
            return Ok(Some(range));
        }
    }
    Ok(None)
}

/// The FloatingIP that a new guest gets, as the original names it.
pub fn first_floating_ip(namespace: &str, cluster: &str) -> Key {
    Key::new(namespace, &format!("{cluster}-kubevip"))
}

#[cfg(test)]
mod tests {
    use fipd_crds::{machine_config::HarvesterConfig, provisioning::Cluster};
    use serde_json::{Value, json};

    use super::*;
    use crate::guests::hosting::Provisioned;

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
            original: networks.first().map(|one| (*one).to_owned()),
            unread: None,
        }
    }

    fn unread(control_plane: bool) -> PoolNetworks {
        PoolNetworks {
            unread: Some(GuestUnready::NoMachineConfig("m".into())),
            ..pool(control_plane, &[])
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
        let choice = choose(harvester, pools, &ranges()).expect("all pools are read")?;
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
    fn what_the_original_would_have_taken_is_told() {
        let older = PoolNetworks {
            original: Some("vlan-2".into()),
            ..pool(true, &["vlan-1"])
        };
        let (range, note) = chosen("hv-1", &[older]).expect("a range");
        assert_eq!(range, "b");
        assert!(note.is_some_and(|note| note.contains("would have taken c")));
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
    fn the_first_by_name_is_taken_also_where_the_original_would_have_taken_another() {
        let older = PoolNetworks {
            original: Some("vlan-2".into()),
            ..pool(true, &["vlan-7"])
        };
        let (range, note) = chosen("hv-1", &[older]).expect("a range");
        assert_eq!(range, "a");
        let said = |note: &str| note.contains("first one by name is taken: a");
        assert!(note.is_some_and(|note| said(&note) && note.contains("would have taken c")));
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

    #[test]
    fn a_pool_that_cannot_be_read_keeps_a_guest_only_where_it_may_decide() {
        let control_plane = || pool(true, &["vlan-1"]);
        let without_range = || pool(true, &["vlan-7"]);
        let workers = || pool(false, &["vlan-2"]);
        let taken = |pools: &[PoolNetworks]| {
            let choice = choose("hv-1", pools, &ranges());
            choice.map(|choice| choice.map(|choice| (choice.range, choice.note)))
        };
        let b = Ok(Some(("b".to_owned(), None)));
        assert_eq!(taken(&[control_plane(), unread(false)]), b);
        assert_eq!(taken(&[unread(false), control_plane()]), b);
        let kept = Err(GuestUnready::NoMachineConfig("m".into()));
        assert_eq!(taken(&[unread(true), workers()]), kept);
        assert_eq!(taken(&[without_range(), unread(false), workers()]), kept);
        let before = [without_range(), workers(), unread(false)];
        let range = taken(&before).ok().flatten().map(|(range, _)| range);
        assert_eq!(range.as_deref(), Some("c"));
        let nowhere = choose("hv-3", &[unread(true)], &ranges());
        assert_eq!(nowhere, Ok(None), "no range is for it in any case");
    }

    /// What keeps a guest whose one HarvesterConfig has these fields.
    fn kept_by(fields: Value) -> Option<&'static str> {
        let mut object = json!({
            "apiVersion": "rke-machine-config.cattle.io/v1", "kind": "HarvesterConfig",
            "metadata": { "name": "m" },
        });
        let all = object.as_object_mut().expect("an object");
        all.extend(fields.as_object().cloned().expect("fields"));
        let object: HarvesterConfig = serde_json::from_value(object).expect("a HarvesterConfig");
        let machine = Arc::new(Machine::view(object));
        let one = MachineRef {
            control_plane: true,
            config: "m".into(),
        };
        let found = networks(&[one], |_| Some(Arc::clone(&machine)));
        let chosen = found.and_then(|pools| choose("hv-1", &pools, &ranges()));
        chosen.err().map(|unready| unready.reason())
    }

    fn interfaces(networks: &[&str]) -> Value {
        let all: Vec<_> = networks
            .iter()
            .map(|one| json!({ "networkName": one }))
            .collect();
        json!({ "networkInfo": json!({ "interfaces": all }).to_string() })
    }

    #[test]
    fn panic_network_name_without_a_slash() {
        assert_eq!(kept_by(interfaces(&["vlan-1"])), Some("BadNetworkName"));
        let second = interfaces(&["default/vlan-1", "vlan-2"]);
        assert_eq!(kept_by(second), Some("BadNetworkName"));
        let older = json!({ "networkName": "vlan-1" });
        assert_eq!(kept_by(older), Some("BadNetworkName"));
        assert_eq!(kept_by(interfaces(&["default/vlan-1"])), None);
    }

    #[test]
    fn panic_harvester_config_without_an_interface() {
        for none in [
            interfaces(&[]),
            json!({}),
            json!({ "networkInfo": "{" }),
            json!({ "networkInfo": "{\"interfaces\": null}" }),
        ] {
            assert_eq!(kept_by(none.clone()), Some("NoNetwork"), "{none}");
        }
        assert!(networks(&[], |_| None).is_err());
    }

    #[test]
    fn panic_credential_reference_without_a_colon() {
        let of = |text: &str| {
            let cluster = json!({
                "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
                "metadata": { "name": "guest" }, "spec": { "cloudCredentialSecretName": text },
            });
            let cluster: Cluster = serde_json::from_value(cluster).expect("a Cluster");
            let hosting = Provisioned::view(cluster, &[]).hosting;
            credential(&hosting)
                .map(|one| one.is_some())
                .map_err(|unready| unready.reason())
        };
        for unclear in ["cc-1", ":cc-1", "cattle-global-data:"] {
            assert_eq!(of(unclear), Err("BadCredentialName"), "{unclear}");
        }
        assert_eq!(of(""), Ok(false), "bare metal");
        assert_eq!(of("cattle-global-data:cc-1"), Ok(false), "of another cloud");
    }
}
