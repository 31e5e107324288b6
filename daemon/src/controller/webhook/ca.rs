//! The CA by which an API server believes the certificate of fipd's webhook, found from the certificate itself.
//!
//! Without a `caBundle` an API server believes only the CAs of its own system, and a call that fails is not seen under
//! `failurePolicy: Ignore`.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::plan::certificates;

/// Why no CA is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCa {
    #[error("the file of [api] cert has no usable certificate: {0}")]
    Certificate(String),
    #[error("the webhook's URL names no host: {0:?}")]
    Host(String),
    #[error(
        "no CA is known for the certificate of [api] cert at {host:?}: neither its chain, nor Rancher's cacerts, nor the CAs of \
         this host verify it ({why}); set ca-file in [cluster.SYSTEM.webhook] to the PEM file of its CA"
    )]
    Unknown { host: String, why: String },
}

/// The CA, PEM, for the certificate chain that fipd serves at `host`; `None`: this host's system knows it, so the API server's
/// probably does. `others`: PEM texts of CAs that it may be of.
///
/// # Errors
/// None of them verifies it.
pub fn of_chain(
    chain: &[u8],
    host: &str,
    others: &[&str],
    system: &RootCertStore,
    now: UnixTime,
) -> Result<Option<String>, NoCa> {
    let unusable = |why: String| NoCa::Certificate(why);
    let ders = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
    let ders = ders.map_err(|error| unusable(error.to_string()))?;
    let (leaf, rest) = ders
        .split_first()
        .ok_or_else(|| unusable("it has no PEM certificate".to_owned()))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|_| NoCa::Host(host.to_owned()))?;
    let verify = |roots: &RootCertStore| verify(leaf, rest, &name, roots.clone(), now);
    let why = match verify(system) {
        Ok(()) => return Ok(None),
        Err(why) => why,
    };
    let text = String::from_utf8_lossy(chain);
    let pems = certificates(&text).map_err(|what| unusable(what.to_owned()))?;
    // A certificate that signs itself is its own CA.
    let own = pems.split_inclusive("-----END CERTIFICATE-----\n");
    let above: String = own.clone().skip(1).collect();
    let itself: String = own.take(1).collect();
    let others = others.iter().filter_map(|pem| certificates(pem).ok());
    for bundle in [above, itself].into_iter().chain(others) {
        let mut roots = RootCertStore::empty();
        let found = CertificateDer::pem_slice_iter(bundle.as_bytes()).filter_map(Result::ok);
        let (added, _) = roots.add_parsable_certificates(found);
        if added > 0 && verify(&roots).is_ok() {
            return Ok(Some(bundle));
        }
    }
    let host = host.to_owned();
    Err(NoCa::Unknown { host, why })
}

fn verify(
    leaf: &CertificateDer<'_>,
    rest: &[CertificateDer<'_>],
    name: &ServerName<'_>,
    roots: RootCertStore,
    now: UnixTime,
) -> Result<(), String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| error.to_string())?;
    let verified = verifier.verify_server_cert(leaf, rest, name, &[], now);
    verified.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    const HOST: &str = "fipd.example.net";

    fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = name.to_owned();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        (pem, Issuer::new(params, key))
    }

    fn leaf(of: &Issuer<'_, KeyPair>) -> String {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
        params.signed_by(&key, of).unwrap().pem()
    }

    fn found(
        chain: &str,
        host: &str,
        others: &[&str],
        system: &[&str],
    ) -> Result<Option<String>, NoCa> {
        let mut roots = RootCertStore::empty();
        for pem in system {
            let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
            roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        }
        of_chain(chain.as_bytes(), host, others, &roots, UnixTime::now())
    }

    fn same(bundle: &Result<Option<String>, NoCa>, pem: &str) -> bool {
        matches!(bundle, Ok(Some(text)) if Ok(text) == certificates(pem).as_ref())
    }

    #[test]
    fn the_ca_of_a_private_certificate_comes_from_its_chain() {
        let (ca, issuer) = authority("site");
        let chain = format!("{}{ca}", leaf(&issuer));
        assert!(same(&found(&chain, HOST, &[], &[]), &ca));
        assert_eq!(found(&chain, HOST, &[], &[&ca]), Ok(None));
    }

    #[test]
    fn a_chain_without_its_ca_takes_it_from_ranchers_cacerts() {
        let (ca, issuer) = authority("site");
        let (stranger, _) = authority("stranger");
        let chain = leaf(&issuer);
        assert!(same(&found(&chain, HOST, &["", &stranger, &ca], &[]), &ca));
    }

    #[test]
    fn a_certificate_that_signs_itself_is_its_own_ca() {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        assert!(same(&found(&pem, HOST, &[], &[]), &pem));
    }

    #[test]
    fn a_certificate_that_no_known_ca_verifies_is_an_error_with_the_next_step() {
        let (ca, issuer) = authority("site");
        let (stranger, _) = authority("stranger");
        for (chain, host) in [
            (leaf(&issuer), HOST),
            (format!("{}{stranger}", leaf(&issuer)), HOST),
            (format!("{}{ca}", leaf(&issuer)), "other.example.net"),
        ] {
            let error = found(&chain, host, &[&stranger], &[])
                .unwrap_err()
                .to_string();
            assert!(error.contains("ca-file") && error.contains(host), "{error}");
        }
        for nonsense in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n"] {
            let error = found(nonsense, HOST, &[], &[]).unwrap_err();
            assert!(matches!(error, NoCa::Certificate(_)), "{error}");
        }
    }
}
