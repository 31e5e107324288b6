//! Which alerts of packaging/monitoring/alerts.yaml fire by what fipd serves at /metrics, without waiting for their `for`.
//!
//! Of the language of expressions it knows `SERIES{LABEL="VALUE"} OPERATOR NUMBER`, `LABEL=~"ONE|OTHER"`, and `increase(SERIES{...}[TIME])` in the
//! place of the series, between two looks.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

const ALERTS: &str = include_str!("../../packaging/monitoring/alerts.yaml");

/// Names of the alerts that begin with `prefix`, with their expressions.
pub fn alerts(prefix: &str) -> Result<BTreeMap<String, String>> {
    let rules: Value = serde_saphyr::from_str(ALERTS)?;
    let groups = rules["groups"].as_array().into_iter().flatten();
    let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
    let named = rules.filter_map(|rule| {
        let name = rule["alert"].as_str()?;
        Some((name.to_owned(), rule["expr"].as_str()?.to_owned()))
    });
    Ok(named.filter(|(name, _)| name.starts_with(prefix)).collect())
}

/// The samples, by series and labels, for which an expression holds now, where `before` is an earlier look.
pub fn holding(expression: &str, before: &str, now: &str) -> Result<Vec<String>> {
    let mut words = expression.rsplitn(3, ' ');
    let (limit, operator, of) = (words.next(), words.next(), words.next());
    let of = of.with_context(|| format!("{expression}: no comparison"))?;
    let limit: f64 = limit.unwrap_or_default().parse()?;
    let grows = of.strip_prefix("increase(");
    let selector = grows.map_or(of, |rest| rest.split('[').next().unwrap_or_default());
    let values = |metrics| {
        let found = samples(metrics, selector);
        found.collect::<BTreeMap<String, f64>>()
    };
    let earlier = grows.map(|_| values(before));
    let mut holding = Vec::new();
    for (name, value) in values(now) {
        let value = match earlier.as_ref().map(|earlier| earlier.get(&name)) {
            None => value,
            Some(Some(first)) => value - first,
            // Prometheus computes no increase from a single sample.
            Some(None) => continue,
        };
        let holds = match operator.unwrap_or_default() {
            ">" => value > limit,
            "<" => value < limit,
            "==" => (value - limit).abs() < f64::EPSILON,
            other => anyhow::bail!("{expression}: {other} is not known here"),
        };
        if holds {
            holding.push(name);
        }
    }
    Ok(holding)
}

/// The samples that a selector means, with their values.
fn samples<'a>(metrics: &'a str, selector: &'a str) -> impl Iterator<Item = (String, f64)> + 'a {
    let (name, wanted) = selector.split_once('{').unwrap_or((selector, ""));
    let wanted = wanted.trim_end_matches('}');
    metrics.lines().filter_map(move |line| {
        let (sample, value) = line.rsplit_once(' ')?;
        let labels = sample.strip_prefix(name)?;
        let labels = match labels.strip_prefix('{') {
            Some(labels) => labels.trim_end_matches('}'),
            None if labels.is_empty() => "",
            None => return None,
        };
        let mut matchers = wanted.split(',').filter(|one| !one.is_empty());
        let fits = matchers.all(|one| {
            let any = alternatives(one.trim());
            labels
                .split(',')
                .any(|label| any.iter().any(|one| one == label))
        });
        fits.then_some((sample.to_owned(), value.parse().ok()?))
    })
}

/// The labels that a matcher means.
fn alternatives(matcher: &str) -> Vec<String> {
    let Some((label, pattern)) = matcher.split_once("=~") else {
        return vec![matcher.to_owned()];
    };
    let values = pattern.trim_matches('"').split('|');
    values.map(|value| format!("{label}=\"{value}\"")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_hold_for_the_samples_that_they_mean() {
        let before = "x_total{c=\"d\"} 1\n";
        let now = "x_total{c=\"d\"} 3\nx_total{c=\"e\"} 1\nx_total_more 9\ny 0\n";
        let holding = |expression| holding(expression, before, now).unwrap();
        assert_eq!(holding("x_total{c=\"d\"} > 2"), ["x_total{c=\"d\"}"]);
        assert_eq!(holding("x_total{c=\"d\"} > 3"), [""; 0]);
        let either = ["x_total{c=\"d\"}", "x_total{c=\"e\"}"];
        assert_eq!(holding("x_total{c=~\"d|e\"} > 0"), either);
        assert_eq!(holding("x_total{c=~\"f|g\"} > 0"), [""; 0]);
        assert_eq!(holding("x_total == 1"), ["x_total{c=\"e\"}"]);
        assert_eq!(holding("y == 0"), ["y"]);
        assert_eq!(
            holding("increase(x_total{c=\"d\"}[5m]) > 1"),
            ["x_total{c=\"d\"}"]
        );
        assert_eq!(holding("increase(x_total{c=\"d\"}[5m]) > 2"), [""; 0]);
        assert_eq!(holding("x_total{c=\"e\"} > 0"), ["x_total{c=\"e\"}"]);
        assert_eq!(holding("increase(x_total{c=\"e\"}[5m]) > 0"), [""; 0]);
        assert!(super::holding("a or b", before, now).is_err());
        assert!(alerts("FipdClusterApi").unwrap().len() >= 6);
    }
}
