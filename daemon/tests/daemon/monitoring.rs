//! Alert rules and the dashboard that are shipped use only series, labels and values that are served.

use std::collections::BTreeSet;

use fipd::{
    metrics::AgentMetrics,
    rules::{EngineState, RuleBoard, View},
};
use serde_json::Value;

use crate::{
    attach::KUBECONFIG,
    webhooks::{hook, start},
};

const ALERTS: &str = include_str!("../../../packaging/monitoring/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../packaging/monitoring/grafana.json");

/// How the names of series that fipd serves begin.
const OWN: [&str; 3] = ["fipd_", "iprule_", "kubefipoperator_"];
/// What a scraper adds to each series.
const SCRAPED: [&str; 2] = ["instance", "job"];
/// The series that a scraper makes itself, with these labels.
const UP: &str = "up";

/// The names of series in an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(|c| !inside(c));
    words
        .filter(|word| OWN.iter().any(|own| word.starts_with(own)) || *word == UP)
        .map(str::to_owned)
        .collect()
}

/// Names as samples have them, by the families that are told with HELP and TYPE.
fn served(metrics: &str) -> BTreeSet<String> {
    let families = metrics.lines().filter_map(|line| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        let help = format!("# HELP {name} ");
        assert!(metrics.contains(&help), "{name} has no HELP");
        Some(match kind {
            "counter" => vec![format!("{name}_total")],
            "histogram" => ["bucket", "sum", "count"]
                .map(|end| format!("{name}_{end}"))
                .to_vec(),
            _ => vec![name.to_owned()],
        })
    });
    families.flatten().collect()
}

/// All that is served, by a daemon that has some of everything and by a host with rules.
fn metrics() -> String {
    let (fipd, _) = start(&hook("w", "http://127.0.0.1:1", ""));
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a");
    fipd.json("backup now");
    let added = fipd.fed(
        "clusters add east --systems claims --kubeconfig -",
        KUBECONFIG,
    );
    assert_eq!(added.code, 0, "{added:?}");
    // An answer of 503, as nobody listens there.
    assert_eq!(fipd.cli("webhooks test w").code, 1);
    let viewer = fipd.rest(Some(&fipd.token("eye", "viewer")));
    // The first look makes the series of requests.
    viewer.get("/metrics");
    let daemon = viewer.get("/metrics").body;
    let board = RuleBoard::default();
    board.show(View {
        state: EngineState::Active,
        ..View::default()
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rules = runtime.block_on(AgentMetrics::new(&[], board).text());
    format!("{}{rules}", String::from_utf8_lossy(&daemon))
}

/// The values that the samples of a series have for a label.
fn values<'a>(metrics: &'a str, name: &str, label: &str) -> Vec<&'a str> {
    let lines = metrics.lines();
    let samples = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let start = format!("{label}=\"");
    let of = |labels: &'a str| {
        let at = match labels.starts_with(&start) {
            true => 0,
            false => labels.find(&format!(",{start}"))? + 1,
        };
        labels[at + start.len()..].split('"').next()
    };
    samples.filter_map(of).collect()
}

/// What an expression asks of labels: the series, the label, and what is behind the `=`.
fn selectors(expression: &str) -> Vec<(&str, &str, &str)> {
    let mut all = Vec::new();
    for (at, _) in expression.match_indices('{') {
        let (before, inside) = expression.split_at(at);
        let mut words = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = words.next().unwrap();
        let inside = inside[1..].split('}').next().unwrap();
        for matcher in inside.split(',') {
            let (label, wanted) = matcher.split_once('=').unwrap();
            all.push((name, label.trim(), wanted.trim()));
        }
    }
    all
}

/// The labels that an expression groups by.
fn groups(expression: &str) -> Vec<&str> {
    let groups = expression.split("by (").skip(1);
    let labels = groups.flat_map(|rest| rest.split(')').next().unwrap().split(','));
    labels.map(str::trim).collect()
}

