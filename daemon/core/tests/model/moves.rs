//! Pools of the model that go to another network.

use std::sync::Arc;

use fipd_core::{
    Action, Answer, Collision, Family, LeaseKey, LeasePrefix, NetworkId, Op, PastLease, Pool,
    PoolId, Refusal,
};

use super::{
    Flight, Model, Plan, Stop, owner,
    pool::{lists, refused},
    prefix::{around, covers, fits},
    world,
};

impl Model {
    pub fn move_network(&mut self, id: PoolId, to: NetworkId) -> Plan {
        self.pools_busy()?;
        let Some(pool) = self.pool(id).cloned() else {
            return refused(Refusal::UnknownPool(id));
        };
        if !self.networks.iter().any(|network| network.id == to) {
            return refused(Refusal::UnknownNetwork(to));
        }
        let from = pool.spec.network;
        if from == to {
            return Err(Stop::Answer(Answer::Pool(pool)));
        }
        for network in [to, from] {
            let waiting = self.holds(network);
            if !waiting.is_empty() {
                let network = self.network_name(network);
                return refused(Refusal::NetworkHeld { network, waiting });
            }
        }
        self.restored()?;
        let mine: Vec<_> = self
            .leases
            .iter()
            .filter(|lease| lease.pool == Some(id))
            .cloned()
            .collect();
        let there = |key: LeaseKey| LeaseKey {
            network: to,
            address: key.address,
        };
        let touched = |one: &LeasePrefix| {
            let network = one.key.network;
            let all = world(Family::of(one.key.address)).into_iter();
            let mut inside = all.filter(|address| covers(*one, *address));
            let meant = |address| {
                let leased = mine.iter().any(|lease| covers(lease.prefix(), address));
                lists(&pool.spec, address) || leased
            };
            (network == from || network == to) && inside.any(meant)
        };
        if self
            .flights
            .iter()
            .any(|flight| flight.keys.iter().any(touched))
        {
            return Err(Stop::Busy);
        }
        let taken = mine.iter().filter_map(|lease| {
            let mut moved = lease.prefix();
            moved.key = there(lease.key);
            Some((lease.prefix(), self.lease_over(moved)?))
        });
        let all: Vec<Collision> = taken
            .map(|(prefix, lease)| Collision {
                address: prefix.key.address,
                length: prefix.explicit_length(),
                owner: owner(lease).map_or("in quarantine".into(), |owner| owner.to_string()),
            })
            .collect();
        if !all.is_empty() {
            return refused(Refusal::Collisions {
                pool: pool.spec.name.clone(),
                network: self.network_name(to),
                count: all.len() as u64,
                first: all.into_iter().take(100).collect(),
            });
        }
        let mut next = Pool::clone(&pool);
        next.spec.network = to;
        next.spec.network_by_default = false;
        next.generation += 1;
        let next = Arc::new(next);
        let mut flight = Flight {
            edits: vec![from, to],
            ..Flight::default()
        };
        flight.ops.push(Op::PutPool(next.clone()));
        for mut lease in mine {
            flight.keys.push(lease.prefix());
            flight.ops.push(Op::DeleteLease(lease.key));
            lease.key = there(lease.key);
            flight.keys.push(lease.prefix());
            flight.ops.push(Op::PutLease(Arc::new(lease)));
        }
        for lease in &self.leases {
            let listed = lease.key.network == to && lists(&pool.spec, lease.key.address);
            if lease.pool.is_none() && listed && fits(lease, &pool.spec) {
                let mut lease = lease.clone();
                lease.pool = Some(id);
                flight.keys.push(lease.prefix());
                flight.ops.push(Op::PutLease(Arc::new(lease)));
            }
        }
        for key in self.oldest_first(id) {
            flight.ops.push(Op::DeletePast(key));
            let past = self.pasts.iter().find(|past| past.key == key);
            let mut past = PastLease::clone(past.expect("listed before"));
            past.key = there(key);
            let mut prefix = around(&pool.spec, key.address);
            prefix.key = past.key;
            if self.lease_over(prefix).is_none() && !self.remembers(past.key) {
                flight.ops.push(Op::PutPast(Arc::new(past)));
            }
        }
        flight.say(Action::PoolMoved);
        Ok((flight, Answer::Pool(next)))
    }
}
