use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fipd_core::{System, Text};

use super::*;
use crate::systems::{
    SYSTEMS,
    claims::settings::ClaimsSettings,
    rancher_fip::settings::{Announce, RancherFipQuotas, RancherFipRole, RancherFipSettings},
};

const SITE: &str = r#"
role = "standalone"
data-dir = "state"

[api]
listen = "127.0.0.1:0"

[[cluster]]
name = "rancher"
kubeconfig = "rancher.kubeconfig"
context = "local"
systems = ["rancher-fip"]
[cluster.rancher-fip]
role = "management"

[[cluster]]
name = "rke2-a"
in-cluster = true
systems = ["rancher-fip"]
[cluster.rancher-fip]
role = "downstream"
cluster-id = "c-m-abc12"
announce = "kube-vip"

[discovery]
cluster = "rancher"
systems = ["rancher-fip"]
[discovery.rancher-fip]
class-less = true

[[network]]
name = "blue"
match = [ { cluster = "rancher", pool = "blue-*" } ]
"#;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("/etc/fipd"))
}

/// The refusal, which must say where.
fn refused(text: &str) -> String {
    let what = parse(text).expect_err("this must be refused");
    assert!(
        what.contains("line ") && what.contains("column "),
        "no place in: {what}"
    );
    what
}

/// `SITE` with one line after `anchor` added.
fn with(anchor: &str, line: &str) -> String {
    assert!(SITE.contains(anchor), "no {anchor:?} in the site");
    SITE.replacen(anchor, &format!("{anchor}\n{line}"), 1)
}

#[test]
fn the_audit_log_keeps_a_million_entries_unless_told_otherwise() {
    let parse = |text: &str| Config::parse(text, Path::new("/etc/fipd"));
    assert_eq!(parse("").unwrap().audit.keep, Entries(1_000_000));
    let given = parse("[audit]\nkeep = 5000\n").unwrap();
    assert_eq!(given.audit.keep, Entries(5_000));
    for bad in ["999", "10000001"] {
        let error = parse(&format!("[audit]\nkeep = {bad}\n")).unwrap_err();
        assert!(error.contains("1000 to 10000000"), "{error}");
    }
}

#[test]
fn hours_of_pools_are_kept_for_five_weeks_and_days_for_a_year_unless_told_otherwise() {
    let parse = |text: &str| Config::parse(text, Path::new("/etc/fipd"));
    let kept = |text: &str| {
        let kept = parse(text).unwrap().history.retention();
        (kept.hourly, kept.daily)
    };
    assert_eq!(kept(""), (35, 400));
    assert_eq!(
        kept("[history]\nkeep-hours = 8\nkeep-days = 3660\n"),
        (8, 3_660)
    );
    for bad in ["keep-hours = 7", "keep-days = 3661"] {
        let error = parse(&format!("[history]\n{bad}\n")).unwrap_err();
        assert!(error.contains("allowed is 8 to 3660 days"), "{error}");
    }
}

#[test]
fn backups_are_made_daily_unless_told_otherwise() {
    let parse = |text: &str| Config::parse(text, Path::new("/etc/fipd"));
    let backup = |text: &str| parse(text).unwrap().backup;
    let day = Duration::from_secs(86_400);
    assert_eq!(backup(""), Backup::default());
    assert_eq!(
        (Backup::default().every, Backup::default().keep),
        (Every(Some(day)), Keep(7))
    );
    let given = backup("[backup]\nevery = \"6h\"\nkeep = 3\ndirectory = \"b\"\n");
    assert_eq!(given.every, Every(Some(day / 4)));
    assert_eq!(given.keep, Keep(3));
    assert_eq!(given.directory, Some("/etc/fipd/b".into()));
    assert_eq!(backup("[backup]\nevery = \"off\"\n").every, Every(None));
    for (text, words) in [
        ("every = \"5s\"", "every = \"5s\""),
        ("every = \"daily\"", "\"24h\""),
        ("keep = 0", "1 to 10000"),
        ("often = true", "unknown field"),
    ] {
        let error = parse(&format!("[backup]\n{text}\n")).unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
        assert!(error.contains("line 2"), "{text}: {error}");
    }
}

