//! The clusters that Rancher manages, as values: the cluster manager publishes how they are doing and rotates secrets,
//! [`crate::api`] and the metrics read. Neither knows the other. In memory only: it is found out anew after a restart.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use fipd_core::{Text, Timestamp, words};
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use super::access::GuestLinks;

words! {
    /// What became of a guest.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum GuestPhase {
        /// It has everything it is to have.
        Ready = "Ready",
        /// Something is not there yet that others bring.
        Waiting = "Waiting",
        /// Something could not be written.
        Failed = "Failed",
        /// It was switched off, and what fipd made there goes.
        Leaving = "Leaving",
        /// It was switched off, and what others had installed there stays.
        Left = "Left",
    }
}

/// Phase, reason and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestStatus {
    pub phase: GuestPhase,
    pub reason: &'static str,
    pub message: String,
}

/// One guest as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestView {
    /// The configured name of its Rancher.
    pub rancher: Text,
    /// Rancher's id of the guest.
    pub id: String,
    pub display_name: String,
    pub says: GuestStatus,
    /// Since when it is in that phase for that reason.
    pub since: Timestamp,
    /// The last reason for not being ready, kept when it is.
    pub last_error: Option<String>,
    pub load_balancer: &'static str,
    pub has: GuestGoal,
}

/// What a guest is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestGoal {
    /// Projects it may ask addresses for, with the pool of Services that name none.
    pub projects: BTreeMap<String, String>,
    pub releases: Vec<ReleaseView>,
}

/// A helm release that a guest is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseView {
    pub name: String,
    pub namespace: String,
    pub chart: String,
    pub version: String,
}

/// What there is to be said of a guest.
pub struct GuestUpdate<'a> {
    pub rancher: &'a Text,
    pub id: &'a str,
    pub display_name: &'a str,
    pub load_balancer: &'static str,
    pub says: GuestStatus,
    /// `None`: not known; it stays as it was.
    pub has: Option<GuestGoal>,
}

/// What a rotation did.
#[derive(Debug)]
pub struct Rotated {
    pub rancher: Text,
    /// Until when the secret before is accepted, RFC 3339.
    pub until: String,
}

/// Why a secret is not rotated; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error(
        "no Rancher that is connected with its cluster manager switched on has a project {0:?}"
    )]
    UnknownProject(String),
    #[error("project {project:?} is in several Ranchers: {ranchers}; nothing was changed")]
    Several { project: String, ranchers: String },
    #[error("project {0:?} has no secret yet: it gets one with its first guest")]
    NoSecret(String),
    /// Somebody else changed it meanwhile.
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Failed(String),
}

/// The cluster manager of one Rancher.
pub trait GuestManager: Send + Sync {
    fn has_project(&self, project: &str) -> bool;
    /// Gives a project a new secret; its guests get it with their next look, which begins at once.
    fn rotate<'a>(&'a self, project: &'a str) -> BoxFuture<'a, Result<Rotated, RotateError>>;
    /// Whether something of fipd's may be in a cluster of one of these names; `None` until that is known.
    fn put_into(&self, names: &[Text]) -> Option<bool>;
}

/// All guests of all Ranchers, and the way to their cluster managers; cheap to clone.
#[derive(Clone, Default)]
pub struct GuestBoard {
    views: Arc<RwLock<BTreeMap<(Text, String), GuestView>>>,
    managers: Arc<RwLock<BTreeMap<Text, Weak<dyn GuestManager>>>>,
    /// Display names of projects, by id and Rancher.
    projects: Arc<RwLock<BTreeMap<String, BTreeMap<Text, String>>>>,
    links: Arc<Mutex<BTreeMap<Text, Weak<GuestLinks>>>>,
}

impl GuestStatus {
    pub fn new(phase: GuestPhase, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase,
            reason,
            message: message.into(),
        }
    }

    fn is_same_kind(&self, other: &Self) -> bool {
        self.phase == other.phase && self.reason == other.reason
    }
}

/// What helm's progress calls a guest.
pub fn helm_name(rancher: &str, id: &str) -> String {
    format!("{rancher}/{id}")
}

impl GuestBoard {
    /// All guests, by Rancher and id.
    pub fn all(&self) -> Vec<GuestView> {
        self.views.read().values().cloned().collect()
    }

    pub fn get(&self, rancher: &Text, id: &str) -> Option<GuestView> {
        let key = (Text::clone(rancher), id.to_owned());
        self.views.read().get(&key).cloned()
    }

