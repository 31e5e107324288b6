//! Which clusters each network waits for before its first new lease.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{System, Text};

use super::NetworkRules;

/// A cluster that is configured or was discovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// What it is called in conditions and commands.
    pub name: Text,
    /// Every name, `name` among them.
    pub names: Vec<Text>,
    /// Each switched-on system, with the name of the cluster that holds the pools its addresses come from.
    pub systems: BTreeMap<System, Text>,
    /// Whether what its other Services use is kept from everybody else, in all networks of its systems.
    pub holds_sightings: bool,
}

/// One thing a network waits for; [`fipd_core::Expectation`] with the network by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Awaited {
    pub network: Text,
    pub cluster: Text,
    pub system: System,
}

/// What each network waits for.
///
/// A system of a cluster counts for every network that the pools it uses may belong to: by the rules, and by
/// `seen`, the networks that pools of (cluster, system) were found in. `discovery` names a source that was not
/// listed completely yet, and where the clusters it may bring have their pools.
pub fn awaited(
    rules: &NetworkRules,
    sites: &[Site],
    seen: &BTreeSet<(Text, System, Text)>,
    discovery: Option<(&Text, &BTreeMap<System, Text>)>,
) -> Vec<Awaited> {
    let mut all = BTreeSet::new();
    for site in sites {
        for (system, pools_in) in &site.systems {
            for network in networks(rules, sites, seen, pools_in, system) {
                let awaited = |system: System| Awaited {
                    network: network.clone(),
                    cluster: site.name.clone(),
                    system,
                };
                all.insert(awaited(system.clone()));
                if site.holds_sightings {
                    all.insert(awaited(System::foreign()));
                }
            }
        }
    }
    if let Some((source, systems)) = discovery {
        for (system, pools_in) in systems {
            for network in networks(rules, sites, seen, pools_in, system) {
                all.insert(Awaited {
                    network,
                    cluster: source.clone(),
                    system: System::discovery(),
                });
            }
        }
    }
    all.into_iter().collect()
}

fn networks(
    rules: &NetworkRules,
    sites: &[Site],
    seen: &BTreeSet<(Text, System, Text)>,
    pools_in: &Text,
    system: &System,
) -> BTreeSet<Text> {
    let own = [pools_in.clone()];
    let names = sites
        .iter()
        .find(|site| site.name == *pools_in)
        .map_or(&own[..], |site| &site.names);
    let mut networks = rules.possible(names, system);
    let first = (pools_in.clone(), system.clone(), Text::default());
    let found = seen
        .range(first..)
        .take_while(|(cluster, of, _)| cluster == pools_in && of == system);
    networks.extend(found.map(|(_, _, network)| network.clone()));
    networks
}
