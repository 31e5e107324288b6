//! Flags and variables of rancher-flat-network's operator.

use std::net::IpAddr;

use super::settings::{ArpPolicy, CidrList, FlatNetworkSettings};
use crate::config::{
    Config, Serve,
    compat::{self, CompatFlag, CompatValue, Form},
};

const CERTIFICATE: &str =
    "fipd makes the certificate of its webhook and keeps the webhook's CA up to date.";
const ELECTION: &str = "fipd's own times hold for the Lease.";

/// All of them.
pub(super) static FLAGS: &[CompatFlag] = &[
    CompatFlag::kubeconfig(
        "The cluster with `systems = [\"flat-network\"]`, which is added where there is none.",
    )
    .or("KUBECONFIG"),
    CompatFlag::nothing("master", "The kubeconfig names the API server."),
    CompatFlag::sets(
        "webhook-server",
        "cluster[*].flat-network.webhook.enabled",
        |config, value| {
            let on = Some(value.switch()?);
            compat::set::<FlatNetworkSettings, _>(config, on, |one| &mut one.webhook.enabled)
        },
        "Whether the API server asks fipd; it does by default.",
    )
    .form(Form::Switch),
    CompatFlag::sets(
        "port",
        "listener[admission].address",
        |config, value| compat::listen(config, value, &[Serve::Admission, Serve::Ping], true),
        "One more port for the webhook, `/ping` and `/hostname`, with TLS; `[api] advertise` stays the URL that the API server calls.",
    )
    .form(Form::Number),
    CompatFlag::sets(
        "bind-address",
        "listener[admission].address",
        bind_address,
        "Of that port; every address of the host where it is left out.",
    ),
    CompatFlag::nothing("tls-cert-file", CERTIFICATE),
    CompatFlag::nothing("tls-private-key-file", CERTIFICATE),
    CompatFlag::sets(
        "debug",
        "log-level",
        |config, value| {
            if value.switch()? {
                config.log_level = Some("debug".to_owned());
            }
            Ok(())
        },
        "`true` is `debug`. `--log-level` is fipd's own flag.",
    )
    .form(Form::Switch),
    CompatFlag::nothing("v", "`fipd --version` prints the version; fipd serves all the same.")
        .form(Form::Switch),
    CompatFlag::nothing("worker", "fipd has as many as it needs.").form(Form::Number),
    CompatFlag::sets(
        "",
        "log-level",
        |config, _| {
            config.log_level = Some("debug".to_owned());
            Ok(())
        },
        "Set to anything it means `debug`; the Lease lasts as always.",
    )
    .or("CATTLE_DEV_MODE"),
    CompatFlag::nothing("", ELECTION).or("CATTLE_ELECTION_LEASE_DURATION"),
    CompatFlag::nothing("", ELECTION).or("CATTLE_ELECTION_RENEW_DEADLINE"),
    CompatFlag::nothing("", ELECTION).or("CATTLE_ELECTION_RETRY_PERIOD"),
    CompatFlag::nothing("", "fipd follows all objects and needs no resync.")
        .or("CATTLE_RESYNC_DEFAULT"),
    CompatFlag::sets(
        "",
        "cluster[*].flat-network.arp-policy",
        |config, value| {
            // As the original, what it does not know is the default.
            let policy = match &*value.text {
                "arping" => ArpPolicy::Arping,
                _ => ArpPolicy::Notify,
            };
            compat::set::<FlatNetworkSettings, _>(config, policy, |one| &mut one.arp_policy)
        },
        "`arping`; anything else is `arp_notify`.",
    )
    .or("FLAT_NETWORK_CNI_ARP_POLICY"),
    CompatFlag::sets(
        "",
        "cluster[*].flat-network.proxy-arp",
        |config, value| {
            compat::set::<FlatNetworkSettings, _>(config, value.switch()?, |one| &mut one.proxy_arp)
        },
        "`true` or `false`.",
    )
    .or("FLAT_NETWORK_CNI_PROXY_ARP"),
    CompatFlag::sets(
        "",
        "cluster[*].flat-network.cluster-cidr",
        |config, value| {
            let list = CidrList::try_from(value.text.clone())?;
            compat::set::<FlatNetworkSettings, _>(config, list, |one| &mut one.cluster_cidr)
        },
        "One CIDR, or several with commas.",
    )
    .or("FLAT_NETWORK_CLUSTER_CIDR"),
    CompatFlag::sets(
        "",
        "cluster[*].flat-network.service-cidr",
        |config, value| {
            let list = CidrList::try_from(value.text.clone())?;
            compat::set::<FlatNetworkSettings, _>(config, list, |one| &mut one.service_cidr)
        },
        "One CIDR, or several with commas.",
    )
    .or("FLAT_NETWORK_SERVICE_CIDR"),
];