    /// How many guests are in each phase.
    pub fn phases(&self) -> BTreeMap<GuestPhase, usize> {
        let mut phases: BTreeMap<GuestPhase, usize> =
            GuestPhase::ALL.map(|phase| (phase, 0)).into();
        for view in self.views.read().values() {
            *phases.entry(view.says.phase).or_default() += 1;
        }
        phases
    }

    /// Notes what is to be said of a guest; whether that is new.
    pub fn say(&self, news: GuestUpdate<'_>, now: Timestamp) -> bool {
        let GuestUpdate { says, has, .. } = news;
        let mut views = self.views.write();
        let key = (Text::clone(news.rancher), news.id.to_owned());
        let before = views.remove(&key);
        let same = before.as_ref().filter(|view| view.says.is_same_kind(&says));
        let is_new = same.is_none();
        let since = same.map_or(now, |view| view.since);
        let not_ready = says.phase != GuestPhase::Ready;
        let error = not_ready.then(|| format!("{}: {}", says.reason, says.message));
        let last_error = error.or_else(|| before.as_ref().and_then(|view| view.last_error.clone()));
        let view = GuestView {
            rancher: Text::clone(news.rancher),
            id: news.id.to_owned(),
            display_name: news.display_name.to_owned(),
            says,
            since,
            last_error,
            load_balancer: news.load_balancer,
            has: has.unwrap_or_else(|| before.map(|view| view.has).unwrap_or_default()),
        };
        views.insert(key, view);
        is_new
    }

    pub fn remove(&self, rancher: &Text, id: &str) {
        let key = (Text::clone(rancher), id.to_owned());
        self.views.write().remove(&key);
    }

    /// Forgets the guests of a Rancher.
    pub fn forget(&self, rancher: &Text) {
        self.views.write().retain(|(of, _), _| of != rancher);
    }

