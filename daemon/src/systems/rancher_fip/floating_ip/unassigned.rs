//! FloatingIPs that no cluster has: those of a cluster that Rancher has no more, and those that go back to their pool
//! after a time.

use std::time::Duration;

use fipd_core::{LeaseKey, Text};
use fipd_crds::floating_ip::{FloatingIP, FloatingIPPool, FloatingIPStatus};
use k8s_openapi::jiff;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::{FloatingIpController, observe::Fip, plan, status};
use crate::{
    clock,
    controller::{
        Reconciled,
        client::{MANAGER, Patch},
        queue::Next,
        store::Key,
    },
    systems::rancher_fip::{
        kinds::{CLUSTER, FLOATING_IP},
        names::{self, GROUP, HOLDER, MANAGED_BY, RETURN_AFTER, SERVICE_PREFIX},
        rancher::annotation,
    },
};

/// After which time an address of the pool goes back; `None`: never. Or what is wrong with the annotation.
pub fn return_after(pool: &FloatingIPPool) -> Result<Option<Duration>, String> {
    let Some(text) = annotation(pool, RETURN_AFTER) else {
        return Ok(None);
    };
    let time = clock::duration(text);
    time.map(Some).map_err(|allowed| {
        format!("annotation {RETURN_AFTER}: {text:?}: {allowed}; unassigned addresses are kept")
    })
}

/// How long an address still stays that stays `after` once nobody has it; `None`: somebody has it.
fn stays(status: &FloatingIPStatus, after: Duration, now: jiff::Timestamp) -> Option<Duration> {
    let ready = status
        .conditions
        .iter()
        .rfind(|one| one.type_ == status::READY)?;
    if ready.reason != status::UNASSIGNED {
        return None;
    }
    // A clock that was set back counts as no time.
    let gone = Duration::try_from(now.duration_since(ready.last_transition_time.0));
    Some(after.saturating_sub(gone.unwrap_or_default()))
}

/// What is known of the cluster that has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// As far as is known.
    Here,
    Gone,
    /// It is not there, and never was; it is certain after this time.
    Unsure(Duration),
}

impl FloatingIpController {
    /// A pool says something else than before: its unassigned addresses may stay for another time.
    pub fn pool_changed(&self, pool: &Key) {
        for (key, fip) in self.user.data.fips.all() {
            if fip.cluster.is_none() && *fip.pool == *pool.name {
                self.context.queue.add(key);
            }
        }
    }

    /// A cluster of Rancher appeared, changed or went.
    pub fn cluster_changed(&self, cluster: &Key) {
        if self.user.data.clusters.seen(cluster).is_some() {
            return;
        }
        for (key, fip) in self.user.data.fips.all() {
            if fip.cluster.as_deref() == Some(&*cluster.name) {
                self.context.queue.add(key);
            }
        }
    }

    /// Whether the cluster that has the address is none of Rancher's any more: not in a complete list, which is not empty,
    /// nor there by a fresh read. One that was not seen before has to be missing twice.
    pub(super) async fn whereabouts(&self, key: &Key, fip: &Fip) -> Reconciled<Whereabouts> {
        let clusters = &self.user.data.clusters;
        let Some(cluster) = fip.cluster.as_deref().filter(|_| clusters.is_complete()) else {
            return Ok(Whereabouts::Here);
        };
        let look = (key.clone(), cluster.to_owned());
        let known = clusters.seen(&Key::new("", cluster)).is_some() || clusters.keys().is_empty();
        let target = CLUSTER.named("", cluster);
        let found = self.context.remote.get::<IgnoredAny>(&target);
        let here = known || found.await?.is_some();
        if !here
            && !self.user.data.names.was_known(cluster)
            && let Some(left) = self.user.clusterless.missing(&look)
        {
            return Ok(Whereabouts::Unsure(left));
        }
        self.user.clusterless.forget(&look);
        Ok(match here {
            true => Whereabouts::Here,
            false => Whereabouts::Gone,
        })
    }

    /// Takes cluster, group and Services off the object; the address stays the project's.
    pub(super) async fn unassign(&self, key: &Key, fip: &Fip) -> Reconciled {
        let is_so = |object: &FloatingIP| super::observe::cluster(object) == fip.cluster;
        if self.take_users_off(key, fip, is_so).await? {
            let cluster = fip.cluster.as_deref().unwrap_or_default();
            let note = format!(
                "Rancher has no cluster {cluster} any more; the address is kept for the project"
            );
            self.context.note(key, &fip.meta.uid, "ClusterGone", note);
        }
        Ok(Next::Done)
    }

