//! The addresses of the pages.

use std::net::IpAddr;

pub const HOME: &str = "/ui/";
pub const LOGIN: &str = "/ui/login";
pub const LOGOUT: &str = "/ui/logout";
pub const POOLS: &str = "/ui/pools";
pub const POOL_NEW: &str = "/ui/pools/new";
pub const CLUSTERS: &str = "/ui/clusters";
pub const TENANTS: &str = "/ui/tenants";
pub const AUDIT: &str = "/ui/audit";
pub const SEARCH: &str = "/ui/search";

/// The page of a pool.
pub fn pool(id: u32) -> String {
    format!("/ui/pools/{id}")
}

/// Where the form of a pool is shown and sent to.
pub fn pool_edit(id: u32) -> String {
    format!("/ui/pools/{id}/edit")
}

/// Where the end of a pool is confirmed and sent to.
pub fn pool_delete(id: u32) -> String {
    format!("/ui/pools/{id}/delete")
}

/// Where the allocate form of a pool is shown and sent to.
pub fn allocate(pool: u32) -> String {
    format!("/ui/pools/{pool}/allocate")
}

/// The page of one address.
pub fn lease(network: u32, address: IpAddr) -> String {
    format!("/ui/networks/{network}/addresses/{address}")
}

/// Where the transfer of one address is asked for and sent to.
pub fn transfer(network: u32, address: IpAddr) -> String {
    format!("/ui/networks/{network}/addresses/{address}/transfer")
}

/// Where the release of one address is confirmed and sent to.
pub fn release(network: u32, address: IpAddr) -> String {
    format!("/ui/networks/{network}/addresses/{address}/release")
}
