//! Charts in guests: whose a release is, and how either engine brings or removes it.

pub mod error;
pub mod helm_chart;
pub mod marks;

use self::{
    error::ChartError,
    helm_chart::{HelmCharts, Settled},
};
use crate::{
    clock,
    config::Engine,
    controller::client::Remote,
    helm::{Access, Helm, Noted, Release as Wanted},
};

/// The way to a guest.
pub struct Guest<'a> {
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

    pub async fn bring_chart(
        &self,
        engine: Engine,
        charts: &HelmCharts,
        wanted: &Wanted,
        begins: &(dyn Fn() + Sync),
    ) -> Result<Settled, ChartError> {
        match (engine, charts.of(&wanted.namespace, &wanted.name)) {
            (Engine::HelmChart, _) => self.bring_object(charts, wanted).await,
            (Engine::Helm, Some(chart)) => self.take_back(chart).await.map(|()| Settled::NotYet),
            (Engine::Helm, None) => {
                let brought = self.helm.ensure_telling(self.access(), wanted, begins);
                brought
                    .await
                    .map(|_| Settled::Yes)
                    .map_err(|error| ChartError::of(&wanted.name, &error))
            }
        }
    }

    /// An error from before an engine began shows with the release too.
    pub fn note_error(&self, (namespace, name): (&str, &str), version: &str, error: &ChartError) {
        if error.is_busy() {
            return;
        }
        let target = self.place(namespace, name);
        let noted = Noted::Failed(error.reason, &error.message);
        let version = Some(version.to_owned());
        self.helm.noted(&target, version, noted, clock::now());
    }
}