    /// Notes what people call a project; `None`: nothing, or it is gone.
    pub fn name_project(&self, rancher: &Text, project: &str, name: Option<String>) {
        let mut projects = self.projects.write();
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let names = projects.entry(project.to_owned()).or_default();
            names.insert(Text::clone(rancher), name);
        } else if let Some(names) = projects.get_mut(project) {
            names.remove(rancher);
            if names.is_empty() {
                projects.remove(project);
            }
        }
    }

    /// What people call a project, where all Ranchers that have it agree.
    pub fn project_name(&self, project: &str) -> Option<String> {
        let projects = self.projects.read();
        let mut names = projects.get(project)?.values();
        let name = names.next()?;
        names.all(|other| other == name).then(|| name.clone())
    }

    /// What all systems that look after guests of a Rancher share, for as long as one of them does.
    pub fn links(&self, rancher: &Text) -> Arc<GuestLinks> {
        let mut all = self.links.lock();
        if let Some(links) = all.get(rancher).and_then(Weak::upgrade) {
            return links;
        }
        let links = Arc::default();
        all.retain(|_, links| links.strong_count() > 0);
        all.insert(Text::clone(rancher), Arc::downgrade(&links));
        links
    }

    /// Who looks after the guests of a Rancher.
    pub fn managed_by(&self, rancher: &Text, manager: Weak<dyn GuestManager>) {
        let mut managers = self.managers.write();
        managers.insert(Text::clone(rancher), manager);
    }

    /// Whether a cluster manager may have put something into a cluster of one of these names, by Rancher. One that does not know
    /// yet is left out.
    pub fn put_into(&self, names: &[Text]) -> BTreeMap<Text, bool> {
        let managers = self.managers.read();
        let said = managers.iter().filter_map(|(rancher, manager)| {
            let put = manager.upgrade()?.put_into(names)?;
            Some((Text::clone(rancher), put))
        });
        said.collect()
    }

    /// Gives a project a new secret.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub async fn rotate(&self, project: &str) -> Result<Rotated, RotateError> {
        let mut found: Vec<(Text, Arc<dyn GuestManager>)> = {
            let managers = self.managers.read();
            let all = managers.iter();
            all.filter_map(|(rancher, manager)| Some((Text::clone(rancher), manager.upgrade()?)))
                .collect()
        };
        found.retain(|(_, manager)| manager.has_project(project));
        match found.as_slice() {
            [] => Err(RotateError::UnknownProject(project.to_owned())),
            [(_, manager)] => manager.rotate(project).await,
            several => {
                let names = several.iter().map(|(rancher, _)| rancher.to_string());
                Err(RotateError::Several {
                    project: project.to_owned(),
                    ranchers: names.collect::<Vec<_>>().join(", "),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster manager with one project; it does not know where it has put something while it has none.
    struct ManagerOf(&'static str);

    impl GuestManager for ManagerOf {
        fn has_project(&self, project: &str) -> bool {
            project == self.0
        }

        fn rotate<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Rotated, RotateError>> {
            Box::pin(async { Err(RotateError::NoSecret("it was asked".into())) })
        }

        fn put_into(&self, names: &[Text]) -> Option<bool> {
            let put = names.iter().any(|name| &**name == "prod");
            (!self.0.is_empty()).then_some(put)
        }
    }

    #[test]
    fn what_a_manager_does_not_know_yet_is_not_taken_for_no() {
        let guests = GuestBoard::default();
        let both: [Arc<dyn GuestManager>; 2] =
            [Arc::new(ManagerOf("p-1")), Arc::new(ManagerOf(""))];
        guests.managed_by(&"a".into(), Arc::downgrade(&both[0]));
        guests.managed_by(&"b".into(), Arc::downgrade(&both[1]));
        let put = |name: &str| guests.put_into(&["c-1".into(), name.into()]);
        assert_eq!(put("prod"), BTreeMap::from([("a".into(), true)]));
        assert_eq!(put("test"), BTreeMap::from([("a".into(), false)]));
        drop(both);
        assert!(put("prod").is_empty(), "nobody is there to ask");
    }

    #[test]
    fn a_view_keeps_its_time_while_the_reason_stays_and_its_last_error_afterwards() {
        let (views, rancher) = (GuestBoard::default(), Text::from("rancher"));
        let say = |phase, reason, at| {
            let news = GuestUpdate {
                rancher: &rancher,
                id: "c-1",
                display_name: "prod",
                load_balancer: "purelb",
                says: GuestStatus::new(phase, reason, "text"),
                has: None,
            };
            views.say(news, Timestamp(at))
        };
        assert!(say(GuestPhase::Waiting, "NoProject", 1));
        assert!(!say(GuestPhase::Waiting, "NoProject", 2));
        assert_eq!(views.get(&rancher, "c-1").unwrap().since, Timestamp(1));
        assert!(say(GuestPhase::Ready, "Ready", 3));
        let view = views.get(&rancher, "c-1").unwrap();
        assert_eq!(view.since, Timestamp(3));
        assert_eq!(view.last_error.as_deref(), Some("NoProject: text"));
        assert_eq!(views.phases()[&GuestPhase::Ready], 1);
        views.forget(&rancher);
        assert!(views.all().is_empty());
    }

    #[test]
    fn systems_share_the_way_to_the_guests_of_a_rancher_while_one_of_them_runs() {
        let board = GuestBoard::default();
        let one = board.links(&"a".into());
        assert!(Arc::ptr_eq(&one, &board.links(&"a".into())));
        assert!(!Arc::ptr_eq(&one, &board.links(&"b".into())));
        drop(one);
        assert_eq!(Arc::strong_count(&board.links(&"a".into())), 1);
        assert_eq!(board.links.lock().len(), 1);
    }

    #[test]
    fn a_project_has_a_name_where_nobody_says_another() {
        let board = GuestBoard::default();
        let name = |rancher: &str, name: Option<&str>| {
            board.name_project(&rancher.into(), "p-1", name.map(str::to_owned));
            board.project_name("p-1")
        };
        assert_eq!(name("a", Some("Shop")).as_deref(), Some("Shop"));
        assert_eq!(name("b", Some("Store")), None);
        assert_eq!(name("b", Some("")).as_deref(), Some("Shop"));
        assert_eq!(name("a", None), None);
    }

    #[tokio::test]
    async fn a_project_of_two_ranchers_is_not_rotated() {
        let guests = GuestBoard::default();
        let both: [Arc<dyn GuestManager>; 2] =
            [Arc::new(ManagerOf("p-1")), Arc::new(ManagerOf("p-1"))];
        guests.managed_by(&"a".into(), Arc::downgrade(&both[0]));
        let error = guests.rotate("p-1").await.unwrap_err();
        assert!(matches!(error, RotateError::NoSecret(_)), "{error}");
        guests.managed_by(&"b".into(), Arc::downgrade(&both[1]));
        let error = guests.rotate("p-1").await.unwrap_err().to_string();
        assert!(error.contains("a, b"), "{error}");
        let error = guests.rotate("p-2").await.unwrap_err();
        assert!(matches!(error, RotateError::UnknownProject(_)), "{error}");
    }
}
