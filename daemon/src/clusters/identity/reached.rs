//! How far the decisions of the store have come, noted in the Secret of each cluster: a store that is older than what a cluster
//! knows was copied back with its record, and free addresses of the networks of that cluster are held.

use std::{collections::BTreeSet, time::Duration};

use fipd_core::{ClusterId, NetworkId, Request, Text};
use futures::future::join_all;
use tokio::time::Instant;

use super::{
    Facts, Reached, Seen, Verdict,
    secret::{self, SecretOrder},
};
use crate::{
    clusters::registry::{Registry, Running},
    ipam::{Ipam, IpamError},
};

/// How often it is noted at most.
const PACE: Duration = Duration::from_secs(60);
/// How long the notes at a stop may take, all together.
const AT_STOP: Duration = Duration::from_secs(2);

impl Reached {
    /// How far it has come by now.
    pub(super) fn of(ipam: &Ipam) -> Self {
        let high_water = ipam.reader().stats().high_water;
        Self {
            epoch: high_water.epoch,
            commit: high_water.commit,
        }
    }
}

impl Registry {
    /// How far the store had come before this process wrote anything to the cluster.
    pub(super) fn reached_before(&mut self, id: &ClusterId) -> Reached {
        match self.progress(id).noted.compared {
            true => Reached::of(&self.ipam),
            false => self.proofs.began,
        }
    }

    /// Holds the networks of a cluster that knows more than the store, and notes there how far the store has come.
    pub(super) async fn compare_reached(
        &mut self,
        id: &ClusterId,
        ways: &[Facts],
    ) -> Result<(), IpamError> {
        let Some(nonce) = self.proof(id).and_then(|proof| proof.nonce) else {
            return Ok(());
        };
        let proven = |way: &&Facts| {
            let verdict = self.proofs.verdicts.get(&way.key);
            way.answers == Some(true) && matches!(verdict, Some((_, Verdict::Proven)))
        };
        let Some(way) = ways.iter().find(proven) else {
            return Ok(());
        };
        let Some(shown) = way.shown.as_ref() else {
            return Ok(());
        };
        self.hold_where_behind(id, &way.key.0, shown.reached)
            .await?;
        let now = Reached::of(&self.ipam);
        let last = self.progress(id).noted.last;
        let due = last.is_none_or(|at| at.elapsed() >= PACE) && shown.reached != Some(now);
        if due && !shown.read_only {
            self.progress(id).noted.last = Some(Instant::now());
            self.order(&way.key, SecretOrder::Note { nonce });
        }
        Ok(())
    }

    /// Once in a process: `there` is what a way of this site shows.
    pub(super) async fn hold_where_behind(
        &mut self,
        id: &ClusterId,
        site: &Text,
        there: Option<Reached>,
    ) -> Result<(), IpamError> {
        if self.progress(id).noted.compared {
            return Ok(());
        }
        let now = self.reached_before(id);
        if let Some(there) = there.filter(|there| *there > now) {
            self.hold_networks_of(id, site, there, now).await?;
            // All clusters of these networks are listed again.
            for running in self.sessions.values() {
                running.session.reconnected();
            }
        }
        self.progress(id).noted.compared = true;
        Ok(())
    }

    async fn hold_networks_of(
        &self,
        id: &ClusterId,
        site: &Text,
        there: Reached,
        now: Reached,
    ) -> Result<(), IpamError> {
        let recorded = self.record(id).into_iter().flat_map(|one| one.names);
        let names: BTreeSet<Text> = recorded.chain([site.clone()]).collect();
        let mapped = self.expected.iter();
        let mapped = mapped.filter(|expected| names.contains(&expected.cluster));
        let networks: BTreeSet<NetworkId> = mapped.map(|expected| expected.network).collect();
        let reason: Text = format!(
            "cluster {site} knows commit {} of epoch {}, and the store is at commit {} of epoch {}: it is an older copy",
            there.commit, there.epoch, now.commit, now.epoch
        )
        .into();
        tracing::error!(
            cluster = %site,
            "{reason}; free addresses of its networks are given to nobody new for now (`fipd hold show`)"
        );
        let request = Request::HoldNetworks {
            networks: networks.into_iter().collect(),
            reason,
            actor: "fipd".into(),
        };
        self.ipam.submit(request).await.map(drop)
    }

    /// Notes it everywhere once more; whoever does not answer in time keeps an older one, which holds nothing.
    pub(in crate::clusters) async fn note_at_stop(&self) {
        let reached = Reached::of(&self.ipam);
        let way = |running: &Running| {
            let up = self.up_of(&running.over)?.clone();
            let is_ours = matches!(up.shown.secret, Seen::Value { .. }) && !up.shown.read_only;
            let shows = &running.session.shows;
            let nonce = shows.nonce.clone().filter(|_| is_ours)?;
            Some((up, shows.namespace.clone(), SecretOrder::Note { nonce }))
        };
        let all = self.sessions.values().filter_map(way);
        let notes = all.map(|(up, namespace, order)| async move {
            secret::write(&up.client, &namespace, &order, reached).await
        });
        // A note that fails was noted within the last minute.
        let _ = tokio::time::timeout(AT_STOP, join_all(notes)).await;
    }
}
