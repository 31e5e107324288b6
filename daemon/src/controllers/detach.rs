//! Leaving a cluster cleanly: what fipd has put there goes, what users have stays, and so do the addresses.
//!
//! Runs once no system is on for the cluster. Finalizers first, so that nothing is kept from being deleted; then marks; then the
//! objects that are fipd's alone; its Leases last. Every step may be done again.

use std::collections::BTreeSet;

use fipd_core::{Action, Actor, Text};
use fipd_crds::{
    ip_rule,
    labels::{
        ADOPTED, APP_NAMESPACE, CLAIM_CLEANUP, FIELD_MANAGER, FLOATINGIP_CLEANUP, HOLDER,
        MANAGED_BY, POOL_CLEANUP, QUOTA_CLEANUP, RELEASED_BY, SECRET_CLEANUP,
    },
};
use serde_json::{Map, Value, json};

use super::{
    rancher_fip::{
        api_service::plan::{PORTS_BEFORE as PORTS, TAKEN_OFF as SELECTOR},
        names::FOR_SERVICE,
    },
    remote::{CallError, Patch, Remote, Target},
};
use crate::{clusters::ClusterSession, ipam::IpamError};

/// Finalizers that only fipd takes off, where nobody else runs.
const FINALIZERS: [&str; 7] = [
    FLOATINGIP_CLEANUP,
    QUOTA_CLEANUP,
    SECRET_CLEANUP,
    CLAIM_CLEANUP,
    POOL_CLEANUP,
    ip_rule::RULE_FINALIZER,
    ip_rule::CONFIG_FINALIZER,
];
/// Labels that fipd alone writes, whatever their value.
const LABELS: [&str; 2] = [FOR_SERVICE, ADOPTED];
/// Annotations that fipd alone writes. Those by which users ask for something stay.
const ANNOTATIONS: [&str; 5] = [HOLDER, RELEASED_BY, SELECTOR, PORTS, ip_rule::ABSENT_SINCE];

/// A kind in which fipd leaves something.
struct Kind {
    api: &'static str,
    plural: &'static str,
    one: &'static str,
    /// Only where the family's programs are: elsewhere fipd writes none, and reads none.
    in_app: bool,
    /// Those with fipd's label are its own, and go.
    own: bool,
}

const fn kind(api: &'static str, plural: &'static str, one: &'static str) -> Kind {
    Kind {
        api,
        plural,
        one,
        in_app: false,
        own: false,
    }
}

const FIP: &str = "apis/rancher.k8s.binbash.org/v1beta2";
const FIPD: &str = "apis/fipd.io/v1alpha1";
const RULES: &str = "apis/api.operator.brtrm.dev/v1alpha1";

/// In the order in which they are left: who waits for something comes before it.
const KINDS: [Kind; 17] = [
    Kind {
        own: true,
        ..kind(
            "apis/admissionregistration.k8s.io/v1",
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
        )
    },
    kind("api/v1", "services", "Service"),
    kind(FIP, "floatingips", "FloatingIP"),
    kind(FIP, "floatingipprojectquotas", "FloatingIPProjectQuota"),
    kind(FIP, "floatingippools", "FloatingIPPool"),
    kind(FIPD, "addressclaims", "AddressClaim"),
    kind(FIPD, "namespacedpools", "NamespacedPool"),
    Kind {
        own: true,
        ..kind(FIPD, "pools", "Pool")
    },
    kind(RULES, "iprules", "IPRule"),
    kind(RULES, "ipruleconfigs", "IPRuleConfig"),
    kind("apis/metallb.io/v1beta1", "ipaddresspools", "IPAddressPool"),
    kind(
        "apis/metallb.io/v1beta1",
        "l2advertisements",
        "L2Advertisement",
    ),
    kind("apis/purelb.io/v1", "servicegroups", "ServiceGroup"),
    Kind {
        own: true,
        in_app: true,
        ..kind(
            "apis/discovery.k8s.io/v1",
            "endpointslices",
            "EndpointSlice",
        )
    },
    Kind {
        own: true,
        ..kind("apis/helm.cattle.io/v1", "helmcharts", "HelmChart")
    },
    Kind {
        own: true,
        in_app: true,
        ..kind("api/v1", "configmaps", "ConfigMap")
    },
    Kind {
        own: true,
        in_app: true,
        ..kind("api/v1", "secrets", "Secret")
    },
];

