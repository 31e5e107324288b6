//! The clusters of Rancher, and the networks of those that are Harvester clusters.

use std::sync::Arc;

use fipd_crds::management::Cluster;
use tokio::task::JoinSet;

use super::settings::KubeFipSettings;
use crate::{
    controller::{
        attachments::Attachments,
        site::Site,
        store::{Key, Objects},
        tasks::{listed, spawn},
    },
    guests::{access::GuestAccess, clusters::ManagedCluster, harvesters::Harvesters},
    system::Means,
};

/// What a session knows of the clusters that Rancher manages.
pub struct RancherClusters {
    /// By Rancher's id.
    pub clusters: Arc<Objects<ManagedCluster>>,
    /// The way to them.
    pub access: Arc<GuestAccess>,
    /// The networks that ranges name.
    pub attachments: Arc<Attachments>,
}

impl RancherClusters {
    pub fn new(site: &Site, means: &Means) -> Self {
        let clusters = Objects::new();
        let settings = site.settings::<KubeFipSettings>();
        let (session, insecure) = (&site.session, settings.insecure_skip_tls_verify);
        let access = GuestAccess::new(session, &means.guests, Arc::default(), insecure);
        let access = Arc::new(access);
        let harvesters = Harvesters {
            session: session.clone(),
            clusters: Arc::clone(&clusters),
            access: Arc::clone(&access),
        };
        Self {
            attachments: Attachments::new(Box::new(harvesters), site.memory()),
            clusters,
            access,
        }
    }

    /// Follows them until the session ends; `changed` is told which one did.
    pub fn follow(
        &self,
        site: &Arc<Site>,
        tasks: &mut JoinSet<()>,
        changed: impl Fn(&Key) + Send + Sync + 'static,
    ) {
        let (all, names) = (Arc::clone(&self.clusters), Arc::clone(&self.access.names));
        let attachments = Arc::clone(&self.attachments);
        let (objects, view) = (Arc::clone(&self.clusters), |cluster: Cluster| {
            Some(ManagedCluster::view(&cluster))
        });
        spawn(tasks, site, objects, view, move |key| {
            let cluster = all.get(key);
            let display = cluster.as_ref().map(|cluster| &*cluster.display_name);
            names.note(&key.name, display);
            attachments.touch();
            changed(key);
        });
        let (attachments, cancel) = (Arc::clone(&self.attachments), site.cancel());
        tasks.spawn(async move {
            let follow = attachments.follow();
            cancel.run_until_cancelled(follow).await.unwrap_or(())
        });
    }

    /// Waits until they are known, where fipd may list them; false: the session is over.
    pub async fn listed(&self, site: &Site) -> bool {
        listed::<Cluster, _>(site, &self.clusters, "list Rancher's clusters").await
    }
}
