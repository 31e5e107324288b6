//! Carries out what [`super`] decides: who proves itself how, and what the store knows of it.
//!
//! A value is in the store before it is written to a cluster, and counts as the latest once the cluster shows it: whatever dies
//! in between, the store knows every value that the Secret may show.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use data_encoding::HEXLOWER;
use fipd_core::{ClusterId, ClusterProof, ClusterRecord, Request, Text};
use tokio::time::Instant;

use super::{
    Act, Facts, Known, Reached, Round, Seen, Shown, VALID, Verdict, WayKey, secret::SecretOrder,
    serial, way_text,
};
use crate::{
    clusters::registry::Registry,
    ipam::{Ipam, IpamError},
};

/// A challenge value is replaced this often, so that a copy of the Secret is soon of no use.
const RENEW: Duration = Duration::from_secs(600);
/// Before the Secret is asked to be created again.
const AGAIN: Duration = Duration::from_secs(10);
/// Decisions follow from one another; more than these at once are a defect, and the next pass goes on.
const STEPS: usize = 8;

/// What goes on with the identity of one cluster.
#[derive(Debug)]
pub(super) struct Progress {
    since: Instant,
    round: Option<Round>,
    /// When the latest value was known to be in the Secret.
    written: Option<Instant>,
    renewed: Option<Instant>,
    created: Option<Instant>,
    pub noted: NotedProgress,
}

/// What is noted in the Secret of how far the store has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NotedProgress {
    /// When that was ordered last.
    pub last: Option<Instant>,
    /// It was compared with the store's in this process: the store can be an older one only at the start.
    pub compared: bool,
}

/// What all ways have proved.
#[derive(Debug)]
pub(in crate::clusters) struct Proofs {
    /// How far the store had come when this process began.
    pub(super) began: Reached,
    /// The clusters that it knew then.
    known_before: BTreeSet<ClusterId>,
    progress: BTreeMap<ClusterId, Progress>,
    /// With the client (serial, generation) that has.
    pub(super) proved: BTreeMap<WayKey, (u64, u64)>,
    pub(in crate::clusters) verdicts: BTreeMap<WayKey, (ClusterId, Verdict)>,
}

impl Proofs {
    /// Nothing has proved itself to this process.
    pub(in crate::clusters) fn new(ipam: &Ipam) -> Self {
        let mut known_before = BTreeSet::new();
        ipam.for_each_cluster(|_, record| known_before.extend([record.id.clone()]));
        Self {
            began: Reached::of(ipam),
            known_before,
            progress: BTreeMap::new(),
            proved: BTreeMap::new(),
            verdicts: BTreeMap::new(),
        }
    }

    /// A way answers again after an outage: it has to prove itself anew.
    pub(in crate::clusters) fn reconnected(&mut self, way: &WayKey) {
        self.proved.remove(way);
    }
}

impl Registry {
    /// Decides on every way that answers, and sends what is to be written next.
    pub(in crate::clusters) async fn identify(&mut self) -> Result<(), IpamError> {
        let before = self.proofs.verdicts.clone();
        let done = self.identify_all().await;
        if done.is_err() {
            // A store that takes no decisions ends no session.
            for (key, verdict) in before {
                self.proofs.verdicts.entry(key).or_insert(verdict);
            }
        }
        done
    }

    async fn identify_all(&mut self) -> Result<(), IpamError> {
        for _ in 0..STEPS {
            let groups = self.groups();
            self.proofs.verdicts.clear();
            let mut again = false;
            for (id, ways) in groups {
                again |= self.note_written(&id, &ways).await?;
                again |= self.decide(&id, &ways).await?;
            }
            if !again {
                break;
            }
        }
        Ok(())
    }

    pub(in crate::clusters) fn proof(&self, id: &ClusterId) -> Option<ClusterProof> {
        self.record(id)?.proof
    }

    pub(super) fn progress(&mut self, id: &ClusterId) -> &mut Progress {
        let fresh = || Progress {
            since: Instant::now(),
            round: None,
            written: None,
            renewed: None,
            created: None,
            noted: NotedProgress::default(),
        };
        self.proofs.progress.entry(id.clone()).or_insert_with(fresh)
    }

