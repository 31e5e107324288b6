//! The charts of a guest: the controller that asks for addresses, and the load balancer that answers for them.
//!
//! They have a queue of their own: what helm takes minutes for keeps no Secret waiting.

use std::{sync::Arc, time::Duration};

use fipd_crds::labels::CHART_ENGINE;
use tokio::sync::Mutex as Turn;

use super::{
    AGAIN, Guests,
    moves::{self, Step},
    settings::{Release, Settings},
};
use crate::guests::charts::{
    Guest,
    error::{ChartError, both},
    helm_chart::Settled,
    marks::{Found, Owner},
};
use crate::{
    config::Engine,
    controller::{
        queue::Next,
        store::{Key, Observed as Object},
    },
    guests::helm_name,
    helm::{Keys, Release as Wanted},
    systems::rancher_fip::clusters::{EngineWish, RancherCluster},
};

/// After this time a chart that failed is asked for again; helm's own pauses are longer.
pub(super) const FAILED: Duration = Duration::from_secs(30);

/// After this time it is looked how far helm-controller is.
pub(super) const UNDER_WAY: Duration = Duration::from_secs(5);

/// How the charts of a guest stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Charts {
    /// Nobody looked yet.
    #[default]
    Unknown,
    /// What goes on, where it is known.
    UnderWay(String),
    Failed(ChartError),
    Done,
}

impl Charts {
    fn of(brought: Result<Settled, ChartError>) -> Self {
        match brought {
            Ok(Settled::Yes) => Self::Done,
            Ok(Settled::NotYet) => Self::UnderWay(String::new()),
            Err(error) if error.is_busy() => Self::UnderWay(error.message),
            Err(error) => Self::Failed(error),
        }
    }
}

/// How they stand, and which ones that is about; `None`: whatever is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChartState {
    wanted: Option<Vec<Release>>,
    charts: Charts,
}

/// One look at what the charts of a guest are to be.
struct Look<'a> {
    guest: &'a Guest<'a>,
    cluster: &'a RancherCluster,
    settings: &'a Settings,
    found: &'a Found,
}

impl Guests {
    /// How the charts stand of a guest that is to have these.
    pub(super) fn charts_of(&self, id: &str, wanted: &[Release]) -> Charts {
        // Without helm nobody looks after charts.
        if self.helm.is_none() || wanted.is_empty() {
            return Charts::Done;
        }
        let states = self.chart_states.lock();
        let Some(state) = states.get(id) else {
            return Charts::Unknown;
        };
        match &state.wanted {
            Some(others) if others != wanted => Charts::Unknown,
            // Where none was named, none was looked at.
            None if state.charts == Charts::Done => Charts::Unknown,
            Some(_) | None => state.charts.clone(),
        }
    }

    pub(super) async fn reconcile_charts(self: Arc<Self>, key: Key) -> Next {
        let id = &*key.name;
        let turn = self.chart_turn(id);
        // Nothing is installed behind the back of who leaves the guest.
        let holds = turn.lock().await;
        let (next, news) = match self.data.clusters.seen(&key) {
            Some(Object::Parsed(cluster)) if cluster.is_guest() => {
                self.look_after_charts(id, &cluster).await
            }
            Some(_) | None => self.uninstall_charts(&key).await,
        };
        drop(holds);
        if news {
            // It says how the guest is doing.
            self.queue.add(key.clone());
        }
        next
    }

    pub(super) fn chart_turn(&self, id: &str) -> Arc<Turn<()>> {
        Arc::clone(self.chart_turns.lock().entry(id.to_owned()).or_default())
    }

    /// When to look again, and whether there is something to be told.
    async fn look_after_charts(&self, id: &str, cluster: &RancherCluster) -> (Next, bool) {
        self.forget_removal(id);
        let Some(helm) = &self.helm else {
            return (Next::Done, false);
        };
        // One that does not answer must not keep a place of helm's from others. Its own turn says why, and comes here
        // again once it does.
        let answers = self
            .clients
            .of(&self.data, id, &cluster.display_name)
            .await
            .is_ok();
        let Some((kubeconfig, remote)) = self.clients.way(id).filter(|_| answers) else {
            helm.out_of_sight(&helm_name(&self.site.name, id));
            return (Next::Done, false);
        };
        let guest = Guest {
            id: id.to_owned(),
            name: helm_name(&self.site.name, id),
            kubeconfig: &kubeconfig,
            remote: &remote,
            helm,
        };
        let (wanted, brought) = self.bring_charts(&guest, cluster).await;
        let pause = match &brought {
            Ok(Settled::Yes) => AGAIN,
            Ok(Settled::NotYet) => UNDER_WAY,
            Err(error) if error.is_busy() => UNDER_WAY,
            Err(_) => FAILED,
        };
        let now = ChartState {
            wanted,
            charts: Charts::of(brought),
        };
        let before = (self.chart_states.lock()).insert(id.to_owned(), now.clone());
        (Next::After(pause), before.as_ref() != Some(&now))
    }

