//! What the admission webhook is told of management clusters.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{ClusterId, Ledger, NetworkId};

use super::{
    Site,
    rancher::{Data, Ranchers},
};
use crate::{
    admission::{Management, Managements, NewPool},
    config::{PoolFacts, RancherFipQuotas},
    controllers::objects::Key,
};

/// A management cluster, for as long as it is served.
pub struct Admits {
    site: Arc<Site>,
    data: Arc<Data>,
}

impl Admits {
    pub fn new(site: Arc<Site>, data: Arc<Data>) -> Arc<Self> {
        Arc::new(Self { site, data })
    }

    /// Whether the session it is of goes on.
    pub fn lives(&self) -> bool {
        self.data.leads()
    }
}

impl Managements for Ranchers {
    fn get(&self, name: &str) -> Option<Arc<dyn Management>> {
        self.admits(name)
            .map(|admits| admits as Arc<dyn Management>)
    }
}

impl Management for Admits {
    fn id(&self) -> &ClusterId {
        &self.site.id
    }

    fn name(&self) -> &str {
        &self.site.name
    }

    fn has_pool(&self, name: &str) -> bool {
        self.data.pools.seen(&Key::new("", name)).is_some()
    }

    fn other_names(&self) -> BTreeMap<String, Vec<String>> {
        self.data.other_pool_names()
    }

    fn network(&self, ledger: &Ledger, pool: &NewPool<'_>) -> Option<NetworkId> {
        let facts = PoolFacts {
            cluster: &self.site.session.names,
            system: &self.site.system,
            namespace: None,
            interface: Some(pool.interface).filter(|name| !name.is_empty()),
            vlan: None,
            pool: pool.name,
            annotation: pool.annotation,
        };
        let choice = self.site.session.network_choice(&facts);
        let network = ledger.network_by_name(&choice.network);
        network.map(|network| network.id)
    }

    fn quota_required(&self) -> bool {
        self.site.session.settings.rancher_fip.quotas == RancherFipQuotas::Required
    }
}
