//! What UI, REST, metrics and the CLI show of clusters.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::{ClusterId, Identity, LeaseKey, System, Text, Timestamp};
use serde::Serialize;

/// One cluster, as configured, discovered, or only remembered because it still has leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterView {
    /// What it is called in commands and conditions.
    pub name: Text,
    /// Every name it goes by, `name` among them.
    pub names: Vec<Text>,
    /// `None` until it was reached once.
    pub id: Option<ClusterId>,
    pub state: ClusterState,
    /// Why the state is not `Ready`, what failed last, what its systems wait for, or what is not as it is to be there.
    pub last_error: Option<Text>,
    /// When the state was entered.
    pub since: Timestamp,
    pub systems: BTreeSet<System>,
    /// URL of its API server.
    pub server: Option<Text>,
    /// Found through Rancher's Secrets rather than in the config file.
    pub discovered: bool,
    /// Where it is known from.
    pub found: ClusterOrigin,
    /// fipd has left it: no system is on whatever the configuration says.
    pub detached: bool,
    /// The one in the list that is the same cluster and runs its systems, where that is another.
    pub lead: Option<Text>,
    /// Leases of all its systems.
    pub leases: usize,
    /// Releases by absence that wait for an admin, one a system; one word confirms all of them.
    pub held_back: Vec<HeldBack>,
    /// Addresses of fipd's pools that Services of others show there; `None` where nobody has looked yet.
    pub sightings: Option<SightingsView>,
    /// Parts of what fipd keeps there that are not as they are to be, and why.
    pub troubles: BTreeMap<&'static str, Text>,
}

/// Addresses of fipd's pools that Services of others show, as of the latest list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SightingsView {
    /// Kept for them.
    pub held: usize,
    /// Held by another, so that they contend.
    pub contended: usize,
    /// Neither, until an admin confirms them.
    #[serde(skip)]
    pub waiting: Arc<BTreeSet<LeaseKey>>,
    /// Some of these.
    pub examples: Vec<SightingView>,
    /// Until when they are only reported after an upgrade.
    pub preview_until: Option<Timestamp>,
}

/// An address and the Service that shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SightingView {
    pub address: IpAddr,
    pub pool: Text,
    /// `NAMESPACE/NAME`; the oldest where several show it.
    pub service: Text,
}

fipd_core::words! {
    /// Where a cluster is known from.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum ClusterOrigin {
        #[default]
        Configured = "configured",
        /// An admin uploaded its kubeconfig.
        Uploaded = "uploaded",
        Discovered = "discovered",
        /// Only its leases are left.
        Remembered = "remembered",
    }
}

fipd_core::words! {
    /// Where a cluster stands.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum ClusterState {
        /// Not reached yet since the start.
        #[default]
        Connecting = "connecting",
        Ready = "ready",
        /// Was reached before and is not now, or answers more than fipd reads; its leases stay.
        Degraded = "degraded",
        /// Its kubeconfig is not acceptable.
        Refused = "refused",
        /// Its name belongs to another cluster: nothing runs on it.
        IdentityConflict = "identity-conflict",
        /// The same cluster as another one in the list, which runs its systems.
        Joined = "joined",
        /// Neither configured nor discovered any more; its leases are kept.
        Stopped = "stopped",
    }
}

/// More leases than may be released at once look as if their owners were gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    pub system: System,
    /// Leases that would be released.
    pub leases: usize,
    /// How many may be without an admin's word.
    pub limit: usize,
    pub since: Timestamp,
    /// Whose leases these are, and how many each has: what an admin's word is about.
    #[serde(skip)]
    pub owners: Arc<BTreeMap<Identity, usize>>,
}

/// The state of `[discovery]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoveryView {
    pub cluster: Text,
    /// Whether a complete list was read since the start.
    pub listed: bool,
    pub last_error: Option<Text>,
    /// Clusters found.
    pub found: usize,
}
