//! The charts of a guest: the controller that asks for addresses, and the load balancer that answers for them.
//!
//! They have a queue of their own: what helm takes minutes for keeps no Secret waiting.

use std::{sync::Arc, time::Duration};

use fipd_crds::labels::FLOATINGIP_CLEANUP;
use serde_json::{Value, json};

use super::{Guests, plan::GuestWait, settings::Settings};
use crate::{
    config::ChartEngine,
    controller::{
        client::{CallError, Remote},
        kind::SERVICE,
        queue::Next,
        store::{Key, Observed},
    },
    guests::{
        access::GuestName,
        charts::{
            BUSY, ChartError, ChartRelease, InstalledReleases, OTHER_LOAD_BALANCER, ReachedGuest,
            ReleaseMark, ReleaseOwner,
            owner::{ChartOwner, ChartRemover},
            steps::ReleaseStep,
        },
        clusters::ClusterMark,
    },
    systems::rancher_fip::clusters::{LoadBalancer, RancherCluster},
};

/// One look at what the charts of a guest are to be.
struct ChartLook<'a> {
    guests: &'a Guests,
    id: &'a str,
    /// With the load balancer that holds for it, once it is known what is installed.
    cluster: RancherCluster,
    settings: Settings,
}

/// What is asked before the charts of a guest go that is left.
pub(super) struct ChartLeave<'a> {
    pub guests: &'a Guests,
    pub id: &'a str,
}

impl Guests {
    pub(super) async fn reconcile_charts(self: Arc<Self>, key: Key) -> Next {
        let id = &*key.name;
        let turn = self.access.turn(id);
        // Nothing is installed behind the back of who leaves the guest.
        let holds = turn.lock().await;
        let (next, news) = match self.data.clusters.seen(&key) {
            Some(Observed::Parsed(cluster)) if cluster.is_guest() => {
                let place = (id, GuestName::from(&cluster.display_name));
                let look = || self.chart_look(id, &cluster);
                self.charts.look_after(place, look).await
            }
            Some(_) | None => {
                let leave = ChartLeave { guests: &self, id };
                self.charts.uninstall(id, &leave).await
            }
        };
        drop(holds);
        if news {
            // It says how the guest is doing.
            self.queue.add(key.clone());
        }
        next
    }

    /// `None`: the guest's own turn tells why nothing is known to be wanted.
    fn chart_look<'a>(&'a self, id: &'a str, cluster: &RancherCluster) -> Option<ChartLook<'a>> {
        let settings = self.settings_of(id);
        let known = !settings.unknown && !settings.names_no_chart();
        known.then(|| ChartLook {
            guests: self,
            id,
            cluster: cluster.clone(),
            settings,
        })
    }

    /// Whether a release may be removed for others of these settings, which were read a while ago: they hold still, and
    /// what the next one needs is where it will be.
    pub(super) fn may_remove(&self, id: &str, settings: &Settings) -> Result<(), ChartError> {
        if self.settings_of(id) != *settings {
            return Err(settings_changed());
        }
        match self.charts.is_prepared(id, &settings.namespace) {
            true => Ok(()),
            // Secrets and mappings come before the controller that reads them.
            false => Err(ChartError::new(
                BUSY,
                format!(
                    "no release is removed before the namespace {:?} has what its controller needs",
                    settings.namespace
                ),
            )),
        }
    }
}

