//! How fipd proves that an API server asks it: the API server is asked to create, as a dry run, an object that only this
//! process refuses.

use std::{collections::BTreeMap, sync::LazyLock};

use parking_lot::Mutex;

use super::review::{Operation, Question, Verdict};

/// What only this process knows until it answers: a webhook that leads elsewhere cannot give the answer.
static SECRET: LazyLock<Option<(u64, u64)>> =
    LazyLock::new(|| Some((getrandom::u64().ok()?, getrandom::u64().ok()?)));

/// How often each cluster asked about that object, by the name that it asks under.
static ASKED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// The object to create and the text of its refusal; `None`: the system has no random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub name: String,
    pub refusal: String,
}

impl Proof {
    /// That of this process.
    pub fn own() -> Option<Self> {
        let (name, refusal) = (*SECRET)?;
        Some(Self {
            name: format!("fipd-webhook-proof-{name:016x}"),
            refusal: format!("fipd was asked: {refusal:016x}"),
        })
    }

    /// The refusal of the object that [`Self::name`] names; `None`: another one.
    pub fn judge(cluster: &str, question: &Question) -> Option<Verdict> {
        let own = Self::own()?;
        let asked = question.operation == Operation::Create && question.name == own.name;
        asked.then(|| {
            Self::note_asked(cluster);
            Verdict::forbidden(own.refusal)
        })
    }

    pub fn note_asked(cluster: &str) {
        *ASKED.lock().entry(cluster.to_owned()).or_default() += 1;
    }

    /// How often the cluster asked about the object so far.
    pub fn times_asked(cluster: &str) -> u64 {
        ASKED.lock().get(cluster).copied().unwrap_or_default()
    }
}
