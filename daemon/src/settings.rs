//! What a daemon runs with: command line over environment over file over defaults.

pub mod effective;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::{
    clusters::WatchedFile,
    config::{
        self, AgentEnvironment, CompatApplied, CompatFlags, Config, ConfigError, HostRole, host_of,
    },
    store::{HostId, StoreOptions},
    systems::SYSTEMS,
};

const SYSTEM_SOCKET: &str = "/run/fipd/fipd.sock";

/// What the command line and the environment say; clap has merged the two.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub config: Option<PathBuf>,
    pub data_dir: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    pub advertise: Option<String>,
    pub socket: Option<PathBuf>,
    pub cni_socket: Option<PathBuf>,
    pub log_level: Option<String>,
    pub role: Option<HostRole>,
    pub compat: CompatFlags,
    /// As [`Settings::reading_only`].
    pub reading_only: bool,
}

/// Everything a daemon needs to know before it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: Config,
    /// The file it came from; `None` without one.
    pub config_file: Option<WatchedFile>,
    pub data_dir: PathBuf,
    pub socket: PathBuf,
    /// `None`: CNI plugins are not answered.
    pub cni_socket: Option<PathBuf>,
    /// What flags and variables of the original programs came to.
    pub compat: CompatApplied,
    pub(crate) overrides: Overrides,
}

/// What the certificate of the TLS listener follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    /// Addresses of further listeners.
    pub also: Vec<SocketAddr>,
    /// Further names by which clients reach it.
    pub more: BTreeSet<String>,
    pub advertise: Option<String>,
    /// Chain and key of the configuration; an own certificate without.
    pub files: Option<(PathBuf, PathBuf)>,
}

/// Where things are when nobody says.
struct Places {
    data_dir: PathBuf,
    socket: PathBuf,
}

impl Settings {
    /// Reads the configuration: the named file, which must exist, else the default one if there is one.
    pub fn load(overrides: Overrides) -> Result<Self, ConfigError> {
        let default = Path::new(config::DEFAULT_PATH);
        let config_file = match &overrides.config {
            Some(path) => Some(path.clone()),
            None => default.exists().then(|| default.to_owned()),
        };
        let config_file = config_file.map(WatchedFile::new);
        let mut config = match &config_file {
            Some(file) => Config::load_with(*SYSTEMS, file.path())?,
            None if overrides.role == Some(HostRole::Agent) => Config::of_agent(*SYSTEMS),
            None => Config::without_file(*SYSTEMS),
        };
        if overrides.role == Some(HostRole::Agent) {
            // A host that decides nothing has no defaults of the originals' managers.
            config.role = HostRole::Agent;
        }
        let under = config.under(&overrides.compat);
        let (config, compat) = under.map_err(ConfigError::Given)?;
        let config = in_role(config, overrides.role).map_err(ConfigError::Given)?;
        let listen = overrides.listen.unwrap_or(config.api.listen);
        let advertise = overrides.advertise.as_ref();
        let advertise = advertise.or(config.api.advertise.as_ref());
        let checked = config.check(listen, advertise.map(String::as_str));
        checked.map_err(|what| match &config_file {
            Some(file) => ConfigError::Invalid {
                path: file.path().to_owned(),
                what,
            },
            None => ConfigError::Given(what),
        })?;
        let config = match overrides.reading_only {
            true => config.reading_only(),
            false => config,
        };
        let places = places();
        let data_dir = overrides
            .data_dir
            .clone()
            .or_else(|| config.data_dir.clone());
        let socket = overrides.socket.clone().unwrap_or(places.socket);
        let usual = || (socket == Path::new(SYSTEM_SOCKET)).then(|| fipd_cni::SOCKET.into());
        Ok(Self {
            config_file,
            data_dir: data_dir.unwrap_or(places.data_dir),
            cni_socket: overrides.cni_socket.clone().or_else(usual),
            socket,
            config,
            compat,
            overrides,
        })
    }

    /// The same without what changes anything beside fipd itself: clusters, rules of the host, webhooks and backups. For a
    /// store by which another host decides.
    pub fn reading_only(mut self) -> Self {
        self.overrides.reading_only = true;
        self.config = self.config.reading_only();
        self
    }

