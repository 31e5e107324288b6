//! What the family leaves in a cluster.

mod guests;

use std::collections::BTreeSet;

use fipd_core::System;
use fipd_crds::labels::{
    ADOPTED, API_SERVER_LEASE, API_SERVICE, APP_NAMESPACE, FLOATINGIP_CLEANUP, HOLDER,
    INTERFACE_MAPPINGS, MANAGER_LEASE, QUOTA_CLEANUP, RELEASED_BY, SECRET_CLEANUP,
};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{
    api_service::plan::{PORTS_BEFORE, TAKEN_OFF},
    guests::{COPY, NOTES},
    kinds::{FLOATING_IP, POOL, QUOTA},
    names::FOR_SERVICE,
    service::announce,
    settings::{Announce, RancherFipRole, RancherFipSettings},
};
use crate::{
    controller::{
        client::Remote,
        kind::{CONFIG_MAP, ENDPOINT_SLICE, SECRET, SERVICE},
        store::Key,
    },
    detach::{Elsewhere, Found, Leaving, Leftover, Marks, Named, Past, Places, has_webhook},
    guests::charts::helm_chart::HELM_CHART,
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
            labels: vec![FOR_SERVICE, ADOPTED],
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
        Box::pin(guests::secrets(remote, past))
    }

    fn elsewhere<'a>(
        &'a self,
        remote: &'a Remote,
        past: &'a Past,
        name: &'a str,
    ) -> BoxFuture<'a, Elsewhere> {
        Box::pin(guests::noted(remote, past, name))
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
