//! Guests that are switched off or gone, and namespaces that are left: what is removed there.

use std::collections::BTreeSet;

use fipd_crds::{
    labels::{
        CA_SECRET, DISABLED, ENABLED, INTERFACE_MAPPINGS, PROJECT_NAME, PROJECT_SECRET_PREFIX,
        RANCHER_FIP,
    },
    management::Cluster,
};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;

use super::{Guests, SYSTEM, Stop, notes::Note, plan::GuestWait, settings::Settings};
use crate::{
    controller::{
        client::{CallError, Remote},
        kind::{CONFIG_MAP, NAMESPACE, SECRET},
        owned,
        queue::Next,
        store::Key,
    },
    guests::{
        GuestPhase, GuestStatus, GuestUnready,
        charts::{InstalledReleases, ReleaseMark, release_names},
    },
    systems::rancher_fip::{
        clusters::{GuestMode, LoadBalancer, RancherCluster},
        kinds::CLUSTER,
    },
};

impl Guests {
    /// Rancher has no such cluster any more, and what was in it is gone with it. Its note goes once a fresh read, a minute
    /// later, finds none either.
    pub(super) async fn gone(&self, id: &str) -> Next {
        let key = id.to_owned();
        if self.noted(id).is_some() {
            match self.unlabelled.confirm(&key, self.fresh_cluster(id)).await {
                Ok(None) => {}
                Ok(Some(pause)) => return Next::After(pause),
                Err(error) => {
                    tracing::warn!(cluster = id, %error, "it is not known yet whether the cluster is gone; it is tried again");
                    return Next::Retry;
                }
            }
        }
        self.views.remove(&self.site.name, id, SYSTEM);
        self.charts.forget(id);
        self.charts.forget_uninstall(id);
        self.access.rest(id);
        self.data.homes.forget(id);
        self.unlabelled.forget(&key);
        self.untyped.forget(&key);
        if self.noted(id).is_none() {
            return Next::Done;
        }
        match self.change_note(id, |_| None).await {
            Ok(()) => Next::Done,
            Err(stop) => {
                let error = stop.text();
                tracing::warn!(
                    cluster = id,
                    error,
                    "the note of a cluster that is gone is not removed yet; it is tried again"
                );
                Next::Retry
            }
        }
    }

    /// The cluster is not to be looked after: what fipd made there goes. At once where somebody `said` so; a label that
    /// is only missing has to be missing twice.
    pub(super) async fn leave(&self, id: &str, cluster: &RancherCluster, said: bool) -> Next {
        let Some(note) = self.noted(id) else {
            let view = self.views.get(&self.site.name, id, SYSTEM);
            if view.is_some_and(|view| view.says.phase != GuestPhase::Left) {
                self.views.remove(&self.site.name, id, SYSTEM);
            }
            return Next::Done;
        };
        let pause = (!said).then(|| self.unlabelled.missing(&id.to_owned()));
        if let Some(pause) = pause.flatten() {
            let text = format!(
                "the label {RANCHER_FIP} is gone; what fipd made there is removed if it still is in a minute. {ENABLED:?} keeps it, {DISABLED:?} removes it at once"
            );
            self.say_leaving(id, cluster, "LabelGone", text);
            return Next::After(pause);
        }
        match self.try_leave(id, cluster, &note).await {
            Ok(kept) => {
                self.unlabelled.forget(&id.to_owned());
                tracing::info!(cluster = id, ?kept, "what fipd made there is removed");
                self.say_left(id, cluster, &kept);
                Next::Done
            }
            Err(stop) => {
                let why = stop.text();
                let next = match stop {
                    Stop::Wait(wait) => Next::After(wait.pause()),
                    Stop::Reconcile(trouble) => trouble.next("Cluster", &Key::new("", id)),
                };
                let text = format!(
                    "it is switched off, but what fipd made there is not removed yet: {why}"
                );
                self.say_leaving(id, cluster, "Leaving", text);
                next
            }
        }
    }

    fn say_leaving(&self, id: &str, cluster: &RancherCluster, reason: &'static str, text: String) {
        self.say(
            id,
            cluster,
            None,
            GuestStatus::new(GuestPhase::Leaving, reason, text),
        );
    }

    fn say_left(&self, id: &str, cluster: &RancherCluster, kept: &[String]) {
        if kept.is_empty() {
            self.views.remove(&self.site.name, id, SYSTEM);
            return;
        }
        let text = format!(
            "it is switched off; fipd did not install these releases, and they stay: {}. helm uninstall removes them, after their HelmChart where they have one",
            kept.join(", ")
        );
        let says = GuestStatus::new(GuestPhase::Left, "ReleasesStay", text);
        self.say(id, cluster, None, says);
    }

