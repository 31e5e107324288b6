//! Clusters that answer without end.

use std::{path::Path, sync::Arc, time::Duration};

use fipd_core::{System, Text};
use futures::{StreamExt as _, future::BoxFuture, stream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, api::ListParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    ClusterSession, ClusterState, ClusterView, Clusters, ClustersOptions, SystemRunner, adoption,
    tls_server_tests::{Body, forbidden, kube_system, serve, whole},
};
use crate::{config::Config, ipam::Ipam};

/// Longer than a busy machine takes for 32 MiB over TLS in a debug build.
const PATIENCE: Duration = Duration::from_secs(120);

/// An API server of one cluster; `hostile`: its lists never end.
fn answer(request: &Request<Incoming>, uid: &str, hostile: bool) -> Response<Body> {
    match request.uri().path() {
        "/api/v1/namespaces/kube-system" => whole(200, &kube_system(uid)),
        "/api/v1/services" if hostile => {
            let chunk = Bytes::from(vec![b' '; 64 << 10]);
            let endless = stream::repeat(chunk).map(|chunk| Ok(Frame::data(chunk)));
            Response::new(StreamBody::new(endless).boxed_unsync())
        }
        "/api/v1/services" => whole(
            200,
            &json!({ "kind": "ServiceList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] }),
        ),
        _ => forbidden(),
    }
}

/// Lists Services for as long as the session lasts, and notes by cluster how that went.
#[derive(Clone, Default)]
struct Lists(Arc<Mutex<Vec<Listed>>>);

/// The cluster, and how many there were or what failed.
type Listed = (Text, Result<usize, String>);

impl Lists {
    fn of(&self, cluster: &str) -> Vec<Result<usize, String>> {
        let noted = self.0.lock();
        let of = noted.iter().filter(|(name, _)| &**name == cluster);
        of.map(|(_, result)| result.clone()).collect()
    }
}

impl SystemRunner for Lists {
    fn run(&self, session: ClusterSession, _: System) -> BoxFuture<'static, ()> {
        let noted = Arc::clone(&self.0);
        Box::pin(async move {
            while !session.cancel.is_cancelled() {
                let api: Api<Service> = Api::all(session.client.clone());
                let params = ListParams::default();
                let listed =
                    adoption::complete_list(&session, &api, params, "list Services", Some).await;
                let result = listed.map(|all| all.len()).map_err(|err| err.to_string());
                noted.lock().push((session.name.clone(), result));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }
}

/// Waits until the view of a cluster is as wanted.
async fn wait_for_view(clusters: &Clusters, name: &str, wanted: impl Fn(&ClusterView) -> bool) {
    let mut changes = clusters.changes();
    let wait = async {
        loop {
            changes.borrow_and_update();
            if clusters.view(name).is_some_and(|view| wanted(&view)) {
                return;
            }
            changes.changed().await.unwrap();
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.unwrap_or_else(|_| panic!("{name}: {:?}", clusters.view(name)));
}

fn configuration(dir: &Path) -> Config {
    let path = dir.join("fipd.toml");
    let text = ["hostile", "good"].map(|name| {
        let kubeconfig = dir.join(name).display().to_string();
        format!("[[cluster]]\nname = {name:?}\nkubeconfig = {kubeconfig:?}\nsystems = [\"rancher-fip\"]\nsightings = \"off\"\n")
    });
    std::fs::write(&path, text.concat()).unwrap();
    Config::load(&path).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_answer_degrades_its_cluster_alone() {
    let dir = tempfile::tempdir().unwrap();
    for (name, uid, hostile) in [("hostile", "H", true), ("good", "G", false)] {
        let server = serve(move |request| answer(request, uid, hostile));
        std::fs::write(dir.path().join(name), server.await).unwrap();
    }
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(crate::clock::now)).unwrap();
    let options = ClustersOptions {
        config: configuration(dir.path()),
        ..ClustersOptions::default()
    };
    let (stop, lists) = (CancellationToken::new(), Lists::default());
    let started = Clusters::start(options, ipam, Arc::new(lists.clone()), stop.clone());
    let (clusters, registry) = started.await.unwrap();
    wait_for_view(&clusters, "hostile", |view| {
        let why = view.last_error.as_deref().unwrap_or_default();
        view.state == ClusterState::Degraded
            && why.starts_with("/api/v1/services: ")
            && why.contains("longer than 32 MiB")
    })
    .await;
    wait_for_view(&clusters, "good", |view| {
        view.state == ClusterState::Ready
            && view.last_error.is_none()
            && lists.of("good").len() >= 2
    })
    .await;
    // Before the stop, which cuts lists off.
    let (good, hostile) = (lists.of("good"), lists.of("hostile"));
    stop.cancel();
    registry.await.unwrap();
    assert!(good.iter().all(|result| *result == Ok(0)), "{good:?}");
    assert!(hostile.iter().all(Result::is_err), "{hostile:?}");
}
