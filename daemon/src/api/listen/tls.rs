//! The certificate of the TLS listener: the configured one, or one of fipd's own CA.
//!
//! The CA is made at first start and kept in `DATA_DIR/tls`; keys are readable by the owner only. The server's
//! certificate is made anew when its names change or its end is near; the CA stays, so clients keep trusting it.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use data_encoding::HEXLOWER;
use fipd_core::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde::{Deserialize, Serialize};
use x509_parser::certificate::Validity;

use crate::config::host_of;
use crate::{config::is_dns_name, foreign_file, host_name::host_name, private_file};

const CA_YEARS: i16 = 20;
const LEAF_DAYS: i32 = 390;
/// A certificate that ends sooner is replaced.
const RENEW_BEFORE_DAYS: i32 = 60;

/// Certificate chain and key as PEM.
pub struct Identity {
    pub cert: Vec<u8>,
    pub key: Vec<u8>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}: {source}", path = .path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("{path}: {reason}; remove the folder to make a new CA", path = .path.display())]
    Damaged { path: PathBuf, reason: String },
}

/// What is remembered of the certificate in the folder.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Made {
    names: BTreeSet<String>,
    /// ISO date; compares as text.
    until: String,
}

/// The names and addresses by which clients may reach the listener.
pub fn names(listen: SocketAddr, advertise: Option<&str>) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    if !listen.ip().is_unspecified() {
        names.insert(listen.ip().to_string());
    }
    if let Some(host) = host_name() {
        let host = host.to_ascii_lowercase();
        if is_dns_name(&host) {
            names.insert(host);
        }
    }
    if let Some(host) = advertise.and_then(host_of) {
        names.insert(host);
    }
    names
}

/// Reads the configured certificate.
pub fn configured(cert: &Path, key: &Path) -> Result<Identity, TlsError> {
    Ok(Identity {
        cert: read(cert)?,
        key: read(key)?,
    })
}

/// The certificate of the own CA for these names; made or renewed where needed. `today` decides about renewal.
pub fn own(
    data_dir: &Path,
    names: &BTreeSet<String>,
    today: jiff::civil::Date,
) -> Result<Identity, TlsError> {
    let dir = data_dir.join("tls");
    create_private_dir(&dir)?;
    let ca = authority(&dir, today)?;
    let horizon = days_after(today, RENEW_BEFORE_DAYS).to_string();
    let (cert, key, made) = (
        dir.join("server.crt"),
        dir.join("server.key"),
        dir.join("server.json"),
    );
    let fresh_enough = std::fs::read(&made)
        .ok()
        .and_then(|text| serde_json::from_slice::<Made>(&text).ok())
        .is_some_and(|made| made.names == *names && made.until > horizon);
    if !(fresh_enough && key.exists() && has_begun(&cert, today)) {
        let until = days_after(today, LEAF_DAYS);
        // Without its record a half-written pair is made anew.
        remove(&made)?;
        let (cert_pem, key_pem) = leaf(&ca, names, today, until)?;
        write(&key, &key_pem)?;
        write(&cert, &cert_pem)?;
        let record = Made {
            names: names.clone(),
            until: until.to_string(),
        };
        write(&made, &serde_json::to_string(&record).unwrap_or_default())?;
    }
    Ok(Identity {
        cert: read(&cert)?,
        key: read(&key)?,
    })
}

/// When the first certificate of the chain ends; `None` where it does not say in a way that is understood.
pub fn ends(chain: &[u8]) -> Option<Timestamp> {
    let seconds = first(chain, |validity| validity.not_after.timestamp())?;
    Some(Timestamp(u64::try_from(seconds).ok()?.checked_mul(1_000)?))
}

/// Of the first certificate of the chain.
fn first<T>(chain: &[u8], of: impl Fn(&Validity) -> T) -> Option<T> {
    let certificate = CertificateDer::pem_slice_iter(chain).next()?.ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&certificate).ok()?;
    Some(of(certificate.validity()))
}

/// Whether there is a certificate that does not begin in the future: the clock may have been ahead when it was made.
fn has_begun(cert: &Path, today: jiff::civil::Date) -> bool {
    compares(cert, days_after(today, 1), |validity, tomorrow| {
        validity.not_before.timestamp() < tomorrow
    })
}

/// Whether the certificate of a CA ends later than what it signs that day: one that was made under a clock that was far behind
/// does not.
fn outlasts(cert: &Path, today: jiff::civil::Date) -> bool {
    compares(cert, days_after(today, LEAF_DAYS), |validity, leaf| {
        validity.not_after.timestamp() >= leaf
    })
}

