//! Which ways to a cluster have proved that they lead to it.
//!
//! A UID is copied by every restore and clone of an etcd, so a way proves itself by the Secret that fipd keeps in the cluster:
//! its nonce is the cluster's, and its challenge value is replaced at each use. One way writes a fresh value and another has to
//! show it. Pure: facts about ways in, verdicts and next steps out; [`progress`] carries them out.

mod admin;
mod facts;
mod first;
mod judge;
mod progress;
mod reached;
pub(crate) mod secret;
#[cfg(test)]
mod tests;

use std::time::Duration;

use fipd_core::{ClusterId, ClusterProof, Text};
use tokio::time::Instant;

pub(in crate::clusters) use self::progress::Proofs;
use super::sites::SiteWay;

/// How long a fresh challenge value proves anything.
pub(in crate::clusters) const VALID: Duration = Duration::from_secs(30);
/// A cluster of which nothing is known waits this long for ways that come first in the configuration.
pub(in crate::clusters) const GRACE: Duration = Duration::from_secs(2);

/// A way by the name of its site.
pub(in crate::clusters) type WayKey = (Text, SiteWay);

/// How far the decisions of a store have come, as its clusters know it. Orders by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::clusters) struct Reached {
    pub epoch: u64,
    pub commit: u64,
}

/// What a way showed when it was last asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::clusters) struct Shown {
    pub secret: Seen,
    /// What fipd noted in the Secret of its store.
    pub reached: Option<Reached>,
    /// SHA-256 of the certificates it trusts, or of the server's address where it names none; empty: not readable.
    pub ca: Text,
    /// The API server refused to let fipd write the Secret.
    pub read_only: bool,
    /// When the read of the Secret began.
    pub begun: Instant,
}

/// The Secret as one way shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::clusters) enum Seen {
    Absent,
    /// fipd may not read it.
    Hidden,
    Value {
        nonce: Text,
        value: Text,
    },
}

/// One way to a cluster.
#[derive(Clone, Debug)]
pub(in crate::clusters) struct Facts {
    pub key: WayKey,
    /// The cluster that an admin says it leads to.
    pub same_as: Option<Text>,
    /// What runs there holds leases: the UID and a matching nonce are not enough.
    pub strict: bool,
    /// `None`: it was not heard of yet.
    pub answers: Option<bool>,
    /// `None`: it never answered with this cluster's UID.
    pub shown: Option<Shown>,
    /// It has proved itself with the client it has now.
    pub proved: bool,
}

/// A challenge under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::clusters) struct Round {
    pub value: Text,
    /// Who has to show it. `None`: only the value is to be replaced.
    pub target: Option<WayKey>,
    /// Whether it is known to be in the Secret; `begun` is when that was then.
    pub written: bool,
    pub begun: Instant,
}

/// What is known of a cluster.
pub(in crate::clusters) struct Known<'a> {
    pub proof: Option<&'a ClusterProof>,
    /// Oldest first.
    pub names: &'a [Text],
    pub round: Option<&'a Round>,
    /// When the latest value was known to be in the Secret; earlier reads do not count.
    pub written: Option<Instant>,
    /// When the first way to it answered in this process.
    pub since: Instant,
    pub now: Instant,
}

/// What a way may be used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::clusters) enum Verdict {
    Proven,
    /// An admin vouches for it: an object counts as gone only after this way has shown it.
    Vouched,
    /// Enough for systems that hold no leases, and for nothing else.
    Compared,
    /// Not decided yet, and why.
    Waits(Text),
    /// Nothing runs over it; why, and the next step.
    Conflict(Text),
}

/// The next thing to do for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::clusters) enum Act {
    /// Remember this; everything is decided anew then.
    Record(ClusterProof),
    /// Create the Secret through this way.
    Create(WayKey),
    /// Replace the challenge value through `over`, for `target` to show it.
    Challenge { over: WayKey, target: WayKey },
    /// Ask this way now.
    Look(WayKey),
    /// This way has proved itself.
    Proved(WayKey),
}

/// A cluster that is known by this way, and not by its Secret.
fn known_by((site, way): &WayKey, ca: Text) -> ClusterProof {
    ClusterProof {
        ca,
        lead: site.clone(),
        way: way_text(way),
        ..ClusterProof::default()
    }
}

/// The verdict on each way, in the order of `ways`, and what to do next.
pub(in crate::clusters) fn decide(known: &Known<'_>, ways: &[Facts]) -> (Vec<Verdict>, Vec<Act>) {
    let mut acts = Vec::new();
    let nonce = known.proof.and_then(|proof| proof.nonce.as_ref());
    let verdicts = match (known.proof, nonce) {
        (Some(proof), Some(nonce)) => judge::with_nonce(known, proof, nonce, ways, &mut acts),
        (proof, _) => first::without_nonce(known, proof, ways, &mut acts),
    };
    (verdicts, acts)
}

/// The number in front of a challenge value: it grows with each.
pub(in crate::clusters) fn serial(value: &str) -> u64 {
    let number = value.split_once('-').map(|(number, _)| number.parse());
    number.and_then(Result::ok).unwrap_or(0)
}

/// Its place in the record of a cluster.
pub(in crate::clusters) fn way_text(way: &SiteWay) -> Text {
    match way {
        SiteWay::Config => Text::default(),
        SiteWay::Secret(secret) => secret.clone(),
    }
}

fn led(proof: &ClusterProof, key: &WayKey) -> bool {
    proof.lead == key.0 && proof.way == way_text(&key.1)
}

/// Whether an admin says that it is this cluster, where a Secret cannot say it.
fn vouched(known: &Known<'_>, way: &Facts, shown: &Shown) -> Option<Verdict> {
    let proof = known.proof.filter(|proof| !proof.lead.is_empty())?;
    let silent = matches!(shown.secret, Seen::Hidden) || proof.nonce.is_none();
    (silent && is_named(known, way)).then_some(Verdict::Vouched)
}

fn is_named(known: &Known<'_>, way: &Facts) -> bool {
    let named = way.same_as.as_ref();
    named.is_some_and(|name| known.names.contains(name))
}

fn join(name: &str, other: &str) -> String {
    format!(
        "If it is the same cluster, run `fipd clusters join {name} --as {other}`; if it is a clone, run `fipd clusters \
         new-identity {name}`"
    )
}

fn rights_or_join(name: &str, other: &str) -> String {
    format!(
        "Give fipd the role of packaging/rbac/identity.yaml (secrets: create, and get, update and delete of fipd-identity). {}",
        join(name, other)
    )
}

/// The id of a clone that was set apart from the cluster with its UID.
pub(in crate::clusters) fn apart(uid: &ClusterId, nonce: &str) -> ClusterId {
    let short: String = nonce.chars().take(8).collect();
    ClusterId(format!("{uid}.{short}").into())
}
