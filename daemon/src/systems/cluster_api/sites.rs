//! The clusters that are served now, and the Leases there, for who shows and counts them.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::Text;
use parking_lot::Mutex;

use super::vip::VipController;
use crate::connected::Connected;

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct IpamSites {
    /// The Clusters, and by them the claims, of each.
    pub vips: Connected<VipController>,
    leads: Arc<Mutex<BTreeMap<Text, bool>>>,
}

impl IpamSites {
    /// Notes whether fipd holds the Leases of a cluster; `None`: it wants none, or no longer.
    pub fn lead(&self, cluster: &Text, leads: Option<bool>) {
        let mut all = self.leads.lock();
        match leads {
            Some(leads) => all.insert(Text::clone(cluster), leads),
            None => all.remove(cluster),
        };
    }

    /// Whether fipd holds the Leases, of each cluster where it wants them.
    pub fn leading(&self) -> BTreeMap<Text, bool> {
        self.leads.lock().clone()
    }
}
