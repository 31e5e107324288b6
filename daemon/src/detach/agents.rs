//! What Agents run: fipd has made it, and nobody else takes it away while they stay.

use std::collections::BTreeSet;

use fipd_crds::ip_rule::{AGENT_WORKLOAD, MANAGED_BY, OPERATOR};
use serde_json::{Value, json};

use super::{Does, Found, Step, kinds::Past};
use crate::{
    controller::{
        client::{CallError, MANAGER, Remote, Target},
        kind::{CLUSTER_ROLE_BINDING, CONFIG_MAP, DAEMON_SET, Kind, SERVICE_ACCOUNT},
    },
    systems::ip_rule::names::AGENT,
};

/// In the order in which they go: pods first, their rights last.
const NAMESPACED: [Kind; 3] = [DAEMON_SET, CONFIG_MAP, SERVICE_ACCOUNT];

/// Everything of Agents that fipd has made.
pub(super) async fn steps(remote: &Remote, past: &Past) -> Found {
    let mut found = Found::default();
    let all = AGENT.all();
    let agents = match remote.list_meta(&all, "").await {
        Ok(agents) => agents,
        Err(error) => {
            found.missed("Agent", &error, past.rules());
            Vec::new()
        }
    };
    let text = |agent: &Value, path: &str| {
        let text = agent.pointer(path).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let owners: BTreeSet<String> = (agents.iter())
        .map(|agent| text(agent, "/metadata/uid"))
        .collect();
    let places: BTreeSet<String> = (agents.iter())
        .map(|agent| text(agent, "/metadata/namespace"))
        .collect();
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
        Err(error) => found.missed(kind.kind, &error, past.rules()),
    }
}

fn delete(object: &Value, target: Target, one: &str) -> Step {
    let place = match &*target.namespace {
        "" => target.name.clone(),
        namespace => format!("{namespace}/{}", target.name),
    };
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    Step {
        object: format!("{one} {place}"),
        does: Does::Delete,
        uid: uid.unwrap_or_default().to_owned(),
        target,
    }
}

/// Whether fipd applied it. The original's have the same names and labels.
fn is_applied(object: &Value) -> bool {
    let managers = object.pointer("/metadata/managedFields");
    let mut managers = managers.and_then(Value::as_array).into_iter().flatten();
    managers.any(|one| {
        one.get("manager") == Some(&json!(MANAGER)) && one.get("operation") == Some(&json!("Apply"))
    })
}

fn is_of(object: &Value, agents: &BTreeSet<String>) -> bool {
    let owners = object.pointer("/metadata/ownerReferences");
    let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
    owners.any(|owner| {
        let uid = owner.get("uid").and_then(Value::as_str);
        uid.is_some_and(|uid| agents.contains(uid))
    })
}

fn is_labelled(object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    labels.and_then(|labels| labels.get(MANAGED_BY)) == Some(&json!(OPERATOR))
}
