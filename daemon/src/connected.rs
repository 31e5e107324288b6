//! What serves each connected cluster, for whoever shows it, counts it or asks it. Nothing is kept when the cluster is left.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use fipd_core::Text;
use parking_lot::Mutex;

/// One of each connected cluster, by its name; cheap to clone.
pub struct Connected<T: ?Sized>(Arc<Mutex<BTreeMap<Text, Weak<T>>>>);

impl<T: ?Sized> Clone for Connected<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Default for Connected<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: ?Sized> Connected<T> {
    /// From now on until it is dropped this one serves the cluster.
    pub fn add(&self, cluster: &Text, one: Weak<T>) {
        self.0.lock().insert(Text::clone(cluster), one);
    }

    /// Those that serve a cluster now.
    pub fn all(&self) -> Vec<(Text, Arc<T>)> {
        let mut all = self.0.lock();
        all.retain(|_, one| one.strong_count() > 0);
        let live = all.iter();
        live.filter_map(|(name, one)| Some((Text::clone(name), one.upgrade()?)))
            .collect()
    }
}
