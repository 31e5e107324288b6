//! What becomes of sightings in each network.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{Ledger, NetworkId, System, Timestamp};

use super::PREVIEW;
use crate::{
    clusters::{
        ClusterSession,
        sightings::{ConfirmedSightings, adopted_before, open_network},
    },
    config::SightingMode,
    ipam::IpamError,
};

/// What becomes of sightings in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What fipd serves itself is adopted first.
    Waiting,
    /// Only reported, until then.
    Preview(Timestamp),
    Hold,
    Report,
}

/// The stage of each network that a cluster is mapped to.
pub struct Stages(pub BTreeMap<NetworkId, Stage>);

impl Stages {
    pub fn of(session: &ClusterSession, confirmed: &ConfirmedSightings) -> Self {
        let now = session.ipam.now();
        let networks = session.mapped_networks().into_iter();
        let stages = networks.map(|network| {
            let stage = |ledger: &Ledger| stage(session, ledger, network, confirmed, now);
            (network, session.ipam.read(stage))
        });
        Self(stages.collect())
    }

    pub fn get(&self, network: NetworkId) -> Option<Stage> {
        self.0.get(&network).copied()
    }

    pub fn networks(&self) -> impl Iterator<Item = NetworkId> {
        self.0.keys().copied()
    }

    /// The networks in one of these stages.
    pub fn of_stage(&self, is: impl Fn(Stage) -> bool) -> BTreeSet<NetworkId> {
        let these = self.0.iter().filter(|(_, stage)| is(**stage));
        these.map(|(network, _)| *network).collect()
    }

    /// When the last preview ends.
    pub fn preview_until(&self) -> Option<Timestamp> {
        let ends = self.0.values().filter_map(|stage| match stage {
            Stage::Preview(end) => Some(*end),
            Stage::Waiting | Stage::Hold | Stage::Report => None,
        });
        ends.max()
    }

    /// Previews count from the first list, which is there now.
    pub async fn begin_previews(&self, session: &ClusterSession) -> Result<(), IpamError> {
        let (id, foreign) = (&session.id, System::foreign());
        for network in self.of_stage(|stage| matches!(stage, Stage::Preview(_))) {
            let begun = |ledger: &Ledger| ledger.adoption(network, &id.0, &foreign).is_some();
            if !session.ipam.read(begun) {
                open_network(&session.ipam, network, id).await?;
            }
        }
        Ok(())
    }
}

/// Whether fipd's own of some cluster is not adopted there yet, and the network gives nothing new for that.
pub fn waits(session: &ClusterSession, ledger: &Ledger, network: NetworkId) -> bool {
    let foreign = System::foreign();
    !ledger.truly_adopted(network, &session.id, &foreign)
        && ledger
            .holds(network)
            .iter()
            .any(|hold| hold.system != foreign)
}

/// Lets networks go that wait for sightings of a cluster whose Services fipd may not list.
pub async fn open_networks(session: &ClusterSession) {
    let (id, foreign) = (&session.id, System::foreign());
    for network in session.networks(&foreign) {
        // Those that an earlier build adopted do not wait, and their preview is still to come.
        let open = |ledger: &Ledger| {
            ledger.adopted(network, id, &foreign) || adopted_before(ledger, network, id)
        };
        if !session.ipam.read(open)
            && let Err(error) = open_network(&session.ipam, network, id).await
        {
            tracing::warn!(cluster = %session.name, %error, "a network waits on for the Services of others");
        }
    }
}

fn stage(
    session: &ClusterSession,
    ledger: &Ledger,
    network: NetworkId,
    confirmed: &ConfirmedSightings,
    now: Timestamp,
) -> Stage {
    let (id, foreign) = (&session.id, System::foreign());
    if session.sightings() != SightingMode::Hold {
        return Stage::Report;
    }
    if ledger.truly_adopted(network, id, &foreign) {
        return Stage::Hold;
    }
    if waits(session, ledger, network) {
        return Stage::Waiting;
    }
    if confirmed.ends_preview || !adopted_before(ledger, network, id) {
        return Stage::Hold;
    }
    let began = ledger.adoption(network, &id.0, &foreign);
    let began = began.map_or(now, |marker| marker.at);
    let end = began.0.saturating_add(PREVIEW);
    match now.0 >= end {
        true => Stage::Hold,
        false => Stage::Preview(Timestamp(end)),
    }
}
