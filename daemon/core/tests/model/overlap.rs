//! Pools of the model that share addresses.

use fipd_core::{Overlap, Pool, PoolId};

use super::{Model, pool::gives_around, world};

impl Model {
    /// Address by address; neighbours of the same pool are one run.
    pub fn overlaps(&self, pool: &Pool) -> Vec<Overlap> {
        let mut found: Vec<Overlap> = Vec::new();
        let mut before: Vec<PoolId> = Vec::new();
        for address in world(pool.spec.addresses[0].family()) {
            let mut others = self.pools.clone();
            others.retain(|other| {
                other.id != pool.id
                    && other.spec.network == pool.spec.network
                    && gives_around(&other.spec, address)
                    && gives_around(&pool.spec, address)
            });
            for other in &others {
                let again = before.contains(&other.id);
                let mut runs = found.iter_mut().rev();
                match runs.find(|run| again && run.pool == other.id) {
                    Some(run) => run.last = address,
                    None => found.push(Overlap {
                        pool: other.id,
                        first: address,
                        last: address,
                    }),
                }
            }
            before = others.iter().map(|other| other.id).collect();
        }
        found
    }
}
