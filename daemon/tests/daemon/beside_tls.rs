//! Where stand-ins answer over TLS.

use std::sync::Arc;

use axum_server::tls_rustls::RustlsConfig;
use rcgen::{CertifiedKey, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// A stand-in that answers on a thread of its own until the test's process ends.
pub fn serve_beside_over_tls(
    listener: std::net::TcpListener,
    router: axum::Router,
    tls: RustlsConfig,
) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let server = axum_server::from_tcp_rustls(listener, tls).unwrap();
            server.serve(router.into_make_service()).await.unwrap();
        });
    });
}

/// What a server shows that has this certificate.
pub fn showing(made: &CertifiedKey<KeyPair>) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap();
    let key = made.signing_key.serialize_pem();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}