    /// How the store is kept.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            audit_limit: self.config.audit.keep.0,
            history: self.config.history.retention(),
            backups: self.config.backup.directory.clone(),
            host: HostId::of_this_host(),
            ..StoreOptions::default()
        }
    }

    /// Reads the file again, with the same overrides.
    pub fn reload(&self) -> Result<Self, ConfigError> {
        Self::load(self.overrides.clone())
    }

    /// What is logged: a level or directives.
    pub fn log_level(&self) -> &str {
        let given = self.overrides.log_level.as_deref();
        given.or(self.config.log_level.as_deref()).unwrap_or("info")
    }

    /// Parts that differ from `before` and count from the next start only, as the file names them.
    pub fn restart_keys(&self, before: &Self) -> Vec<&'static str> {
        let (tls, was) = (self.tls(), before.tls());
        let parts = [
            ("data-dir", self.data_dir != before.data_dir),
            ("api.listen", tls.listen != was.listen),
            ("api.advertise", tls.advertise != was.advertise),
        ];
        let changed = parts.into_iter().filter(|(_, changed)| *changed);
        let mut keys: Vec<_> = changed.map(|(key, _)| key).collect();
        keys.extend(self.config.restart_keys(&before.config));
        keys
    }

    /// What the TLS listener follows.
    pub fn tls(&self) -> TlsSettings {
        let api = &self.config.api;
        let urls = self.config.webhook_urls();
        let mut more = self.config.api_service_names();
        more.extend(api.names.iter().cloned());
        more.extend(urls.iter().filter_map(|url| host_of(url)));
        TlsSettings {
            data_dir: self.data_dir.clone(),
            listen: self.overrides.listen.unwrap_or(api.listen),
            also: self
                .config
                .listeners
                .iter()
                .map(|one| one.address)
                .collect(),
            more,
            advertise: self
                .overrides
                .advertise
                .clone()
                .or_else(|| api.advertise.clone()),
            files: api.cert.clone().zip(api.key.clone()),
        }
    }
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The configuration for the role that is asked for, else for its own.
fn in_role(config: Config, asked: Option<HostRole>) -> Result<Config, String> {
    let role = asked.unwrap_or(config.role);
    let config = match (config.role, role) {
        (_, HostRole::Agent) => config.for_agent()?,
        (HostRole::Agent, HostRole::Standalone) => {
            return Err("the configuration has role = \"agent\"; allowed is --role agent".into());
        }
        (HostRole::Standalone, HostRole::Standalone) => config,
    };
    if role == HostRole::Standalone {
        return Ok(config);
    }
    config.with_environment(AgentEnvironment {
        node: variable("NODE_NAME"),
        metrics: variable("METRICS_ADDR"),
        period: variable("RECONCILE_PERIOD"),
    })
}

/// The socket a client tries when none is named: the system's, or the user's own daemon's if only that is there.
pub fn client_socket() -> PathBuf {
    let system = PathBuf::from(SYSTEM_SOCKET);
    let own = places().socket;
    if !system.exists() && own.exists() {
        own
    } else {
        system
    }
}

fn places() -> Places {
    if nix::unistd::geteuid().is_root() {
        return Places {
            data_dir: config::DEFAULT_DATA_DIR.into(),
            socket: SYSTEM_SOCKET.into(),
        };
    }
    let var = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = || var("HOME").unwrap_or_else(|| PathBuf::from("."));
    let data_dir = var("XDG_STATE_HOME")
        .unwrap_or_else(|| home().join(".local/state"))
        .join("fipd");
    let socket = match var("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("fipd/fipd.sock"),
        None => data_dir.join("fipd.sock"),
    };
    Places { data_dir, socket }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_beats_the_file_beats_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fipd.toml");
        std::fs::write(
            &file,
            "data-dir = \"state\"\n[api]\nlisten = \"127.0.0.1:1111\"\n",
        )
        .unwrap();
        let from_file = Settings::load(Overrides {
            config: Some(file.clone()),
            ..Overrides::default()
        })
        .unwrap();
        assert_eq!(from_file.data_dir, dir.path().join("state"));
        assert_eq!(from_file.tls().listen.port(), 1111);
        let overridden = Settings::load(Overrides {
            config: Some(file),
            data_dir: Some("/elsewhere".into()),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            ..Overrides::default()
        })
        .unwrap();
        assert_eq!(overridden.data_dir, Path::new("/elsewhere"));
        assert_eq!(overridden.tls().listen.port(), 0);
    }

    #[test]
    fn a_further_listener_may_not_take_the_address_that_the_api_has() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fipd.toml");
        let text = "[[listener]]\naddress = \"127.0.0.1:8443\"\nserve = [\"health\"]\n";
        std::fs::write(&file, text).unwrap();
        let load = |listen: Option<&str>| {
            Settings::load(Overrides {
                config: Some(file.clone()),
                listen: listen.map(|listen| listen.parse().unwrap()),
                ..Overrides::default()
            })
        };
        for taken in [None, Some("127.0.0.1:8443")] {
            let error = load(taken).unwrap_err().to_string();
            assert!(error.contains("taken by the API"), "{error}");
        }
        load(Some("127.0.0.1:9443")).unwrap();
        load(Some("127.0.0.1:0")).unwrap();
    }

    #[test]
    fn a_named_file_must_exist() {
        let missing = Overrides {
            config: Some("/nonexistent/fipd.toml".into()),
            ..Overrides::default()
        };
        let error = Settings::load(missing).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/fipd.toml:"), "{error}");
    }

    const EXAMPLE: &str = include_str!("../../packaging/fipd.example.toml");

    #[test]
    fn the_example_says_the_defaults() {
        let config = Config::parse(EXAMPLE, Path::new("/etc/fipd")).unwrap();
        let data_dir = Some(config::DEFAULT_DATA_DIR.into());
        assert_eq!(
            config,
            Config {
                data_dir,
                ..Config::without_file(*SYSTEMS)
            }
        );
    }

    #[test]
    fn the_examples_in_the_example_are_valid() {
        let line = |line: &str| match line.strip_prefix('#') {
            Some(code) if !code.is_empty() && !code.starts_with(' ') => format!("{code}\n"),
            Some(_) | None => format!("{line}\n"),
        };
        let text: String = EXAMPLE.lines().map(line).collect();
        let config = Config::parse(&text, Path::new("/etc/fipd")).unwrap();
        assert_eq!(config.clusters.len(), 7);
        assert!(config.discovery.is_some() && config.api.advertise.is_some());
        assert_eq!(config.listeners.len(), 1);
        let host = config.host.unwrap();
        let as_default = config::Host {
            node: None,
            nft: None,
            rules: Vec::new(),
            ..host.clone()
        };
        assert_eq!(as_default, config::Host::default());
        assert_eq!(host.rules.len(), 1);
    }
}
