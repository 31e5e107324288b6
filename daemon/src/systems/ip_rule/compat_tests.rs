use super::*;
use crate::config::{Config, Source, compat::tests::check_rows};

const FILE: &str = r#"
[[cluster]]
name = "east"
in-cluster = true
systems = ["ip-rule"]
[[listener]]
address = "127.0.0.1:1"
serve = ["metrics:ip-rule"]
"#;

#[test]
fn every_flag_and_variable_does_what_it_says() {
    let kubeconfig: fn(&Config) -> bool = |config| {
        let source = &config.cluster("east").unwrap().source;
        matches!(source, Source::File { path, context: None } if path.ends_with("k"))
    };
    check_rows(
        "ip-rule",
        FILE,
        &[
            ("kubeconfig", "/k", kubeconfig),
            ("KUBECONFIG", "/k", kubeconfig),
            ("leader-elect", "false", |config| {
                let settings = &config.cluster("east").unwrap().settings;
                !settings.of::<IpRuleSettings>().leader_elect
            }),
            ("metrics-bind-address", "127.0.0.1:8443", |config| {
                config.listeners[0].address.port() == 8443 && config.listeners[0].tls
            }),
            ("metrics-bind-address", "0", |config| {
                config.listeners.len() == 1
            }),
            ("metrics-secure", "false", |config| !config.listeners[0].tls),
            ("health-probe-bind-address", ":8082", |config| {
                let added = &config.listeners.last().unwrap();
                let health = added.serve.contains(&Serve::Health);
                health && added.address.port() == 8082 && !added.tls
            }),
            ("zap-log-level", "debug", |config| {
                config.log_level.as_deref() == Some("debug")
            }),
            ("zap-log-level", "5", |config| {
                config.log_level.as_deref() == Some("trace")
            }),
            ("zap-devel", "true", |_| true),
            ("zap-encoder", "json", |_| true),
            ("zap-stacktrace-level", "panic", |_| true),
            ("zap-time-encoding", "iso8601", |_| true),
            ("metrics-cert-path", "/certs", |_| true),
            ("metrics-cert-name", "tls.crt", |_| true),
            ("metrics-cert-key", "tls.key", |_| true),
            ("webhook-cert-path", "/certs", |_| true),
            ("webhook-cert-name", "tls.crt", |_| true),
            ("webhook-cert-key", "tls.key", |_| true),
            ("enable-http2", "false", |_| true),
            ("RELATED_IMAGE_AGENT_IMAGE", "image", |_| true),
            ("AGENT_IMAGE", "image", |_| true),
            ("NODE_NAME", "node", |_| true),
            ("RECONCILE_PERIOD", "10s", |_| true),
            ("METRICS_ADDR", ":9090", |_| true),
        ],
    );
}
