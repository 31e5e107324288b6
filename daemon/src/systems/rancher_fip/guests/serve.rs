//! One guest: what it is to have is found out, written, and told.

use std::{collections::BTreeMap, sync::Arc};

use fipd_crds::labels::{DISABLED, ENABLED, RANCHER_FIP};
use k8s_openapi::jiff;

use super::{
    AGAIN, Guests, SYSTEM, Stop, apply, charts,
    plan::{self, GuestFacts, GuestPlan, GuestWait},
};
use crate::{
    controller::{
        queue::Next,
        store::{Key, Observed as Object},
    },
    guests::{
        DetailValue, GuestDetail, GuestPhase, GuestStatus, GuestUpdate, ReleaseView,
        charts::{ChartProgress, InstalledReleases},
    },
    systems::rancher_fip::{
        clusters::{GuestMode, RancherCluster},
        kinds::CLUSTER,
    },
};

impl Guests {
    pub(super) async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        let id = &*key.name;
        match self.data.clusters.seen(&key) {
            // It may mean anything: everything stays as it is.
            Some(Object::Malformed(_)) => Next::Done,
            None => self.gone(id).await,
            Some(Object::Parsed(cluster)) => match cluster.mode() {
                GuestMode::Guest => self.serve(id, &cluster).await,
                GuestMode::Off => self.leave(id, &cluster, true).await,
                GuestMode::Silent => self.leave(id, &cluster, false).await,
                GuestMode::Unclear(value) => self.freeze(id, &cluster, value),
            },
        }
    }

    /// Nothing is changed there until somebody says what is meant.
    fn freeze(&self, id: &str, cluster: &RancherCluster, value: &str) -> Next {
        self.unlabelled.forget(&id.to_owned());
        let text = format!(
            "label {RANCHER_FIP}: {value:?} is not known; allowed are {ENABLED:?}, and {DISABLED:?} or no label; nothing is changed there until it is one of these"
        );
        let says = GuestStatus::new(GuestPhase::Waiting, "LabelInvalid", text);
        self.say(id, cluster, None, says);
        Next::Done
    }

    async fn serve(&self, id: &str, cluster: &RancherCluster) -> Next {
        self.unlabelled.forget(&id.to_owned());
        let (says, plan, next) = match self.try_serve(id, cluster).await {
            Ok(plan) => {
                let charts = self.charts.progress(id, &plan.desired.releases);
                let says = GuestStatus::of(plan.wait.as_ref().map(waiting), charts);
                let pause = plan.wait.as_ref().map_or(AGAIN, GuestWait::pause);
                (says, Some(plan), Next::After(pause))
            }
            Err(Stop::Wait(wait)) => (waiting(&wait), None, Next::After(wait.pause())),
            Err(Stop::Reconcile(trouble)) => {
                let next = trouble.next("Cluster", &Key::new("", id));
                let says = GuestStatus::new(GuestPhase::Failed, "WriteFailed", trouble.to_string());
                (says, None, next)
            }
        };
        self.say(id, cluster, plan.as_ref(), says);
        next
    }

    /// Brings the guest in step with what is known of it.
    async fn try_serve(&self, id: &str, cluster: &RancherCluster) -> Result<GuestPlan, Stop> {
        self.keep_said().await?;
        let settings = self.settings_of(id);
        let gone = || GuestWait::NoSettings(self.app_namespace().to_owned());
        if settings.unknown {
            return Err(gone().into());
        }
        let remote = self.access.client(id, &cluster.display_name).await?;
        let marks = match charts::may_replace(cluster, &settings) {
            true => InstalledReleases::read(&remote, SYSTEM).await?.marks,
            false => Vec::new(),
        };
        let (cluster, held) = &self.typed(id, cluster, &settings, &marks).await?;
        let home = Stop::wait_or_fail(self.home(id, cluster).await)?;
        let ca = self.ca(&settings).await?;
        let mut plan = plan::plan(&GuestFacts {
            id,
            cluster,
            home: &home,
            pools: &self.data.pools.all(),
            projects: &self.projects(),
            has_quota: &|project| self.seen.has_quota(project),
            settings: &settings,
            ca: &ca,
        });
        if settings.held && plan.wait.is_none() {
            plan.wait = Some(gone());
        }
        if let Some(held) = held {
            plan.wait = Some(held.clone());
        }
        let mut secrets = Vec::new();
        for access in &plan.desired.access {
            self.still_has_quota(&access.project.id)?;
            secrets.push(apply::local(&self.data.remote, &access.project).await?);
        }
        self.note(id, &remote, &plan.desired).await?;
        // Reading all that may have taken a while, and what is removed meanwhile must not come back.
        for access in &plan.desired.access {
            self.still_has_quota(&access.project.id)?;
        }
        let now = jiff::Timestamp::now().round(jiff::Unit::Second);
        let now = now.map_or_else(|_| String::new(), |now| now.to_string());
        apply::guest(&remote, &plan.desired, &secrets, &now).await?;
        for before in self.noted(id).iter().flat_map(|note| &note.before) {
            apply::contents(&remote, before, &plan.desired, &secrets, false).await?;
        }
        self.note_home(id, &home, &plan);
        self.note_prepared(id, &plan);
        self.chart_queue.add(Key::new("", id));
        let charts = self.charts.progress(id, &plan.desired.releases);
        if plan.wait.is_none() && charts == ChartProgress::Done {
            self.arrive(id, &remote, &settings).await?;
        }
        Ok(plan)
    }

    fn still_has_quota(&self, project: &str) -> Result<(), GuestWait> {
        match self.seen.has_quota(project) {
            true => Ok(()),
            false => Err(GuestWait::NoQuota(project.to_owned())),
        }
    }

    /// Releases may be removed for others in the guest's namespace, once all that these need is there. Where it moves from
    /// none, what it waits for is the same before and after.
    fn note_prepared(&self, id: &str, plan: &GuestPlan) {
        let moves = self.noted(id).is_some_and(|note| !note.before.is_empty());
        let ready = plan.wait.is_none() || !moves;
        self.charts
            .prepare(id, ready.then_some(&*plan.desired.namespace));
    }

    /// What is shown beside how it is doing. Without a plan nobody knows its projects; they stay as they were.
    fn details(
        &self,
        id: &str,
        cluster: &RancherCluster,
        plan: Option<&GuestPlan>,
    ) -> Vec<GuestDetail> {
        let before = || {
            let view = self.views.get(&self.site.name, id, SYSTEM)?;
            let mut details = view.details.into_iter();
            let projects = details.find(|detail| detail.field == PROJECTS)?;
            Some(projects.value)
        };
        let projects = plan.map(projects_of).or_else(before);
        vec![
            GuestDetail {
                field: "load_balancer",
                label: "Load balancer",
                value: DetailValue::Text(cluster.load_balancer.as_str().to_owned()),
            },
            GuestDetail {
                field: PROJECTS,
                label: "Projects and their pools",
                value: projects.unwrap_or(DetailValue::Projects(BTreeMap::new())),
            },
        ]
    }

    pub(super) fn say(
        &self,
        id: &str,
        cluster: &RancherCluster,
        plan: Option<&GuestPlan>,
        says: GuestStatus,
    ) {
        let update = GuestUpdate {
            rancher: &self.site.name,
            id,
            system: SYSTEM,
            display_name: &cluster.display_name,
            says,
            details: self.details(id, cluster, plan),
            releases: plan.map(|plan| plan.desired.releases.iter().map(ReleaseView::of).collect()),
        };
        let object = CLUSTER.reference(&Key::new("", id), &cluster.uid);
        let about = (&object, "FloatingIPsReady");
        self.views.report(update, &self.events, about);
    }
}

/// Projects that the guest may ask addresses for, with the pool of Services that name none.
const PROJECTS: &str = "projects";

/// The projects of a plan, as they are shown.
fn projects_of(plan: &GuestPlan) -> DetailValue {
    let access = plan.desired.access.iter();
    let projects = access.map(|access| (access.project.id.clone(), access.pool.clone()));
    DetailValue::Projects(projects.collect())
}

/// How a guest stands that waits.
pub(super) fn waiting(wait: &GuestWait) -> GuestStatus {
    GuestStatus::new(GuestPhase::Waiting, wait.reason(), wait.to_string())
}