impl ChartOwner for ChartLook<'_> {
    async fn wanted(
        &mut self,
        installed: &InstalledReleases,
    ) -> Result<Vec<ChartRelease>, ChartError> {
        let typed = self
            .guests
            .typed(self.id, &self.cluster, &self.settings, &installed.marks);
        let (cluster, _) = typed.await.map_err(unconfirmed)?;
        self.cluster = cluster;
        Ok(self.settings.releases(self.cluster.load_balancer))
    }

    fn engine(&self) -> Result<ChartEngine, ChartError> {
        self.cluster.engine_or(self.guests.given().engine)
    }

    /// Two load balancers in one cluster would answer for the same addresses, and two controllers for the same Services.
    fn excludes(&self, release: &ChartRelease, other: &ReleaseMark) -> bool {
        let balances = self.settings.balancer_of(release).is_some();
        self.settings.serves(&other.name).is_some() == balances
    }

    /// What another installed keeps ours out.
    async fn check_room(
        &self,
        guest: &ReachedGuest<'_>,
        installed: &InstalledReleases,
        step: &ReleaseStep<'_>,
    ) -> Result<(), ChartError> {
        let (settings, release) = (&self.settings, step.brings);
        let balancer = settings.balancer_of(release);
        if let Some(mark) = step.kept_out_by.first() {
            return Err(match settings.serves(&mark.name) == balancer {
                true => ChartError::elsewhere(mark, &release.name),
                false => other_load_balancer(&mark.namespace, &mark.name),
            });
        }
        let Some(balancer) = balancer else {
            return Ok(());
        };
        let (namespace, name) = settings.other(balancer);
        // What stands where the guest moves from is in the way as well, noted or not yet.
        let mut places = self.guests.places_of(self.id);
        places.insert(namespace);
        for namespace in places {
            let owner = installed.owner(guest.remote, &namespace, &name).await;
            match owner.map_err(ChartError::unreadable)? {
                Some(ReleaseOwner::Adopted | ReleaseOwner::Other) => {
                    return Err(other_load_balancer(&namespace, &name));
                }
                Some(ReleaseOwner::Fipd) | None => {}
            }
        }
        Ok(())
    }

    async fn confirm_removal(&self, _: &ReachedGuest<'_>) -> Result<(), ChartError> {
        self.guests.may_remove(self.id, &self.settings)?;
        let still = self.guests.still_typed(self.id, &self.cluster).await;
        if !still.map_err(unconfirmed)? {
            return Err(label_changed());
        }
        let still = self.guests.still_said().await;
        if !still.map_err(unconfirmed)? {
            return Err(settings_changed());
        }
        Ok(())
    }

    fn begins(&self) {
        self.guests.queue.add(Key::new("", self.id));
    }
}

impl ChartRemover for ChartLeave<'_> {
    /// Nobody else than the controller would let go of the Services' addresses, and none of them could be deleted.
    async fn check_unused(
        &self,
        guest: &ReachedGuest<'_>,
        installed: &InstalledReleases,
    ) -> Result<(), ChartError> {
        let is_controller = |mark: &ReleaseMark| {
            self.guests
                .settings_of(self.id)
                .serves(&mark.name)
                .is_none()
        };
        let ours = |mark: &&ReleaseMark| mark.owner == ReleaseOwner::Fipd && is_controller(mark);
        match installed.marks.iter().any(|mark| ours(&mark)) {
            true => no_service_holds(guest.remote).await,
            false => Ok(()),
        }
    }

    async fn confirm_leaving(&self) -> Result<(), ChartError> {
        let off = self.guests.is_off(self.id).await;
        match off.map_err(unconfirmed)? {
            true => Ok(()),
            false => Err(label_changed()),
        }
    }
}

/// Names that are told of many.
const TOLD: usize = 3;

/// Whether no Service waits for the controller to let go of its address.
async fn no_service_holds(remote: &Remote) -> Result<(), ChartError> {
    let unreadable = |error: CallError| {
        let why = "charts are uninstalled once it is known that no Service there has an address; Services cannot be listed";
        ChartError::new("ServicesUnreadable", format!("{why}: {error}"))
    };
    let services = remote.list_meta(&SERVICE.all(), "").await;
    let services = services.map_err(unreadable)?;
    let holding: Vec<String> = services.iter().filter_map(holding).collect();
    if holding.is_empty() {
        return Ok(());
    }
    let mut first = holding.get(..TOLD).unwrap_or(&holding).join(", ");
    if holding.len() > TOLD {
        first.push_str(", ...");
    }
    let count = holding.len();
    // The controller that fipd installed is not removed before they have let go.
    let why = format!(
        "{count} Services there have addresses ({first}), which the LB controller lets go of: delete them, or give them another load balancer and take the finalizer {FLOATINGIP_CLEANUP} off; charts are uninstalled once none has it"
    );
    Err(ChartError::new("ServicesHoldAddresses", why))
}

/// Namespace and name of a Service with the controller's finalizer.
fn holding(service: &Value) -> Option<String> {
    let meta = service.get("metadata")?;
    let finalizers = meta.get("finalizers")?.as_array()?;
    let held = finalizers.contains(&json!(FLOATINGIP_CLEANUP));
    let text = |key: &str| meta.get(key).and_then(Value::as_str);
    held.then(|| {
        format!(
            "{}/{}",
            text("namespace").unwrap_or(""),
            text("name").unwrap_or("")
        )
    })
}

