//! What the family leaves in a cluster.

use std::collections::BTreeSet;

use fipd_core::System;
use fipd_crds::labels::{
    ADOPTED, API_SERVER_LEASE, API_SERVICE, APP_NAMESPACE, FLOATINGIP_CLEANUP, HOLDER,
    INTERFACE_MAPPINGS, MANAGER_LEASE, PROJECT_SECRET_PREFIX, QUOTA_CLEANUP, RELEASED_BY,
    SECRET_CLEANUP,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value, json};

use super::{
    api_service::plan::{PORTS_BEFORE, TAKEN_OFF},
    guests::{COPY, NOTES, Note},
    kinds::{FLOATING_IP, POOL, QUOTA},
    names::FOR_SERVICE,
    service::announce,
    settings::{Announce, RancherFipRole, RancherFipSettings},
};
use crate::{
    controller::{
        client::{CallError, Remote, Target},
        kind::{CONFIG_MAP, ENDPOINT_SLICE, SECRET, SERVICE},
        owned,
        store::Key,
    },
    detach::{Elsewhere, Found, Leaving, Leftover, Marks, Named, Past, Places, has_webhook},
    guests::charts::helm_chart::HELM_CHART,
    helm::SYSTEM_LABEL,
};

/// See the module.
pub struct RancherFipLeaving;

impl Leaving for RancherFipLeaving {
    fn leftovers(&self) -> &'static [Leftover] {
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec![FLOATINGIP_CLEANUP, QUOTA_CLEANUP, SECRET_CLEANUP],
            labels: vec![FOR_SERVICE, ADOPTED, SYSTEM_LABEL],
            annotations: vec![HOLDER, RELEASED_BY, TAKEN_OFF, PORTS_BEFORE],
            prefixes: Vec::new(),
        }
    }

    fn locks(&self, past: &Past) -> Vec<(Key, bool)> {
        let settings = of(past);
        let held = manages(past) && settings.leader_elect;
        let names = [MANAGER_LEASE, API_SERVER_LEASE, &*settings.lease_lock_name];
        let lock = |name: &str| Key {
            namespace: settings.lease_lock_namespace.clone(),
            name: name.into(),
        };
        names.map(|name| (lock(name), held)).to_vec()
    }

    fn last<'a>(&'a self, remote: &'a Remote, past: &'a Past) -> BoxFuture<'a, Found> {
        Box::pin(secrets(remote, past))
    }

    fn elsewhere<'a>(
        &'a self,
        remote: &'a Remote,
        past: &'a Past,
        name: &'a str,
    ) -> BoxFuture<'a, Elsewhere> {
        Box::pin(noted(remote, past, name))
    }
}

fn of(past: &Past) -> &RancherFipSettings {
    past.settings.of()
}

fn has_role(past: &Past, role: RancherFipRole) -> bool {
    past.systems.contains(&System::rancher_fip()) && of(past).role == role
}

fn manages(past: &Past) -> bool {
    has_role(past, RancherFipRole::Management)
}

fn serves(past: &Past) -> bool {
    has_role(past, RancherFipRole::Downstream)
}

fn manages_guests(past: &Past) -> bool {
    manages(past) && of(past).cluster_manager.enabled
}

fn announces(past: &Past, by: Announce) -> bool {
    serves(past) && of(past).announce == by
}

fn leads_api_service(past: &Past) -> bool {
    manages(past) && of(past).api_service
}

/// Whether fipd may have written in a namespace; guests have theirs where a chart says.
fn writes_in(past: &Past, namespace: &str) -> bool {
    namespace.is_empty() || past.guest || namespace == &*of(past).app_namespace
}

fn app_namespaces(past: &Past) -> BTreeSet<String> {
    BTreeSet::from([of(past).app_namespace.to_string(), APP_NAMESPACE.to_owned()])
}

static APP: Places = Places {
    namespaces: app_namespaces,
    written: writes_in,
};

/// In the namespaces of clusters of Rancher.
static PROJECT_SECRETS: Leftover = Leftover::of(SECRET, manages_guests);

/// The Service that led to fipd leads to its own pods again.
fn selector(annotations: &Map<String, Value>) -> Option<Value> {
    let noted =
        |key: &str| -> Option<Value> { serde_json::from_str(annotations.get(key)?.as_str()?).ok() };
    let mut spec = json!({ "selector": noted(TAKEN_OFF)? });
    if let Some(ports) = noted(PORTS_BEFORE) {
        spec["ports"] = ports;
    }
    Some(json!({ "spec": spec }))
}

static LEFTOVERS: [Leftover; 12] = [
    Leftover::validator(&[super::admission::VALIDATOR], |past| {
        manages(past) && has_webhook(&of(past).webhook)
    }),
    Leftover {
        named: Named {
            names: &[API_SERVICE],
            only_in: Some(&APP),
            wrote: leads_api_service,
        },
        restore: selector,
        ..Leftover::of(SERVICE, serves)
    },
    Leftover::of(FLOATING_IP, manages),
    Leftover::of(QUOTA, manages),
    Leftover::of(POOL, manages),
    Leftover::of(announce::POOL, |past| announces(past, Announce::Metallb)),
    Leftover::of(announce::ADVERTISEMENT, |past| {
        announces(past, Announce::Metallb)
    }),
    Leftover::of(announce::GROUP, |past| announces(past, Announce::Purelb)),
    Leftover {
        own: true,
        only_in: Some(&APP),
        ..Leftover::of(ENDPOINT_SLICE, leads_api_service)
    },
    Leftover {
        own: true,
        ..Leftover::of(HELM_CHART, |past| past.guest)
    },
    Leftover {
        own: true,
        only_in: Some(&APP),
        named: Named {
            names: &[INTERFACE_MAPPINGS, NOTES, COPY],
            only_in: Some(&APP),
            wrote: |past| past.guest || manages_guests(past),
        },
        ..Leftover::of(CONFIG_MAP, manages_guests)
    },
    Leftover {
        own: true,
        only_in: Some(&APP),
        ..Leftover::of(SECRET, |past| past.guest || manages_guests(past))
    },
];

/// Reads the notes of the cluster that is called `rancher`, in whichever app namespace: the settings may have named another one
/// when they were written.
async fn noted(remote: &Remote, past: &Past, rancher: &str) -> Elsewhere {
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
async fn secrets(remote: &Remote, past: &Past) -> Found {
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
