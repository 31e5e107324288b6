//! Where the pods of a workload are described, and what their annotations say beside addresses.

use fipd_crds::flat_network::names::{
    ADDITIONAL_INTERFACES, ATTACHMENT, DEFAULT_NETWORK, DUAL_STACK, IP, KEEP_SECONDS, MAC,
    NETWORKS, SUBNET,
};
use serde_json::Value;

use super::{
    KIND_POD,
    kinds::{CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, POD, STATEFUL_SET},
};
use crate::{
    admission::{ReviewedKind, review::Object},
    validation::flat_network::{annotations::Annotations, multus},
};

/// Where the template of the pods of a kind is.
pub struct PodTemplate {
    pub kind: &'static str,
    /// Of the template in the spec; `None`: the object is the pod.
    pointer: Option<&'static str>,
    /// Of its annotations, for messages.
    pub path: &'static str,
    /// Of the number of pods in the spec.
    count: Option<&'static str>,
}

/// Makers of pods and Jobs whose templates are judged.
const OWNERS: [&str; 5] = ["ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"];

const TEMPLATE: Option<&str> = Some("/template");
const PATH: &str = "spec.template.metadata.annotations";

/// What the kinds call themselves, and where their pods are described.
static TEMPLATES: [(ReviewedKind, PodTemplate); 6] = [
    (
        DEPLOYMENT,
        PodTemplate::plain("Deployment", Some("/replicas")),
    ),
    (DAEMON_SET, PodTemplate::plain("DaemonSet", None)),
    (
        STATEFUL_SET,
        PodTemplate::plain("StatefulSet", Some("/replicas")),
    ),
    (JOB, PodTemplate::plain("Job", Some("/parallelism"))),
    (
        CRON_JOB,
        PodTemplate {
            kind: "CronJob",
            pointer: Some("/jobTemplate/spec/template"),
            path: "spec.jobTemplate.spec.template.metadata.annotations",
            count: Some("/jobTemplate/spec/parallelism"),
        },
    ),
    (
        POD,
        PodTemplate {
            kind: KIND_POD,
            pointer: None,
            path: "metadata.annotations",
            count: None,
        },
    ),
];

impl PodTemplate {
    const fn plain(kind: &'static str, count: Option<&'static str>) -> Self {
        Self {
            kind,
            pointer: TEMPLATE,
            path: PATH,
            count,
        }
    }

    /// That of the kind; `None`: it has no pods.
    pub fn of(kind: &ReviewedKind) -> Option<&'static Self> {
        let found = TEMPLATES.iter().find(|(one, _)| one == kind);
        found.map(|(_, template)| template)
    }

    /// The annotations of the pods; what is no text is none.
    pub fn annotations(&self, object: &Object) -> Annotations {
        let Some(pointer) = self.pointer else {
            return object.metadata.annotations.clone().unwrap_or_default();
        };
        let template = object.spec.pointer(pointer);
        let found = template.and_then(|one| one.pointer("/metadata/annotations"));
        let found = found.and_then(Value::as_object).into_iter().flatten();
        let texts =
            found.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        texts.collect()
    }

    /// One where nothing is said, as for all of these kinds.
    pub fn count(&self, object: &Object) -> Option<u64> {
        let count = object.spec.pointer(self.count?);
        Some(count.and_then(Value::as_u64).unwrap_or(1))
    }
}

/// Whether the annotations ask for the same as before. Other changes of a workload are not kept from being stored.
pub fn is_same(before: &Annotations, after: &Annotations) -> bool {
    let keys = [
        IP,
        SUBNET,
        MAC,
        ADDITIONAL_INTERFACES,
        DUAL_STACK,
        KEEP_SECONDS,
    ];
    let asked = |all: &Annotations| keys.map(|key| all.get(key).cloned());
    asked(before) == asked(after) && multus::is_told(before) == multus::is_told(after)
}

/// Whether a controller made the pod or Job from what is judged itself.
pub fn is_owned(kind: &ReviewedKind, object: &Object) -> bool {
    let owners = object.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    (*kind == POD || *kind == JOB) && controllers.any(|owner| OWNERS.contains(&&*owner.kind))
}

/// What is to be said of how the pods are attached.
pub fn attached(path: &str, annotations: &Annotations) -> Option<String> {
    match multus::attachments(path, annotations) {
        Err(wrong) => Some(wrong.to_string()),
        Ok(found) if found.is_empty() => Some(format!(
            "{path}: neither {NETWORKS} nor {DEFAULT_NETWORK} names {ATTACHMENT}: the pods get an address and no interface for it"
        )),
        Ok(_) => None,
    }
}
