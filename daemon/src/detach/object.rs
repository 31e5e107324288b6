//! What is to be done to one object, by its metadata. Pure.

use fipd_crds::labels::{ADOPTED, FIELD_MANAGER, MANAGED_BY};
use serde_json::{Map, Value, json};

use super::{
    Does, Step,
    leaving::{Leftover, Marks},
};

/// What is to be done to one object.
pub fn steps(kind: &Leftover, object: &Value, of_fipd: &Marks) -> Vec<Step> {
    let meta = object.get("metadata").cloned().unwrap_or_default();
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
    let target = kind.kind.named(text("namespace"), text("name"));
    let place = match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    };
    let step = |does| Step {
        object: format!("{} {place}", kind.kind.kind),
        does,
        target: target.clone(),
        uid: text("uid").to_owned(),
    };
    let mut left: Vec<String> = meta
        .get("finalizers")
        .and_then(|all| serde_json::from_value(all.clone()).ok())
        .unwrap_or_default();
    let mut steps = Vec::new();
    for name in &of_fipd.finalizers {
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
    let own = kind.own && managed && !labels.contains_key(ADOPTED);
    if own || (kind.goes)(&meta) {
        steps.push(step(Does::Delete));
        return steps;
    }
    let off = marks(&labels, &annotations, managed, of_fipd);
    steps.extend(off.map(|(names, mut patch)| {
        let restored = (kind.restore)(&annotations);
        if let (Some(Value::Object(more)), Some(patch)) = (restored, patch.as_object_mut()) {
            patch.extend(more);
        }
        step(Does::Marks(names, patch))
    }));
    steps
}

fn marks(
    labels: &Map<String, Value>,
    annotations: &Map<String, Value>,
    managed: bool,
    of_fipd: &Marks,
) -> Option<(Vec<String>, Value)> {
    let is_label = |key: &&String| {
        of_fipd.labels.contains(&key.as_str()) || (managed && key.as_str() == MANAGED_BY)
    };
    let is_note = |key: &&String| {
        let begins = |prefix: &&str| key.starts_with(prefix);
        of_fipd.annotations.contains(&key.as_str()) || of_fipd.prefixes.iter().any(begins)
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
    let patch = json!({ "metadata": {
        "labels": none(&labels_off), "annotations": none(&notes_off),
    } });
    let names = labels_off.into_iter().chain(notes_off).cloned().collect();
    Some((names, patch))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;
    use crate::{
        detach::tests::{leaving, leftover},
        systems::rancher_fip::{
            api_service::plan::{PORTS_BEFORE as PORTS, TAKEN_OFF as SELECTOR},
            names::FOR_SERVICE,
        },
    };
    use fipd_crds::labels::{FLOATINGIP_CLEANUP, HOLDER};

    fn of(plural: &str, metadata: Value) -> Vec<String> {
        let object = json!({ "metadata": metadata });
        let steps = steps(leftover(plural), &object, &Marks::of(&leaving()));
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

    /// The finalizers among the constants of `crds/src`, by their names or by what is said of them.
    fn finalizers() -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(path).unwrap();
                let mut about = "";
                for part in text.split("pub const ") {
                    let (declared, after) = part.split_once(";\n").unwrap_or_default();
                    let name = declared.split(':').next().unwrap_or_default();
                    let is_named = name.contains("FINALIZER") || name.ends_with("_CLEANUP");
                    if is_named || about.contains("/// Finalizer ") {
                        found.extend(declared.split('"').nth(1).map(str::to_owned));
                    }
                    about = after.rsplit(";\n").next().unwrap_or_default();
                }
            }
        }
        found
    }

    #[test]
    fn every_finalizer_of_fipd_goes_also_from_what_is_being_deleted() {
        let named = finalizers();
        let marks: BTreeSet<_> = Marks::of(&leaving()).finalizers.into_iter().collect();
        let both: BTreeSet<_> = named.iter().map(String::as_str).collect();
        assert_eq!(both, marks, "marks of a system are what is in crds/src");
        let object = json!({
            "namespace": "c-m-a", "name": "fip", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": named,
        });
        assert_eq!(of("floatingips", object).len(), named.len());
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
        let steps = steps(leftover("services"), &object, &Marks::of(&leaving()));
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
