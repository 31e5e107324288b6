//! The configuration file: what may be written in it, and what it means for networks.
//!
//! Owns parsing, validation and the pure functions over the parsed values. It opens nothing but the file
//! itself: kubeconfigs are read by [`crate::clusters`], which also watches both.

mod agent;
mod charts;
mod checked;
mod cluster;
pub mod compat;
mod error;
pub mod event_names;
mod expect;
mod hook;
mod host;
mod listener;
mod live;
mod network;
mod oidc;
pub mod operation;
mod pattern;
mod place;
pub mod reference;
mod release_wait;
mod sections;
mod sightings;
mod system;
mod systems;
mod together;
mod uploaded;
mod url;
mod webhook;

#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    path::{Path, PathBuf},
};

use fipd_core::{System, Text};
use fipd_crds::names::is_object_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

use crate::logging;

pub use agent::AgentEnvironment;
pub use charts::{ChartEngine, ChartSettings};
pub use cluster::{ClusterConfig, Discovery, Secret, Source, checked_name as checked_cluster_name};
use cluster::{RawCluster, RawDiscovery};
pub use compat::{CompatApplied, CompatFlag, CompatFlags};
pub use error::ConfigError;
pub use expect::{Awaited, Site, awaited};
pub use hook::{Events, Hook, HookName, HookUrl};
pub use host::{Host, HostRule};
use listener::RawListener;
pub use listener::{Listener, Serve};
pub use live::LIVE;
pub use network::{
    ChosenBy, DEFAULT_NETWORK, Match, NetworkChoice, NetworkRule, NetworkRules, PoolFacts,
    PoolLink, default_network,
};
pub use oidc::{Issuer, Oidc, OidcRoles};
pub use pattern::Pattern;
pub use place::credentials;
use place::place;
pub use release_wait::ReleaseWait;
pub use sections::{
    AtOnce, Audit, Backup, Clock, Cni, Deadline, Entries, Every, FipV1, Helm, History, Keep, Rate,
};
pub use sightings::SightingMode;
pub use system::{
    ClusterSettings, Draws, PoolsIn, SettingsTable, SystemConfig, SystemSettings, TypedSettings,
    Written, WrongTable,
};
pub use systems::Systems;
use systems::Tables;
pub use url::{host_of, is_dns_name};
pub use webhook::{FAIL as WEBHOOK_FAILS, FailurePolicy, Webhook};

/// Where the daemon looks for its configuration when nothing else is said.
pub const DEFAULT_PATH: &str = "/etc/fipd/fipd.toml";
/// Where the store lives when there is a configuration file that does not say.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/fipd";

/// A valid configuration. Its default is what `fipd serve` does without a file: no cluster, embedded store.
///
/// Invariants: cluster names are distinct; a downstream cluster's `management` names a management cluster of
/// the same configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    pub role: HostRole,
    /// Which systems there are.
    pub known: Systems,
    /// `None` without a configuration file: the user's state directory then.
    pub data_dir: Option<PathBuf>,
    /// As `--compat`.
    pub compat: Option<String>,
    /// As `--log-level`.
    pub log_level: Option<String>,
    /// Where the level is read and changed; `None`: nowhere.
    pub log_socket: Option<PathBuf>,
    pub api: Api,
    pub backup: Backup,
    pub audit: Audit,
    pub clock: Clock,
    pub cni: Cni,
    pub history: History,
    pub helm: Helm,
    pub fip_v1: FipV1,
    pub listeners: Vec<Listener>,
    pub hooks: Vec<Hook>,
    /// `None`: people sign in with passwords alone.
    pub oidc: Option<Oidc>,
    pub clusters: Vec<ClusterConfig>,
    pub discovery: Option<Discovery>,
    pub networks: NetworkRules,
    /// `None`: the rules of this host are left alone.
    pub host: Option<Host>,
}

fipd_core::words! {
    /// What this host does for the site.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub enum HostRole {
        /// The store on this host is the truth.
        #[default]
        Standalone = "standalone",
        /// It has no store and decides nothing: it brings the rules that objects in clusters ask for to this host.
        Agent = "agent",
    }
}

