//! Selections of the model: every pool is looked at, one after the other.

use std::{cmp::Reverse, net::IpAddr, sync::Arc};

use fipd_core::{
    Allocate, Lease, LeaseKey, LeasePrefix, Pool, PoolId, PoolScope, Refusal, Selection, Timestamp,
};

use super::{
    Model, Stop,
    lease::{Asked, answers},
    pool::gives_around,
    prefix::{around, touch},
};

impl Model {
    fn fits(&self, scope: &PoolScope, selection: &Selection) -> bool {
        let asker = &selection.asker;
        let cluster = match (&scope.cluster, &asker.cluster) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(name), Some(id)) => {
                *name == id.0
                    || self
                        .clusters
                        .iter()
                        .any(|record| record.id == *id && record.names.contains(name))
            }
        };
        let namespace = scope.namespaces.is_empty()
            || scope
                .namespaces
                .iter()
                .any(|name| asker.namespace.as_ref() == Some(name));
        let labels = scope
            .labels
            .iter()
            .all(|(key, value)| asker.labels.get(key) == Some(value));
        let project = scope.project.is_none() || scope.project == asker.project;
        cluster && project && namespace && labels
    }

    /// The pools of the selection, in the order in which they are asked.
    pub fn selected(&self, selection: &Selection) -> Vec<Arc<Pool>> {
        let mut pools = self.pools.clone();
        pools.retain(|pool| {
            let spec = &pool.spec;
            let mut scopes = spec.scopes.iter();
            selection.network.is_none_or(|id| id == spec.network)
                && spec.addresses[0].family() == selection.family
                && spec.allocation_length == selection.length
                && scopes.any(|scope| self.fits(scope, selection))
        });
        pools.sort_by_key(|pool| (Reverse(pool.spec.priority), pool.spec.name.clone()));
        pools
    }

    /// Of these, those that have the address.
    pub fn with_address(
        &self,
        mut pools: Vec<Arc<Pool>>,
        address: Option<IpAddr>,
    ) -> Vec<Arc<Pool>> {
        pools.retain(|pool| {
            address.is_none_or(|address| {
                let network = pool.spec.network;
                let lease = self.lease(LeaseKey { network, address });
                gives_around(&pool.spec, address)
                    || lease.is_some_and(|lease| lease.pool == Some(pool.id))
            })
        });
        pools
    }

    /// Chooses the pool of each want that leaves it open.
    pub fn settle(
        &mut self,
        asked: &mut [Asked],
        ask: &Allocate,
        now: Timestamp,
    ) -> Result<(), Stop> {
        for at in 0..asked.len() {
            if asked[at].selection.is_none() || asked[at].missing == 0 {
                continue;
            }
            if asked[at].candidates.is_empty() {
                let (want, selection) = (&asked[at], &asked[at].selection);
                let selection = selection.as_ref().expect("checked");
                return Err(Stop::Refused(Refusal::NoPool {
                    family: selection.family,
                    length: selection.length,
                    address: want.key.map(|key| key.address),
                }));
            }
            let (mut reasons, mut full) = (Vec::new(), Vec::new());
            let mut found = false;
            for pool in asked[at].candidates.clone() {
                let network = pool.spec.network;
                asked[at].key = asked[at].key.map(|key| LeaseKey { network, ..key });
                asked[at].pool = pool;
                match self.attempt(asked, at, ask, now) {
                    Ok(()) => {
                        found = true;
                        break;
                    }
                    Err(Stop::Refused(refusal)) => {
                        if matches!(refusal, Refusal::Exhausted { .. }) {
                            full.push((asked[at].pool.id, needed(asked, at)));
                        }
                        reasons.push(refusal);
                    }
                    Err(stop) => return Err(stop),
                }
            }
            if found {
                continue;
            }
            if ask.waiting_since.is_some() {
                let selection = asked[at].selection.clone().expect("checked");
                let left = self.selectable(&selection);
                self.wait(&left, &full, ask);
            }
            let more = reasons.len().saturating_sub(5);
            reasons.truncate(5);
            let full = !full.is_empty();
            return Err(Stop::Refused(Refusal::NoneGives {
                reasons,
                more,
                full,
            }));
        }
        Ok(())
    }

    /// Whether the pool that the want has can give, and what of it the asker may have again.
    fn attempt(
        &mut self,
        asked: &mut [Asked],
        at: usize,
        ask: &Allocate,
        now: Timestamp,
    ) -> Result<(), Stop> {
        let mut given: Vec<LeasePrefix> = Vec::new();
        for other in (0..asked.len()).filter(|other| settled(asked, at, *other)) {
            let other = &asked[other];
            let keys = other.key.iter().chain(&other.again).chain(&other.cooling);
            given.extend(keys.map(|key| around(&other.pool.spec, key.address)));
        }
        let twice = |key: &LeaseKey| {
            let prefix = around(&asked[at].pool.spec, key.address);
            given.iter().any(|one| touch(*one, prefix))
        };
        if let Some(key) = asked[at].key.filter(twice) {
            let address = around(&asked[at].pool.spec, key.address);
            let owner = String::new();
            return Err(Stop::Refused(Refusal::AddressTaken { address, owner }));
        }
        (asked[at].again, asked[at].cooling) = (Vec::new(), Vec::new());
        let pool = asked[at].pool.clone();
        let cools = self.may_give(&asked[at], ask)?;
        let (key, missing) = (asked[at].key, asked[at].missing);
        asked[at].cooling.extend(key.filter(|_| cools));
        if key.is_none() {
            (asked[at].again, asked[at].cooling) = self.had(&asked[at], ask, &mut given, now)?;
        }
        let charged: u32 = (0..asked.len())
            .filter(|other| settled(asked, at, *other) && asked[*other].pool.id == pool.id)
            .map(|other| asked[other].missing)
            .sum();
        self.within_quota(&[(pool.id, u64::from(charged + missing))], ask)?;
        if asked[at].lacks() > 0 && !self.has_turn(pool.id, needed(asked, at), ask)? {
            return Err(self.exhausted(&pool));
        }
        Ok(())
    }

    /// Pools that the selection could have been about.
    pub fn selectable(&self, selection: &Selection) -> Vec<PoolId> {
        let meant = |pool: &&Arc<Pool>| {
            selection.network.is_none_or(|id| id == pool.spec.network)
                && pool.spec.addresses[0].family() == selection.family
                && pool.spec.allocation_length == selection.length
        };
        self.pools
            .iter()
            .filter(meant)
            .map(|pool| pool.id)
            .collect()
    }
}

impl Asked {
    /// Whether the lease is one that the want asks for.
    pub fn answered_by(&self, lease: &Lease) -> bool {
        match &self.selection {
            None => answers(lease, &self.pool),
            Some(_) => self.candidates.iter().any(|pool| answers(lease, pool)),
        }
    }
}

fn settled(asked: &[Asked], at: usize, other: usize) -> bool {
    other < at || (other > at && asked[other].selection.is_none())
}

/// How many free addresses the request takes of the pool of the want.
fn needed(asked: &[Asked], at: usize) -> u128 {
    let mut need = asked[at].lacks();
    for other in (0..asked.len()).filter(|other| settled(asked, at, *other)) {
        if asked[other].pool.id == asked[at].pool.id {
            need += asked[other].lacks();
        }
    }
    need.into()
}
