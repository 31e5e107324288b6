//! The end of a quota object: the project's FloatingIPs go first, then its limits, then the finalizer. What Services use keeps
//! it for a while only, and keeps its leases for good.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::{Action, Timestamp};
use fipd_crds::{
    floating_ip::FloatingIPProjectQuota,
    labels::{PROJECT_NAME, QUOTA_CLEANUP, SECRET_CLEANUP},
};
use k8s_openapi::jiff;

use super::{Quotas, tenant};
use crate::{
    clock,
    controller::{
        Reconciled,
        client::{CallError, Remote},
        conditions::{ConditionUpdate, set},
        meta::Meta,
        queue::Next,
        store::Key,
    },
    systems::rancher_fip::{
        floating_ip::observe::Fip,
        kinds::{FLOATING_IP, QUOTA},
        settings::RancherFipSettings,
    },
};

/// It is looked again so often whether the FloatingIPs are gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The clusters of Services that use some are asked so often.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Reason of the condition and the Event where it waits no longer.
const LEFT: &str = "AddressesKept";
/// So many are named.
const NAMED: usize = 5;

impl Quotas {
    pub(super) async fn end(
        &self,
        key: &Key,
        meta: &Meta,
        quota: Option<&FloatingIPProjectQuota>,
    ) -> Reconciled {
        if !meta.has_finalizer(QUOTA_CLEANUP) {
            return self.let_secrets_be(key, meta).await;
        }
        // Nothing new meanwhile.
        let none = self.rows(key).into_keys().map(|pool| (pool, 0)).collect();
        self.set_limits(key, &none).await?;
        let left = self.fips_of(key);
        for (fip_key, fip) in &left {
            // What shows the lease of a Service goes with the Service.
            if fip.meta.deleted.is_none() && fip.holder.is_none() {
                let target = FLOATING_IP.target(fip_key);
                let remote = &self.data.remote;
                // It may have come to another project meanwhile.
                let (uid, version) = (&fip.meta.uid, &fip.meta.version);
                match remote.delete_version(&target, uid, version).await {
                    // One that somebody protects does not keep the others.
                    Ok(()) | Err(CallError::Rejected(..)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if !left.is_empty() || self.any_left(key).await? {
            let since = meta.deleted.unwrap_or_default();
            if let Some(next) = self.patience(since, &left, clock::now()).await {
                if let Some(quota) = quota {
                    self.say(key, quota, "Deleting", waiting(&left)).await?;
                }
                return Ok(next);
            }
            self.leave_used(key, meta, quota, &left).await?;
        }
        self.set_limits(key, &BTreeMap::new()).await?;
        self.context
            .drop_finalizer(key, meta, QUOTA_CLEANUP)
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
    async fn any_left(&self, key: &Key) -> Reconciled<bool> {
        let all = FLOATING_IP.all();
        let label = format!("{PROJECT_NAME}={}", key.name);
        Ok(!self.data.remote.list(&all, &label).await?.is_empty())
    }

    /// How long until the next look whether the FloatingIPs are gone; `None`: they are waited for no longer. Those that Services
    /// use go in time only where a cluster that uses one answers and stays.
    async fn patience(
        &self,
        since: Timestamp,
        left: &[(Key, Arc<Fip>)],
        now: Timestamp,
    ) -> Option<Next> {
        let settings = self.context.site.settings::<RancherFipSettings>();
        let rest = settings.release_wait.left(since, now)?;
        let is_used = |fip: &Fip| fip.holder.is_some() && fip.meta.deleted.is_none();
        let (used, going): (Vec<_>, Vec<_>) = left.iter().partition(|(_, fip)| is_used(fip));
        if !going.is_empty() || used.is_empty() {
            return Some(Next::After(rest.min(LOOK_AGAIN)));
        }
        let answers = self.any_answers(used.iter().map(|(_, fip)| &**fip)).await;
        answers.then(|| Next::After(rest.min(ASK_AGAIN)))
    }

    /// Whether one of the clusters whose Services use these answers and is not being deleted. Each is asked once.
    async fn any_answers(&self, used: impl Iterator<Item = &Fip>) -> bool {
        let mut clusters = BTreeMap::new();
        for fip in used {
            let called = fip.cluster.as_deref().unwrap_or_default();
            let known = self.data.clusters.get(&Key::new("", called));
            let stays = known.is_none_or(|cluster| !cluster.ending);
            if let (Some(service), Some(address), true) = (&fip.holder, fip.recorded(), stays)
                && let Some(guest) = self.rancher.guest(&service.cluster)
            {
                let ask = (guest, [service.key.clone()], address);
                clusters.entry(&service.cluster).or_insert(ask);
            }
        }
        let asked = clusters
            .values()
            .map(async |(guest, services, address)| guest.ask(services, *address).await.is_ok());
        futures::future::join_all(asked).await.contains(&true)
    }

    /// Says what outlives the quota.
    async fn leave_used(
        &self,
        key: &Key,
        meta: &Meta,
        quota: Option<&FloatingIPProjectQuota>,
        left: &[(Key, Arc<Fip>)],
    ) -> Reconciled<()> {
        let note = kept(left);
        if let Some(quota) = quota {
            self.say(key, quota, LEFT, note.clone()).await?;
        }
        let what = format!("{} {}: {note}", self.context.kind.kind, key.name);
        let actor = self.context.site.actor();
        let ipam = &self.context.site.ipam;
        ipam.note(Action::ClusterChanged, what, actor).await?;
        self.context.warn(key, &meta.uid, LEFT, note);
        Ok(())
    }

    async fn say(
        &self,
        key: &Key,
        quota: &FloatingIPProjectQuota,
        reason: &'static str,
        message: String,
    ) -> Reconciled<()> {
        let before = quota.status.clone().unwrap_or_default();
        let mut after = before.clone();
        let says = ConditionUpdate::ready(false, reason, message);
        let now = jiff::Timestamp::now();
        set(&mut after.conditions, &says, quota.metadata.generation, now);
        let uid = quota.metadata.uid.as_deref().unwrap_or_default();
        self.context.write_status(key, uid, (&before, &after)).await
    }
}

/// Some of the FloatingIPs by name, those that Services use or the others.
fn named(left: &[(Key, Arc<Fip>)], used: bool) -> String {
    let some = left.iter().filter(|(_, fip)| fip.holder.is_some() == used);
    let names = some.map(|(key, _)| format!("{}/{}", key.namespace, key.name));
    let mut names: Vec<String> = names.collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    names.truncate(NAMED);
    names.join(", ") + &more
}

/// A text, and what goes with it of each that is named.
fn told(text: &str, parts: [(&str, String); 2]) -> String {
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    parts.fold(text.to_owned(), |text, (what, names)| {
        format!("{text}; {what}: {names}")
    })
}

/// What outlives a quota that waits no longer.
fn kept(left: &[(Key, Arc<Fip>)]) -> String {
    let used =
        "Services keep the addresses of these until no complete list of their cluster shows them";
    let parts = [
        (used, named(left, true)),
        ("still being deleted", named(left, false)),
    ];
    told("the quota goes before its FloatingIPs", parts)
}

/// What a quota that is being deleted waits for.
fn waiting(left: &[(Key, Arc<Fip>)]) -> String {
    let used = "used by a Service, delete that or make it no load balancer";
    let parts = [
        ("being deleted", named(left, false)),
        (used, named(left, true)),
    ];
    told(
        "the quota goes when the project has no FloatingIP left",
        parts,
    )
}

impl Quotas {
    /// Where the cluster manager is off, its finalizer goes after the time that it would have had.
    pub(super) async fn let_secrets_be(&self, key: &Key, meta: &Meta) -> Reconciled {
        let settings = self.context.site.settings::<RancherFipSettings>();
        if settings.cluster_manager.enabled || !meta.has_finalizer(SECRET_CLEANUP) {
            return Ok(Next::Done);
        }
        let rest = settings
            .release_wait
            .left(meta.deleted.unwrap_or_default(), clock::now());
        let next = drop_late(&self.context.remote, key, meta, rest).await?;
        if next == Next::Done {
            let note = format!(
                "the cluster manager is switched off: Secrets rancher-fip-config-{} that are left in clusters stay",
                key.name
            );
            self.context.warn(key, &meta.uid, "SecretsLeftBehind", note);
        }
        Ok(next)
    }
}

async fn drop_late(remote: &Remote, key: &Key, meta: &Meta, rest: Option<Duration>) -> Reconciled {
    if let Some(rest) = rest {
        return Ok(Next::After(rest));
    }
    let (target, finalizers) = (QUOTA.target(key), &meta.finalizers);
    let drop = remote.drop_finalizer(&target, &meta.uid, finalizers, SECRET_CLEANUP);
    drop.await?;
    Ok(Next::Done)
}

#[cfg(test)]
mod tests;
