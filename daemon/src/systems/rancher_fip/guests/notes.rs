//! What fipd keeps in Rancher of each guest that it wrote to, beyond a restart: the namespace that its things are in,
//! those they were in before until a move is done, and the projects whose Secret it may have. So what is switched off
//! or moved while fipd is down is found, and no cluster is looked into that fipd has nothing in.

use std::collections::{BTreeMap, BTreeSet};

use fipd_crds::labels::PROJECT_SECRET_PREFIX;
use serde_json::Value;

use super::{Guests, Stop, plan::GuestContents};
use crate::controller::{
    client::{CallError, Remote},
    kind::SECRET,
};

/// ConfigMap in the app namespace: a note by Rancher's id of each guest.
pub const NOTES: &str = "fipd-guests";

/// One guest. As text: the namespaces in the first line, the one that holds first, and the projects in the second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Where its things are, or go.
    pub namespace: String,
    /// Where they still are as well.
    pub before: BTreeSet<String>,
    /// Projects whose Secret it may have; `None`: earlier versions did not say.
    pub projects: Option<BTreeSet<String>>,
}

impl Note {
    pub fn parse(text: &str) -> Self {
        let (namespaces, projects) = match text.split_once('\n') {
            Some((namespaces, projects)) => (namespaces, Some(words(projects).collect())),
            None => (text, None),
        };
        let mut namespaces = words(namespaces);
        Self {
            namespace: namespaces.next().unwrap_or_default(),
            before: namespaces.collect(),
            projects,
        }
    }

    pub fn text(&self) -> String {
        let spaced = |words: &BTreeSet<String>| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            words.join(" ")
        };
        let namespaces = format!("{} {}", self.namespace, spaced(&self.before));
        let namespaces = namespaces.trim();
        match &self.projects {
            Some(projects) => format!("{namespaces}\n{}", spaced(projects)),
            None => namespaces.to_owned(),
        }
    }

    /// Its things are to be in this namespace; where they are counts until it is left.
    pub fn going_to(mut self, namespace: &str) -> Self {
        let from = std::mem::replace(&mut self.namespace, namespace.to_owned());
        self.before.insert(from);
        self.before
            .retain(|one| one != namespace && !one.is_empty());
        self
    }

    /// Nothing is in these namespaces any more.
    pub fn left(mut self, namespaces: &BTreeSet<String>) -> Self {
        self.before.retain(|one| !namespaces.contains(one));
        self
    }

    /// It gets the Secrets of these projects.
    pub fn with(mut self, projects: impl IntoIterator<Item = String>) -> Self {
        (self.projects.get_or_insert_default()).extend(projects);
        self
    }

    /// The project's Secret is removed.
    pub fn without(mut self, project: &str) -> Self {
        if let Some(projects) = &mut self.projects {
            projects.remove(project);
        }
        self
    }

    /// All namespaces that something of fipd may be in.
    pub fn places(&self) -> BTreeSet<String> {
        let all = self.before.iter().chain([&self.namespace]);
        all.filter(|one| !one.is_empty()).cloned().collect()
    }

    pub fn may_have(&self, project: &str) -> bool {
        let known = self.projects.as_ref();
        known.is_none_or(|known| known.contains(project))
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().map(str::to_owned)
}

impl Guests {
    pub(super) fn noted(&self, id: &str) -> Option<Note> {
        let map = self.map(NOTES)?;
        map.get(id).map(|text| Note::parse(text))
    }

    pub(super) fn noted_ids(&self) -> Vec<String> {
        let map = self.map(NOTES).unwrap_or_default();
        map.keys().cloned().collect()
    }

    /// The projects whose Secret each guest may have, where that is known.
    pub(super) fn noted_projects(&self) -> BTreeMap<String, BTreeSet<String>> {
        let map = self.map(NOTES).unwrap_or_default();
        let noted = map.iter();
        noted
            .filter_map(|(id, text)| Some((id.clone(), Note::parse(text).projects?)))
            .collect()
    }

