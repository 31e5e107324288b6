//! What a guest is to have, from everything that is known of it, or why that is not known yet.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_crds::{
    floating_ip::{FloatingIPPool, pool_name},
    labels::{APP_NAMESPACE, CONFIG_NAME, DEFAULT_NETWORK, LOAD_BALANCER_TYPE, METALLB, PURELB},
};

use super::settings::Settings;
use crate::{
    controller::store::Key,
    guests::{GuestUnready, charts::ChartRelease, hosting::RunsOn},
    systems::rancher_fip::{
        clusters::{LoadBalancer, RancherCluster},
        rancher::is_default,
    },
};

/// Why a guest does not have everything yet. All of them are looked at again, whether or not somebody is seen to
/// change something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestWait {
    #[error(transparent)]
    Guest(#[from] GuestUnready),
    #[error("Rancher has no project {0}")]
    UnknownProject(String),
    #[error("project {0} has no FloatingIPProjectQuota")]
    NoQuota(String),
    #[error("no project of the cluster has a FloatingIPProjectQuota")]
    NoQuotas,
    #[error(
        "no FloatingIPPool with the annotation {DEFAULT_NETWORK}: \"true\" names the cluster as targetCluster"
    )]
    NoDefaultPool,
    #[error("Rancher has no namespace {0}, where fipd notes which clusters it wrote to: make it")]
    NoAppNamespace(String),
    #[error(
        "nobody said where guests find the API for addresses: set [api] advertise, or RancherFipApiServerURL in ConfigMap {APP_NAMESPACE}/{CONFIG_NAME}"
    )]
    NoApiUrl,
    #[error(
        "ConfigMap {0}/{CONFIG_NAME} is gone; what it said holds, and nothing moves: make it again, without keys where none of them is to hold, or write its keys into [cluster.rancher-fip.cluster-manager]"
    )]
    NoSettings(String),
    #[error("its label changed meanwhile")]
    LabelChanged,
    #[error(
        "label {LOAD_BALANCER_TYPE}: {said:?} is not known, and fipd installed {installed} there, which stays; allowed are {PURELB:?} and {METALLB:?}"
    )]
    LbTypeInvalid {
        said: String,
        installed: LoadBalancer,
    },
    #[error(
        "the label {LOAD_BALANCER_TYPE} is gone, and fipd installed {installed} there; it is replaced by {} if the label still is gone in a minute. {:?} keeps it, {:?} replaces it at once",
        installed.other(), installed.as_str(), installed.other().as_str()
    )]
    LbTypeGone { installed: LoadBalancer },
}

impl GuestWait {
    pub fn reason(&self) -> &'static str {
        self.facts().0
    }

    /// When it is looked at again at the latest. What is seen to change wakes it earlier, where there is a watch.
    pub fn pause(&self) -> Duration {
        self.facts().1
    }

    fn facts(&self) -> (&'static str, Duration) {
        let (reason, seconds) = match self {
            Self::Guest(unready) => return (unready.reason(), unready.pause()),
            Self::UnknownProject(_) => ("UnknownProject", 120),
            Self::NoQuota(_) | Self::NoQuotas => ("NoQuota", 120),
            Self::NoDefaultPool => ("NoDefaultPool", 120),
            // No watch tells of this.
            Self::NoAppNamespace(_) => ("NoAppNamespace", 60),
            Self::NoApiUrl => ("NoApiUrl", 120),
            Self::NoSettings(_) => ("SettingsGone", 120),
            Self::LabelChanged => ("LabelChanged", 30),
            Self::LbTypeInvalid { .. } => ("LbTypeInvalid", 120),
            Self::LbTypeGone { .. } => ("LbTypeGone", 30),
        };
        (reason, Duration::from_secs(seconds))
    }
}

/// A project of Rancher with the namespace it is in, which is the id of the cluster that owns it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Project {
    pub id: String,
    pub namespace: String,
}

/// What is known of a guest.
pub struct GuestFacts<'a> {
    pub id: &'a str,
    pub cluster: &'a RancherCluster,
    pub home: &'a Result<RunsOn, GuestWait>,
    pub pools: &'a [(Key, Arc<FloatingIPPool>)],
    pub projects: &'a [Project],
    /// Whether the project has a quota that is there to stay.
    pub has_quota: &'a dyn Fn(&str) -> bool,
    pub settings: &'a Settings,
    /// PEM.
    pub ca: &'a str,
}

/// What a guest is to have, and why that is not all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPlan {
    pub desired: GuestContents,
    pub wait: Option<GuestWait>,
}

/// What a guest is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestContents {
    pub namespace: String,
    /// PEM; `None`: no Secret for it.
    pub ca: Option<String>,
    /// Real pool names to the interface of the nodes; `None`: not known yet.
    pub mappings: Option<BTreeMap<String, String>>,
    /// The project that the namespace is marked with.
    pub label: Option<String>,
    pub access: Vec<ProjectAccess>,
    pub releases: Vec<ChartRelease>,
}

