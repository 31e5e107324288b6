//! The clusters that Rancher manages, as values: cluster managers publish how they are doing, [`crate::api`] and the metrics
//! read. Neither knows the other. In memory only: it is found out anew after a restart.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use fipd_core::{LeaseKey, PoolId, Text, Timestamp, words};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use super::{GuestSystem, access::GuestLinks, charts::OTHER_LOAD_BALANCER};

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

/// One guest as it is shown for one system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestView {
    /// The configured name of its Rancher.
    pub rancher: Text,
    /// Rancher's id of the guest.
    pub id: String,
    /// That says this of it.
    pub system: GuestSystem,
    pub display_name: String,
    pub says: GuestStatus,
    /// Since when it is in that phase for that reason.
    pub since: Timestamp,
    /// The last reason for not being ready, kept when it is.
    pub last_error: Option<String>,
    /// In the order in which they are shown.
    pub details: Vec<GuestDetail>,
    /// That it is to have.
    pub releases: Vec<ReleaseView>,
}

/// What else a system says of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestDetail {
    /// Its name in JSON.
    pub field: &'static str,
    /// Its name on the page.
    pub label: &'static str,
    pub value: DetailValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetailValue {
    Text(String),
    /// Leases of the guest.
    Leases(Vec<LeaseKey>),
    /// Pools by the names that the system has for them; `None`: there is none of that name.
    Pools(Vec<(String, Option<PoolId>)>),
    /// By Rancher's id of each, with what the guest has there.
    Projects(BTreeMap<String, String>),
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
    pub system: GuestSystem,
    pub display_name: &'a str,
    pub says: GuestStatus,
    pub details: Vec<GuestDetail>,
    /// `None`: not known; they stay as they were.
    pub releases: Option<Vec<ReleaseView>>,
}

