//! The charts of a guest: the controller that asks for addresses, and the load balancer that answers for them.
//!
//! They have a queue of their own: what helm takes minutes for keeps no Secret waiting.

use std::{sync::Arc, time::Duration};

use fipd_crds::labels::{ADOPTED, CHART_ENGINE};
use serde_json::Value;
use tokio::sync::Mutex as Turn;

use super::{
    AGAIN, Guests, apply,
    helm_chart::{HelmCharts, Settled},
    lb_type,
    settings::{Release, Settings},
};
use crate::{
    clock,
    config::Engine,
    controllers::{
        objects::{Key, Seen as Object},
        queue::Next,
        rancher_fip::clusters::{EngineWish, RancherCluster},
        remote::{CallError, Remote},
    },
    guests::{Phase, Says, helm_name},
    helm::{Access, Helm, HelmError, Keys, Noted, OWNER, OWNER_LABEL, Release as Wanted},
};

/// After this time a chart that failed is asked for again; helm's own pauses are longer.
const FAILED: Duration = Duration::from_secs(30);

/// After this time it is looked how far helm-controller is.
const UNDER_WAY: Duration = Duration::from_secs(5);

/// Why the charts of a guest are not as they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChartError {
    pub reason: &'static str,
    pub message: String,
}

impl ChartError {
    pub fn of(release: &str, error: &HelmError) -> Self {
        Self {
            reason: error.reason(),
            message: format!("chart {release:?}: {error}"),
        }
    }

    pub fn unreadable(error: &CallError) -> Self {
        Self {
            reason: "ReleasesUnreadable",
            message: format!("the releases in the cluster cannot be listed: {error}"),
        }
    }

    /// Nothing is removed on what was read some time ago.
    pub fn unconfirmed(error: &CallError) -> Self {
        Self {
            reason: "LabelUnreadable",
            message: format!(
                "no release is removed before the cluster's labels in Rancher are read again: {error}"
            ),
        }
    }

    pub fn changed() -> Self {
        Self {
            reason: "LabelChanged",
            message: "the cluster's labels in Rancher changed meanwhile; no release is removed"
                .to_owned(),
        }
    }

    /// Something goes on that ends soon.
    fn is_busy(&self) -> bool {
        self.reason == "ReleaseBusy"
    }

    /// Both of them; what ends soon by itself does not hide the other.
    fn and(self, other: Self) -> Self {
        if self.message == other.message {
            return self;
        }
        let reason = match self.is_busy() {
            true => other.reason,
            false => self.reason,
        };
        Self {
            reason,
            message: format!("{}; {}", self.message, other.message),
        }
    }

    pub fn says(&self) -> Says {
        Says::new(Phase::Failed, self.reason, self.message.clone())
    }
}

/// How the charts of a guest stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Charts {
    /// Nobody looked yet.
    #[default]
    Unknown,
    UnderWay,
    Failed(ChartError),
    Done,
}

impl Charts {
    fn of(brought: Result<Settled, ChartError>) -> Self {
        match brought {
            Ok(Settled::Yes) => Self::Done,
            Ok(Settled::NotYet) => Self::UnderWay,
            Err(error) => Self::Failed(error),
        }
    }
}

/// Whose a release is, as the Secrets say in which helm keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Fipd,
    /// fipd keeps in step what another installed.
    Adopted,
    Other,
}

/// The way to a guest.
pub(super) struct Guest<'a> {
    pub id: String,
    /// What helm calls it.
    pub name: String,
    pub kubeconfig: &'a str,
    pub remote: &'a Remote,
    pub helm: &'a Helm,
}

