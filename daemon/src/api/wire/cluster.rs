//! Clusters, and what an admin says about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    pub name: String,
    /// Every name it goes by.
    pub names: Vec<String>,
    /// UID of the `kube-system` namespace; null until the cluster was reached once.
    pub id: Option<String>,
    pub state: String,
    pub last_error: Option<String>,
    /// Parts of what fipd keeps there that are not as they are to be, and why.
    #[serde(default)]
    pub troubles: BTreeMap<String, String>,
    /// Since when it is in that state.
    pub since: String,
    pub systems: Vec<String>,
    pub server: Option<String>,
    /// Found through Rancher's kubeconfig Secrets.
    pub discovered: bool,
    /// `configured`, `uploaded`, `discovered`, or `remembered` for its leases.
    #[serde(default)]
    pub found: String,
    /// fipd has left it: no system is on.
    #[serde(default)]
    pub detached: bool,
    pub leases: usize,
    /// Releases that wait for `confirm-release`, one a system; it confirms all of them.
    #[serde(default)]
    pub held_back: Vec<HeldBackView>,
    /// Addresses of fipd's pools that Services of other load balancers show there; null where nobody has looked.
    #[serde(default)]
    pub sightings: Option<SightingsReport>,
}

/// As of the latest complete list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SightingsReport {
    /// Kept for these Services.
    pub held: usize,
    /// Held by another, so that the Service contends.
    pub contended: usize,
    /// Neither, until `confirm-sightings`.
    pub reported: usize,
    /// The first 20 of these.
    pub examples: Vec<SightedAddress>,
    /// Until when all are only reported after an upgrade.
    pub preview_until: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SightedAddress {
    pub address: String,
    pub pool: String,
    /// `NAMESPACE/NAME`.
    pub service: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HeldBackView {
    pub system: String,
    /// Leases that would be released.
    pub leases: usize,
    /// How many may be without an admin's word.
    pub limit: usize,
    pub since: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterList {
    /// By name.
    pub clusters: Vec<ClusterView>,
    /// Cursor of the next page; null on the last.
    #[serde(default)]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SkipAdoption {
    /// The network that shall not wait for the cluster.
    pub network: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// A name of the cluster that it is.
    #[serde(rename = "as")]
    pub other: String,
}

/// What was done, in one sentence.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    pub message: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterAdd {
    /// The text of a kubeconfig with everything in it: no programs, no names of files. It is never shown again.
    pub kubeconfig: String,
    /// Systems that are switched on.
    #[serde(default)]
    pub systems: Vec<String>,
    /// TOML as below `[[cluster]]` in the configuration file, such as a table `[claims]` with `pools`.
    #[serde(default)]
    pub settings: String,
}

/// What leaving a cluster takes away there.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DetachReport {
    pub cluster: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// Nothing of fipd's is left there.
    pub clean: bool,
    pub message: String,
    pub steps: Vec<DetachStep>,
    /// What is left, and what to do about it.
    pub left: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DetachStep {
    pub object: String,
    pub does: String,
    /// `planned`, `done` or `failed`.
    pub state: String,
    pub error: Option<String>,
}
