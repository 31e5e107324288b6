//! What may not change of a subnet whose addresses are in use.

use std::net::IpAddr;

use fipd_core::Span;

use super::{
    super::Wrong,
    link::{FLAT_MODE, MASTER, VLAN},
    spans,
    subnet::{CIDR, FlatSubnet, RANGES},
};

/// The most addresses that a message names.
const NAMED: usize = 5;

/// What stays as it is while `user` has an address of the subnet: interfaces of pods are made by it.
///
/// # Errors
/// The first field that changes.
pub fn check_fixed(before: &FlatSubnet, after: &FlatSubnet, user: &str) -> Result<(), Wrong> {
    let pairs = [
        (CIDR, before.cidr.to_string(), after.cidr.to_string()),
        (MASTER, before.master.clone(), after.master.clone()),
        (VLAN, before.vlan.to_string(), after.vlan.to_string()),
        (
            FLAT_MODE,
            before.kind.as_str().to_owned(),
            after.kind.as_str().to_owned(),
        ),
    ];
    let mut changed = pairs.into_iter().filter(|(_, old, new)| old != new);
    changed.next().map_or(Ok(()), |(field, old, new)| {
        let allowed = format!(
            "it stays {old} while addresses of the subnet are in use, such as by {user}; delete those pods first, or make another subnet"
        );
        Err(Wrong::new(field, &new, allowed))
    })
}

/// The VLAN may not be so: addresses of the subnet's pool are in use in this network, which is that of another VLAN; `others`: the
/// pools through which they are, empty where it is the subnet's own.
pub fn left_in(network: &str, others: &str, after: &FlatSubnet) -> Wrong {
    let by = match others {
        "" => "by pods of an earlier subnet of the name".to_owned(),
        others => format!("through {others}"),
    };
    let allowed = format!(
        "addresses of it are in use in network {network}, {by}; write the VLAN of that network, make a subnet of another name, or take the pool along with `fipd pool move-network`; once nobody uses them the subnet is served by itself"
    );
    Wrong::new(VLAN, &after.vlan.to_string(), allowed)
}

/// The addresses that the subnet would not give any more.
pub fn lost(before: &FlatSubnet, after: &FlatSubnet) -> Vec<Span> {
    spans::minus(&before.given(), &after.given())
}

/// Refuses a change that would leave these addresses in use outside the subnet.
///
/// # Errors
/// There are such addresses.
pub fn check_outside(outside: &[IpAddr]) -> Result<(), Wrong> {
    if outside.is_empty() {
        return Ok(());
    }
    let addresses = super::some(outside, NAMED);
    let allowed = "the subnet has these addresses in use and would not give them any more; keep them in the ranges and not excluded, or delete their pods first";
    Err(Wrong::new(RANGES, &addresses, allowed))
}