impl Guest<'_> {
    pub fn access(&self) -> Access<'_> {
        Access {
            cluster: &self.name,
            kubeconfig: self.kubeconfig,
        }
    }

    async fn bring_chart(
        &self,
        engine: Engine,
        charts: &HelmCharts,
        release: &Release,
    ) -> Result<Settled, ChartError> {
        let keys = Keys {
            chart_name: &release.chart,
            chart_ref: &release.reference,
            chart_version: &release.version,
            namespace: &release.namespace,
            values: &release.values,
        };
        let of = |error: &HelmError| ChartError::of(&release.name, error);
        let wanted = Wanted::from_keys(release.prefix, keys).map_err(|error| of(&error.into()))?;
        match (engine, charts.of(&wanted.namespace, &wanted.name)) {
            (Engine::HelmChart, _) => self.bring_object(charts, &wanted).await,
            (Engine::Helm, Some(chart)) => self.take_back(chart).await.map(|()| Settled::NotYet),
            (Engine::Helm, None) => {
                let brought = self.helm.ensure(self.access(), &wanted).await;
                brought.map(|_| Settled::Yes).map_err(|error| of(&error))
            }
        }
    }

    /// An error from before an engine began shows with the release too.
    fn note_error(&self, release: &Release, error: &ChartError) {
        if error.is_busy() {
            return;
        }
        let target = self.place(&release.namespace, &release.name);
        let noted = Noted::Failed(error.reason, &error.message);
        let version = Some(release.version.clone());
        self.helm.noted(&target, version, noted, clock::now());
    }
}

impl Guests {
    /// How the charts stand of a guest that is to have some.
    pub(super) fn charts_of(&self, id: &str) -> Charts {
        // Without helm nobody looks after charts.
        if self.helm.is_none() {
            return Charts::Done;
        }
        self.chart_states
            .lock()
            .get(id)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) async fn reconcile_charts(self: Arc<Self>, key: Key) -> Next {
        let id = &*key.name;
        // Nothing is installed behind the back of who removes it.
        let turn = self.chart_turn(id);
        let _turn = turn.lock().await;
        let cluster = match self.data.clusters.seen(&key) {
            Some(Object::Good(cluster)) if cluster.is_guest() => cluster,
            Some(_) | None => {
                self.forget_charts(id);
                return Next::Done;
            }
        };
        let Some(helm) = &self.helm else {
            return Next::Done;
        };
        // One that does not answer must not keep a place of helm's from others. Its own turn says why, and comes here
        // again once it does.
        let answers = self
            .clients
            .of(&self.data, id, &cluster.display_name)
            .await
            .is_ok();
        let Some((kubeconfig, remote)) = self.clients.way(id).filter(|_| answers) else {
            return Next::Done;
        };
        let guest = Guest {
            id: id.to_owned(),
            name: helm_name(&self.site.name, id),
            kubeconfig: &kubeconfig,
            remote: &remote,
            helm,
        };
        let brought = self.bring_charts(&guest, &cluster).await;
        let next = Next::After(match &brought {
            Ok(Settled::Yes) => AGAIN,
            Ok(Settled::NotYet) => UNDER_WAY,
            Err(error) if error.is_busy() => UNDER_WAY,
            Err(_) => FAILED,
        });
        let now = Charts::of(brought);
        let before = (self.chart_states.lock()).insert(id.to_owned(), now.clone());
        if before.as_ref() != Some(&now) {
            // It says how the guest is doing.
            self.queue.add(key.clone());
        }
        next
    }

    fn chart_turn(&self, id: &str) -> Arc<Turn<()>> {
        Arc::clone(self.chart_turns.lock().entry(id.to_owned()).or_default())
    }

