//! The parameters of the specification's section 2, which the runtime passes in the environment.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    CniError, Code, Verb,
    config::{is_interface, is_name},
    verb::NEWEST,
};

/// The longest id of a container, and the longest value of the others, in bytes.
const LONGEST_ID: usize = 255;
const LONGEST: usize = 4_096;

/// What a verb needs, each as the specification allows it. What a verb does not need may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pub container_id: String,
    pub netns: String,
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// `FIPD_CNI_SPOOL`: where deletions wait, if not at [`crate::spool::SPOOL`]. fipd reads that one only.
    pub spool: Option<PathBuf>,
    /// `CNI_NETNS_OVERRIDE`: the namespace may be the plugin's own.
    pub own_namespace: bool,
}

impl Environment {
    /// Reads it through `variable`, which answers an empty text for what is not set.
    ///
    /// # Errors
    /// Code 4; what is missing is named all at once.
    pub fn read(verb: Verb, variable: impl Fn(&str) -> String) -> Result<Self, CniError> {
        let read = Self {
            container_id: variable("CNI_CONTAINERID"),
            netns: variable("CNI_NETNS"),
            ifname: variable("CNI_IFNAME"),
            args: variable("CNI_ARGS"),
            spool: Some(variable("FIPD_CNI_SPOOL"))
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            own_namespace: ["1", "true", "TRUE", "True"]
                .contains(&&*variable("CNI_NETNS_OVERRIDE")),
        };
        read.check(verb).map_err(|details| {
            CniError::new(
                NEWEST,
                Code::InvalidEnvironment,
                &format!("the environment of {verb} is not complete"),
                details,
            )
        })?;
        Ok(read)
    }

    fn check(&self, verb: Verb) -> Result<(), String> {
        let needed: &[(&str, &String)] = match verb {
            Verb::Add | Verb::Check => &[
                ("CNI_CONTAINERID", &self.container_id),
                ("CNI_NETNS", &self.netns),
                ("CNI_IFNAME", &self.ifname),
            ],
            Verb::Del => &[
                ("CNI_CONTAINERID", &self.container_id),
                ("CNI_IFNAME", &self.ifname),
            ],
            Verb::Gc | Verb::Status | Verb::Version => return Ok(()),
        };
        let missing = needed.iter().filter(|(_, value)| value.is_empty());
        let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
        if !missing.is_empty() {
            return Err(format!("required: {}", missing.join(", ")));
        }
        if !is_name(&self.container_id) || self.container_id.len() > LONGEST_ID {
            let allowed =
                "1 to 255 letters, digits, '_', '.' and '-', beginning with a letter or digit";
            return Err(format!(
                "CNI_CONTAINERID is {:?}; allowed: {allowed}",
                self.container_id
            ));
        }
        if !is_interface(&self.ifname) {
            let allowed = "1 to 15 bytes without '/', ':', '%' and spaces, and neither . nor ..";
            return Err(format!(
                "CNI_IFNAME is {:?}; allowed: {allowed}",
                self.ifname
            ));
        }
        if self.netns.len() > LONGEST {
            return Err(format!(
                "CNI_NETNS is {} bytes long; at most {LONGEST} are allowed",
                self.netns.len()
            ));
        }
        self.named_args().map(drop)
    }

    /// `CNI_ARGS` by their names.
    ///
    /// # Errors
    /// A member that is no `NAME=VALUE`, or too long a text.
    pub fn named_args(&self) -> Result<BTreeMap<&str, &str>, String> {
        named_args(&self.args)
    }
}

/// `NAME=VALUE;NAME=VALUE`; the last of a name counts.
pub fn named_args(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    if text.len() > LONGEST {
        return Err(format!(
            "CNI_ARGS is {} bytes long; at most {LONGEST} are allowed",
            text.len()
        ));
    }
    let members = text.split(';').filter(|one| !one.is_empty());
    let named = members.map(|one| {
        one.split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("CNI_ARGS has {one:?}; allowed: NAME=VALUE, separated by ';'"))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(verb: Verb, set: &[(&str, &str)]) -> Result<Environment, CniError> {
        Environment::read(verb, |name| {
            let found = set.iter().find(|(one, _)| *one == name);
            found
                .map(|(_, value)| (*value).to_owned())
                .unwrap_or_default()
        })
    }

    #[test]
    fn row_68_all_that_is_missing_is_named() {
        let error = read(Verb::Add, &[("CNI_IFNAME", "eth0")]).unwrap_err();
        assert_eq!(error.code, 4);
        assert!(
            error.details.contains("CNI_CONTAINERID, CNI_NETNS"),
            "{error}"
        );
        assert!(!error.details.contains("CNI_IFNAME"), "{error}");
        assert!(read(Verb::Gc, &[]).is_ok());
        assert!(read(Verb::Status, &[]).is_ok());
        let without = [("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0")];
        assert!(read(Verb::Del, &without).is_ok(), "row 78: an empty netns");
    }

    #[test]
    fn row_69_values_are_as_the_specification_allows_them() {
        let of = |name: &str, value: &str| {
            let mut set = vec![
                ("CNI_CONTAINERID", "c1"),
                ("CNI_NETNS", "/n"),
                ("CNI_IFNAME", "eth0"),
            ];
            set.retain(|(one, _)| *one != name);
            set.push((name, value));
            read(Verb::Add, &set)
        };
        for (name, value) in [
            ("CNI_CONTAINERID", "a b"),
            ("CNI_CONTAINERID", "a/b"),
            ("CNI_CONTAINERID", "-a"),
            ("CNI_IFNAME", "."),
            ("CNI_IFNAME", ".."),
            ("CNI_IFNAME", "eth0:1"),
            ("CNI_IFNAME", "a-name-that-is-too-long"),
            ("CNI_ARGS", "K8S_POD_NAME"),
            ("CNI_ARGS", "=x"),
        ] {
            let error = of(name, value).unwrap_err();
            assert_eq!(error.code, 4, "{name}={value}");
            assert!(error.details.contains(name), "{error}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(of("CNI_NETNS", &long).unwrap_err().code, 4);
        assert_eq!(of("CNI_ARGS", &long).unwrap_err().code, 4);
        let good = of(
            "CNI_ARGS",
            "IgnoreUnknown=1;K8S_POD_NAME=web-0;;K8S_POD_UID=u",
        )
        .unwrap();
        assert_eq!(good.named_args().unwrap()["K8S_POD_NAME"], "web-0");
        assert!(!good.own_namespace);
        assert!(of("CNI_NETNS_OVERRIDE", "1").unwrap().own_namespace);
    }
}
