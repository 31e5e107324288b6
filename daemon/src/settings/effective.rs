//! What a daemon runs with, key by key, and who said so; for people to look at.
//!
//! The defaults are those that the example file says, which a test of this crate holds to be the defaults.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use fipd_core::{Timestamp, words};
use parking_lot::Mutex;
use serde::Serialize;
use toml::Value;

use super::Settings;
use crate::config::{LIVE, reference::EXAMPLE};

/// Parts of keys whose values are nobody's business, unless they are the name of a file.
const SECRET: [&str; 3] = ["secret", "password", "token"];

/// Values by key, as they would be written.
pub type Keys = BTreeMap<String, String>;

words! {
    /// When a change of the file counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum Taken {
        AtOnce = "at once",
        AtStart = "at the next start",
    }
}

words! {
    /// Who said what a key is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum ValueOrigin {
        Default = "default",
        File = "file",
        Environment = "environment",
        CommandLine = "command line",
    }
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub key: String,
    pub value: String,
    pub origin: ValueOrigin,
    pub taken: Taken,
    /// What the file says by now, where that does not count yet.
    pub pending: Option<String>,
}

/// What a daemon was started with.
#[derive(Debug, Default)]
pub struct Effective {
    pub started: Timestamp,
    pub file: Option<PathBuf>,
    pub data_dir: PathBuf,
    pub socket: PathBuf,
    in_file: Keys,
    /// What the file said when it could be used last.
    good: Mutex<Option<Keys>>,
    given: Vec<(&'static str, String, ValueOrigin)>,
}

impl Effective {
    /// As of this start.
    pub fn new(settings: &Settings, started: Timestamp) -> Self {
        let file = settings.config_file.as_ref();
        let file = file.map(|file| file.path().to_owned());
        let in_file = file.as_deref().and_then(read);
        let arguments: Vec<_> = std::env::args().collect();
        Self {
            started,
            data_dir: settings.data_dir.clone(),
            socket: settings.socket.clone(),
            in_file: in_file.unwrap_or_default(),
            good: Mutex::default(),
            given: given(settings, &arguments),
            file,
        }
    }

    /// All keys by name. Where the file as it is now cannot be used, what it said before counts. Blocks on the file.
    pub fn now(&self, usable: bool) -> Vec<Setting> {
        let read = self.file.as_deref().filter(|_| usable).and_then(read);
        let mut good = self.good.lock();
        if read.is_some() {
            *good = read;
        }
        self.all(good.as_ref().unwrap_or(&self.in_file))
    }