#[test]
fn a_whole_site_is_read() {
    let config = parse(SITE).unwrap();
    assert_eq!(
        config.data_dir.as_deref(),
        Some(Path::new("/etc/fipd/state"))
    );
    assert_eq!(
        config.clusters[0].source,
        Source::File {
            path: "/etc/fipd/rancher.kubeconfig".into(),
            context: Some("local".into())
        }
    );
    assert_eq!(config.clusters[1].source, Source::InCluster);
    let quotas = |config: &Config| {
        config.clusters[0]
            .settings
            .of::<RancherFipSettings>()
            .quotas
    };
    assert_eq!(quotas(&config), RancherFipQuotas::Required);
    let optional = parse(&with("role = \"management\"", "quotas = \"optional\"")).unwrap();
    assert_eq!(quotas(&optional), RancherFipQuotas::Optional);
    let what = refused(&with("role = \"downstream\"", "quotas = \"optional\""));
    assert!(what.contains("quotas is for role"), "{what}");
    let downstream = &config.clusters[1].settings.of::<RancherFipSettings>();
    assert_eq!(downstream.announce, Announce::KubeVip);
    assert_eq!(&*downstream.app_namespace, "rancher-fip-manager");
    let pools = config.pools_of(
        &System::rancher_fip(),
        &"rke2-a".into(),
        &config.clusters[1].settings,
    );
    assert_eq!(pools.as_deref(), Some("rancher"));
    let discovery = config.discovery.unwrap();
    assert_eq!(discovery.namespaces, vec![Text::from("fleet-default")]);
    assert_eq!(
        discovery.settings.of::<RancherFipSettings>().role,
        RancherFipRole::Downstream
    );
    assert!(discovery.settings.of::<RancherFipSettings>().class_less);
}

#[test]
fn an_empty_file_is_a_site_without_clusters() {
    let config = parse("").unwrap();
    assert_eq!(
        config.data_dir.as_deref(),
        Some(Path::new(DEFAULT_DATA_DIR))
    );
    assert_eq!(config.api.listen.to_string(), "127.0.0.1:8443");
    assert!(config.clusters.is_empty() && config.discovery.is_none());
}

#[test]
fn unknown_keys_are_refused_with_place_and_allowed_keys() {
    let what = refused("rolle = \"standalone\"\n");
    assert!(
        what.contains("line 1, column 1") && what.contains("`rolle`") && what.contains("`role`"),
        "{what}"
    );
    let what = refused(&with("[cluster.rancher-fip]", "anounce = \"none\""));
    assert!(
        what.contains("`anounce`") && what.contains("`announce`"),
        "{what}"
    );
    let what = refused(&with("context = \"local\"", "token = \"x\""));
    assert!(
        what.contains("`token`") && what.contains("`insecure-skip-tls-verify`"),
        "{what}"
    );
    let what = refused("[[network]]\nname = \"a\"\nmatch = [{ pools = \"x\" }]\n");
    assert!(
        what.contains("line 3") && what.contains("`pools`") && what.contains("`pool`"),
        "{what}"
    );
    let what = refused(&with("[discovery.rancher-fip]", "cluster-id = \"c-1\""));
    assert!(what.contains("`cluster-id`"), "{what}");
}

#[test]
fn what_this_version_does_not_do_is_refused_by_name() {
    let what = refused("role = \"standalone\"\n[leader-election]\ncluster = \"a\"\n");
    assert!(what.contains("standalone"), "{what}");
    assert!(refused("role = \"server\"").contains("which is \"standalone\""));
    assert!(refused("role = \"leader\"").contains("allowed is \"standalone\""));
    let what = refused("[[cluster]]\nname = \"a\"\nin-cluster = true\nsystems = [\"flat-web\"]\n");
    assert!(
        what.contains("flat-web") && what.contains("rancher-fip"),
        "{what}"
    );
    assert!(
        refused("[[network]]\nname = \"a\"\nmatch = [{ system = \"flat-web\" }]\n")
            .contains("flat-web")
    );
}

