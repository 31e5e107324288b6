//! `CNI_COMMAND`, and the answer to `VERSION`, which no daemon is needed for.

use std::fmt;

use serde::{Deserialize, Serialize, de::IntoDeserializer as _};

use crate::{CniError, Code};

/// The released versions of the specification that fipd answers in, oldest first.
pub const SUPPORTED: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Versions are answered in this form when the asker's is unknown.
pub const NEWEST: &str = "1.1.0";

/// What the runtime asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
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

    /// The version of the specification that it came with, or the oldest that is supported.
    pub fn since(self) -> &'static str {
        match self {
            Self::Add | Self::Del | Self::Version => "0.3.0",
            Self::Check => "0.4.0",
            Self::Gc | Self::Status => "1.1.0",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        })
    }
}

/// The answer to `VERSION`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    pub cni_version: String,
    pub supported_versions: Vec<String>,
}

/// The part of the configuration that `VERSION` reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedVersion {
    cni_version: String,
}

/// The answer to `VERSION`, in the form asked for. Standard input may be anything: row 75 of the contract.
pub fn version(stdin: &str) -> Result<String, CniError> {
    let asked: Option<AskedVersion> = serde_json::from_str(stdin).ok();
    let known = asked.filter(|asked| SUPPORTED.contains(&&*asked.cni_version));
    let info = VersionInfo {
        cni_version: known.map_or_else(|| NEWEST.to_owned(), |asked| asked.cni_version),
        supported_versions: SUPPORTED.map(str::to_owned).to_vec(),
    };
    serde_json::to_string(&info).map_err(|error| {
        CniError::new(
            NEWEST,
            Code::IoFailure,
            "cannot write the answer",
            error.to_string(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_75_version_answers_in_the_form_asked_for_and_takes_anything() {
        let conf = r#"{"cniVersion":"1.0.0","name":"flat","type":"fipd-cni"}"#;
        let answer =
            |stdin| -> VersionInfo { serde_json::from_str(&version(stdin).unwrap()).unwrap() };
        assert_eq!(answer(conf).cni_version, "1.0.0");
        for stdin in ["", "{", "[]", r#"{"cniVersion":"9.9.9"}"#] {
            let bare = answer(stdin);
            assert_eq!(bare.cni_version, NEWEST, "{stdin}");
            assert_eq!(bare.supported_versions, SUPPORTED);
        }
    }

    #[test]
    fn row_76_an_unknown_command_is_refused_by_code() {
        for text in ["", "add", "PUT"] {
            let error = Verb::parse(text).unwrap_err();
            assert_eq!(error.code, Code::InvalidEnvironment as u32);
            assert!(error.msg.contains("CNI_COMMAND"));
        }
        for verb in [
            Verb::Add,
            Verb::Del,
            Verb::Check,
            Verb::Gc,
            Verb::Status,
            Verb::Version,
        ] {
            assert_eq!(Verb::parse(&verb.to_string()).unwrap(), verb);
        }
    }
}