/// Where UI and REST are served.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Api {
    /// Where web UI and REST are served, by TLS.
    pub listen: SocketAddr,
    /// URL (`https://HOST[:PORT]`) by which others reach this host; its host name goes into the own certificate.
    pub advertise: Option<String>,
    /// Other host names and addresses under which others reach this host with TLS that ends here; the own certificate is of
    /// them too.
    pub names: Vec<String>,
    /// PEM files of a certificate chain and its key; both or neither. Without: a certificate of the own CA.
    pub cert: Option<PathBuf>,
    /// Belongs to `cert`.
    pub key: Option<PathBuf>,
}

impl Default for Api {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 8443));
        Self {
            listen,
            advertise: None,
            names: Vec::new(),
            cert: None,
            key: None,
        }
    }
}

/// The file as written. Sections of later versions are known by name, so that they are refused with a reason.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    /// What this host does for the site: `standalone`, or `agent`, which has no store and decides nothing.
    #[schemars(with = "Option<String>")]
    role: Option<Spanned<String>>,
    /// Where the store, the own CA and the first password are. Relative paths in the file start at its directory.
    data_dir: Option<PathBuf>,
    /// The system whose original's flags and variables count, as with `--compat`: see compat.md.
    #[schemars(with = "Option<String>")]
    compat: Option<Spanned<String>>,
    /// How much is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,fipd=debug`. Left out:
    /// `info`.
    #[schemars(with = "Option<String>")]
    log_level: Option<Spanned<String>>,
    /// A Unix socket for root and the group of fipd that reads and changes the level until the next start or edit of `log-level`:
    /// `GET` and `POST` (`level=debug`) of `/v1/loglevel`, as the originals of flat-network have it at `/tmp/log.sock`. Left out:
    /// none.
    log_socket: Option<PathBuf>,
    #[serde(default)]
    #[schemars(with = "Option<Api>")]
    api: Option<Spanned<Api>>,
    #[serde(default)]
    backup: Backup,
    #[serde(default)]
    audit: Audit,
    #[serde(default)]
    clock: Clock,
    #[serde(default)]
    cni: Cni,
    #[serde(default)]
    history: History,
    #[serde(default, rename = "fip-v1")]
    fip_v1: FipV1,
    #[serde(default)]
    helm: Helm,
    #[serde(default)]
    #[schemars(with = "Vec<RawCluster>")]
    cluster: Vec<Spanned<RawCluster>>,
    #[schemars(with = "Option<RawDiscovery>")]
    discovery: Option<Spanned<RawDiscovery>>,
    #[serde(default)]
    network: Vec<NetworkRule>,
    #[serde(default)]
    #[schemars(with = "Vec<RawListener>")]
    listener: Vec<Spanned<RawListener>>,
    #[serde(default)]
    #[schemars(with = "Vec<Hook>")]
    webhook: Vec<Spanned<Hook>>,
    #[schemars(with = "Option<Oidc>")]
    oidc: Option<Spanned<Oidc>>,
    #[schemars(skip)]
    leader_election: Option<Spanned<IgnoredAny>>,
    host: Option<Host>,
}

impl Config {
    /// What is left where another host decides: nothing that changes anything beside fipd itself.
    pub fn reading_only(self) -> Self {
        Self {
            clusters: Vec::new(),
            discovery: None,
            host: None,
            hooks: Vec::new(),
            backup: Backup {
                every: Every(None),
                ..self.backup
            },
            ..self
        }
    }