    /// Whether the value that was being written is in the Secret by now: then it is the latest.
    async fn note_written(&mut self, id: &ClusterId, ways: &[Facts]) -> Result<bool, IpamError> {
        let Some(proof) = self.proof(id) else {
            return Ok(false);
        };
        let Some(next) = &proof.next else {
            return Ok(false);
        };
        let shows =
            |shown: &Shown| matches!(&shown.secret, Seen::Value { value, .. } if value == next);
        let mut proved = ways.iter().filter(|way| way.proved);
        if !proved.any(|way| way.shown.as_ref().is_some_and(shows)) {
            return Ok(false);
        }
        let latest = ClusterProof {
            value: next.clone(),
            next: None,
            ..proof.clone()
        };
        let next = next.clone();
        self.record_proof(id, latest, &[]).await?;
        let progress = self.progress(id);
        // A read that began before this one ended may have missed the write.
        progress.written = Some(Instant::now());
        progress.renewed = Some(Instant::now());
        progress.round.take_if(|round| round.target.is_none());
        if let Some(round) = progress.round.as_mut().filter(|round| round.value == next) {
            (round.written, round.begun) = (true, Instant::now());
            if let Some(target) = round.target.clone() {
                self.order(&target, SecretOrder::Look);
            }
        }
        Ok(true)
    }

    /// Whether something changed that is to be decided on again.
    async fn decide(&mut self, id: &ClusterId, ways: &[Facts]) -> Result<bool, IpamError> {
        let record = self.record(id).map(|record| (record.proof, record.names));
        let (proof, names) = record.unwrap_or_default();
        let progress = self.progress(id);
        let known = Known {
            proof: proof.as_ref(),
            names: &names,
            round: progress.round.as_ref(),
            written: progress.written,
            since: progress.since,
            now: Instant::now(),
        };
        let (verdicts, acts) = super::decide(&known, ways);
        for (way, verdict) in ways.iter().zip(verdicts) {
            if let Verdict::Conflict(_) = verdict {
                self.proofs.proved.remove(&way.key);
                let progress = self.progress(id);
                progress
                    .round
                    .take_if(|round| round.target.as_ref() == Some(&way.key));
            }
            let heard = way.shown.is_some();
            if heard {
                let verdict = (id.clone(), verdict);
                self.proofs.verdicts.insert(way.key.clone(), verdict);
            }
        }
        // Before anything is written there: each write notes how far this store has come.
        self.compare_reached(id, ways).await?;
        let mut again = false;
        for act in acts {
            again |= self.act(id, act, proof.as_ref()).await?;
        }
        if let Some(proof) = proof {
            again |= self.keep_lead(id, proof, ways).await?;
            self.renew(id, ways).await?;
        }
        Ok(again)
    }

