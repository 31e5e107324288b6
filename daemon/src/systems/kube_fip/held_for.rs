//! Which cluster uses the address of a FloatingIP.

use std::collections::BTreeMap;

use fipd_core::{ClusterId, sighting::HeldFor};

use super::{guest::VipGuests, metrics::VipSites, names::FLOATING_IP};
use crate::{clusters::ClusterSession, system::OwnerRule};

/// Rancher's ids of a cluster, as one of its guests; `None`: its guests are not listed yet.
type GuestIds = Option<Vec<String>>;

/// A FloatingIP, and the guest that keeps what one had, hold an address for the guest in whose namespace they are: what its
/// Services show is the same use. While its Rancher is not listed it is not known which that is.
pub fn rule(sites: &VipSites, session: &ClusterSession) -> OwnerRule {
    let sites = sites.guests.all().into_iter();
    let ids = sites.map(|(_, guests)| (guests.rancher().clone(), guests.called(&session.names)));
    let ids: BTreeMap<ClusterId, GuestIds> = ids.collect();
    Box::new(move |owner| {
        if ![FLOATING_IP.kind, VipGuests::KEEPER].contains(&&*owner.kind) {
            return None;
        }
        let ids = owner.cluster.as_ref().and_then(|rancher| ids.get(rancher));
        Some(match ids {
            None | Some(None) => HeldFor::Unknown,
            Some(Some(ids)) if ids.iter().any(|id| **id == *owner.namespace) => HeldFor::This,
            Some(Some(_)) => HeldFor::Another,
        })
    })
}