#[test]
fn listeners_serve_what_needs_no_login() {
    let text = "[[listener]]\naddress = \"127.0.0.1:9100\"\ntls = false\nserve = [\"metrics\"]\n\
                [[listener]]\naddress = \"[::1]:0\"\nserve = [\"health\", \"metrics\", \"fip-v1\", \"ipam\"]\n";
    let listeners = parse(text).unwrap().listeners;
    assert_eq!(listeners[0].serve, BTreeSet::from([Serve::Metrics]));
    assert_eq!((listeners[0].tls, listeners[1].tls), (false, true));
    assert_eq!(listeners[1].serve.len(), 4);

    let listener = |address: &str, serve: &str| {
        format!("[[listener]]\naddress = \"{address}\"\nserve = [{serve}]\n")
    };
    for other in ["ui", "api", "fip", "metrics:claims", "metric"] {
        let what = refused(&listener("127.0.0.1:80", &format!("{other:?}")));
        assert!(
            what.contains("line 3") && what.contains(other) && what.contains("\"health\""),
            "{what}"
        );
    }
    let one = parse(&listener("127.0.0.1:80", "\"metrics:rancher-fip\""));
    assert_eq!(
        one.unwrap().listeners[0].serve,
        BTreeSet::from([Serve::SystemMetrics("rancher-fip")])
    );
    let one = parse(&listener("127.0.0.1:80", "\"metrics:ip-rule\", \"health\""));
    assert!(
        one.unwrap().listeners[0]
            .serve
            .contains(&Serve::SystemMetrics("ip-rule"))
    );
    let both = refused(&listener(
        "127.0.0.1:80",
        "\"metrics\", \"metrics:rancher-fip\"",
    ));
    assert!(both.contains("at one path"), "{both}");
    assert!(refused(&listener("127.0.0.1:80", "")).contains("serve is empty"));
    assert!(refused("\n[[listener]]\naddress = \"127.0.0.1:80\"\n").contains("`serve`"));
    let metrics = listener("127.0.0.1:9100", "\"metrics\"");
    let twice = refused(&(metrics.clone() + &metrics));
    assert!(
        twice.contains("line 4") && twice.contains("taken"),
        "{twice}"
    );
    let config = parse(&metrics).unwrap();
    let taken = config.check("127.0.0.1:9100".parse().unwrap(), None);
    assert!(taken.unwrap_err().contains("taken"));
    config.check(config.api.listen, None).unwrap();
}

#[test]
fn a_default_leaves_a_mirror_where_it_is_and_a_rule_does_not() {
    let cluster = ["east".into()];
    let system = System::rancher_fip();
    let mut facts = PoolFacts {
        cluster: &cluster,
        system: &system,
        namespace: None,
        interface: None,
        link: &PoolLink::NONE,
        pool: "vips",
        annotation: None,
        own_network: None,
    };
    let is_in = || Some("blue".into());
    let nothing = NetworkRules::default();
    let choice = nothing.choose(&facts).unless_in(is_in());
    assert_eq!((&*choice.network, choice.by), ("blue", ChosenBy::Default));
    assert_eq!(&*nothing.choose(&facts).unless_in(None).network, "default");
    let text = "[[network]]\nname = \"red\"\nmatch = [{ cluster = \"east\" }]\n";
    let rules = parse(text).unwrap().networks;
    assert_eq!(&*rules.choose(&facts).unless_in(is_in()).network, "red");
    facts.annotation = Some("green");
    assert_eq!(&*nothing.choose(&facts).unless_in(is_in()).network, "green");
    facts.annotation = None;
    facts.own_network = Some("its-own");
    let choice = nothing.choose(&facts);
    assert_eq!((&*choice.network, choice.by), ("its-own", ChosenBy::System));
    assert!(!choice.is_default_for(None), "somebody chose it");
    assert_eq!(&*choice.unless_in(is_in()).network, "blue");
    assert_eq!(rules.choose(&facts).by, ChosenBy::Rule);
}

#[test]
fn values_are_typed() {
    assert!(refused("[api]\nlisten = \"localhost\"\n").contains("line 2"));
    assert!(refused("[api]\ncert = \"a\"\n").contains("cert and key"));
    assert!(refused("[api]\nadvertise = \"http://a\"\n").contains("https://"));
    assert!(parse("[api]\nadvertise = \"https://fipd.example:9443\"\n").is_ok());
    assert!(parse("[api]\nnames = [\"a.example\", \"192.0.2.1\", \"2001:db8::1\"]\n").is_ok());
    for name in ["a.example:1", "https://a", "A", "", "a_b c"] {
        assert!(refused(&format!("[api]\nnames = [{name:?}]\n")).contains("[api] names"));
    }
    assert!(refused(&with("[cluster.rancher-fip]", "announce = \"arp\"")).contains("kube-vip"));
    for name in ["", "A", "a_b", "-a", "a.", &"a".repeat(64)] {
        let text = format!("[[cluster]]\nname = {name:?}\nin-cluster = true\n");
        assert!(refused(&text).contains("cluster name"), "{name}");
    }
}

