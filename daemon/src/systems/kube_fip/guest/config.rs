//! What the guests are to have: the keys of ConfigMap `kube-fip-config` with the original's defaults, and fipd's own
//! configuration over them. Pure.

use std::{collections::BTreeSet, time::Duration};

use fipd_crds::names::is_label;
use serde_json::{Map, Value};

use crate::{
    config::compat::go_boolean,
    guests::{
        charts::{ChartRelease, Unversioned},
        objects::Texts,
    },
    helm::{ChartVersion, Reference, Values},
    systems::kube_fip::settings::{GuestInstall, GuestInterval, GuestLogLevel, KubeFipSettings},
};

/// The chart of kube-vip, and how its keys begin.
const KUBE_VIP: &str = "kube-vip";
/// The same of the cloud provider.
const CLOUD_PROVIDER: &str = "kube-vip-cloud-provider";

/// Values where nobody gives any, as the original has them.
const KUBE_VIP_VALUES: &str = "\
image:
  repository: plndr/kube-vip
  tag: v0.6.4
config:
  vip_interface: enp1s0
nodeSelector:
  node-role.kubernetes.io/master: \"true\"
";
const CLOUD_PROVIDER_VALUES: &str = "\
image:
  repository: kubevip/kube-vip-cloud-provider
  tag: v0.0.7
";

/// The check of a value, and what the Event says of one that fails it.
type KeyRule = (fn(&str) -> bool, &'static str);

const LEVEL: KeyRule = (
    |text| log_level(text).is_some(),
    "is no level; allowed are Panic, Fatal, Error, Warn, Info, Debug and Trace",
);
const TRUTH: KeyRule = (
    |text| go_boolean(text).is_some(),
    "is no truth value; allowed are \"true\" and \"false\"",
);
const INTERVAL: KeyRule = (
    |text| seconds(text).is_some(),
    "is no interval; allowed are 10 to 86400 seconds",
);
const PORT: KeyRule = (
    |text| text.parse::<u16>().is_ok_and(|port| port > 0),
    "is no port; allowed are 1 to 65535",
);
const INSTALL: KeyRule = (
    |text| mode(text).is_some(),
    "is no mode; allowed are \"enabled\", \"disabled\" and \"clusterlabel\"",
);
const NAMESPACE: KeyRule = (
    is_label,
    "is no name; allowed are up to 63 lower-case letters, digits and \"-\"",
);
const RELEASE: KeyRule = (
    |text| is_label(text) && text.len() <= 53,
    "is no name; allowed are up to 53 lower-case letters, digits and \"-\"",
);
const REFERENCE: KeyRule = (
    |text| Reference::parse(text, KUBE_VIP).is_ok(),
    "is no reference; allowed are the URL of a repository, oci://HOST/PATH/CHART and an absolute path",
);
const VERSION: KeyRule = (
    |text| ChartVersion::parse(text).is_ok(),
    "is no version; allowed is an exact one, such as 0.6.4",
);
const VALUES: KeyRule = (
    |text| Values::parse(text).is_ok(),
    "are no YAML map; values are KEY: VALUE lines",
);

/// Every key of the ConfigMap: name, the original's default, and what its value has to be.
const KEYS: [(&str, &str, KeyRule); 16] = [
    ("logLevel", "Info", LEVEL),
    ("traceIpamData", "false", TRUTH),
    ("operateGuestClusterInterval", "480", INTERVAL),
    ("metricsPort", "8080", PORT),
    ("kubevipGuestInstall", "clusterlabel", INSTALL),
    ("kubevipUpdate", "false", TRUTH),
    ("kubevipNamespace", "kube-system", NAMESPACE),
    ("kubevipReleaseName", KUBE_VIP, RELEASE),
    (
        "kubevipChartRepoUrl",
        "https://kube-vip.io/helm-charts",
        REFERENCE,
    ),
    ("kubevipChartRef", "", REFERENCE),
    ("kubevipChartVersion", "", VERSION),
    ("kubevipChartValues", KUBE_VIP_VALUES, VALUES),
    ("kubevipCloudProviderReleaseName", CLOUD_PROVIDER, RELEASE),
    ("kubevipCloudProviderChartRef", "", REFERENCE),
    ("kubevipCloudProviderChartVersion", "", VERSION),
    (
        "kubevipCloudProviderChartValues",
        CLOUD_PROVIDER_VALUES,
        VALUES,
    ),
];

/// Both are in one namespace.
const RELEASE_NAMES: [&str; 2] = ["kubevipReleaseName", "kubevipCloudProviderReleaseName"];

/// What holds for all guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// `None`: that of the process.
    pub log_level: Option<GuestLogLevel>,
    pub trace_ipam_data: bool,
    pub interval: Duration,
    /// That the settings name; nothing listens at it for this.
    pub metrics_port: Option<u16>,
    pub install: GuestInstall,
    /// Releases follow versions and values; without it only what is missing is installed.
    pub update: bool,
    /// In the order of installation.
    pub releases: [ChartRelease; 2],
}

