//! `[[webhook]]`: who is told what the audit log notes.

use std::{
    collections::BTreeSet,
    ops::Range,
    path::{Path, PathBuf},
};

use fipd_core::Text;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::{checked::checked, error::shown, event_names, place::place};

/// A receiver of events.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Hook {
    /// Names it in messages, metrics and for the place where it goes on; small letters, digits and `-`.
    pub name: HookName,
    /// Where events are sent to.
    pub url: HookUrl,
    /// File with the secret that events are signed with: `whsec_` and Base64, or at least 24 bytes of text. Not readable by
    /// everybody.
    pub secret_file: PathBuf,
    /// What is told: names such as `lease.allocated`, or all of a kind as `lease.*`.
    #[serde(default = "Events::of_leases")]
    pub events: Events,
    /// Only what is of these pools; empty: of all.
    #[serde(default)]
    pub pools: BTreeSet<Text>,
    /// Only what is of these networks; empty: of all.
    #[serde(default)]
    pub networks: BTreeSet<Text>,
    /// PEM file of CAs that are trusted beside the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

/// 1 to 40 of small letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct HookName(pub Text);

/// `https://HOST[:PORT][/PATH][?QUERY]`, or `http://` for a receiver on the same host or behind a proxy there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct HookUrl(#[schemars(with = "String")] pub http::Uri);

/// Names of events and kinds of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<String>")]
pub struct Events(BTreeSet<String>);

impl Events {
    fn of_leases() -> Self {
        Self(BTreeSet::from(["lease.*".to_owned()]))
    }

    /// Whether an event of that name is told.
    pub fn have(&self, name: &str) -> bool {
        let kind = name.split_once('.').map_or(name, |(kind, _)| kind);
        self.0.contains(name) || self.0.contains(&format!("{kind}.*"))
    }

    /// As they are written.
    pub fn words(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}

checked!(HookName(String), |text| {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match (1..=40).contains(&text.len()) && text.chars().all(plain) {
        true => Ok(text.into()),
        false => Err(format!(
            "[[webhook]] name = {text:?}: allowed are 1 to 40 of small letters, digits and '-'"
        )),
    }
});

checked!(HookUrl(String), |text| {
    let uri = text.parse::<http::Uri>().ok();
    let fine = |uri: &http::Uri| {
        let scheme = matches!(uri.scheme_str(), Some("https" | "http"));
        let user = uri
            .authority()
            .is_some_and(|one| one.as_str().contains('@'));
        scheme && !user && uri.host().is_some_and(|host| !host.is_empty())
    };
    uri.filter(fine).ok_or_else(|| {
        let shown = shown(&text);
        format!("[[webhook]] url = {shown:?}: allowed is https://HOST[:PORT][/PATH], or http:// where nobody listens in")
    })
});

checked!(Events(Vec<String>), |words| {
    let known = |word: &String| {
        let kind = word.strip_suffix(".*");
        event_names::NAMES.iter().any(|name| match kind {
            Some(kind) => name.split_once('.').is_some_and(|(of, _)| of == kind),
            None => name == word,
        })
    };
    if words.is_empty() {
        return Err("[[webhook]] events = []: name some, or leave it out for lease.*".into());
    }
    match words.iter().find(|word| !known(word)) {
        Some(word) => Err(format!(
            "[[webhook]] events: {word:?} is unknown; allowed are {}, and kinds such as lease.*",
            event_names::NAMES.join(", ")
        )),
        None => Ok(words.into_iter().collect()),
    }
});

impl Hook {
    pub(super) fn resolve_paths(&mut self, base: &Path) {
        self.secret_file = place(base, &self.secret_file);
        self.ca_file = self.ca_file.take().map(|path| place(base, &path));
    }
}

/// That each has a name of its own.
pub(super) fn check(hooks: &[Spanned<Hook>]) -> Result<(), (Range<usize>, String)> {
    let mut names = BTreeSet::new();
    for hook in hooks {
        let name = &hook.get_ref().name;
        if !names.insert(name) {
            let what = format!(
                "[[webhook]] name = {:?} is taken by another [[webhook]]; give each its own",
                name.0
            );
            return Err((hook.span(), what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: &str) -> Result<Hook, String> {
        let text =
            format!("name = \"ops\"\nurl = \"https://a.example/x\"\nsecret-file = \"s\"\n{more}");
        toml::from_str(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_hook_without_more_is_told_of_leases() {
        let hook = read("").unwrap();
        assert!(hook.events.have("lease.allocated") && !hook.events.have("pool.created"));
        let hook = read("events = [\"pool.*\", \"lease.released\"]").unwrap();
        assert!(hook.events.have("pool.created") && hook.events.have("lease.released"));
        assert!(!hook.events.have("lease.allocated"));
    }

    #[test]
    fn mistakes_say_what_is_allowed() {
        for (more, said) in [
            ("events = []", "leave it out"),
            ("events = [\"lease.eaten\"]", "lease.allocated"),
            ("events = [\"*\"]", "lease.*"),
            ("colour = 1", "unknown field"),
        ] {
            let error = read(more).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        for url in ["ftp://a", "a.example", "https://me:x@a.example", "https://"] {
            assert!(HookUrl::try_from(url.to_owned()).is_err(), "{url}");
        }
        let error = HookUrl::try_from("https://me:hunter2@a.example/hunter2".to_owned());
        let error = error.unwrap_err();
        assert!(
            error.contains("https://a.example") && !error.contains("hunter2"),
            "{error}"
        );
        for name in ["", "Ops", "a/b", "..", &"x".repeat(41)] {
            assert!(HookName::try_from(name.to_owned()).is_err(), "{name}");
        }
    }
}
