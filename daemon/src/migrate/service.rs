//! Companion Services: macvlan has `<x>-macvlan` where flat-network has `<x>-flat-network`.

use fipd_crds::{
    flat_network::names::{ATTACHMENT, COMPANION_SUFFIX, NETWORKS},
    macvlan::names::{self as macvlan, is_of_macvlan},
};
use serde_json::{Value, json};

use super::{
    attachment::{self, AttachmentEdit},
    metadata::texts,
};

/// The longest name of a Service.
const LONGEST_NAME: usize = 63;

/// Whether a Service is a companion that macvlan keeps: headless, with its suffix and its network.
pub fn is_companion(service: &Value) -> bool {
    let annotations = texts(&service["metadata"], "annotations");
    let networks = annotations
        .get(NETWORKS)
        .map(|text| attachment::convert(text));
    let is_on_macvlan = matches!(networks, Some(AttachmentEdit::Replace(_)));
    is_on_macvlan && service["spec"]["clusterIP"] == "None" && served_name(service).is_some()
}

/// The name of the Service whose companion this is.
fn served_name(service: &Value) -> Option<&str> {
    let name = service["metadata"]["name"].as_str()?;
    let served = name.strip_suffix(macvlan::COMPANION_SUFFIX)?;
    Some(served).filter(|served| !served.is_empty())
}

/// The companion of flat-network beside one of macvlan. It has the same owners, and goes with them.
///
/// # Errors
/// No Service can have its name.
pub fn convert(service: &Value) -> Result<Value, String> {
    let name = format!(
        "{}{COMPANION_SUFFIX}",
        served_name(service).unwrap_or_default()
    );
    if name.len() > LONGEST_NAME {
        return Err(format!(
            "metadata.name: {name:?} is not allowed: at most {LONGEST_NAME} characters are; give the Service a shorter name"
        ));
    }
    let old = &service["spec"];
    let mut new = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": service["metadata"]["namespace"],
            "annotations": { NETWORKS: ATTACHMENT },
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "clusterIPs": ["None"],
            "selector": old["selector"],
            "ports": ports(&old["ports"]),
        },
    });
    for field in ["ipFamilies", "ipFamilyPolicy", "publishNotReadyAddresses"] {
        if !old[field].is_null() {
            new["spec"][field] = old[field].clone();
        }
    }
    let owners = &service["metadata"]["ownerReferences"];
    if !owners.is_null() {
        new["metadata"]["ownerReferences"] = owners.clone();
    }
    let mut labels = texts(&service["metadata"], "labels");
    labels.retain(|label, _| !is_of_macvlan(label));
    if !labels.is_empty() {
        new["metadata"]["labels"] = json!(labels);
    }
    Ok(new)
}

/// The same, without ports of nodes.
fn ports(ports: &Value) -> Vec<Value> {
    let mut ports = ports.as_array().cloned().unwrap_or_default();
    for port in &mut ports {
        if let Some(port) = port.as_object_mut() {
            port.remove("nodePort");
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    fn companion() -> Value {
        json!({
            "metadata": {
                "name": "web-macvlan", "namespace": "shop", "uid": "u",
                "annotations": { "k8s.v1.cni.cncf.io/networks": "static-macvlan-cni-attach" },
                "labels": { "team": "net", "macvlan.panda.io/x": "y" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "w" }],
            },
            "spec": {
                "clusterIP": "None", "clusterIPs": ["None"], "type": "ClusterIP", "ipFamilies": ["IPv4"],
                "selector": { "app": "web" },
                "ports": [{ "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP", "nodePort": 30080 }],
            },
        })
    }

    #[test]
    fn a_companion_is_made_beside_the_old_one() {
        let old = companion();
        assert!(is_companion(&old));
        assert_eq!(
            convert(&old).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": "web-flat-network", "namespace": "shop",
                    "annotations": { "k8s.v1.cni.cncf.io/networks": "rancher-flat-network" },
                    "labels": { "team": "net" },
                    "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "w" }],
                },
                "spec": {
                    "clusterIP": "None", "clusterIPs": ["None"], "type": "ClusterIP", "ipFamilies": ["IPv4"],
                    "selector": { "app": "web" },
                    "ports": [{ "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP" }],
                },
            })
        );
    }

    #[test]
    fn other_services_are_no_companions() {
        let with = |pointer: &str, value: Value| {
            let mut service = companion();
            *service.pointer_mut(pointer).unwrap() = value;
            service
        };
        for service in [
            with("/metadata/name", json!("web")),
            with("/metadata/name", json!("-macvlan")),
            with("/spec/clusterIP", json!("10.43.0.7")),
            with("/metadata/annotations", json!({})),
            with(
                "/metadata/annotations",
                json!({ "k8s.v1.cni.cncf.io/networks": "rancher-flat-network" }),
            ),
            Value::Null,
        ] {
            assert!(!is_companion(&service), "{service}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        let mut service = companion();
        service["metadata"]["name"] = json!(format!("{}-macvlan", "a".repeat(51)));
        let error = convert(&service).unwrap_err();
        assert!(error.contains("at most 63"), "{error}");
        service["metadata"]["name"] = json!(format!("{}-macvlan", "a".repeat(50)));
        assert!(convert(&service).is_ok());
    }
}
