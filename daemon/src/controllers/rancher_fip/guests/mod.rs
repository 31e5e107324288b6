//! The cluster manager: keeps what the clusters that Rancher manages need to ask for addresses in step with Rancher.
//!
//! ```text
//!  Rancher: Cluster, provisioning Cluster, HarvesterConfig,      Harvester: project of the machines' namespace
//!           pools, quotas, projects, settings, CA                     |
//!              \__________________ plan _____________________________/
//!                                   |
//!        guest: namespace and its label, CA, Secret per project, interface mappings, charts
//! ```
//!
//! Each guest is a key of a queue of its own: one that does not answer delays no other. Everything is looked at
//! again after a while, whether or not a watch told of a change.

pub mod apply;
pub mod charts;
mod home;
mod leave;
mod observe;
pub mod plan;
mod quotas;
mod reach;
pub mod rotate;
pub mod settings;
pub mod status;
mod sweep;
mod validate;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use fipd_core::Text;
use fipd_crds::labels::{CA_SECRET, CONFIG_NAME};
use k8s_openapi::jiff;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use self::{
    charts::ChartError,
    observe::Seen,
    plan::{Facts, Plan, Project, Wait},
    reach::Clients,
    settings::Settings,
    status::{GuestViews, Phase, Says, reference},
};
use super::{Site, clusters::RancherCluster, rancher::Data};
use crate::{
    clock,
    config::ClusterManager,
    controllers::{
        Trouble,
        events::Events,
        objects::{Key, Seen as Object},
        queue::{self, Next, Queue},
        remote::CallError,
    },
    helm::Helm,
};

/// Guests that are worked on at once. One that does not answer takes a place for ten seconds a minute at most.
const AT_ONCE: usize = 64;
const QUOTAS_AT_ONCE: usize = 16;
/// After this time a guest is looked at again although nothing was seen to change.
const AGAIN: Duration = Duration::from_secs(300);

/// What others are told of fipd itself.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// The URL by which others reach it.
    pub url: Option<String>,
    /// The CA that its certificate is of; `None` where the certificate is somebody else's.
    pub ca_file: Option<PathBuf>,
}

/// The cluster manager on one connection to Rancher.
pub struct Guests {
    site: Arc<Site>,
    data: Arc<Data>,
    events: Arc<Events>,
    own: Own,
    views: GuestViews,
    seen: Seen,
    clients: Clients,
    queue: Arc<Queue<Key>>,
    quotas: Arc<Queue<Key>>,
    charts: Arc<Queue<Key>>,
    chart_errors: Mutex<BTreeMap<String, ChartError>>,
    chart_turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    helm: Option<Helm>,
}

/// Why a guest is not done.
enum Stop {
    Wait(Wait),
    Trouble(Trouble),
}

impl Stop {
    fn text(&self) -> String {
        match self {
            Self::Wait(wait) => wait.to_string(),
            Self::Trouble(trouble) => trouble.to_string(),
        }
    }
}

impl From<Wait> for Stop {
    fn from(wait: Wait) -> Self {
        Self::Wait(wait)
    }
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Trouble(error.into())
    }
}

impl Guests {
    pub fn new(
        site: Arc<Site>,
        data: Arc<Data>,
        events: Arc<Events>,
        own: Own,
        views: GuestViews,
        helm: Option<Helm>,
    ) -> Arc<Self> {
        let given = &site.session.settings.rancher_fip.cluster_manager;
        let clients = Clients::new(given.insecure_skip_tls_verify);
        Arc::new(Self {
            site,
            data,
            events,
            own,
            views,
            seen: Seen::new(),
            clients,
            queue: Queue::new(),
            quotas: Queue::new(),
            charts: Queue::new(),
            chart_errors: Mutex::default(),
            chart_turns: Mutex::default(),
            helm,
        })
    }

    /// Watches and works until the session ends.
    pub fn start(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        self.views.managers.connected(&self.site.name, self);
        observe::watch(self, tasks);
        tasks.spawn(Arc::clone(self).run());
    }

