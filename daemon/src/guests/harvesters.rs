//! The ways to the Harvester clusters of a Rancher.

use std::{fmt::Debug, sync::Arc};

use fipd_core::Text;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Stop, access::GuestAccess, clusters::ManagedCluster};
use crate::{
    clusters::ClusterSession,
    controller::{
        attachments::{HarvesterAccess, HarvesterWay},
        store::{Key, Objects},
    },
};

/// A cluster that fipd serves is reached by its own kubeconfig, any other by the Secret that Rancher keeps.
pub struct Harvesters<C> {
    pub session: ClusterSession,
    /// By Rancher's id of the cluster.
    pub clusters: Arc<Objects<C>>,
    pub access: Arc<GuestAccess>,
}

impl<C: AsRef<ManagedCluster> + PartialEq + Debug> Harvesters<C> {
    fn is_harvester(&self, id: &str) -> bool {
        let known = self.clusters.get(&Key::new("", id));
        known.is_some_and(|one| (*one).as_ref().harvester)
    }

    fn served(&self, id: &str, display: &str) -> Option<HarvesterWay> {
        let called = |name: &str| self.session.clusters.session(name);
        let session = called(id).or_else(|| called(display))?;
        Some(HarvesterWay {
            client: session.client,
            kubeconfig: "".into(),
            over: session.cancel,
        })
    }
}

impl<C> HarvesterAccess for Harvesters<C>
where
    C: AsRef<ManagedCluster> + PartialEq + Debug + Send + Sync,
{
    fn find(&self, cluster: &str) -> Result<Option<Text>, String> {
        let names = &self.access.names;
        if let Some(id) = names.called(&[cluster.into()]) {
            return Ok(self.is_harvester(&id).then(|| id.into()));
        }
        match names
            .displayed(cluster)
            .iter()
            .any(|id| self.is_harvester(id))
        {
            true => Err("several clusters of Rancher have this display name".to_owned()),
            false => Ok(None),
        }
    }

    fn way<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<HarvesterWay, String>> {
        Box::pin(async move {
            let found = self.clusters.get(&Key::new("", id));
            let display =
                found.map_or_else(String::new, |one| (*one).as_ref().display_name.clone());
            if let Some(way) = self.served(id, &display) {
                return Ok(way);
            }
            let (kubeconfig, remote) = match self.access.link(id, &display).await {
                Ok(link) => link,
                Err(Stop::Wait(why)) => return Err(why.to_string()),
                Err(Stop::Reconcile(error)) => return Err(error.to_string()),
            };
            Ok(HarvesterWay {
                client: remote.client(),
                kubeconfig,
                over: CancellationToken::new(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::{Client, client::Body};

    use super::*;
    use crate::{clock, clusters::testing, guests::GuestBoard, ipam::Ipam};

    async fn silent(_: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
        std::future::pending().await
    }

    #[tokio::test]
    async fn only_harvester_clusters_are_found_and_two_of_one_name_are_neither() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let client = Client::new(tower::service_fn(silent), "default");
        let session = testing::session(client.clone(), &ipam).await;
        let harvesters = Harvesters {
            clusters: Objects::new(),
            access: Arc::new(GuestAccess::new(
                &session,
                &GuestBoard::default(),
                Arc::default(),
                false,
            )),
            session,
        };
        for (id, display_name, harvester) in [
            ("c-1", "hv", true),
            ("c-2", "guest", false),
            ("c-3", "twice", false),
            ("c-4", "twice", true),
            ("c-5", "guests", false),
            ("c-6", "guests", false),
        ] {
            let cluster = ManagedCluster {
                display_name: display_name.to_owned(),
                harvester,
                ..ManagedCluster::default()
            };
            let names = &harvesters.access.names;
            names.note(&id.into(), Some(display_name));
            harvesters.clusters.set(&Key::new("", id), cluster);
        }
        let found = |name| harvesters.find(name);
        assert_eq!(found("hv"), Ok(Some("c-1".into())));
        assert_eq!(found("c-1"), Ok(Some("c-1".into())));
        assert_eq!(found("c-4"), Ok(Some("c-4".into())));
        for other in ["guest", "c-2", "guests", "nobody", ""] {
            assert_eq!(found(other), Ok(None), "{other}");
        }
        assert!(found("twice").is_err());
    }
}
