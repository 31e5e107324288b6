//! The objects of an Agent: a DaemonSet of fipd, its configuration, and the rights that it has. Pure.

use data_encoding::HEXLOWER;
use fipd_crds::ip_rule::{AGENT_WORKLOAD, AgentSpec, MANAGED_BY, OPERATOR, TEMPLATE_HASH};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{controller::store::Key, systems::ip_rule::names::AGENT};

/// How many bytes of the hash are shown.
const SHOWN: usize = 8;
/// The role of hosts that decide nothing, which an admin has applied.
pub const ROLE: &str = "fipd-ip-rule-node";
const CONFIG: &str = "/etc/fipd/fipd.toml";
const DATA: &str = "/var/lib/fipd";
/// The original agent's, for metrics and probes, on the addresses of the node.
const PORT: u16 = 9090;

/// What an Agent is to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub agent: Key,
    pub uid: String,
    /// What fipd calls the cluster.
    pub cluster: String,
    pub image: String,
    pub spec: AgentSpec,
}

impl Workload {
    /// A change of it is a rollout: of the image, the nodes, what taints do not matter, and fipd's configuration.
    pub fn hash(&self) -> String {
        let mut tolerations: Vec<String> = self
            .spec
            .tolerations
            .iter()
            .map(|one| json!(one).to_string())
            .collect();
        tolerations.sort();
        let text = json!([
            self.image,
            self.spec.node_selector,
            tolerations,
            self.toml()
        ])
        .to_string();
        let digest = Sha256::digest(text);
        HEXLOWER.encode(digest.get(..SHOWN).unwrap_or_default())
    }

    /// fipd's configuration in the pod: it decides nothing, and its rules go with the Agent, not with each pod.
    fn toml(&self) -> String {
        format!(
            "role = \"agent\"\n\n[host]\nagent = \"{}/{}\"\n\n[[cluster]]\nname = {:?}\nin-cluster = true\n\
             systems = [\"ip-rule\"]\n",
            self.agent.namespace, self.agent.name, self.cluster
        )
    }

    fn meta(&self) -> Value {
        json!({
            "name": AGENT_WORKLOAD, "namespace": self.agent.namespace,
            "labels": { "app": AGENT_WORKLOAD, "app.kubernetes.io/name": OPERATOR, MANAGED_BY: OPERATOR },
            "ownerReferences": [{
                "apiVersion": AGENT.api_version(), "kind": AGENT.kind, "name": self.agent.name, "uid": self.uid, "controller": true,
            }],
        })
    }

    pub fn account(&self) -> Value {
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.meta() })
    }

    pub fn config(&self) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": self.meta(), "data": { "fipd.toml": self.toml() } })
    }

    /// Cluster-scoped: it cannot be the Agent's, and grants nothing once the account is gone.
    pub fn binding(&self) -> Value {
        let group = "rbac.authorization.k8s.io";
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": AGENT_WORKLOAD, "labels": { MANAGED_BY: OPERATOR } },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": ROLE },
            "subjects": [{ "kind": "ServiceAccount", "name": AGENT_WORKLOAD, "namespace": self.agent.namespace }],
        })
    }

    pub fn daemon_set(&self) -> Value {
        let labels = json!({ "app": AGENT_WORKLOAD, "app.kubernetes.io/name": OPERATOR, MANAGED_BY: OPERATOR });
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": self.meta(),
            "spec": {
                "selector": { "matchLabels": { "app": AGENT_WORKLOAD } },
                "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
                "template": {
                    "metadata": { "labels": labels, "annotations": { TEMPLATE_HASH: self.hash() } },
                    "spec": self.pod(),
                },
            },
        })
    }

    fn pod(&self) -> Value {
        json!({
            "hostNetwork": true,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "serviceAccountName": AGENT_WORKLOAD,
            "nodeSelector": self.spec.node_selector,
            "tolerations": self.spec.tolerations,
            "containers": [{
                "name": "agent", "image": self.image, "imagePullPolicy": "IfNotPresent", "args": ["serve"],
                "env": [
                    { "name": "NODE_NAME", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "spec.nodeName" } } },
                    { "name": "RECONCILE_PERIOD", "value": "10s" },
                    { "name": "METRICS_ADDR", "value": format!(":{PORT}") },
                    { "name": "FIPD_CONFIG", "value": CONFIG },
                    { "name": "FIPD_DATA_DIR", "value": DATA },
                ],
                "ports": [{ "name": "metrics", "containerPort": PORT, "protocol": "TCP" }],
                "livenessProbe": probe("/health", 10, 30, 2, 3),
                "readinessProbe": probe("/ready", 5, 15, 2, 3),
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "cpu": "100m", "memory": "64Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "runAsUser": 0, "capabilities": { "add": ["NET_ADMIN"] },
                },
                "volumeMounts": [
                    { "name": "config", "mountPath": "/etc/fipd", "readOnly": true }, { "name": "data", "mountPath": DATA },
                ],
            }],
            "volumes": [
                { "name": "config", "configMap": { "name": AGENT_WORKLOAD } }, { "name": "data", "emptyDir": {} },
            ],
        })
    }
}

