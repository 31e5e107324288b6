//! Clusters, what an admin says about them, what other programs left there, and guests of Rancher.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

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

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdoptReport {
    /// The configured name of the cluster.
    pub cluster: String,
    /// Nothing was changed.
    pub dry_run: bool,
    pub message: String,
    /// How many of each there are.
    pub counts: BTreeMap<String, u64>,
    pub findings: Vec<AdoptFinding>,
    pub changes: Vec<AdoptChange>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
    /// Why nothing can be taken over at present.
    pub blockers: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdoptFinding {
    /// `pool`, `quota`, `address`, `conflict`, `orphan`, `secret`, `leftover`, `program`, `refused`, `unwanted` or
    /// `malformed`.
    pub kind: String,
    pub name: String,
    /// Whether all is well with it.
    pub fine: bool,
    pub detail: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdoptChange {
    /// Who does it: `fipd` by itself while it leads, `adopt`, or `you`.
    pub by: String,
    pub name: String,
    pub does: String,
    /// `planned`, `done` or `failed`.
    pub state: String,
    /// Why it failed.
    pub error: Option<String>,
}

/// What one system says of a guest.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GuestView {
    /// The configured name of its Rancher.
    pub rancher: String,
    /// Rancher's id of the cluster.
    pub id: String,
    pub system: String,
    pub display_name: String,
    /// `Ready`, `Waiting`, `Failed`, `Leaving` or `Left`.
    pub phase: String,
    pub reason: String,
    pub message: String,
    /// Since when it is in that phase for that reason.
    pub since: String,
    /// The last reason for not being ready; stays when it is.
    pub last_error: Option<String>,
    /// What else the system says of it: `load_balancer`; as `kept_out` another system that its load balancer keeps out; and as
    /// `projects` those that it may ask addresses for, with the pool of Services that name none.
    #[serde(flatten)]
    pub details: BTreeMap<String, GuestDetailValue>,
    /// Helm releases it is to have.
    pub releases: Vec<GuestReleaseView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum GuestDetailValue {
    Text(String),
    /// By project.
    Projects(BTreeMap<String, String>),
}

/// Which guests are listed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct GuestQuery {
    /// Only what this system says.
    pub system: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GuestReleaseView {
    pub name: String,
    pub namespace: String,
    pub chart: String,
    pub version: String,
    /// `deployed`, `failed`, `waiting`, `unknown`, or the operation of helm that runs.
    pub state: String,
    /// Why it is not as it should be.
    pub error: Option<String>,
    /// Since when it is so.
    pub since: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GuestList {
    /// By Rancher, id and system.
    pub guests: Vec<GuestView>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}