#[test]
fn clusters_must_fit_together() {
    let twice = "[[cluster]]\nname = \"a\"\nin-cluster = true\n[[cluster]]\nname = \"a\"\nin-cluster = true\n";
    let what = refused(twice);
    assert!(what.contains("line 4") && what.contains("twice"), "{what}");
    let both = "[[cluster]]\nname = \"a\"\nin-cluster = true\nkubeconfig = \"x\"\n";
    assert!(refused(both).contains("one of"));
    assert!(refused("[[cluster]]\nname = \"a\"\n").contains("one of"));
    assert!(refused("[discovery]\ncluster = \"a\"\n").contains("is no [[cluster]]"));
    let lonely = "[[cluster]]\nname = \"a\"\nin-cluster = true\nsystems = [\"rancher-fip\"]\n\
                  [cluster.rancher-fip]\nrole = \"downstream\"\n";
    assert!(refused(lonely).contains("management is missing"));
    let what = refused(&with(
        "cluster-id = \"c-m-abc12\"",
        "management = \"rke2-a\"",
    ));
    assert!(what.contains("allowed are \"rancher\""), "{what}");
    let what = refused(&with("role = \"management\"", "announce = \"metallb\""));
    assert!(what.contains("announce is for role"), "{what}");
    let idle = "[[cluster]]\nname = \"a\"\nin-cluster = true\n[cluster.rancher-fip]\nrole = \"management\"\n";
    assert!(refused(idle).contains("do nothing"));
    let discovered = with("[discovery.rancher-fip]", "role = \"management\"");
    assert!(refused(&discovered).contains("can only be \"downstream\""));
}

#[test]
fn two_management_clusters_need_the_downstream_one_to_choose() {
    let second =
        "\n[[cluster]]\nname = \"rancher-2\"\nin-cluster = true\nsystems = [\"rancher-fip\"]\n";
    let what = refused(&format!("{SITE}{second}"));
    assert!(what.contains("\"rancher\", \"rancher-2\""), "{what}");
    let text = format!("{SITE}{second}")
        .replace("cluster-id =", "management = \"rancher-2\"\ncluster-id =")
        .replace("class-less = true", "management = \"rancher\"");
    let config = parse(&text).unwrap();
    let settings = &config.cluster("rke2-a").unwrap().settings;
    let pools = config.pools_of(&System::rancher_fip(), &"rke2-a".into(), settings);
    assert_eq!(pools.as_deref(), Some("rancher-2"));
}

#[test]
fn patterns_fit_as_a_shell_would() {
    let fits =
        |pattern: &str, name: &str| Pattern::try_from(pattern.to_owned()).unwrap().matches(name);
    for (pattern, name) in [
        ("*", ""),
        ("*", "x"),
        ("a*c", "abbc"),
        ("a*c", "ac"),
        ("a?c", "abc"),
        ("*b*", "abc"),
        ("a*b*c", "aXbYbZc"),
    ] {
        assert!(fits(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in [
        ("a", "ab"),
        ("a*c", "abd"),
        ("a?c", "ac"),
        ("?", ""),
        ("*a", "ab"),
        ("", "x"),
    ] {
        assert!(
            pattern.is_empty() || !fits(pattern, name),
            "{pattern} {name}"
        );
    }
    assert!(Pattern::try_from(String::new()).is_err());
}

fn rules(text: &str) -> NetworkRules {
    parse(text).unwrap().networks
}

fn on_vlan(vlan: u16) -> PoolLink {
    PoolLink {
        vlan: Some(vlan),
        ..PoolLink::NONE
    }
}

fn facts<'a>(cluster: &'a [Text], pool: &'a str, system: &'a System) -> PoolFacts<'a> {
    PoolFacts {
        cluster,
        system,
        namespace: None,
        interface: None,
        link: &PoolLink::NONE,
        pool,
        annotation: None,
        own_network: None,
    }
}

const RULES: &str = r#"
[[network]]
name = "blue"
match = [ { cluster = "rancher", pool = "blue-*" }, { namespace = "blue" } ]
[[network]]
name = "green"
match = [ { vlan = 7 }, { interface = "eth1" } ]
[[network]]
name = "red"
match = [ { cluster = "c-m-*" } ]
"#;

#[test]
fn a_vlan_that_is_not_known_takes_no_pool_elsewhere() {
    let rules = rules(RULES);
    let (system, here) = (System::rancher_fip(), ["rancher".into()]);
    let there = ["c-m-1".into()];
    let unread = PoolLink {
        unread: true,
        ..PoolLink::NONE
    };
    let pool = |cluster, name| PoolFacts {
        link: &unread,
        ..facts(cluster, name, &system)
    };
    let stays = |facts: &PoolFacts<'_>| {
        let choice = rules.choose(facts).unless_in(Some("green".into()));
        (choice.network.to_string(), choice.by)
    };
    let blue = pool(&here, "blue-1");
    assert_eq!(stays(&blue), ("blue".into(), ChosenBy::Rule), "decided");
    assert!(!rules.ask_for_vlan(&blue));
    // Its rule may still be that of VLAN 7, which comes before that of its cluster.
    let other = pool(&there, "x");
    assert_eq!(stays(&other), ("green".into(), ChosenBy::Default));
    assert!(rules.ask_for_vlan(&other));
    let chosen = PoolFacts {
        annotation: Some("red"),
        own_network: None,
        ..other
    };
    assert!(!rules.ask_for_vlan(&chosen), "nothing asks");
    let eth1 = PoolFacts {
        interface: Some("eth1"),
        ..other
    };
    assert_eq!(rules.choose(&eth1).by, ChosenBy::Rule, "decided as well");
    assert!(!rules.ask_for_vlan(&eth1));
}