    /// All namespaces of a guest that something of fipd may be in.
    pub(super) fn places_of(&self, id: &str) -> BTreeSet<String> {
        let mut places = self
            .noted(id)
            .as_ref()
            .map(Note::places)
            .unwrap_or_default();
        places.insert(self.settings_of(id).namespace);
        places
    }

    /// Notes, before the first write, what the guest is given and where.
    pub(super) async fn note(
        &self,
        id: &str,
        remote: &Remote,
        desired: &GuestContents,
    ) -> Result<(), Stop> {
        let have = self.noted(id);
        let mut projects: BTreeSet<String> = desired
            .access
            .iter()
            .map(|access| access.project.id.clone())
            .collect();
        let mut places = have.as_ref().map(Note::places).unwrap_or_default();
        places.insert(desired.namespace.clone());
        if have.as_ref().is_none_or(|note| note.projects.is_none()) {
            for place in &places {
                projects.extend(projects_in(remote, place).await?);
            }
        }
        let noted = |note: Option<Note>| {
            let note = note.unwrap_or_default().going_to(&desired.namespace);
            Some(note.with(projects.iter().cloned()))
        };
        if have.is_some() && noted(have.clone()) == have {
            return Ok(());
        }
        self.change_note(id, noted).await
    }

    /// Changes what is noted of a guest.
    pub(super) async fn change_note(
        &self,
        id: &str,
        change: impl FnOnce(Option<Note>) -> Option<Note>,
    ) -> Result<(), Stop> {
        let change = |notes: &BTreeMap<String, String>| {
            let have = notes.get(id);
            let text = change(have.map(|text| Note::parse(text))).map(|note| note.text());
            let mut notes = (text.as_ref() != have).then(|| notes.clone())?;
            match text {
                Some(text) => notes.insert(id.to_owned(), text),
                None => notes.remove(id),
            };
            Some(notes)
        };
        self.change_map(NOTES, change).await
    }
}

/// Projects that have a Secret in a namespace of a guest.
async fn projects_in(remote: &Remote, namespace: &str) -> Result<Vec<String>, CallError> {
    let all = SECRET.named(namespace, "");
    let listed = remote.list_meta(&all, "").await?;
    let project = |secret: &Value| {
        let name = secret.pointer("/metadata/name")?.as_str()?;
        let project = name.strip_prefix(PROJECT_SECRET_PREFIX)?;
        (!project.is_empty()).then(|| project.to_owned())
    };
    Ok(listed.iter().filter_map(project).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn notes_of_earlier_versions_are_read_and_every_note_comes_back_as_it_was() {
        let old = Note::parse("rancher-fip-manager");
        assert_eq!(old.namespace, "rancher-fip-manager");
        assert_eq!((&old.before, &old.projects), (&set(&[]), &None));
        assert!(old.may_have("p-1"), "nobody said that it has not");
        assert_eq!(old.text(), "rancher-fip-manager");
        let moving = old
            .going_to("fip")
            .with(["p-2".to_owned(), "p-1".to_owned()]);
        assert_eq!(moving.text(), "fip rancher-fip-manager\np-1 p-2");
        assert_eq!(Note::parse(&moving.text()), moving);
        let none = Note::default().going_to("fip").with([]);
        assert_eq!(none.text(), "fip\n");
        assert_eq!(Note::parse("fip\n"), none);
        assert!(!none.may_have("p-1"));
    }

    #[test]
    fn no_namespace_is_forgotten_until_it_is_left() {
        let there = Note::default().going_to("a").going_to("b").going_to("c");
        assert_eq!(there.places(), set(&["a", "b", "c"]));
        let back = there.clone().going_to("a");
        assert_eq!(
            (&*back.namespace, back.before.clone()),
            ("a", set(&["b", "c"]))
        );
        let done = there.left(&set(&["a", "b"]));
        assert_eq!(done.text(), "c");
        assert_eq!(done.clone().going_to("c"), done);
    }
}
