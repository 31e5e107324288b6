//! API servers of clusters, over real connections with TLS.

use std::{convert::Infallible, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An API server that answers so, until the runtime ends. The text of a kubeconfig for it.
pub async fn serve(
    answer: impl Fn(&Request<Incoming>) -> Response<Body> + Clone + Send + Sync + 'static,
) -> String {
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
            let (tls, answer) = (tls.clone(), answer.clone());
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else {
                    return;
                };
                let answer =
                    service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(&request))));
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

/// An answer that is not streamed.
pub fn whole(code: u16, object: &Value) -> Response<Body> {
    let frame = Ok(Frame::data(Bytes::from(object.to_string())));
    let body = StreamBody::new(stream::iter([frame])).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// The object by which a cluster is told from others.
pub fn kube_system(uid: &str) -> Value {
    json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "kube-system", "uid": uid } })
}

/// What fipd may not see.
pub fn forbidden() -> Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no" });
    whole(403, &status)
}
