//! The clusters that are served now, for who shows them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use fipd_core::Text;
use parking_lot::Mutex;

use super::claim::IpClaimController;

/// The claims of each connected cluster, by its name. Cheap to share.
#[derive(Clone, Default)]
pub struct IpamSites(Arc<Mutex<BTreeMap<Text, Weak<IpClaimController>>>>);

impl IpamSites {
    pub fn add(&self, cluster: &Text, claims: &Arc<IpClaimController>) {
        let mut sites = self.0.lock();
        sites.retain(|_, site| site.strong_count() > 0);
        sites.insert(Text::clone(cluster), Arc::downgrade(claims));
    }

    /// Those that are there now.
    pub fn connected(&self) -> Vec<(Text, Arc<IpClaimController>)> {
        let sites = self.0.lock();
        let live = sites.iter();
        live.filter_map(|(name, site)| Some((Text::clone(name), site.upgrade()?)))
            .collect()
    }
}
