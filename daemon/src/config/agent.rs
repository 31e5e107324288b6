//! What a host of role `agent` may be told: it decides nothing and keeps no address book.

use std::{collections::BTreeSet, net::SocketAddr};

use fipd_core::System;
use fipd_crds::names::is_object_name;

use super::{Config, Host, HostRole, Listener, Serve, SightingMode, Systems, listener::listed};
use crate::clock;

/// The name of the cluster that it runs in.
const HERE: &str = "in-cluster";

/// What the environment says, by the names of the original agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentEnvironment {
    /// `NODE_NAME`
    pub node: Option<String>,
    /// `METRICS_ADDR`, such as `:9090`.
    pub metrics: Option<String>,
    /// `RECONCILE_PERIOD`, such as `10s`.
    pub period: Option<String>,
}

impl Config {
    /// The configuration, if it fits an agent.
    ///
    /// # Errors
    /// What does not.
    pub fn for_agent(mut self) -> Result<Self, String> {
        self.role = HostRole::Agent;
        self.host.get_or_insert_default();
        let rules = self.host.iter().flat_map(|host| &host.rules);
        if let Some(rule) = rules.into_iter().next() {
            return Err(format!(
                "[[host.rules]] {:?}: with role = \"agent\" there is no address book whose leases it could be about. Remove it",
                rule.name
            ));
        }
        if let Some(host) = self.host.as_ref().filter(|host| host.agent.is_some())
            && host.cleanup_on_stop
        {
            return Err(
                "[host] cleanup-on-stop: with agent the rules go with the Agent, and stay where its pod is only replaced. Remove \
                 one of the two"
                    .into(),
            );
        }
        if self.discovery.is_some() {
            return Err(
                "[discovery]: with role = \"agent\" clusters are named. Remove the section".into(),
            );
        }
        if self.clusters.is_empty() {
            return Err(
                "role = \"agent\" needs a [[cluster]] whose objects say which rules this host is to have"
                    .into(),
            );
        }
        let parts = agent_parts(self.known);
        for cluster in &self.clusters {
            if cluster.systems.is_empty() || !cluster.systems.is_subset(&parts) {
                let parts: Vec<&str> = parts.iter().map(System::as_str).collect();
                return Err(format!(
                    "[[cluster]] {:?}: systems: with role = \"agent\" allowed is {parts:?}",
                    cluster.name
                ));
            }
        }
        let serves = serves(self.known);
        for listener in &self.listeners {
            let address = listener.address;
            if listener.tls {
                return Err(format!(
                    "[[listener]] {address}: with role = \"agent\" there is no certificate; allowed is tls = false"
                ));
            }
            if !listener.serve.is_subset(&serves) {
                return Err(format!(
                    "[[listener]] {address}: serve: with role = \"agent\" allowed are {}",
                    listed(serves)
                ));
            }
        }
        for cluster in &mut self.clusters {
            // Without an address book nobody looks for addresses of others.
            cluster.settings.sightings = SightingMode::Off;
        }
        Ok(self)
    }

    /// An agent's configuration where there is no file: the cluster that it runs in.
    pub fn of_agent(known: Systems) -> Self {
        // The environment is that of the original's agents, which bring rules and nothing else.
        let wishing = known.0.iter().filter(|one| one.host_wishes.is_some());
        let systems: Vec<String> = wishing.map(|one| one.name.to_owned()).collect();
        Self {
            known,
            role: HostRole::Agent,
            host: Some(Host::default()),
            clusters: vec![Self::in_cluster(known, HERE, &systems)],
            ..Self::default()
        }
    }

    /// An agent's configuration where the environment says what the file does not.
    ///
    /// # Errors
    /// What is not allowed, or that nobody says which Node this host is.
    pub fn with_environment(mut self, given: AgentEnvironment) -> Result<Self, String> {
        let host = self.host.get_or_insert_default();
        if host.node.is_none() {
            let name = given.node.unwrap_or_default();
            if !is_object_name(&name) {
                return Err(format!(
                    "role = \"agent\" needs the name of the Node that this host is: [host] node or NODE_NAME ({name:?})"
                ));
            }
            host.node = Some(name.into());
        }
        if let Some(period) = given.period {
            host.resync = clock::duration(&period)
                .map_err(|allowed| format!("RECONCILE_PERIOD = {period:?}: {allowed}"))?;
        }
        if let (Some(address), true) = (given.metrics, self.listeners.is_empty()) {
            let mut serve = serves(self.known);
            serve.remove(&Serve::Metrics);
            self.listeners.push(Listener {
                address: listen(&address)?,
                tls: false,
                serve,
            });
        }
        Ok(self)
    }
}