    /// Which ones are wanted, and what became of them.
    async fn bring_charts(
        &self,
        guest: &Guest<'_>,
        cluster: &RancherCluster,
    ) -> (Option<Vec<Release>>, Result<Settled, ChartError>) {
        let settings = self.settings_of(&guest.id);
        // The guest's own turn tells that.
        if settings.unknown || settings.names_no_chart() {
            return (None, Ok(Settled::Yes));
        }
        let found = match Found::read(guest.remote).await {
            Ok(found) => found,
            Err(error) => return (None, Err(ChartError::unreadable(&error))),
        };
        let typed = self.typed(&guest.id, cluster, &settings, &found.marks);
        let cluster = match typed.await {
            Ok((cluster, _)) => cluster,
            Err(error) => return (None, Err(ChartError::unconfirmed(&error))),
        };
        let wanted = settings.releases(cluster.load_balancer);
        self.begin_charts(&guest.id, &wanted);
        let look = Look {
            guest,
            cluster: &cluster,
            settings: &settings,
            found: &found,
        };
        let brought = self.bring_all(&look, &wanted).await;
        (Some(wanted), brought)
    }

    /// What was said of others counts no longer, were it that these come back before the turn ends.
    fn begin_charts(&self, id: &str, wanted: &[Release]) {
        let mut states = self.chart_states.lock();
        let state = states.get(id).and_then(|state| state.wanted.as_deref());
        if state != Some(wanted) {
            let state = ChartState {
                wanted: Some(wanted.to_vec()),
                charts: Charts::Unknown,
            };
            states.insert(id.to_owned(), state);
        }
    }

    /// A guest whose charts were there is not ready while one of them is mended.
    fn chart_changes(&self, id: &str) {
        if let Some(state) = self.chart_states.lock().get_mut(id)
            && state.charts == Charts::Done
        {
            state.charts = Charts::UnderWay(String::new());
            self.queue.add(Key::new("", id));
        }
    }

    /// Brings all of them as far as they go; every error is told.
    async fn bring_all(&self, look: &Look<'_>, wanted: &[Release]) -> Result<Settled, ChartError> {
        let engine = self.engine(look.cluster)?;
        let serves = |name: &str| look.settings.serves(name);
        let mut result = Ok(Settled::Yes);
        for step in moves::steps(wanted, &look.found.marks, serves) {
            let brought = self.take(&step, engine, look).await;
            if let Err(error) = &brought {
                let Release {
                    namespace,
                    name,
                    version,
                    ..
                } = step.brings;
                look.guest.note_error((namespace, name), version, error);
            }
            result = both(result, brought);
        }
        result
    }

    async fn take(
        &self,
        step: &Step<'_>,
        engine: Engine,
        look: &Look<'_>,
    ) -> Result<Settled, ChartError> {
        let (guest, release) = (look.guest, step.brings);
        let keys = Keys {
            chart_name: &release.chart,
            chart_ref: &release.reference,
            chart_version: &release.version,
            namespace: &release.namespace,
            values: &release.values,
        };
        let wanted = Wanted::from_keys(release.prefix, keys)
            .map_err(|error| ChartError::of(&release.name, &error.into()))?;
        self.check_room(step, look).await?;
        if !step.removes.is_empty() {
            self.check_removal(engine, &wanted, look).await?;
        }
        for mark in &step.removes {
            // Uninstalling the one before may have taken minutes.
            self.check_still(look).await?;
            let (namespace, name) = (&mark.namespace, &mark.name);
            let stays = guest.remove(&look.found.charts, namespace, name).await?;
            if stays.is_some() {
                return Err(ChartError::elsewhere(mark, &release.name));
            }
            tracing::info!(
                cluster = guest.id,
                namespace,
                name,
                "uninstalled a release that the settings or the labels do not ask for"
            );
        }
        let begins = || self.chart_changes(&guest.id);
        guest
            .bring_chart(engine, &look.found.charts, &wanted, &begins)
            .await
    }