    async fn act(
        &mut self,
        id: &ClusterId,
        act: Act,
        proof: Option<&ClusterProof>,
    ) -> Result<bool, IpamError> {
        match act {
            Act::Record(recorded) => {
                let (proof, is_new) = (recorded, proof.is_none_or(|known| known.nonce.is_none()));
                if is_new && !self.proofs.known_before.contains(id) {
                    // What another store noted there says nothing about one that knew nothing of the cluster.
                    self.progress(id).noted.compared = true;
                }
                let names = self.names_for(&proof.lead, id);
                self.record_proof(id, proof, &names).await?;
                return Ok(true);
            }
            Act::Create(over) => {
                let progress = self.progress(id);
                if progress.created.is_none_or(|at| at.elapsed() >= AGAIN) {
                    progress.created = Some(Instant::now());
                    // What it will show is this process's own.
                    progress.noted.compared = true;
                    if let (Some(nonce), Some(value)) = (random(), fresh("")) {
                        self.order(&over, SecretOrder::Create { nonce, value });
                    }
                }
            }
            Act::Challenge { over, target } => {
                if let Some(proof) = proof {
                    self.write_fresh(id, proof.clone(), &over, Some(target))
                        .await?;
                }
            }
            Act::Look(way) => self.order(&way, SecretOrder::Look),
            Act::Proved(way) => {
                let client = self.client_of(&way);
                self.progress(id)
                    .round
                    .take_if(|round| round.target.as_ref() == Some(&way));
                if let Some(client) = client {
                    self.proofs.proved.insert(way, client);
                    // The value was used.
                    self.progress(id).renewed = None;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Replaces the challenge value where the one that is known has been there for long enough or was used.
    async fn renew(&mut self, id: &ClusterId, ways: &[Facts]) -> Result<(), IpamError> {
        let now = Instant::now();
        let progress = self.progress(id);
        progress
            .round
            .take_if(|round| now.saturating_duration_since(round.begun) >= VALID);
        let due = progress.renewed.is_none_or(|at| at.elapsed() >= RENEW);
        if progress.round.is_some() || !due {
            return Ok(());
        }
        let able = |way: &&Facts| {
            let writes = way.shown.as_ref().is_some_and(|shown| !shown.read_only);
            way.proved && way.answers == Some(true) && writes
        };
        let (Some(over), Some(proof)) = (ways.iter().find(able), self.proof(id)) else {
            return Ok(());
        };
        if proof.nonce.is_none() {
            return Ok(());
        }
        self.write_fresh(id, proof, &over.key, None).await
    }

    /// A value that is already being written is written on: a third one would make one of the two unknown.
    async fn write_fresh(
        &mut self,
        id: &ClusterId,
        proof: ClusterProof,
        over: &WayKey,
        target: Option<WayKey>,
    ) -> Result<(), IpamError> {
        let Some(value) = proof.next.clone().or_else(|| fresh(&proof.value)) else {
            return Ok(());
        };
        let next = ClusterProof {
            next: Some(value.clone()),
            ..proof.clone()
        };
        self.record_proof(id, next, &[]).await?;
        let progress = self.progress(id);
        progress.round = Some(Round {
            value: value.clone(),
            target,
            written: false,
            begun: Instant::now(),
        });
        let order = SecretOrder::Replace {
            nonce: proof.nonce.unwrap_or_default(),
            from: vec![proof.value],
            value,
        };
        self.order(over, order);
        Ok(())
    }

    /// Remembers which way led last; if that way is gone, another that has proved itself takes its place.
    async fn keep_lead(
        &mut self,
        id: &ClusterId,
        proof: ClusterProof,
        ways: &[Facts],
    ) -> Result<bool, IpamError> {
        let there = |way: &Facts| proof.lead == way.key.0 && proof.way == way_text(&way.key.1);
        let proven =
            |key: &WayKey| matches!(self.proofs.verdicts.get(key), Some((_, Verdict::Proven)));
        let leads = ways.iter().find(|way| there(way));
        let next = match leads {
            // A rotated CA under a proven way is the cluster's new one.
            Some(way) if proof.nonce.is_some() && proven(&way.key) => Some(way),
            Some(_) => None,
            None if proof.nonce.is_some() => {
                let same = |way: &&Facts| way.key.0 == proof.lead && proven(&way.key);
                let mut all = ways.iter();
                all.clone()
                    .find(same)
                    .or_else(|| all.find(|way| proven(&way.key)))
            }
            None => None,
        };
        let Some((way, shown)) = next.and_then(|way| Some((way, way.shown.as_ref()?))) else {
            return Ok(false);
        };
        let latest = ClusterProof {
            lead: way.key.0.clone(),
            way: way_text(&way.key.1),
            ca: shown.ca.clone(),
            ..proof.clone()
        };
        // What was begun meanwhile counts.
        let now = self.proof(id);
        if latest == proof || now.as_ref() != Some(&proof) {
            return Ok(false);
        }
        self.record_proof(id, latest, &[]).await?;
        Ok(true)
    }

    pub(super) async fn record_proof(
        &self,
        id: &ClusterId,
        proof: ClusterProof,
        names: &[Text],
    ) -> Result<(), IpamError> {
        let lead = self.sites.get(&proof.lead);
        let known = self.record(id).map(|one| one.discovered);
        let record = ClusterRecord {
            id: id.clone(),
            names: names.to_vec(),
            discovered: known.unwrap_or_else(|| lead.is_some_and(|site| site.spec.discovered)),
            first_seen: self.ipam.now(),
            proof: Some(proof),
        };
        self.ipam
            .submit(Request::RecordCluster { record })
            .await
            .map(drop)
    }

    pub(super) fn order(&self, way: &WayKey, order: SecretOrder) {
        if let Some(link) = self.link(way) {
            // A link that is ending needs none.
            let _ = link.orders.send((order, Reached::of(&self.ipam)));
        }
    }

    /// Nothing of fipd's is in the cluster any more, its Secret neither.
    pub(in crate::clusters) async fn forget_proof(
        &mut self,
        left: &Text,
        names: &BTreeSet<Text>,
    ) -> Result<(), IpamError> {
        let ids: BTreeSet<ClusterId> = names.iter().filter_map(|name| self.owner(name)).collect();
        for id in ids {
            // A clone that was left by its own name proves nothing about the cluster.
            let is_its =
                |proof: ClusterProof| proof != ClusterProof::default() && proof.lead == *left;
            if self.proof(&id).is_some_and(is_its) {
                self.proofs.progress.remove(&id);
                self.record_proof(&id, ClusterProof::default(), &[]).await?;
            }
        }
        Ok(())
    }
}

/// 128 random bits in hex. `None`: the kernel gives none, and nothing is written without.
pub(super) fn random() -> Option<Text> {
    let mut bytes = [0; 16];
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::error!("no random numbers, so that no cluster can prove itself: {error}");
        return None;
    }
    Some(HEXLOWER.encode(&bytes).into())
}

/// The challenge value after this one.
pub(super) fn fresh(before: &str) -> Option<Text> {
    let number = serial(before).saturating_add(1);
    random().map(|random| format!("{number}-{random}").into())
}