/// One thing that is done in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// `Service shop/web`.
    pub object: String,
    pub does: Does,
    target: Target,
    uid: String,
}

/// What is done to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Does {
    /// This finalizer, which stands among these.
    Finalizer(&'static str, Vec<String>),
    /// A merge patch that takes fipd's marks off, and their names.
    Marks(Vec<String>, Value),
    Delete,
    /// The Lease has no holder any more; its version.
    LetGo,
}

/// A step and what became of it; `None`: it was only looked at.
#[derive(Clone, Debug)]
pub struct Done {
    pub step: Step,
    pub result: Option<Result<(), String>>,
}

/// What leaving found and did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub steps: Vec<Done>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

impl Does {
    /// In words.
    pub fn text(&self) -> String {
        match self {
            Self::Finalizer(name, _) => format!("take the finalizer {name} off"),
            Self::Marks(names, _) => format!("take off {}", names.join(", ")),
            Self::Delete => "delete".to_owned(),
            Self::LetGo => "let go".to_owned(),
        }
    }
}

impl Report {
    /// Whether nothing of fipd's is left, as far as could be seen.
    pub fn is_clean(&self) -> bool {
        let done = |one: &Done| matches!(one.result, Some(Ok(())));
        self.unseen.is_empty() && self.steps.iter().all(done)
    }
}

/// Looks what fipd has left in the cluster, and with `actor` takes it away. `me` is what this daemon calls itself in Leases.
///
/// # Errors
/// The audit log cannot be written; the rest is left as it is.
pub async fn leave(
    session: &ClusterSession,
    me: &str,
    actor: Option<&Actor>,
) -> Result<Report, IpamError> {
    let remote = Remote::new(session.client.clone());
    let mut report = Report::default();
    for kind in &KINDS {
        let found = steps_of(&remote, session, kind).await;
        run(session, &remote, found, actor, &mut report).await?;
    }
    let found = leases(&remote, session, me).await;
    run(session, &remote, found, actor, &mut report).await?;
    Ok(report)
}

async fn run(
    session: &ClusterSession,
    remote: &Remote,
    found: Result<Vec<Step>, String>,
    actor: Option<&Actor>,
    report: &mut Report,
) -> Result<(), IpamError> {
    let steps = match found {
        Ok(steps) => steps,
        Err(why) => {
            report.unseen.push(why);
            return Ok(());
        }
    };
    for step in steps {
        let result = match actor {
            None => None,
            Some(actor) => {
                let what = format!(
                    "detach {}: {}: {}",
                    session.name,
                    step.object,
                    step.does.text()
                );
                session
                    .ipam
                    .note(Action::ClusterChanged, what, actor.clone())
                    .await?;
                Some(
                    apply(remote, &step)
                        .await
                        .map_err(|error| error.to_string()),
                )
            }
        };
        report.steps.push(Done { step, result });
    }
    Ok(())
}

async fn apply(remote: &Remote, step: &Step) -> Result<(), CallError> {
    let Step {
        target, uid, does, ..
    } = step;
    let gone = |result| match result {
        Err(CallError::NotFound(_)) => Ok(()),
        other => other,
    };
    match does {
        Does::Finalizer(name, all) => remote.drop_finalizer(target, uid, all, name).await,
        Does::Marks(_, patch) => gone(remote.patch(target, Patch::Merge, patch).await),
        Does::Delete => remote.delete(target, uid).await,
        Does::LetGo => {
            let patch = json!({ "spec": { "holderIdentity": "" } });
            gone(remote.patch(target, Patch::Merge, &patch).await)
        }
    }
}

/// Everything of a kind that is to be done. What fipd may not list it has never written.
async fn steps_of(
    remote: &Remote,
    session: &ClusterSession,
    kind: &Kind,
) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for namespace in namespaces(session, kind) {
        let target = Target {
            api: kind.api,
            plural: kind.plural,
            namespace,
            name: String::new(),
        };
        match remote.list_meta(&target, "").await {
            Ok(items) => steps.extend(items.iter().flat_map(|item| of_object(kind, item))),
            Err(CallError::NotFound(_) | CallError::Rejected(..)) => {}
            Err(error) => return Err(format!("{}: {error}", kind.one)),
        }
    }
    Ok(steps)
}