#[test]
fn an_interface_is_the_one_that_a_pool_names_or_the_physical_network_of_its_vlan() {
    let rules = rules(
        "[[network]]\nname = \"a\"\nmatch = [{ vlan = 7, interface = \"mgmt\" }]\n\
         [[network]]\nname = \"b\"\nmatch = [{ interface = \"eth1\" }]\n",
    );
    let (system, here) = (System::rancher_fip(), ["rancher".into()]);
    let network = |vlan, physical: Option<&str>, interface| {
        let link = PoolLink {
            vlan,
            physical: physical.map(Text::from),
            unread: false,
        };
        let pool = PoolFacts {
            link: &link,
            interface,
            ..facts(&here, "x", &system)
        };
        rules.choose(&pool).network.to_string()
    };
    assert_eq!(network(Some(7), Some("mgmt"), Some("eth1")), "a");
    assert_eq!(network(Some(7), Some("data"), Some("eth1")), "b");
    assert_eq!(network(Some(7), None, Some("mgmt")), "a");
    assert_eq!(network(Some(7), Some("data"), None), "vlan-7");
    assert_eq!(network(None, Some("mgmt"), None), "default", "untagged");
    let unread = PoolLink {
        unread: true,
        ..PoolLink::NONE
    };
    let asked = PoolFacts {
        link: &unread,
        ..facts(&here, "x", &system)
    };
    assert!(
        rules.ask_for_vlan(&asked),
        "the interface may be the physical network"
    );
    let named = PoolFacts {
        interface: Some("eth1"),
        pool: "x",
        ..asked
    };
    let by_interface =
        self::rules("[[network]]\nname = \"b\"\nmatch = [{ interface = \"eth1\" }]\n");
    assert!(by_interface.ask_for_vlan(&asked), "it may be eth1");
    assert!(!by_interface.ask_for_vlan(&named), "it is eth1");
}

#[test]
fn the_first_fitting_rule_chooses_the_network() {
    let (rules, system) = (rules(RULES), System::rancher_fip());
    let here = ["rancher".into()];
    let there = ["rke2-a".into(), "c-m-1".into()];
    let chosen = |facts: PoolFacts<'_>| {
        let choice = rules.choose(&facts);
        (choice.network.to_string(), choice.by)
    };
    let pool = |name| facts(&here, name, &system);
    assert_eq!(chosen(pool("blue-1")), ("blue".into(), ChosenBy::Rule));
    assert_eq!(chosen(pool("other")), ("default".into(), ChosenBy::Default));
    assert_eq!(
        chosen(PoolFacts {
            namespace: Some("blue"),
            ..pool("x")
        })
        .0,
        "blue"
    );
    assert_eq!(
        chosen(PoolFacts {
            link: &on_vlan(7),
            ..pool("x")
        })
        .0,
        "green"
    );
    assert_eq!(
        chosen(PoolFacts {
            link: &on_vlan(8),
            ..pool("x")
        }),
        ("vlan-8".into(), ChosenBy::Default)
    );
    assert_eq!(
        chosen(PoolFacts {
            interface: Some("eth1"),
            ..facts(&there, "blue-1", &system)
        })
        .0,
        "green"
    );
    assert_eq!(chosen(facts(&there, "blue-1", &system)).0, "red");
}

