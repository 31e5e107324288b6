use std::path::Path;

use super::*;
use crate::config::Serve;
use crate::systems::SYSTEMS;

const TWO: &str = r#"
[[cluster]]
name = "rancher"
kubeconfig = "rancher.kubeconfig"
systems = ["rancher-fip"]
[[cluster]]
name = "other"
kubeconfig = "other.kubeconfig"
context = "own"
systems = ["rancher-fip"]
[cluster.rancher-fip]
role = "downstream"
management = "rancher"
"#;

fn config(text: &str) -> Config {
    Config::parse(text, Path::new("/etc/fipd")).unwrap()
}

fn flags(system: Option<&str>, values: &[(&'static str, &str)]) -> CompatFlags {
    let values = values
        .iter()
        .map(|(flag, text)| (*flag, (*text).to_owned()));
    CompatFlags {
        system: system.map(str::to_owned),
        values: values.collect(),
        ..CompatFlags::default()
    }
}

/// A configuration under flags of rancher-fip's originals, or of no original, and variables.
fn under(
    text: &str,
    given: &CompatFlags,
    variables: &[(&'static str, &str)],
) -> Result<(Config, CompatApplied), String> {
    let read = |name: &str| {
        let mut all = variables.iter();
        let found = all.find(|(one, _)| *one == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let given = CompatFlags {
        variables: SYSTEMS.compat_variables(read),
        ..given.clone()
    };
    config(text).under(&given)
}

fn context(config: &Config, name: &str) -> Option<String> {
    match &config.cluster(name).unwrap().source {
        Source::File { context, .. } => context.clone(),
        Source::InCluster | Source::Text { .. } => None,
    }
}

#[test]
fn defect_35_flags_that_had_no_effect_count_for_management_clusters() {
    let (same, applied) = under(TWO, &CompatFlags::default(), &[]).unwrap();
    assert_eq!((&same, applied), (&config(TWO), CompatApplied::default()));
    let given = flags(
        None,
        &[
            ("app-namespace", "app"),
            ("leader-elect", "false"),
            ("lease-lock-name", "lock"),
        ],
    );
    let variables = [
        ("FIPD_LEASE_LOCK_NAMESPACE", "locks"),
        ("FIPD_APP_NAMESPACE", "no"),
        ("FIPD_KUBECONTEXT", "admin"),
    ];
    let (under, applied) = under(TWO, &given, &variables).unwrap();
    let shown = format!("{:?}", under.cluster("rancher").unwrap().settings);
    for text in [
        "app_namespace: \"app\"",
        "leader_elect: false",
        "lease_lock_name: \"lock\"",
        "lease_lock_namespace: \"locks\"",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert_eq!(context(&under, "rancher").as_deref(), Some("admin"));
    assert_eq!(under.cluster("other"), config(TWO).cluster("other"));
    let by: Vec<_> = applied
        .set
        .iter()
        .map(|(_, value, by)| (&**value, &**by))
        .collect();
    assert_eq!(
        by,
        [
            ("\"admin\"", "FIPD_KUBECONTEXT"),
            ("\"app\"", "--app-namespace"),
            ("false", "--leader-elect"),
            ("\"lock\"", "--lease-lock-name"),
            ("\"locks\"", "FIPD_LEASE_LOCK_NAMESPACE"),
        ]
    );
}

#[test]
fn without_a_system_flags_are_refused_and_variables_ignored() {
    let variables = [
        ("KUBECONFIG", "/k"),
        ("LOGLEVEL", "DEBUG"),
        ("KUBECONTEXT", ""),
    ];
    let (same, applied) = under(TWO, &CompatFlags::default(), &variables).unwrap();
    assert_eq!(same, config(TWO));
    let ignored: Vec<_> = applied.ignored.into_iter().collect();
    assert_eq!(ignored, ["KUBECONFIG", "LOGLEVEL"]);
    let refused = under(TWO, &flags(None, &[("kubeconfig", "/k")]), &[]).unwrap_err();
    assert_eq!(
        refused,
        "--kubeconfig is a flag of an original program: allowed with --compat rancher-fip or ip-rule or kube-fip or cluster-api or flat-network"
    );
    let given = flags(Some("ip-rule"), &[("listen-address", ":8080")]);
    let refused = under(TWO, &given, &[]).unwrap_err();
    assert!(refused.contains("--listen-address"), "{refused}");
    assert!(refused.ends_with("--compat rancher-fip"), "{refused}");
}

#[test]
fn what_is_added_or_changed_fits_the_rest() {
    let named = "[[cluster]]\nname = \"ip-rule\"\nin-cluster = true\nsystems = [\"claims\"]\n";
    let compat = flags(Some("ip-rule"), &[("kubeconfig", "/k")]);
    let refused = under(named, &compat, &[]).unwrap_err();
    assert!(
        refused.contains("another [[cluster]] of the file"),
        "{refused}"
    );
    let health =
        "[[listener]]\naddress = \"127.0.0.1:7\"\ntls = false\nserve = [\"health\", \"ipam\"]\n";
    let (kept, applied) = under(health, &flags(Some("ip-rule"), &[]), &[]).unwrap();
    assert_eq!(kept, config(health), "the file wins over a default");
    assert_eq!(applied.set, []);
    let elsewhere = "[api]\nlisten = \"127.0.0.1:8081\"\n";
    let (taken, _) = under(elsewhere, &flags(Some("ip-rule"), &[]), &[]).unwrap();
    assert_eq!(
        taken,
        config(elsewhere),
        "a default takes no port of others"
    );
    let metrics = "[[listener]]\naddress = \"127.0.0.1:7\"\nserve = [\"metrics:rancher-fip\"]\n";
    let none = flags(Some("rancher-fip"), &[("http-service-port", "0")]);
    let (kept, _) = under(metrics, &none, &[]).unwrap();
    assert_eq!(
        kept,
        config(metrics),
        "it is another port than that of the flag"
    );
    let off = flags(Some("ip-rule"), &[("health-probe-bind-address", "0")]);
    let (off, _) = under(health, &off, &[]).unwrap();
    assert!(off.listeners[0].serve.iter().eq([&Serve::Ipam]), "{off:?}");
    let secure = [("metrics-bind-address", "0"), ("metrics-secure", "true")];
    let (none, _) = under("", &flags(Some("ip-rule"), &secure), &[]).unwrap();
    assert_eq!(none.listeners.len(), 1, "health alone: {none:?}");
}

#[test]
fn a_system_is_named_by_flag_or_file_and_has_an_original() {
    let file = format!("compat = \"rancher-fip\"\n{TWO}");
    let (loud, applied) = under(&file, &CompatFlags::default(), &[("LOGLEVEL", "DEBUG")]).unwrap();
    assert_eq!(loud.log_level.as_deref(), Some("debug"));
    assert_eq!(applied.ignored, BTreeSet::new());
    let flag = flags(Some("ip-rule"), &[]);
    let (quiet, applied) = under(&file, &flag, &[("LOGLEVEL", "DEBUG")]).unwrap();
    assert_eq!(quiet.log_level, None, "the command line wins");
    assert_eq!(applied.ignored, BTreeSet::from(["LOGLEVEL"]));
    let empty = flags(Some(""), &[]);
    assert_eq!(
        under("", &empty, &[]).unwrap(),
        under("", &flags(None, &[]), &[]).unwrap()
    );
    let wrong = Config::parse(
        "role = \"standalone\"\ncompat = \"nonsense\"\n",
        Path::new("/etc/fipd"),
    );
    assert!(
        wrong
            .unwrap_err()
            .starts_with("line 2, column 10: compat = \"nonsense\"")
    );
    for unknown in ["claims", "nonsense"] {
        let refused = under(TWO, &flags(Some(unknown), &[]), &[]).unwrap_err();
        assert_eq!(
            refused,
            format!(
                "compat = {unknown:?}: allowed is a system with an original: \"rancher-fip\" or \"ip-rule\" or \"kube-fip\" or \"cluster-api\" or \"flat-network\""
            )
        );
    }
}

#[test]
fn a_pod_or_a_kubeconfig_is_a_cluster_where_the_file_has_none() {
    let pod = [("KUBERNETES_SERVICE_HOST", "10.43.0.1")];
    let compat = flags(Some("ip-rule"), &[]);
    let (config, _) = under("", &compat, &pod).unwrap();
    assert_eq!(
        config.listeners[0].address.port(),
        8081,
        "the original's default"
    );
    let cluster = config.cluster("ip-rule").unwrap();
    assert_eq!(cluster.source, Source::InCluster);
    assert_eq!(
        cluster.systems,
        SYSTEMS.find("ip-rule").into_iter().collect()
    );
    let (bare, _) = under("", &compat, &[]).unwrap();
    assert_eq!(bare.clusters.len(), 0, "it runs in no pod");
    let (other, _) = under(TWO, &compat, &pod).unwrap();
    assert_eq!(
        other.clusters.len(),
        2,
        "the file says which clusters there are"
    );
    let given = flags(Some("ip-rule"), &[("kubeconfig", "/k")]);
    let (named, _) = under("", &given, &pod).unwrap();
    let path = Path::new("/k").to_owned();
    let source = Source::File {
        path,
        context: None,
    };
    assert_eq!(named.cluster("ip-rule").unwrap().source, source);
    let (compat, variables) = (flags(Some("rancher-fip"), &[]), [("KUBECONFIG", "/k")]);
    let two = under(TWO, &compat, &variables).unwrap_err();
    assert!(
        two.starts_with("KUBECONFIG = \"/k\": several clusters"),
        "{two}"
    );
}

#[test]
fn wrong_values_name_the_flag_the_value_and_what_is_allowed() {
    for (flag, value, allowed) in [
        ("leader-elect", "perhaps", "true and false"),
        ("app-namespace", "no/name", "name of an object"),
        ("rate-limit-burst", "0", "1 to 10000"),
        ("rate-limit-burst", "many", "a number"),
        ("listen-address", "nowhere:80", ":PORT"),
        ("http-service-port", "70000", "a port"),
    ] {
        let given = flags(Some("rancher-fip"), &[(flag, value)]);
        let wrong = under(TWO, &given, &[]).unwrap_err();
        assert!(
            wrong.starts_with(&format!("--{flag} = {value:?}: ")) && wrong.contains(allowed),
            "{wrong}"
        );
    }
    let level = under(
        TWO,
        &flags(Some("rancher-fip"), &[]),
        &[("LOGLEVEL", "loud")],
    );
    assert!(
        level
            .unwrap_err()
            .starts_with("LOGLEVEL = \"loud\": allowed are error")
    );
    let both = [("listen-address", ":8080"), ("http-service-port", "8080")];
    let both = under(TWO, &flags(Some("rancher-fip"), &both), &[]).unwrap_err();
    assert!(both.contains("taken by another [[listener]]"), "{both}");
    let half = flags(Some("rancher-fip"), &[("tls-cert-file", "/c")]);
    let half = under(TWO, &half, &[]).unwrap_err();
    assert!(half.contains("cert and key belong together"), "{half}");
}

#[test]
fn the_page_of_the_documentation_is_made_of_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/docs/compat.md");
    let page = std::fs::read_to_string(path).unwrap();
    assert!(
        page == SYSTEMS.compat_markdown(),
        "{path} is not what is read; write it again: fipd docs compat > packaging/docs/compat.md"
    );
}

/// A flag or variable, its value, and what becomes of the configuration.
pub(crate) type Case<'a> = (&'static str, &'a str, fn(&Config) -> bool);

/// Runs each row of a system with the value, or the variable, of its case, and checks what became of the configuration.
pub(crate) fn check_rows(system: &'static str, file: &str, cases: &[Case<'_>]) {
    let rows = SYSTEMS.get(system).unwrap().compat;
    for row in rows {
        for name in [row.flag, row.variable] {
            let with = cases.iter().filter(|(one, _, _)| *one == name).count();
            assert!(name.is_empty() || with > 0, "{name} has no case");
        }
    }
    for (name, value, expected) in cases {
        let row = rows
            .iter()
            .find(|row| [row.flag, row.variable].contains(name));
        let row = row.unwrap_or_else(|| panic!("no row of {name}"));
        let (given, variables) = match row.flag == *name {
            true => (flags(Some(system), &[(row.flag, value)]), vec![]),
            false => (flags(Some(system), &[]), vec![(*name, *value)]),
        };
        let (config, applied) = under(file, &given, &variables).unwrap();
        assert!(expected(&config), "{name} = {value}: {config:?}");
        let (bare, _) = under(file, &flags(Some(system), &[]), &[]).unwrap();
        let changed = applied.set.iter().any(|(_, _, by)| by.ends_with(name));
        assert_eq!(config != bare, changed, "{name} = {value}: {applied:?}");
        if let Effect::Nothing = row.effect {
            assert!(!changed, "{name} is accepted and does nothing");
            let said = applied.unneeded.iter().any(|(by, _)| by.ends_with(name));
            assert!(said || row.always, "{name}: the log says why");
        }
        assert_eq!(applied.ignored, BTreeSet::new(), "{name}");
    }
}