fn namespaces(session: &ClusterSession, kind: &Kind) -> BTreeSet<String> {
    if !kind.in_app {
        return BTreeSet::from([String::new()]);
    }
    let settings = &session.settings.rancher_fip;
    BTreeSet::from([settings.app_namespace.to_string(), APP_NAMESPACE.to_owned()])
}

/// What is to be done to one object.
fn of_object(kind: &Kind, object: &Value) -> Vec<Step> {
    let meta = object.get("metadata").cloned().unwrap_or_default();
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
    let target = Target {
        api: kind.api,
        plural: kind.plural,
        namespace: text("namespace").to_owned(),
        name: text("name").to_owned(),
    };
    let place = match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    };
    let step = |does| Step {
        object: format!("{} {place}", kind.one),
        does,
        target: target.clone(),
        uid: text("uid").to_owned(),
    };
    let mut left: Vec<String> = meta
        .get("finalizers")
        .and_then(|all| serde_json::from_value(all.clone()).ok())
        .unwrap_or_default();
    let mut steps = Vec::new();
    for name in FINALIZERS {
        if let Some(at) = left.iter().position(|one| one == name) {
            steps.push(step(Does::Finalizer(name, left.clone())));
            left.remove(at);
        }
    }
    let mapping = |key: &str| meta.get(key).and_then(Value::as_object).cloned();
    let labels = mapping("labels").unwrap_or_default();
    let annotations = mapping("annotations").unwrap_or_default();
    let managed = labels.get(MANAGED_BY).and_then(Value::as_str) == Some(FIELD_MANAGER);
    // A release that fipd only took over is somebody else's.
    if kind.own && managed && !labels.contains_key(ADOPTED) {
        steps.push(step(Does::Delete));
        return steps;
    }
    steps.extend(
        marks(&labels, &annotations, managed).map(|(names, patch)| step(Does::Marks(names, patch))),
    );
    steps
}

fn marks(
    labels: &Map<String, Value>,
    annotations: &Map<String, Value>,
    managed: bool,
) -> Option<(Vec<String>, Value)> {
    let is_label =
        |key: &&String| LABELS.contains(&key.as_str()) || (managed && key.as_str() == MANAGED_BY);
    let is_note = |key: &&String| {
        ANNOTATIONS.contains(&key.as_str()) || key.starts_with(ip_rule::APPLIED_PREFIX)
    };
    let labels_off: Vec<&String> = labels.keys().filter(is_label).collect();
    let notes_off: Vec<&String> = annotations.keys().filter(is_note).collect();
    if labels_off.is_empty() && notes_off.is_empty() {
        return None;
    }
    let none = |keys: &[&String]| -> Map<String, Value> {
        keys.iter()
            .map(|key| ((*key).clone(), Value::Null))
            .collect()
    };
    let mut patch = json!({ "metadata": {
        "labels": none(&labels_off), "annotations": none(&notes_off),
    } });
    // The Service that led to fipd leads to its own pods again.
    let noted =
        |key: &str| -> Option<Value> { serde_json::from_str(annotations.get(key)?.as_str()?).ok() };
    if let Some(selector) = noted(SELECTOR) {
        patch["spec"] = json!({ "selector": selector });
        if let Some(ports) = noted(PORTS) {
            patch["spec"]["ports"] = ports;
        }
    }
    let names = labels_off.into_iter().chain(notes_off).cloned().collect();
    Some((names, patch))
}

