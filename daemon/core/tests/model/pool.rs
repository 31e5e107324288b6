//! Networks, pools and clusters of the model.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Action, Adoption, Answer, ClusterId, ClusterRecord, EndsOf, Family, Lease, LeaseKey,
    LeasePrefix, LeaseState, Network, NetworkId, Op, Pool, PoolEdit, PoolId, PoolSpec, Refusal,
    Text, Timestamp,
};

use super::{Flight, Model, Plan, Stop, memory, prefix, same_marker, world};

/// Whether the specification names the address.
pub fn lists(spec: &PoolSpec, address: IpAddr) -> bool {
    spec.addresses
        .iter()
        .any(|entry| entry.span().contains(address))
}

/// Whether the pool may give what is around the address.
pub fn gives_around(spec: &PoolSpec, address: IpAddr) -> bool {
    assignable(spec, prefix::first(address, prefix::length(spec)))
}

/// Whether the pool may give what begins with the address, judged by itself. The histories use whole CIDRs with their
/// own ends.
pub fn assignable(spec: &PoolSpec, address: IpAddr) -> bool {
    if spec.allocation_length.is_some() {
        return assignable_prefix(spec, address);
    }
    assert_eq!(
        (spec.ends.of, spec.prefix_len, spec.subnet),
        (EndsOf::EachCidr, None, None)
    );
    let excluded = spec
        .exclusions
        .iter()
        .any(|entry| entry.span().contains(address));
    let at_an_end = spec.addresses.iter().any(|entry| {
        let fipd_core::AddressSpec::Cidr(net) = entry else {
            return false;
        };
        let family = Family::of(address);
        let last = (0..u128::from(spec.ends.last))
            .any(|n| nth_last(entry.span().last, n, family) == address);
        let first = (0..u128::from(spec.ends.first))
            .any(|n| family.address(entry.span().first + n) == address);
        net.max_prefix_len() - net.prefix_len() > 1 && net.contains(&address) && (first || last)
    });
    lists(spec, address) && !excluded && !at_an_end && spec.gateway != Some(address)
}

fn assignable_prefix(spec: &PoolSpec, address: IpAddr) -> bool {
    let length = prefix::length(spec);
    let mut exclusions = spec.exclusions.iter();
    let touched = exclusions.any(|entry| {
        let all = world(Family::of(address)).into_iter();
        let mut inside = all.filter(|one| prefix::together(*one, address, length));
        inside.any(|one| entry.span().contains(one))
    });
    prefix::first(address, length) == address && lists(spec, address) && !touched
}

fn nth_last(last: u128, n: u128, family: Family) -> IpAddr {
    family.address(last - n)
}

pub fn refused<T>(refusal: Refusal) -> Result<T, Stop> {
    Err(Stop::Refused(refusal))
}

pub fn invalid<T>(field: &'static str) -> Result<T, Stop> {
    refused(Refusal::Invalid {
        field,
        value: String::new(),
        allowed: String::new(),
    })
}

impl Model {
    /// What the pool may give, lowest first.
    pub fn assignable(&self, pool: &Pool) -> Vec<LeaseKey> {
        let family = pool.spec.addresses[0].family();
        world(family)
            .into_iter()
            .filter(|address| assignable(&pool.spec, *address))
            .filter(|address| !self.withheld(pool, *address))
            .map(|address| LeaseKey {
                network: pool.spec.network,
                address,
            })
            .collect()
    }

    /// The pools that list the address, and whether they give what is around it.
    pub fn pools_at(&self, key: LeaseKey) -> Vec<(PoolId, bool)> {
        let here =
            |pool: &&Arc<Pool>| pool.spec.network == key.network && lists(&pool.spec, key.address);
        let gives = |pool: &Pool| {
            gives_around(&pool.spec, key.address) && !self.withheld(pool, key.address)
        };
        let pools = self.pools.iter().filter(here);
        pools.map(|pool| (pool.id, gives(pool))).collect()
    }

