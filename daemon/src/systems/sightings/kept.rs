//! What foreign Services of a cluster have in the address book.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::{ClusterId, Holder, Identity, Lease, LeaseKey, Span, System};

use super::observe::ForeignService;
use crate::clusters::{
    ClusterSession,
    adoption::{for_each_contended, for_each_held},
};

/// What each Service shows; `None` where that cannot be read.
pub type Shown<'s> = BTreeMap<&'s Identity, Option<&'s ForeignService>>;

/// Leases that foreign Services of a cluster hold, and those that they contend for.
pub struct Kept {
    cluster: ClusterId,
    pub held: Vec<Arc<Lease>>,
    pub contended: Vec<Arc<Lease>>,
}

impl Kept {
    pub fn of(session: &ClusterSession) -> Self {
        let id = &session.id;
        let (mut held, mut contended) = (Vec::new(), Vec::new());
        for_each_held(session, &System::foreign(), |lease| {
            held.push(Arc::clone(lease));
        });
        for_each_contended(session, |lease| {
            let mut contenders = lease.contenders.iter();
            if contenders.any(|one| is_of(&one.holder, id)) {
                contended.push(Arc::clone(lease));
            }
        });
        Self {
            cluster: id.clone(),
            held,
            contended,
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Lease>> {
        self.held.iter().chain(&self.contended)
    }

    /// Foreign holders and contenders of the cluster.
    pub fn owners(&self) -> BTreeSet<Holder> {
        let owners = self.all().flat_map(|lease| uses_of(lease, &self.cluster));
        owners.map(|(holder, _)| holder.clone()).collect()
    }

    /// Services that are there and do not show all that they have.
    pub fn partial(&self, shown: &Shown<'_>) -> BTreeSet<Identity> {
        let mut partial = BTreeSet::new();
        let shows = |identity: &Identity, span: Span| {
            let known = shown.get(identity).copied().flatten();
            known.is_none_or(|known| has_some(&known.addresses, span))
        };
        for lease in self.all() {
            for (holder, spans) in uses_of(lease, &self.cluster) {
                let identity = &holder.identity;
                if !spans.into_iter().all(|span| shows(identity, span)) {
                    partial.insert(identity.clone());
                }
            }
        }
        partial
    }
}

/// Whether some of the addresses are in all that the owner has of the lease or contends for.
pub fn shows_all(addresses: &BTreeSet<IpAddr>, lease: &Lease, owner: &Identity) -> bool {
    let mut parts = lease.parts_of(owner);
    parts.all(|part| has_some(addresses, part.span()))
}

fn has_some(addresses: &BTreeSet<IpAddr>, span: Span) -> bool {
    let mut near = addresses.range(span.first_address()..=span.last_address());
    near.next().is_some()
}

/// Keys of leases.
pub fn keys(leases: &[Arc<Lease>]) -> BTreeSet<LeaseKey> {
    leases.iter().map(|lease| lease.key).collect()
}

/// Whether it is a foreign Service of the cluster.
pub fn is_of(holder: &Holder, cluster: &ClusterId) -> bool {
    holder.identity.is_foreign() && holder.identity.cluster.as_ref() == Some(cluster)
}

/// Foreign holders and contenders of the cluster, and what each has of the lease.
fn uses_of<'a>(
    lease: &'a Lease,
    cluster: &'a ClusterId,
) -> impl Iterator<Item = (&'a Holder, Vec<Span>)> {
    let members = lease.members.iter();
    let members = members.map(|member| (&member.holder, vec![lease.span()]));
    let contenders = lease.contenders.iter().map(|one| {
        let uses = one.used_of(lease.prefix()).map(|used| used.span());
        (&one.holder, uses.collect())
    });
    let all = members.chain(contenders);
    all.filter(|(holder, _)| is_of(holder, cluster))
}
