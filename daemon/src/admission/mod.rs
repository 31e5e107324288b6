//! The validating webhooks: whether an API server may store a pool, a FloatingIP or a quota of the rancher-fip family, or an
//! IPRule or an Agent.
//!
//! It only spares people an object that would not be served: the controllers enforce the same rules whether it was asked or
//! not. It decides nothing and writes nothing, and what it cannot check it lets through with a warning.
//!
//! ```text
//!  AdmissionReview --review--> question --rules (validation, address book)--> verdict --review--> AdmissionReview
//! ```

mod deletion;
mod floating_ip;
mod ip_rule;
mod pool;
pub mod proof;
mod quota;
pub mod review;
#[cfg(any(test, feature = "fuzz"))]
mod sample;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use fipd_core::{ClusterId, Ledger, NetworkId, Pool, System};
use futures::future::BoxFuture;
use tokio::{sync::Semaphore, time::Instant};

use crate::{ipam::Ipam, validation::Wrong};
use proof::Proof;
use review::{Kind, Operation, Question, Verdict};

/// How long an answer waits for what was written a moment before to be known.
const PATIENCE: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(25);
/// Answers that wait so at once; others are given as things look.
const PATIENT: usize = 64;
/// The most that one answer warns of.
const WARNINGS: usize = 5;

/// A management cluster, as its controllers know it.
pub trait Management: Send + Sync {
    fn id(&self) -> &ClusterId;
    /// As it is configured.
    fn name(&self) -> &str;
    /// Whether this is fipd's own user there, as far as the API server says.
    fn is_fipd(&self, user: &str) -> bool;
    /// Whether there is a FloatingIPPool of this name, however it is.
    fn has_pool(&self, name: &str) -> bool;
    /// The real names of pools, by what quotas may call them beside those.
    fn other_names(&self) -> BTreeMap<String, Vec<String>>;
    /// The network that the pool would be in; `None`: one that is yet to be made.
    fn network(&self, ledger: &Ledger, pool: &NewPool<'_>) -> Option<NetworkId>;
    /// Whether a project without a quota gets nothing.
    fn quota_required(&self) -> bool;
    /// Whether the cluster that Rancher calls so is connected, and no Service of its complete list shows the address.
    fn shows_nowhere(&self, cluster: &str, address: IpAddr) -> bool;
    /// Whether the namespace is being deleted or gone, by a fresh read; not where fipd may not read it.
    fn is_ending<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, bool>;
}

/// What decides about the network of a pool.
#[derive(Clone, Copy, Debug)]
pub struct NewPool<'a> {
    pub name: &'a str,
    pub interface: &'a str,
    /// Value of the annotation `fipd.io/network`.
    pub annotation: Option<&'a str>,
}

/// Finds management clusters by their configured name.
pub trait Managements: Send + Sync {
    /// `None`: it is not known, or not completely, or another program leads there.
    fn get(&self, name: &str) -> Option<Arc<dyn Management>>;
}

/// Judges what API servers ask.
pub struct Admission {
    managements: Option<Box<dyn Managements>>,
    ipam: Ipam,
    patient: Semaphore,
}

/// An answer, and whether anything was checked.
pub struct Judged {
    pub verdict: Verdict,
    pub checked: bool,
}

impl Admission {
    pub fn new(managements: Option<Box<dyn Managements>>, ipam: Ipam) -> Self {
        Self {
            managements,
            ipam,
            patient: Semaphore::new(PATIENT),
        }
    }

