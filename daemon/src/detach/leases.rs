//! The Leases that this daemon holds, by the names that it takes them under.

use fipd_core::Text;
use fipd_crds::labels::{API_SERVER_LEASE, MANAGER_LEASE};
use serde_json::Value;

use super::{Does, Found, Step, kinds::Past};
use crate::{
    controller::{
        client::{Remote, Target},
        kind::LEASE,
    },
    systems::{ip_rule::settings::IpRuleSettings, rancher_fip::settings::RancherFipSettings},
};

/// Those whose holder is `me`.
pub(super) async fn steps(remote: &Remote, past: &Past, me: &str) -> Found {
    let mut found = Found::default();
    for (target, held) in places(past) {
        match remote.get::<Value>(&target).await {
            Ok(lease) => (found.steps).extend(lease.and_then(|lease| let_go(&lease, target, me))),
            Err(error) => found.missed("Lease", &error, held),
        }
    }
    found
}

/// Where they are, and whether fipd takes them.
fn places(past: &Past) -> Vec<(Target, bool)> {
    let (family, rules) = (
        past.settings.of::<RancherFipSettings>(),
        past.settings.of::<IpRuleSettings>(),
    );
    let at = |namespace: &Text, name: &str| LEASE.named(namespace, name);
    let of_family = [MANAGER_LEASE, API_SERVER_LEASE, &*family.lease_lock_name];
    let of_family = of_family.into_iter();
    let mut all: Vec<_> = of_family
        .map(|name| (at(&family.lease_lock_namespace, name), past.led_family()))
        .collect();
    let own = at(&rules.lease_lock_namespace, &rules.lease_lock_name);
    all.push((own, past.led_rules()));
    all
}

fn let_go(lease: &Value, target: Target, me: &str) -> Option<Step> {
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