/// Whether there is a certificate whose validity fits the day's first second, as far as it is understood.
fn compares(cert: &Path, day: jiff::civil::Date, fits: impl Fn(&Validity, i64) -> bool) -> bool {
    let Ok(pem) = std::fs::read(cert) else {
        return false;
    };
    let Ok(day) = day.to_zoned(jiff::tz::TimeZone::UTC) else {
        return true;
    };
    first(&pem, |validity| fits(validity, day.timestamp().as_second())).unwrap_or(true)
}

/// Where clients find the CA certificate to trust.
pub fn ca_file(data_dir: &Path) -> PathBuf {
    data_dir.join("tls").join("ca.crt")
}

fn authority(dir: &Path, today: jiff::civil::Date) -> Result<Issuer<'static, KeyPair>, TlsError> {
    let (cert, key) = (dir.join("ca.crt"), dir.join("ca.key"));
    if cert.exists() && key.exists() {
        let good = has_begun(&cert, today) && outlasts(&cert, today);
        let pem = String::from_utf8_lossy(&read(&key)?).into_owned();
        let pair = KeyPair::from_pem(&pem).map_err(|error| TlsError::Damaged {
            path: key,
            reason: error.to_string(),
        })?;
        // An issuer is its name and its key; both are the same as when the CA was made.
        let params = ca_params(&pair, today);
        if !good {
            tracing::warn!(file = %cert.display(), "the CA's certificate is made anew, with the same key: who has a copy of the file takes the new one");
            write(&cert, &params.self_signed(&pair)?.pem())?;
        }
        return Ok(Issuer::new(params, pair));
    }
    let pair = KeyPair::generate()?;
    let params = ca_params(&pair, today);
    remove(&cert)?;
    write(&key, &pair.serialize_pem())?;
    write(&cert, &params.self_signed(&pair)?.pem())?;
    Ok(Issuer::new(params, pair))
}

/// The name holds a part of the key's digest, so that the CAs of two daemons are not mistaken for each other.
fn ca_params(pair: &KeyPair, today: jiff::civil::Date) -> CertificateParams {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(pair.public_key_raw());
    let short = HEXLOWER.encode(&digest[..4]);
    let mut params = CertificateParams::default();
    // One issuer has no number twice (RFC 5280, 4.1.2.2): one that is made anew on another day has another. Positive, as it is
    // to be.
    let dated = sha2::Sha256::new_with_prefix(pair.public_key_raw())
        .chain_update(today.to_string())
        .finalize();
    let number = dated.iter().take(16).map(|byte| byte & 0x7f);
    params.serial_number = Some(number.collect::<Vec<u8>>().into());
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("fipd CA {short}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(
        &mut params,
        today,
        today.saturating_add(jiff::Span::new().years(CA_YEARS)),
    );
    params
}

fn leaf(
    ca: &Issuer<'static, KeyPair>,
    names: &BTreeSet<String>,
    today: jiff::civil::Date,
    until: jiff::civil::Date,
) -> Result<(String, String), TlsError> {
    let pair = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "fipd");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, today, until);
    Ok((params.signed_by(&pair, ca)?.pem(), pair.serialize_pem()))
}

fn days_after(day: jiff::civil::Date, days: i32) -> jiff::civil::Date {
    day.saturating_add(jiff::Span::new().days(days))
}

fn ymd(day: jiff::civil::Date) -> (i32, u8, u8) {
    let number = |value: i8| u8::try_from(value).unwrap_or(1);
    (day.year().into(), number(day.month()), number(day.day()))
}

/// Validity from the day before `first`, for clocks that are a little behind, to `last`.
fn set_validity(params: &mut CertificateParams, first: jiff::civil::Date, last: jiff::civil::Date) {
    let (year, month, day) = ymd(days_after(first, -1));
    params.not_before = rcgen::date_time_ymd(year, month, day);
    let (year, month, day) = ymd(last);
    params.not_after = rcgen::date_time_ymd(year, month, day);
}

