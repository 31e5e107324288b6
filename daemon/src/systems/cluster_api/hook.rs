//! The runtime hook BeforeClusterCreate: nothing of a Cluster is made before its endpoint is written. Pure.
//!
//! Whoever reaches fipd may ask, so an answer says nothing that the question does not: it looks at the Cluster in the question,
//! at the clock, at the configuration and at how long that Cluster has been asked for, and decides nothing.

mod blocked;

use fipd_core::Timestamp;
use fipd_crds::cluster_api::Cluster;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    names::{CLUSTER_VIP, HOOKS_GROUP, HOOKS_VERSION},
    settings::ClusterApiSettings,
    vip::CapiClusterView,
};
pub use blocked::BlockedClusters;

/// Name of the handler, as the path and the ExtensionConfig have it.
pub const HANDLER: &str = "fipd-vip";
/// Seconds that Cluster API waits for an answer.
const TIMEOUT: u32 = 5;
/// Seconds until it asks again.
const RETRY: u32 = 1;
/// Of what is wrong with a question, in characters: it repeats parts of that.
const LONGEST_REASON: usize = 300;

/// The hook, as answers and series name it.
pub const BEFORE_CREATE: &str = "BeforeClusterCreate";

fipd_core::words! {
    /// What an answer has Cluster API do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    pub enum HookAnswer {
        Proceed = "proceed",
        Wait = "wait",
        /// Go on without an address, which did not come in time.
        GaveUp = "gave-up",
        /// The question was nonsense.
        Failure = "failure",
    }
}

impl HookAnswer {
    /// Of an answer to [`BEFORE_CREATE`].
    pub fn of(answer: &Value) -> Self {
        if answer["status"] != "Success" {
            Self::Failure
        } else if answer["retryAfterSeconds"] != 0 {
            Self::Wait
        } else if answer["message"] != "" {
            Self::GaveUp
        } else {
            Self::Proceed
        }
    }
}

#[derive(Deserialize)]
struct Asked {
    kind: String,
    #[serde(default)]
    cluster: Cluster,
}

/// The answer to a call at this path behind the group and version, whatever is sent. `None`: there is no such hook.
pub fn answer(
    settings: &ClusterApiSettings,
    blocked: &BlockedClusters,
    path: &str,
    body: &[u8],
    now: Timestamp,
) -> Option<Value> {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let prefix = format!("{HOOKS_GROUP}/{HOOKS_VERSION}/");
    let call = path.trim_start_matches('/').strip_prefix(&prefix)?;
    let asked = |kind: &str| match serde_json::from_slice::<Asked>(body) {
        Ok(asked) if asked.kind == kind => Ok(asked.cluster),
        Ok(asked) => Err(format!("kind {:?} is not {kind}", asked.kind)),
        Err(error) => Err(format!("the body is no {kind}: {error}")),
    };
    if call == "discovery" {
        let answer = asked("DiscoveryRequest").map(|_| discovery(settings));
        return Some(answer.unwrap_or_else(|why| failure("Discovery", &why)));
    }
    (call == format!("beforeclustercreate/{HANDLER}")).then(|| {
        let cluster = match asked("BeforeClusterCreateRequest") {
            Ok(cluster) => cluster,
            Err(why) => return failure(BEFORE_CREATE, &why),
        };
        let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
        let cluster = CapiClusterView::of(cluster);
        let waited = || blocked.waited(&cluster.meta.uid, now);
        before_create(settings, &namespace, &cluster, waited)
    })
}

/// `waited`: for how long it has been refused, in milliseconds.
fn before_create(
    settings: &ClusterApiSettings,
    namespace: &str,
    cluster: &CapiClusterView,
    waited: impl FnOnce() -> u64,
) -> Value {
    let endpoint = cluster.endpoint.as_ref();
    let written = endpoint.is_some_and(|one| one.port > 0);
    // A class that declares the variable has it in the Cluster by its default. An endpoint that is a name never fills it.
    let named = endpoint.is_some() && cluster.host().is_none();
    let filled = named || cluster.variable.as_deref() != Some("");
    let served = settings.vips
        && settings.covers(namespace, cluster.filter.as_deref())
        && cluster.class_name().is_some();
    if written && filled || !served {
        return response(BEFORE_CREATE, "", 0);
    }
    let patience = u64::try_from(settings.hook_patience.0.as_millis()).unwrap_or(u64::MAX);
    if waited() > patience {
        let text = "fipd has given the Cluster no address in time; it is made without one (see its condition fipd.io/EndpointReady)";
        return response(BEFORE_CREATE, text, 0);
    }
    let what = match written {
        true => CLUSTER_VIP,
        false => "spec.controlPlaneEndpoint",
    };
    let text = format!("fipd has not written {what} yet (see the condition fipd.io/EndpointReady)");
    response(BEFORE_CREATE, &text, RETRY)
}

