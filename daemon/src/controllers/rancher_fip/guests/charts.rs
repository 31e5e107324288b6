//! The charts of a guest: the controller that asks for addresses, and the load balancer that answers for them.
//!
//! They have a queue of their own: what helm takes minutes for keeps no Secret waiting.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::Mutex as Turn;

use super::{
    AGAIN, Guests, apply,
    settings::{Release, Settings},
    status::{Phase, Says},
};
use crate::{
    controllers::{
        objects::{Key, Seen as Object},
        queue::Next,
        rancher_fip::clusters::{LoadBalancer, RancherCluster},
        remote::{CallError, Remote},
    },
    helm::{Access, Helm, HelmError, Keys, OWNER, OWNER_LABEL, Release as Wanted},
};

/// After this time a chart that failed is asked for again; helm's own pauses are longer.
const FAILED: Duration = Duration::from_secs(30);

/// Why the charts of a guest are not as they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChartError {
    pub reason: &'static str,
    pub message: String,
}

impl ChartError {
    fn of(release: &str, error: &HelmError) -> Self {
        Self {
            reason: error.reason(),
            message: format!("chart {release:?}: {error}"),
        }
    }

    fn unreadable(error: &CallError) -> Self {
        Self {
            reason: "ReleasesUnreadable",
            message: format!("the releases in the cluster cannot be listed: {error}"),
        }
    }

    pub fn says(&self) -> Says {
        Says::new(Phase::Failed, self.reason, self.message.clone())
    }
}

/// Whose a release is, as the Secrets say in which helm keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Fipd,
    Other,
}

/// The way to a guest.
struct Guest<'a> {
    /// What helm calls it.
    name: String,
    kubeconfig: &'a str,
    remote: &'a Remote,
    helm: &'a Helm,
}

impl Guest<'_> {
    fn access(&self) -> Access<'_> {
        Access {
            cluster: &self.name,
            kubeconfig: self.kubeconfig,
        }
    }

    async fn bring_chart(&self, release: &Release) -> Result<(), ChartError> {
        let keys = Keys {
            chart_name: &release.chart,
            chart_ref: &release.reference,
            chart_version: &release.version,
            namespace: &release.namespace,
            values: &release.values,
        };
        let brought = match Wanted::from_keys(release.prefix, keys) {
            Ok(wanted) => self.helm.ensure(self.access(), &wanted).await.map(drop),
            Err(error) => Err(error.into()),
        };
        brought.map_err(|error| ChartError::of(&release.name, &error))
    }

    /// Two load balancers in one cluster would answer for the same addresses: one that fipd installed goes, another's
    /// keeps ours out.
    async fn make_room(&self, settings: &Settings, wanted: LoadBalancer) -> Result<(), ChartError> {
        let (namespace, name) = settings.other(wanted);
        let owner = owner(self.remote, &namespace, &name).await;
        match owner.map_err(|error| ChartError::unreadable(&error))? {
            None => Ok(()),
            Some(Owner::Fipd) => {
                let gone = self.helm.uninstall(self.access(), &namespace, &name).await;
                gone.map(drop)
                    .map_err(|error| ChartError::of(&name, &error))
            }
            Some(Owner::Other) => Err(ChartError {
                reason: "OtherLoadBalancer",
                message: format!(
                    "the release {name:?} in namespace {namespace:?} was not installed by fipd: uninstall it, or set the cluster's label rancher-fip-lbtype to it"
                ),
            }),
        }
    }
}

impl Guests {
    pub(super) fn chart_error(&self, id: &str) -> Option<ChartError> {
        self.chart_errors.lock().get(id).cloned()
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
        // The guest's own turn comes here again once there is a way to it.
        let Some((kubeconfig, remote)) = self.clients.way(id) else {
            return Next::Done;
        };
        let guest = Guest {
            name: helm_name(&self.site.name, id),
            kubeconfig: &kubeconfig,
            remote: &remote,
            helm,
        };
        let error = self.bring_charts(&guest, &cluster).await.err();
        let next = Next::After(error.as_ref().map_or(AGAIN, |_| FAILED));
        let before = {
            let mut errors = self.chart_errors.lock();
            let before = errors.remove(id);
            errors.extend(error.clone().map(|error| (id.to_owned(), error)));
            before
        };
        if before != error {
            // It says how the guest is doing.
            self.queue.add(key.clone());
        }
        next
    }

    fn chart_turn(&self, id: &str) -> Arc<Turn<()>> {
        Arc::clone(self.chart_turns.lock().entry(id.to_owned()).or_default())
    }

    /// Brings all of them as far as they go; the first error is told.
    async fn bring_charts(
        &self,
        guest: &Guest<'_>,
        cluster: &RancherCluster,
    ) -> Result<(), ChartError> {
        let settings = self.settings();
        let mut result = Ok(());
        for release in settings.releases(cluster.load_balancer) {
            let ready = match release.serves {
                Some(load_balancer) => guest.make_room(&settings, load_balancer).await,
                None => Ok(()),
            };
            let brought = match ready {
                Ok(()) => guest.bring_chart(&release).await,
                Err(error) => Err(error),
            };
            result = result.and(brought);
        }
        result
    }

    /// Uninstalls what carries fipd's label, of a guest that is left.
    pub(super) async fn remove_charts(&self, id: &str, remote: &Remote) -> Result<(), ChartError> {
        let turn = self.chart_turn(id);
        let _turn = turn.lock().await;
        let (Some(helm), Some((kubeconfig, _))) = (&self.helm, self.clients.way(id)) else {
            return Ok(());
        };
        let guest = Guest {
            name: helm_name(&self.site.name, id),
            kubeconfig: &kubeconfig,
            remote,
            helm,
        };
        for (namespace, name) in self.settings().all() {
            let owner = owner(guest.remote, &namespace, &name).await;
            let owner = owner.map_err(|error| ChartError::unreadable(&error))?;
            if owner == Some(Owner::Fipd) {
                let gone = guest
                    .helm
                    .uninstall(guest.access(), &namespace, &name)
                    .await;
                gone.map_err(|error| ChartError::of(&name, &error))?;
            }
        }
        self.forget_charts(id);
        Ok(())
    }

    pub(super) fn forget_charts(&self, id: &str) {
        self.chart_errors.lock().remove(id);
        if let Some(helm) = &self.helm {
            helm.forget(&helm_name(&self.site.name, id));
        }
    }
}

/// What helm calls a guest.
pub fn helm_name(rancher: &str, id: &str) -> String {
    format!("{rancher}/{id}")
}

/// Whose a release is; `None`: there is none.
async fn owner(remote: &Remote, namespace: &str, name: &str) -> Result<Option<Owner>, CallError> {
    let all = apply::core("secrets", namespace, "");
    let revisions = remote
        .list(&all, &format!("owner=helm,name={name}"))
        .await?;
    Ok(newest_owner(&revisions))
}

fn newest_owner(revisions: &[Value]) -> Option<Owner> {
    let label = |secret: &Value, key: &str| {
        let labels = secret.get("metadata")?.get("labels")?;
        labels.get(key)?.as_str().map(str::to_owned)
    };
    let revision =
        |secret: &&Value| label(secret, "version").and_then(|text| text.parse::<u64>().ok());
    let newest = revisions.iter().max_by_key(revision)?;
    if label(newest, "status").as_deref() == Some("uninstalled") {
        return None;
    }
    let ours = label(newest, OWNER_LABEL).as_deref() == Some(OWNER);
    Some(if ours { Owner::Fipd } else { Owner::Other })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
    }
}
