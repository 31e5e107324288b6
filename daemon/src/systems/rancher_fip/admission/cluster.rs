//! What the admission webhook is told of management clusters.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{ClusterId, Ledger, NetworkId};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;

use super::Management;
use crate::{
    controller::{
        kind::NAMESPACE,
        pool_source::{SourceFacts, link_of, pool_facts},
        store::Key,
        webhook::OwnUser,
    },
    systems::rancher_fip::{
        Site,
        rancher::{Data, Rancher},
        settings::{RancherFipQuotas, RancherFipSettings},
    },
};

/// A management cluster, for as long as it is served.
pub struct Admits {
    site: Arc<Site>,
    rancher: Arc<Rancher>,
    data: Arc<Data>,
    user: OwnUser,
}

impl Admits {
    pub fn new(site: Arc<Site>, rancher: Arc<Rancher>, data: Arc<Data>) -> Arc<Self> {
        Arc::new(Self {
            site,
            rancher,
            data,
            user: OwnUser::default(),
        })
    }

    /// Learns what the API server calls fipd. Until then no write is known to be fipd's.
    pub async fn learn(self: Arc<Self>) {
        self.user.learn(&self.data.remote, &self.site).await;
    }

    /// Whether the session it is of goes on.
    pub fn lives(&self) -> bool {
        self.data.leads()
    }
}

impl Management for Admits {
    fn id(&self) -> &ClusterId {
        &self.site.id
    }

    fn name(&self) -> &str {
        &self.site.name
    }

    fn is_fipd(&self, user: &str) -> bool {
        self.user.is(user)
    }

    fn has_pool(&self, name: &str) -> bool {
        self.data.pools.seen(&Key::new("", name)).is_some()
    }

    fn other_names(&self) -> BTreeMap<String, Vec<String>> {
        self.data.other_pool_names()
    }

    fn network(&self, ledger: &Ledger, pool: &str, facts: &SourceFacts<'_>) -> Option<NetworkId> {
        let attachments = self.data.attachments.get();
        let link = link_of(facts, attachments.map(|all| &**all), true)?;
        let key = Key::new("", pool);
        let facts = pool_facts(&self.site, &key, facts, &link);
        let choice = self.site.session.network_choice(&facts, None);
        let network = ledger.network_by_name(&choice.network);
        network.map(|network| network.id)
    }

    fn quota_required(&self) -> bool {
        self.site.settings::<RancherFipSettings>().quotas == RancherFipQuotas::Required
    }

    fn shows_nowhere(&self, cluster: &str, address: IpAddr) -> bool {
        let guest = self.rancher.guest_called(cluster);
        guest.is_some_and(|(_, guest)| guest.shows(address).is_none())
    }

    fn is_ending<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, bool> {
        let target = NAMESPACE.named("", namespace);
        Box::pin(async move {
            let read = self.data.remote.get(&target);
            let found: Result<Option<PartialObjectMeta<Namespace>>, _> = read.await;
            found.is_ok_and(|found| {
                found.is_none_or(|found| found.metadata.deletion_timestamp.is_some())
            })
        })
    }
}
