//! What a system is to the rest of fipd. Nothing outside its folder names one but through this.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::{Actor, Identity, Text, sighting::HeldFor};
use futures::future::BoxFuture;
use http::Extensions;
use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::controller::endpoint::OwnEndpoint;
use crate::{
    admission::{Asks, Judge},
    adopt::Takeover,
    clusters::ClusterSession,
    config::{ClusterSettings, SystemConfig, operation::SystemOperation},
    detach::Leaving,
    fip_v1::FloatingIps,
    guests::GuestBoard,
    helm::Helm,
    host::probe::Prober,
    ipam::Ipam,
    nodes::NodeBoard,
    rules::RuleBoard,
};

/// A set of kinds that fipd serves in clusters, in the place of an original program or as its own.
pub trait System: Sync {
    /// Its name, its tables in the configuration, and whose pools it draws from.
    fn config(&self) -> &'static SystemConfig;

    /// What API servers ask before they store its objects; [`RunningSystem::judge`] answers.
    fn asks(&self) -> Option<&'static Asks> {
        None
    }

    /// Judges questions of [`Self::asks`] in a made-up cluster.
    #[cfg(any(test, feature = "fuzz"))]
    fn fuzz(&self) -> Option<crate::admission::FuzzJudge> {
        None
    }

    /// What there is to take over from its original, for the help; [`RunningSystem::takeover`] does it.
    fn adopts(&self) -> Option<&'static str> {
        None
    }

    /// What it leaves in a cluster, and how that goes.
    fn leaving(&self) -> &'static dyn Leaving;

    /// The system in a daemon; once per process.
    fn start(&self, means: &Means) -> Arc<dyn RunningSystem>;
}

/// A system in a daemon.
pub trait RunningSystem: Send + Sync {
    /// Serves a cluster until the session ends.
    fn run(&self, session: ClusterSession) -> BoxFuture<'static, ()>;

    /// These are all clusters that are to have the system, whether reached or not.
    fn set_clusters(&self, _clusters: &BTreeMap<&Text, &ClusterSettings>) {}

    /// Whether a Service of the cluster is its own, or carries its marks. What others show is a sighting.
    fn serves(&self, _session: &ClusterSession, _service: &Service) -> bool {
        false
    }

    /// For whom owners of its leases hold their addresses, as it is known now; by default for the cluster that they live in.
    fn held_for(&self, _session: &ClusterSession) -> OwnerRule {
        Box::new(|_| None)
    }

    /// Decides what the stock LB controllers ask.
    fn floating_ips(&self) -> Option<Box<dyn FloatingIps>> {
        None
    }

    /// Judges the objects of [`System::asks`].
    fn judge(&self) -> Option<Arc<dyn Judge>> {
        None
    }

    /// The answer to a hook of another program at this path, called for a cluster by its configured name; `None`: it has no such.
    fn hook(&self, _cluster: &str, _path: &str, _body: &[u8]) -> Option<Value> {
        None
    }

    /// Takes over what [`System::adopts`] says.
    fn takeover(&self) -> Option<Arc<dyn Takeover>> {
        None
    }

    /// The rows of a list that it serves, by what orders them.
    fn rows(&self, _list: &'static SystemOperation) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// Does what is asked of it, and says so in a sentence.
    fn change<'a>(
        &'a self,
        asked: OperationCall<'a>,
    ) -> BoxFuture<'a, Result<String, OperationError>> {
        let unserved = format!("{}: no system does it", asked.operation.name);
        Box::pin(std::future::ready(Err(OperationError::Failed(unserved))))
    }

    /// Adds the series of the original.
    fn register_metrics(&self, _registry: &mut Registry) {}

    /// Adds series of fipd's own about it, below the prefix `fipd`.
    fn register_own_metrics(&self, _registry: &mut Registry) {}
}

/// For whom an owner holds its addresses, seen from a cluster; `None`: for the cluster that the owner lives in.
pub type OwnerRule = Box<dyn Fn(&Identity) -> Option<HeldFor> + Send + Sync>;

/// Who asks for a change, and of what.
pub struct OperationCall<'a> {
    pub operation: &'static SystemOperation,
    /// The value of the variable in its path.
    pub value: &'a str,
    pub actor: Actor,
}