    /// Judges what the API server of the cluster asks.
    pub async fn judge(&self, cluster: &str, kind: Kind, question: &Question) -> Judged {
        let checked = |verdict| Judged {
            verdict,
            checked: true,
        };
        if let Some(refused) = Proof::judge(question) {
            return checked(refused);
        }
        if question.operation == Operation::Delete {
            return self.judge_delete(cluster, kind, question).await;
        }
        if question.passes() {
            return checked(Verdict::allowed());
        }
        match kind {
            Kind::IpRule => return checked(ip_rule::rule(question)),
            Kind::Agent => return checked(ip_rule::agent(question)),
            Kind::FloatingIp | Kind::Pool | Kind::Quota => {}
        }
        let began = Instant::now();
        let mut waits = None;
        loop {
            let Some(management) = self.management(cluster) else {
                return unchecked();
            };
            if question.own && management.is_fipd(&question.user) {
                return checked(Verdict::allowed());
            }
            // Nobody else can read or write the address book while it is looked at, so not before all else is done.
            let verdict = match Asked::read(kind, question, &*management) {
                Err(verdict) => verdict,
                Ok(asked) => self.ipam.read(|ledger| {
                    let cluster = &*management;
                    asked.judge(question, Book { ledger, cluster })
                }),
            };
            let may_pass = verdict.denied.as_ref().is_some_and(|one| one.may_pass);
            if waits.is_none() {
                waits = self.patient.try_acquire().ok();
            }
            if !may_pass || waits.is_none() || began.elapsed() >= PATIENCE {
                return checked(verdict);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn management(&self, cluster: &str) -> Option<Arc<dyn Management>> {
        self.managements.as_ref()?.get(cluster)
    }

    async fn judge_delete(&self, cluster: &str, kind: Kind, question: &Question) -> Judged {
        let checked = |verdict| Judged {
            verdict,
            checked: true,
        };
        let Some(object) = deletion::subject(kind, question) else {
            return checked(Verdict::allowed());
        };
        let Some(management) = self.management(cluster) else {
            return unchecked();
        };
        // fipd deletes by UID alone, which tells it from an admin who has the same user.
        if question.by_uid && management.is_fipd(&question.user) {
            return checked(Verdict::allowed());
        }
        let verdict = self.ipam.read(|ledger| {
            let cluster = &*management;
            deletion::judge(kind, question, object, Book { ledger, cluster })
        });
        if verdict.denied.is_some() && !question.namespace.is_empty() {
            let ending = management.is_ending(&question.namespace);
            // Who is not answered in time may delete.
            if tokio::time::timeout(PATIENCE, ending).await == Ok(true) {
                return checked(Verdict::allowed());
            }
        }
        checked(verdict)
    }
}

fn unchecked() -> Judged {
    let text = "fipd does not know this cluster completely at the moment: the object was not checked, and will be by fipd's controllers";
    Judged {
        verdict: Verdict::warned(vec![text.to_owned()]),
        checked: false,
    }
}

/// What the rules look at.
#[derive(Clone, Copy)]
struct Book<'a> {
    ledger: &'a Ledger,
    cluster: &'a dyn Management,
}

impl<'a> Book<'a> {
    /// The pool that gives addresses for the FloatingIPPool of this name.
    fn mirror(self, name: &str) -> Option<&'a Arc<Pool>> {
        let system = System::rancher_fip();
        self.ledger.mirror(&system, self.cluster.id(), name)
    }
}

/// What is asked, with all that the address book does not say.
enum Asked {
    FloatingIp,
    Pool(Box<pool::Asked>),
    Quota(quota::Asked),
}

impl Asked {
    /// The answer, where it needs no address book.
    fn read(kind: Kind, question: &Question, cluster: &dyn Management) -> Result<Self, Verdict> {
        match kind {
            Kind::FloatingIp => Ok(Self::FloatingIp),
            Kind::Pool => pool::Asked::read(question).map(|asked| Self::Pool(Box::new(asked))),
            Kind::Quota => quota::Asked::read(question, cluster).map(Self::Quota),
            Kind::IpRule => Err(ip_rule::rule(question)),
            Kind::Agent => Err(ip_rule::agent(question)),
        }
    }

    fn judge(&self, question: &Question, book: Book<'_>) -> Verdict {
        let mut verdict = match self {
            Self::FloatingIp => floating_ip::judge(question, book),
            Self::Pool(asked) => asked.judge(question, book),
            Self::Quota(asked) => asked.judge(question, book),
        };
        let more = verdict.warnings.len().saturating_sub(WARNINGS);
        verdict.warnings.truncate(WARNINGS);
        if more > 0 {
            verdict.warnings.push(format!("and {more} more"));
        }
        verdict
    }
}

/// The spec of an object, whose schema is the API server's to enforce.
fn spec<T: serde::de::DeserializeOwned>(value: &serde_json::Value) -> Result<T, Verdict> {
    serde_json::from_value(value.clone())
        .map_err(|error| Verdict::invalid(format!("spec: it does not fit its schema: {error}")))
}

fn invalid(wrong: &Wrong) -> Verdict {
    Verdict::invalid(wrong.to_string())
}

/// What is said of a question where there is a pool `net`, of which the FloatingIP `c-m-a/a` of project `p-1` has 10.0.0.11.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz(kind: Kind, question: &Question) -> Verdict {
    let rancher = sample::Rancher::new().quota("p-1", 2);
    rancher.fip("10.0.0.11", "a", "p-1").answer(kind, question)
}

/// The first few of a list, for a message.
fn some<T: ToString>(all: impl Iterator<Item = T>, most: usize) -> Vec<String> {
    let mut texts: Vec<String> = all.take(most + 1).map(|one| one.to_string()).collect();
    if texts.len() > most {
        texts.truncate(most);
        texts.push("...".to_owned());
    }
    texts
}

#[cfg(test)]
mod tests;