    /// Deletes an object that nobody had for the time its pool says, and with it its lease. How long it still stays, nothing
    /// where it is deleted; `None`: somebody has it, or the pool says no time.
    pub(super) async fn return_to_pool(
        &self,
        key: &Key,
        fip: &Fip,
    ) -> Reconciled<Option<Duration>> {
        let pool = self.user.data.pools.get(&Key::new("", &fip.pool));
        let after = pool.filter(|_| fip.cluster.is_none());
        let after = after.and_then(|pool| return_after(&pool).ok().flatten());
        let left = after.and_then(|after| stays(&fip.status, after, jiff::Timestamp::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let (remote, target) = (&self.context.remote, FLOATING_IP.target(key));
            // Somebody may be giving it to a cluster: only the object that was read is deleted.
            let object = remote.get::<FloatingIP>(&target).await?;
            let object = object.filter(|object| super::observe::cluster(object).is_none());
            if let Some(version) = object.and_then(|object| object.metadata.resource_version) {
                let (uid, version) = (&fip.meta.uid, &version);
                remote.delete_version(&target, uid, version).await?;
            }
        }
        Ok(left)
    }

    /// Gives the object its lease back where the Service lost it without a word, then takes the Service off it.
    pub(super) async fn hand_back(&self, key: &Key, fip: &Fip) -> Reconciled {
        let site = &self.context.site;
        let lost = site.ipam.read(|ledger| {
            let network = plan::wish(ledger, &site.id, fip).ok()?.pool.spec.network;
            let address = fip.recorded()?;
            let place = LeaseKey { network, address };
            ledger.lease_around(place).is_none().then_some(place)
        });
        if let Some(place) = lost {
            let asker = self.asker(key, &fip.meta);
            let adopt = asker.adopt(place.into(), fip.project.clone());
            site.ipam.submit(adopt).await?;
        }
        self.take_users_off(key, fip, |_| true).await?;
        Ok(Next::Done)
    }

    /// Takes cluster, group and Services off the object, if it is as `is_so` says by a fresh read; whether it did.
    pub(super) async fn take_users_off(
        &self,
        key: &Key,
        fip: &Fip,
        is_so: impl Fn(&FloatingIP) -> bool,
    ) -> Reconciled<bool> {
        let (remote, target) = (&self.context.remote, FLOATING_IP.target(key));
        let object = remote.get::<FloatingIP>(&target).await?.filter(is_so);
        let Some(patch) = object.and_then(|object| without_users(&object, &fip.meta.uid)) else {
            return Ok(false);
        };
        remote.patch(&target, Patch::Merge, &patch).await?;
        Ok(true)
    }
}

/// Takes off what says that a Service uses the object.
pub fn without_users(object: &FloatingIP, uid: &Text) -> Option<Value> {
    let meta = &object.metadata;
    let (own, version) = (meta.uid.as_deref()?, meta.resource_version.as_deref()?);
    let says = |key: &str, value: &str| {
        key == names::CLUSTER
            || key == GROUP
            || key.starts_with(SERVICE_PREFIX)
            || (key == MANAGED_BY && value == MANAGER)
    };
    let labels = meta.labels.iter().flatten();
    let gone: Map<String, Value> = labels
        .filter(|(key, value)| says(key, value))
        .map(|(key, _)| (key.clone(), Value::Null))
        .collect();
    (own == &**uid).then(|| {
        json!({ "metadata": {
            "uid": own, "resourceVersion": version,
            "labels": gone, "annotations": { HOLDER: null },
        } })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::System;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::{super::controller, *};
    use crate::{
        clusters::testing,
        controller::{client::testing::canned, events::Events},
        ipam::Ipam,
        systems::rancher_fip::{
            Site,
            clusters::RancherCluster,
            rancher::{Data, Ranchers},
        },
    };

    #[test]
    fn the_time_counts_from_when_it_became_unassigned() {
        let at = |second| jiff::Timestamp::from_second(second).expect("a time");
        let status = |reason: &str| FloatingIPStatus {
            conditions: vec![Condition {
                type_: status::READY.into(),
                status: "True".into(),
                reason: reason.into(),
                message: String::new(),
                observed_generation: None,
                last_transition_time: Time(at(1_000)),
            }],
            ..FloatingIPStatus::default()
        };
        let left = |reason: &str, now| {
            stays(&status(reason), Duration::from_secs(60), at(now)).map(|left| left.as_secs())
        };
        assert_eq!(left("IPUnassigned", 1_000), Some(60));
        assert_eq!(left("IPUnassigned", 1_045), Some(15));
        assert_eq!(left("IPUnassigned", 1_060), Some(0));
        assert_eq!(left("IPUnassigned", 9_000), Some(0));
        assert_eq!(
            left("IPUnassigned", 900),
            Some(60),
            "the clock was set back"
        );
        assert_eq!(left("IPAssigned", 9_000), None);
        assert_eq!(
            stays(&FloatingIPStatus::default(), Duration::ZERO, at(1)),
            None
        );
    }

    #[tokio::test]
    async fn a_cluster_that_rancher_never_had_is_not_gone_at_the_first_look() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let answers = [("GET", 404, ""), ("GET", 404, ""), ("GET", 200, "{}")];
        let (remote, asked) = canned(&answers);
        let client = kube::Client::new(tower::service_fn(unused), "default");
        let session = testing::session(client, &ipam).await;
        let site = Arc::new(Site::new(session, System::rancher_fip()));
        let data = Data::new(site.id.clone(), remote, site.cancel());
        let quiet = || std::future::ready(());
        let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
        let rancher = Ranchers::default().get("x");
        let context = data.context(FLOATING_IP, &site, &Arc::new(events), &data.fips);
        let fips = controller(context, rancher, data);
        let fip = Fip {
            cluster: Some("c-1".into()),
            ..super::super::observe::view(FloatingIP::default())
        };
        let key = Key::new("c-2", "fip");
        let look = async || fips.whereabouts(&key, &fip).await.expect("an answer");
        assert_eq!(look().await, Whereabouts::Here, "nothing is listed yet");
        let other = Key::new("", "c-2");
        fips.user
            .data
            .clusters
            .set(&other, RancherCluster::default());
        fips.user.data.clusters.complete();
        let unsure = look().await;
        assert!(
            matches!(unsure, Whereabouts::Unsure(left) if left.as_secs() > 50),
            "{unsure:?}"
        );
        fips.user.data.names.note(&"c-1".into(), Some("one"));
        assert_eq!(look().await, Whereabouts::Gone, "it was there");
        assert_eq!(look().await, Whereabouts::Here, "it is there");
        assert_eq!(asked.lock().len(), 3);
    }

    async fn unused(
        _: http::Request<kube::client::Body>,
    ) -> Result<http::Response<kube::client::Body>, std::convert::Infallible> {
        std::future::pending().await
    }

    #[test]
    fn the_annotation_is_read_strictly() {
        let pool = |text: &str| {
            let mut pool = FloatingIPPool::default();
            pool.metadata.annotations = Some([(RETURN_AFTER.to_owned(), text.to_owned())].into());
            return_after(&pool)
        };
        assert_eq!(pool("72h"), Ok(Some(Duration::from_secs(259_200))));
        assert_eq!(return_after(&FloatingIPPool::default()), Ok(None));
        for wrong in ["", "72", "1.5h", "-1h", "0h", "72 h", "h"] {
            let said = pool(wrong).expect_err(wrong);
            assert!(
                said.contains(RETURN_AFTER) && said.contains("s, m, h or d"),
                "{said}"
            );
        }
    }

    #[test]
    fn what_names_the_service_goes_and_the_rest_stays() {
        let object: FloatingIP = serde_json::from_value(json!({
            "metadata": {
                "name": "fip-abc12", "uid": "u", "resourceVersion": "7",
                "labels": {
                    "rancher.k8s.binbash.org/project-name": "p-1",
                    "rancher.k8s.binbash.org/cluster-name": "c-1",
                    "rancher.k8s.binbash.org/service-3-name": "web",
                    "rancher.k8s.binbash.org/service-3-namespace": "ns",
                    "rancher.k8s.binbash.org/service-name": "web",
                    "rancher.k8s.binbash.org/floatingip-group": "g",
                    MANAGED_BY: MANAGER,
                    "team": "a",
                },
            },
            "spec": { "floatingIPPool": "net" },
        }))
        .expect("a FloatingIP");
        let patch = without_users(&object, &"u".into()).expect("a patch");
        let labels = json!({
            "rancher.k8s.binbash.org/cluster-name": null,
            "rancher.k8s.binbash.org/service-3-name": null,
            "rancher.k8s.binbash.org/service-3-namespace": null,
            "rancher.k8s.binbash.org/service-name": null,
            "rancher.k8s.binbash.org/floatingip-group": null,
            MANAGED_BY: null,
        });
        assert_eq!(patch["metadata"]["labels"], labels);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(without_users(&object, &"another".into()), None);
    }
}
