//! What was seen of a site, as values.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fipd_core::{KeyBytes, Text};
use fipd_crds::floating_ip::{FloatingIPPool, FloatingIPProjectQuota};
use jiff::Timestamp;

use super::{guest_url::GuestUrl, key::WrongKey};
use crate::controllers::{
    objects::Key,
    rancher_fip::{
        api_service::plan::{Want, Wrong},
        clusters::RancherCluster,
        floating_ip::observe::Fip,
    },
};

/// What fipd may not read is said, and keeps nothing else from being shown.
pub type Looked<T> = Result<T, String>;

/// All of it.
#[derive(Default)]
pub struct Found {
    /// By name.
    pub pools: BTreeMap<String, FloatingIPPool>,
    /// By project.
    pub quotas: BTreeMap<String, FloatingIPProjectQuota>,
    pub fips: BTreeMap<Key, Fip>,
    /// By Rancher's id.
    pub clusters: BTreeMap<String, RancherCluster>,
    /// Each in the namespace of the cluster that owns it.
    pub projects: BTreeSet<Key>,
    /// Objects that do not fit their schema: what they are, and why.
    pub malformed: Vec<(String, String)>,
    /// FloatingIPs whose address the address book gives to somebody else: to whom.
    pub held_by_others: BTreeMap<Key, String>,
    /// Project Secrets in Rancher.
    pub secrets: Option<Looked<BTreeSet<Key>>>,
    pub leases: Vec<LeaseSeen>,
    pub webhook: Option<Looked<Webhook>>,
    /// The originals' Deployments; `None`: nobody looked.
    pub deployments: Option<Looked<Vec<DeploymentSeen>>>,
    /// The key of the original's tokens.
    pub key: Option<Looked<Result<KeyBytes, WrongKey>>>,
    /// Those that fipd has.
    pub known_keys: Vec<KeyBytes>,
    /// Whether fipd leads for longer than a token of the original counts.
    pub tokens_over: bool,
    pub service: Option<Looked<ApiService>>,
    /// EndpointSlices of that Service, and Endpoints, that others keep: what leads away from fipd.
    pub strangers: Option<Looked<Vec<String>>>,
    /// Where the settings of the cluster manager send guests.
    pub guest_url: Option<Looked<GuestUrl>>,
    /// Other things that the originals left and that do no harm.
    pub remains: Vec<Looked<String>>,
    pub duties: Duties,
}

/// What this daemon is to do in the cluster.
#[derive(Clone, Debug, Default)]
pub struct Duties {
    /// Whether the originals' Leases are held.
    pub leader_elect: bool,
    /// Whether it is the cluster manager, too.
    pub cluster_manager: bool,
    /// Whether projects need a quota.
    pub quotas_required: bool,
    pub app_namespace: Text,
    /// Where others reach the API for addresses; `None`: nobody said.
    pub api_url: Option<String>,
}

/// A Deployment of an original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentSeen {
    pub namespace: String,
    pub name: String,
    /// Those that it is to have.
    pub replicas: i32,
    /// Whether it does what fipd is to do.
    pub rival: bool,
}

/// One of the originals' Leases, looked at twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSeen {
    pub name: String,
    /// Whether the program that holds it does what fipd is to do.
    pub rival: bool,
    pub state: LeaseState,
}

/// Where the in-cluster name of the original API server leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiService {
    Missing,
    /// It is there, and fipd is not told to keep it.
    Abandoned,
    /// fipd keeps it, and leads it there or says why it cannot.
    Kept(Result<Want, Wrong>),
}

/// Who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    Missing,
    /// Its holder has let it go.
    Free,
    /// This daemon.
    Ours {
        since: Option<Timestamp>,
    },
    Held {
        by: String,
        /// By the holder's clock.
        renewed: Option<String>,
        /// Whether it was renewed between the two looks.
        alive: bool,
    },
    Unknown(String),
}

/// The ValidatingWebhookConfiguration of the original's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub uid: String,
    pub version: String,
    /// Whether every webhook in it is at the Service of the original.
    pub original: bool,
    /// Whether a write fails that it does not answer to.
    pub fails: bool,
}

/// How long a holder is given to renew its Lease between two looks: it does so every two seconds.
pub const BETWEEN_LOOKS: Duration = Duration::from_secs(5);
/// So often it is looked at again where fipd takes no Leases itself: as long as a Lease lasts that is not renewed.
pub const LOOKS_ALONE: usize = 3;