/// Without the port there is no listener that would have it.
fn bind_address(config: &mut Config, value: &CompatValue) -> Result<(), String> {
    let address: IpAddr = value
        .text
        .parse()
        .map_err(|_| "allowed is an IP address".to_owned())?;
    let mut listeners = config.listeners.iter_mut();
    if let Some(listener) = listeners.find(|one| one.serve.contains(&Serve::Admission)) {
        listener.address.set_ip(address);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        Source,
        compat::tests::{Case, check_rows},
    };

    const FILE: &str = r#"
[api]
advertise = "https://fipd.example:8443"
[[cluster]]
name = "pods"
in-cluster = true
systems = ["flat-network"]
[[listener]]
address = "127.0.0.1:1"
serve = ["admission"]
"#;

    fn settings(config: &Config) -> &FlatNetworkSettings {
        config.cluster("pods").expect("a cluster").settings.of()
    }

    /// Section b.1 of the contract.
    #[test]
    fn every_flag_and_variable_does_what_it_says() {
        let debug: fn(&Config) -> bool = |config| config.log_level.as_deref() == Some("debug");
        let cases: &[Case<'_>] = &[
            ("kubeconfig", "/k", |config| {
                let source = &config.cluster("pods").expect("a cluster").source;
                matches!(source, Source::File { path, context: None } if path.ends_with("k"))
            }),
            ("master", "https://api", |_| true),
            ("webhook-server", "false", |config| {
                settings(config).webhook.enabled == Some(false)
            }),
            ("port", "9443", |config| {
                config.listeners[0].address.port() == 9443
            }),
            ("bind-address", "10.0.0.1", |config| {
                config.listeners[0].address.to_string() == "10.0.0.1:1"
            }),
            ("tls-cert-file", "/c", |_| true),
            ("tls-private-key-file", "/k", |_| true),
            ("debug", "true", debug),
            ("v", "true", |_| true),
            ("worker", "5", |_| true),
            ("KUBECONFIG", "/k", |_| true),
            ("CATTLE_DEV_MODE", "x", debug),
            ("CATTLE_ELECTION_LEASE_DURATION", "45s", |_| true),
            ("CATTLE_ELECTION_RENEW_DEADLINE", "30s", |_| true),
            ("CATTLE_ELECTION_RETRY_PERIOD", "2s", |_| true),
            ("CATTLE_RESYNC_DEFAULT", "600", |_| true),
            ("FLAT_NETWORK_CNI_ARP_POLICY", "arping", |config| {
                settings(config).arp_policy == ArpPolicy::Arping
            }),
            ("FLAT_NETWORK_CNI_ARP_POLICY", "other", |config| {
                settings(config).arp_policy == ArpPolicy::Notify
            }),
            ("FLAT_NETWORK_CNI_PROXY_ARP", "true", |config| {
                settings(config).proxy_arp
            }),
            ("FLAT_NETWORK_CLUSTER_CIDR", "10.1.0.0/16", |config| {
                &*settings(config).cluster_cidr.0 == "10.1.0.0/16"
            }),
            ("FLAT_NETWORK_SERVICE_CIDR", "10.2.0.0/16", |config| {
                &*settings(config).service_cidr.0 == "10.2.0.0/16"
            }),
        ];
        check_rows("flat-network", FILE, cases);
    }
}
