//! A release as helm stores it in its cluster: the Secret of one revision.

use std::io::Read as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    command::{OWNER, OWNER_LABEL},
    state::{Info, Observed, category, phase},
    values::Values,
};

/// The type of such Secrets.
pub const SECRET_TYPE: &str = "helm.sh/release.v1";
/// What gzip begins with; helm did without it once.
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];
/// No release is larger. A Secret holds 1 MiB, and gzip makes a thousandth of what is always the same.
const MOST: u64 = 64 << 20;

/// So much of its words is kept.
const WORDS: usize = 300;

/// One revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub observed: Observed,
    /// Whether helm itself says that it failed: one that is superseded is history.
    pub failed: bool,
    /// How it came out, in the first of helm's words: some go on with a whole object.
    pub description: String,
}

/// As far as it counts.
#[derive(Deserialize)]
struct Payload {
    version: u64,
    info: Info,
    #[serde(default)]
    config: Value,
    chart: StoredChart,
}

/// What a revision is of.
#[derive(Deserialize)]
struct OfChart {
    chart: StoredChart,
}

/// The objects of a revision, as the chart has them. They may hold secrets.
#[derive(Deserialize)]
struct Manifest {
    manifest: String,
}

#[derive(Deserialize)]
struct StoredChart {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    version: String,
}

impl Stored {
    /// Reads the Secret of a revision.
    ///
    /// # Errors
    /// Where it holds none. What is in it is not shown: it may be secret.
    pub fn read(secret: &Value) -> Result<Self, String> {
        let name = text(secret, "/metadata/name");
        let read = Self::parse(secret);
        read.map_err(|what| format!("Secret {name:?} holds no release as helm stores it: {what}"))
    }

    fn parse(secret: &Value) -> Result<Self, String> {
        let payload: Payload = payload(text(secret, "/data/release"))?;
        let values = Values::of(&payload.config).ok_or("config is no object")?;
        let labels = secret.pointer("/metadata/labels");
        let owner = labels.and_then(|labels| labels.get(OWNER_LABEL));
        Ok(Self {
            observed: Observed {
                revision: payload.version,
                phase: phase(&payload.info).map_err(|error| error.what)?,
                chart: payload.chart.metadata.name,
                version: payload.chart.metadata.version,
                values: values.digest(),
                ours: owner.and_then(Value::as_str) == Some(OWNER),
            },
            failed: payload.info.status == "failed",
            description: payload.info.description.chars().take(WORDS).collect(),
        })
    }
}

fn text<'a>(secret: &'a Value, pointer: &str) -> &'a str {
    secret
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The name of the chart that a revision is of.
///
/// # Errors
/// The Secret holds no revision. What is in it is not shown.
pub fn chart_name(secret: &Value) -> Result<String, String> {
    let read: OfChart = payload(text(secret, "/data/release"))?;
    Ok(read.chart.metadata.name)
}

/// The objects that a revision made, as YAML documents. They may hold secrets.
///
/// # Errors
/// The Secret holds no revision. What is in it is not shown.
pub fn manifest(secret: &Value) -> Result<String, String> {
    let read: Manifest = payload(text(secret, "/data/release"))?;
    Ok(read.manifest)
}

/// Base64 of the Secret, base64 of helm, gzip, JSON.
fn payload<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let base64 = |bytes: &[u8]| STANDARD.decode(bytes).map_err(|_| "no base64".to_owned());
    let mut bytes = base64(&base64(text.as_bytes())?)?;
    if bytes.starts_with(&GZIP) {
        let mut plain = Vec::new();
        let read = GzDecoder::new(&*bytes).take(MOST).read_to_end(&mut plain);
        read.map_err(|_| "no gzip")?;
        bytes = plain;
    }
    serde_json::from_slice(&bytes).map_err(|error| category(&error))
}

#[cfg(test)]
pub mod testing {
    //! Secrets of releases.

    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};
    use serde_json::json;

    use super::*;

    /// The Secret of a revision that made these objects.
    pub fn with_manifest(manifest: &str) -> Value {
        let payload = json!({ "manifest": manifest });
        json!({ "data": { "release": encoded(&payload) } })
    }

    fn encoded(payload: &Value) -> String {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(payload.to_string().as_bytes()).unwrap();
        STANDARD.encode(STANDARD.encode(gzip.finish().unwrap()))
    }

    /// The Secret of a revision.
    pub fn secret(revision: u64, status: &str, chart: (&str, &str), config: &Value) -> Value {
        let payload = json!({
            "name": "purelb", "version": revision, "config": config, "manifest": "---",
            "info": { "status": status, "description": format!("it is {status}") },
            "chart": { "metadata": { "name": chart.0, "version": chart.1 }, "templates": [] },
        });
        json!({
            "type": SECRET_TYPE, "data": { "release": encoded(&payload) },
            "metadata": {
                "name": format!("sh.helm.release.v1.purelb.v{revision}"), "uid": format!("u-{revision}"),
                "labels": {
                    "owner": "helm", "name": "purelb", "version": revision.to_string(), "status": status,
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::state::Phase, *};

    #[test]
    fn what_helm_stores_is_read() {
        let mut secret = testing::secret(3, "failed", ("purelb", "0.14.1"), &json!({ "a": 1 }));
        let stored = Stored::read(&secret).unwrap();
        let seen = &stored.observed;
        assert_eq!((seen.revision, seen.phase), (3, Phase::Failed));
        assert_eq!((&*seen.chart, &*seen.version), ("purelb", "0.14.1"));
        assert_eq!(seen.values, Values::parse("a: 1").unwrap().digest());
        assert_eq!((seen.ours, &*stored.description), (false, "it is failed"));
        assert_eq!(chart_name(&secret).as_deref(), Ok("purelb"));
        secret["metadata"]["labels"][OWNER_LABEL] = json!(OWNER);
        assert!(Stored::read(&secret).unwrap().observed.ours);
    }

    #[test]
    fn what_is_no_release_is_told_without_what_is_in_it() {
        let with = |release: String| {
            let secret = json!({ "metadata": { "name": "s" }, "data": { "release": release } });
            Stored::read(&secret).unwrap_err()
        };
        let twice = |text: &str| STANDARD.encode(STANDARD.encode(text));
        assert!(with("?".into()).contains("no base64"));
        let odd = with(twice(r#"{"version":1,"info":"geheim"}"#));
        assert!(odd.contains("\"s\"") && !odd.contains("geheim"), "{odd}");
        let odd = json!({ "data": { "release": twice(r#"{"chart":"geheim"}"#) } });
        let odd = chart_name(&odd).unwrap_err();
        assert!(
            odd.contains("error in line") && !odd.contains("geheim"),
            "{odd}"
        );
        let said = with(STANDARD.encode(STANDARD.encode([0x1f, 0x8b, 0x08, 7])));
        assert!(said.contains("no gzip"), "{said}");
    }
}