    /// The ports of listeners, by the system whose series they serve.
    pub fn metrics_ports(&self) -> BTreeMap<&'static str, BTreeSet<u16>> {
        let mut ports: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
        for listener in &self.listeners {
            for serve in &listener.serve {
                if let Serve::SystemMetrics(system) = serve {
                    let of_system = ports.entry(*system).or_default();
                    of_system.insert(listener.address.port());
                }
            }
        }
        ports
    }

    /// The port of the first listener with the API for addresses that others reach without TLS.
    pub fn plain_fip_v1(&self) -> Option<u16> {
        let plain = |one: &&Listener| {
            !one.tls && !one.address.ip().is_loopback() && one.serve.contains(&Serve::FipV1)
        };
        let found = self.listeners.iter().find(plain)?;
        Some(found.address.port()).filter(|port| *port != 0)
    }

    /// By which names pods reach this host where the Service of the original API server leads here.
    pub fn api_service_names(&self) -> BTreeSet<String> {
        let settings = self.clusters.iter().flat_map(|one| one.settings.all());
        settings.flat_map(|(_, one)| one.host_names()).collect()
    }

    /// Reads and validates the file. Relative paths in it are relative to its directory.
    pub fn load_with(known: Systems, path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let base = path.parent().unwrap_or(Path::new(""));
        Self::read(known, &text, base).map_err(|what| ConfigError::Invalid {
            path: path.to_owned(),
            what,
        })
    }

    /// Validates the text of a file whose relative paths start at `base`. The error names line, column, what
    /// was found and what is allowed.
    pub fn read(known: Systems, text: &str, base: &Path) -> Result<Self, String> {
        let at = |span: Range<usize>, what: &str| error::at(text, span.start, what);
        let placed = |(span, what): (Range<usize>, String)| at(span, &what);
        let (file, tables) = File::read(known, text).map_err(|err| error::of_toml(text, &err))?;
        let (clusters, discovery) =
            cluster::read_clusters(known, text, (file.cluster, file.discovery), tables)?;
        if let Some(section) = &file.leader_election {
            let what = "[leader-election]: it belongs to role = \"server\"; with role = \"standalone\" the lock of the store decides. Remove the section";
            return Err(at(section.span(), what));
        }
        let role = file
            .role
            .as_ref()
            .map_or(Ok(HostRole::Standalone), |given| {
                role(given.get_ref()).map_err(|what| at(given.span(), &what))
            })?;
        let api = file.api.map(|given| checked(given, check_api));
        let mut api = api.transpose().map_err(placed)?.unwrap_or_default();
        api.cert = api.cert.map(|path| place(base, &path));
        api.key = api.key.map(|path| place(base, &path));
        let level = |level: &String| logging::check_level(level).map_err(|error| error.to_string());
        let log_level = file.log_level.map(|given| checked(given, level));
        let log_level = log_level.transpose().map_err(placed)?;
        let original = |name: &String| known.original(name).map(drop);
        let compat = file.compat.map(|given| checked(given, original));
        let compat = compat.transpose().map_err(placed)?;
        let mut backup = file.backup;
        backup.directory = backup.directory.map(|path| base.join(path));
        let mut helm = file.helm;
        helm.resolve_paths(base);
        let mut host = file.host;
        if let Some(host) = &mut host {
            host.resolve_paths(base);
        }
        let listeners = listener::read(known, file.listener).map_err(placed)?;
        hook::check(&file.webhook).map_err(placed)?;
        let oidc = file.oidc.map(|given| checked(given, Oidc::check));
        let mut oidc = oidc.transpose().map_err(placed)?;
        if let Some(oidc) = &mut oidc {
            oidc.resolve_paths(base);
        }
        let mut hooks: Vec<_> = file.webhook.into_iter().map(Spanned::into_inner).collect();
        for hook in &mut hooks {
            hook.resolve_paths(base);
        }
        together::check_together(&clusters, discovery.as_ref()).map_err(placed)?;
        let mut clusters: Vec<_> = clusters.into_iter().map(Spanned::into_inner).collect();
        together::default_nodes(known, &mut clusters);
        for cluster in &mut clusters {
            cluster.resolve_paths(base);
        }
        let config = Self {
            role,
            known,
            data_dir: Some(base.join(file.data_dir.unwrap_or_else(|| DEFAULT_DATA_DIR.into()))),
            compat,
            log_level,
            log_socket: file.log_socket.map(|path| base.join(path)),
            api,
            backup,
            audit: file.audit,
            clock: file.clock,
            cni: file.cni,
            history: file.history,
            helm,
            fip_v1: file.fip_v1,
            hooks,
            oidc,
            listeners,
            clusters,
            discovery: discovery.map(Spanned::into_inner),
            networks: NetworkRules::new(known, file.network).map_err(placed)?,
            host,
        };
        match (role, &file.role) {
            (HostRole::Agent, Some(given)) => {
                config.for_agent().map_err(|what| at(given.span(), &what))
            }
            (HostRole::Agent, None) | (HostRole::Standalone, _) => Ok(config),
        }
    }

    /// Whether it fits together, where the API is served at `listen` and reached at `advertise`.
    ///
    /// # Errors
    /// What is bound twice, and what needs a URL and has none.
    pub fn check(&self, listen: SocketAddr, advertise: Option<&str>) -> Result<(), String> {
        listener::check_apart(&self.listeners, listen)?;
        if self.oidc.is_some() && advertise.is_none() {
            return Err("[oidc] needs [api] advertise: the URL by which browsers reach fipd, where the provider sends them back to".to_owned());
        }
        self.check_webhooks(advertise)
    }

    /// The cluster of that name.
    pub fn cluster(&self, name: &str) -> Option<&ClusterConfig> {
        self.clusters.iter().find(|cluster| &*cluster.name == name)
    }

    /// The name of the cluster whose pools the system of a cluster draws from.
    pub fn pools_of(
        &self,
        system: &System,
        name: &Text,
        settings: &ClusterSettings,
    ) -> Option<Text> {
        let here = || Some(Text::clone(name));
        match (settings.draws(system), settings.any(system)?.pools_in()) {
            (Draws::Nothing, _) => None,
            (Draws::Own, _) | (Draws::Management, PoolsIn::Here) => here(),
            (Draws::Management, PoolsIn::Cluster(named)) => Some(Text::clone(named)),
            (Draws::Management, PoolsIn::OnlyManagement) => {
                let only = together::only_management(system, self.clusters.iter());
                only.map(|cluster| Text::clone(&cluster.name))
            }
        }
    }

    /// What holds without a file.
    pub fn without_file(known: Systems) -> Self {
        Self {
            known,
            ..Self::default()
        }
    }
}

