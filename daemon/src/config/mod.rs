//! The configuration file: what may be written in it, and what it means for networks.
//!
//! Owns parsing, validation and the pure functions over the parsed values. It opens nothing but the file
//! itself: kubeconfigs are read by [`crate::clusters`], which also watches both.

mod agent;
mod audit;
mod backup;
mod claims;
mod clock;
mod cluster;
mod cluster_manager;
mod error;
mod expect;
mod fip_v1;
mod flags;
mod helm;
mod history;
mod hook;
mod host;
mod ip_rule;
mod listener;
mod live;
mod network;
mod oidc;
mod pattern;
mod place;
pub mod reference;
mod release_wait;
mod sightings;
mod systems;
mod together;
mod uploaded;
mod webhook;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use fipd_crds::{labels::API_SERVICE, names::is_object_name};
use schemars::JsonSchema;
use serde::{Deserialize, de::IgnoredAny};
use toml::Spanned;

use crate::logging;

pub use agent::AgentEnvironment;
pub use audit::{Audit, Entries};
pub use backup::{Backup, Every, Keep};
pub use claims::Claims;
pub use clock::Clock;
pub use cluster::{
    Announce, ClusterConfig, ClusterSettings, Discovery, RancherFip, RancherFipQuotas,
    RancherFipRole, Secret, Source, checked_name as checked_cluster_name,
};
pub use cluster_manager::{Chart, ClusterManager, Engine};
pub use error::ConfigError;
pub use expect::{Awaited, Site, awaited};
pub use fip_v1::FipV1;
pub use flags::Flags;
pub use helm::{AtOnce, Deadline, Helm};
pub use history::History;
pub use hook::{Events, Hook, HookName, HookUrl};
pub use host::{Host, HostRule};
pub use ip_rule::IpRule;
pub use listener::{Listener, Serve};
pub use network::{
    ChosenBy, DEFAULT_NETWORK, Match, NetworkChoice, NetworkRule, NetworkRules, PoolFacts,
};
pub use oidc::{Issuer, Oidc, OidcRoles};
pub use pattern::Pattern;
pub use place::credentials;
use place::place;
pub use release_wait::ReleaseWait;
pub use sightings::SightingMode;
pub use systems::served;
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
    /// `None` without a configuration file: the user's state directory then.
    pub data_dir: Option<PathBuf>,
    /// As `--log-level`.
    pub log_level: Option<String>,
    pub api: Api,
    pub backup: Backup,
    pub audit: Audit,
    pub clock: Clock,
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

