//! What the pools of a management cluster are called, and which belong together.

use std::collections::BTreeMap;

use fipd_core::Text;
use fipd_crds::floating_ip::{FloatingIPPool, pool_name};
use kube::ResourceExt as _;

use super::{
    super::names::{DEFAULT_NETWORK, PARTNER_POOL},
    Data,
};
use crate::controller::store::Key;

/// Why a cluster has no default pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDefault {
    None,
    Several(Vec<String>),
}

impl Data {
    /// The real name of the only pool that a user calls `name`.
    pub fn pool_called(&self, name: &str) -> Option<String> {
        let mut names = self.pools_called(name).into_iter();
        names.next().filter(|_| names.next().is_none())
    }

    /// The real names of all pools by `<display name>--<network>`.
    pub fn other_pool_names(&self) -> BTreeMap<String, Vec<String>> {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, pool) in self.pools.all() {
            let (cluster, network) = (&pool.spec.target_cluster, &pool.spec.target_network);
            let other = pool_name(cluster, network);
            names.entry(other).or_default().push(key.name.to_string());
        }
        names
    }

    /// The real names of the pools that a user calls `name`: its own name, or else `<display name>--<network>`.
    pub fn pools_called(&self, name: &str) -> Vec<String> {
        self.pools_called_by(name, |name| self.other_pool_names().remove(name))
    }

    /// As [`Self::pools_called`], for many names: `other` looks into what [`Self::other_pool_names`] said.
    pub fn pools_called_by(
        &self,
        name: &str,
        other: impl FnOnce(&str) -> Option<Vec<String>>,
    ) -> Vec<String> {
        if self.pools.get(&Key::new("", name)).is_some() {
            return vec![name.to_owned()];
        }
        other(name).unwrap_or_default()
    }

    /// The pool for Services of a cluster, known under `names`, that name none: the one marked as default,
    /// else the only one.
    pub fn default_pool(&self, names: &[Text]) -> Result<String, NoDefault> {
        let pools = self.pools.all();
        let ours: Vec<_> = pools
            .iter()
            .filter(|(_, pool)| names.iter().any(|name| **name == *pool.spec.target_cluster))
            .collect();
        let marked = ours.iter().copied();
        let marked: Vec<_> = marked.filter(|(_, pool)| is_default(pool)).collect();
        match (marked.as_slice(), ours.as_slice()) {
            ([(key, _)], _) | ([], [(key, _)]) => Ok(key.name.to_string()),
            ([], []) => Err(NoDefault::None),
            ([], several) | (several, _) => {
                let names = several.iter().map(|(key, _)| key.name.to_string());
                Err(NoDefault::Several(names.collect()))
            }
        }
    }

    /// The pool of the other family that belongs to `pool`; named on either of the two.
    pub fn partner(&self, pool: &str) -> Option<String> {
        let own = self.pools.get(&Key::new("", pool))?;
        if let Some(partner) = annotation(&own, PARTNER_POOL) {
            return Some(partner.to_owned());
        }
        let pools = self.pools.all();
        let mut naming = pools
            .iter()
            .filter(|(_, other)| annotation(other, PARTNER_POOL) == Some(pool));
        naming.next().map(|(key, _)| key.name.to_string())
    }
}

/// Whether it is the pool of Services that name none.
pub fn is_default(pool: &FloatingIPPool) -> bool {
    annotation(pool, DEFAULT_NETWORK) == Some("true")
}

/// An annotation of a pool.
pub fn annotation<'a>(pool: &'a FloatingIPPool, key: &str) -> Option<&'a str> {
    pool.annotations().get(key).map(String::as_str)
}