#[test]
fn an_annotation_counts_on_cluster_scoped_pools_only() {
    let (rules, system) = (rules(RULES), System::rancher_fip());
    let here = ["rancher".into()];
    let pool = PoolFacts {
        annotation: Some("grey"),
        own_network: None,
        ..facts(&here, "blue-1", &system)
    };
    assert_eq!(rules.choose(&pool).by, ChosenBy::Annotation);
    assert_eq!(&*rules.choose(&pool).network, "grey");
    let namespaced = rules.choose(&PoolFacts {
        namespace: Some("team"),
        ..pool
    });
    assert_eq!(&*namespaced.network, "blue");
    assert!(namespaced.ignored_annotation.unwrap().contains("team"));
    let malformed = rules.choose(&PoolFacts {
        annotation: Some("Grey!"),
        own_network: None,
        ..pool
    });
    assert_eq!(&*malformed.network, "blue");
    assert!(malformed.ignored_annotation.unwrap().contains("a-z"));
}

#[test]
fn possible_networks_stop_at_a_rule_that_takes_everything() {
    let system = System::rancher_fip();
    let possible = |rules: &NetworkRules, cluster: &str| {
        let names: Vec<String> = rules
            .possible(&[cluster.into()], &system)
            .iter()
            .map(ToString::to_string)
            .collect();
        names.join(" ")
    };
    let some = rules(RULES);
    assert_eq!(possible(&some, "rancher"), "blue default green");
    assert_eq!(possible(&some, "c-m-1"), "blue green red");
    assert_eq!(
        possible(
            &rules("[[network]]\nname = \"all\"\nmatch = [{ pool = \"*\" }]\n"),
            "x"
        ),
        "all"
    );
    assert_eq!(possible(&NetworkRules::default(), "x"), "default");
}

fn site(name: &str, pools_in: &str) -> Site {
    let systems = BTreeMap::from([(System::rancher_fip(), Text::from(pools_in))]);
    Site {
        name: name.into(),
        names: vec![name.into()],
        systems,
        holds_sightings: false,
    }
}

fn lines(all: &[Awaited]) -> Vec<String> {
    all.iter()
        .map(|one| format!("{} {} {}", one.network, one.cluster, one.system))
        .collect()
}

#[test]
fn a_network_waits_for_every_cluster_whose_pools_may_be_in_it() {
    let text = "[[network]]\nname = \"lab\"\nmatch = [{ cluster = \"lab\" }]\n\
                [[network]]\nname = \"blue\"\nmatch = [{ cluster = \"rancher\", pool = \"blue-*\" }]\n";
    let sites = [
        site("rancher", "rancher"),
        site("a", "rancher"),
        site("lab", "lab"),
        site("b", "lab"),
    ];
    let all = awaited(&rules(text), &sites, &BTreeSet::new(), None);
    assert_eq!(
        lines(&all),
        [
            "blue a rancher-fip",
            "blue rancher rancher-fip",
            "default a rancher-fip",
            "default rancher rancher-fip",
            "lab b rancher-fip",
            "lab lab rancher-fip",
        ]
    );
}

#[test]
fn networks_wait_for_what_others_use_in_clusters_that_hold_it() {
    let text = "[[network]]\nname = \"lab\"\nmatch = [{ system = \"claims\" }]\n";
    let mut holding = site("a", "rancher");
    holding.systems.insert(System::claims(), "a".into());
    holding.holds_sightings = true;
    let sites = [site("rancher", "rancher"), holding];
    let all = awaited(&rules(text), &sites, &BTreeSet::new(), None);
    let foreign: Vec<_> = lines(&all)
        .into_iter()
        .filter(|line| line.ends_with("foreign"))
        .collect();
    assert_eq!(foreign, ["default a foreign", "lab a foreign"]);
}

