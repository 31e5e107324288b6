//! The addresses of the pages.

use std::net::IpAddr;

pub const HOME: &str = "/ui/";
pub const LOGIN: &str = "/ui/login";
pub const LOGIN_OIDC: &str = "/ui/login/oidc";
pub const LOGOUT: &str = "/ui/logout";
pub const POOLS: &str = "/ui/pools";
pub const POOL_NEW: &str = "/ui/pools/new";
pub const CLUSTERS: &str = "/ui/clusters";
pub const CLUSTER_NEW: &str = "/ui/clusters/new";
pub const RULES: &str = "/ui/rules";
pub const RULES_FLUSH: &str = "/ui/rules/flush";
pub const RULES_RESUME: &str = "/ui/rules/resume";
pub const GUESTS: &str = "/ui/guests";
pub const TENANTS: &str = "/ui/tenants";
pub const AUDIT: &str = "/ui/audit";
pub const AUDIT_CSV: &str = "/ui/audit.csv";
pub const LEASES: &str = "/ui/leases";
pub const RESERVE: &str = "/ui/reserve";
pub const IMPORT: &str = "/ui/import";
pub const USERS: &str = "/ui/users";
pub const USER_NEW: &str = "/ui/users/new";
pub const TOKENS: &str = "/ui/tokens";
pub const TOKEN_NEW: &str = "/ui/tokens/new";
pub const SESSIONS: &str = "/ui/sessions";
pub const PASSWORD: &str = "/ui/password";
pub const BACKUP: &str = "/ui/backup";
pub const BACKUP_DRILL: &str = "/ui/backup/drill";
pub const BACKUP_HOLD: &str = "/ui/backup/hold";
pub const HOSTS: &str = "/ui/hosts";
pub const SETTINGS: &str = "/ui/settings";
pub const ABOUT: &str = "/ui/about";
pub const SEARCH: &str = "/ui/search";

/// The page of a pool.
pub fn pool(id: u32) -> String {
    format!("/ui/pools/{id}")
}

/// The page of one address.
pub fn lease(network: u32, address: IpAddr) -> String {
    format!("/ui/networks/{network}/addresses/{address}")
}

/// Where a user is signed in. Names that a provider gives have all kinds of characters.
pub fn user_sessions(name: &str) -> String {
    let Ok(name) = askama::filters::urlencode_strict(name);
    format!("/ui/users/{name}/sessions")
}

/// Where the end of a token is confirmed and sent to.
pub fn token_revoke(id: u64) -> String {
    format!("/ui/tokens/{id}/revoke")
}

/// The page of a cluster.
pub fn cluster(name: &str) -> String {
    format!("/ui/clusters/{name}")
}

/// The leases of a cluster.
pub fn leases_of_cluster(name: &str) -> String {
    filtered(LEASES, "cluster", name)
}

/// The clusters with the text in their name or identity.
pub fn clusters_named(text: &str) -> String {
    filtered(CLUSTERS, "filter", text)
}

/// The form for a kubeconfig of the cluster.
pub fn cluster_add(name: &str) -> String {
    filtered(CLUSTER_NEW, "name", name)
}

/// The mark of leases that are used by more than one.
pub const CONTENDED: &str = "contended";

/// The mark of leases whose address no open pool of the network has any more.
pub const OUT_OF_RANGE: &str = "out-of-range";

/// The leases with a mark.
pub fn leases_marked(mark: &str) -> String {
    filtered(LEASES, "mark", mark)
}

/// The leases of a pool, as a list.
pub fn leases_of_pool(name: &str) -> String {
    filtered(LEASES, "pool", name)
}

/// Those of them that are out of range.
pub fn leases_out_of_range(pool: &str) -> String {
    format!("{}&mark={OUT_OF_RANGE}", leases_of_pool(pool))
}

/// The leases that are charged to a tenant.
pub fn leases_of_tenant(name: &str) -> String {
    filtered(LEASES, "tenant", name)
}

/// The guest clusters with the text in their name or id.
pub fn guests_named(text: &str) -> String {
    filtered(GUESTS, "filter", text)
}

/// The page of a system that serves lists.
pub fn system(name: &str) -> String {
    format!("/ui/{name}")
}

/// A list that a system serves, at `here`: the rows that contain the text.
pub fn rows_like(here: &str, text: &str) -> String {
    filtered(here, "filter", text)
}

/// What a tenant may have.
pub fn tenant(name: &str) -> String {
    filtered(TENANTS, "filter", name)
}

/// A list with one filter; the value is written as it is but for what ends or changes it.
fn filtered(list: &str, filter: &str, value: &str) -> String {
    let value = value
        .replace('%', "%25")
        .replace('&', "%26")
        .replace('#', "%23")
        .replace(' ', "%20")
        .replace('+', "%2B");
    format!("{list}?{filter}={value}")
}
