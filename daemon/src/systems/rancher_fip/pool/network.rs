//! Which network a FloatingIPPool is in.

use fipd_core::Pool;
use fipd_crds::floating_ip::FloatingIPPool;

use crate::{
    config::{NetworkChoice, PoolFacts},
    systems::rancher_fip::{Site, names::NETWORK, rancher::annotation},
};

/// What decides the network of a pool.
pub fn facts<'a>(
    site: &'a Site,
    name: &'a str,
    interface: &'a str,
    annotation: Option<&'a str>,
) -> PoolFacts<'a> {
    PoolFacts {
        cluster: &site.session.names,
        system: &site.system,
        namespace: None,
        interface: Some(interface).filter(|name| !name.is_empty()),
        vlan: None,
        pool: name,
        annotation,
    }
}

/// The same of an object.
pub fn facts_of<'a>(site: &'a Site, name: &'a str, pool: &'a FloatingIPPool) -> PoolFacts<'a> {
    let interface = &pool.spec.target_network_interface;
    facts(site, name, interface, annotation(pool, NETWORK))
}

/// The network that the mirror of the object is put into; it need not exist yet.
pub fn choice(
    site: &Site,
    name: &str,
    pool: &FloatingIPPool,
    mirror: Option<&Pool>,
) -> NetworkChoice {
    let facts = facts_of(site, name, pool);
    site.session.network_choice_of_mirror(&facts, mirror)
}
