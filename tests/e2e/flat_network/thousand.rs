//! As many pods as a large subnet has addresses, played by kwok.

use std::collections::BTreeSet;

use fipd_tests::flat_network::{FlatObjects, PodCluster};
use fipd_tests::testbed::{ControlPlaneOptions, Fipd, Kwok, SharedClusters};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

use super::*;

const NAMESPACE: &str = "crowd";
const PODS: usize = 1_000;
/// Pods that are created or deleted at once.
const CREATORS: usize = 16;
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// For a thousand pods beside other suites.
const PATIENCE: Duration = Duration::from_secs(300);

/// Defects 3 and 6 of g.1, by the thousand: pods are deleted and made again three times while deletes still drain, and fipd is killed
/// midway. All get an address, none has another's, and none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_3_6_a_thousand_pods_fill_a_subnet_of_a_thousand_three_times() {
    let options = ControlPlaneOptions {
        scheduler: true,
        ..ControlPlaneOptions::default()
    };
    let cluster = PodCluster::with(NAMESPACE, options).await.unwrap();
    let nodes = ["node-1", "node-2"];
    let _kwok = Kwok::start(&cluster.0, &nodes).await.unwrap();
    cluster.make_namespace(NAMESPACE).await.unwrap();
    let objects = cluster.objects().await.unwrap();
    let mut fipd = cluster.prepare_fipd("").await.unwrap();
    fipd.restart().await.unwrap();
    fipd.wait_ready(DEADLINE).await.unwrap();
    let range = json!({ "from": "10.220.0.1", "to": "10.220.3.232" });
    let rest = json!({ "vlan": 220, "ranges": [range] });
    let subnet = objects.subnet(NAMESPACE, "10.220.0.0/16", rest);
    subnet.await.unwrap();
    let pods: Api<Pod> = Api::namespaced(objects.client.clone(), NAMESPACE);
    for round in 0..3 {
        make_pods(&objects, round).await;
        if round == 1 {
            fipd.kill9().unwrap();
            fipd.restart().await.unwrap();
        }
        let what = format!("each pod of round {round} has an address");
        let settled = wait_until(&what, PATIENCE, || async {
            // A look at all of them is not cheap.
            tokio::time::sleep(PAUSE).await;
            let seen = served(&objects, &pods).await?;
            anyhow::ensure!(seen.len() == PODS, "{} have one", seen.len());
            Ok(seen)
        });
        let addresses = settled
            .await
            .unwrap_or_else(|missed| panic!("{missed}\n{}", fipd.log_tail()));
        assert_eq!(leases(&fipd).await, addresses, "round {round}");
        delete_pods(&objects, round).await;
    }
    let gone = wait_until("all addresses are gone", PATIENCE, || async {
        let left = objects.names(IP, NAMESPACE).await?.len();
        anyhow::ensure!(left == 0, "{left} are left");
        Ok(())
    });
    gone.await.unwrap();
    // What is released is so before its object is gone.
    assert_eq!(leases(&fipd).await, BTreeSet::new());
}

async fn make_pods(objects: &FlatObjects, round: usize) {
    for_pods(round, async |path| {
        let made = objects.pod(&path, NAMESPACE, "auto", json!({}));
        made.await.unwrap();
    })
    .await;
}

/// One by one: an API server that has to delete a thousand by one request may answer too late.
async fn delete_pods(objects: &FlatObjects, round: usize) {
    for_pods(round, async |path| {
        objects.delete("Pod", &path).await.unwrap();
    })
    .await;
}

/// Does it for each pod of a round, some at once.
async fn for_pods(round: usize, work: impl AsyncFn(String)) {
    let all = (0..PODS).map(|number| work(format!("{NAMESPACE}/p-{round}-{number}")));
    stream::iter(all)
        .for_each_concurrent(CREATORS, |done| done)
        .await;
}

/// The addresses of all running pods, each shown to one pod alone.
async fn served(objects: &FlatObjects, pods: &Api<Pod>) -> anyhow::Result<BTreeSet<String>> {
    let living = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        pod.metadata.deletion_timestamp.is_none() && phase.as_deref() == Some("Running")
    };
    let running = pods.list(&ListParams::default()).await?;
    let running = running.items.into_iter().filter(living);
    let running: BTreeSet<_> = running.filter_map(|pod| pod.metadata.uid).collect();
    let mut seen = BTreeSet::new();
    let (ips, all) = (objects.of(IP, NAMESPACE), ListParams::default());
    for ip in ips.list(&all).await? {
        let text = |path: &str| ip.data.pointer(path).and_then(Value::as_str);
        let (Some(pod), Some(address)) = (text("/spec/podId"), text("/status/addr")) else {
            continue;
        };
        if running.contains(pod) && ip.metadata.deletion_timestamp.is_none() {
            assert!(seen.insert(address.to_owned()), "{address} is shown twice");
        }
    }
    Ok(seen)
}

/// Every leased address.
async fn leases(fipd: &Fipd) -> BTreeSet<String> {
    let listed = fipd.cli(["lease", "list", "-o", "json", "--limit", "1000"]);
    let listed = listed.await.unwrap().json().unwrap();
    let leases = listed["leases"].as_array().into_iter().flatten();
    let addresses = leases.map(|lease| lease["address"].as_str().unwrap().to_owned());
    addresses.collect()
}
