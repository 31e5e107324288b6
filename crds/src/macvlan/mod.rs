//! `macvlan.cluster.cattle.io`: the kinds of macvlan-operator. Read only: they are migrated.
//!
//! Nothing is required, and a value of the wrong shape counts as absent; who migrates compares with what stands there. All names
//! here stand in users' clusters; none may ever change.

mod ip;
pub mod names;
mod subnet;

pub use ip::{MacvlanIP, MacvlanIPSpec};
pub use subnet::{
    MacvlanDefaultGateway, MacvlanRange, MacvlanRoute, MacvlanSubnet, MacvlanSubnetSpec,
};

/// The API group of both kinds.
pub const GROUP: &str = "macvlan.cluster.cattle.io";

#[cfg(test)]
mod tests;
