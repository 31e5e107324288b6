//! What the cluster manager has put into the clusters that this one manages. Beyond a restart of fipd only its notes say so: while
//! they name a guest they stay, and so does the copy of the settings by which that guest is cleared.

use std::collections::BTreeSet;

use fipd_crds::labels::PROJECT_SECRET_PREFIX;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::{
    PROJECT_SECRETS, RancherFipLeaving, app_namespaces, manages, manages_guests, of, writes_in,
};
use crate::{
    controller::{
        client::{CallError, Remote, Target},
        kind::CONFIG_MAP,
        owned,
    },
    detach::{Elsewhere, Found, Leaving as _, Past},
    systems::rancher_fip::guests::{COPY, NOTES, Note},
};

/// Reads the notes of the cluster that is called `rancher`, in whichever app namespace: the settings may have named another one
/// when they were written.
pub(super) async fn noted(remote: &Remote, past: &Past, rancher: &str) -> Elsewhere {
    let mut found = Found::default();
    let maps = match remote.list_named(&notes(""), &owned::selector()).await {
        Ok(maps) => maps,
        Err(error) => {
            found.missed("ConfigMap", &error, manages_guests(past));
            by_name(remote, past, &mut found).await
        }
    };
    let app = &*of(past).app_namespace;
    let mut left = Vec::new();
    for map in maps {
        let map: ConfigMap = serde_json::from_value(map).unwrap_or_default();
        let namespace = map.metadata.namespace.unwrap_or_default();
        let former = Some(&*namespace).filter(|namespace| *namespace != app);
        for (id, note) in map.data.iter().flatten() {
            left.push(stays(rancher, id, &Note::parse(note), former));
        }
    }
    Elsewhere {
        left,
        unseen: found.unseen,
        needed: &[NOTES, COPY],
    }
}

/// The notes where they would be taken away: the right to that may be there without the one to look in all namespaces, also where
/// the settings of today say nothing of guests.
async fn by_name(remote: &Remote, past: &Past, found: &mut Found) -> Vec<Value> {
    let mut maps = Vec::new();
    for namespace in app_namespaces(past) {
        let map: Result<Option<Value>, CallError> = remote.get(&notes(&namespace)).await;
        match map {
            Ok(map) => maps.extend(map),
            Err(error) => {
                let wrote = manages_guests(past) && writes_in(past, &namespace);
                found.missed("ConfigMap", &error, wrote);
            }
        }
    }
    maps
}

fn notes(namespace: &str) -> Target {
    CONFIG_MAP.named(namespace, NOTES)
}

/// The Secrets of projects, which are in the namespaces of their clusters. They lose fipd's mark and stay: they are the projects',
/// and whoever serves these next asks for the same ones. Also where the cluster manager is off by now.
pub(super) async fn secrets(remote: &Remote, past: &Past) -> Found {
    let mut found = Found::default();
    if !manages(past) {
        return found;
    }
    let all = PROJECT_SECRETS.kind.all();
    let listed = remote.list_meta(&all, &owned::selector()).await;
    let listed = listed.map(|items| items.into_iter().filter(is_of_project));
    let sort = (&PROJECT_SECRETS, &RancherFipLeaving.marks());
    found.take(listed, sort, manages_guests(past));
    found
}

fn is_of_project(secret: &Value) -> bool {
    let name = secret.pointer("/metadata/name").and_then(Value::as_str);
    name.is_some_and(|name| name.starts_with(PROJECT_SECRET_PREFIX))
}

fn stays(rancher: &str, id: &str, note: &Note, former: Option<&str>) -> String {
    let all = |words: &BTreeSet<String>| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.join(" and ")
    };
    let mut what = format!("in namespace {}", all(&note.places()));
    if let Some(projects) = note.projects.as_ref().filter(|some| !some.is_empty()) {
        what.push_str(&format!(", Secrets of project {}", all(projects)));
    }
    let with = former.map_or_else(String::new, |namespace| {
        format!(" and app-namespace = {namespace:?}, where its notes are")
    });
    format!(
        "guest {id} of {rancher} keeps what fipd put there ({what}): attach the cluster again with its cluster manager on{with}, label the guest \
         rancher-fip=disabled in Rancher, and detach once `fipd rancher-fip guests` shows it as left or not at all"
    )
}
