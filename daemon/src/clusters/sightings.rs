//! From when on networks wait for what foreign Services of a cluster use, and what admins say about it.
//!
//! A cluster that an earlier build has adopted holds nobody back: its sightings are only reported at first. Two markers say so
//! in the store: one when sightings began, and a skipped adoption for each such network.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{Action, Actor, Adoption, ClusterId, LeaseKey, Ledger, NetworkId, System, Text};
use tokio::sync::watch;

use super::{
    ClusterSession, Clusters, ClustersError, SightingsView, adoption::note_adopted,
    registry::Registry,
};
use crate::{
    config::{Awaited, SightingMode},
    ipam::{Ipam, IpamError},
};

/// In place of a cluster, in the marker that says when sightings began.
const BEGUN: &str = "sightings";

/// What admins have confirmed since a session began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfirmedSightings {
    /// Addresses that were reported then.
    pub keys: BTreeSet<LeaseKey>,
    /// Nothing is only reported because of an upgrade any more.
    pub ends_preview: bool,
}

/// Whether a build before sightings has adopted the cluster in the network.
pub fn adopted_before(ledger: &Ledger, network: NetworkId, id: &ClusterId) -> bool {
    let begun = ledger.adoption(NetworkId::DEFAULT, BEGUN, &System::foreign());
    let before =
        |marker: &Adoption| !marker.skipped && begun.is_some_and(|begun| marker.at < begun.at);
    let systems = [System::rancher_fip(), System::claims()];
    let mut markers = systems
        .iter()
        .filter_map(|system| ledger.adoption(network, &id.0, system));
    markers.any(before)
}

/// Lets a network go that need not wait for the sightings of a cluster, or whose preview counts from this moment.
///
/// # Errors
/// The store does not take it.
pub async fn open_network(
    ipam: &Ipam,
    network: NetworkId,
    id: &ClusterId,
) -> Result<(), IpamError> {
    let place = (network, Text::clone(&id.0), System::foreign());
    note_adopted(ipam, place, true, "fipd".into()).await
}

impl Registry {
    /// Opens networks that an earlier build has adopted a cluster in: they have allocated already, and do not wait for the
    /// sightings of a cluster that may be down.
    pub(super) async fn open_previews(
        &self,
        awaited: &[(NetworkId, Awaited)],
    ) -> Result<(), IpamError> {
        let foreign = System::foreign();
        let mut waiting = awaited.iter().filter(|(_, one)| one.system == foreign);
        let Some(first) = waiting.next() else {
            return Ok(());
        };
        let begun = |ledger: &Ledger| {
            let marker = ledger.adoption(NetworkId::DEFAULT, BEGUN, &foreign);
            marker.is_some()
        };
        if !self.ipam.read(begun) {
            let place = (NetworkId::DEFAULT, BEGUN.into(), foreign.clone());
            note_adopted(&self.ipam, place, false, "fipd".into()).await?;
        }
        let closed = |(network, one): &(NetworkId, Awaited)| {
            let name = format!("name:{}", one.cluster);
            self.ipam.read(|ledger| {
                let record = ledger.cluster_by_name(&one.cluster)?;
                let open = ledger.adopted(*network, &record.id, &foreign)
                    || ledger.adoption(*network, &name, &foreign).is_some();
                let opens = !open && adopted_before(ledger, *network, &record.id);
                opens.then_some((*network, Text::from(name.as_str())))
            })
        };
        let opening: Vec<_> = std::iter::once(first)
            .chain(waiting)
            .filter_map(closed)
            .collect();
        for (network, name) in opening {
            let place = (network, name, foreign.clone());
            note_adopted(&self.ipam, place, true, "fipd".into()).await?;
        }
        Ok(())
    }
}

impl ClusterSession {
    /// What becomes of sightings there.
    pub fn sightings(&self) -> SightingMode {
        self.settings.sightings(&self.systems)
    }

    /// The networks that any of its systems may have leases in.
    pub fn mapped_networks(&self) -> BTreeSet<NetworkId> {
        let networks = self.shared.networks.borrow();
        networks.values().flatten().copied().collect()
    }

    /// Shows what a list had of Services that others serve.
    pub fn show_sightings(&self, view: SightingsView) {
        let told = &self.shared.sightings;
        if told.send_if_modified(|shown| shown.replace(view) != *shown) {
            self.clusters.touch();
        }
    }

    /// Changes with each reconnection.
    pub fn reconnects(&self) -> watch::Receiver<u64> {
        self.shared.reconnects.subscribe()
    }

    /// The cluster answers again, or is to be listed as if it did.
    pub fn reconnected(&self) {
        self.shared.reconnects.send_modify(|count| *count += 1);
    }

    /// The addresses that admins confirmed; changes when one does.
    pub fn confirmed_sightings(&self) -> watch::Receiver<Arc<ConfirmedSightings>> {
        self.shared.confirmed_sightings.subscribe()
    }
}

impl Clusters {
    /// Keeps the addresses that are shown as reported at this moment, and nothing else, as long as the next list has them too.
    /// In memory until then. How many these are.
    ///
    /// # Errors
    /// The cluster is not connected or shows nothing that waits; the audit log does not take it.
    pub async fn confirm_sightings(
        &self,
        name: &str,
        actor: Actor,
    ) -> Result<usize, ClustersError> {
        confirm(&self.connected(name)?, actor).await
    }
}

pub(super) async fn confirm(
    session: &ClusterSession,
    actor: Actor,
) -> Result<usize, ClustersError> {
    let shown = session.shared.sightings.borrow().clone();
    let shown = shown.filter(|shown| !shown.waiting.is_empty() || shown.preview_until.is_some());
    let Some(shown) = shown else {
        return Err(ClustersError::NothingSighted(session.name.clone()));
    };
    let addresses = shown.waiting.len();
    let what = format!("cluster {}: {addresses} sightings confirmed", session.name);
    tracing::warn!(%actor, "{what}");
    session
        .ipam
        .note(Action::ClusterChanged, what, actor)
        .await?;
    session.shared.confirmed_sightings.send_modify(|confirmed| {
        let mut all = ConfirmedSightings::clone(confirmed);
        all.keys.extend(shown.waiting.iter().copied());
        all.ends_preview = true;
        *confirmed = Arc::new(all);
    });
    Ok(addresses)
}
