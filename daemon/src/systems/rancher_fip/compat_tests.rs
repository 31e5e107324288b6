use super::*;
use crate::config::{Source, compat::tests::check_rows};

const FILE: &str = r#"
[[cluster]]
name = "rancher"
kubeconfig = "/etc/rancher.kubeconfig"
systems = ["rancher-fip"]
[api]
cert = "/old.crt"
key = "/old.key"
[[listener]]
address = "127.0.0.1:1"
serve = ["fip-v1"]
"#;

fn settings(config: &Config) -> &RancherFipSettings {
    config.cluster("rancher").unwrap().settings.of()
}

fn file(config: &Config) -> (String, Option<&str>) {
    match &config.cluster("rancher").unwrap().source {
        Source::File { path, context } => (path.display().to_string(), context.as_deref()),
        Source::InCluster | Source::Text { .. } => panic!("no file"),
    }
}

/// Port, TLS and words of the listeners beside that of the file.
fn added(config: &Config) -> Vec<(u16, bool, Vec<String>)> {
    let added = config.listeners.iter().skip(1);
    let words = |one: &Listener| {
        one.serve
            .iter()
            .map(|word| word.word().into_owned())
            .collect()
    };
    added
        .map(|one| (one.address.port(), one.tls, words(one)))
        .collect()
}

#[test]
fn every_flag_and_variable_does_what_it_says() {
    check_rows(
        "rancher-fip",
        FILE,
        &[
            ("kubeconfig", "/k", |config| {
                file(config) == ("/k".to_owned(), None)
            }),
            ("KUBECONFIG", "/k", |config| {
                file(config) == ("/k".to_owned(), None)
            }),
            ("kubecontext", "admin", |config| {
                file(config).1 == Some("admin")
            }),
            ("FIPD_KUBECONTEXT", "admin", |config| {
                file(config).1 == Some("admin")
            }),
            ("context", "admin", |config| file(config).1 == Some("admin")),
            ("KUBECONTEXT", "admin", |config| {
                file(config).1 == Some("admin")
            }),
            ("app-namespace", "app", |config| {
                &*settings(config).app_namespace == "app"
            }),
            ("FIPD_APP_NAMESPACE", "app", |config| {
                &*settings(config).app_namespace == "app"
            }),
            ("leader-elect", "false", |config| {
                !settings(config).leader_elect
            }),
            ("FIPD_LEADER_ELECT", "0", |config| {
                !settings(config).leader_elect
            }),
            ("lease-lock-name", "mine", |config| {
                &*settings(config).lease_lock_name == "mine"
            }),
            ("lease-lock-name", MANAGER_LEASE, |config| {
                settings(config) == RancherFipSettings::fallback()
            }),
            ("lease-lock-name", LB_CONTROLLER_LEASE, |config| {
                settings(config) == RancherFipSettings::fallback()
            }),
            ("FIPD_LEASE_LOCK_NAME", "mine", |config| {
                &*settings(config).lease_lock_name == "mine"
            }),
            ("lease-lock-namespace", "locks", |config| {
                &*settings(config).lease_lock_namespace == "locks"
            }),
            ("FIPD_LEASE_LOCK_NAMESPACE", "locks", |config| {
                &*settings(config).lease_lock_namespace == "locks"
            }),
            ("LOGLEVEL", "DEBUG", |config| {
                config.log_level.as_deref() == Some("debug")
            }),
            ("http-service-port", "8081", |config| {
                let words = ["metrics:rancher-fip", "ipam"].map(str::to_owned);
                added(config) == [(8081, false, words.to_vec())]
            }),
            ("http-service-port", "0", |config| added(config).is_empty()),
            ("http-server-port", "8082", |config| {
                added(config) == [(8082, false, vec!["health".to_owned()])]
            }),
            ("enable-http-server", "true", |config| {
                added(config).is_empty()
            }),
            ("listen-address", "127.0.0.1:8080", |config| {
                let address = config.listeners[0].address;
                address.to_string() == "127.0.0.1:8080" && config.listeners[0].tls
            }),
            ("tls-enabled", "false", |config| !config.listeners[0].tls),
            ("tls-enabled", "true", |config| config.listeners[0].tls),
            ("tls-cert-file", "/c", |config| {
                config.api.cert.as_deref() == Some("/c".as_ref())
            }),
            ("tls-key-file", "/k", |config| {
                config.api.key.as_deref() == Some("/k".as_ref())
            }),
            ("rate-limit-per-second", "7", |config| {
                f64::from(config.fip_v1.rate_limit_per_second) == 7.0
            }),
            ("rate-limit-burst", "8", |config| {
                f64::from(config.fip_v1.rate_limit_burst) == 8.0
            }),
            ("jwt-generate-key", "true", |_| true),
            ("jwt-secret-name", "jwt-private-key", |_| true),
            ("jwt-secret-namespace", "rancher-fip-manager", |_| true),
            ("CERTRENEWALPERIOD", "43200", |_| true),
        ],
    );
}

#[test]
fn ports_are_added_with_their_tls_or_left_out() {
    let config = Config::parse(
        "[[cluster]]\nname = \"a\"\nin-cluster = true\nsystems = [\"rancher-fip\"]\n",
        "/etc/fipd".as_ref(),
    )
    .unwrap();
    let under = |values: &[(&'static str, &str)]| {
        let values = values
            .iter()
            .map(|(flag, text)| (*flag, (*text).to_owned()));
        let given = crate::config::CompatFlags {
            system: Some("rancher-fip".to_owned()),
            values: values.collect(),
            ..Default::default()
        };
        config.clone().under(&given).map(|(config, _)| config)
    };
    let served = under(&[("listen-address", ":8080"), ("tls-enabled", "true")]).unwrap();
    let listener = &served.listeners[0];
    assert_eq!((listener.address.port(), listener.tls), (8080, true));
    let plain = under(&[("listen-address", ":8080")]).unwrap();
    assert_eq!(plain.plain_fip_v1(), Some(8080));
    let default = under(&[("tls-enabled", "true")]).unwrap();
    let listener = &default.listeners[0];
    assert_eq!((listener.address.port(), listener.tls), (8080, true));
    let none = under(&[
        ("http-server-port", "8082"),
        ("enable-http-server", "false"),
    ])
    .unwrap();
    assert_eq!(none.listeners.len(), 0);
}
