//! What is kept of a cluster that Rancher manages, whichever system asks.

use fipd_crds::{
    labels::{CHART_ENGINE, HARVESTER, LOCAL_CLUSTER, PROVIDER},
    management::Cluster,
};

use super::charts::ChartError;
use crate::{config::ChartEngine, controller::kind::Kind};

/// Rancher's own of a cluster.
pub const CLUSTER: Kind = Kind::cluster("apis/management.cattle.io/v3", "clusters", "Cluster");
/// Rancher's own of how a cluster was made.
pub const PROVISIONED_CLUSTER: Kind =
    Kind::namespaced("apis/provisioning.cattle.io/v1", "clusters", "Cluster");

/// A `management.cattle.io` Cluster, as far as it matters to every system. One that reads more of it derefs to this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedCluster {
    pub uid: String,
    /// It is being deleted.
    pub ending: bool,
    pub display_name: String,
    /// A Harvester cluster: served through its guests.
    pub harvester: bool,
    /// Rancher's own cluster.
    pub local: bool,
    /// What its annotation says of what installs its charts; without it the configuration counts.
    pub engine: ClusterMark<ChartEngine>,
}

/// What a label or annotation of a cluster says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterMark<T> {
    /// It is not there.
    #[default]
    Silent,
    Known(T),
    /// None of the values that mean something.
    Unclear(String),
}

impl ManagedCluster {
    pub fn view(object: &Cluster) -> Self {
        let meta = &object.metadata;
        let provider = meta.labels.as_ref().and_then(|all| all.get(PROVIDER));
        let annotations = meta.annotations.as_ref();
        let engines = [ChartEngine::Helm, ChartEngine::HelmChart].map(|one| (one.as_str(), one));
        let engine = annotations.and_then(|all| all.get(CHART_ENGINE));
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            ending: meta.deletion_timestamp.is_some(),
            display_name: object.spec.display_name.clone(),
            harvester: provider.is_some_and(|provider| provider == HARVESTER),
            local: meta.name.as_deref() == Some(LOCAL_CLUSTER),
            engine: ClusterMark::read(engine, engines),
        }
    }

    /// What brings its charts; `configured` is what holds without an annotation.
    pub fn engine_or(&self, configured: ChartEngine) -> Result<ChartEngine, ChartError> {
        match &self.engine {
            ClusterMark::Silent => Ok(configured),
            ClusterMark::Known(engine) => Ok(*engine),
            ClusterMark::Unclear(said) => Err(ChartError::new(
                "EngineInvalid",
                format!(
                    "annotation {CHART_ENGINE}: {said:?} is not known; allowed are \"helm\" and \"helm-chart\", or none for what the configuration says; no chart is touched until it is one of these"
                ),
            )),
        }
    }
}

impl AsRef<Self> for ManagedCluster {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<T> ClusterMark<T> {
    pub fn read(said: Option<&String>, known: impl IntoIterator<Item = (&'static str, T)>) -> Self {
        let Some(said) = said else {
            return Self::Silent;
        };
        let mut known = known.into_iter();
        match known.find(|(value, _)| value == said) {
            Some((_, meaning)) => Self::Known(meaning),
            None => Self::Unclear(said.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_engine_is_read_strictly() {
        let engine = |annotations: serde_json::Value| {
            let object = json!({
                "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
                "metadata": { "name": "c-1", "annotations": annotations },
            });
            let cluster = ManagedCluster::view(&serde_json::from_value(object).unwrap());
            let engine = cluster.engine_or(ChartEngine::HelmChart);
            engine.map_err(|error| error.reason)
        };
        let said = |said: &str| engine(json!({ "fipd.io/chart-engine": said }));
        assert_eq!(said("helm"), Ok(ChartEngine::Helm));
        assert_eq!(said("helm-chart"), Ok(ChartEngine::HelmChart));
        assert_eq!(said("HelmChart"), Err("EngineInvalid"));
        assert_eq!(engine(json!({})), Ok(ChartEngine::HelmChart));
    }
}
