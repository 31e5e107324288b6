//! What adoption asks of Clusters.

use fipd_crds::cluster_api::Cluster;
use kube::{Resource as _, api::ListParams};

use super::VipController;
use crate::{
    clusters::{
        CallError as ClustersCallError,
        absence::Presence,
        adoption::{Sighting, complete_list},
        lenient::Lenient,
    },
    controller::{meta::Meta, store::Key},
};

impl VipController {
    /// Every Cluster that is there, from a complete list. What somebody else chose for it is reserved once its pools are
    /// known, so none shows an address here.
    pub async fn sightings(&self) -> Result<Vec<Sighting>, ClustersCallError> {
        let context = &self.context;
        let session = &context.site.session;
        match context.kind.served(&context.remote).await {
            Ok(Some(_)) => {}
            // A cluster without Clusters.
            Ok(None) => return Ok(Vec::new()),
            Err(error) => {
                let what = error.to_string();
                let source = kube::Error::Service(what.clone().into());
                return Err(ClustersCallError::Api { what, source });
            }
        }
        let api = context.kind().all_as::<Cluster>(session.client.clone());
        let keep = |cluster: Lenient<Cluster>| {
            let meta = Meta::of(cluster.meta());
            Some(Sighting {
                holder: context.holder(&Key::of(cluster.meta()), &meta.uid),
                tenant: None,
                uses: Vec::new(),
                since: meta.created,
            })
        };
        complete_list(session, &api, ListParams::default(), "list Clusters", keep).await
    }

    /// Whether the Cluster is there, by a fresh read.
    pub async fn presence(&self, key: &Key) -> Presence {
        let target = self.context.kind().target(key);
        self.context.remote.presence(&target).await
    }
}