#[test]
fn sightings_are_held_where_the_configuration_names_the_cluster() {
    let cluster = "[[cluster]]\nname = \"a\"\nin-cluster = true\nsystems = [\"claims\"]\n";
    let mode = |more: &str| {
        let config = parse(&format!("{cluster}{more}")).unwrap();
        let cluster = &config.clusters[0];
        cluster.settings.sightings(&cluster.systems)
    };
    assert_eq!(mode(""), SightingMode::Hold);
    assert_eq!(mode("sightings = \"report\"\n"), SightingMode::Report);
    assert_eq!(mode("sightings = \"off\"\n"), SightingMode::Off);
    let rules = parse(&cluster.replace("claims", "ip-rule")).unwrap();
    let rules = &rules.clusters[0];
    let nobody_leases = rules.settings.sightings(&rules.systems);
    assert_eq!(nobody_leases, SightingMode::Off);
    let uploaded = |system: &str, settings: &str| {
        let (systems, text) = ([system.to_owned()], "{}".into());
        let cluster = ClusterConfig::uploaded(*SYSTEMS, "u", &systems, settings, &text).unwrap();
        cluster.settings.sightings
    };
    assert_eq!(uploaded("claims", ""), SightingMode::Report);
    assert_eq!(
        uploaded("rancher-fip", ""),
        SightingMode::Hold,
        "it has the pools"
    );
    let downstream = "[rancher-fip]\nrole = \"downstream\"\n";
    assert_eq!(uploaded("rancher-fip", downstream), SightingMode::Report);
    assert_eq!(
        uploaded("claims", "sightings = \"hold\"\n"),
        SightingMode::Hold
    );
    let discovery = |more: &str| {
        let text = format!("{cluster}[discovery]\ncluster = \"a\"\nsystems = [\"claims\"]\n{more}");
        parse(&text).unwrap().discovery.unwrap().settings.sightings
    };
    assert_eq!(discovery(""), SightingMode::Report);
    assert_eq!(discovery("sightings = \"hold\"\n"), SightingMode::Hold);
}

#[test]
fn a_cluster_without_systems_holds_nothing_back() {
    let idle = Site {
        name: "idle".into(),
        names: vec!["idle".into()],
        systems: BTreeMap::new(),
        holds_sightings: true,
    };
    assert_eq!(
        awaited(&NetworkRules::default(), &[idle], &BTreeSet::new(), None),
        []
    );
}

#[test]
fn a_network_found_on_a_pool_waits_for_all_users_of_that_cluster() {
    let sites = [
        site("rancher", "rancher"),
        site("a", "rancher"),
        site("lab", "lab"),
    ];
    let seen = BTreeSet::from([("rancher".into(), System::rancher_fip(), "grey".into())]);
    let all = awaited(&NetworkRules::default(), &sites, &seen, None);
    let grey: Vec<String> = lines(&all)
        .into_iter()
        .filter(|line| line.starts_with("grey"))
        .collect();
    assert_eq!(grey, ["grey a rancher-fip", "grey rancher rancher-fip"]);
}

#[test]
fn an_unlisted_discovery_source_counts_for_the_networks_of_its_template() {
    let sites = [site("rancher", "rancher")];
    let template = BTreeMap::from([(System::rancher_fip(), Text::from("rancher"))]);
    let source = Text::from("rancher");
    let all = awaited(
        &NetworkRules::default(),
        &sites,
        &BTreeSet::new(),
        Some((&source, &template)),
    );
    assert_eq!(
        lines(&all),
        ["default rancher discovery", "default rancher rancher-fip"]
    );
}

#[test]
fn rules_see_every_name_of_a_cluster() {
    let rules = rules("[[network]]\nname = \"lab\"\nmatch = [{ cluster = \"c-m-*\" }]\n");
    let mut lab = site("lab", "lab");
    lab.names.push("c-m-9".into());
    assert_eq!(
        lines(&awaited(&rules, &[lab], &BTreeSet::new(), None)),
        ["lab lab rancher-fip"]
    );
}