/// The values of the ConfigMap that can be used, and what is wrong with each of the others. A value that cannot be used is replaced
/// by the one used `before`; unknown keys are left out and reported. What `given` says goes before it.
pub fn usable(map: &Texts, before: &Texts, given: &KubeFipSettings) -> (Texts, Vec<String>) {
    let (mut good, mut refused) = (Texts::new(), Vec::new());
    for (key, value) in map {
        let text = meant(key, value);
        let Some((_, default, (check, allowed))) = KEYS.iter().find(|(name, ..)| name == key)
        else {
            let names: Vec<&str> = KEYS.iter().map(|(name, ..)| *name).collect();
            let message = format!(
                "{key}: unknown key, not used; allowed are {}",
                names.join(", ")
            );
            refused.push(message);
            continue;
        };
        if text.trim().is_empty() {
            continue;
        }
        if check(text) {
            good.insert(key.clone(), value.clone());
            continue;
        }
        let kept = before.get(key);
        let stays = match kept {
            Some(_) => "the value before stays in force".to_owned(),
            None if secret(key) => "the default is in force".to_owned(),
            None => format!("the default {default:?} is in force"),
        };
        // Values of charts may hold secrets, and so may URLs.
        let shown = match secret(key) || text.contains('@') {
            true => String::new(),
            false => format!(" {:?}", shortened(text)),
        };
        let message = format!("{key}:{shown} {allowed}; {stays} until it is corrected");
        refused.push(message);
        good.extend(kept.map(|kept| (key.clone(), kept.clone())));
    }
    if let Some(twice) = same_release(&good, given) {
        refused.push(format!(
            "kubevipReleaseName and kubevipCloudProviderReleaseName: both releases would be {twice:?}, two of one name cannot stand beside each other; what was in force before stays until one of them is another"
        ));
        for names in [before, &Texts::new()] {
            for key in RELEASE_NAMES {
                match names.get(key) {
                    Some(kept) => good.insert(key.to_owned(), kept.clone()),
                    None => good.remove(key),
                };
            }
            if same_release(&good, given).is_none() {
                break;
            }
        }
    }
    (good, refused)
}

/// The name that both releases would have.
fn same_release(good: &Texts, given: &KubeFipSettings) -> Option<String> {
    let [kube_vip, cloud_provider] = RELEASE_NAMES.map(|key| effective(key, good, given));
    (kube_vip == cloud_provider).then_some(kube_vip)
}

/// What a key that is a text comes to.
fn effective(key: &str, good: &Texts, given: &KubeFipSettings) -> String {
    let mapped = || Some(meant(key, good.get(key)?).to_owned());
    let told = told(given, key).or_else(mapped);
    told.unwrap_or_else(|| {
        let default = KEYS.iter().find(|(name, ..)| *name == key);
        default.map_or_else(String::new, |one| one.1.to_owned())
    })
}

impl GuestConfig {
    /// `good` are usable values; `given` goes before them.
    pub fn new(good: &Texts, given: &KubeFipSettings) -> Self {
        let text = |key: &str| effective(key, good, given);
        let truth = |given: Option<bool>, key: &str| given.or_else(|| go_boolean(&text(key)));
        let interval = given.operate_guest_cluster_interval;
        let update = truth(given.kubevip_update, "kubevipUpdate").unwrap_or_default();
        let port = given.metrics_port.map(std::num::NonZeroU16::get);
        let mapped = || good.get("metricsPort")?.trim().parse().ok();
        Self {
            log_level: given
                .log_level
                .or_else(|| log_level(good.get("logLevel")?.trim())),
            trace_ipam_data: truth(given.trace_ipam_data, "traceIpamData").unwrap_or_default(),
            interval: interval
                .or_else(|| seconds(&text("operateGuestClusterInterval")))
                .unwrap_or_default()
                .0,
            metrics_port: port.or_else(mapped),
            install: (given.kubevip_guest_install)
                .or_else(|| mode(&text("kubevipGuestInstall")))
                .unwrap_or_default(),
            update,
            releases: [
                release(KUBE_VIP, "kubevip", update, &text),
                release(CLOUD_PROVIDER, "kubevipCloudProvider", update, &text),
            ],
        }
    }