    /// How much of what the pool lists its exclusions take away, and its gateway and reserved ends.
    pub fn taken_away(&self, pool: &Pool) -> (u128, u128) {
        let spec = &pool.spec;
        let all = world(spec.addresses[0].family()).into_iter();
        let listed = all
            .filter(|one| lists(spec, *one) && prefix::first(*one, prefix::length(spec)) == *one);
        let (mut excluded, mut reserved) = (0, 0);
        for address in listed {
            let inside = world(spec.addresses[0].family()).into_iter();
            let mut inside =
                inside.filter(|one| prefix::together(*one, address, prefix::length(spec)));
            if inside.any(|one| {
                spec.exclusions
                    .iter()
                    .any(|entry| entry.span().contains(one))
            }) {
                excluded += 1;
            } else if !assignable(spec, address) {
                reserved += 1;
            }
        }
        (excluded, reserved)
    }

    pub fn create_network(&mut self, name: &Text) -> Plan {
        if self.flights.iter().any(|flight| flight.networks) {
            return Err(Stop::Busy);
        }
        if let Some(known) = self.networks.iter().find(|network| network.name == *name) {
            return Err(Stop::Answer(Answer::Network(known.clone())));
        }
        let network = Network {
            id: NetworkId(self.networks.len() as u32),
            name: name.clone(),
            hold: None,
        };
        let mut flight = Flight {
            networks: true,
            ..Flight::default()
        };
        flight.ops.push(Op::PutNetwork(network.clone()));
        flight.say(Action::NetworkCreated);
        Ok((flight, Answer::Network(network)))
    }

    pub fn pools_busy(&self) -> Result<(), Stop> {
        if self.flights.iter().any(Flight::locks_pools) {
            Err(Stop::Busy)
        } else {
            Ok(())
        }
    }

    pub fn create_pool(&mut self, spec: &PoolSpec, now: Timestamp) -> Plan {
        self.pools_busy()?;
        if let Some(known) = self.pools.iter().find(|pool| pool.spec.name == spec.name) {
            if known.spec == *spec {
                return Err(Stop::Answer(Answer::Pool(known.clone())));
            }
            return refused(Refusal::PoolExists(spec.name.clone()));
        }
        prefix::check(spec)?;
        if !self
            .networks
            .iter()
            .any(|network| network.id == spec.network)
        {
            return refused(Refusal::UnknownNetwork(spec.network));
        }
        let id = PoolId(self.next_pool);
        let pool = Arc::new(Pool {
            id,
            spec: spec.clone(),
            created: now,
            generation: 1,
        });
        let mut flight = Flight::default();
        flight.ops.push(Op::PutNextPool(PoolId(self.next_pool + 1)));
        self.write(flight, pool, None, Action::PoolCreated)
    }

    pub fn update_pool(&mut self, edit: &PoolEdit) -> Plan {
        let pool = self.pool(edit.pool).cloned();
        let leaves = |pool: &Arc<Pool>| pool.spec.network != edit.spec.network;
        let planned = self.edit_pool(edit)?;
        if let Some(pool) = pool.filter(leaves) {
            self.unused(&pool)?;
        }
        Ok(planned)
    }

    /// The same for an import.
    pub fn edit_pool(&mut self, edit: &PoolEdit) -> Plan {
        self.pools_busy()?;
        let Some(pool) = self.pool(edit.pool).cloned() else {
            return refused(Refusal::UnknownPool(edit.pool));
        };
        let name = pool.spec.name.clone();
        if let Some(expected) = edit.if_generation
            && expected != pool.generation
        {
            return refused(Refusal::Stale {
                pool: name,
                expected,
                actual: pool.generation,
            });
        }
        if pool.spec == edit.spec {
            return Err(Stop::Answer(Answer::Pool(pool)));
        }
        prefix::check(&edit.spec)?;
        if !self
            .networks
            .iter()
            .any(|network| network.id == edit.spec.network)
        {
            return refused(Refusal::UnknownNetwork(edit.spec.network));
        }
        if self
            .pools
            .iter()
            .any(|other| other.id != pool.id && other.spec.name == edit.spec.name)
        {
            return refused(Refusal::PoolExists(edit.spec.name.clone()));
        }
        if pool.spec.allocation_length != edit.spec.allocation_length {
            return invalid("allocation_length");
        }
        let mine: Vec<_> = self
            .leases
            .iter()
            .filter(|lease| lease.pool == Some(pool.id))
            .collect();
        if !mine.is_empty() && pool.spec.network != edit.spec.network {
            return invalid("network");
        }
        if !mine.is_empty() && pool.spec.addresses[0].family() != edit.spec.addresses[0].family() {
            return invalid("addresses");
        }
        let orphans: Vec<LeasePrefix> = mine
            .iter()
            .filter(|lease| lease.state != LeaseState::Quarantined)
            .filter(|lease| {
                let address = lease.key.address;
                assignable(&pool.spec, address) && !assignable(&edit.spec, address)
            })
            .map(|lease| lease.prefix())
            .collect();
        if !orphans.is_empty() && !edit.force {
            let count = orphans.len() as u64;
            let sample = orphans.into_iter().take(5).collect();
            return refused(Refusal::WouldOrphan {
                pool: name,
                count,
                sample,
            });
        }
        let next = Pool {
            spec: edit.spec.clone(),
            generation: pool.generation + 1,
            ..Pool::clone(&pool)
        };
        self.write(
            Flight::default(),
            Arc::new(next),
            Some(&pool),
            Action::PoolUpdated,
        )
    }

