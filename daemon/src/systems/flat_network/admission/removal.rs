//! Whether what is in use may be deleted. What the cluster itself clears away may always go.

use std::net::IpAddr;

use fipd_core::{Identity, Ledger, System, Text};

use super::{
    BookReader, FlatFacts, holder_text,
    kinds::SUBNET,
    subnet::{counts, object_of},
};
use crate::{
    admission::{
        ReviewedKind,
        review::{Question, Verdict},
    },
    controller::store::Key,
    systems::flat_network::names::pod_key,
};

/// The controllers of a cluster that delete what has lost its namespace or owner. One without accounts of its own for each
/// controller deletes under its own name.
const CONTROLLERS: [&str; 3] = [
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:kube-controller-manager",
];
/// Leases that are looked at for users to name, and how many a message names.
const LOOKED_AT: usize = 200;
const NAMED: usize = 5;

/// What somebody deletes.
pub enum FlatRemoval {
    Subnet(String),
    /// The FlatNetworkIP with this key.
    Ip(Key),
}

impl FlatRemoval {
    /// The answer, where it may go whatever is in use. fipd and the garbage collector delete by UID, which nobody types.
    pub fn read(
        kind: &ReviewedKind,
        question: &Question,
        namespace: Option<&Text>,
    ) -> Result<Self, Verdict> {
        let clears = question.by_uid || CONTROLLERS.contains(&&*question.user);
        let old = question.old.as_ref();
        let ends = old.is_some_and(|old| old.metadata.deletion_timestamp.is_some());
        if question.subresource || clears || ends {
            return Err(Verdict::allowed());
        }
        if *kind != SUBNET {
            return Ok(Self::Ip(Key::new(&question.namespace, &question.name)));
        }
        match counts(question, namespace) {
            Ok(()) => Ok(Self::Subnet(question.name.clone())),
            // It counts for nothing.
            Err(_) => Err(Verdict::allowed()),
        }
    }

    pub fn judge(
        &self,
        facts: &dyn FlatFacts,
        book: &impl BookReader,
    ) -> Result<Vec<String>, Verdict> {
        match self {
            Self::Subnet(name) => subnet(name, facts, book),
            Self::Ip(ip) if facts.is_used(ip) => Err(Verdict::forbidden(format!(
                "pod {} has this address; delete the pod, and its FlatNetworkIP goes with it",
                pod_key(ip)
            ))
            .for_now()),
            Self::Ip(_) => Ok(Vec::new()),
        }
    }
}

/// Defect g1-20.
fn subnet(
    name: &str,
    facts: &dyn FlatFacts,
    book: &impl BookReader,
) -> Result<Vec<String>, Verdict> {
    let used = book.look(|ledger: &Ledger| {
        let system = System::flat_network();
        let pool = ledger.mirror(&system, facts.id(), &object_of(facts, name))?;
        let held = ledger.usage(pool.id)?.held();
        let leases = ledger.pool_leases(pool.id, None, LOOKED_AT).into_iter();
        let users =
            leases.filter_map(|lease| Some((lease.key.address, lease.owner()?.identity.clone())));
        (held > 0).then(|| (held, users.take(NAMED + 1).collect::<Vec<_>>()))
    });
    let Some((held, users)) = used else {
        return Ok(Vec::new());
    };
    let text =
        |(address, user): &(IpAddr, Identity)| format!("{address} by {}", holder_text(user, facts));
    let mut texts: Vec<String> = users.iter().take(NAMED).map(text).collect();
    if users.is_empty() {
        // Before them are very many that cool.
        texts.push(format!("{held} of them"));
    } else if users.len() > NAMED {
        texts.push("...".to_owned());
    }
    Err(Verdict::forbidden(format!(
        "addresses of the subnet are in use: {}; delete those pods and workloads first",
        texts.join(", ")
    ))
    .for_now())
}
