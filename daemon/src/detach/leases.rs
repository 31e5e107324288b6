//! The Leases that this daemon holds, by the names that it takes them under.

use serde_json::Value;

use super::{Does, Found, Leaving, Past, Step};
use crate::controller::{
    client::{Remote, Target},
    kind::LEASE,
};

/// Those whose holder is `me`.
pub(super) async fn steps(
    remote: &Remote,
    systems: &[&dyn Leaving],
    past: &Past,
    me: &str,
) -> Found {
    let mut found = Found::default();
    for (lock, held) in systems.iter().flat_map(|one| one.locks(past)) {
        let target = LEASE.target(&lock);
        match remote.get::<Value>(&target).await {
            Ok(lease) => {
                (found.steps).extend(lease.and_then(|lease| release_step(&lease, target, me)))
            }
            Err(error) => found.missed("Lease", &error, held),
        }
    }
    found
}

fn release_step(lease: &Value, target: Target, me: &str) -> Option<Step> {
    let text = |path: &str| {
        let text = lease.pointer(path).and_then(Value::as_str);
        text.unwrap_or_default()
    };
    let mine = text("/spec/holderIdentity") == me && !me.is_empty();
    mine.then(|| Step {
        object: format!("Lease {}/{}", target.namespace, target.name),
        does: Does::LetGo,
        uid: text("/metadata/uid").to_owned(),
        target,
    })
}