fn remove(path: &Path) -> Result<(), TlsError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(failed(path)(source)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> TlsError {
    let path = path.to_owned();
    |source| TlsError::File { path, source }
}

fn create_private_dir(dir: &Path) -> Result<(), TlsError> {
    private_file::create_directory(dir).map_err(failed(dir))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    foreign_file::read_now(path, foreign_file::LONGEST).map_err(failed(path))
}

fn write(path: &Path, text: &str) -> Result<(), TlsError> {
    private_file::write(path, text).map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn day(text: &str) -> jiff::civil::Date {
        text.parse().unwrap()
    }

    #[test]
    fn the_ca_stays_and_the_certificate_follows_names_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let home = names("127.0.0.1:8443".parse().unwrap(), None);
        let first = own(dir.path(), &home, day("2026-01-01")).unwrap();
        let ca = std::fs::read(ca_file(dir.path())).unwrap();
        let again = own(dir.path(), &home, day("2026-06-01")).unwrap();
        assert_eq!(first.cert, again.cert);
        let wider = names(
            "127.0.0.1:8443".parse().unwrap(),
            Some("https://fipd.example.net:8443/x"),
        );
        assert!(wider.contains("fipd.example.net"));
        let renamed = own(dir.path(), &wider, day("2026-06-01")).unwrap();
        assert_ne!(first.cert, renamed.cert);
        let renewed = own(dir.path(), &wider, day("2027-06-01")).unwrap();
        assert_ne!(renamed.cert, renewed.cert);
        assert_eq!(ca, std::fs::read(ca_file(dir.path())).unwrap());
    }

    #[test]
    fn what_was_made_under_a_clock_that_was_ahead_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let home = names("127.0.0.1:8443".parse().unwrap(), None);
        let begins = |pem: &[u8]| first(pem, |validity| validity.not_before.timestamp()).unwrap();
        let ahead = own(dir.path(), &home, day("2036-01-01")).unwrap();
        let ca = std::fs::read(ca_file(dir.path())).unwrap();
        let now = own(dir.path(), &home, day("2026-01-01")).unwrap();
        let again = std::fs::read(ca_file(dir.path())).unwrap();
        let today: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (before, after) in [(&ahead.cert, &now.cert), (&ca, &again)] {
            assert!(begins(before) > today.as_second());
            assert!(begins(after) < today.as_second());
        }
        // The same key: who trusts it goes on with it.
        let key = |pem: &[u8]| {
            let der = CertificateDer::pem_slice_iter(pem).next().unwrap().unwrap();
            let (_, found) = x509_parser::parse_x509_certificate(&der).unwrap();
            found.public_key().raw.to_vec()
        };
        assert_eq!(key(&ca), key(&again));
        // A clock that was far behind leaves nothing that has ended or is about to.
        let authority = || std::fs::read(ca_file(dir.path())).unwrap();
        own(dir.path(), &home, day("2001-01-01")).unwrap();
        let ended = authority();
        let now = own(dir.path(), &home, day("2026-01-01")).unwrap();
        let end = |pem: &[u8]| first(pem, |validity| validity.not_after.timestamp()).unwrap();
        assert!(end(&ended) < today.as_second());
        assert!(end(&authority()) >= end(&now.cert));
        assert_eq!(key(&ca), key(&authority()));
        let number = |pem: &[u8]| {
            let der = CertificateDer::pem_slice_iter(pem).next().unwrap().unwrap();
            let (_, found) = x509_parser::parse_x509_certificate(&der).unwrap();
            found.serial.clone()
        };
        assert_ne!(
            number(&ended),
            number(&authority()),
            "one issuer, one number"
        );
        // A clock that is a day behind is no reason.
        let same = own(dir.path(), &home, day("2025-12-31")).unwrap();
        assert_eq!(same.cert, now.cert);
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let home = names("127.0.0.1:8443".parse().unwrap(), None);
        let own = own(dir.path(), &home, day("2026-01-01")).unwrap();
        // 390 days later, at midnight.
        let end: jiff::Timestamp = "2027-01-26T00:00:00Z".parse().unwrap();
        let end = Timestamp(u64::try_from(end.as_millisecond()).unwrap());
        assert_eq!(ends(&own.cert), Some(end));
        // After 2049 another form of time is used.
        let far = leaf(
            &authority(&dir.path().join("tls"), day("2026-01-01")).unwrap(),
            &home,
            day("2026-01-01"),
            day("2060-02-03"),
        );
        let end: jiff::Timestamp = "2060-02-03T00:00:00Z".parse().unwrap();
        let far = ends(far.unwrap().0.as_bytes());
        assert_eq!(far.map(|end| end.0 as i64), Some(end.as_millisecond()));
        for nonsense in [
            &own.key[..],
            b"",
            b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(ends(nonsense), None);
        }
        // A serial number of 2^64 - 1 bytes, and an end in the year 10000.
        for odd in [
            "MAwwCgKI//////////8=",
            "MC8wLQIBATAAMAAwJBcNMjYwMTAxMDAwMDAwWhgTOTk5OTEyMzEyMzU5NTktMDEwMA==",
        ] {
            let pem = format!("-----BEGIN CERTIFICATE-----\n{odd}\n-----END CERTIFICATE-----\n");
            assert_eq!(ends(pem.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn keys_are_private() {
        let dir = tempfile::tempdir().unwrap();
        own(
            dir.path(),
            &names("[::1]:1".parse().unwrap(), None),
            day("2026-01-01"),
        )
        .unwrap();
        for name in ["ca.key", "server.key"] {
            let path = dir.path().join("tls").join(name);
            assert_eq!(
                std::fs::metadata(path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }
}
