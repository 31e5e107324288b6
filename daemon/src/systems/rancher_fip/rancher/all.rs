//! The management clusters, each by its configured name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::Text;
use parking_lot::Mutex;

use super::{Data, Rancher};
use crate::systems::rancher_fip::admission::Admits;

/// All management clusters by configured name.
#[derive(Clone, Default)]
pub struct Ranchers {
    map: Arc<Mutex<BTreeMap<Text, Arc<Rancher>>>>,
    /// The names that the configuration has; `None` until it was read.
    configured: Arc<Mutex<Option<BTreeSet<Text>>>>,
}

impl Ranchers {
    /// The management cluster configured under this name.
    pub fn get(&self, name: &str) -> Arc<Rancher> {
        Arc::clone(self.map.lock().entry(name.into()).or_default())
    }

    /// What the admission webhook is told of the cluster of this name, while it is served.
    pub fn admits(&self, name: &str) -> Option<Arc<Admits>> {
        let admits = self.map.lock().get(name)?.admits.lock().clone()?;
        admits.lives().then_some(admits)
    }

    /// What is known of all that were read once and where no other program leads, by configured name.
    pub fn all(&self) -> Vec<(Text, Arc<Data>)> {
        let map = self.map.lock();
        let known = map.iter();
        known
            .filter(|(_, rancher)| *rancher.led_elsewhere.borrow() != Some(true))
            .filter_map(|(name, rancher)| Some((Text::clone(name), rancher.data()?)))
            .collect()
    }

    /// What is known of those where this daemon leads at this moment, by configured name.
    pub fn leading(&self) -> Vec<(Text, Arc<Data>)> {
        let mut all = self.all();
        all.retain(|(_, data)| data.leads());
        all
    }

    /// The configuration has these from now on, reached or not.
    pub fn configured(&self, names: BTreeSet<Text>) {
        *self.configured.lock() = Some(names);
    }

    /// How many there are beside those where this daemon leads.
    pub fn not_leading(&self) -> usize {
        let configured = self.configured.lock().clone();
        let mut all = configured.unwrap_or_else(|| self.map.lock().keys().cloned().collect());
        for (name, _) in self.leading() {
            all.remove(&name);
        }
        all.len()
    }
}