#[test]
fn claims_are_offered_what_the_cluster_says() {
    let cluster = "[[cluster]]\nname = \"lab\"\nin-cluster = true\n";
    let on = format!(
        "{cluster}systems = [\"claims\"]\n[cluster.claims]\npools = [\"lab-*\"]\ndefault-pool = \"lab-a\"\n"
    );
    let config = parse(&on).expect("a configuration");
    let claims = &config.clusters[0].settings.of::<ClaimsSettings>();
    assert_eq!(claims.default_pool.as_deref(), Some("lab-a"));
    let mut pool = fipd_core::Pool {
        id: fipd_core::PoolId(1),
        spec: fipd_core::PoolSpec::own("lab-a", Vec::new()),
        created: fipd_core::Timestamp(0),
        generation: 1,
    };
    assert!(claims.offers(&pool));
    assert!(
        !ClaimsSettings::default().offers(&pool),
        "nothing unless it is said"
    );
    pool.spec.name = "office".into();
    assert!(!claims.offers(&pool));
    pool.spec.name = "lab-x".into();
    pool.spec.allocation_length = Some(64);
    assert!(!claims.offers(&pool), "a claim is for an address");
    pool.spec.allocation_length = None;
    pool.spec.origin = fipd_core::Origin::Mirror {
        system: System::rancher_fip(),
        cluster: fipd_core::ClusterId("c".into()),
        object: "lab-x".into(),
        uid: "u".into(),
    };
    assert!(!claims.offers(&pool), "a mirror is not fipd's own");

    let off = format!("{cluster}systems = []\n[cluster.claims]\npools = [\"*\"]\n");
    assert!(refused(&off).contains("does not have \"claims\""));
    let found = "[discovery.rancher-fip]";
    let stray = SITE.replacen(
        found,
        &format!("[discovery.claims]\npools = [\"*\"]\n{found}"),
        1,
    );
    assert!(refused(&stray).contains("[discovery.claims]"));
}

#[test]
fn the_rate_of_lb_controllers_has_bounds() {
    let rates = |per_second: u32| {
        parse(&format!(
            "[fip-v1]\nrate-limit-per-second = {per_second}\nrate-limit-burst = 5\n"
        ))
    };
    assert_eq!(
        f64::from(rates(10_000).unwrap().fip_v1.rate_limit_per_second),
        10_000.0
    );
    for wrong in [0, 10_001] {
        let what = rates(wrong).unwrap_err();
        assert!(
            what.contains("[fip-v1]") && what.contains("1 to 10000"),
            "{what}"
        );
    }
}

#[test]
fn the_in_cluster_names_of_the_api_follow_the_clusters_that_have_its_service() {
    let text = "[[cluster]]\nname = \"a\"\nin-cluster = true\nsystems = [\"rancher-fip\"]\n[cluster.rancher-fip]\n";
    assert!(parse(text).unwrap().api_service_names().is_empty());
    let names = parse(&format!(
        "{text}api-service = true\napp-namespace = \"fip\"\n"
    ));
    let expected = ["", ".fip", ".fip.svc", ".fip.svc.cluster.local"];
    let expected = expected.map(|end| format!("rancher-fip-api-server{end}"));
    assert_eq!(names.unwrap().api_service_names(), expected.into());
    let downstream = format!("{text}role = \"downstream\"\napi-service = true\n");
    let error = parse(&downstream).unwrap_err();
    assert!(error.contains("api-service is for role"), "{error}");
    let plain = |listener: &str| {
        let listener = format!("[[listener]]\nserve = [\"fip-v1\"]\n{listener}");
        parse(&listener).unwrap().plain_fip_v1()
    };
    assert_eq!(plain("address = \"0.0.0.0:8080\"\ntls = false"), Some(8080));
    for other in [
        "address = \"127.0.0.1:8080\"\ntls = false",
        "address = \"0.0.0.0:8080\"",
    ] {
        assert_eq!(plain(other), None, "{other}");
    }
}

#[test]
fn the_configuration_in_documents_is_valid() {
    let operating = include_str!("../../../packaging/docs/operating.md");
    let rules = include_str!("../../../packaging/docs/ip-rule.md");
    let parts = [operating, rules].map(|text| text.split("```toml\n").skip(1));
    let parts = parts.into_iter().flatten();
    let shown: Vec<_> = parts.filter_map(|part| part.split("```").next()).collect();
    assert!(shown.len() >= 2, "{shown:?}");
    for text in shown {
        let config = parse(text).unwrap();
        let advertise = config.api.advertise.as_deref();
        let checked = config.check(config.api.listen, advertise);
        assert_eq!(checked, Ok(()), "{text}");
    }
}
