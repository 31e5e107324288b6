//! Pools of the model in networks that nobody chose.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Action, NetworkId, Op, Pool, Refusal, Separation};

use super::{
    Flight, Model, Plan, Stop,
    pool::{assignable, gives_around, invalid},
    prefix, world,
};

impl Model {
    /// The pools that may mean the same address.
    fn doubles(&self, pool: &Pool, address: IpAddr) -> Vec<&Arc<Pool>> {
        let network = pool.spec.network;
        let doubt = |other: &&Arc<Pool>| {
            let there = other.spec.network;
            let pair = (network.min(there), network.max(there));
            pool.spec.network_by_default
                && other.spec.network_by_default
                && network != there
                && !self.separations.contains(&pair)
                && gives_around(&other.spec, address)
        };
        self.pools.iter().filter(doubt).collect()
    }

    /// The pools that may mean some of what the pool gives around the address, the lowest address first.
    fn doubles_around(&self, pool: &Pool, address: IpAddr) -> Vec<&Arc<Pool>> {
        let around = prefix::around(&pool.spec, address);
        let mut inside = world(pool.spec.addresses[0].family());
        inside.retain(|one| prefix::covers(around, *one));
        let doubles = inside.into_iter().map(|one| self.doubles(pool, one));
        doubles.flatten().collect()
    }

    /// Whether the pool could give what is around the address, but for another.
    pub fn withheld(&self, pool: &Pool, address: IpAddr) -> bool {
        gives_around(&pool.spec, address) && !self.doubles_around(pool, address).is_empty()
    }

    /// How many of what the pool gives it withholds.
    pub fn withheld_count(&self, pool: &Pool) -> u128 {
        let all = world(pool.spec.addresses[0].family()).into_iter();
        let given = all.filter(|address| assignable(&pool.spec, *address));
        given.filter(|one| self.withheld(pool, *one)).count() as u128
    }

    pub fn ambiguous(&self, pool: &Pool, address: IpAddr) -> Refusal {
        let name = |network: NetworkId| {
            let mut networks = self.networks.iter();
            let known = networks.find(|known| known.id == network);
            known.expect("a pool's network exists").name.clone()
        };
        let other = self.doubles_around(pool, address)[0];
        Refusal::NetworkAmbiguous {
            address,
            pool: pool.spec.name.clone(),
            network: name(pool.spec.network),
            other: other.spec.name.clone(),
            there: name(other.spec.network),
        }
    }

    pub fn separate(&self, (a, b): Separation, apart: bool) -> Plan {
        if self.flights.iter().any(Flight::locks_pools) {
            return Err(Stop::Busy);
        }
        for network in [a, b] {
            if !self.networks.iter().any(|known| known.id == network) {
                return Err(Stop::Refused(Refusal::UnknownNetwork(network)));
            }
        }
        if a == b {
            return invalid("network");
        }
        let pair = (a.min(b), a.max(b));
        if self.separations.contains(&pair) == apart {
            return Err(Stop::Answer(fipd_core::Answer::Done));
        }
        let mut flight = Flight {
            edits: vec![a, b],
            pools: true,
            ..Flight::default()
        };
        if apart {
            flight.ops.push(Op::PutSeparation(pair));
            flight.say(Action::NetworksSeparated);
        } else {
            flight.ops.push(Op::DeleteSeparation(pair));
            flight.say(Action::SeparationWithdrawn);
        }
        Ok((flight, fipd_core::Answer::Done))
    }
}
