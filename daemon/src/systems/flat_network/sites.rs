//! The clusters that are served now, for who shows and counts them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use fipd_core::Text;
use parking_lot::Mutex;

use super::pod::PodController;

/// The pods, and by them the subnets and addresses, of each connected cluster, by its name. Cheap to share.
#[derive(Clone, Default)]
pub struct FlatSites(Arc<Mutex<BTreeMap<Text, Weak<PodController>>>>);

impl FlatSites {
    pub fn add(&self, cluster: &Text, pods: &Arc<PodController>) {
        let mut sites = self.0.lock();
        sites.insert(Text::clone(cluster), Arc::downgrade(pods));
    }

    /// Those that are served now.
    pub fn connected(&self) -> Vec<(Text, Arc<PodController>)> {
        let mut sites = self.0.lock();
        sites.retain(|_, pods| pods.strong_count() > 0);
        let live = sites.iter();
        live.filter_map(|(name, pods)| Some((Text::clone(name), pods.upgrade()?)))
            .collect()
    }
}
