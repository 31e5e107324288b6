//! The validating webhooks: whether an API server may store an object of a system.
//!
//! They only spare people an object that would not be served: the controllers enforce the same rules whether they were asked or
//! not. They decide nothing and write nothing, and what they cannot check they let through with a warning.
//!
//! ```text
//!  AdmissionReview --review--> question --rules of the system (address book)--> verdict --review--> AdmissionReview
//! ```

pub mod proof;
pub mod review;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::{sync::Semaphore, time::Instant};

use crate::validation::Wrong;
use proof::Proof;
use review::{Question, Verdict};

/// How long an answer waits for what was written a moment before to be known.
pub const PATIENCE: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(25);
/// Answers that wait so at once; others are given as things look.
pub const PATIENT: usize = 64;

/// What API servers ask about for a system.
#[derive(Debug, PartialEq, Eq)]
pub struct Asks {
    /// The system, as commands name it.
    pub system: &'static str,
    /// The name of fipd's own object; an original's is another.
    pub name: &'static str,
    pub kinds: &'static [ReviewedKind],
    pub versions: &'static [&'static str],
    /// The object by whose dry run the webhook is proved, in the namespace `default` where that is not empty.
    pub sample: Sample,
    /// The original's own object, which is in the way where the original is gone.
    pub original: Option<OriginalWebhook>,
}

/// A kind that has rules.
#[derive(Debug, PartialEq, Eq)]
pub struct ReviewedKind {
    pub group: &'static str,
    pub plural: &'static str,
    /// What the API server asks about.
    pub operations: &'static [&'static str],
    /// The last part of the path at which the kind is judged.
    pub path: &'static str,
    pub namespaced: bool,
    /// Its name among the webhooks of the object.
    pub webhook: &'static str,
    /// All must hold for the API server to ask; none: it always does.
    pub conditions: &'static [MatchCondition],
}

/// What keeps objects of no concern from being asked about.
#[derive(Debug, PartialEq, Eq)]
pub struct MatchCondition {
    /// Begins with `fipd.io/`: conditions of other names are an admin's.
    pub name: &'static str,
    /// CEL.
    pub expression: &'static str,
}

/// The ValidatingWebhookConfiguration of an original.
#[derive(Debug, PartialEq, Eq)]
pub struct OriginalWebhook {
    pub name: &'static str,
    /// What nobody can write where it refuses: `a FloatingIP`.
    pub kinds: &'static str,
}

/// An object that the API server would store if it did not ask fipd.
#[derive(Debug, PartialEq, Eq)]
pub struct Sample {
    pub api: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespace: &'static str,
    /// JSON.
    pub spec: &'static str,
    /// The role that allows to create it.
    pub role: &'static str,
}

/// Judges what API servers ask about the kinds of a system.
pub trait Judge: Send + Sync {
    fn judge<'a>(
        &'a self,
        cluster: &'a str,
        kind: &'static ReviewedKind,
        question: &'a Question,
    ) -> BoxFuture<'a, Judged>;
}

/// What is answered to any question, for fuzzing.
#[cfg(any(test, feature = "fuzz"))]
pub type FuzzJudge = fn(&ReviewedKind, &Question) -> Verdict;

/// An answer, and whether anything was checked.
pub struct Judged {
    pub verdict: Verdict,
    pub checked: bool,
}

impl Judged {
    /// By the rules.
    pub fn checked(verdict: Verdict) -> Self {
        Self {
            verdict,
            checked: true,
        }
    }

    /// Not enough is known.
    pub fn unchecked() -> Self {
        let text = "fipd does not know this cluster completely at the moment: the object was not checked, and will be by fipd's controllers";
        Self {
            verdict: Verdict::warned(vec![text.to_owned()]),
            checked: false,
        }
    }
}

/// Judges by `look`, again and again for a while where what it denies may pass a moment later.
pub async fn judge_patiently(patient: &Semaphore, look: impl Fn() -> Judged) -> Judged {
    let began = Instant::now();
    let mut waits = None;
    loop {
        let judged = look();
        let denied = judged.verdict.denied.as_ref();
        let may_pass = denied.is_some_and(|one| one.may_pass);
        if waits.is_none() {
            waits = patient.try_acquire().ok();
        }
        if !may_pass || waits.is_none() || began.elapsed() >= PATIENCE {
            return judged;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// All kinds that are judged, and who judges them.
#[derive(Default)]
pub struct Admission(Vec<(&'static ReviewedKind, Arc<dyn Judge>)>);

impl Admission {
    pub fn new(systems: impl IntoIterator<Item = (&'static Asks, Arc<dyn Judge>)>) -> Self {
        let systems = systems.into_iter();
        let kinds = systems.flat_map(|(asks, judge)| {
            let kinds = asks.kinds.iter();
            kinds.map(move |kind| (kind, Arc::clone(&judge)))
        });
        Self(kinds.collect())
    }

    /// The kind that is judged at this path.
    pub fn kind(&self, path: &str) -> Option<&'static ReviewedKind> {
        let found = self.0.iter().find(|(kind, _)| kind.path == path);
        found.map(|(kind, _)| *kind)
    }

    /// Judges what the API server of the cluster asks.
    pub async fn judge(
        &self,
        cluster: &str,
        kind: &'static ReviewedKind,
        question: &Question,
    ) -> Judged {
        if let Some(refused) = Proof::judge(cluster, question) {
            return Judged::checked(refused);
        }
        match self.0.iter().find(|(one, _)| one.path == kind.path) {
            Some((_, judge)) => judge.judge(cluster, kind, question).await,
            None => Judged::unchecked(),
        }
    }
}

/// The spec of an object, whose schema is the API server's to enforce.
pub fn spec<T: DeserializeOwned>(value: &serde_json::Value) -> Result<T, Verdict> {
    serde_json::from_value(value.clone())
        .map_err(|error| Verdict::invalid(format!("spec: it does not fit its schema: {error}")))
}

/// A field that is not as it must be.
impl From<Wrong> for Verdict {
    fn from(wrong: Wrong) -> Self {
        Self::invalid(wrong.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::systems::ALL;

    #[test]
    fn every_kind_has_a_path_and_a_webhook_of_its_own() {
        let asks = || ALL.iter().filter_map(|system| system.asks());
        let kinds: Vec<_> = asks().flat_map(|asks| asks.kinds).collect();
        let paths: BTreeSet<_> = kinds.iter().map(|kind| kind.path).collect();
        let webhooks: BTreeSet<_> = kinds.iter().map(|kind| kind.webhook).collect();
        assert_eq!((paths.len(), webhooks.len()), (kinds.len(), kinds.len()));
        assert!(kinds.len() >= 5);
        for asks in asks() {
            let sampled = asks
                .kinds
                .iter()
                .any(|one| one.plural == asks.sample.plural);
            assert!(sampled && asks.name.contains(asks.system), "{asks:?}");
            let mut conditions = asks.kinds.iter().flat_map(|one| one.conditions);
            assert!(conditions.all(|one| one.name.starts_with("fipd.io/")));
        }
    }
}