    /// Brings all of them as far as they go; every error is told.
    async fn bring_charts(
        &self,
        guest: &Guest<'_>,
        cluster: &RancherCluster,
    ) -> Result<Settled, ChartError> {
        let settings = self.settings_of(&guest.id);
        // The guest's own turn tells that.
        if settings.unknown {
            return Ok(Settled::Yes);
        }
        let typed = self.typed(&guest.id, cluster, guest.remote, &settings);
        let (cluster, _) = &typed
            .await
            .map_err(|error| ChartError::unreadable(&error))?;
        let releases = settings.releases(cluster.load_balancer);
        if releases.is_empty() {
            return Ok(Settled::Yes);
        }
        let engine = self.engine(cluster)?;
        let mut result = Ok(Settled::Yes);
        for release in releases {
            let charts = HelmCharts::list(guest.remote).await;
            let charts = charts.map_err(|error| ChartError::unreadable(&error))?;
            let ready = match release.serves {
                Some(_) => self.make_room(guest, &charts, &settings, cluster).await,
                None => Ok(()),
            };
            let brought = match ready {
                Ok(()) => guest.bring_chart(engine, &charts, &release).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &brought {
                guest.note_error(&release, error);
            }
            result = both(result, brought);
        }
        result
    }

    /// Two load balancers in one cluster would answer for the same addresses: one that fipd installed goes, another's
    /// keeps ours out.
    async fn make_room(
        &self,
        guest: &Guest<'_>,
        charts: &HelmCharts,
        settings: &Settings,
        cluster: &RancherCluster,
    ) -> Result<(), ChartError> {
        let wanted = cluster.load_balancer;
        let (namespace, name) = settings.other(wanted);
        let ours = lb_type::is_ours(guest.remote, charts, &namespace, &name).await;
        if ours.map_err(|error| ChartError::unreadable(&error))? {
            let still = self.still_typed(&guest.id, cluster).await;
            if !still.map_err(|error| ChartError::unconfirmed(&error))? {
                return Err(ChartError::changed());
            }
        }
        match guest.remove(charts, &namespace, &name).await? {
            None => Ok(()),
            Some(_) => Err(ChartError {
                reason: "OtherLoadBalancer",
                message: format!(
                    "the release {name:?} in namespace {namespace:?} was not installed by fipd: uninstall it, or set the cluster's label rancher-fip-lbtype to it"
                ),
            }),
        }
    }

    fn engine(&self, cluster: &RancherCluster) -> Result<Engine, ChartError> {
        match &cluster.engine {
            EngineWish::None => Ok(self.given().engine),
            EngineWish::Some(engine) => Ok(*engine),
            EngineWish::Unclear(said) => Err(ChartError {
                reason: "EngineInvalid",
                message: format!(
                    "annotation {CHART_ENGINE}: {said:?} is not known; allowed are \"helm\" and \"helm-chart\", or none for what the configuration says; no chart is touched until it is one of these"
                ),
            }),
        }
    }

    /// Uninstalls what fipd installed in a guest that is left; the releases that it only took over stay.
    pub(super) async fn remove_charts(
        &self,
        id: &str,
        remote: &Remote,
    ) -> Result<Vec<String>, ChartError> {
        let mut kept = Vec::new();
        let turn = self.chart_turn(id);
        let _turn = turn.lock().await;
        let (Some(helm), Some((kubeconfig, _))) = (&self.helm, self.clients.way(id)) else {
            return Ok(kept);
        };
        let guest = Guest {
            id: id.to_owned(),
            name: helm_name(&self.site.name, id),
            kubeconfig: &kubeconfig,
            remote,
            helm,
        };
        let charts = HelmCharts::list(remote).await;
        let charts = charts.map_err(|error| ChartError::unreadable(&error))?;
        for (namespace, name) in self.settings_of(id).all() {
            // Uninstalling the one before may have taken minutes.
            let off = self.is_off(id).await;
            if !off.map_err(|error| ChartError::unconfirmed(&error))? {
                return Err(ChartError::changed());
            }
            if guest.remove(&charts, &namespace, &name).await? == Some(Owner::Adopted) {
                kept.push(format!("{namespace}/{name}"));
            }
        }
        self.forget_charts(id);
        Ok(kept)
    }

    pub(super) fn forget_charts(&self, id: &str) {
        self.chart_states.lock().remove(id);
        if let Some(helm) = &self.helm {
            helm.forget(&helm_name(&self.site.name, id));
        }
    }
}

fn both(
    one: Result<Settled, ChartError>,
    other: Result<Settled, ChartError>,
) -> Result<Settled, ChartError> {
    match (one, other) {
        (Err(one), Err(other)) => Err(one.and(other)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Ok(Settled::Yes), Ok(Settled::Yes)) => Ok(Settled::Yes),
        (Ok(_), Ok(_)) => Ok(Settled::NotYet),
    }
}

/// Whose a release is; `None`: there is none.
pub(super) async fn owner(
    remote: &Remote,
    namespace: &str,
    name: &str,
) -> Result<Option<Owner>, CallError> {
    let revisions = revisions(remote, namespace, name).await?;
    Ok(newest_owner(&revisions))
}

/// The Secrets in which helm keeps a release.
pub(super) async fn revisions(
    remote: &Remote,
    namespace: &str,
    name: &str,
) -> Result<Vec<Value>, CallError> {
    let all = apply::core("secrets", namespace, "");
    remote.list(&all, &format!("owner=helm,name={name}")).await
}

fn label<'a>(secret: &'a Value, key: &str) -> Option<&'a str> {
    let labels = secret.get("metadata")?.get("labels")?;
    labels.get(key)?.as_str()
}

