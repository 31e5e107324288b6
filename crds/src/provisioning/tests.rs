use serde_json::{Value, json};

use super::*;

fn cluster(fields: &Value) -> Cluster {
    let mut object = json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "guest", "namespace": "fleet-default"},
    });
    object
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_harvester_guest_names_its_credential_and_machines() {
    let found = cluster(&json!({
        "spec": {
            "cloudCredentialSecretName": "cattle-global-data:cc-abcde",
            "kubernetesVersion": "v1.33.4+rke2r1",
            "rkeConfig": {"machinePools": [
                {"name": "workers", "workerRole": true, "quantity": 3, "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc-w"}},
                {"name": "masters", "controlPlaneRole": true, "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc-m"}},
            ]},
        },
        "status": {"clusterName": "c-m-4x2bq", "ready": true},
    }));
    assert_eq!(
        found.cloud_credential(),
        Some(("cattle-global-data", "cc-abcde"))
    );
    assert_eq!(found.management_id(), Some("c-m-4x2bq"));
    let control_plane = found
        .machine_pools()
        .iter()
        .find(|pool| pool.control_plane_role)
        .unwrap();
    let reference = control_plane.machine_config_ref.as_ref().unwrap();
    assert_eq!(
        (reference.kind.as_str(), reference.name.as_str()),
        ("HarvesterConfig", "nc-m")
    );
}

#[test]
fn imported_and_malformed_clusters_decode_to_nothing() {
    let odd = [
        json!({}),
        json!({"spec": null}),
        json!({"spec": {}, "status": {}}),
        json!({"spec": {"rkeConfig": "text", "cloudCredentialSecretName": 7}, "status": {"clusterName": null}}),
        json!({"spec": {"rkeConfig": {"machinePools": {}}, "cloudCredentialSecretName": "no-namespace"}}),
        json!({"spec": {"cloudCredentialSecretName": ":name"}}),
    ];
    for fields in odd {
        let found = cluster(&fields);
        assert_eq!(found.machine_pools(), [], "{fields}");
        assert_eq!(found.cloud_credential(), None, "{fields}");
        assert_eq!(found.management_id(), None, "{fields}");
    }
}
