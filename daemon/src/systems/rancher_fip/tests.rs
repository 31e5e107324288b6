use std::convert::Infallible;

use fipd_crds::floating_ip::FloatingIP;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::{
    clock,
    clusters::testing,
    controller::{events::Events, queue},
    ipam::Ipam,
    system::testing::means,
};

const WITHIN: Duration = Duration::from_secs(5);

/// A Rancher X that has nothing. The list of clusters is answered once `open`; what was asked is noted.
fn client(open: watch::Receiver<bool>, asked: &Arc<Mutex<Vec<String>>>) -> Client {
    let asked = Arc::clone(asked);
    let serve = move |request: http::Request<Body>| {
        let uri = request.uri().clone();
        asked.lock().push(uri.to_string());
        let mut open = open.clone();
        async move {
            if uri.query().unwrap_or("").contains("watch=true") {
                std::future::pending::<()>().await;
            }
            if uri.path().ends_with("/clusters") {
                let _ = open.wait_for(|open| *open).await;
            }
            let meta = json!({ "name": "kube-system", "uid": "X", "resourceVersion": "1" });
            let body = json!({ "metadata": meta, "items": [] }).to_string();
            Ok::<_, Infallible>(http::Response::new(Body::from(body.into_bytes())))
        }
    };
    Client::new(tower::service_fn(serve), "default")
}

#[tokio::test]
async fn a_rancher_is_published_only_once_its_clusters_are_listed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
    let (open, gate) = watch::channel(false);
    let asked = Arc::default();
    let session = testing::session(client(gate, &asked), &ipam).await;
    let (cancel, seen) = (session.cancel.clone(), session.clone());
    let system = RunningRancherFip::new(&means(&ipam));
    let rancher = system.ranchers.get("x");
    let running = tokio::spawn(system.run(session));

    // It is looked whether fipd may list clusters once pools and FloatingIPs are known.
    let waits = || {
        let asked = asked.lock();
        let mut lists = asked.iter().filter(|uri| uri.contains("/clusters?"));
        lists.any(|uri| uri.ends_with("limit=1"))
    };
    let waiting = async {
        while !waits() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waiting = tokio::time::timeout(WITHIN, waiting).await;
    waiting.expect("the list of clusters is asked for");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(rancher.data().is_none(), "names of clusters are unknown");
    open.send_replace(true);
    let published = tokio::time::timeout(WITHIN, rancher.published()).await;
    published.expect("it is published");
    let data = rancher.data().expect("data");
    assert!(data.clusters.is_complete() && data.fips.is_complete());
    let counted = [("FloatingIPPools", 0), ("FloatingIPs", 0)];
    assert_eq!(seen.objects(&System::rancher_fip()), counted);
    assert_eq!(seen.objects(&System::claims()), []);
    cancel.cancel();
    running.await.expect("an end");
}

#[tokio::test]
async fn a_cluster_that_comes_later_has_its_floating_ips_looked_at_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
    let (_open, gate) = watch::channel(true);
    let session = testing::session(client(gate, &Arc::default()), &ipam).await;
    let site = Arc::new(Site::new(session, System::rancher_fip()));
    let rancher = Ranchers::default().get("x");
    let data = Data::new(
        site.id.clone(),
        Remote::new(site.session.client.clone()),
        site.cancel(),
    );
    let quiet = || std::future::ready(());
    let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
    let context = data.context(FLOATING_IP, &site, &Arc::new(events), &data.fips);
    let fips = floating_ip::controller(context, Arc::clone(&rancher), Arc::clone(&data));
    let assignee = fipd_crds::floating_ip::ServiceRef {
        service_namespace: "ns".into(),
        service_name: "web".into(),
    };
    let stock = floating_ip::observe::Fip {
        cluster: Some("c-abcde".into()),
        services: vec![assignee],
        ..floating_ip::observe::view(FloatingIP::default())
    };
    let fip = Key::new("c-abcde", "fip-abc12");
    data.stock.note(&fip, Some(&stock));
    let (sender, mut affected) = tokio::sync::mpsc::unbounded_channel();
    let queue = Arc::clone(&fips.context().queue);
    let mut tasks = JoinSet::new();
    tasks.spawn(queue::run(queue, 1, site.cancel(), move |key| {
        let sent = sender.send(key);
        async move {
            sent.expect("a listener");
            queue::Next::Done
        }
    }));
    tasks.spawn(Arc::clone(&fips).keep_track());
    tokio::task::yield_now().await;
    assert!(affected.is_empty());

    sample::connect(&rancher, "D", "c-abcde", sample::Shows::default());
    let key = tokio::time::timeout(WITHIN, affected.recv()).await;
    assert_eq!(key, Ok(Some(fip)));
    site.cancel().cancel();
    finish(tasks).await;
}