    /// A warning if the port that is named is not among those that serve the series of the original.
    pub fn port_note(&self, ports: &BTreeSet<u16>) -> Option<String> {
        let port = self.metrics_port.filter(|port| !ports.contains(port))?;
        let served: Vec<String> = ports.iter().map(u16::to_string).collect();
        let served = match served.is_empty() {
            true => "only at /metrics of fipd itself".to_owned(),
            false => format!("at port {}", served.join(", ")),
        };
        Some(format!(
            "metricsPort {port}: no [[listener]] with serve = [\"metrics:kube-fip\"] has this port, the series are served {served}: add one, or remove the key"
        ))
    }
}

/// What fipd's own configuration says of a key that is a text.
fn told(given: &KubeFipSettings, key: &str) -> Option<String> {
    let text = match key {
        "kubevipNamespace" => &given.kubevip_namespace,
        "kubevipReleaseName" => &given.kubevip_release_name,
        "kubevipChartRepoUrl" => &given.kubevip_chart_repo_url,
        "kubevipChartRef" => &given.kubevip_chart_ref,
        "kubevipChartVersion" => &given.kubevip_chart_version,
        "kubevipChartValues" => &given.kubevip_chart_values,
        "kubevipCloudProviderReleaseName" => &given.kubevip_cloud_provider_release_name,
        "kubevipCloudProviderChartRef" => &given.kubevip_cloud_provider_chart_ref,
        "kubevipCloudProviderChartVersion" => &given.kubevip_cloud_provider_chart_version,
        "kubevipCloudProviderChartValues" => &given.kubevip_cloud_provider_chart_values,
        _ => return None,
    };
    text.as_ref().map(ToString::to_string)
}

/// A release as its keys say it; without a reference of its own its chart is of the repository.
fn release(
    chart: &str,
    prefix: &'static str,
    update: bool,
    text: &impl Fn(&str) -> String,
) -> ChartRelease {
    let own = |key: &str| text(&format!("{prefix}{key}"));
    let reference = match own("ChartRef") {
        none if none.is_empty() => text("kubevipChartRepoUrl"),
        own => own,
    };
    let name = own("ReleaseName");
    ChartRelease {
        prefix,
        values: named(&own("ChartValues"), &name),
        name,
        namespace: text("kubevipNamespace"),
        chart: chart.to_owned(),
        reference,
        version: own("ChartVersion"),
        unversioned: match update {
            true => Unversioned::Followed,
            false => Unversioned::Newest,
        },
        once: !update,
    }
}

/// The values with `nameOverride`, as the original sets it. Values that are no map are refused later.
fn named(values: &str, release: &str) -> String {
    let parsed: Result<Option<Map<String, Value>>, _> = serde_saphyr::from_str(values);
    let Ok(parsed) = parsed else {
        return values.to_owned();
    };
    let mut map = parsed.unwrap_or_default();
    map.insert("nameOverride".to_owned(), Value::from(release));
    Value::Object(map).to_string()
}

/// Values of charts, which may hold secrets.
fn secret(key: &str) -> bool {
    key.ends_with("Values")
}

