//! Whether subnets, workloads and pods of the flat network and the addresses of pods may be stored or deleted.
//!
//! Workloads and pods without the annotations are kept away by conditions, and no label switches a rule off. What is refused
//! here is refused by the controllers as well, which show it at the object.

mod kinds;
mod removal;
#[cfg(any(test, feature = "fuzz"))]
mod sample;
mod subnet;
mod template;
mod workload;

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{ClusterId, Identity, Ledger, System, Text};
use futures::future::BoxFuture;
use parking_lot::RwLock;
use tokio::sync::Semaphore;

pub use self::kinds::ASKS;
use self::{
    kinds::{IP, SUBNET},
    removal::FlatRemoval,
    subnet::SubnetWrite,
    workload::WorkloadWrite,
};
use crate::{
    admission::{
        Judge, Judged, PATIENT, ReviewedKind, judge_patiently,
        review::{Operation, Question, Verdict},
    },
    controller::store::Key,
    ipam::Ipam,
    systems::flat_network::names::pod_key,
    validation::{
        Wrong,
        flat_network::{mac::MacAddress, subnet::FlatSubnet, workload::WorkloadRef},
    },
};

/// The most that one answer warns of.
const WARNINGS: usize = 5;

/// Kind of the identities of pods in the address book.
const KIND_IP: &str = "FlatNetworkIP";
/// Kind of a pod that is of no workload.
const KIND_POD: &str = "Pod";

/// What the controllers know of a cluster, once they know it completely.
pub trait FlatFacts: Send + Sync {
    fn id(&self) -> &ClusterId;

    /// The one whose subnets count.
    fn namespace(&self) -> &Text;

    /// Whether the session it is of goes on.
    fn lives(&self) -> bool;

    /// Whether this is fipd's own user there, as far as the API server says.
    fn is_fipd(&self, user: &str) -> bool;

    /// All subnets that are in force, by name.
    fn subnets(&self) -> Vec<(String, Arc<FlatSubnet>)>;

    /// The subnet of this name, as it is in force.
    fn subnet(&self, name: &str) -> Option<Arc<FlatSubnet>>;

    /// The subnet of the other family that pods of this one get addresses of, or why there is none and what to do.
    fn partner(&self, name: &str) -> Result<String, String>;

    /// The name of the network that a new pool of this subnet would be in; `annotation` is what the object says of it.
    fn network(&self, name: &str, subnet: &FlatSubnet, annotation: Option<&str>) -> String;

    /// The pod that has the MAC on the subnet.
    fn mac_user(&self, subnet: &str, mac: &MacAddress) -> Option<Key>;

    /// The workload that the pod is of: the last of its owners that is a Deployment, DaemonSet, StatefulSet, CronJob or Job.
    fn workload_of(&self, pod: &Key) -> Option<WorkloadRef>;

    /// Whether a pod that is not being deleted has the address with this key, or asks for it.
    fn is_used(&self, ip: &Key) -> bool;
}

/// The clusters that are known completely, by the names that they are asked under.
#[derive(Clone, Default)]
pub struct FlatClusters(Arc<RwLock<BTreeMap<String, Arc<dyn FlatFacts>>>>);

impl FlatClusters {
    /// From here on questions of the cluster are judged, for as long as the facts live.
    pub fn add(&self, name: &str, facts: Arc<dyn FlatFacts>) {
        self.0.write().insert(name.to_owned(), facts);
    }

    fn of(&self, name: &str) -> Option<Arc<dyn FlatFacts>> {
        let facts = self.0.read().get(name).cloned();
        facts.filter(|facts| facts.lives())
    }
}

/// The address book, which nobody writes while it is read.
trait BookReader {
    fn look<R>(&self, look: impl FnOnce(&Ledger) -> R) -> R;
}

impl BookReader for Ipam {
    fn look<R>(&self, look: impl FnOnce(&Ledger) -> R) -> R {
        self.read(look)
    }
}

/// A question whose object is as it must be by itself.
enum FlatQuestion {
    Subnet(Box<SubnetWrite>),
    Workload(Box<WorkloadWrite>),
    Removal(FlatRemoval),
}