/// All times in seconds.
fn probe(path: &str, delay: u32, period: u32, timeout: u32, failures: u32) -> Value {
    json!({
        "httpGet": { "path": path, "port": "metrics" }, "initialDelaySeconds": delay, "periodSeconds": period,
        "timeoutSeconds": timeout, "failureThreshold": failures,
    })
}

/// Whether all that is wanted is there. What an API server adds by itself does not count, but for lists: those are whole.
pub fn has(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            found
                .get(key)
                .map_or_else(|| is_empty(value), |found| has(found, value))
        }),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(one, other)| has(one, other))
        }
        (found, wanted) => found == wanted,
    }
}

/// What an API server leaves out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(all) => all.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, HostRole};

    fn workload(spec: Value) -> Workload {
        Workload {
            agent: Key::new("rules", "default"),
            uid: "u-1".into(),
            cluster: "edge".into(),
            image: "fipd:1".into(),
            spec: serde_json::from_value(spec).unwrap(),
        }
    }

    #[test]
    fn the_hash_knows_all_that_is_a_rollout_and_no_order() {
        let tolerations = |seconds: i64| json!({ "tolerations": [{ "key": "b", "operator": "Exists", "tolerationSeconds": seconds }, { "key": "a" }] });
        let one = workload(tolerations(10));
        assert_eq!(one.hash().len(), 16);
        let mut other = one.clone();
        other.spec.tolerations.reverse();
        assert_eq!(one.hash(), other.hash());
        assert_ne!(
            one.hash(),
            workload(tolerations(20)).hash(),
            "the original left the seconds out"
        );
        assert_ne!(
            one.hash(),
            workload(json!({ "nodeSelector": { "a": "b" } })).hash()
        );
        let image = Workload {
            image: "fipd:2".into(),
            ..one.clone()
        };
        assert_ne!(one.hash(), image.hash());
    }

    #[test]
    fn the_daemon_set_is_the_originals_with_fipd_in_it() {
        let set = workload(json!({ "nodeSelector": { "lb": "true" } })).daemon_set();
        assert_eq!(set["metadata"]["name"], "iprule-agent");
        let pod = &set["spec"]["template"]["spec"];
        assert_eq!(
            (&pod["hostNetwork"], &pod["dnsPolicy"]),
            (&json!(true), &json!("ClusterFirstWithHostNet"))
        );
        assert_eq!(
            pod["containers"][0]["securityContext"]["capabilities"]["add"],
            json!(["NET_ADMIN"])
        );
        let container = &pod["containers"][0];
        assert_eq!(container["ports"][0]["containerPort"], 9090);
        assert_eq!(container["livenessProbe"]["periodSeconds"], 30);
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/ready");
        assert_eq!(
            set["spec"]["template"]["metadata"]["annotations"][TEMPLATE_HASH]
                .as_str()
                .unwrap()
                .len(),
            16
        );
        let mut defaulted = set.clone();
        defaulted["spec"]["revisionHistoryLimit"] = json!(10);
        defaulted["spec"]["template"]["spec"]
            .as_object_mut()
            .unwrap()
            .remove("tolerations");
        assert!(has(&defaulted, &set));
        defaulted["spec"]["updateStrategy"]["type"] = json!("OnDelete");
        assert!(!has(&defaulted, &set));
    }

    #[test]
    fn fipd_in_the_pod_decides_nothing_and_knows_whose_it_is() {
        let text = workload(json!({})).toml();
        let config = Config::parse(&text, Path::new("/etc/fipd")).unwrap();
        assert_eq!(config.role, HostRole::Agent);
        let host = config.host.unwrap();
        assert_eq!(host.agent, Some(("rules".into(), "default".into())));
        assert!(!host.cleanup_on_stop, "a rollout takes no rule away");
    }
}