/// Whether a value is one that is asked for. Of regular expressions only `.` and `|` are known here.
fn fits(wanted: &str, value: &str) -> bool {
    let plain = |text: &str| text.trim_matches('"').to_owned();
    match wanted.strip_prefix('~') {
        None => plain(wanted) == value,
        Some(pattern) => {
            let pattern = plain(pattern);
            let same = |(one, c): (char, char)| one == '.' || one == c;
            pattern
                .split('|')
                .any(|one| one.len() == value.len() && one.chars().zip(value.chars()).all(same))
        }
    }
}

#[test]
fn what_an_expression_asks_of_labels_is_found() {
    let asked = "sum by (a, b) (rate(x_total{c=\"d\", e=~\"5..\"}[1m])) > y{f=\"g\"}";
    let found = [
        ("x_total", "c", "\"d\""),
        ("x_total", "e", "~\"5..\""),
        ("y", "f", "\"g\""),
    ];
    assert_eq!(selectors(asked), found);
    assert_eq!(groups(asked), ["a", "b"]);
    assert!(fits("\"d\"", "d") && !fits("\"d\"", "e"));
    assert!(fits("~\"5..\"", "503") && !fits("~\"5..\"", "404"));
    assert!(fits("~\"a|bc\"", "bc") && !fits("~\"a|bc\"", "a|bc"));
    let samples = "x_total{c=\"d\",e=\"503\"} 1\nx_total_e{e=\"1\"} 1\nx_total{ee=\"2\"} 1\n";
    assert_eq!(values(samples, "x_total", "e"), ["503"]);
    assert_eq!(values(samples, "x_total", "c"), ["d"]);
}

#[test]
fn alerts_and_dashboard_use_only_series_that_are_served() {
    let served = served(&metrics());
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for (what, value, least) in [("alerts", alerts, 15), ("dashboard", dashboard, 20)] {
        let mut all = Vec::new();
        speaking(&value, &mut all);
        assert!(all.len() >= least, "{what}: {}", all.len());
        for (expression, _) in all {
            let names = names(&expression);
            assert!(!names.is_empty(), "{what}: {expression}");
            for name in names {
                assert!(
                    name == UP || served.contains(&name),
                    "{what}: {name} is not served: {served:#?}"
                );
            }
        }
    }
}

/// Labels of series that are served only in times of trouble or after days of use.
const RARE: [(&str, &[&str]); 11] = [
    ("fipd_cluster_api_claims", &["phase", "reason"]),
    ("fipd_cluster_api_endpoint_differs", &["name", "namespace"]),
    ("fipd_cluster_api_leases_held", &["cluster"]),
    ("fipd_cluster_sightings", &["cluster", "state"]),
    ("fipd_cluster_trouble", &["cluster", "part"]),
    ("fipd_flat_network_pods", &["phase"]),
    ("fipd_flat_network_subnet_free_ratio", &["subnet"]),
    ("fipd_guest_releases", &["guest", "release", "state"]),
    ("fipd_kube_fip_floatingips_waiting", &["reason"]),
    ("fipd_pool_full_in_seconds", &["pool"]),
    ("kubefipoperator_guestcluster_status", &["guestclustername"]),
];

/// Values of their labels that alerts ask for.
const RARE_VALUES: [(&str, &str, &str); 6] = [
    ("fipd_cluster_api_claims", "phase", "waiting"),
    ("fipd_cluster_api_claims", "reason", "PoolExhausted"),
    ("fipd_cluster_trouble", "part", "runtime-hook"),
    ("fipd_cluster_sightings", "state", "reported"),
    ("fipd_flat_network_pods", "phase", "Failed"),
    ("fipd_guest_releases", "state", "failed"),
];

/// What a text takes from the labels of a series: what follows `before`, as often as it is there.
fn taken<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let word = |text: &'a str| {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &text[..end.unwrap_or(text.len())]
    };
    text.split(before).skip(1).map(word).collect()
}

