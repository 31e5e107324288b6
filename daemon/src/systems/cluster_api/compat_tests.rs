use super::*;
use crate::config::{
    CompatFlags, Source,
    compat::tests::{Case, check_rows},
};

const FILE: &str = r#"
[api]
advertise = "https://fipd.example:8443"
[[cluster]]
name = "management"
in-cluster = true
systems = ["cluster-api"]
[cluster.cluster-api.hook]
namespace-labels = { team = "a" }
[[listener]]
address = "127.0.0.1:1"
tls = false
serve = ["metrics:cluster-api"]
"#;

fn settings(config: &Config) -> &ClusterApiSettings {
    config.cluster("management").unwrap().settings.of()
}

/// The port that serves this and nothing else, and whether with TLS.
fn port(config: &Config, serve: Serve) -> Option<(u16, bool)> {
    let mut all = config.listeners.iter();
    let found = all.find(|one| one.serve.iter().eq([&serve]))?;
    Some((found.address.port(), found.tls))
}

/// The table a.2 of the contract, with what its README says each means.
#[test]
fn every_flag_and_variable_does_what_it_says() {
    let kubeconfig: fn(&Config) -> bool = |config| {
        let source = &config.cluster("management").unwrap().source;
        matches!(source, Source::File { path, context: None } if path.ends_with("k"))
    };
    let cases: &[Case<'_>] = &[
        ("enable-reconciler", "false", |config| {
            !settings(config).vips
        }),
        ("enable-reconciler", "true", |config| settings(config).vips),
        ("enable-runtime-extension", "false", |config| {
            settings(config).hook.is_none()
        }),
        ("enable-runtime-extension", "true", |config| {
            let hook = settings(config).hook.as_ref();
            hook.is_some_and(|hook| hook.namespace_labels["team"] == "a")
        }),
        ("runtime-extension-port", "9443", |config| {
            port(config, Serve::Hooks) == Some((9443, true))
        }),
        ("runtime-extension-name", "vip-allocator", |_| true),
        ("leader-elect", "false", |config| {
            !settings(config).leader_elect
        }),
        ("leader-elect", "true", |config| {
            settings(config).leader_elect
        }),
        ("default-port", "7443", |config| {
            settings(config).default_port.get() == 7443
        }),
        ("metrics-bind-address", "127.0.0.1:8082", |config| {
            port(config, METRICS) == Some((8082, false))
        }),
        ("metrics-bind-address", "0", |config| {
            port(config, METRICS).is_none()
        }),
        ("health-probe-bind-address", ":8083", |config| {
            port(config, Serve::Health) == Some((8083, false))
        }),
        ("kubeconfig", "/k", kubeconfig),
        ("KUBECONFIG", "/k", kubeconfig),
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
    ];
    check_rows("cluster-api", FILE, cases);
}

fn under(flags: &[(&'static str, &str)]) -> Result<(Config, crate::config::CompatApplied), String> {
    let values = flags.iter();
    let values = values.map(|(flag, text)| (*flag, (*text).to_owned()));
    let given = CompatFlags {
        system: Some("cluster-api".to_owned()),
        values: values.collect(),
        ..CompatFlags::default()
    };
    let (file, _) = FILE.split_once("[cluster.cluster-api.hook]").unwrap();
    let config = Config::parse(file, std::path::Path::new("/etc/fipd")).unwrap();
    config.under(&given)
}

/// What a Deployment of the original's says is enough, and means what its README says rather than what its code does.
#[test]
fn without_flags_the_readme_of_the_original_holds() {
    let (bare, _) = under(&[]).unwrap();
    let given = settings(&bare);
    assert!(given.vips && given.hook.is_none() && given.leader_elect);
    assert_eq!(given.default_port.get(), 6443);
    assert_eq!(port(&bare, METRICS), Some((8080, false)));
    assert_eq!(port(&bare, Serve::Health), Some((8081, false)));
    assert_eq!(port(&bare, Serve::Hooks), None);

    let shipped = [
        ("leader-elect", "true"),
        ("enable-reconciler", "true"),
        ("enable-runtime-extension", "false"),
        ("runtime-extension-port", "9443"),
        ("runtime-extension-name", "vip-allocator"),
    ];
    let (shipped, applied) = under(&shipped).unwrap();
    assert_eq!(shipped, bare, "the extension is off, and so is its port");
    let [(by, why)] = applied.unneeded.as_slice() else {
        panic!("{applied:?}")
    };
    assert_eq!(by, "--runtime-extension-name");
    assert!(why.contains("fipd-vip"), "{why}");

    let hooked = [
        ("runtime-extension-port", "9443"),
        ("enable-runtime-extension", "true"),
    ];
    let (hooked, _) = under(&hooked).unwrap();
    assert!(settings(&hooked).hook.is_some());
    assert_eq!(port(&hooked, Serve::Hooks), Some((9443, true)));
}

#[test]
fn wrong_values_name_the_flag_the_value_and_what_is_allowed() {
    for (flag, value, allowed) in [
        ("default-port", "0", "1 to 65535"),
        ("default-port", "70000", "1 to 65535"),
        ("enable-reconciler", "perhaps", "true and false"),
        ("runtime-extension-port", "many", "a port"),
    ] {
        let wrong = under(&[(flag, value)]).unwrap_err();
        let start = format!("--{flag} = {value:?}: ");
        assert!(
            wrong.starts_with(&start) && wrong.contains(allowed),
            "{wrong}"
        );
    }
}