pub(super) fn newest(revisions: &[Value]) -> Option<&Value> {
    let revision = |secret: &&Value| label(secret, "version")?.parse::<u64>().ok();
    revisions.iter().max_by_key(revision)
}

fn newest_owner(revisions: &[Value]) -> Option<Owner> {
    let newest = newest(revisions)?;
    if label(newest, "status") == Some("uninstalled") {
        return None;
    }
    let ours = label(newest, OWNER_LABEL) == Some(OWNER);
    Some(match (ours, label(newest, ADOPTED)) {
        (true, None) => Owner::Fipd,
        (true, Some(_)) => Owner::Adopted,
        (false, _) => Owner::Other,
    })
}

#[cfg(test)]
mod tests {
    use fipd_core::System;
    use serde_json::json;

    use super::*;
    use crate::{
        clock,
        clusters::testing,
        config,
        controllers::{
            events::Events,
            rancher_fip::{Site, clusters::Switch, guests::Own, rancher::Data},
            remote::testing::canned,
        },
        guests::GuestBoard,
        ipam::Ipam,
    };

    #[test]
    fn the_newest_revision_says_whose_a_release_is() {
        let secret = |version: &str, status: &str, ours: bool| {
            let mut labels = json!({ "version": version, "status": status });
            if ours {
                labels[OWNER_LABEL] = json!(OWNER);
            }
            json!({ "metadata": { "labels": labels } })
        };
        assert_eq!(newest_owner(&[]), None);
        let adopted = [
            secret("9", "superseded", false),
            secret("10", "deployed", true),
        ];
        assert_eq!(newest_owner(&adopted), Some(Owner::Fipd));
        assert_eq!(newest_owner(&adopted[..1]), Some(Owner::Other));
        assert_eq!(newest_owner(&[secret("1", "uninstalled", false)]), None);
        let mut taken_over = secret("11", "deployed", true);
        taken_over["metadata"]["labels"][ADOPTED] = json!("true");
        assert_eq!(newest_owner(&[taken_over]), Some(Owner::Adopted));
    }

    #[test]
    fn every_release_that_failed_is_told() {
        let error = |reason, message: &str| {
            let message = message.to_owned();
            Err(ChartError { reason, message })
        };
        let (busy, failed) = (error("ReleaseBusy", "a"), error("UpgradeFailed", "b"));
        let told = both(busy.clone(), failed.clone()).unwrap_err();
        assert_eq!((told.reason, &*told.message), ("UpgradeFailed", "a; b"));
        let told = both(failed.clone(), error("InstallFailed", "c")).unwrap_err();
        assert_eq!((told.reason, &*told.message), ("UpgradeFailed", "b; c"));
        assert_eq!(both(Ok(Settled::NotYet), failed.clone()), failed);
        assert_eq!(both(failed.clone(), failed.clone()), failed);
        let some = both(Ok(Settled::NotYet), Ok(Settled::Yes));
        assert_eq!(Charts::of(some), Charts::UnderWay);
    }

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
            switch: Switch::On,
            ..RancherCluster::default()
        };
        data.clusters.set(&key, cluster);
        let quiet = || std::future::ready(());
        let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
        let helm = Helm::start(&config::Helm::default(), dir.path(), site.cancel());
        let (own, board) = (Own::default(), GuestBoard::default());
        let guests = Guests::new(site, data, Arc::new(events), own, board, Some(helm.clone()));
        let map = ["ChartName", "ChartRef", "ChartVersion"];
        let map = map.map(|key| (format!("RancherFipLBController{key}"), "x".to_owned()));
        let place = Key::new(guests.app_namespace(), "rancher-fip-config");
        guests.seen.maps.set(&place, map.into());
        let (dead, asked) = canned(&[("GET", 503, "down")]);
        guests.clients.know("c-1", "kube", dead);
        let next = Arc::clone(&guests).reconcile_charts(key).await;
        assert_eq!(guests.charts_of("c-1"), Charts::Unknown);
        assert_eq!(next, Next::Done, "its own turn comes back to it");
        assert_eq!((asked.lock().len(), helm.progress()), (1, vec![]));
    }

    async fn unused(
        _: http::Request<kube::client::Body>,
    ) -> Result<http::Response<kube::client::Body>, std::convert::Infallible> {
        std::future::pending().await
    }
}