/// What counts of the text of a key. In YAML the blanks before the first line are those before every other one.
fn meant<'a>(key: &str, text: &'a str) -> &'a str {
    match secret(key) {
        true => text,
        false => text.trim(),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// As the original's logger reads it.
fn log_level(text: &str) -> Option<GuestLogLevel> {
    match text.to_lowercase().as_str() {
        "panic" | "fatal" | "error" => Some(GuestLogLevel::Error),
        "warn" | "warning" => Some(GuestLogLevel::Warn),
        other => other.parse().ok(),
    }
}

fn seconds(text: &str) -> Option<GuestInterval> {
    GuestInterval::of_seconds(text.parse().ok()?)
}

fn mode(text: &str) -> Option<GuestInstall> {
    text.to_lowercase().parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn read(map: &Texts, before: &Texts) -> (Texts, Vec<String>) {
        usable(map, before, &KubeFipSettings::default())
    }

    fn config(pairs: &[(&str, &str)]) -> GuestConfig {
        let (good, refused) = read(&texts(pairs), &Texts::new());
        assert_eq!(refused, Vec::<String>::new());
        GuestConfig::new(&good, &KubeFipSettings::default())
    }

    #[test]
    fn every_default_is_usable_and_the_originals() {
        for (key, default, (check, _)) in KEYS {
            assert!(default.is_empty() || check(default), "{key}");
        }
        let config = config(&[]);
        assert_eq!(config.interval, Duration::from_secs(480));
        assert_eq!((config.metrics_port, config.update), (None, false));
        assert_eq!(config.install, GuestInstall::ClusterLabel);
        let [kube_vip, cloud_provider] = &config.releases;
        assert_eq!(
            (&*kube_vip.name, &*kube_vip.chart, &*kube_vip.namespace),
            ("kube-vip", "kube-vip", "kube-system")
        );
        assert_eq!(cloud_provider.reference, "https://kube-vip.io/helm-charts");
        assert!(cloud_provider.version.is_empty());
    }

    #[test]
    fn a_value_that_cannot_be_used_leaves_the_one_before_in_force() {
        let bad = [
            ("operateGuestClusterInterval", "0", "10 to 86400"),
            ("operateGuestClusterInterval", "soon", "10 to 86400"),
            ("metricsPort", "65536", "1 to 65535"),
            ("kubevipUpdate", "yes", "\"true\""),
            ("kubevipGuestInstall", "maybe", "\"clusterlabel\""),
            ("logLevel", "loud", "Debug"),
            ("kubevipNamespace", "Kube System", "lower-case"),
            ("kubevipChartValues", "a: [", "KEY: VALUE"),
            ("kubevipChartVersion", "latest", "such as 0.6.4"),
            ("kubevipCloudProviderChartRef", "charts", "oci://"),
            (
                "kubevipChartRepoUrl",
                "https://a:hunter2@x.example.net",
                "URL of a repository",
            ),
        ];
        for (key, value, words) in bad {
            let before = texts(&[(key, "before")]);
            let (good, refused) = read(&texts(&[(key, value)]), &before);
            assert_eq!(good, before);
            let [refused] = refused.as_slice() else {
                panic!("{key}: {refused:?}");
            };
            assert!(refused.starts_with(key), "{refused:?}");
            assert!(refused.contains(words), "{refused:?}");
            let (good, refused) = read(&texts(&[(key, value)]), &Texts::new());
            assert!(good.is_empty() && refused[0].contains("default"));
        }
        let (_, refused) = read(&texts(&[("kubevipchartref", "x")]), &Texts::new());
        assert!(refused[0].contains("kubevipChartRef"), "{refused:?}");
        assert!(config(&[("kubevipUpdate", " T ")]).update);
        assert_eq!(config(&[("metricsPort", " ")]).metrics_port, None);
    }

    #[test]
    fn a_port_that_is_named_and_not_served_is_told_with_what_to_do() {
        let named = config(&[("metricsPort", " 8080 ")]);
        let none = named.port_note(&BTreeSet::new());
        assert!(none.is_some_and(|note| note.contains("metricsPort 8080: no [[listener]]")));
        let other = named.port_note(&BTreeSet::from([9090]));
        assert!(other.is_some_and(|note| note.contains("at port 9090: add one")));
        assert_eq!(named.port_note(&BTreeSet::from([8080, 9090])), None);
        assert_eq!(
            config(&[]).port_note(&BTreeSet::new()),
            None,
            "nobody names one"
        );
    }

    #[test]
    fn two_releases_of_one_name_leave_the_names_before_in_force() {
        let before = texts(&[("kubevipReleaseName", "vip")]);
        let map = |one: &str, other: &str| {
            texts(&[
                ("kubevipReleaseName", one),
                ("kubevipCloudProviderReleaseName", other),
            ])
        };
        let both = |one: &str, other: &str| read(&map(one, other), &before);
        for (one, other) in [("x", "x"), ("x", " x "), (CLOUD_PROVIDER, "")] {
            let (good, refused) = both(one, other);
            assert_eq!(good, before, "{one} {other}");
            assert!(refused[0].contains("kubevipCloudProviderReleaseName"));
        }
        assert_eq!(both("x", "y").1, Vec::<String>::new());
        // What an older build kept is no way out.
        let (good, refused) = read(&map("x", "x"), &map("y", "y"));
        assert_eq!((good.len(), refused.len()), (0, 1));
        let given = KubeFipSettings {
            kubevip_release_name: Some("vip".into()),
            ..KubeFipSettings::default()
        };
        let (good, refused) = usable(&map("", "vip"), &Texts::new(), &given);
        assert_eq!((good.len(), refused.len()), (0, 1), "the settings name it");
        let (_, refused) = usable(&map("x", "x"), &Texts::new(), &given);
        assert_eq!(refused, Vec::<String>::new(), "the settings go before it");
    }

    #[test]
    fn what_charts_hold_is_never_shown() {
        let (_, refused) = read(
            &texts(&[("kubevipChartValues", "- hunter2")]),
            &Texts::new(),
        );
        assert!(!refused[0].contains("hunter2"), "{refused:?}");
        let url = texts(&[("kubevipChartRepoUrl", "https://a:hunter2@x.example.net")]);
        let (_, refused) = read(&url, &Texts::new());
        assert!(!refused[0].contains("hunter2"), "{refused:?}");
    }

    #[test]
    fn every_key_of_the_settings_goes_before_that_of_the_map() {
        let given = [
            ("logLevel", "warn", json!("debug")),
            ("traceIpamData", "false", json!(true)),
            ("operateGuestClusterInterval", "30", json!("1m")),
            ("metricsPort", "8080", json!(9090)),
            ("kubevipGuestInstall", "enabled", json!("disabled")),
            ("kubevipUpdate", "false", json!(true)),
            ("kubevipNamespace", "a", json!("b")),
            ("kubevipReleaseName", "a", json!("b")),
            (
                "kubevipChartRepoUrl",
                "https://a.example.net",
                json!("https://b.example.net"),
            ),
            ("kubevipChartRef", "/charts/a", json!("/charts/b")),
            ("kubevipChartVersion", "1.0.0", json!("2.0.0")),
            ("kubevipChartValues", "a: 1", json!("b: 1")),
            ("kubevipCloudProviderReleaseName", "a", json!("b")),
            (
                "kubevipCloudProviderChartRef",
                "/charts/a",
                json!("/charts/b"),
            ),
            ("kubevipCloudProviderChartVersion", "1.0.0", json!("2.0.0")),
            ("kubevipCloudProviderChartValues", "a: 1", json!("b: 1")),
        ];
        assert_eq!(given.len(), KEYS.len());
        for (key, mapped, value) in given {
            let map = texts(&[(key, mapped)]);
            let words = key.chars().flat_map(|letter| match letter.is_uppercase() {
                true => vec!['-', letter.to_ascii_lowercase()],
                false => vec![letter],
            });
            let table = Map::from_iter([(words.collect::<String>(), value)]);
            let given: KubeFipSettings = serde_json::from_value(table.into()).unwrap();
            let both = GuestConfig::new(&map, &given);
            assert_eq!(both, GuestConfig::new(&Texts::new(), &given), "{key}");
            assert_ne!(both, config(&[(key, mapped)]), "{key}");
        }
    }

    #[test]
    fn values_may_be_indented_from_their_first_line_on() {
        let config = config(&[("kubevipChartValues", "  a: 1\n  b: 2\n")]);
        let [kube_vip, _] = &config.releases;
        assert_eq!(
            kube_vip.values,
            r#"{"a":1,"b":2,"nameOverride":"kube-vip"}"#
        );
    }

    #[test]
    fn a_chart_is_of_the_repository_unless_it_has_a_reference_of_its_own() {
        let config = config(&[
            ("kubevipChartRepoUrl", "https://charts.example.net"),
            ("kubevipReleaseName", "vip"),
            ("kubevipChartVersion", "0.6.4"),
            ("kubevipChartValues", "a: {b: 1}\nnameOverride: mine"),
            ("kubevipCloudProviderChartRef", "oci://r.example.net/x/ccm"),
        ]);
        let [kube_vip, cloud_provider] = &config.releases;
        assert_eq!(kube_vip.reference, "https://charts.example.net");
        assert_eq!(kube_vip.values, r#"{"a":{"b":1},"nameOverride":"vip"}"#);
        assert_eq!((&*kube_vip.name, &*kube_vip.version), ("vip", "0.6.4"));
        assert_eq!(cloud_provider.reference, "oci://r.example.net/x/ccm");
        assert!(kube_vip.parse().is_ok(), "{kube_vip:?}");
    }
}
