//! The end of a quota object: the project's FloatingIPs go first, then its limits, then the finalizer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::Timestamp;
use fipd_crds::{
    floating_ip::FloatingIPProjectQuota,
    labels::{PROJECT_NAME, QUOTA_CLEANUP},
};
use k8s_openapi::jiff;
use serde_json::json;

use super::{Quotas, status, target, tenant};
use crate::controllers::{
    Trouble,
    merge::{Says, change, set},
    objects::Key,
    queue::Next,
    rancher_fip::floating_ip::{self, observe::Fip},
    remote::{Patch, Target},
};

/// It is looked again so often whether the FloatingIPs are gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// So many are named.
const NAMED: usize = 5;

/// A quota object that is being deleted.
pub(super) struct Ending<'a> {
    pub uid: &'a str,
    pub finalizers: &'a [String],
    pub since: Timestamp,
}

impl Ending<'_> {
    pub fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|one| one == finalizer)
    }
}

impl Quotas {
    pub(super) async fn end(
        &self,
        key: &Key,
        ending: &Ending<'_>,
        quota: Option<&FloatingIPProjectQuota>,
    ) -> Result<Next, Trouble> {
        if !ending.has(QUOTA_CLEANUP) {
            return self.let_secrets_be(key, ending).await;
        }
        // Nothing new meanwhile.
        let none = self.rows(key).into_keys().map(|pool| (pool, 0)).collect();
        self.set_limits(key, &none).await?;
        let left = self.fips_of(key);
        for (fip_key, fip) in &left {
            // What shows the lease of a Service goes with the Service.
            if !fip.terminating && fip.holder.is_none() {
                let target = floating_ip::target(fip_key);
                let remote = &self.data.remote;
                // It may have come to another project meanwhile.
                remote
                    .delete_version(&target, &fip.uid, &fip.version)
                    .await?;
            }
        }
        if !left.is_empty() || self.any_left(key).await? {
            if let Some(quota) = quota {
                self.say_waiting(key, quota, &left).await?;
            }
            return Ok(Next::After(LOOK_AGAIN));
        }
        self.set_limits(key, &BTreeMap::new()).await?;
        let remote = &self.data.remote;
        remote
            .drop_finalizer(&target(key), ending.uid, ending.finalizers, QUOTA_CLEANUP)
            .await?;
        Ok(Next::Done)
    }

    fn fips_of(&self, key: &Key) -> Vec<(Key, Arc<Fip>)> {
        let project = Some(tenant(key));
        let mut all = self.data.fips.all();
        all.retain(|(_, fip)| fip.project == project);
        all
    }

    /// Whether there is one of the project that the watch has not shown, or cannot.
    async fn any_left(&self, key: &Key) -> Result<bool, Trouble> {
        let all = Target {
            api: super::API,
            plural: "floatingips",
            namespace: String::new(),
            name: String::new(),
        };
        let label = format!("{PROJECT_NAME}={}", key.name);
        Ok(!self.data.remote.list(&all, &label).await?.is_empty())
    }

    async fn say_waiting(
        &self,
        key: &Key,
        quota: &FloatingIPProjectQuota,
        left: &[(Key, Arc<Fip>)],
    ) -> Result<(), Trouble> {
        let before = quota.status.clone().unwrap_or_default();
        let mut after = before.clone();
        let says = Says {
            kind: status::READY,
            status: false,
            reason: "Deleting",
            message: waiting(left),
        };
        let now = jiff::Timestamp::now();
        set(&mut after.conditions, &says, quota.metadata.generation, now);
        let patch =
            change(&before, &after).map_err(|error| Trouble::internal(error.to_string()))?;
        let Some(patch) = patch else {
            return Ok(());
        };
        let body = json!({ "metadata": { "uid": quota.metadata.uid }, "status": patch });
        let remote = &self.data.remote;
        remote
            .patch_status(&target(key), Patch::Merge, &body)
            .await?;
        Ok(())
    }
}

/// What a quota that is being deleted waits for.
fn waiting(left: &[(Key, Arc<Fip>)]) -> String {
    let named = |used: bool| {
        let some = left.iter().filter(|(_, fip)| fip.holder.is_some() == used);
        let names = some.map(|(key, _)| format!("{}/{}", key.namespace, key.name));
        let names: Vec<String> = names.collect();
        let rest = names.len().saturating_sub(NAMED);
        let mut text = names
            .iter()
            .take(NAMED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if rest > 0 {
            text.push_str(&format!(" and {rest} more"));
        }
        text
    };
    let (kept, used) = (named(false), named(true));
    let mut text = "the quota goes when the project has no FloatingIP left".to_owned();
    if !kept.is_empty() {
        text.push_str(&format!("; being deleted: {kept}"));
    }
    if !used.is_empty() {
        text.push_str(&format!(
            "; used by a Service, delete that or make it no load balancer: {used}"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use fipd_crds::floating_ip::FloatingIP;

    use super::*;
    use crate::controllers::rancher_fip::{floating_ip::observe::slim, names::ServiceRef};

    #[test]
    fn what_is_waited_for_is_named() {
        let kept = |n: usize| {
            (
                Key::new("c-1", &format!("fip-{n}")),
                Arc::new(slim(FloatingIP::default())),
            )
        };
        let used = Fip {
            holder: ServiceRef::parse("Service/c/ns/web/u"),
            ..slim(FloatingIP::default())
        };
        let mut left: Vec<_> = (0..7).map(kept).collect();
        left.push((Key::new("c-1", "shown"), Arc::new(used)));
        let text = waiting(&left);
        assert!(
            text.contains("being deleted: c-1/fip-0,") && text.contains("c-1/fip-4 and 2 more")
        );
        assert!(text.ends_with("no load balancer: c-1/shown"), "{text}");
    }
}
