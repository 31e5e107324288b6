//! What an admin says.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient::{integer, is_default, or_default};

/// Packets from the Services behind these load balancer addresses go by that table. The schema is as wide as the original's:
/// values are judged by the webhook and the controller.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "api.operator.brtrm.dev",
    version = "v1alpha1",
    kind = "IPRule",
    plural = "iprules",
    status = "IPRuleStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "ipr",
    doc = "Sends packets from the Services behind load balancer addresses by a routing table, on every node in scope.",
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "CIDRs", type_ = "string", json_path = ".spec.cidrs"),
    printcolumn(name = "Table", type_ = "integer", json_path = ".spec.table"),
    printcolumn(name = "Rules", type_ = "integer", json_path = ".status.rules"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Priority",
        type_ = "integer",
        json_path = ".spec.priority",
        priority = 1
    )
)]
pub struct IPRuleSpec {
    /// A range of load balancer addresses, IPv4 or IPv6. Counts together with `cidrs`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub cidr: String,
    /// Ranges of load balancer addresses, IPv4 and IPv6.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub cidrs: Vec<String>,
    /// The routing table, 1 to 4294967295. Needed unless `vrf` names one.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub table: i64,
    /// The priority of the rules; 0 or left out: fipd chooses. Not 32766 and 32767, where the kernel has its own.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub priority: i64,
    /// The nodes: `key` or `key=value` of a label. Left out: all of them.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub node_selector_label: String,
    /// How often all IPRules are looked at without any change, such as `30s` or `2h`; 1s to 1d. The shortest of all IPRules counts;
    /// where none says it: every 10m.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub reconcile_interval: String,
    /// What packets come from: the `clusterIP` of the Service (also when left out), the load balancer address (`vip`), or the
    /// pods behind it (`endpoints`).
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("enum" = ["clusterIP", "vip", "endpoints"]))]
    pub source: String,
    /// Where the table has no route, packets go nowhere instead of by the tables that follow.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub fail_closed: bool,
    /// One rule a source (`flat`), one rule and a map of the packet filter (`indexed`), or what there are few enough of for
    /// the kernel (`auto`, also when left out).
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("enum" = ["auto", "flat", "indexed"]))]
    pub mode: String,
    /// The VRF whose table it is, by the name of its device on the nodes. Without `table`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub vrf: String,
}

/// What came of it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IPRuleStatus {
    /// The sources that have a rule because of it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub rules: i64,
    /// The generation that this is about.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub observed_generation: i64,
    /// How it is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
