//! Whether an API server may store or delete a pool, a FloatingIP or a quota.

mod cluster;
mod deletion;
mod floating_ip;
mod pool;
mod quota;
#[cfg(any(test, feature = "fuzz"))]
mod sample;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{ClusterId, Ledger, NetworkId, Pool, System};
use fipd_crds::{floating_ip::GROUP, labels::WEBHOOK_CONFIGURATION};
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

pub use self::cluster::Admits;
use crate::{
    admission::{
        Asks, Judge, Judged, OriginalWebhook, PATIENCE, PATIENT, ReviewedKind, Sample,
        judge_patiently,
        review::{self, Operation, Question, Verdict},
        spec,
    },
    controller::pool_source::SourceFacts,
    ipam::Ipam,
};

/// The name of fipd's object.
pub const VALIDATOR: &str = "fipd-rancher-fip-validator";

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];

pub const FLOATING_IP: ReviewedKind = ReviewedKind {
    group: GROUP,
    plural: "floatingips",
    operations: ALL,
    path: "validate-floatingip",
    namespaced: true,
    webhook: "floatingips.rancher-fip.fipd.io",
    conditions: &[],
};
pub const POOL: ReviewedKind = ReviewedKind {
    group: GROUP,
    plural: "floatingippools",
    operations: ALL,
    path: "validate-floatingippool",
    namespaced: false,
    webhook: "floatingippools.rancher-fip.fipd.io",
    conditions: &[],
};
pub const QUOTA: ReviewedKind = ReviewedKind {
    group: GROUP,
    plural: "floatingipprojectquotas",
    operations: WRITES,
    path: "validate-floatingipprojectquota",
    namespaced: false,
    webhook: "floatingipprojectquotas.rancher-fip.fipd.io",
    conditions: &[],
};

/// What API servers of management clusters ask about.
pub static ASKS: Asks = Asks {
    system: "rancher-fip",
    name: VALIDATOR,
    kinds: &[FLOATING_IP, POOL, QUOTA],
    versions: &["v1beta1", "v1beta2"],
    sample: Sample {
        api: "apis/rancher.k8s.binbash.org/v1beta2",
        kind: "FloatingIP",
        plural: "floatingips",
        namespace: "default",
        spec: r#"{ "floatingIPPool": "fipd-webhook-proof" }"#,
        role: "packaging/rbac/rancher-fip-management.yaml",
    },
    original: Some(OriginalWebhook {
        name: WEBHOOK_CONFIGURATION,
        kinds: "a FloatingIP or a FloatingIPPool",
    }),
};

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
    /// The network that the pool of this name would be in; `None`: one that is yet to be made.
    fn network(&self, ledger: &Ledger, pool: &str, facts: &SourceFacts<'_>) -> Option<NetworkId>;
    /// Whether a project without a quota gets nothing.
    fn quota_required(&self) -> bool;
    /// Whether the cluster that Rancher calls so is connected, and no Service of its complete list shows the address.
    fn shows_nowhere(&self, cluster: &str, address: IpAddr) -> bool;
    /// Whether the namespace is being deleted or gone, by a fresh read; not where fipd may not read it.
    fn is_ending<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, bool>;
}

/// Finds a management cluster by its configured name; `None`: it is not known, or not completely, or another program leads
/// there.
type Find = dyn Fn(&str) -> Option<Arc<dyn Management>> + Send + Sync;

/// Judges pools, FloatingIPs and quotas of all management clusters.
pub struct FamilyJudge {
    find: Box<Find>,
    ipam: Ipam,
    patient: Semaphore,
}

impl FamilyJudge {
    pub fn new(find: Box<Find>, ipam: Ipam) -> Self {
        Self {
            find,
            ipam,
            patient: Semaphore::new(PATIENT),
        }
    }

    async fn judge_write(&self, cluster: &str, kind: &ReviewedKind, question: &Question) -> Judged {
        let look = || {
            let Some(management) = (self.find)(cluster) else {
                return Judged::unchecked();
            };
            if question.own && management.is_fipd(&question.user) {
                return Judged::checked(Verdict::allowed());
            }
            // Nobody else can read or write the address book while it is looked at, so not before all else is done.
            let cluster = &*management;
            let verdict = match rule(kind, question, cluster) {
                Err(verdict) => verdict,
                Ok(rule) => self
                    .ipam
                    .read(|ledger| judged(&rule, Book { ledger, cluster })),
            };
            Judged::checked(verdict)
        };
        judge_patiently(&self.patient, look).await
    }

    async fn judge_delete(
        &self,
        cluster: &str,
        kind: &ReviewedKind,
        question: &Question,
    ) -> Judged {
        let Some(object) = deletion::subject(kind, question) else {
            return Judged::checked(Verdict::allowed());
        };
        let Some(management) = (self.find)(cluster) else {
            return Judged::unchecked();
        };
        // fipd deletes by UID alone, which tells it from an admin who has the same user.
        if question.by_uid && management.is_fipd(&question.user) {
            return Judged::checked(Verdict::allowed());
        }
        let verdict = self.ipam.read(|ledger| {
            let cluster = &*management;
            deletion::judge(kind, question, object, Book { ledger, cluster })
        });
        if verdict.denied.is_some() && !question.namespace.is_empty() {
            let ending = management.is_ending(&question.namespace);
            // Who is not answered in time may delete.
            if tokio::time::timeout(PATIENCE, ending).await == Ok(true) {
                return Judged::checked(Verdict::allowed());
            }
        }
        Judged::checked(verdict)
    }
}

impl Judge for FamilyJudge {
    fn judge<'a>(
        &'a self,
        cluster: &'a str,
        kind: &'static ReviewedKind,
        question: &'a Question,
    ) -> BoxFuture<'a, Judged> {
        Box::pin(async move {
            if question.operation == Operation::Delete {
                return self.judge_delete(cluster, kind, question).await;
            }
            if question.passes() {
                return Judged::checked(Verdict::allowed());
            }
            self.judge_write(cluster, kind, question).await
        })
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

/// What the address book has to say of a question, with all else looked at: what is warned of.
type Rule<'a> = Box<dyn Fn(Book<'_>) -> Result<Vec<String>, Verdict> + 'a>;

/// The answer, where it needs no address book.
fn rule<'a>(
    kind: &ReviewedKind,
    question: &'a Question,
    cluster: &dyn Management,
) -> Result<Rule<'a>, Verdict> {
    if *kind == POOL {
        return pool::rule(question);
    }
    if *kind == QUOTA {
        return quota::rule(question, cluster);
    }
    Ok(Box::new(move |book: Book<'_>| {
        floating_ip::judge(question, book)
    }))
}

fn judged(rule: &Rule<'_>, book: Book<'_>) -> Verdict {
    let mut verdict = rule(book).map_or_else(|verdict| verdict, Verdict::warned);
    let more = verdict.warnings.len().saturating_sub(WARNINGS);
    verdict.warnings.truncate(WARNINGS);
    if more > 0 {
        verdict.warnings.push(format!("and {more} more"));
    }
    verdict
}

/// What is said of a question where there is a pool `net`, of which the FloatingIP `c-m-a/a` of project `p-1` has 10.0.0.11.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz(kind: &ReviewedKind, question: &Question) -> Verdict {
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