impl FlatQuestion {
    /// Reads it; the answer, where that needs nothing but the object and who writes. `None`: the cluster is not known.
    fn read(
        kind: &ReviewedKind,
        question: &Question,
        facts: Option<&dyn FlatFacts>,
    ) -> Result<Self, Verdict> {
        let namespace = facts.map(|facts| facts.namespace());
        if question.operation == Operation::Delete {
            return FlatRemoval::read(kind, question, namespace).map(Self::Removal);
        }
        let writes = matches!(question.operation, Operation::Create | Operation::Update);
        let ends = question.object.metadata.deletion_timestamp.is_some();
        if !writes || ends || question.subresource {
            return Err(Verdict::allowed());
        }
        if *kind == SUBNET {
            let write = SubnetWrite::read(question, namespace)?;
            return Ok(Self::Subnet(Box::new(write)));
        }
        // fipd writes what the pod says, and shows what is wrong with it there.
        let by_fipd = || facts.is_none_or(|facts| facts.is_fipd(&question.user));
        if *kind == IP && question.own && by_fipd() {
            return Err(Verdict::allowed());
        }
        let write = match *kind == IP {
            true => WorkloadWrite::of_ip(question),
            false => WorkloadWrite::of_template(kind, question),
        };
        Ok(Self::Workload(Box::new(write?)))
    }

    /// By what is known of the cluster and the address book.
    fn verdict(&self, facts: &dyn FlatFacts, book: &impl BookReader) -> Verdict {
        let warnings = match self {
            Self::Subnet(write) => write.judge(facts, book),
            Self::Workload(write) => write.judge(facts, book),
            Self::Removal(removal) => removal.judge(facts, book),
        };
        let mut verdict = warnings.map_or_else(|verdict| verdict, Verdict::warned);
        verdict.warnings.truncate(WARNINGS);
        verdict
    }
}

/// Judges what API servers ask of all clusters.
pub struct FlatJudge {
    ipam: Ipam,
    clusters: FlatClusters,
    patient: Semaphore,
}

impl FlatJudge {
    pub fn new(ipam: Ipam, clusters: FlatClusters) -> Self {
        Self {
            ipam,
            clusters,
            patient: Semaphore::new(PATIENT),
        }
    }

    async fn answer(&self, cluster: &str, kind: &ReviewedKind, question: &Question) -> Judged {
        let facts = self.clusters.of(cluster);
        let asked = match FlatQuestion::read(kind, question, facts.as_deref()) {
            Ok(asked) => asked,
            Err(verdict) => return Judged::checked(verdict),
        };
        let look = move || {
            let Some(facts) = self.clusters.of(cluster) else {
                return Judged::unchecked();
            };
            Judged::checked(asked.verdict(&*facts, &self.ipam))
        };
        judge_patiently(&self.patient, look).await
    }
}

impl Judge for FlatJudge {
    fn judge<'a>(
        &'a self,
        cluster: &'a str,
        kind: &'static ReviewedKind,
        question: &'a Question,
    ) -> BoxFuture<'a, Judged> {
        Box::pin(self.answer(cluster, kind, question))
    }
}

/// What rests on what is known of others may be over in a moment.
fn for_now(wrong: Wrong) -> Verdict {
    Verdict::from(wrong).for_now()
}

/// Who has an address, in the words of its cluster. What other clusters and systems have is not told.
fn holder_text(identity: &Identity, facts: &dyn FlatFacts) -> String {
    if !is_here(identity, facts) {
        return "another system or cluster".to_owned();
    }
    let pod = pod_key(&Key::new(&identity.namespace, &identity.name));
    match &*identity.kind {
        KIND_IP => facts
            .workload_of(&pod)
            .map_or_else(|| format!("pod {pod}"), |one| one.to_string()),
        kind => format!("{kind}/{}/{}", identity.namespace, identity.name),
    }
}

/// Whether it is of the flat network of the cluster.
fn is_here(identity: &Identity, facts: &dyn FlatFacts) -> bool {
    identity.system == System::flat_network() && identity.cluster.as_ref() == Some(facts.id())
}

/// What is said of a question in a made-up cluster.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn fuzz(kind: &ReviewedKind, question: &Question) -> Verdict {
    sample::Lab::new().judge(kind, question)
}

#[cfg(test)]
mod tests;
