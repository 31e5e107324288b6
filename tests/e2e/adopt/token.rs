//! Tokens as the original API server signs them, and who trusts whose certificate.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use rustls::sign::SigningKey;
use serde_json::{Value, json};

/// Panics unless the certificate at this port is of that authority and has this name.
pub async fn trusted(authority: &[u8], port: u16, name: &str) {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.unwrap();
}

/// A token for an hour.
pub fn signed(key: &str, client: &str) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let part = |value: Value| encoded(value.to_string().as_bytes());
    let header = part(json!({ "alg": "RS256", "typ": "JWT" }));
    let body = part(json!({ "client_id": client, "iat": now, "exp": now + 3_600 }));
    let text = format!("{header}.{body}");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let key: Arc<dyn SigningKey> = any_supported_type(&key).unwrap();
    let signer = key
        .choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
        .unwrap();
    let signature = signer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", encoded(&signature))
}

/// Base64 for URLs, without padding.
fn encoded(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk
            .iter()
            .fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            let index = (number >> (18 - 6 * digit)) & 63;
            text.push(char::from(DIGITS[index as usize]));
        }
    }
    text
}