/// Objects with an expression, and all the text that speaks of its labels.
fn speaking(value: &Value, all: &mut Vec<(String, Vec<String>)>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(expression)) = fields.get("expr") {
                let texts = fields
                    .get("annotations")
                    .or_else(|| fields.get("legendFormat"));
                let text = texts.map(Value::to_string).unwrap_or_default();
                let labels = match fields.contains_key("annotations") {
                    true => taken(&text, "$labels."),
                    false => taken(&text, "{{"),
                };
                let labels = labels.into_iter().map(str::to_owned).collect();
                all.push((expression.clone(), labels));
            }
            fields.values().for_each(|value| speaking(value, all));
        }
        Value::Array(items) => items.iter().for_each(|item| speaking(item, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn alerts_and_dashboard_speak_of_labels_and_values_that_their_series_have() {
    let metrics = metrics();
    let has = |name: &str, label: &str| {
        let rare = RARE.iter().find(|(rare, _)| *rare == name);
        rare.is_some_and(|(_, labels)| labels.contains(&label))
            || SCRAPED.contains(&label)
            || !values(&metrics, name, label).is_empty()
    };
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for (what, value, least) in [("alerts", alerts, 12), ("dashboard", dashboard, 12)] {
        let mut all = Vec::new();
        speaking(&value, &mut all);
        let mut checked = 0;
        for (expression, labels) in all {
            let names = names(&expression);
            let grouped = groups(&expression).into_iter();
            for label in labels.iter().map(String::as_str).chain(grouped) {
                checked += 1;
                assert!(
                    names.iter().all(|name| has(name, label)),
                    "{what}: {expression} has no {label}: {metrics}"
                );
            }
            let asked = selectors(&expression).into_iter();
            for (name, label, wanted) in asked.filter(|(name, ..)| *name != UP) {
                checked += 1;
                let mut values = values(&metrics, name, label);
                let rare = RARE_VALUES
                    .iter()
                    .filter(|rare| (rare.0, rare.1) == (name, label));
                values.extend(rare.map(|(.., value)| *value));
                assert!(
                    values.iter().any(|value| fits(wanted, value)),
                    "{what}: {expression}: {label} of {name} is one of {values:?}"
                );
            }
        }
        assert!(checked >= least, "{what}: {checked}");
    }
}

#[test]
fn each_alert_says_what_it_is_and_what_to_do() {
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let groups = alerts["groups"].as_array().unwrap();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap());
    let mut seen = BTreeSet::new();
    for rule in rules {
        let fields: BTreeSet<_> = rule
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let known = BTreeSet::from(["alert", "expr", "for", "labels", "annotations"]);
        assert!(fields.is_subset(&known), "{rule}");
        let name = rule["alert"].as_str().unwrap();
        assert!(seen.insert(name), "{name} is there twice");
        for text in ["summary", "next"] {
            let said = rule["annotations"][text].as_str().unwrap_or_default();
            assert!(!said.is_empty(), "{name} has no {text}");
            assert_eq!(
                said.matches("{{").count(),
                said.matches("}}").count(),
                "{name}"
            );
        }
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}"
        );
        let expression = rule["expr"].as_str().unwrap();
        for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
            let count = |c| expression.matches(c).count();
            assert_eq!(count(open), count(close), "{name}: {expression}");
        }
    }
}

#[test]
fn one_fipd_of_several_that_is_down_is_told_and_so_is_that_none_is_scraped() {
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let mut all = Vec::new();
    speaking(&alerts, &mut all);
    let (expression, labels) = &all[0];
    assert_eq!(selectors(expression), [(UP, "job", "\"fipd\""); 2]);
    let (down, none) = expression.split_once(" or ").unwrap();
    assert!(down.ends_with(" == 0") && none.starts_with("absent("));
    assert_eq!(labels, &["instance"]);
}

#[test]
fn a_closed_pool_alerts_nobody() {
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let mut all = Vec::new();
    speaking(&alerts, &mut all);
    all.retain(|(expression, _)| expression.contains("fipd_pool_"));
    assert_eq!(all.len(), 2, "full, and full soon: {all:?}");
    for (expression, _) in all {
        assert!(
            expression.ends_with(" unless fipd_pool_closed == 1"),
            "{expression}"
        );
    }
}
