//! What Agents run: fipd has made it, and nobody else takes it away while they stay.

use std::collections::BTreeSet;

use fipd_crds::ip_rule::{MANAGED_BY, OPERATOR};
use serde_json::{Value, json};

use super::{
    Does, Found, Step,
    kinds::{Past, RULES},
};
use crate::{
    controller::client::{CallError, MANAGER, Remote, Target},
    systems::ip_rule::agent::target,
};

/// In the order in which they go: pods first, their rights last.
const NAMESPACED: [(&str, &str, &str); 3] = [
    ("apis/apps/v1", "daemonsets", "DaemonSet"),
    ("api/v1", "configmaps", "ConfigMap"),
    ("api/v1", "serviceaccounts", "ServiceAccount"),
];
const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";

/// Everything of Agents that fipd has made.
pub(super) async fn steps(remote: &Remote, past: &Past) -> Found {
    let mut found = Found::default();
    let all = Target {
        api: RULES,
        plural: "agents",
        namespace: String::new(),
        name: String::new(),
    };
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
        for (api, plural, one) in NAMESPACED {
            let target = target(api, plural, &namespace);
            let owned = |object: &Value| is_of(object, &owners);
            look(remote, past, &mut found, (target, one), owned).await;
        }
    }
    // It stays when its Agent is gone, and grants nothing then: only with Agents does it count that it cannot be seen.
    let target = target(RBAC, "clusterrolebindings", "");
    let none = Past {
        systems: BTreeSet::new(),
        ..past.clone()
    };
    let past = if owners.is_empty() { &none } else { past };
    let one = "ClusterRoleBinding";
    look(remote, past, &mut found, (target, one), is_labelled).await;
    found
}

async fn look(
    remote: &Remote,
    past: &Past,
    found: &mut Found,
    (target, one): (Target, &str),
    of_agent: impl Fn(&Value) -> bool,
) {
    let object: Result<Option<Value>, CallError> = remote.get(&target).await;
    match object {
        Ok(object) => {
            let object = object.filter(|object| is_applied(object) && of_agent(object));
            found
                .steps
                .extend(object.map(|object| delete(&object, target, one)));
        }
        Err(error) => found.missed(one, &error, past.rules()),
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