/// The Leases that this daemon holds.
async fn leases(remote: &Remote, session: &ClusterSession, me: &str) -> Result<Vec<Step>, String> {
    let settings = &session.settings.rancher_fip;
    let places = BTreeSet::from([
        settings.lease_lock_namespace.to_string(),
        ip_rule::NAMESPACE.to_owned(),
    ]);
    let mut steps = Vec::new();
    for namespace in places {
        let mut target = Target {
            api: "apis/coordination.k8s.io/v1",
            plural: "leases",
            namespace,
            name: String::new(),
        };
        let items = match remote.list(&target, "").await {
            Ok(items) => items,
            Err(CallError::NotFound(_) | CallError::Rejected(..)) => continue,
            Err(error) => return Err(format!("Lease: {error}")),
        };
        for item in items {
            let text = |path: &str| {
                item.pointer(path)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            if text("/spec/holderIdentity") != me || me.is_empty() {
                continue;
            }
            target.name = text("/metadata/name").to_owned();
            steps.push(Step {
                object: format!("Lease {}/{}", target.namespace, target.name),
                does: Does::LetGo,
                target: target.clone(),
                uid: text("/metadata/uid").to_owned(),
            });
        }
    }
    Ok(steps)
}

/// What stays in clusters that this one manages, and what to do about it.
pub fn guests_left(rancher: &Text, guests: impl Iterator<Item = String>) -> Vec<String> {
    guests
        .map(|guest| {
            format!(
                "guest {guest} of {rancher} keeps what fipd installed there: attach the cluster again, label the guest \
                 rancher-fip=disabled in Rancher, and detach once `fipd rancher-fip guests` shows it as left"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(plural: &str, metadata: Value) -> Vec<String> {
        let kind = KINDS.iter().find(|kind| kind.plural == plural).unwrap();
        let steps = of_object(kind, &json!({ "metadata": metadata }));
        let text = |step: &Step| format!("{}: {}", step.object, step.does.text());
        steps.iter().map(text).collect()
    }

    #[test]
    fn users_objects_lose_fipds_marks_and_nothing_else() {
        let service = json!({
            "namespace": "shop", "name": "web", "uid": "u",
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup", FLOATINGIP_CLEANUP],
            "labels": { "app": "web", "rancher.k8s.binbash.org/service": "web" },
            "annotations": { "fipd.io/network": "lab", HOLDER: "x" },
        });
        assert_eq!(
            of("services", service),
            [
                format!("Service shop/web: take the finalizer {FLOATINGIP_CLEANUP} off"),
                format!("Service shop/web: take off {HOLDER}"),
            ]
        );
        assert!(of("services", json!({ "namespace": "a", "name": "b" })).is_empty());
        let pool = json!({ "namespace": "m", "name": "ip4-192.0.2.7",
            "labels": { MANAGED_BY: "fipd", FOR_SERVICE: "u" } });
        let steps = of("ipaddresspools", pool);
        assert_eq!(steps.len(), 1, "it goes on announcing: {steps:?}");
        assert!(steps[0].contains("take off") && steps[0].contains(MANAGED_BY));
    }

    #[test]
    fn what_is_fipds_alone_goes_and_what_it_took_over_stays() {
        let named = |labels: Value| json!({ "name": "x", "uid": "u", "labels": labels });
        let own = of(
            "validatingwebhookconfigurations",
            named(json!({ MANAGED_BY: "fipd" })),
        );
        assert_eq!(own, ["ValidatingWebhookConfiguration x: delete"]);
        let other = named(json!({ MANAGED_BY: "Helm" }));
        assert!(of("secrets", other).is_empty());
        let adopted = of(
            "helmcharts",
            named(json!({ MANAGED_BY: "fipd", ADOPTED: "true" })),
        );
        assert!(
            adopted.len() == 1 && adopted[0].contains("take off"),
            "{adopted:?}"
        );
    }

    #[test]
    fn the_service_of_the_original_leads_back_to_its_pods() {
        let annotations = json!({ SELECTOR: "{\"app\":\"api\"}", PORTS: "[{\"port\":8443}]" });
        let object =
            json!({ "metadata": { "namespace": "m", "name": "s", "annotations": annotations } });
        let kind = KINDS.iter().find(|kind| kind.plural == "services").unwrap();
        let steps = of_object(kind, &object);
        let [
            Step {
                does: Does::Marks(_, patch),
                ..
            },
        ] = steps.as_slice()
        else {
            panic!("{steps:?}")
        };
        assert_eq!(
            patch["spec"],
            json!({ "selector": { "app": "api" }, "ports": [{ "port": 8443 }] })
        );
        assert_eq!(patch["metadata"]["annotations"][SELECTOR], Value::Null);
    }
}