/// Nothing is removed on what was read some time ago.
fn unconfirmed(error: CallError) -> ChartError {
    let why = "no release is removed before the cluster's labels in Rancher are read again";
    ChartError::new("LabelUnreadable", format!("{why}: {error}"))
}

fn label_changed() -> ChartError {
    let why = "the cluster's labels in Rancher changed meanwhile; no release is removed";
    ChartError::new("LabelChanged", why)
}

fn settings_changed() -> ChartError {
    let why = "the settings changed meanwhile; no release is removed";
    ChartError::new("SettingsChanged", why)
}

fn other_load_balancer(namespace: &str, name: &str) -> ChartError {
    let why = format!(
        "the release {name:?} in namespace {namespace:?} was not installed by fipd: uninstall it, or set the cluster's label rancher-fip-lbtype to it"
    );
    ChartError::new(OTHER_LOAD_BALANCER, why)
}

impl Guests {
    /// The cluster with the load balancer that holds for it, and why that is not the one its label means. `marks` are
    /// needed where it [`may_replace`] one.
    pub(super) async fn typed(
        &self,
        id: &str,
        cluster: &RancherCluster,
        settings: &Settings,
        marks: &[ReleaseMark],
    ) -> Result<(RancherCluster, Option<GuestWait>), CallError> {
        let key = id.to_owned();
        let label = &cluster.load_balancer_label;
        let wanted = cluster.load_balancer;
        let installed = wanted.other();
        let serves = |name: &str| settings.serves(name);
        let has_other = has_load_balancer(marks, installed, serves);
        if !may_replace(cluster, settings) || !has_other {
            self.untyped.forget(&key);
            return Ok((cluster.clone(), None));
        }
        let left = match label {
            ClusterMark::Silent => self.untyped.missing(&key),
            ClusterMark::Known(_) | ClusterMark::Unclear(_) => {
                self.untyped.forget(&key);
                None
            }
        };
        let held = match held(label, installed, left) {
            None if !self.still_typed(id, cluster).await? => Some(GuestWait::LabelChanged),
            held => held,
        };
        let mut cluster = cluster.clone();
        if held.is_some() {
            cluster.load_balancer = installed;
        }
        Ok((cluster, held))
    }

    /// Whether a fresh read of the cluster says the same of its load balancer.
    pub(super) async fn still_typed(
        &self,
        id: &str,
        cluster: &RancherCluster,
    ) -> Result<bool, CallError> {
        let found = self.fresh_cluster(id).await?;
        Ok(found.is_some_and(|found| {
            found.is_guest() && found.load_balancer_label == cluster.load_balancer_label
        }))
    }
}

/// Whether fipd installed a load balancer of this type.
fn has_load_balancer(
    marks: &[ReleaseMark],
    of: LoadBalancer,
    serves: impl Fn(&str) -> Option<LoadBalancer>,
) -> bool {
    let installed =
        |mark: &ReleaseMark| mark.owner == ReleaseOwner::Fipd && serves(&mark.name) == Some(of);
    marks.iter().any(installed)
}

/// Why the load balancer that is `installed`, and that the label does not mean, stays. `left` is the time until a
/// missing label counts.
fn held(
    label: &ClusterMark<LoadBalancer>,
    installed: LoadBalancer,
    left: Option<Duration>,
) -> Option<GuestWait> {
    match label {
        ClusterMark::Known(_) => None,
        ClusterMark::Silent => left.map(|_| GuestWait::LbTypeGone { installed }),
        ClusterMark::Unclear(said) => Some(GuestWait::LbTypeInvalid {
            said: said.clone(),
            installed,
        }),
    }
}

/// Whether the cluster may get another load balancer than it has, without anybody having said so.
pub(super) fn may_replace(cluster: &RancherCluster, settings: &Settings) -> bool {
    let silent = !matches!(cluster.load_balancer_label, ClusterMark::Known(_));
    silent && !settings.releases(cluster.load_balancer).is_empty()
}

#[cfg(test)]
mod tests {
    use fipd_core::System;

    use super::*;
    use crate::{
        clock,
        clusters::testing,
        config,
        controller::{client::testing::canned, events::Events},
        guests::{GuestBoard, charts::ChartProgress},
        helm::Helm,
        ipam::Ipam,
        systems::rancher_fip::{Site, clusters::LoadBalancer, guests::OwnEndpoint, rancher::Data},
    };

