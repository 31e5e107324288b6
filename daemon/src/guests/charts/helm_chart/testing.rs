//! HelmCharts and their Jobs for tests.

use fipd_crds::helm_chart::HelmChart;
use k8s_openapi::{
    api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp as Moment,
};
use serde_json::{Value, json};

use crate::guests::charts::helm_chart::engine_switch::UNMANAGED;

/// Written by fipd at 10 s.
pub fn chart(status: &Value) -> HelmChart {
    serde_json::from_value(json!({
        "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
        "metadata": {
            "name": "purelb", "namespace": "kube-system", "uid": "u",
            "labels": { "app.kubernetes.io/managed-by": "fipd" },
            "creationTimestamp": "1970-01-01T00:00:01Z",
            "managedFields": [
                { "manager": "fipd", "operation": "Update", "time": "1970-01-01T00:00:10Z" },
                { "manager": "helm-controller", "operation": "Update", "time": "1970-01-01T00:00:30Z" },
            ],
        },
        "spec": { "targetNamespace": "lb" }, "status": status,
    }))
    .unwrap()
}

/// One in the middle of a hand-back.
pub fn switching(off: bool, deleted: bool) -> HelmChart {
    let mut chart = chart(&json!(null));
    chart.metadata.deletion_timestamp = deleted.then_some(Time(Moment::UNIX_EPOCH));
    chart.metadata.annotations = off.then(|| [(UNMANAGED.to_owned(), "true".to_owned())].into());
    chart
}

/// One that was made at that second.
pub fn job(made: u64, status: &Value) -> Job {
    serde_json::from_value(json!({
        "metadata": {
            "name": "helm-install-purelb",
            "creationTimestamp": format!("1970-01-01T00:00:{made:02}Z"),
        },
        "status": status,
    }))
    .unwrap()
}
