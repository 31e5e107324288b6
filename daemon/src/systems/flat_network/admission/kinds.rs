//! What API servers ask about.

use fipd_crds::flat_network::{GROUP, names::VALIDATING_WEBHOOK};

use crate::admission::{Asks, MatchCondition, OriginalWebhook, ReviewedKind, Sample};

/// The name of fipd's object.
const VALIDATOR: &str = "fipd-flat-network-validator";

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// Pods with one of the annotations. A field that is not there is an error to CEL, so each is asked for.
const FLAT_POD: &[MatchCondition] = &[MatchCondition {
    name: "fipd.io/flat-pod",
    expression: "has(object.metadata.annotations) && \
        ('flatnetwork.pandaria.io/ip' in object.metadata.annotations || \
        'flatnetwork.pandaria.io/subnet' in object.metadata.annotations)",
}];
/// The same of the template of pods.
const FLAT_TEMPLATE: &[MatchCondition] = &[MatchCondition {
    name: "fipd.io/flat-template",
    expression: "has(object.spec) && has(object.spec.template) && has(object.spec.template.metadata) && \
        has(object.spec.template.metadata.annotations) && \
        ('flatnetwork.pandaria.io/ip' in object.spec.template.metadata.annotations || \
        'flatnetwork.pandaria.io/subnet' in object.spec.template.metadata.annotations)",
}];
/// The same of a CronJob, whose pods have the inner template (defect g1-13).
const FLAT_JOB_TEMPLATE: &[MatchCondition] = &[MatchCondition {
    name: "fipd.io/flat-template",
    expression: "has(object.spec) && has(object.spec.jobTemplate) && has(object.spec.jobTemplate.spec) && \
        has(object.spec.jobTemplate.spec.template) && has(object.spec.jobTemplate.spec.template.metadata) && \
        has(object.spec.jobTemplate.spec.template.metadata.annotations) && \
        ('flatnetwork.pandaria.io/ip' in object.spec.jobTemplate.spec.template.metadata.annotations || \
        'flatnetwork.pandaria.io/subnet' in object.spec.jobTemplate.spec.template.metadata.annotations)",
}];

const fn own(plural: &'static str, names: [&'static str; 2]) -> ReviewedKind {
    let [path, webhook] = names;
    ReviewedKind {
        group: GROUP,
        plural,
        operations: ALL,
        path,
        namespaced: true,
        webhook,
        conditions: &[],
    }
}

const fn foreign(
    group: &'static str,
    plural: &'static str,
    names: [&'static str; 2],
    conditions: &'static [MatchCondition],
) -> ReviewedKind {
    let [path, webhook] = names;
    ReviewedKind {
        group,
        plural,
        operations: WRITES,
        path,
        namespaced: true,
        webhook,
        conditions,
    }
}

pub const SUBNET: ReviewedKind = own(
    "flatnetworksubnets",
    [
        "validate-flatnetworksubnet",
        "flatnetworksubnets.flat-network.fipd.io",
    ],
);
pub const IP: ReviewedKind = own(
    "flatnetworkips",
    [
        "validate-flatnetworkip",
        "flatnetworkips.flat-network.fipd.io",
    ],
);
pub const DEPLOYMENT: ReviewedKind = foreign(
    "apps",
    "deployments",
    [
        "validate-flat-deployment",
        "deployments.flat-network.fipd.io",
    ],
    FLAT_TEMPLATE,
);
pub const DAEMON_SET: ReviewedKind = foreign(
    "apps",
    "daemonsets",
    ["validate-flat-daemonset", "daemonsets.flat-network.fipd.io"],
    FLAT_TEMPLATE,
);
pub const STATEFUL_SET: ReviewedKind = foreign(
    "apps",
    "statefulsets",
    [
        "validate-flat-statefulset",
        "statefulsets.flat-network.fipd.io",
    ],
    FLAT_TEMPLATE,
);
pub const CRON_JOB: ReviewedKind = foreign(
    "batch",
    "cronjobs",
    ["validate-flat-cronjob", "cronjobs.flat-network.fipd.io"],
    FLAT_JOB_TEMPLATE,
);
pub const JOB: ReviewedKind = foreign(
    "batch",
    "jobs",
    ["validate-flat-job", "jobs.flat-network.fipd.io"],
    FLAT_TEMPLATE,
);
pub const POD: ReviewedKind = foreign(
    "",
    "pods",
    ["validate-flat-pod", "pods.flat-network.fipd.io"],
    FLAT_POD,
);

/// All of them.
pub static ASKS: Asks = Asks {
    system: "flat-network",
    name: VALIDATOR,
    kinds: &[
        SUBNET,
        IP,
        DEPLOYMENT,
        DAEMON_SET,
        STATEFUL_SET,
        CRON_JOB,
        JOB,
        POD,
    ],
    // Those of all groups; older ones of workloads are turned into it.
    versions: &["v1"],
    sample: Sample {
        api: "apis/flatnetwork.pandaria.io/v1",
        kind: "FlatNetworkSubnet",
        plural: "flatnetworksubnets",
        namespace: "default",
        spec: r#"{ "flatMode": "macvlan", "master": "eth0", "cidr": "192.0.2.0/24" }"#,
        role: "packaging/rbac/flat-network.yaml",
    },
    original: Some(OriginalWebhook {
        name: VALIDATING_WEBHOOK,
        kinds: "a FlatNetworkSubnet or a workload",
    }),
};

#[cfg(test)]
mod tests {
    use fipd_crds::flat_network::names;

    use super::*;

    #[test]
    fn pods_and_workloads_without_the_annotations_are_kept_away() {
        for kind in ASKS.kinds {
            let own = kind.group == GROUP;
            assert_eq!(own, kind.conditions.is_empty(), "{kind:?}");
            assert_eq!(own, kind.operations.contains(&"DELETE"), "{kind:?}");
            for condition in kind.conditions {
                for key in [names::IP, names::SUBNET] {
                    assert!(
                        condition
                            .expression
                            .contains(&format!("'{key}' in object."))
                    );
                }
                assert!(!condition.expression.contains('\n'), "{condition:?}");
            }
        }
        let [cron] = CRON_JOB.conditions else {
            panic!("one condition")
        };
        assert!(!cron.expression.contains("jobTemplate.metadata"));
    }
}
