//! The series of the original ip-rule-operator's controller, by the names of its first version.

use std::{collections::BTreeMap, sync::LazyLock};

use fipd_core::Text;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// Of the whole process: controllers come and go with their clusters, counts do not.
pub static KEPT: LazyLock<RuleObjectCounts> = LazyLock::new(RuleObjectCounts::default);

#[derive(Default)]
pub struct RuleObjectCounts {
    pub created: Counter,
    pub updated: Counter,
    pub marked_absent: Counter,
    desired: Gauge,
    absent: Gauge,
    /// Desired and absent ones of each cluster.
    clusters: Mutex<BTreeMap<Text, (usize, usize)>>,
}

/// Adds the series to what is read.
pub fn register(registry: &mut Registry) {
    let family = registry.sub_registry_with_prefix("iprule");
    for (name, help, counter) in [
        ("config_created", "IPRuleConfigs created", &KEPT.created),
        ("config_updated", "IPRuleConfigs updated", &KEPT.updated),
        (
            "config_marked_absent",
            "IPRuleConfigs marked absent",
            &KEPT.marked_absent,
        ),
    ] {
        family.register(name, help, counter.clone());
    }
    family.register(
        "desired_configs",
        "IPRuleConfigs that are to be",
        KEPT.desired.clone(),
    );
    family.register(
        "absent_configs",
        "IPRuleConfigs that nodes are to remove",
        KEPT.absent.clone(),
    );
}

/// How a cluster stands.
pub fn stand(cluster: &Text, desired: usize, absent: usize) {
    let mut clusters = KEPT.clusters.lock();
    clusters.insert(Text::clone(cluster), (desired, absent));
    publish(&clusters);
}

/// The cluster is not served here any more.
pub fn gone(cluster: &Text) {
    let mut clusters = KEPT.clusters.lock();
    clusters.remove(cluster);
    publish(&clusters);
}

fn publish(clusters: &BTreeMap<Text, (usize, usize)>) {
    let sum = |each: fn(&(usize, usize)) -> usize| {
        i64::try_from(clusters.values().map(each).sum::<usize>()).unwrap_or(i64::MAX)
    };
    KEPT.desired.set(sum(|(desired, _)| *desired));
    KEPT.absent.set(sum(|(_, absent)| *absent));
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_series_have_the_originals_names() {
        let mut registry = Registry::default();
        register(&mut registry);
        KEPT.created.inc();
        stand(&"a".into(), 3, 1);
        stand(&"b".into(), 2, 0);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "iprule_config_created_total ",
            "iprule_config_updated_total ",
            "iprule_config_marked_absent_total ",
            "iprule_desired_configs 5",
            "iprule_absent_configs 1",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        gone(&"a".into());
        gone(&"b".into());
    }
}
