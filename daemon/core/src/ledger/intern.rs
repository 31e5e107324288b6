//! One copy of the texts that many leases share.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use crate::{ClusterId, Holder, Identity, Lease, System, Tenant, Text};

/// System, cluster, kind and namespace of the leases' holders, each group once, with the number of holders
/// that use it.
#[derive(Clone, Debug, Default)]
pub(super) struct Interner(BTreeMap<u64, Group>);

#[derive(Clone, Debug)]
struct Group {
    system: System,
    cluster: Option<ClusterId>,
    kind: Text,
    namespace: Text,
    /// The tenant seen first; nearly always that of the whole group.
    tenant: Option<Tenant>,
    uses: usize,
}

/// A number for an identity. The hash is keyed with constants: equal in every run, and nobody's identities
/// share one by accident. Whoever uses it compares the identities as well.
pub(super) fn fingerprint(identity: &Identity) -> u64 {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    hasher.finish()
}

fn group_of(identity: &Identity) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&identity.system, &identity.cluster, &identity.kind, &identity.namespace).hash(&mut hasher);
    hasher.finish()
}

impl Group {
    fn is_of(&self, identity: &Identity) -> bool {
        self.system == identity.system
            && self.cluster == identity.cluster
            && self.kind == identity.kind
            && self.namespace == identity.namespace
    }

    fn is_shared_with(&self, identity: &Identity) -> bool {
        Arc::ptr_eq(&self.kind, &identity.kind) && Arc::ptr_eq(&self.namespace, &identity.namespace)
    }

    fn share(&self, identity: &mut Identity) {
        identity.system = self.system.clone();
        identity.cluster.clone_from(&self.cluster);
        identity.kind = Arc::clone(&self.kind);
        identity.namespace = Arc::clone(&self.namespace);
    }
}

impl Interner {
    /// The same holder and tenant, with the shared copies of their texts where there are any.
    pub fn shared(&self, holder: &Holder, tenant: &Option<Tenant>) -> (Holder, Option<Tenant>) {
        let (mut holder, mut tenant) = (holder.clone(), tenant.clone());
        if let Some(group) = self.0.get(&group_of(&holder.identity)).filter(|g| g.is_of(&holder.identity)) {
            group.share(&mut holder.identity);
            if group.tenant == tenant {
                tenant.clone_from(&group.tenant);
            }
        }
        (holder, tenant)
    }

    /// Counts the holders of a lease about to be kept, and has it use the shared copies.
    pub fn keep(&mut self, lease: &mut Arc<Lease>) {
        let mut foreign = false;
        for (holder, tenant) in holders(lease) {
            foreign |= !self.count(holder, tenant);
        }
        if !foreign {
            return;
        }
        let lease = Arc::make_mut(lease);
        let groups = &self.0;
        let find = |identity: &Identity| groups.get(&group_of(identity)).filter(|g| g.is_of(identity));
        for member in &mut lease.members {
            if let Some(group) = find(&member.holder.identity) {
                group.share(&mut member.holder.identity);
                if group.tenant == lease.tenant {
                    lease.tenant.clone_from(&group.tenant);
                }
            }
        }
        for contender in &mut lease.contenders {
            if let Some(group) = find(&contender.holder.identity) {
                group.share(&mut contender.holder.identity);
            }
        }
    }

    /// Uncounts the holders of a lease that is no longer kept.
    pub fn drop(&mut self, lease: &Lease) {
        for (holder, _) in holders(lease) {
            let key = group_of(&holder.identity);
            let Some(group) = self.0.get_mut(&key).filter(|group| group.is_of(&holder.identity)) else {
                continue;
            };
            group.uses -= 1;
            if group.uses == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Counts one holder; false if its texts are other copies than the group's.
    fn count(&mut self, holder: &Holder, tenant: &Option<Tenant>) -> bool {
        let identity = &holder.identity;
        let group = self.0.entry(group_of(identity)).or_insert_with(|| Group {
            system: identity.system.clone(),
            cluster: identity.cluster.clone(),
            kind: Arc::clone(&identity.kind),
            namespace: Arc::clone(&identity.namespace),
            tenant: tenant.clone(),
            uses: 0,
        });
        if !group.is_of(identity) {
            return true;
        }
        group.uses += 1;
        group.is_shared_with(identity)
    }
}

fn holders(lease: &Lease) -> impl Iterator<Item = (&Holder, &Option<Tenant>)> {
    let members = lease.members.iter().map(|member| (&member.holder, &lease.tenant));
    members.chain(lease.contenders.iter().map(|contender| (&contender.holder, &contender.tenant)))
}
