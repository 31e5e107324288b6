//! Clusters that answer without end, over real connections with TLS.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fipd_core::{System, Text};
use futures::{StreamExt as _, future::BoxFuture, stream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, api::ListParams};
use parking_lot::Mutex;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    ClusterSession, ClusterState, ClusterView, Clusters, ClustersOptions, SystemRunner, adoption,
};
use crate::{config::Config, ipam::Ipam};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Longer than a busy machine takes for 32 MiB over TLS in a debug build.
const PATIENCE: Duration = Duration::from_secs(120);

/// An API server of one cluster; `hostile`: its lists never end. The text of a kubeconfig for it.
async fn serve(uid: &'static str, hostile: bool) -> String {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let ca = STANDARD.encode(made.cert.pem());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let tls = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let tls = tls.clone();
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else {
                    return;
                };
                let answer = service_fn(move |request| async move {
                    Ok::<_, Infallible>(answer(&request, uid, hostile))
                });
                let connection = http1::Builder::new();
                let _ = connection
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    format!(
        "current-context: a\n\
         clusters: [{{ name: a, cluster: {{ server: 'https://127.0.0.1:{port}', certificate-authority-data: {ca} }} }}]\n\
         users: [{{ name: a, user: {{ token: t }} }}]\n\
         contexts: [{{ name: a, context: {{ cluster: a, user: a }} }}]\n"
    )
}

fn answer(request: &Request<Incoming>, uid: &str, hostile: bool) -> Response<Body> {
    let whole = |code: u16, value: serde_json::Value| {
        let frame = Ok(Frame::data(Bytes::from(value.to_string())));
        let body = StreamBody::new(stream::iter([frame])).boxed_unsync();
        Response::builder().status(code).body(body).unwrap()
    };
    match request.uri().path() {
        "/api/v1/namespaces/kube-system" => whole(
            200,
            json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "kube-system", "uid": uid } }),
        ),
        "/api/v1/services" if hostile => {
            let chunk = Bytes::from(vec![b' '; 64 << 10]);
            let endless = stream::repeat(chunk).map(|chunk| Ok(Frame::data(chunk)));
            Response::new(StreamBody::new(endless).boxed_unsync())
        }
        "/api/v1/services" => whole(
            200,
            json!({ "kind": "ServiceList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] }),
        ),
        _ => whole(
            403,
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no" }),
        ),
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
        std::fs::write(dir.path().join(name), serve(uid, hostile).await).unwrap();
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
