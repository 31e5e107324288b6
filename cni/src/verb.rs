//! `CNI_COMMAND` and what can be said to it without a daemon.

use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::IntoDeserializer as _};

use crate::{CniError, Code};

/// The released versions of the specification that fipd answers in.
pub const SUPPORTED: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Versions are answered in this form when the asker's is unknown.
const NEWEST: &str = "1.1.0";

/// What the runtime asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// The part of the network configuration that every verb needs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetConf {
    /// One of [`SUPPORTED`].
    pub cni_version: String,
    #[serde(default)]
    pub name: String,
    /// Where the daemon listens, if not where it usually does.
    pub socket: Option<PathBuf>,
}

impl Verb {
    /// Reads the value of `CNI_COMMAND`.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        let verb: Result<Self, serde::de::value::Error> =
            Self::deserialize(text.into_deserializer());
        verb.map_err(|_| {
            CniError::new(
                NEWEST,
                Code::InvalidEnvironment,
                "CNI_COMMAND is not a verb",
                format!("{text:?}; allowed: ADD, DEL, CHECK, GC, STATUS, VERSION"),
            )
        })
    }
}

impl NetConf {
    /// Reads the configuration of a verb other than `VERSION`.
    ///
    /// # Errors
    /// No JSON object with `cniVersion`, or a version that is not spoken.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        let conf = read(text)?;
        let version = conf.cni_version.as_str();
        if SUPPORTED.contains(&version) {
            return Ok(conf);
        }
        let details = format!("{version:?}; supported: {}", SUPPORTED.join(", "));
        Err(CniError::new(
            NEWEST,
            Code::IncompatibleVersion,
            "cniVersion is not supported",
            details,
        ))
    }
}

/// The answer to `VERSION`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    pub cni_version: String,
    pub supported_versions: Vec<String>,
}

/// The answer to `VERSION`, which no daemon is needed for.
pub fn version(stdin: &str) -> Result<String, CniError> {
    if stdin.trim().is_empty() {
        return print(NEWEST);
    }
    let asked = read(stdin)?.cni_version;
    let known = SUPPORTED.contains(&asked.as_str());
    print(if known { &asked } else { NEWEST })
}

fn read(text: &str) -> Result<NetConf, CniError> {
    serde_json::from_str(text).map_err(|error| {
        CniError::new(
            NEWEST,
            Code::DecodingFailure,
            "network configuration on standard input is no JSON object with cniVersion",
            error.to_string(),
        )
    })
}

fn print(version: &str) -> Result<String, CniError> {
    let info = VersionInfo {
        cni_version: version.to_owned(),
        supported_versions: SUPPORTED.map(str::to_owned).to_vec(),
    };
    serde_json::to_string(&info).map_err(|error| {
        CniError::new(
            version,
            Code::IoFailure,
            "cannot write the answer",
            error.to_string(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = r#"{"cniVersion":"1.0.0","name":"flat","type":"fipd-cni"}"#;

    #[test]
    fn version_answers_in_the_form_asked_for() {
        let info: VersionInfo = serde_json::from_str(&version(CONF).unwrap()).unwrap();
        assert_eq!(info.cni_version, "1.0.0");
        assert!(info.supported_versions.contains(&"1.1.0".to_owned()));
        let bare: VersionInfo = serde_json::from_str(&version("").unwrap()).unwrap();
        assert_eq!(bare.cni_version, NEWEST);
    }

    #[test]
    fn nonsense_is_refused_by_code() {
        assert_eq!(
            Verb::parse("PUT").unwrap_err().code,
            Code::InvalidEnvironment as u32
        );
        for text in ["", "[]", "{", r#"{"cniVersion":1}"#] {
            assert_eq!(
                NetConf::parse(text).unwrap_err().code,
                Code::DecodingFailure as u32,
                "{text}"
            );
        }
        let old = NetConf::parse(r#"{"cniVersion":"0.1.0"}"#).unwrap_err();
        assert_eq!(old.code, Code::IncompatibleVersion as u32);
        assert_eq!(NetConf::parse(CONF).unwrap().name, "flat");
    }
}
