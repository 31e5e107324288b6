//! The clusters that are served now, for who shows and counts them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use fipd_core::Text;
use parking_lot::Mutex;

use super::vip::VipController;

/// The Clusters, and by them the claims, of each connected cluster, by its name. Cheap to share.
#[derive(Clone, Default)]
pub struct IpamSites(Arc<Mutex<BTreeMap<Text, IpamSite>>>);

/// What is known of one.
#[derive(Clone, Default)]
struct IpamSite {
    vips: Weak<VipController>,
    /// Whether fipd holds its Leases; `None`: it wants none.
    leads: Option<bool>,
}

impl IpamSites {
    pub fn add(&self, cluster: &Text, vips: &Arc<VipController>) {
        let mut sites = self.0.lock();
        sites.entry(Text::clone(cluster)).or_default().vips = Arc::downgrade(vips);
    }

    /// Notes whether fipd holds the Leases of a cluster; `None`: it wants none, or no longer.
    pub fn lead(&self, cluster: &Text, leads: Option<bool>) {
        let mut sites = self.0.lock();
        sites.retain(|_, site| site.leads.is_some() || site.vips.strong_count() > 0);
        sites.entry(Text::clone(cluster)).or_default().leads = leads;
    }

    /// Whether fipd holds the Leases, of each cluster where it wants them.
    pub fn leading(&self) -> Vec<(Text, bool)> {
        let sites = self.0.lock();
        let with = sites.iter();
        with.filter_map(|(name, site)| Some((Text::clone(name), site.leads?)))
            .collect()
    }

    /// Those that are served now.
    pub fn connected(&self) -> Vec<(Text, Arc<VipController>)> {
        let sites = self.0.lock();
        let live = sites.iter();
        live.filter_map(|(name, site)| Some((Text::clone(name), site.vips.upgrade()?)))
            .collect()
    }
}