/// Tables of systems, taken out of the file before the rest is read.
struct SystemTables<'a> {
    /// Of each `[[cluster]]`, in order.
    clusters: Vec<Tables<'a>>,
    discovery: Tables<'a>,
}

impl File {
    fn read(known: Systems, text: &str) -> Result<(Self, SystemTables<'_>), toml::de::Error> {
        let mut written = DeTable::parse(text)?;
        let table = written.get_mut();
        let mut clusters = Vec::new();
        if let Some(DeValue::Array(all)) = table.get_mut("cluster").map(Spanned::get_mut) {
            clusters.extend(all.iter_mut().map(|one| known.take_tables_of(one)));
        }
        let discovery = table.get_mut("discovery");
        let discovery = discovery.map_or_else(Tables::new, |one| known.take_tables_of(one));
        let file = Self::deserialize(Deserializer::from(written))?;
        Ok((
            file,
            SystemTables {
                clusters,
                discovery,
            },
        ))
    }
}

fn role(role: &str) -> Result<HostRole, String> {
    match role {
        "server" => Err(format!(
            "role = {role:?}: this version has one host that decides, which is \"standalone\"; it does not start as {role}"
        )),
        other => other.parse().map_err(|_| {
            format!("role = {other:?} is unknown; allowed is \"standalone\" or \"agent\"")
        }),
    }
}

/// The value of a key that is as `check` allows; else where it is, and what is wrong.
fn checked<T>(
    given: Spanned<T>,
    check: impl FnOnce(&T) -> Result<(), String>,
) -> Result<T, (Range<usize>, String)> {
    match check(given.get_ref()) {
        Ok(()) => Ok(given.into_inner()),
        Err(what) => Err((given.span(), what)),
    }
}

fn check_api(api: &Api) -> Result<(), String> {
    if api.cert.is_some() != api.key.is_some() {
        return Err("[api] cert and key belong together: give both, or neither for a certificate of fipd's own CA".into());
    }
    let plain = |name: &&String| name.parse::<IpAddr>().is_ok() || is_object_name(name);
    let mut wrong = api.names.iter().filter(|name| !plain(name));
    if let Some(name) = wrong.next() {
        return Err(format!(
            "[api] names = [{name:?}]: it is neither a host name in small letters nor an address; allowed are those, without port"
        ));
    }
    let Some(url) = &api.advertise else {
        return Ok(());
    };
    let bad = |why: &str| {
        Err(format!(
            "[api] advertise = {:?} {why}; allowed is https://HOST[:PORT]",
            error::shown(url)
        ))
    };
    match url.parse::<http::Uri>() {
        Err(_) => bad("is no URL"),
        Ok(uri) if uri.scheme_str() != Some("https") => bad("does not start with https://"),
        Ok(uri) if uri.host().is_none_or(str::is_empty) => bad("names no host"),
        Ok(uri) if uri.path() != "/" || uri.query().is_some() => bad("has a path or query"),
        Ok(_) => Ok(()),
    }
}
