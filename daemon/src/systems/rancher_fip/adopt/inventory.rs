//! What was seen of a site, as values.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use fipd_core::{KeyBytes, Text};
use fipd_crds::floating_ip::{FloatingIPPool, FloatingIPProjectQuota};

use super::{
    api_service::{ApiService, GuestUrl},
    key::WrongKey,
};
use crate::{
    adopt::{Looked, OriginalWorkload, leases::LeaseHolder},
    config::DEFAULT_NETWORK,
    controller::store::Key,
    systems::rancher_fip::{
        clusters::RancherCluster, floating_ip::observe::Fip, settings::RancherFipSettings,
    },
};

const QUOTA: &str = "FloatingIPProjectQuota";

/// All of it.
#[derive(Default)]
pub struct SiteInventory {
    /// By name.
    pub pools: BTreeMap<String, FloatingIPPool>,
    /// By project.
    pub quotas: BTreeMap<String, FloatingIPProjectQuota>,
    pub fips: BTreeMap<Key, Fip>,
    /// By Rancher's id.
    pub clusters: BTreeMap<String, RancherCluster>,
    /// Each in the namespace of the cluster that owns it.
    pub projects: BTreeSet<Key>,
    /// Objects that do not fit their schema: kind and name, and why.
    pub malformed: BTreeMap<(String, Key), String>,
    pub book: LedgerView,
    /// Project Secrets in Rancher.
    pub secrets: Option<Looked<BTreeSet<Key>>>,
    pub leases: Vec<LeaseSeen>,
    pub webhook: Option<Looked<Webhook>>,
    /// The originals' Deployments; `None`: nobody looked.
    pub deployments: Option<Looked<Vec<OriginalWorkload>>>,
    /// The key of the original's tokens.
    pub key: Option<Looked<Result<KeyBytes, WrongKey>>>,
    /// Those that fipd has.
    pub known_keys: Vec<KeyBytes>,
    /// Whether fipd leads for longer than a token of the original counts.
    pub tokens_over: bool,
    pub service: Option<Looked<ApiService>>,
    /// EndpointSlices of that Service, and Endpoints, that others keep: what leads away from fipd.
    pub strangers: Option<Looked<Vec<String>>>,
    /// Why it is not known which Ingresses lead to that Service.
    pub unseen_ingresses: Option<String>,
    /// Where the settings of the cluster manager send guests.
    pub guest_url: Option<Looked<GuestUrl>>,
    /// Other things that the originals left and that do no harm.
    pub remains: Vec<Looked<String>>,
    pub duties: Duties,
}

/// What the address book has of the site, or is to have.
#[derive(Default)]
pub struct LedgerView {
    /// By name of the object.
    pub pools: BTreeMap<String, Placed>,
    /// FloatingIPs whose address it has; the others are yet to be taken in.
    pub taken: BTreeSet<Key>,
    /// FloatingIPs whose address it gives to somebody else: to whom.
    pub held_by_others: BTreeMap<Key, String>,
}

/// Where the pool controller has a pool, or is to have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The routing domain.
    pub network: Text,
    /// Why the network that the object names does not count.
    pub ignored_annotation: Option<String>,
    /// The network that it is to be in, where its leases keep it.
    pub refused_move: Option<Text>,
    /// Whether there is a mirror of it.
    pub mirrored: bool,
    /// Why some of its addresses are not given.
    pub doubt: Option<String>,
    /// Pools of others that may give its addresses.
    pub overlap: Option<String>,
    /// The addresses that somebody has.
    pub held: BTreeSet<IpAddr>,
    /// By project.
    pub charged: BTreeMap<String, ProjectCharge>,
}

/// What a project has of a pool, and what it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectCharge {
    pub used: u64,
    pub limit: Option<u64>,
}

impl LedgerView {
    /// The network of the pool; of one that there is not, that of its FloatingIPs.
    pub fn network(&self, pool: &str) -> &str {
        let placed = self.pools.get(pool);
        let named = placed
            .map(|placed| &*placed.network)
            .filter(|name| !name.is_empty());
        named.unwrap_or(DEFAULT_NETWORK)
    }

    pub fn is_mirrored(&self, pool: &str) -> bool {
        self.pools.get(pool).is_some_and(|placed| placed.mirrored)
    }

    /// Whether it limits the project in the pool.
    pub fn limits(&self, project: &str, pool: &str) -> bool {
        let charge = self.pools.get(pool);
        let charge = charge.and_then(|placed| placed.charged.get(project));
        charge.is_some_and(|charge| charge.limit.is_some())
    }
}

impl SiteInventory {
    /// Also one that does not fit its schema.
    pub fn has_quota(&self, project: &str) -> bool {
        self.quotas.contains_key(project) || self.is_malformed(QUOTA, project)
    }

    pub fn has_quotas(&self) -> bool {
        let mut malformed = self.malformed.keys();
        !self.quotas.is_empty() || malformed.any(|(kind, _)| kind == QUOTA)
    }

    /// Also one that does not fit its schema.
    pub fn has_pool(&self, name: &str) -> bool {
        self.pools.contains_key(name) || self.is_malformed("FloatingIPPool", name)
    }

    fn is_malformed(&self, kind: &str, name: &str) -> bool {
        let what = (kind.to_owned(), Key::new("", name));
        self.malformed.contains_key(&what)
    }
}

/// What this daemon is to do in the cluster.
#[derive(Clone, Debug, Default)]
pub struct Duties {
    /// What the configuration says of the cluster.
    pub settings: RancherFipSettings,
    /// Where others reach the API for addresses; `None`: nobody said.
    pub api_url: Option<String>,
    /// Where the API listens, if nobody but this host reaches it there.
    pub closed: Option<SocketAddr>,
}

/// One of the originals' Leases, looked at twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSeen {
    pub name: String,
    /// Whether the program that holds it does what fipd is to do.
    pub rival: bool,
    pub holder: LeaseHolder,
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