/// Why a change was not done.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// What is named is not there.
    #[error("{0}")]
    NotFound(String),
    /// Something is in the way.
    #[error("{0}")]
    Conflict(String),
    /// Asking again may help.
    #[error("{0}")]
    Failed(String),
}

/// The systems of a daemon that can be asked for something, by name.
#[derive(Clone, Default)]
pub struct RunningSystems(pub Arc<BTreeMap<&'static str, Arc<dyn RunningSystem>>>);

impl RunningSystems {
    /// The one of that name.
    pub fn of(&self, system: &str) -> Option<&Arc<dyn RunningSystem>> {
        self.0.get(system)
    }

    /// Whether a Service of the cluster is of one of them.
    pub fn serve(&self, session: &ClusterSession, service: &Service) -> bool {
        let mut systems = self.0.values();
        systems.any(|one| one.serves(session, service))
    }

    /// The answer to a hook of another program.
    pub fn hook(&self, cluster: &str, path: &str, body: &[u8]) -> Option<Value> {
        let mut systems = self.0.values();
        systems.find_map(|one| one.hook(cluster, path, body))
    }

    /// For whom owners hold their addresses, by the system of each.
    pub fn held_for(
        &self,
        session: &ClusterSession,
    ) -> impl Fn(&Identity) -> HeldFor + Send + Sync + use<> {
        let systems = self.0.iter();
        let rules = systems.map(|(name, one)| (*name, one.held_for(session)));
        let rules: BTreeMap<_, _> = rules.collect();
        let here = session.id.clone();
        move |owner| {
            let rule = rules.get(owner.system.as_str());
            let by_rule = rule.and_then(|rule| rule(owner));
            by_rule.unwrap_or(match owner.cluster.as_ref() == Some(&here) {
                true => HeldFor::This,
                false => HeldFor::Another,
            })
        }
    }
}

/// What systems work with.
#[derive(Clone)]
pub struct Means {
    /// What this daemon calls itself in Leases.
    pub me: Text,
    pub endpoint: OwnEndpoint,
    pub ipam: Ipam,
    /// The ports of `[[listener]]`s, by the system whose series they serve.
    pub metrics_ports: BTreeMap<&'static str, BTreeSet<u16>>,
    /// What the pages show of guest clusters.
    pub guests: GuestBoard,
    /// `None`: no charts are installed.
    pub helm: Option<Helm>,
    /// What the pages show of Nodes.
    pub nodes: NodeBoard,
    pub rules: RuleBoard,
    /// `None`: no cluster wants rules of this host.
    pub host: Option<HostMeans>,
    /// Checks addresses on the wire.
    pub prober: Prober,
    /// Other daemons decide; this one only has a host.
    pub only_host: bool,
    pub shared: Shared,
}

/// What this host is to clusters.
#[derive(Clone)]
pub struct HostMeans {
    /// Its Node in one of them.
    pub node: Text,
    /// Namespace and name of the Agent whose pod this is.
    pub agent: Option<(Text, Text)>,
    /// The rules of this host go once it is cancelled; `None`: they stay.
    pub leaving: Option<CancellationToken>,
}

/// What systems know of each other: one value of each type, made by whoever asks first.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Extensions>>);

impl Shared {
    pub fn get<T: Send + Sync + Clone + Default + 'static>(&self) -> T {
        self.0.lock().get_or_insert_default::<T>().clone()
    }
}

#[cfg(any(test, feature = "fuzz"))]
pub mod testing {
    use super::*;

    /// Means of a daemon without a host, helm or a URL.
    pub fn means(ipam: &Ipam) -> Means {
        Means {
            me: "test".into(),
            endpoint: OwnEndpoint::default(),
            ipam: ipam.clone(),
            metrics_ports: BTreeMap::new(),
            guests: GuestBoard::default(),
            helm: None,
            nodes: NodeBoard::default(),
            rules: RuleBoard::default(),
            host: None,
            prober: Prober::beside("/nonexistent/fipd.sock".as_ref()),
            only_host: false,
            shared: Shared::default(),
        }
    }
}