/// By Rancher, its id of the guest and the system.
type ViewKey = (Text, String, GuestSystem);
/// By Rancher and the name of the system.
type ManagerKey = (Text, &'static str);

/// The cluster manager of one Rancher.
pub trait GuestManager: Send + Sync {
    /// Whether something of fipd's may be in a cluster of one of these names; `None` until that is known.
    fn put_into(&self, names: &[Text]) -> Option<bool>;
}

/// All guests of all Ranchers, and the way to their cluster managers; cheap to clone.
#[derive(Clone, Default)]
pub struct GuestBoard {
    views: Arc<RwLock<BTreeMap<ViewKey, GuestView>>>,
    managers: Arc<RwLock<BTreeMap<ManagerKey, Weak<dyn GuestManager>>>>,
    /// Display names of projects, by id and Rancher.
    projects: Arc<RwLock<BTreeMap<String, BTreeMap<Text, String>>>>,
    links: Arc<Mutex<BTreeMap<Text, Weak<GuestLinks>>>>,
}

impl GuestView {
    /// The name that people see; the id where it has none.
    pub fn name(&self) -> &str {
        match self.display_name.as_str() {
            "" => &self.id,
            name => name,
        }
    }

    /// Rancher's ids of the projects that the system names.
    pub fn projects(&self) -> impl Iterator<Item = &String> {
        let details = self.details.iter();
        let named = details.filter_map(|detail| match &detail.value {
            DetailValue::Text(_) | DetailValue::Leases(_) | DetailValue::Pools(_) => None,
            DetailValue::Projects(projects) => Some(projects.keys()),
        });
        named.flatten()
    }
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

/// Lets the views of one guest say which system is kept out there, and why.
fn tell_kept_out(views: &mut [GuestView]) {
    let kept_out = |view: &&GuestView| view.says.reason == OTHER_LOAD_BALANCER;
    let kept_out = views.iter().filter(kept_out).map(|view| {
        let says = format!("{}: {}", view.system.name, view.says.message);
        (view.system, says)
    });
    let kept_out: Vec<_> = kept_out.collect();
    for view in views {
        let others = kept_out.iter().filter(|(system, _)| *system != view.system);
        view.details.extend(others.map(|(_, says)| GuestDetail {
            field: "kept_out",
            label: "Kept out",
            value: DetailValue::Text(says.clone()),
        }));
    }
}

/// What helm's progress calls a guest of a system: what one forgets another may still work on.
pub fn helm_name(rancher: &str, id: &str, system: GuestSystem) -> String {
    match system.mark() {
        Some(system) => format!("{rancher}/{id}/{system}"),
        None => format!("{rancher}/{id}"),
    }
}

impl GuestBoard {
    /// All guests, by Rancher and id, once for each system. Where one system is kept out by the load balancer of another, the views of
    /// both say so.
    pub fn all(&self) -> Vec<GuestView> {
        let mut all: Vec<GuestView> = self.views.read().values().cloned().collect();
        let same = |one: &GuestView, other: &GuestView| {
            (&one.rancher, &one.id) == (&other.rancher, &other.id)
        };
        all.chunk_by_mut(same).for_each(tell_kept_out);
        all
    }

    /// What a system says of a guest.
    pub fn get(&self, rancher: &Text, id: &str, system: GuestSystem) -> Option<GuestView> {
        let key = (Text::clone(rancher), id.to_owned(), system);
        self.views.read().get(&key).cloned()
    }

    /// The releases that other systems want in a guest.
    pub fn releases_of_others(
        &self,
        rancher: &Text,
        id: &str,
        than: GuestSystem,
    ) -> Vec<ReleaseView> {
        let views = self.views.read();
        let of_guest = views.range((Text::clone(rancher), id.to_owned(), GuestSystem::FIRST)..);
        let of_guest = of_guest.take_while(|((of, this, _), _)| of == rancher && this == id);
        let others = of_guest.filter(|((.., system), _)| *system != than);
        let releases = others.flat_map(|(_, view)| &view.releases);
        releases.cloned().collect()
    }

    /// How many guests of a Rancher a system shows, by phase and reason.
    pub fn reasons(
        &self,
        rancher: &Text,
        system: GuestSystem,
    ) -> BTreeMap<(GuestPhase, &'static str), usize> {
        let mut counts = BTreeMap::new();
        let views = self.views.read();
        let shown = views
            .iter()
            .filter(|((of, _, by), _)| of == rancher && *by == system);
        for (_, view) in shown {
            *counts
                .entry((view.says.phase, view.says.reason))
                .or_default() += 1;
        }
        counts
    }

    /// What people call the guest of that id, whatever system says it.
    pub fn name(&self, rancher: &Text, id: &str) -> Option<String> {
        let views = self.views.read();
        let mut rest = views.range((Text::clone(rancher), id.to_owned(), GuestSystem::FIRST)..);
        let ((of, this, _), view) = rest.next()?;
        (of == rancher && this == id).then(|| view.name().to_owned())
    }

    /// How many guests are in each phase, by the mark of the system.
    pub fn phases(&self) -> BTreeMap<(Option<&'static str>, GuestPhase), usize> {
        let none = |mark| GuestPhase::ALL.map(|phase| ((mark, phase), 0));
        let mut phases = BTreeMap::from(none(None));
        for view in self.views.read().values() {
            let mark = view.system.mark();
            if !phases.contains_key(&(mark, view.says.phase)) {
                phases.extend(none(mark));
            }
            *phases.entry((mark, view.says.phase)).or_default() += 1;
        }
        phases
    }

    /// Notes what is to be said of a guest; whether that is new.
    pub fn say(&self, news: GuestUpdate<'_>, now: Timestamp) -> bool {
        let GuestUpdate { says, releases, .. } = news;
        let mut views = self.views.write();
        let key = (Text::clone(news.rancher), news.id.to_owned(), news.system);
        let before = views.remove(&key);
        let same = before.as_ref().filter(|view| view.says.is_same_kind(&says));
        let is_new = same.is_none();
        let since = same.map_or(now, |view| view.since);
        let not_ready = says.phase != GuestPhase::Ready && !says.is_progress();
        let error = not_ready.then(|| format!("{}: {}", says.reason, says.message));
        let last_error = error.or_else(|| before.as_ref().and_then(|view| view.last_error.clone()));
        let view = GuestView {
            rancher: Text::clone(news.rancher),
            id: news.id.to_owned(),
            system: news.system,
            display_name: news.display_name.to_owned(),
            says,
            since,
            last_error,
            details: news.details,
            releases: releases
                .unwrap_or_else(|| before.map(|view| view.releases).unwrap_or_default()),
        };
        views.insert(key, view);
        is_new
    }

    pub fn remove(&self, rancher: &Text, id: &str, system: GuestSystem) {
        let key = (Text::clone(rancher), id.to_owned(), system);
        self.views.write().remove(&key);
    }

    /// Forgets what a system said of the guests of a Rancher.
    pub fn forget(&self, rancher: &Text, system: GuestSystem) {
        let mut views = self.views.write();
        views.retain(|(of, _, by), _| of != rancher || *by != system);
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

    /// Who looks after the guests of a Rancher for a system.
    pub fn managed_by(&self, rancher: &Text, system: GuestSystem, manager: Weak<dyn GuestManager>) {
        let mut managers = self.managers.write();
        managers.insert((Text::clone(rancher), system.name), manager);
    }

    /// Whether a cluster manager may have put something into a cluster of one of these names, by Rancher and the name of the
    /// system. One that does not know yet is left out.
    pub fn put_into(&self, names: &[Text]) -> BTreeMap<ManagerKey, bool> {
        let managers = self.managers.read();
        let said = managers.iter().filter_map(|(key, manager)| {
            let put = manager.upgrade()?.put_into(names)?;
            Some((key.clone(), put))
        });
        said.collect()
    }
}

#[cfg(test)]
mod tests;