    /// Two load balancers in one cluster would answer for the same addresses, and two controllers for the same Services:
    /// another's keeps ours out.
    async fn check_room(&self, step: &Step<'_>, look: &Look<'_>) -> Result<(), ChartError> {
        let release = step.brings;
        let serves = |name: &str| look.settings.serves(name);
        if let Some(mark) = step.kept_out_by.first() {
            return Err(match serves(&mark.name) == release.serves {
                true => ChartError::elsewhere(mark, &release.name),
                false => ChartError::other_load_balancer(&mark.namespace, &mark.name),
            });
        }
        let Some(load_balancer) = release.serves else {
            return Ok(());
        };
        let (namespace, name) = look.settings.other(load_balancer);
        // What stands where the guest moves from is in the way as well, noted or not yet.
        let mut places = self.places_of(&look.guest.id);
        places.insert(namespace);
        for namespace in places {
            let owner = look.found.owner(look.guest.remote, &namespace, &name).await;
            match owner.map_err(|error| ChartError::unreadable(&error))? {
                Some(Owner::Adopted | Owner::Other) => {
                    return Err(ChartError::other_load_balancer(&namespace, &name));
                }
                Some(Owner::Fipd) | None => {}
            }
        }
        Ok(())
    }

    /// Whether a release may be removed for others of these settings, which were read a while ago: they hold still, and
    /// what the next one needs is where it will be.
    pub(super) fn may_remove(&self, id: &str, settings: &Settings) -> Result<(), ChartError> {
        if self.settings_of(id) != *settings {
            return Err(ChartError::other_settings());
        }
        match self.prepared.lock().get(id) == Some(&settings.namespace) {
            true => Ok(()),
            false => Err(ChartError::unprepared(&settings.namespace)),
        }
    }

    /// Nothing is removed on an old look.
    async fn check_still(&self, look: &Look<'_>) -> Result<(), ChartError> {
        self.may_remove(&look.guest.id, look.settings)?;
        let still = self.still_typed(&look.guest.id, look.cluster).await;
        if !still.map_err(|error| ChartError::unconfirmed(&error))? {
            return Err(ChartError::changed());
        }
        let still = self.still_said().await;
        if !still.map_err(|error| ChartError::unconfirmed(&error))? {
            return Err(ChartError::other_settings());
        }
        Ok(())
    }

    /// Nothing is removed for a chart that is nowhere to be had, or cannot be brought.
    async fn check_removal(
        &self,
        engine: Engine,
        wanted: &Wanted,
        look: &Look<'_>,
    ) -> Result<(), ChartError> {
        look.guest.check_release(wanted).await?;
        match engine {
            Engine::Helm => {
                look.found.charts.check_foreign(wanted)?;
                let there = look.guest.helm.check_chart(&wanted.chart).await;
                there.map_err(|error| ChartError::of(&wanted.name, &error))
            }
            // Only the cluster has to reach it.
            Engine::HelmChart => look.found.charts.check(wanted),
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

    pub(super) fn forget_charts(&self, id: &str) {
        self.chart_states.lock().remove(id);
        self.prepared.lock().remove(id);
        // One that is in use stays, or there could be two.
        let mut turns = self.chart_turns.lock();
        turns.retain(|of, turn| of != id || Arc::strong_count(turn) > 1);
        drop(turns);
        if let Some(helm) = &self.helm {
            helm.forget(&helm_name(&self.site.name, id));
        }
    }
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
        guests::GuestBoard,
        helm::Helm,
        ipam::Ipam,
        systems::rancher_fip::{
            Site,
            clusters::{LoadBalancer, Switch},
            guests::Own,
            rancher::Data,
        },
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
        let wanted = guests.settings().releases(LoadBalancer::PureLb);
        assert_eq!(guests.charts_of("c-1", &wanted), Charts::Unknown);
        assert_eq!(next, Next::Done, "its own turn comes back to it");
        assert_eq!((asked.lock().len(), helm.progress()), (1, vec![]));

        let none = ChartState {
            wanted: None,
            charts: Charts::Done,
        };
        guests.chart_states.lock().insert("c-1".to_owned(), none);
        assert_eq!(guests.charts_of("c-1", &[]), Charts::Done);
        assert_eq!(guests.charts_of("c-1", &wanted), Charts::Unknown);
        let done = ChartState {
            wanted: Some(wanted.clone()),
            charts: Charts::Done,
        };
        guests.chart_states.lock().insert("c-1".to_owned(), done);
        assert_eq!(guests.charts_of("c-1", &wanted), Charts::Done);
        let mut upgraded = wanted.clone();
        for release in &mut upgraded {
            release.version = "2.0.0".to_owned();
        }
        let charts = guests.charts_of("c-1", &upgraded);
        assert_eq!(
            charts,
            Charts::Unknown,
            "it is not ready before the upgrade"
        );
    }

    async fn unused(
        _: http::Request<kube::client::Body>,
    ) -> Result<http::Response<kube::client::Body>, std::convert::Infallible> {
        std::future::pending().await
    }
}