    async fn run(self: Arc<Self>) {
        let cancel = self.site.cancel();
        // A guest that is not wanted any more is known by the notes; a project by its quota. What is not listed yet would be
        // taken from the guests.
        tokio::select! {
            () = cancel.cancelled() => return,
            () = async {
                self.data.clusters.completed().await;
                self.seen.maps.completed().await;
                self.seen.quotas.completed().await;
                self.seen.ca.completed().await;
                self.data.pools.completed().await;
                self.data.projects.completed().await;
            } => {}
        }
        self.everything_changed();
        let (all, quotas, charts) = (Arc::clone(&self), Arc::clone(&self), Arc::clone(&self));
        let guests = queue::run(
            Arc::clone(&self.queue),
            AT_ONCE,
            cancel.clone(),
            move |key| Arc::clone(&all).reconcile(key),
        );
        let quotas = queue::run(
            Arc::clone(&self.quotas),
            QUOTAS_AT_ONCE,
            cancel.clone(),
            move |key| Arc::clone(&quotas).reconcile_quota(key),
        );
        let charts = queue::run(Arc::clone(&self.charts), AT_ONCE, cancel, move |key| {
            Arc::clone(&charts).reconcile_charts(key)
        });
        let sweeps = Arc::clone(&self).keep_swept();
        tokio::join!(guests, quotas, charts, sweeps);
    }

    // --- what changed ---

    pub fn cluster_changed(&self, key: &Key) {
        self.queue.add(key.clone());
        // A Harvester cluster is known to its guests by its display name.
        if self
            .data
            .clusters
            .get(key)
            .is_none_or(|cluster| cluster.harvester)
        {
            self.everything_changed();
        }
    }

    /// Something that several guests may depend on.
    pub fn everything_changed(&self) {
        for (key, cluster) in self.data.clusters.all() {
            if cluster.is_guest() {
                self.queue.add(key);
            }
        }
        self.notes_changed();
    }

    /// Those that are noted and are no guests are to be left.
    fn notes_changed(&self) {
        for id in self.noted_ids() {
            let key = Key::new("", &id);
            let cluster = self.data.clusters.get(&key);
            if cluster.is_none_or(|cluster| !cluster.is_guest()) {
                self.queue.add(key);
            }
        }
    }

    /// A project came or went.
    pub fn project_changed(&self, key: &Key) {
        self.quotas.add(Key::new("", &key.name));
        self.everything_changed();
    }

    fn provisioned_changed(&self, key: &Key) {
        let id = self
            .seen
            .provisioned
            .get(key)
            .and_then(|one| one.id.clone());
        let names = [Text::clone(&key.name)];
        for id in id.into_iter().chain(self.data.names.called(&names)) {
            self.queue.add(Key::new("", &id));
        }
    }

    fn quota_changed(&self, key: &Key) {
        self.quotas.add(key.clone());
        // Guests on Harvester may use any project.
        self.everything_changed();
    }

    fn map_changed(&self, key: &Key) {
        if &*key.name == CONFIG_NAME {
            self.everything_changed();
        }
        if &*key.name == leave::NOTES {
            self.notes_changed();
        }
    }

    /// The Secret `NAME-kubeconfig` changed.
    fn kubeconfig_changed(&self, name: &str) {
        if let Some(id) = self.data.names.called(&[name.into()]) {
            self.cluster_changed(&Key::new("", &id));
        }
    }

    // --- what to do ---

