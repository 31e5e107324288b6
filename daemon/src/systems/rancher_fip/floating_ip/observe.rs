//! What is kept of a FloatingIP object.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::Tenant;
use fipd_crds::{
    floating_ip::{FloatingIP, FloatingIPStatus, STATE_ERROR, ServiceRef as Assignee},
    labels::services,
};
use kube::ResourceExt as _;

use crate::{
    controller::{
        meta::{Meta, View},
        store::Key,
    },
    systems::rancher_fip::names::{CLUSTER, FINALIZER, GROUP, HOLDER, PROJECT, ServiceRef},
};

/// A FloatingIP, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Fip {
    pub meta: Meta,
    /// Label of the project; empty counts as absent.
    pub project: Option<Tenant>,
    /// Label of the Rancher cluster that uses it; absent while it is only kept for the project.
    pub cluster: Option<String>,
    pub group: Option<String>,
    /// By the labels of both generations.
    pub services: Vec<Assignee>,
    /// The Service whose lease it shows, where we wrote it for one.
    pub holder: Option<ServiceRef>,
    pub pool: String,
    /// `spec.ipAddr` as written; may be empty.
    pub wanted: String,
    pub status: FloatingIPStatus,
}

/// Keeps what matters of the object.
pub fn view(object: FloatingIP) -> Fip {
    let holder = object.annotations().get(HOLDER);
    Fip {
        meta: Meta::of(&object.metadata),
        project: label(&object, PROJECT).map(|project| Tenant(project.into())),
        cluster: cluster(&object),
        group: label(&object, GROUP),
        services: assignees(object.labels()),
        holder: holder.and_then(|text| ServiceRef::parse(text)),
        pool: object.spec.floating_ip_pool,
        wanted: object.spec.ip_addr,
        status: object.status.unwrap_or_default(),
    }
}

/// The Rancher cluster that uses the object, by its label.
pub fn cluster(object: &FloatingIP) -> Option<String> {
    label(object, CLUSTER)
}

fn label(object: &FloatingIP, key: &str) -> Option<String> {
    let label = object.labels().get(key);
    label.filter(|value| !value.is_empty()).cloned()
}

/// Each Service once, however many labels name it.
fn assignees(labels: &BTreeMap<String, String>) -> Vec<Assignee> {
    let mut found: Vec<Assignee> = Vec::new();
    for slot in services(labels) {
        let assignee = Assignee {
            service_namespace: slot.namespace,
            service_name: slot.name,
        };
        if !found.contains(&assignee) {
            found.push(assignee);
        }
    }
    found
}

impl View for Fip {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl Fip {
    pub fn has_finalizer(&self) -> bool {
        self.meta.has_finalizer(FINALIZER)
    }

    /// Whether it is also for another Service than this one. Labels may be left of Services that are gone: `lives`
    /// tells which are there.
    pub fn is_shared(&self, service: &Key, lives: &dyn Fn(&Key) -> bool) -> bool {
        let users = self.users();
        users.iter().any(|key| key != service && lives(key))
    }

    /// The Services that the labels of the object name.
    pub fn users(&self) -> Vec<Key> {
        let keys = self.services.iter();
        let mut keys: Vec<Key> = keys
            .map(|one| Key::new(&one.service_namespace, &one.service_name))
            .collect();
        keys.retain(|key| !key.namespace.is_empty() && !key.name.is_empty());
        keys
    }

    /// The address in the status, which only a controller writes.
    pub fn recorded(&self) -> Option<IpAddr> {
        self.status.ip_addr.parse().ok()
    }

    /// The address that the object shows as its own: its status, or, where the writing of the status was cut
    /// short, the one written back into the spec. Anyone may write a spec, so it counts only for adoption.
    pub fn shown(&self) -> Option<IpAddr> {
        let cut_short = self.has_finalizer() && self.status.state != STATE_ERROR;
        self.recorded()
            .or_else(|| self.wanted.parse().ok().filter(|_| cut_short))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_what_is_taken_and_the_spec_only_when_cut_short() {
        let mut fip = view(FloatingIP::default());
        assert_eq!(fip.shown(), None);
        fip.wanted = "10.0.0.5".into();
        assert_eq!(fip.shown(), None, "it may only be a wish");
        fip.meta.finalizers.push(FINALIZER.into());
        assert_eq!(fip.shown(), "10.0.0.5".parse().ok());
        fip.status.state = STATE_ERROR.into();
        assert_eq!(fip.shown(), None, "the wish was refused");
        fip.status.ip_addr = "10.0.0.6".into();
        assert_eq!(fip.shown(), "10.0.0.6".parse().ok());
    }
}
