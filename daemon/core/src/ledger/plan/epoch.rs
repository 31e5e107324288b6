//! What is held back: networks until they are adopted, and free addresses after a restore. How that hold passes and is
//! lifted.

use super::cluster::deletion;
use crate::{
    Action, Answer, Epoch, Network, NetworkId, Op, Refusal, RestoreHold, Text,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable},
        rows_read::CountedRows as _,
    },
};

impl Ledger {
    /// As many networks that are held by themselves are shown at once: who lists them asks for the longest hold as well.
    pub const HELD_SHOWN: usize = Self::SCAN / 2;

    /// The restore that the rows come from; `None` in a store that was never restored.
    pub fn epoch(&self) -> Option<&Epoch> {
        self.rows.epoch.as_ref()
    }

    /// Until when free addresses are held after a restore, in the network where that takes longest. Of networks that are held
    /// by themselves the first [`Ledger::HELD_SHOWN`] count.
    pub fn restore_hold(&self) -> Option<RestoreHold> {
        let all = self.epoch().and_then(|epoch| epoch.hold).into_iter();
        let networks = self.networks_held().take(Self::HELD_SHOWN);
        let networks = networks.filter_map(|one| one.hold);
        all.chain(networks).max_by_key(|hold| hold.left)
    }

    /// The networks that are held by themselves, while others are not.
    pub fn networks_held(&self) -> impl Iterator<Item = &Network> {
        let held = self.rows.held_networks.iter();
        held.filter_map(|id| self.rows.networks.get(id)).counted()
    }

    /// Refuses what would give an address of a network that waits for clusters.
    pub(super) fn check_adopted(&self, network: NetworkId) -> Result<(), Refusal> {
        let holds = self.gate.holds(network);
        if holds.is_empty() {
            return Ok(());
        }
        Err(Refusal::NetworkHeld {
            network: self.network_name(network),
            waiting: holds.to_vec(),
        })
    }

    /// Until when free addresses of a network are held.
    pub fn network_hold(&self, network: NetworkId) -> Option<RestoreHold> {
        let of_all = self.epoch().and_then(|epoch| epoch.hold);
        let of_network = self.rows.networks.get(&network).and_then(|one| one.hold);
        of_all
            .into_iter()
            .chain(of_network)
            .max_by_key(|hold| hold.left)
    }

    /// Refuses what would give a free address of a network, or one that cools, while they are held.
    pub(super) fn check_restored(&self, network: NetworkId) -> Result<(), Refusal> {
        match self.network_hold(network) {
            Some(RestoreHold { until, .. }) => Err(Refusal::RestoreHeld { until }),
            None => Ok(()),
        }
    }

    /// Begins a hold of these networks, anew where one is under way. Their clusters are adopted again: what they use may have
    /// been given after the store that is here.
    pub(super) fn plan_hold_networks(
        &self,
        networks: &[NetworkId],
        reason: &Text,
        mut draft: Draft,
    ) -> Draw {
        self.lock(LockedTable::Epoch, &mut draft)?;
        self.unlocked(LockedTable::Clusters)?;
        for id in networks {
            let Some(network) = self.rows.networks.get(id) else {
                return Err(Refusal::UnknownNetwork(*id).into());
            };
            let hold = Some(RestoreHold::starting(draft.now));
            draft.flight.ops.push(Op::PutNetwork(Network {
                hold,
                ..network.clone()
            }));
            let markers = self.rows.adoptions.values();
            let markers = markers.filter(|marker| marker.network == *id);
            draft.flight.ops.extend(markers.map(deletion));
            let detail = format!("{}: {reason}", network.name);
            draft.say(Action::NetworkHeld, detail).network = Some(*id);
        }
        Ok((draft, Answer::Done))
    }

    pub(super) fn plan_pass_hold(&self, elapsed: u64, draft: Draft) -> Draw {
        let now = draft.now;
        let after = |hold: RestoreHold| hold.after(elapsed, now);
        self.change_holds(draft, after, &"its time is over".into())
    }

    pub(super) fn plan_lift_hold(&self, reason: &Text, draft: Draft) -> Draw {
        if reason.trim().is_empty() {
            let allowed = "why free addresses are certainly free";
            return Err(Refusal::invalid("reason", reason, allowed).into());
        }
        self.change_holds(draft, |_| None, reason)
    }

    /// Answers at once where nothing is held.
    fn change_holds(
        &self,
        mut draft: Draft,
        change: impl Fn(RestoreHold) -> Option<RestoreHold>,
        why_ended: &Text,
    ) -> Draw {
        self.lock(LockedTable::Epoch, &mut draft)?;
        if let Some((epoch, hold)) = self.epoch().and_then(|epoch| Some((epoch, epoch.hold?))) {
            let hold = change(hold);
            draft
                .flight
                .ops
                .push(Op::PutEpoch(Epoch { hold, ..*epoch }));
            if hold.is_none() {
                draft.say(Action::RestoreHoldEnded, Text::clone(why_ended));
            }
        }
        for network in self.networks_held() {
            let hold = network.hold.and_then(&change);
            draft.flight.ops.push(Op::PutNetwork(Network {
                hold,
                ..network.clone()
            }));
            if hold.is_none() {
                let detail = format!("{}: {why_ended}", network.name);
                draft.say(Action::RestoreHoldEnded, detail);
            }
        }
        Ok((draft, Answer::Done))
    }
}