/// Systems that have work on a host that decides nothing.
fn agent_parts(known: Systems) -> BTreeSet<System> {
    let parts = known.0.iter().filter(|one| one.has_agent_part());
    parts.filter_map(|one| one.name.parse().ok()).collect()
}

/// What such a host may serve.
fn serves(known: Systems) -> BTreeSet<Serve> {
    let parts = known
        .0
        .iter()
        .filter(|one| one.has_agent_part() && one.metrics);
    let parts = parts.map(|one| Serve::SystemMetrics(one.name));
    parts.chain([Serve::Metrics, Serve::Health]).collect()
}

/// Reads `HOST:PORT`, or `:PORT` for every address of the host.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let address = Some(text).filter(|text| text.contains(':'));
    let address = address.and_then(super::compat::address);
    address.ok_or_else(|| format!("METRICS_ADDR = {text:?}: allowed is ADDRESS:PORT or :PORT"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const AGENT: &str =
        "role = \"agent\"\n[[cluster]]\nname = \"a\"\nin-cluster = true\nsystems = [\"ip-rule\"]\n";

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("/etc/fipd"))
    }

    #[test]
    fn an_agent_needs_a_cluster_and_has_a_host() {
        let config = parse(AGENT).unwrap();
        assert_eq!(
            (config.role, config.host),
            (HostRole::Agent, Some(Host::default()))
        );
        for (text, words) in [
            ("role = \"agent\"\n".to_owned(), "needs a [[cluster]]"),
            (
                AGENT.replace("[\"ip-rule\"]", "[\"claims\"]"),
                "allowed is [\"flat-network\", \"ip-rule\"]",
            ),
            (
                format!("{AGENT}[host]\nagent = \"default\"\n"),
                "NAMESPACE/NAME",
            ),
            (
                format!("{AGENT}[host]\nagent = \"a/default\"\ncleanup-on-stop = true\n"),
                "Remove one of the two",
            ),
            (
                format!("{AGENT}[discovery]\ncluster = \"a\"\n"),
                "[discovery]",
            ),
            (
                format!("{AGENT}[[host.rules]]\nname = \"r\"\npool = \"p\"\ntable = 1\n"),
                "no address book",
            ),
            (
                format!("{AGENT}[[listener]]\naddress = \"127.0.0.1:1\"\nserve = [\"health\"]\n"),
                "allowed is tls = false",
            ),
            (
                format!(
                    "{AGENT}[[listener]]\naddress = \"127.0.0.1:1\"\ntls = false\nserve = [\"ipam\"]\n"
                ),
                "allowed are \"health\"",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(words) && error.contains("line "), "{error}");
        }
    }

    #[test]
    fn the_originals_environment_says_what_the_file_does_not() {
        let given = || AgentEnvironment {
            node: Some("n1".into()),
            metrics: Some(":9090".into()),
            period: Some("10s".into()),
        };
        let config = Config::of_agent(*crate::systems::SYSTEMS)
            .with_environment(given())
            .unwrap();
        let here = &config.clusters[0];
        let sightings = here.settings.sightings(&here.systems);
        assert_eq!(sightings, SightingMode::Off, "rules are no leases");
        let host = config.host.unwrap();
        assert_eq!(
            (host.node.as_deref(), host.resync.as_secs()),
            (Some("n1"), 10)
        );
        assert_eq!(config.listeners[0].address.port(), 9090);
        let file = format!("{AGENT}[host]\nnode = \"mine\"\n");
        let config = parse(&file).unwrap().with_environment(given()).unwrap();
        assert_eq!(config.host.unwrap().node.as_deref(), Some("mine"));
        let nothing = Config::of_agent(*crate::systems::SYSTEMS)
            .with_environment(AgentEnvironment::default());
        assert!(nothing.unwrap_err().contains("NODE_NAME"));
        for (metrics, period) in [(":x", "10s"), (":1", "10")] {
            let given = AgentEnvironment {
                metrics: Some(metrics.into()),
                period: Some(period.into()),
                ..given()
            };
            assert!(
                Config::of_agent(*crate::systems::SYSTEMS)
                    .with_environment(given)
                    .is_err()
            );
        }
    }
}
