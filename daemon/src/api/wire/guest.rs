//! Guests: clusters that Rancher manages and that the cluster manager looks after.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GuestView {
    /// The configured name of its Rancher.
    pub rancher: String,
    /// Rancher's id of the cluster.
    pub id: String,
    pub display_name: String,
    /// `Ready`, `Waiting`, `Failed`, `Leaving` or `Left`.
    pub phase: String,
    pub reason: String,
    pub message: String,
    /// Since when it is in that phase for that reason.
    pub since: String,
    /// The last reason for not being ready; stays when it is.
    pub last_error: Option<String>,
    pub load_balancer: String,
    /// Projects it may ask addresses for, with the pool of Services that name none.
    pub projects: BTreeMap<String, String>,
    /// Helm releases it is to have.
    pub releases: Vec<GuestReleaseView>,
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
    /// By Rancher and id.
    pub guests: Vec<GuestView>,
    /// Cursor of the next page; null on the last.
    #[serde(default)]
    pub next: Option<String>,
}