fn discovery(settings: &ClusterApiSettings) -> Value {
    let required = settings.hook.as_ref().is_none_or(|hook| hook.required);
    let policy = if required { "Fail" } else { "Ignore" };
    let hook = json!({ "apiVersion": api_version(), "hook": BEFORE_CREATE });
    let mut response = response("Discovery", "", 0);
    response["handlers"] = json!([{
        "name": HANDLER, "requestHook": hook, "timeoutSeconds": TIMEOUT, "failurePolicy": policy,
    }]);
    if let Some(fields) = response.as_object_mut() {
        fields.remove("retryAfterSeconds");
        fields.remove("message");
    }
    response
}

fn response(hook: &str, message: &str, retry: u32) -> Value {
    json!({
        "apiVersion": api_version(), "kind": format!("{hook}Response"), "status": "Success",
        "message": message, "retryAfterSeconds": retry,
    })
}

fn failure(hook: &str, why: &str) -> Value {
    let why: String = why.chars().take(LONGEST_REASON).collect();
    let mut response = response(hook, &why, 0);
    response["status"] = json!("Failure");
    response
}

fn api_version() -> String {
    format!("{HOOKS_GROUP}/{HOOKS_VERSION}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::cluster_api::settings::HookSettings;

    const NOW: Timestamp = Timestamp(1_700_000_100_000);

    fn asked(path: &str, body: &Value) -> Option<Value> {
        let settings = ClusterApiSettings::default();
        let path = format!("/hooks.runtime.cluster.x-k8s.io/v1alpha1/{path}");
        let blocked = BlockedClusters::default();
        answer(&settings, &blocked, &path, body.to_string().as_bytes(), NOW)
    }

    fn before(spec: &Value) -> Value {
        let mut spec = spec.clone();
        if spec["topology"].is_null() {
            spec["topology"] = json!({ "classRef": { "name": "r" } });
        }
        let blocked = BlockedClusters::default();
        before_with(&ClusterApiSettings::default(), &blocked, &spec, NOW)
    }

    /// The Cluster was made long ago.
    fn before_with(
        settings: &ClusterApiSettings,
        blocked: &BlockedClusters,
        spec: &Value,
        now: Timestamp,
    ) -> Value {
        let created = "2023-11-14T00:00:00Z";
        let request = json!({
            "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "kind": "BeforeClusterCreateRequest",
            "cluster": {
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": { "name": "c", "namespace": "ns", "uid": "u", "creationTimestamp": created },
                "spec": spec,
            },
        });
        let call =
            "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclustercreate/fipd-vip?timeout=5s";
        let body = request.to_string();
        answer(settings, blocked, call, body.as_bytes(), now).expect("an answer")
    }

    #[test]
    fn a_cluster_that_gets_no_addresses_waits_for_none() {
        let all = ClusterApiSettings::default;
        let classy = || json!({ "topology": { "classRef": { "name": "r" } } });
        let off = ClusterApiSettings {
            vips: false,
            ..all()
        };
        let elsewhere = ClusterApiSettings {
            namespace: "other".into(),
            ..all()
        };
        let filtered = ClusterApiSettings {
            watch_filter: "a".into(),
            ..all()
        };
        for (settings, spec, retry) in [
            (all(), classy(), 1),
            (all(), json!({}), 0),
            (off, classy(), 0),
            (elsewhere, classy(), 0),
            (filtered, classy(), 0),
        ] {
            let answer = before_with(&settings, &BlockedClusters::default(), &spec, NOW);
            assert_eq!(answer["retryAfterSeconds"], retry, "{settings:?} {spec}");
        }
    }

    #[test]
    fn the_configuration_says_whether_a_cluster_is_made_without_an_answer() {
        let policy = |hook| {
            let settings = ClusterApiSettings {
                hook,
                ..ClusterApiSettings::default()
            };
            let body = br#"{ "kind": "DiscoveryRequest" }"#;
            let call = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery";
            let blocked = BlockedClusters::default();
            let answer = answer(&settings, &blocked, call, body, NOW).expect("an answer");
            answer["handlers"][0]["failurePolicy"].clone()
        };
        let with = |required| {
            let hook = HookSettings::default();
            policy(Some(HookSettings { required, ..hook }))
        };
        assert_eq!(policy(None), "Fail");
        assert_eq!((with(true), with(false)), (json!("Fail"), json!("Ignore")));
    }

    /// Row 85.
    #[test]
    fn e_7_creation_is_blocked_until_endpoint_and_variable_are_written() {
        let endpoint = json!({ "host": "10.0.0.5", "port": 6443 });
        let named = json!({ "host": "api.example", "port": 6443 });
        let variables = |value: &str| json!([{ "name": "clusterVip", "value": value }]);
        for (spec, retry) in [
            (json!({}), 1),
            (
                json!({ "controlPlaneEndpoint": { "host": "", "port": 0 } }),
                1,
            ),
            (
                json!({ "controlPlaneEndpoint": { "host": "10.0.0.5", "port": 0 } }),
                1,
            ),
            (
                json!({ "controlPlaneEndpoint": endpoint, "topology": { "classRef": { "name": "r" }, "variables": variables("") } }),
                1,
            ),
            (
                json!({ "controlPlaneEndpoint": endpoint, "topology": { "classRef": { "name": "r" }, "variables": variables("10.0.0.5") } }),
                0,
            ),
            (json!({ "controlPlaneEndpoint": endpoint }), 0),
            (
                json!({ "controlPlaneEndpoint": named, "topology": { "classRef": { "name": "r" }, "variables": variables("") } }),
                0,
            ),
        ] {
            let answer = before(&spec);
            assert_eq!(
                (&answer["status"], &answer["retryAfterSeconds"]),
                (&json!("Success"), &json!(retry)),
                "{spec}"
            );
            assert_eq!(answer["message"] == "", retry == 0, "{answer}");
            let meant = [HookAnswer::Proceed, HookAnswer::Wait][retry];
            assert_eq!(HookAnswer::of(&answer), meant);
            assert_eq!(
                answer,
                before(&spec),
                "the same question has the same answer"
            );
        }
    }

    /// Its time begins with the first refusal: who was paused, or came while fipd was down, has waited for nothing yet.
    #[test]
    fn e_7_no_cluster_is_kept_from_creation_for_ever() {
        let settings = ClusterApiSettings::default();
        let patience = u64::try_from(settings.hook_patience.0.as_millis()).expect("some minutes");
        let blocked = BlockedClusters::default();
        let spec = json!({ "topology": { "classRef": { "name": "r" } } });
        let after = |wait| before_with(&settings, &blocked, &spec, Timestamp(NOW.0 + wait));
        for wait in [0, patience] {
            assert_eq!(HookAnswer::of(&after(wait)), HookAnswer::Wait, "{wait}");
        }
        for wait in [patience + 1, patience + 2] {
            let late = after(wait);
            assert_eq!(HookAnswer::of(&late), HookAnswer::GaveUp);
            assert_eq!(late["retryAfterSeconds"], 0);
            let says = late["message"].as_str();
            assert!(says.is_some_and(|text| text.contains("in time")), "{late}");
        }
    }

    #[test]
    fn nonsense_is_answered_by_a_failure_of_the_api() {
        for (path, kind) in [
            ("discovery", "DiscoveryResponse"),
            (
                "beforeclustercreate/fipd-vip",
                "BeforeClusterCreateResponse",
            ),
        ] {
            for body in [
                json!(null),
                json!([]),
                json!({}),
                json!({ "kind": "Other" }),
                json!({ "kind": 7 }),
            ] {
                let answer = asked(path, &body).expect("an answer");
                assert_eq!(
                    (&answer["kind"], &answer["status"]),
                    (&json!(kind), &json!("Failure")),
                    "{body}"
                );
            }
        }
        assert_eq!(asked("beforeclusterdelete/fipd-vip", &json!({})), None);
        let settings = ClusterApiSettings::default();
        let blocked = BlockedClusters::default();
        let other = answer(&settings, &blocked, "/other/v1/discovery", b"{}", NOW);
        assert_eq!(other, None);
        let discovered = asked(
            "discovery?timeout=10s",
            &json!({ "kind": "DiscoveryRequest" }),
        );
        let handler = &discovered.expect("an answer")["handlers"][0];
        assert_eq!(
            (&handler["name"], &handler["requestHook"]["hook"]),
            (&json!("fipd-vip"), &json!("BeforeClusterCreate"))
        );
    }
}