    #[tokio::test]
    async fn a_guest_that_does_not_answer_takes_no_place_of_helms() {
        let dir = tempfile::tempdir().unwrap();
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
        let client = kube::Client::new(tower::service_fn(unused), "default");
        let session = testing::session(client, &ipam).await;
        let site = Arc::new(Site::new(session, System::rancher_fip()));
        let secret = r#"{ "data": { "value": "a3ViZQ==" } }"#;
        let (rancher, _) = canned(&[("GET", 200, secret)]);
        let data = Data::new(site.id.clone(), rancher, site.cancel());
        let key = Key::new("", "c-1");
        let cluster = RancherCluster {
            switch: ClusterMark::Known(true),
            ..RancherCluster::default()
        };
        data.clusters.set(&key, cluster);
        let quiet = || std::future::ready(());
        let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
        let helm = Helm::start(&config::Helm::default(), dir.path(), site.cancel());
        let (own, board) = (OwnEndpoint::default(), GuestBoard::default());
        let guests = Guests::new(site, data, Arc::new(events), own, board, Some(helm.clone()));
        let map = ["ChartName", "ChartRef", "ChartVersion"];
        let map = map.map(|key| (format!("RancherFipLBController{key}"), "x".to_owned()));
        let place = Key::new(guests.app_namespace(), "rancher-fip-config");
        guests.maps.seen.set(&place, map.into());
        let (dead, asked) = canned(&[("GET", 503, "down")]);
        guests.access.keep("c-1", "kube", dead);
        let next = Arc::clone(&guests).reconcile_charts(key).await;
        let wanted = guests.settings().releases(LoadBalancer::PureLb);
        assert_eq!(
            guests.charts.progress("c-1", &wanted),
            ChartProgress::Unknown
        );
        assert_eq!(next, Next::Done, "its own turn comes back to it");
        assert_eq!(
            (asked.lock().len(), helm.progress()),
            (1, Default::default())
        );
    }

    #[tokio::test]
    async fn services_with_addresses_keep_the_controller_that_lets_go_of_them() {
        let service = |name: &str, finalizers: Value| json!({ "metadata": { "namespace": "shop", "name": name, "finalizers": finalizers } });
        let free = service(
            "api",
            json!(["service.kubernetes.io/load-balancer-cleanup"]),
        );
        let held = |name| service(name, json!([FLOATINGIP_CLEANUP]));
        let all = json!({ "items": [free, held("a"), held("b"), held("c"), held("d")] });
        let (remote, _) = canned(&[("GET", 200, all.to_string().leak())]);
        let error = no_service_holds(&remote).await.unwrap_err();
        assert_eq!(error.reason, "ServicesHoldAddresses");
        assert!(
            error.message.starts_with("4 Services")
                && error.message.contains("shop/a, shop/b, shop/c"),
            "{}",
            error.message
        );
        let none = json!({ "items": [free] });
        let (remote, _) = canned(&[("GET", 200, none.to_string().leak())]);
        assert_eq!(no_service_holds(&remote).await, Ok(()));
        let (remote, _) = canned(&[("GET", 403, "no")]);
        let error = no_service_holds(&remote).await.unwrap_err();
        assert_eq!(error.reason, "ServicesUnreadable", "nobody knows");
    }

    async fn unused(
        _: http::Request<kube::client::Body>,
    ) -> Result<http::Response<kube::client::Body>, std::convert::Infallible> {
        std::future::pending().await
    }

    const METALLB: LoadBalancer = LoadBalancer::MetalLb;

    #[test]
    fn only_a_label_that_says_so_replaces_a_load_balancer_at_once() {
        let known = ClusterMark::Known(LoadBalancer::PureLb);
        assert_eq!(held(&known, METALLB, None), None);
        let gone = GuestWait::LbTypeGone { installed: METALLB };
        let left = Some(Duration::from_secs(60));
        assert_eq!(
            held(&ClusterMark::Silent, METALLB, left),
            Some(gone.clone())
        );
        assert_eq!(held(&ClusterMark::Silent, METALLB, None), None);
        let typo = held(&ClusterMark::Unclear("metalb".into()), METALLB, None).unwrap();
        assert_eq!(typo.reason(), "LbTypeInvalid");
        for part in [
            "rancher-fip-lbtype",
            "\"metalb\"",
            "\"metallb\"",
            "\"purelb\"",
        ] {
            assert!(typo.to_string().contains(part), "{typo}");
        }
        let gone = gone.to_string();
        assert!(
            gone.contains("\"metallb\" keeps it, \"purelb\" replaces it"),
            "{gone}"
        );
    }
}