    /// `now`: what the file says by now.
    fn all(&self, now: &Keys) -> Vec<Setting> {
        let mut all: BTreeMap<String, Setting> = BTreeMap::new();
        let defaults = keys(EXAMPLE).unwrap_or_default();
        let plain = |(key, value): (&String, &String), origin| Setting {
            key: key.clone(),
            value: value.clone(),
            origin,
            taken: taken(key),
            pending: None,
        };
        for default in &defaults {
            all.insert(default.0.clone(), plain(default, ValueOrigin::Default));
        }
        // Other files than these are read by nobody before the next start.
        let counts = |key: &str| taken(key) == Taken::AtOnce;
        let before = self.in_file.iter().filter(|(key, _)| !counts(key));
        let since = now.iter().filter(|(key, _)| counts(key));
        for said in before.chain(since) {
            all.insert(said.0.clone(), plain(said, ValueOrigin::File));
        }
        for (key, value, origin) in &self.given {
            let given = plain((&(*key).to_owned(), value), *origin);
            all.insert((*key).to_owned(), given);
        }
        for setting in all.values_mut() {
            let then = self.in_file.get(&setting.key);
            let later = now.get(&setting.key);
            if setting.taken != Taken::AtOnce && then != later {
                let default = defaults.get(&setting.key);
                let later = later.or(default).map_or("left out", String::as_str);
                setting.pending = Some(later.to_owned());
            }
        }
        // Keys that nobody said at the start and the file has by now.
        for new in now
            .iter()
            .filter(|(key, _)| !all.contains_key(*key))
            .collect::<Vec<_>>()
        {
            let setting = Setting {
                value: "left out".to_owned(),
                pending: Some(new.1.clone()),
                ..plain(new, ValueOrigin::Default)
            };
            all.insert(new.0.clone(), setting);
        }
        all.into_values().map(veiled).collect()
    }
}

fn taken(key: &str) -> Taken {
    let of = |part: &str| {
        let rest = key.strip_prefix(part);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    match LIVE.iter().any(|(part, _)| of(part)) {
        true => Taken::AtOnce,
        false => Taken::AtStart,
    }
}

fn veiled(setting: Setting) -> Setting {
    let last = setting.key.rsplit('.').next().unwrap_or_default();
    let secret = SECRET.iter().any(|word| last.contains(word));
    if !secret || last.ends_with("-file") {
        return setting;
    }
    let veil = || "not shown".to_owned();
    Setting {
        value: veil(),
        pending: setting.pending.map(|_| veil()),
        ..setting
    }
}

/// `None`: it cannot be read, or is no TOML.
fn read(file: &Path) -> Option<Keys> {
    keys(&std::fs::read_to_string(file).ok()?)
}

/// Values by key; entries of lists by their names: `cluster[edge-1].systems`.
fn keys(text: &str) -> Option<Keys> {
    let mut found = Keys::new();
    flatten("", &Value::Table(text.parse().ok()?), &mut found);
    Some(found)
}

fn flatten(key: &str, value: &Value, into: &mut Keys) {
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                let dot = if key.is_empty() { "" } else { "." };
                flatten(&format!("{key}{dot}{name}"), value, into);
            }
        }
        Value::Array(list) if !list.is_empty() && list.iter().all(Value::is_table) => {
            for (at, entry) in list.iter().enumerate() {
                let name = ["name", "address"]
                    .iter()
                    .find_map(|name| entry.get(name)?.as_str());
                let name = name.map_or_else(|| (at + 1).to_string(), str::to_owned);
                flatten(&format!("{key}[{name}]"), entry, into);
            }
        }
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_) => {
            into.insert(key.to_owned(), value.to_string());
        }
    }
}

