//! One certificate authority per group of control planes, so that kubeconfigs verify TLS in the ordinary way and the fault
//! proxy can answer in a server's place.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::control_plane::SERVICE_ADDRESS;

/// A private authority that signs certificates for `127.0.0.1`, `localhost` and the Service of an API server.
pub struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl CertificateAuthority {
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "fipd testbed CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
        })
    }

    /// The authority's own certificate, what clients trust.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Writes a fresh server certificate and its key.
    pub fn write_server_pair(&self, certificate: &Path, key: &Path) -> Result<()> {
        let (signed, pair) = self.server_pair()?;
        std::fs::write(certificate, signed.pem())
            .with_context(|| format!("write {}", certificate.display()))?;
        std::fs::write(key, pair.serialize_pem())
            .with_context(|| format!("write {}", key.display()))
    }

    /// TLS settings of a server that speaks HTTP/1.1 with a fresh certificate.
    pub fn server_config(&self) -> Result<ServerConfig> {
        let (signed, pair) = self.server_pair()?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![signed.der().clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    fn server_pair(&self) -> Result<(rcgen::Certificate, KeyPair)> {
        let names = ["127.0.0.1", "localhost", SERVICE_ADDRESS].map(str::to_string);
        let mut params = CertificateParams::new(names.to_vec())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "fipd testbed server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let pair = KeyPair::generate()?;
        Ok((params.signed_by(&pair, &self.issuer)?, pair))
    }
}
