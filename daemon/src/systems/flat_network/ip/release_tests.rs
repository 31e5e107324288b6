use fipd_core::System;
use serde_json::{Value, json};

use super::*;
use crate::{
    clock,
    clusters::{ClusterSession, testing},
    controller::{client::testing::serving, context::Context, events::Events},
    ipam::Ipam,
    systems::flat_network::settings::PodLimit,
};

const LIMIT: Duration = Duration::from_secs(30);

/// Pod `ns/a` is to end at once, on a node that does not answer.
fn answer(path: &str) -> (u16, Value) {
    match path {
        "/api/v1/namespaces/ns/pods/a" => {
            let meta = json!({
                "namespace": "ns", "name": "a", "uid": "p", "deletionTimestamp": "2024-01-01T00:00:00Z",
            });
            let spec = json!({ "nodeName": "n1", "containers": [] });
            (200, json!({ "metadata": meta, "spec": spec }))
        }
        "/api/v1/nodes/n1" => {
            let ready = json!({ "type": "Ready", "status": "Unknown" });
            let status = json!({ "conditions": [ready] });
            (
                200,
                json!({ "metadata": { "name": "n1" }, "status": status }),
            )
        }
        _ => (404, json!("none")),
    }
}

fn controller(session: &ClusterSession) -> Arc<FlatIpController> {
    let site = Arc::new(Site::new(session.clone(), System::flat_network()));
    let quiet = || std::future::ready(());
    let events = Events::start(session.recorder.clone(), site.cancel(), quiet);
    let context = Context::of_site(FLAT_IP, &site, &Arc::new(events), &Objects::new());
    let settings = FlatNetworkSettings {
        dead_node_limit: PodLimit(Some(LIMIT)),
        ..FlatNetworkSettings::default()
    };
    FlatIpController::new(context, FlatIps::new(&settings, &Objects::new()))
}

/// A workload names its address.
fn address() -> FlatIpView {
    let object = json!({
        "apiVersion": "flatnetwork.pandaria.io/v1", "kind": "FlatNetworkIP",
        "metadata": {
            "namespace": "ns", "name": "a", "uid": "i", "annotations": { WORKLOAD: "Deployment/web" },
        },
        "spec": { "subnet": "net", "addrs": ["10.0.0.5"], "podId": "p" },
    });
    FlatIpView::of(serde_json::from_value(object).expect("an object"))
}

/// The next try after a failed or delayed step would wait for the whole limit again.
#[tokio::test]
async fn a_pod_that_was_found_lost_stays_so_until_its_address_is_released() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
    let (remote, _) = serving(answer);
    let session = testing::session(remote.client(), &ipam).await;
    let ips = controller(&session);
    let (key, ip) = (Key::new("ns", "a"), address());
    let look = async || {
        let next = FlatIps::before_release(&ips, &key, &ip).await;
        next.expect("an answer")
    };
    tokio::time::pause();
    assert_eq!(look().await, Some(Next::After(LOOK_AGAIN)));
    tokio::time::advance(LIMIT).await;
    for _ in 0..2 {
        let waits = Some(Next::After(SOON));
        assert_eq!(look().await, waits, "for the workloads to be known");
    }
    // The next FlatNetworkIP of the name.
    FlatIps::absent(&ips, &key).await.expect("an answer");
    assert_eq!(look().await, Some(Next::After(LOOK_AGAIN)));
}