    async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        let id = &*key.name;
        match self.data.clusters.seen(&key) {
            // It may mean anything: everything stays as it is.
            Some(Object::Malformed(_)) => Next::Done,
            None => self.gone(id).await,
            Some(Object::Good(cluster)) if cluster.is_guest() => self.serve(id, &cluster).await,
            Some(Object::Good(cluster)) => self.leave(id, &cluster).await,
        }
    }

    async fn serve(&self, id: &str, cluster: &RancherCluster) -> Next {
        let (says, plan, next) = match self.try_serve(id, cluster).await {
            Ok(plan) => {
                let says = status::says(plan.wait.as_ref(), self.chart_error(id));
                let pause = plan.wait.as_ref().map_or(AGAIN, Wait::pause);
                (says, Some(plan), Next::After(pause))
            }
            Err(Stop::Wait(wait)) => (status::waiting(&wait), None, Next::After(wait.pause())),
            Err(Stop::Trouble(trouble)) => {
                let next = trouble.next("Cluster", &Key::new("", id));
                let says = Says::new(Phase::Failed, "WriteFailed", trouble.to_string());
                (says, None, next)
            }
        };
        self.say(id, cluster, plan.as_ref(), says);
        next
    }

    /// Brings the guest in step with what is known of it.
    async fn try_serve(&self, id: &str, cluster: &RancherCluster) -> Result<Plan, Stop> {
        let settings = self.settings();
        let remote = self
            .clients
            .of(&self.data, id, &cluster.display_name)
            .await?;
        let home = match self.home(id, cluster).await {
            Ok(home) => Ok(home),
            Err(Stop::Wait(wait)) => Err(wait),
            Err(stop) => return Err(stop),
        };
        let ca = self.ca(&settings).await;
        let plan = plan::plan(&Facts {
            id,
            cluster,
            home: &home,
            pools: &self.data.pools.all(),
            projects: &self.projects(),
            has_quota: &|project| self.seen.has_quota(project),
            settings: &settings,
            ca: &ca,
        });
        let mut secrets = Vec::new();
        for access in &plan.desired.access {
            secrets.push(apply::local(&self.data.remote, &access.project).await?);
        }
        self.note(id, &remote, &plan.desired.namespace).await?;
        let now = jiff::Timestamp::now().round(jiff::Unit::Second);
        let now = now.map_or_else(|_| String::new(), |now| now.to_string());
        apply::guest(&remote, &plan.desired, &secrets, &now).await?;
        self.charts.add(Key::new("", id));
        Ok(plan)
    }

    fn given(&self) -> &ClusterManager {
        &self.site.session.settings.rancher_fip.cluster_manager
    }

    fn app_namespace(&self) -> &str {
        &self.site.session.settings.rancher_fip.app_namespace
    }

    fn settings(&self) -> Settings {
        let map = self
            .seen
            .maps
            .get(&Key::new(self.app_namespace(), CONFIG_NAME));
        Settings::new(map.as_deref(), self.given(), self.own.url.as_deref())
    }

    async fn ca(&self, settings: &Settings) -> String {
        let site = self.seen.ca.get(&Key::new(self.app_namespace(), CA_SECRET));
        let own = match &self.own.ca_file {
            Some(file) => tokio::fs::read_to_string(file).await.unwrap_or_default(),
            None => String::new(),
        };
        let serves = self.own.url.as_deref().is_some_and(|url| {
            let asked = settings.api_url.as_deref();
            asked.is_some_and(|asked| asked.starts_with(url.trim_end_matches('/')))
        });
        chain(site.as_ref().map_or("", |site| site.as_str()), &own, serves)
    }

    fn projects(&self) -> Vec<Project> {
        let keys = self.data.projects.keys().into_iter();
        let project = |key: Key| Project {
            id: key.name.to_string(),
            namespace: key.namespace.to_string(),
        };
        keys.map(project).collect()
    }

    fn say(&self, id: &str, cluster: &RancherCluster, plan: Option<&Plan>, says: Says) {
        let (phase, reason, message) = (says.phase, says.reason, says.message.clone());
        let now = clock::now();
        if !self
            .views
            .say(&self.site.name, id, cluster, plan, says, now)
        {
            return;
        }
        tracing::info!(
            cluster = id,
            name = cluster.display_name,
            phase = phase.as_str(),
            reason,
            message,
            "guest"
        );
        let object = reference(id, cluster);
        match phase {
            Phase::Ready => self.events.normal(&object, "FloatingIPsReady", message),
            Phase::Leaving => self.events.normal(&object, reason, message),
            Phase::Waiting | Phase::Failed => self.events.warning(&object, reason, message),
        }
    }
}

/// The certificates that a guest trusts: those of the site, and fipd's own. A guest that is given any trusts no
/// others, so without those of the site fipd's is given only where it `serves` the guest.
fn chain(site: &str, own: &str, serves: bool) -> String {
    let (site, own) = (site.trim(), own.trim());
    if own.is_empty() || site.contains(own) || (site.is_empty() && !serves) {
        return if site.is_empty() {
            String::new()
        } else {
            format!("{site}\n")
        };
    }
    let parts = [site, own].into_iter().filter(|part| !part.is_empty());
    parts.map(|part| format!("{part}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_trusts_the_site_and_fipd_and_nobody_new_where_it_is_served_by_another() {
        assert_eq!(chain("A\n", "B\n", false), "A\nB\n");
        assert_eq!(chain("A\nB", "B\n", true), "A\nB\n");
        assert_eq!(chain("", "B", true), "B\n");
        assert_eq!(chain("", "B", false), "");
        assert_eq!(chain("A", "", true), "A\n");
        assert_eq!(chain("", "", true), "");
    }
}