/// The right of a guest to ask for addresses of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectAccess {
    pub project: Project,
    pub api_url: String,
    /// Rancher's id of the guest.
    pub cluster: String,
    /// The pool of Services that name none.
    pub pool: String,
    pub load_balancer: LoadBalancer,
}

/// What the guest is to have.
pub fn plan(facts: &GuestFacts<'_>) -> GuestPlan {
    let GuestFacts { settings, .. } = facts;
    let mut desired = GuestContents {
        namespace: settings.namespace.clone(),
        ca: (!facts.ca.is_empty()).then(|| facts.ca.to_owned()),
        mappings: None,
        label: None,
        access: vec![],
        releases: settings.releases(facts.cluster.load_balancer),
    };
    let wait = match facts.home {
        Err(wait) => Err(wait.clone()),
        Ok(RunsOn::BareMetal) => facts.on_bare_metal(&mut desired),
        Ok(RunsOn::Harvester {
            id,
            display_name,
            networks,
            project,
        }) => facts.on_harvester(&mut desired, (id, display_name), networks, project),
    };
    GuestPlan {
        desired,
        wait: wait.err(),
    }
}

impl GuestFacts<'_> {
    fn on_bare_metal(&self, desired: &mut GuestContents) -> Result<(), GuestWait> {
        let names = (self.id, &*self.cluster.display_name);
        desired.mappings = Some(mappings(self.pools, names));
        let owned = self.projects.iter();
        let projects: Vec<&Project> = owned
            .filter(|project| project.namespace == self.id && (self.has_quota)(&project.id))
            .collect();
        let mut ours = self.pools.iter().filter(|(_, pool)| targets(pool, names));
        let Some((pool, _)) = ours.find(|(_, pool)| is_default(pool)) else {
            return Err(GuestWait::NoDefaultPool);
        };
        if projects.is_empty() {
            return Err(GuestWait::NoQuotas);
        }
        for project in projects {
            let access = self.access(project, pool.name.to_string())?;
            desired.access.push(access);
        }
        Ok(())
    }

    fn on_harvester(
        &self,
        desired: &mut GuestContents,
        harvester: (&str, &str),
        networks: &[String],
        project: &Result<String, GuestUnready>,
    ) -> Result<(), GuestWait> {
        desired.mappings = Some(mappings(self.pools, harvester));
        let id = project.clone()?;
        let mut known = self.projects.iter().filter(|project| project.id == id);
        let Some(project) = known.next() else {
            return Err(GuestWait::UnknownProject(id));
        };
        desired.label = Some(id.clone());
        if !(self.has_quota)(&id) {
            return Err(GuestWait::NoQuota(id));
        }
        let pool = pool_of(self.pools, harvester, networks);
        desired.access.push(self.access(project, pool)?);
        Ok(())
    }

    fn access(&self, project: &Project, pool: String) -> Result<ProjectAccess, GuestWait> {
        let api_url = self.settings.api_url.clone().ok_or(GuestWait::NoApiUrl)?;
        Ok(ProjectAccess {
            project: project.clone(),
            api_url,
            cluster: self.id.to_owned(),
            pool,
            load_balancer: self.cluster.load_balancer,
        })
    }
}

/// Whether the pool is for the cluster of this id and display name.
fn targets(pool: &FloatingIPPool, (id, display_name): (&str, &str)) -> bool {
    let target = &*pool.spec.target_cluster;
    !target.is_empty() && (target == id || target == display_name)
}

fn mappings(pools: &[(Key, Arc<FloatingIPPool>)], names: (&str, &str)) -> BTreeMap<String, String> {
    let ours = pools.iter().filter(|(_, pool)| targets(pool, names));
    let entry = |(key, pool): &(Key, Arc<FloatingIPPool>)| {
        let interface = pool.spec.target_network_interface.clone();
        (key.name.to_string(), interface)
    };
    ours.map(entry).collect()
}

/// The pool of the first of the networks that has one, by its real name; without any the name that such a pool
/// would have by convention.
fn pool_of(
    pools: &[(Key, Arc<FloatingIPPool>)],
    (id, display_name): (&str, &str),
    networks: &[String],
) -> String {
    let of = |network: &String| {
        let conventional = pool_name(display_name, network);
        let fits = pools.iter().filter(|(_, pool)| {
            targets(pool, (id, display_name)) && pool.spec.target_network == *network
        });
        let names: Vec<String> = fits.map(|(key, _)| key.name.to_string()).collect();
        let usual = names.iter().find(|name| **name == conventional);
        usual.or(names.first()).cloned()
    };
    let first = networks.first().map_or("", String::as_str);
    let found = networks.iter().find_map(of);
    found.unwrap_or_else(|| pool_name(display_name, first))
}

#[cfg(test)]
mod tests;
