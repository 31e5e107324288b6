use fipd_core::System;

use super::*;
use crate::{clock, clusters::testing, controller::client::testing::serving, ipam::Ipam};

fn config() -> Value {
    let config = AttachmentConfig {
        cni_version: "1.0.0".to_owned(),
        cluster_cidr: "10.42.0.0/16".to_owned(),
        service_cidr: "10.43.0.0/16".to_owned(),
        arp_policy: "arp_notify".to_owned(),
        proxy_arp: false,
        mtu: 1500,
    };
    config.to_json()
}

fn planned(found: Option<&AttachmentView>) -> AttachmentPlan {
    plan((&Key::new("", "shop"), "n"), &config(), found)
}

fn definition(config: &Value, owners: Value, labels: Value) -> AttachmentView {
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {
            "name": ATTACHMENT, "uid": "a", "resourceVersion": "7", "ownerReferences": owners, "labels": labels,
        },
        "spec": { "config": config.to_string() },
    });
    AttachmentView::of(serde_json::from_value(object).unwrap())
}

fn of_namespace(uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "name": "shop", "uid": uid })
}

/// Row 63: the configuration is that of c.1.
#[test]
fn a_namespace_gets_a_definition() {
    let AttachmentPlan::Create(body) = planned(None) else {
        panic!("it is made");
    };
    assert_eq!(
        body["metadata"]["ownerReferences"],
        json!([of_namespace("n")])
    );
    let text = body["spec"]["config"].as_str().unwrap();
    let said: Value = serde_json::from_str(text).unwrap();
    let wanted = r#"{"cniVersion":"1.0.0","type":"rancher-flat-network-cni","dns":{},
        "ipam":{"type":"static-ipam"},
        "flatNetwork":{"mtu":1500,"clusterCIDR":"10.42.0.0/16","serviceCIDR":"10.43.0.0/16",
                       "arpPolicy":"arp_notify","proxyARP":false}}"#;
    assert_eq!(said, serde_json::from_str::<Value>(wanted).unwrap());
}

#[test]
fn one_that_was_edited_is_put_right() {
    let right = definition(&config(), json!([of_namespace("n")]), json!({}));
    assert_eq!(planned(Some(&right)), AttachmentPlan::Leave);
    let mut edited = config();
    edited["flatNetwork"]["mtu"] = json!(9000);
    let edited = definition(&edited, json!([of_namespace("n")]), json!({}));
    let metadata = json!({ "uid": "a", "resourceVersion": "7" });
    let patch = json!({ "metadata": metadata, "spec": { "config": config().to_string() } });
    assert_eq!(planned(Some(&edited)), AttachmentPlan::Repair(patch));
    let former = definition(&config(), json!([of_namespace("old")]), json!({}));
    let AttachmentPlan::Repair(patch) = planned(Some(&former)) else {
        panic!("it has the wrong owner");
    };
    assert_eq!(
        patch["metadata"]["ownerReferences"],
        json!([of_namespace("n")])
    );
    assert_eq!(patch.get("spec"), None);
}

#[test]
fn one_of_somebody_else_is_left_alone() {
    let bridge = json!({ "cniVersion": "1.0.0", "type": "bridge" });
    let foreign = definition(&bridge, json!([]), json!({}));
    assert_eq!(planned(Some(&foreign)), AttachmentPlan::Foreign);
    let mut nonsense = foreign;
    nonsense.config = "nonsense".to_owned();
    assert_eq!(planned(Some(&nonsense)), AttachmentPlan::Foreign);
    let labels = json!({ "app.kubernetes.io/managed-by": "fipd" });
    for ours in [
        definition(&json!({ "type": CNI_TYPE }), json!([]), json!({})),
        definition(&bridge, json!([of_namespace("n")]), json!({})),
        definition(&bridge, json!([]), labels),
    ] {
        assert!(
            matches!(planned(Some(&ours)), AttachmentPlan::Repair(_)),
            "{ours:?}"
        );
    }
}

#[tokio::test]
async fn a_cluster_without_the_kind_says_so_until_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
    let (remote, _) = serving(|_| (404, json!("none")));
    let session = testing::session(remote.client(), &ipam).await;
    let site = Arc::new(Site::new(session.clone(), System::flat_network()));
    let quiet = || std::future::ready(());
    let events = Events::start(session.recorder.clone(), site.cancel(), quiet);
    let controller = AttachmentController {
        context: Context::new(NAMESPACE, site, remote, Arc::new(events), Objects::new()),
        attachments: Objects::new(),
        config: config(),
        served: watch::Sender::new(None),
    };
    controller.note_served(false);
    let troubles = testing::troubles(&session);
    assert!(troubles[PART].contains("install Multus"), "{troubles:?}");
    controller.note_served(true);
    assert!(testing::troubles(&session).is_empty());
}