    /// The releases that stay.
    async fn try_leave(
        &self,
        id: &str,
        cluster: &RancherCluster,
        note: &Note,
    ) -> Result<Vec<String>, Stop> {
        if !self.is_off(id).await? {
            return Err(GuestWait::LabelChanged.into());
        }
        let remote = self.access.client(id, &cluster.display_name).await?;
        let ask = || self.chart_queue.add(Key::new("", id));
        let kept = self.charts.uninstalled(id, ask)?;
        // No chart is installed meanwhile.
        let turn = self.access.turn(id);
        let Ok(_turn) = turn.try_lock() else {
            return Err(GuestUnready::ChartsLeaving.into());
        };
        if !self.is_off(id).await? {
            return Err(GuestWait::LabelChanged.into());
        }
        for namespace in note.places() {
            clear(&remote, &namespace).await?;
        }
        self.access.rest(id);
        self.change_note(id, |_| None).await?;
        self.data.homes.forget(id);
        self.charts.forget_uninstall(id);
        Ok(kept)
    }

    /// The guest has everything where it is to be: what is in the namespaces before goes, but for those where a controller
    /// stays that nobody names any more.
    pub(super) async fn arrive(
        &self,
        id: &str,
        remote: &Remote,
        settings: &Settings,
    ) -> Result<(), Stop> {
        let Some(note) = self.noted(id).filter(|note| !note.before.is_empty()) else {
            return Ok(());
        };
        let marks = InstalledReleases::read(remote, SYSTEM).await?.marks;
        let used = controllers(&marks, |name| settings.serves(name));
        let mut left = BTreeSet::new();
        for namespace in note.before.iter().filter(|one| !used.contains(&***one)) {
            // One that fipd did not install has no mark.
            let names = release_names(remote, namespace).await?;
            if !names.iter().any(|name| settings.is_controller(name)) {
                left.insert(namespace.clone());
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        for namespace in &left {
            clear(remote, namespace).await?;
            let (from, to) = (namespace, &note.namespace);
            tracing::info!(cluster = id, from, to, "what fipd made there is moved");
        }
        let left = |now: Option<Note>| now.map(|now| now.left(&left));
        self.change_note(id, left).await
    }

    /// Whether a fresh read says so too.
    pub(super) async fn is_off(&self, id: &str) -> Result<bool, CallError> {
        let found = self.fresh_cluster(id).await?;
        Ok(found.is_some_and(|found| matches!(found.mode(), GuestMode::Off | GuestMode::Silent)))
    }

    pub(super) async fn fresh_cluster(
        &self,
        id: &str,
    ) -> Result<Option<RancherCluster>, CallError> {
        let target = CLUSTER.named("", id);
        let found = self.data.remote.get::<Cluster>(&target).await?;
        Ok(found.map(RancherCluster::view))
    }
}

/// The namespaces in which a controller is.
pub(super) fn controllers(
    marks: &[ReleaseMark],
    serves: impl Fn(&str) -> Option<LoadBalancer>,
) -> BTreeSet<&str> {
    let controllers = marks.iter().filter(|mark| serves(&mark.name).is_none());
    controllers.map(|mark| &*mark.namespace).collect()
}

/// Removes what carries fipd's mark in the namespace of a guest.
async fn clear(remote: &Remote, namespace: &str) -> Result<(), CallError> {
    let all = SECRET.all_in(namespace);
    let secrets = remote.list(&all, &owned::selector()).await?;
    for (Key { name, .. }, uid) in secrets.iter().filter_map(owned::identify) {
        if *name == *CA_SECRET || name.starts_with(PROJECT_SECRET_PREFIX) {
            remote.delete(&SECRET.named(namespace, &name), &uid).await?;
        }
    }
    let target = CONFIG_MAP.named(namespace, INTERFACE_MAPPINGS);
    owned::delete_if(remote, &target, owned::is_marked).await?;
    let target = NAMESPACE.named("", namespace);
    if let Some(found) = remote.get::<Namespace>(&target).await?
        && owned::is_ours(&found.metadata)
    {
        let change = json!({ "metadata": { "labels": { PROJECT_NAME: null } } });
        owned::put(remote, &target, &found.metadata, change).await?;
    }
    Ok(())
}
