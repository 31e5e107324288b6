//! `CNI_COMMAND` and the answer to it.

use serde::Deserialize;

use crate::{CniError, Code, SUPPORTED, VersionInfo};

/// Versions are answered in this form when the asker's is unknown.
const NEWEST: &str = "1.1.0";

/// What the runtime asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// The part of the network configuration that every verb needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetConf {
    cni_version: String,
    #[serde(default)]
    name: String,
}

impl Verb {
    /// Reads the value of `CNI_COMMAND`.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        match text {
            "ADD" => Ok(Self::Add),
            "DEL" => Ok(Self::Del),
            "CHECK" => Ok(Self::Check),
            "GC" => Ok(Self::Gc),
            "STATUS" => Ok(Self::Status),
            "VERSION" => Ok(Self::Version),
            other => Err(CniError::new(
                NEWEST,
                Code::InvalidEnvironment,
                "CNI_COMMAND is not a verb",
                format!("{other:?}; allowed: ADD, DEL, CHECK, GC, STATUS, VERSION"),
            )),
        }
    }
}

/// What the plugin prints for `verb` with the configuration from standard input; empty where the spec wants
/// no output.
pub fn answer(verb: Verb, stdin: &str) -> Result<String, CniError> {
    if verb == Verb::Version && stdin.trim().is_empty() {
        return print(NEWEST, &VersionInfo::new(NEWEST));
    }
    let conf: NetConf = serde_json::from_str(stdin).map_err(|error| {
        CniError::new(
            NEWEST,
            Code::DecodingFailure,
            "network configuration on standard input is no JSON object with cniVersion",
            error.to_string(),
        )
    })?;
    let version = conf.cni_version.as_str();
    if verb == Verb::Version {
        let known = if SUPPORTED.contains(&version) {
            version
        } else {
            NEWEST
        };
        return print(known, &VersionInfo::new(known));
    }
    if !SUPPORTED.contains(&version) {
        let details = format!("{version:?}; supported: {}", SUPPORTED.join(", "));
        return Err(CniError::new(
            NEWEST,
            Code::IncompatibleVersion,
            "cniVersion is not supported",
            details,
        ));
    }
    match verb {
        Verb::Del | Verb::Gc | Verb::Version => Ok(String::new()),
        Verb::Add | Verb::Check | Verb::Status => Err(CniError::new(
            version,
            Code::NotAvailable,
            "fipd serves no pod network on this host",
            format!(
                "network {:?}: this version of fipd has no pod networks; use another CNI plugin",
                conf.name
            ),
        )),
    }
}

fn print(version: &str, value: &impl serde::Serialize) -> Result<String, CniError> {
    serde_json::to_string(value).map_err(|error| {
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
        let info: VersionInfo =
            serde_json::from_str(&answer(Verb::Version, CONF).unwrap()).unwrap();
        assert_eq!(info.cni_version, "1.0.0");
        assert!(info.supported_versions.contains(&"1.1.0".to_owned()));
        let bare: VersionInfo = serde_json::from_str(&answer(Verb::Version, "").unwrap()).unwrap();
        assert_eq!(bare.cni_version, NEWEST);
    }

    #[test]
    fn adding_is_refused_and_deleting_has_nothing_to_undo() {
        for verb in [Verb::Add, Verb::Check, Verb::Status] {
            let error = answer(verb, CONF).unwrap_err();
            assert_eq!((error.code, error.cni_version.as_str()), (50, "1.0.0"));
        }
        assert_eq!(answer(Verb::Del, CONF), Ok(String::new()));
        assert_eq!(answer(Verb::Gc, CONF), Ok(String::new()));
    }

    #[test]
    fn nonsense_is_refused_by_code() {
        assert_eq!(
            Verb::parse("PUT").unwrap_err().code,
            Code::InvalidEnvironment as u32
        );
        for text in ["", "[]", "{", r#"{"cniVersion":1}"#] {
            assert_eq!(
                answer(Verb::Add, text).unwrap_err().code,
                Code::DecodingFailure as u32,
                "{text}"
            );
        }
        let old = answer(Verb::Del, r#"{"cniVersion":"0.1.0"}"#).unwrap_err();
        assert_eq!(old.code, Code::IncompatibleVersion as u32);
    }
}