/// What this host does for the site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostRole {
    /// The store on this host is the truth.
    #[default]
    Standalone,
    /// It has no store and decides nothing: it brings the rules that objects in clusters ask for to this host.
    Agent,
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
    /// How much is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,fipd=debug`. Left out:
    /// `info`.
    #[schemars(with = "Option<String>")]
    log_level: Option<Spanned<String>>,
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
    history: History,
    #[serde(default, rename = "fip-v1")]
    fip_v1: FipV1,
    #[serde(default)]
    helm: Helm,
    #[serde(default)]
    #[schemars(with = "Vec<ClusterConfig>")]
    cluster: Vec<Spanned<ClusterConfig>>,
    #[schemars(with = "Option<Discovery>")]
    discovery: Option<Spanned<Discovery>>,
    #[serde(default)]
    network: Vec<NetworkRule>,
    #[serde(default)]
    #[schemars(with = "Vec<Listener>")]
    listener: Vec<Spanned<Listener>>,
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
        let settings = self.clusters.iter().map(|one| &one.settings.rancher_fip);
        let with = settings.filter(|one| one.api_service);
        with.flat_map(|one| {
            let full = format!("{API_SERVICE}.{}", one.app_namespace);
            let ends = ["", ".svc", ".svc.cluster.local"];
            let full = ends.map(|end| format!("{full}{end}"));
            full.into_iter().chain([API_SERVICE.to_owned()])
        })
        .collect()
    }

    /// Reads and validates the file. Relative paths in it are relative to its directory.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let base = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, base).map_err(|what| ConfigError::Invalid {
            path: path.to_owned(),
            what,
        })
    }

    /// Validates the text of a file whose relative paths start at `base`. The error names line, column, what
    /// was found and what is allowed.
    pub fn parse(text: &str, base: &Path) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|err| error::of_toml(text, &err))?;
        let at = |span: std::ops::Range<usize>, what: &str| error::at(text, span.start, what);
        refuse_later_parts(&file).map_err(|(span, what)| at(span, what))?;
        let role = file
            .role
            .as_ref()
            .map_or(Ok(HostRole::Standalone), |given| {
                role(given.get_ref()).map_err(|what| at(given.span(), &what))
            })?;
        let mut api = Api::default();
        if let Some(given) = file.api {
            check_api(given.get_ref()).map_err(|what| at(given.span(), &what))?;
            api = given.into_inner();
            api.cert = api.cert.map(|path| place(base, &path));
            api.key = api.key.map(|path| place(base, &path));
        }
        let log_level = file.log_level.map(|given| {
            logging::check_level(given.get_ref())
                .map_err(|error| at(given.span(), &error.to_string()))
                .map(|()| given.into_inner())
        });
        let log_level = log_level.transpose()?;
        let mut backup = file.backup;
        backup.directory = backup.directory.map(|path| base.join(path));
        let mut helm = file.helm;
        helm.resolve_paths(base);
        let mut host = file.host;
        if let Some(host) = &mut host {
            host.resolve_paths(base);
        }
        listener::check(&file.listener).map_err(|(span, what)| at(span, &what))?;
        hook::check(&file.webhook).map_err(|(span, what)| at(span, &what))?;
        let oidc = match file.oidc {
            Some(given) => {
                let span = given.span();
                let mut oidc = given.into_inner();
                oidc.check().map_err(|what| at(span, &what))?;
                oidc.resolve_paths(base);
                Some(oidc)
            }
            None => None,
        };
        let mut hooks: Vec<_> = file.webhook.into_iter().map(Spanned::into_inner).collect();
        for hook in &mut hooks {
            hook.resolve_paths(base);
        }
        together::check_together(&file.cluster, file.discovery.as_ref())
            .map_err(|(span, what)| at(span, &what))?;
        let mut clusters: Vec<_> = file.cluster.into_iter().map(Spanned::into_inner).collect();
        for cluster in &mut clusters {
            cluster.resolve_paths(base);
        }
        let config = Self {
            role,
            data_dir: Some(base.join(file.data_dir.unwrap_or_else(|| DEFAULT_DATA_DIR.into()))),
            log_level,
            api,
            backup,
            audit: file.audit,
            clock: file.clock,
            history: file.history,
            helm,
            fip_v1: file.fip_v1,
            hooks,
            oidc,
            listeners: file.listener.into_iter().map(Spanned::into_inner).collect(),
            clusters,
            discovery: file.discovery.map(Spanned::into_inner),
            networks: NetworkRules::new(file.network),
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

    /// Name of the cluster that holds the pools of a rancher-fip cluster with these settings: itself for a
    /// management cluster, else the one it names or the only one there is.
    pub fn management_of(
        &self,
        name: &fipd_core::Text,
        settings: &RancherFip,
    ) -> Option<fipd_core::Text> {
        match (settings.role, &settings.management) {
            (RancherFipRole::Management, _) => Some(name.clone()),
            (RancherFipRole::Downstream, Some(named)) => Some(named.clone()),
            (RancherFipRole::Downstream, None) => {
                together::only_management(self.clusters.iter()).map(|cluster| cluster.name.clone())
            }
        }
    }
}

fn refuse_later_parts(file: &File) -> Result<(), (std::ops::Range<usize>, &'static str)> {
    match &file.leader_election {
        Some(section) => Err((
            section.span(),
            "[leader-election]: it belongs to role = \"server\"; with role = \"standalone\" the lock of the store decides. Remove the section",
        )),
        None => Ok(()),
    }
}

fn role(role: &str) -> Result<HostRole, String> {
    match role {
        "standalone" => Ok(HostRole::Standalone),
        "agent" => Ok(HostRole::Agent),
        "server" => Err(format!(
            "role = {role:?}: this version has one host that decides, which is \"standalone\"; it does not start as {role}"
        )),
        other => Err(format!(
            "role = {other:?} is unknown; allowed is \"standalone\" or \"agent\""
        )),
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
