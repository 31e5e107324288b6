//! What may be changed of an object that has an address: nothing that would take the address away.

use std::net::IpAddr;

use fipd_core::{AddressSpec, PoolSpec};

use super::Wrong;

/// One that has an address keeps it: another text of it, or none, is the same.
pub fn keeps(field: &str, wanted: Option<IpAddr>, held: IpAddr) -> Result<(), Wrong> {
    let Some(other) = wanted.filter(|wanted| *wanted != held) else {
        return Ok(());
    };
    let allowed = format!(
        "the object has {held} and keeps it; write that or nothing, or delete the object and make another"
    );
    Err(Wrong::new(field, &other.to_string(), allowed))
}

/// Whether the pool has the address.
pub fn gives(pool: &PoolSpec, address: IpAddr) -> bool {
    let has = |one: &AddressSpec| one.span().contains(address);
    pool.addresses.iter().any(has) && !pool.exclusions.iter().any(has)
}

/// The pool, an object of this kind, does not have the address, or has it in another network.
pub fn elsewhere(field: &str, pool: &str, kind: &str, held: IpAddr) -> Wrong {
    let allowed = format!(
        "the object has {held}, which this {kind} does not have; delete the object and make another"
    );
    Wrong::new(field, pool, allowed)
}
