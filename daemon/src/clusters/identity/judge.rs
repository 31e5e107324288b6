//! Verdicts on the ways to a cluster whose Secret is known: each has to show it. Pure.

use fipd_core::{ClusterProof, Text};
use tokio::time::Instant;

use super::{
    Act, Facts, Known, Seen, Shown, VALID, Verdict, is_named, join, led, rights_or_join, serial,
    vouched,
};

/// The cluster has a Secret: each way has to show it.
pub(super) fn with_nonce(
    known: &Known<'_>,
    proof: &ClusterProof,
    nonce: &Text,
    ways: &[Facts],
    acts: &mut Vec<Act>,
) -> Vec<Verdict> {
    let judge = Judge {
        known,
        proof,
        nonce,
        ways,
    };
    // Who led last is judged first: others have to prove themselves against it.
    let mut order: Vec<usize> = (0..ways.len()).collect();
    order.sort_by_key(|n| {
        (
            !ways[*n].proved,
            !led(proof, &ways[*n].key),
            ways[*n].key.0 != proof.lead,
        )
    });
    let mut verdicts = vec![Verdict::Waits(Text::default()); ways.len()];
    let mut prover = None;
    for n in order {
        let verdict = judge.way(&ways[n], prover, acts);
        if verdict == Verdict::Proven && ways[n].answers == Some(true) && prover.is_none() {
            prover = Some(&ways[n]);
        }
        verdicts[n] = verdict;
    }
    verdicts
}

struct Judge<'a> {
    known: &'a Known<'a>,
    proof: &'a ClusterProof,
    nonce: &'a Text,
    ways: &'a [Facts],
}

impl<'a> Judge<'a> {
    fn way(&self, way: &Facts, prover: Option<&'a Facts>, acts: &mut Vec<Act>) -> Verdict {
        let (name, lead) = (&way.key.0, &self.proof.lead);
        let Some(shown) = &way.shown else {
            return Verdict::Waits("it has not answered yet".into());
        };
        let (nonce, value) = match &shown.secret {
            Seen::Value { nonce, value } => (nonce, value),
            Seen::Absent | Seen::Hidden if !way.strict => return Verdict::Compared,
            Seen::Hidden => {
                let text = || {
                    let rights = rights_or_join(name, lead);
                    format!(
                        "fipd may not read the Secret fipd-identity, which proves that it is {lead}. {rights}"
                    )
                };
                let vouched = vouched(self.known, way, shown);
                return vouched.unwrap_or_else(|| Verdict::Conflict(text().into()));
            }
            Seen::Absent => {
                if self.taken_for_it(way, prover) {
                    return Verdict::Vouched;
                }
                let text = format!(
                    "it has the UID of {lead}, but not the Secret fipd-identity: it is a clone, or its etcd was restored to a time \
                     before. {}",
                    join(name, lead)
                );
                return Verdict::Conflict(text.into());
            }
        };
        if nonce != self.nonce {
            let text = format!(
                "it has the UID of {lead}, but another Secret fipd-identity: it is a clone, or another fipd serves it. {}",
                join(name, lead)
            );
            return Verdict::Conflict(text.into());
        }
        if !way.strict {
            return Verdict::Compared;
        }
        self.value(way, shown, value, prover, acts)
    }

    /// The nonce is right: is the challenge value?
    fn value(
        &self,
        way: &Facts,
        shown: &Shown,
        value: &Text,
        prover: Option<&'a Facts>,
        acts: &mut Vec<Act>,
    ) -> Verdict {
        let current = *value == self.proof.value || self.proof.next.as_ref() == Some(value);
        let read_before = self.read_before(shown);
        if way.proved && (current || read_before) {
            return Verdict::Proven;
        }
        if let Some(prover) = prover.filter(|prover| prover.key != way.key) {
            return match current || read_before {
                true => self.challenge(way, shown, value, prover, acts),
                false => self.older(way),
            };
        }
        if !self.may_lead(way) {
            return Verdict::Waits(
                format!("{} led last and has not answered yet", self.proof.lead).into(),
            );
        }
        if way.answers != Some(true) {
            return Verdict::Waits("it does not answer".into());
        }
        if current {
            acts.push(Act::Proved(way.key.clone()));
            return Verdict::Proven;
        }
        // The store is the older one, and its networks are held for that; or a second fipd waits for the lead of this one.
        let ahead = serial(value) > serial(&self.proof.value);
        if ahead && (way.proved || way.key.0 == self.proof.lead) {
            acts.push(Act::Record(ClusterProof {
                value: value.clone(),
                next: None,
                ..self.proof.clone()
            }));
            return Verdict::Waits("its Secret fipd-identity is newer than the store".into());
        }
        if self.taken_for_it(way, prover) {
            return Verdict::Vouched;
        }
        self.older(way)
    }

    /// Nothing contradicts an admin who says that it is this cluster: no way that has proved itself answers.
    fn taken_for_it(&self, way: &Facts, prover: Option<&Facts>) -> bool {
        way.strict && prover.is_none() && self.may_lead(way) && is_named(self.known, way)
    }

    fn read_before(&self, shown: &Shown) -> bool {
        let written = self.known.written;
        written.is_some_and(|written| shown.begun < written)
    }

    fn older(&self, way: &Facts) -> Verdict {
        let lead = &self.proof.lead;
        let text = format!(
            "its Secret fipd-identity has not the latest value: its etcd was restored, or it is a clone of {lead}. {}",
            join(&way.key.0, lead)
        );
        Verdict::Conflict(text.into())
    }

    /// Another way has proved itself and answers: this one has to show what is written through that.
    fn challenge(
        &self,
        way: &Facts,
        shown: &Shown,
        value: &Text,
        prover: &Facts,
        acts: &mut Vec<Act>,
    ) -> Verdict {
        let waits =
            Verdict::Waits(format!("it has to prove that it is {}", self.proof.lead).into());
        if way.answers != Some(true) {
            return waits;
        }
        if prover.shown.as_ref().is_some_and(|shown| shown.read_only) {
            let text = format!(
                "fipd may not write the Secret fipd-identity through {}, so it cannot prove that it is that cluster. {}",
                prover.key.0,
                rights_or_join(&way.key.0, &prover.key.0)
            );
            return match is_named(self.known, way) {
                true => Verdict::Vouched,
                false => Verdict::Conflict(text.into()),
            };
        }
        let now = self.known.now;
        let valid = |since: Instant| now.saturating_duration_since(since) < VALID;
        match self.known.round {
            Some(round) if valid(round.begun) => {
                if !round.written || round.target.as_ref() != Some(&way.key) {
                    waits
                } else if *value == round.value {
                    acts.push(Act::Proved(way.key.clone()));
                    Verdict::Proven
                } else if !self.read_before(shown) {
                    self.older(way)
                } else {
                    acts.push(Act::Look(way.key.clone()));
                    waits
                }
            }
            Some(_) | None => {
                let challenged = acts.iter().any(|act| matches!(act, Act::Challenge { .. }));
                if !challenged {
                    let (over, target) = (prover.key.clone(), way.key.clone());
                    acts.push(Act::Challenge { over, target });
                }
                waits
            }
        }
    }

    /// Without a way that has proved itself, the one that led last counts, and without that the latest value.
    fn may_lead(&self, way: &Facts) -> bool {
        if led(self.proof, &way.key) {
            return true;
        }
        let mut leading = self.ways.iter().filter(|other| led(self.proof, &other.key));
        !leading.any(|other| other.answers.is_none() && other.strict)
    }
}
