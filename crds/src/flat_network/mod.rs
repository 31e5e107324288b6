//! `flatnetwork.pandaria.io`: subnets of macvlan and ipvlan networks and the addresses of pods in them, as
//! rancher-flat-network has them.
//!
//! Every object that the originals take is taken, also in the spelling that they had until 2024: nothing is required, and
//! everything may be null. Conditions, exclusions and the policies on reuse are fipd's; the originals keep what they do not
//! know. What the values mean is judged elsewhere. All names here stand in users' clusters; none may ever change.

mod ip;
pub mod names;
mod subnet;

pub use ip::{FlatNetworkIP, FlatNetworkIPSpec, FlatNetworkIPStatus};
pub use subnet::{
    FlatNetworkSubnet, FlatNetworkSubnetSpec, FlatNetworkSubnetStatus, FlatRange, FlatRoute,
    PodDefaultGateway, RouteSettings,
};

/// The API group of both kinds.
pub const GROUP: &str = "flatnetwork.pandaria.io";

#[cfg(test)]
mod tests;