    /// Whether nothing is known or still to be learned of the pool's addresses in its network.
    fn unused(&self, pool: &Pool) -> Result<(), Stop> {
        let from = pool.spec.network;
        let waiting = self.holds(from);
        if !waiting.is_empty() {
            let network = self.network_name(from);
            return refused(Refusal::NetworkHeld { network, waiting });
        }
        self.restored()?;
        let there = |lease: &Lease| {
            let all = world(pool.spec.addresses[0].family()).into_iter();
            let mut listed = all.filter(|address| lists(&pool.spec, *address));
            lease.key.network == from
                && listed.any(|address| prefix::covers(lease.prefix(), address))
        };
        match self.leases.iter().any(there) {
            true => invalid("network"),
            false => Ok(()),
        }
    }

    pub fn delete_pool(&mut self, id: PoolId) -> Plan {
        self.pools_busy()?;
        let Some(pool) = self.pool(id).cloned() else {
            return refused(Refusal::UnknownPool(id));
        };
        let leases = self
            .leases
            .iter()
            .filter(|lease| lease.pool == Some(id) && lease.state != LeaseState::Quarantined)
            .count() as u64;
        if leases > 0 {
            return refused(Refusal::PoolInUse {
                pool: pool.spec.name.clone(),
                leases,
            });
        }
        if self.flight_in(&pool.spec, |address| lists(&pool.spec, address)) {
            return Err(Stop::Busy);
        }
        let quotas = self.without_quotas(id)?;
        let mut flight = Flight {
            edits: vec![pool.spec.network],
            ..Flight::default()
        };
        flight.ops.extend(quotas);
        for lease in self.leases.iter().filter(|lease| lease.pool == Some(id)) {
            if self.locked(lease.key) {
                return Err(Stop::Busy);
            }
            flight.keys.push(lease.prefix());
            flight
                .ops
                .push(match self.pool_of_but(lease.prefix(), Some(id)) {
                    None if lease.contenders.is_empty() => Op::DeleteLease(lease.key),
                    heir => Op::PutLease(Arc::new(Lease {
                        pool: heir,
                        ..lease.clone()
                    })),
                });
        }
        for key in self.oldest_first(id) {
            flight.ops.push(Op::DeletePast(key));
        }
        flight.ops.push(Op::DeletePool(id));
        flight.say(Action::PoolDeleted);
        Ok((flight, Answer::Done))
    }

    fn flight_in(&self, spec: &PoolSpec, test: impl Fn(IpAddr) -> bool) -> bool {
        let mut keys = self.flights.iter().flat_map(|flight| &flight.keys);
        keys.any(|one: &LeasePrefix| {
            let all = world(Family::of(one.key.address)).into_iter();
            let mut inside = all.filter(|address| prefix::covers(*one, *address));
            one.key.network == spec.network && inside.any(&test)
        })
    }

