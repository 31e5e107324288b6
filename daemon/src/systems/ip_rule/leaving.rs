//! What the system leaves in a cluster, such as what Agents run: nobody else takes that away while they stay.

use std::collections::BTreeSet;

use fipd_core::System;
use fipd_crds::ip_rule::{
    ABSENT_SINCE, AGENT_WORKLOAD, APPLIED_PREFIX, CONFIG_FINALIZER, MANAGED_BY, OPERATOR,
    RULE_FINALIZER,
};
use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    names::{AGENT, CONFIG, RULE},
    settings::IpRuleSettings,
};
use crate::{
    controller::{
        client::{CallError, MANAGER, Remote, Target},
        kind::{CLUSTER_ROLE_BINDING, CONFIG_MAP, DAEMON_SET, Kind, SERVICE_ACCOUNT},
        store::Key,
    },
    detach::{Does, Found, Leaving, Leftover, Marks, Past, Step, has_webhook},
};

/// What the system leaves in a cluster.
pub struct IpRuleLeaving;

impl Leaving for IpRuleLeaving {
    fn leftovers(&self) -> &'static [Leftover] {
        static LEFTOVERS: [Leftover; 3] = [
            Leftover::validator(&[super::admission::VALIDATOR], |past| {
                ruled(past) && has_webhook(&of(past).webhook)
            }),
            Leftover::of(RULE, ruled),
            Leftover::of(CONFIG, ruled),
        ];
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec![RULE_FINALIZER, CONFIG_FINALIZER],
            annotations: vec![ABSENT_SINCE],
            prefixes: vec![APPLIED_PREFIX],
            ..Marks::default()
        }
    }

    fn locks(&self, past: &Past) -> Vec<(Key, bool)> {
        let settings = of(past);
        let lock = Key {
            namespace: settings.lease_lock_namespace.clone(),
            name: settings.lease_lock_name.clone(),
        };
        vec![(lock, ruled(past) && settings.leader_elect)]
    }

    /// Pods of Agents write marks as long as they run.
    fn first<'a>(&'a self, remote: &'a Remote, past: &'a Past) -> BoxFuture<'a, Found> {
        Box::pin(steps(remote, past))
    }
}

fn of(past: &Past) -> &IpRuleSettings {
    past.settings.of()
}

fn ruled(past: &Past) -> bool {
    past.systems.contains(&System::ip_rule())
}

/// In the order in which they go: pods first, their rights last.
const NAMESPACED: [Kind; 3] = [DAEMON_SET, CONFIG_MAP, SERVICE_ACCOUNT];

/// Everything of Agents that fipd has made.
async fn steps(remote: &Remote, past: &Past) -> Found {
    let mut found = Found::default();
    let all = AGENT.all();
    let agents = match remote.list_meta(&all, "").await {
        Ok(agents) => agents,
        Err(error) => {
            found.missed("Agent", &error, ruled(past));
            Vec::new()
        }
    };
    let all = |key: &str| -> BTreeSet<String> {
        let texts = agents.iter().map(|agent| text(&agent["metadata"][key]));
        texts.collect()
    };
    let (owners, places) = (all("uid"), all("namespace"));
    for namespace in places {
        for kind in NAMESPACED {
            let owned = |object: &Value| is_of(object, &owners);
            look(remote, past, &mut found, (kind, &namespace), owned).await;
        }
    }
    // It stays when its Agent is gone, and grants nothing then: only with Agents does it count that it cannot be seen.
    let none = Past {
        systems: BTreeSet::new(),
        ..past.clone()
    };
    let past = if owners.is_empty() { &none } else { past };
    let binding = (CLUSTER_ROLE_BINDING, "");
    look(remote, past, &mut found, binding, is_labelled).await;
    found
}

async fn look(
    remote: &Remote,
    past: &Past,
    found: &mut Found,
    (kind, namespace): (Kind, &str),
    of_agent: impl Fn(&Value) -> bool,
) {
    let target = kind.named(namespace, AGENT_WORKLOAD);
    let object: Result<Option<Value>, CallError> = remote.get(&target).await;
    match object {
        Ok(object) => {
            let object = object.filter(|object| is_applied(object) && of_agent(object));
            found
                .steps
                .extend(object.map(|object| delete(&object, target, kind.kind)));
        }
        Err(error) => found.missed(kind.kind, &error, ruled(past)),
    }
}

fn delete(object: &Value, target: Target, one: &str) -> Step {
    let place = match &*target.namespace {
        "" => target.name.clone(),
        namespace => format!("{namespace}/{}", target.name),
    };
    Step {
        object: format!("{one} {place}"),
        does: Does::Delete,
        uid: text(&object["metadata"]["uid"]),
        target,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whether fipd applied it. The original's have the same names and labels.
fn is_applied(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array();
    let mut managers = managers.into_iter().flatten();
    managers.any(|one| one["manager"] == MANAGER && one["operation"] == "Apply")
}

fn is_of(object: &Value, agents: &BTreeSet<String>) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|owner| {
        owner["uid"]
            .as_str()
            .is_some_and(|uid| agents.contains(uid))
    })
}

fn is_labelled(object: &Value) -> bool {
    object["metadata"]["labels"][MANAGED_BY] == OPERATOR
}
