//! One copy of the texts that many leases share.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hasher},
    sync::Arc,
};

use crate::{ClusterId, Holder, Identity, Lease, System, Tenant, Text};

/// System, cluster, kind and namespace of the leases' holders, each group once, with the number of holders
/// that use it.
#[derive(Clone, Debug, Default)]
pub(super) struct Interner(BTreeMap<u64, HolderGroup>);

#[derive(Clone, Debug)]
struct HolderGroup {
    system: System,
    cluster: Option<ClusterId>,
    kind: Text,
    namespace: Text,
    /// The tenant seen first; nearly always that of the whole group.
    tenant: Option<Tenant>,
    uses: usize,
}

/// Numbers for an identity. The hash is keyed with constants: equal in every run, and nobody's identities share
/// one by accident. Whoever uses them compares the identities as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prints {
    /// Of system, cluster, kind and namespace.
    group: u64,
    /// Of all of it.
    pub whole: u64,
}

impl Prints {
    pub fn of(identity: &Identity) -> Self {
        let mut gathered = Gathered {
            hasher: DefaultHasher::new(),
            bytes: [0; 256],
            used: 0,
        };
        gathered.add(identity.system.as_str());
        gathered.add(identity.cluster.as_ref().map_or("", |cluster| &*cluster.0));
        gathered.add(&identity.kind);
        gathered.add(&identity.namespace);
        let group = gathered.finish();
        gathered.add(&identity.name);
        gathered.add(&identity.interface);
        Self {
            group,
            whole: gathered.finish(),
        }
    }
}

/// Hashes texts in few pieces: many short ones are what makes hashing slow.
struct Gathered {
    hasher: DefaultHasher,
    bytes: [u8; 256],
    used: usize,
}

impl Gathered {
    /// Ends a part; no UTF-8 text has this byte.
    const END: u8 = 0xff;

    fn add(&mut self, part: &str) {
        if self.used + part.len() >= self.bytes.len() {
            self.flush();
        }
        let room = self
            .bytes
            .get_mut(self.used..)
            .and_then(|room| room.split_at_mut_checked(part.len()));
        match room {
            Some((text, [end, ..])) => {
                text.copy_from_slice(part.as_bytes());
                *end = Self::END;
                self.used += part.len() + 1;
            }
            Some((_, [])) | None => {
                self.hasher.write(part.as_bytes());
                self.hasher.write_u8(Self::END);
            }
        }
    }

    fn flush(&mut self) {
        if let Some(bytes) = self.bytes.get(..self.used) {
            self.hasher.write(bytes);
        }
        self.used = 0;
    }

    fn finish(&mut self) -> u64 {
        self.flush();
        self.hasher.finish()
    }
}

/// [`Prints::whole`] alone.
pub(super) fn fingerprint(identity: &Identity) -> u64 {
    Prints::of(identity).whole
}

impl HolderGroup {
    fn is_of(&self, identity: &Identity) -> bool {
        self.is_shared_with(identity)
            || (self.system == identity.system
                && self.cluster == identity.cluster
                && self.kind == identity.kind
                && self.namespace == identity.namespace)
    }

    fn is_shared_with(&self, identity: &Identity) -> bool {
        Arc::ptr_eq(&self.kind, &identity.kind)
            && Arc::ptr_eq(&self.namespace, &identity.namespace)
            && self.system == identity.system
            && self.cluster == identity.cluster
    }

    /// The identity, which is of the group, with the group's copies of its texts.
    fn shared(&self, identity: &Identity) -> Identity {
        Identity {
            system: self.system.clone(),
            cluster: self.cluster.clone(),
            kind: Arc::clone(&self.kind),
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&identity.name),
            interface: Arc::clone(&identity.interface),
        }
    }
}

impl Interner {
    /// The same holder and tenant, with the shared copies of their texts where there are any.
    pub fn shared(
        &self,
        prints: Prints,
        holder: &Holder,
        tenant: &Option<Tenant>,
    ) -> (Holder, Option<Tenant>) {
        let Some(group) = self.group(prints, &holder.identity) else {
            return (holder.clone(), tenant.clone());
        };
        let same = group.tenant == *tenant;
        let tenant = if same { &group.tenant } else { tenant };
        let holder = Holder {
            identity: group.shared(&holder.identity),
            instance: Arc::clone(&holder.instance),
        };
        (holder, tenant.clone())
    }

    fn group(&self, prints: Prints, identity: &Identity) -> Option<&HolderGroup> {
        let group = self.0.get(&prints.group)?;
        group.is_of(identity).then_some(group)
    }

    /// Counts the only holder of a lease about to be kept, whose prints are known, and has it use the shared
    /// copies.
    pub fn keep_one(&mut self, prints: Prints, lease: &mut Arc<Lease>) {
        let Some(member) = lease.members.first() else {
            return;
        };
        if !self.count(prints, &member.holder, &lease.tenant) {
            self.share(lease);
        }
    }

    /// Counts the holders of a lease about to be kept, and has it use the shared copies.
    pub fn keep(&mut self, lease: &mut Arc<Lease>) {
        let mut foreign = false;
        for (holder, tenant) in holders(lease) {
            foreign |= !self.count(Prints::of(&holder.identity), holder, tenant);
        }
        if foreign {
            self.share(lease);
        }
    }

    /// Uncounts the holders of a lease that is no longer kept.
    pub fn drop(&mut self, lease: &Lease) {
        for (holder, _) in holders(lease) {
            let key = Prints::of(&holder.identity).group;
            let Some(group) = self
                .0
                .get_mut(&key)
                .filter(|group| group.is_of(&holder.identity))
            else {
                continue;
            };
            group.uses -= 1;
            if group.uses == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Counts one holder; false if its texts are other copies than the group's.
    fn count(&mut self, prints: Prints, holder: &Holder, tenant: &Option<Tenant>) -> bool {
        let identity = &holder.identity;
        let group = self.0.entry(prints.group).or_insert_with(|| HolderGroup {
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

    fn share(&self, lease: &mut Arc<Lease>) {
        let lease = Arc::make_mut(lease);
        let find = |identity: &Identity| self.group(Prints::of(identity), identity);
        for member in &mut lease.members {
            if let Some(group) = find(&member.holder.identity) {
                member.holder.identity = group.shared(&member.holder.identity);
                if group.tenant == lease.tenant {
                    lease.tenant.clone_from(&group.tenant);
                }
            }
        }
        for contender in &mut lease.contenders {
            if let Some(group) = find(&contender.holder.identity) {
                contender.holder.identity = group.shared(&contender.holder.identity);
            }
        }
    }
}

fn holders(lease: &Lease) -> impl Iterator<Item = (&Holder, &Option<Tenant>)> {
    let members = lease.members.iter();
    let contenders = lease.contenders.iter();
    members
        .map(|member| (&member.holder, &lease.tenant))
        .chain(contenders.map(|contender| (&contender.holder, &contender.tenant)))
}