/// What the command line and the environment say, over the file.
fn given(settings: &Settings, arguments: &[String]) -> Vec<(&'static str, String, ValueOrigin)> {
    let given = &settings.overrides;
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    let path = |path: &Path| quoted(&path.display().to_string());
    let all = [
        (
            "data-dir",
            "--data-dir",
            given.data_dir.as_deref().map(path),
        ),
        (
            "role",
            "--role",
            given.role.map(|role| quoted(role.as_str())),
        ),
        (
            "log-level",
            "--log-level",
            given.log_level.as_deref().map(quoted),
        ),
        (
            "compat",
            "--compat",
            given
                .compat
                .system
                .as_deref()
                .filter(|name| !name.is_empty())
                .map(quoted),
        ),
        (
            "api.listen",
            "--listen",
            given.listen.map(|at| quoted(&at.to_string())),
        ),
        (
            "api.advertise",
            "--advertise",
            given.advertise.as_deref().map(quoted),
        ),
    ];
    let origin = |flag: &str| {
        let here = |argument: &String| argument.split('=').next() == Some(flag);
        match arguments.iter().any(here) {
            true => ValueOrigin::CommandLine,
            false => ValueOrigin::Environment,
        }
    };
    let said = all.into_iter();
    let said = said.filter_map(|(key, flag, value)| Some((key, value?, origin(flag))));
    let originals = settings.compat.set.iter().map(|(key, value, by)| {
        let origin = match by.starts_with("--") {
            true => ValueOrigin::CommandLine,
            false => ValueOrigin::Environment,
        };
        (*key, value.clone(), origin)
    });
    said.chain(originals).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective(file: &str, given: Vec<(&'static str, String, ValueOrigin)>) -> Effective {
        Effective {
            in_file: keys(file).unwrap(),
            given,
            ..Effective::default()
        }
    }

    fn find<'a>(all: &'a [Setting], key: &str) -> &'a Setting {
        let found = all.iter().find(|one| one.key == key);
        found.unwrap_or_else(|| panic!("no {key} in {all:?}"))
    }

    #[test]
    fn the_command_line_is_before_the_file_and_the_file_before_the_default() {
        let listen = vec![(
            "api.listen",
            "\"[::]:1\"".to_owned(),
            ValueOrigin::CommandLine,
        )];
        let file = "[api]\nlisten = \"127.0.0.1:2\"\n[backup]\nkeep = 9\n";
        let all = effective(file, listen).all(&keys(file).unwrap());
        let of = |key| (find(&all, key).value.as_str(), find(&all, key).origin);
        assert_eq!(of("api.listen"), ("\"[::]:1\"", ValueOrigin::CommandLine));
        assert_eq!(of("backup.keep"), ("9", ValueOrigin::File));
        assert_eq!(of("backup.every"), ("\"24h\"", ValueOrigin::Default));
        assert!(all.iter().all(|one| one.pending.is_none()));
    }

    #[test]
    fn what_the_file_says_since_counts_at_once_or_waits() {
        let before = "[helm]\nat-once = 1\n[[cluster]]\nname = \"a\"\nsystems = [\"claims\"]\n";
        let now = "[history]\nkeep-days = 99\n[host]\nnode = \"n\"\n[[cluster]]\nname = \"b\"\n";
        let all = effective(before, vec![]).all(&keys(now).unwrap());
        let pending = |key| find(&all, key).pending.as_deref();
        assert_eq!(
            pending("helm.at-once"),
            Some("2"),
            "the default, from the next start on"
        );
        assert_eq!(pending("history.keep-days"), Some("99"));
        assert_eq!(
            (find(&all, "host.node").value.as_str(), pending("host.node")),
            ("left out", Some("\"n\""))
        );
        assert_eq!(pending("cluster[b].name"), None);
        assert!(all.iter().all(|one| !one.key.starts_with("cluster[a]")));
        for (key, expected) in [
            ("cluster[b].name", Taken::AtOnce),
            ("host.rules[v].table", Taken::AtOnce),
            ("host.node", Taken::AtStart),
            ("api.names", Taken::AtOnce),
            ("api.listen", Taken::AtStart),
            ("backups", Taken::AtStart),
        ] {
            assert_eq!(taken(key), expected, "{key}");
        }
    }

    #[test]
    fn secrets_are_not_shown_and_names_of_their_files_are() {
        let file = "[oidc]\nclient-secret = \"s3cret\"\nclient-secret-file = \"/run/x\"\n";
        let all =
            effective(file, vec![]).all(&keys(file.replace("s3cret", "0ther").as_str()).unwrap());
        let secret = find(&all, "oidc.client-secret");
        assert_eq!(
            (secret.value.as_str(), secret.pending.as_deref()),
            ("not shown", Some("not shown"))
        );
        assert_eq!(find(&all, "oidc.client-secret-file").value, "\"/run/x\"");
        assert!(!format!("{all:?}").contains("s3cret"));
    }

    #[test]
    fn who_said_it_is_told_from_the_flags() {
        let overrides = super::super::Overrides {
            listen: Some("127.0.0.1:1".parse().unwrap()),
            data_dir: Some("/d".into()),
            ..super::super::Overrides::default()
        };
        let settings = Settings {
            config: Default::default(),
            config_file: None,
            data_dir: "/d".into(),
            socket: "/s".into(),
            cni_socket: None,
            compat: Default::default(),
            overrides,
        };
        let arguments = ["fipd", "serve", "--listen=127.0.0.1:1"].map(str::to_owned);
        let given: Vec<_> = given(&settings, &arguments);
        let origins: Vec<_> = given
            .iter()
            .map(|(key, _, origin)| (*key, *origin))
            .collect();
        assert_eq!(
            origins,
            [
                ("data-dir", ValueOrigin::Environment),
                ("api.listen", ValueOrigin::CommandLine)
            ]
        );
    }
}
