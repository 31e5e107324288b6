//! How the guests are doing, for whoever shows it. In memory only: it is found out anew after a restart.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Text, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::RwLock;

use super::{
    charts::ChartError,
    plan::{Plan, Wait},
    rotate::Managers,
    settings::Release,
};
use crate::controllers::rancher_fip::clusters::{LoadBalancer, RancherCluster};

/// What became of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It has everything it is to have.
    Ready,
    /// Something is not there yet that others bring.
    Waiting,
    /// Something could not be written.
    Failed,
    /// It was switched off, and what fipd made there goes.
    Leaving,
}

impl Phase {
    pub const ALL: [Self; 4] = [Self::Ready, Self::Waiting, Self::Failed, Self::Leaving];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Waiting => "Waiting",
            Self::Failed => "Failed",
            Self::Leaving => "Leaving",
        }
    }
}

/// One guest as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestView {
    /// The configured name of its Rancher.
    pub rancher: Text,
    /// Rancher's id of the guest.
    pub id: String,
    pub display_name: String,
    pub says: Says,
    /// Since when it is in that phase for that reason.
    pub since: Timestamp,
    /// The last reason for not being ready, kept when it is.
    pub last_error: Option<String>,
    pub load_balancer: LoadBalancer,
    /// Projects it may ask addresses for, with the pool of Services that name none.
    pub projects: BTreeMap<String, String>,
    pub releases: Vec<Release>,
}

/// Phase, reason and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Says {
    pub phase: Phase,
    pub reason: &'static str,
    pub message: String,
}

impl Says {
    pub fn new(phase: Phase, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase,
            reason,
            message: message.into(),
        }
    }
}

/// The views of all guests of all Ranchers, and the way to their cluster managers; cheap to clone.
#[derive(Clone, Default)]
pub struct GuestViews {
    views: Arc<RwLock<BTreeMap<(Text, String), GuestView>>>,
    pub managers: Managers,
}

impl GuestViews {
    /// All guests, by Rancher and id.
    pub fn all(&self) -> Vec<GuestView> {
        self.views.read().values().cloned().collect()
    }

    pub fn get(&self, rancher: &Text, id: &str) -> Option<GuestView> {
        let key = (Text::clone(rancher), id.to_owned());
        self.views.read().get(&key).cloned()
    }

    /// How many guests are in each phase.
    pub fn phases(&self) -> BTreeMap<Phase, usize> {
        let mut phases: BTreeMap<Phase, usize> = Phase::ALL.map(|phase| (phase, 0)).into();
        for view in self.views.read().values() {
            *phases.entry(view.says.phase).or_default() += 1;
        }
        phases
    }

    /// Notes what is to be said of a guest; whether that is new. What it is to have stays as it was where `plan`
    /// is not known.
    pub fn say(
        &self,
        rancher: &Text,
        id: &str,
        cluster: &RancherCluster,
        plan: Option<&Plan>,
        says: Says,
        now: Timestamp,
    ) -> bool {
        let mut views = self.views.write();
        let key = (Text::clone(rancher), id.to_owned());
        let before = views.remove(&key);
        let same = before
            .as_ref()
            .is_some_and(|before| same_kind(&before.says, &says));
        let not_ready = says.phase != Phase::Ready;
        let error = not_ready.then(|| format!("{}: {}", says.reason, says.message));
        let last_error = error.or_else(|| before.as_ref().and_then(|view| view.last_error.clone()));
        let since = before
            .as_ref()
            .filter(|_| same)
            .map_or(now, |view| view.since);
        let (projects, releases) = match plan {
            Some(plan) => described(plan),
            None => before.map_or_else(Default::default, |view| (view.projects, view.releases)),
        };
        let view = GuestView {
            rancher: Text::clone(rancher),
            id: id.to_owned(),
            display_name: cluster.display_name.clone(),
            says,
            since,
            last_error,
            load_balancer: cluster.load_balancer,
            projects,
            releases,
        };
        views.insert(key, view);
        !same
    }

    pub fn remove(&self, rancher: &Text, id: &str) {
        self.views
            .write()
            .remove(&(Text::clone(rancher), id.to_owned()));
    }

    /// Forgets the guests of a Rancher.
    pub fn forget(&self, rancher: &Text) {
        self.views.write().retain(|(of, _), _| of != rancher);
    }
}

fn same_kind(one: &Says, other: &Says) -> bool {
    one.phase == other.phase && one.reason == other.reason
}

fn described(plan: &Plan) -> (BTreeMap<String, String>, Vec<Release>) {
    let access = plan.desired.access.iter();
    let projects = access.map(|access| (access.project.id.clone(), access.pool.clone()));
    (projects.collect(), plan.desired.releases.clone())
}

/// A chart that failed says more than what is waited for.
pub(super) fn says(wait: Option<&Wait>, error: Option<ChartError>) -> Says {
    match (wait, error) {
        (None, None) => Says::new(Phase::Ready, "Ready", "it has everything it needs"),
        (Some(wait), None) => waiting(wait),
        (None, Some(error)) => error.says(),
        (Some(wait), Some(error)) => {
            let mut says = error.says();
            says.message = format!("{}; {wait}", says.message);
            says
        }
    }
}

pub(super) fn waiting(wait: &Wait) -> Says {
    Says::new(Phase::Waiting, wait.reason(), wait.to_string())
}

/// What Events are about.
pub fn reference(id: &str, cluster: &RancherCluster) -> ObjectReference {
    ObjectReference {
        api_version: Some("management.cattle.io/v3".into()),
        kind: Some("Cluster".into()),
        name: Some(id.to_owned()),
        uid: Some(cluster.uid.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_keeps_its_time_while_the_reason_stays_and_its_last_error_afterwards() {
        let (views, rancher) = (GuestViews::default(), Text::from("rancher"));
        let cluster = RancherCluster::default();
        let say = |phase, reason, at| {
            let says = Says::new(phase, reason, "text");
            views.say(&rancher, "c-1", &cluster, None, says, Timestamp(at))
        };
        assert!(say(Phase::Waiting, "NoProject", 1));
        assert!(!say(Phase::Waiting, "NoProject", 2));
        assert_eq!(views.get(&rancher, "c-1").unwrap().since, Timestamp(1));
        assert!(say(Phase::Ready, "Ready", 3));
        let view = views.get(&rancher, "c-1").unwrap();
        assert_eq!(view.since, Timestamp(3));
        assert_eq!(view.last_error.as_deref(), Some("NoProject: text"));
        assert_eq!(views.phases()[&Phase::Ready], 1);
        views.forget(&rancher);
        assert!(views.all().is_empty());
    }

    #[test]
    fn a_failed_chart_is_told_before_what_is_waited_for() {
        let error = ChartError {
            reason: "InstallFailed",
            message: "chart \"purelb\": no".into(),
        };
        let wait = Wait::NoDefaultPool;
        assert_eq!(says(None, None).phase, Phase::Ready);
        assert_eq!(says(Some(&wait), None).reason, wait.reason());
        let both = says(Some(&wait), Some(error.clone()));
        assert_eq!((both.phase, both.reason), (Phase::Failed, "InstallFailed"));
        assert!(both.message.starts_with(&error.message), "{both:?}");
        assert!(both.message.ends_with(&wait.to_string()), "{both:?}");
    }
}
