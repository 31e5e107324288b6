//! Alert rules and the dashboard that are shipped use only series that are served.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    attach::KUBECONFIG,
    harness::Daemon,
    webhooks::{hook, start},
};

const ALERTS: &str = include_str!("../../../packaging/monitoring/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../packaging/monitoring/grafana.json");

/// Where those are made that are served only where a host has rules.
const OF_RULES: &str = include_str!("../../src/metrics/rules.rs");

/// Whether a series is one of a host with rules.
fn of_rules(name: &str) -> bool {
    let plain = name.trim_start_matches("fipd_").trim_end_matches("_total");
    plain.starts_with("rules_") && OF_RULES.contains(&format!("\"{plain}\""))
}

/// The names of series in an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(|c| !inside(c));
    words
        .filter(|word| word.starts_with("fipd_") || word.starts_with("iprule_"))
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

fn metrics(fipd: &Daemon) -> String {
    let viewer = fipd.rest(Some(&fipd.token("eye", "viewer")));
    // The first look makes the series of requests.
    viewer.get("/metrics");
    String::from_utf8_lossy(&viewer.get("/metrics").body).into_owned()
}

#[test]
fn alerts_and_dashboard_use_only_series_that_are_served() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a");
    let served = served(&metrics(&fipd));
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
                    served.contains(&name) || of_rules(&name),
                    "{what}: {name} is not served: {served:#?}"
                );
            }
        }
    }
}

/// Labels of series that are served only in times of trouble or after days of use.
const RARE: [(&str, &[&str]); 2] = [
    ("fipd_cluster_trouble", &["cluster", "part"]),
    ("fipd_pool_full_in_seconds", &["pool"]),
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
fn alerts_and_dashboard_speak_of_labels_that_their_series_have() {
    let (fipd, _) = start(&hook("w", "http://127.0.0.1:1", ""));
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a");
    let added = fipd.fed(
        "clusters add east --systems claims --kubeconfig -",
        KUBECONFIG,
    );
    assert_eq!(added.code, 0, "{added:?}");
    let metrics = metrics(&fipd);
    let has = |name: &str, label: &str| {
        let rare = RARE.iter().find(|(rare, _)| *rare == name);
        let samples = metrics.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let label_of = format!("{label}=\"");
        rare.is_some_and(|(_, labels)| labels.contains(&label))
            || samples.into_iter().any(|line| line.contains(&label_of))
    };
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for (what, value, least) in [("alerts", alerts, 8), ("dashboard", dashboard, 8)] {
        let mut all = Vec::new();
        speaking(&value, &mut all);
        let mut checked = 0;
        for (expression, labels) in all {
            let mut names = names(&expression);
            names.retain(|name| !of_rules(name));
            for label in labels.iter().filter(|_| !names.is_empty()) {
                checked += 1;
                assert!(
                    names.iter().all(|name| has(name, label)),
                    "{what}: {expression} has no {label}: {metrics}"
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