    fn write(
        &mut self,
        mut flight: Flight,
        pool: Arc<Pool>,
        old: Option<&Pool>,
        action: Action,
    ) -> Plan {
        let spec = &pool.spec;
        if let Some(old) = old
            && self.flight_in(&old.spec, |address| {
                let moves = old.spec.network != spec.network
                    || old.spec.addresses[0].family() != spec.addresses[0].family();
                if moves {
                    lists(&old.spec, address)
                } else {
                    gives_around(&old.spec, address) && !gives_around(spec, address)
                }
            })
        {
            return Err(Stop::Busy);
        }
        let comes = |address| {
            let had = old
                .is_some_and(|old| old.spec.network == spec.network && lists(&old.spec, address));
            lists(spec, address) && !had
        };
        if self.flight_in(spec, comes) {
            return Err(Stop::Busy);
        }
        if let Some(old) = old.filter(|old| memory::size(&old.spec) > 0) {
            if self.flight_in(&old.spec, |address| lists(&old.spec, address)) {
                return Err(Stop::Busy);
            }
            self.forget_by_edit(&mut flight, old.id, spec);
        }
        flight.edits.push(spec.network);
        if let Some(old) = old.filter(|old| old.spec.network != spec.network) {
            flight.edits.push(old.spec.network);
        }
        flight.ops.push(Op::PutPool(pool.clone()));
        for lease in &self.leases {
            let here = lease.key.network == spec.network && prefix::fits(lease, spec);
            if lease.pool.is_none() && here && comes(lease.key.address) {
                let mut lease = lease.clone();
                lease.pool = Some(pool.id);
                flight.keys.push(lease.prefix());
                flight.ops.push(Op::PutLease(Arc::new(lease)));
            }
        }
        flight.say(action);
        Ok((flight, Answer::Pool(pool)))
    }

    pub fn record_cluster(&mut self, record: &ClusterRecord) -> Plan {
        self.clusters_busy()?;
        for name in &record.names {
            if self
                .clusters
                .iter()
                .any(|known| known.id != record.id && known.names.contains(name))
            {
                return invalid("cluster");
            }
        }
        let known = self.clusters.iter().find(|known| known.id == record.id);
        let next = match known {
            None => record.clone(),
            Some(known) => {
                let mut next = known.clone();
                for name in &record.names {
                    if !next.names.contains(name) {
                        next.names.push(name.clone());
                    }
                }
                next.discovered = known.discovered && record.discovered;
                next
            }
        };
        if known == Some(&next) {
            return Err(Stop::Answer(Answer::Done));
        }
        let mut flight = Flight {
            clusters: true,
            ..Flight::default()
        };
        flight.ops.push(Op::PutCluster(next));
        flight.say(Action::ClusterRecorded);
        Ok((flight, Answer::Done))
    }

    pub fn mark_adopted(&mut self, marker: &Adoption) -> Plan {
        self.clusters_busy()?;
        if !self
            .networks
            .iter()
            .any(|network| network.id == marker.network)
        {
            return refused(Refusal::UnknownNetwork(marker.network));
        }
        let known = self
            .adoptions
            .iter()
            .find(|known| same_marker(known, marker));
        if known.is_some_and(|known| !known.skipped || marker.skipped) {
            return Err(Stop::Answer(Answer::Done));
        }
        let mut flight = Flight {
            clusters: true,
            ..Flight::default()
        };
        flight.ops.push(Op::PutAdoption(marker.clone()));
        if !marker.skipped {
            let id = ClusterId(marker.cluster.clone());
            for skip in self.skipped_by_name(&id) {
                if (skip.network, &skip.system) == (marker.network, &marker.system) {
                    flight.ops.push(delete_marker(skip));
                }
            }
        }
        flight.say(if marker.skipped {
            Action::AdoptionSkipped
        } else {
            Action::ClusterAdopted
        });
        Ok((flight, Answer::Done))
    }

    /// Markers under a name of the cluster, in the order of the ledger.
    pub fn skipped_by_name(&self, cluster: &ClusterId) -> Vec<Adoption> {
        let names: Vec<String> = self
            .clusters
            .iter()
            .filter(|record| record.id == *cluster)
            .flat_map(|record| &record.names)
            .map(|name| format!("name:{name}"))
            .collect();
        let mut markers = self.adoptions.clone();
        markers.retain(|marker| names.iter().any(|name| **name == *marker.cluster));
        markers.sort();
        markers
    }

    pub fn clusters_busy(&self) -> Result<(), Stop> {
        if self.flights.iter().any(|flight| flight.clusters) {
            Err(Stop::Busy)
        } else {
            Ok(())
        }
    }
}

pub fn delete_marker(marker: Adoption) -> Op {
    let (network, cluster, system) = (marker.network, marker.cluster, marker.system);
    Op::DeleteAdoption {
        network,
        cluster,
        system,
    }
}
