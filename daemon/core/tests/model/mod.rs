//! A deliberately naive address book: lists, linear scans and address-by-address loops. It shares with the
//! ledger the request and answer types and nothing else, and is slow on purpose.

mod ambiguity;
mod contender;
mod import;
mod label;
mod lease;
mod memory;
mod moves;
mod overlap;
mod pool;
mod prefix;
mod probe;
mod quota;
mod rollups;
mod select;
mod share;
mod transfer;

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Action, Adoption, Answer, ClusterId, ClusterRecord, Epoch, Expectation, Family, Hold, Holder,
    Identity, Lease, LeaseKey, LeasePrefix, LeaseState, Member, Network, NetworkId, Op, PastLease,
    Pool, PoolId, Quota, Refusal, Request, RestoreHold, Separation, System, Tenant, Text,
    Timestamp,
};

pub use contender::{said_uses, uses};
pub use pool::assignable;
pub use prefix::{aligned, around, first, fits, touch};
use rollups::Counts;

/// What the model says of a request. Audit entries are compared by action, address and identity.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    Answer(Answer),
    Tentative {
        number: usize,
        ops: Vec<Op>,
        audit: Vec<Said>,
        answer: Answer,
    },
    Busy,
    Refused(Refusal),
}

pub type Said = (Action, Option<IpAddr>, Option<Identity>);

pub enum Stop {
    Answer(Answer),
    Busy,
    Refused(Refusal),
}

pub type Plan = Result<(Flight, Answer), Stop>;

/// A decision neither confirmed nor aborted.
#[derive(Clone, Default)]
pub struct Flight {
    pub number: usize,
    pub ops: Vec<Op>,
    pub audit: Vec<Said>,
    /// Leases it writes or deletes.
    pub keys: Vec<LeasePrefix>,
    pub taken: Vec<LeasePrefix>,
    pub gains: Vec<Identity>,
    pub edits: Vec<NetworkId>,
    /// No pool is edited meanwhile.
    pub pools: bool,
    pub clusters: bool,
    pub networks: bool,
    pub gave_up: Vec<Waiter>,
    pub leaves: Option<Holder>,
    pub cluster_leaves: Option<ClusterId>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Waiter {
    pub pool: PoolId,
    pub since: Timestamp,
    pub identity: Identity,
    pub need: u128,
    pub instance: Text,
}

#[derive(Clone, Default)]
pub struct Model {
    pub networks: Vec<Network>,
    pub pools: Vec<Arc<Pool>>,
    pub next_pool: u32,
    pub quotas: Vec<Quota>,
    pub separations: Vec<Separation>,
    pub leases: Vec<Lease>,
    pub pasts: Vec<PastLease>,
    pub clusters: Vec<ClusterRecord>,
    pub adoptions: Vec<Adoption>,
    pub epoch: Option<Epoch>,
    pub expectations: Vec<Expectation>,
    pub waiters: Vec<Waiter>,
    pub flights: Vec<Flight>,
    /// What the ledger gave that was free, for the model cannot guess what comes by chance.
    pub given: Vec<LeaseKey>,
    /// What happened since the last roll-up.
    pub counts: Counts,
    planned: usize,
}

impl Model {
    pub fn new() -> Self {
        let default = Network {
            id: NetworkId(0),
            name: "default".into(),
            hold: None,
        };
        Self {
            networks: vec![default],
            next_pool: 1,
            ..Self::default()
        }
    }

    pub fn plan(&mut self, request: &Request, now: Timestamp) -> Verdict {
        let plan = match request {
            Request::Import(ask) => self.import(ask, now),
            Request::Allocate(ask) => self.allocate(ask, None, now),
            Request::Reserve(ask) if ask.until.is_some_and(|until| until <= now) => {
                pool::invalid("until")
            }
            Request::Reserve(ask) if ask.ask.share.is_none() && ask.ask.probe => {
                pool::invalid("probe")
            }
            Request::Reserve(ask) => self.allocate(&ask.ask, Some(ask.until), now),
            Request::Expire { most, .. } => self.expire(*most, now),
            Request::Release(ask) => self.release(ask, now),
            Request::Probed(ask) => self.probed(ask, now),
            Request::Adopt(ask) => self.adopt(ask, now),
            Request::Handover(ask) => self.handover(ask),
            Request::Transfer(ask) => self.transfer(ask),
            Request::Label(ask) => self.label(ask),
            Request::CreateNetwork { name, .. } => self.create_network(name),
            Request::CreatePool { spec, .. } => self.create_pool(spec, now),
            Request::UpdatePool(edit) => self.update_pool(edit),
            Request::DeletePool { pool, .. } => self.delete_pool(*pool),
            Request::MoveNetwork { pool, network, .. } => self.move_network(*pool, *network),
            Request::Separate {
                networks, apart, ..
            } => self.separate(*networks, *apart),
            Request::SetQuota { quota, .. } => self.set_quota(quota),
            Request::DeleteQuota { pool, tenant, .. } => self.delete_quota(*pool, tenant),
            Request::RecordCluster { record } => self.record_cluster(record),
            Request::MarkAdopted { marker, .. } => self.mark_adopted(marker),
            Request::Orphan {
                cluster,
                system,
                most,
                ..
            } => self.orphan(cluster, system.as_ref(), *most),
            Request::Forget { cluster, most, .. } => self.forget(cluster, *most, now),
            Request::SetApart { .. }
            | Request::RollUp { .. }
            | Request::CreateAccount { .. }
            | Request::EditAccount(_)
            | Request::DeleteAccount { .. }
            | Request::PutToken { .. }
            | Request::DeleteToken { .. }
            | Request::HoldNetworks { .. }
            | Request::RotateKey { .. }
            | Request::ImportKey { .. }
            | Request::Note { .. } => Err(Stop::Answer(Answer::Done)),
            Request::PassHold { elapsed, .. } => self.shorten_hold(*elapsed, now),
            Request::LiftHold { reason, .. } if reason.is_empty() => pool::invalid("reason"),
            Request::LiftHold { .. } => self.shorten_hold(u64::MAX, now),
        };
        match plan {
            Err(Stop::Answer(answer)) => Verdict::Answer(answer),
            Err(Stop::Busy) => Verdict::Busy,
            Err(Stop::Refused(refusal)) => Verdict::Refused(refusal),
            Ok((flight, answer)) if flight.ops.is_empty() => {
                self.leave(flight.leaves.as_ref());
                Verdict::Answer(answer)
            }
            Ok((mut flight, answer)) => {
                self.forget_granted(&mut flight);
                self.planned += 1;
                flight.number = self.planned;
                let (number, ops, audit) =
                    (flight.number, flight.ops.clone(), flight.audit.clone());
                self.flights.push(flight);
                Verdict::Tentative {
                    number,
                    ops,
                    audit,
                    answer,
                }
            }
        }
    }

    pub fn confirm(&mut self, number: usize) {
        let at = self
            .flights
            .iter()
            .position(|flight| flight.number == number)
            .expect("in flight");
        let flight = self.flights.remove(at);
        let mut said = flight.audit.iter();
        let moves = said.any(|(action, ..)| *action == Action::PoolMoved);
        for op in flight.ops {
            let before = self.leases.clone();
            self.apply(op);
            self.count(&before, moves);
        }
        self.leave(flight.leaves.as_ref());
        if let Some(cluster) = flight.cluster_leaves {
            let stays = |waiter: &Waiter| waiter.identity.cluster.as_ref() != Some(&cluster);
            self.waiters.retain(stays);
            for flight in &mut self.flights {
                flight.gave_up.retain(stays);
            }
        }
    }

    pub fn abort(&mut self, number: usize) {
        let at = self
            .flights
            .iter()
            .position(|flight| flight.number == number)
            .expect("in flight");
        let flight = self.flights.remove(at);
        for waiter in flight.gave_up {
            self.waiters
                .retain(|known| (known.pool, &known.identity) != (waiter.pool, &waiter.identity));
            self.waiters.push(waiter);
        }
    }

    pub fn forget_waiter(&mut self, identity: &Identity) {
        self.waiters.retain(|waiter| waiter.identity != *identity);
        for flight in &mut self.flights {
            flight.gave_up.retain(|waiter| waiter.identity != *identity);
        }
    }

    pub fn forget_waiters_of(&mut self, cluster: &ClusterId, system: Option<&System>) {
        let of = |waiter: &Waiter| {
            waiter.identity.cluster.as_ref() == Some(cluster)
                && system.is_none_or(|system| waiter.identity.system == *system)
        };
        self.waiters.retain(|waiter| !of(waiter));
        for flight in &mut self.flights {
            flight.gave_up.retain(|waiter| !of(waiter));
        }
    }

    fn leave(&mut self, holder: Option<&Holder>) {
        let Some(holder) = holder else { return };
        let stays = |waiter: &Waiter| {
            waiter.identity != holder.identity || waiter.instance != holder.instance
        };
        self.waiters.retain(stays);
    }

    /// Takes a row as a store holds it.
    pub fn apply(&mut self, op: Op) {
        match op {
            Op::PutNetwork(network) => self.networks.push(network),
            Op::PutPool(pool) => {
                self.pools.retain(|known| known.id != pool.id);
                self.pools.push(pool);
                self.pools.sort_by_key(|pool| pool.id);
            }
            Op::DeletePool(id) => {
                self.pools.retain(|known| known.id != id);
                self.waiters.retain(|waiter| waiter.pool != id);
            }
            Op::PutNextPool(id) => self.next_pool = id.0,
            Op::PutSeparation(pair) => {
                self.separations.push(pair);
                self.separations.sort();
                self.separations.dedup();
            }
            Op::DeleteSeparation(pair) => self.separations.retain(|known| *known != pair),
            Op::PutQuota(quota) => {
                self.quotas
                    .retain(|known| (known.pool, &known.tenant) != (quota.pool, &quota.tenant));
                self.quotas.push(quota);
                self.quotas.sort();
            }
            Op::DeleteQuota { pool, tenant } => self
                .quotas
                .retain(|known| (known.pool, &known.tenant) != (pool, &tenant)),
            Op::PutLease(lease) => {
                self.leases.retain(|known| known.key != lease.key);
                self.leases.push(Lease::clone(&lease));
                self.leases.sort_by_key(|lease| lease.key);
            }
            Op::DeleteLease(key) => self.leases.retain(|known| known.key != key),
            Op::PutPast(past) => {
                self.pasts.retain(|known| known.key != past.key);
                self.pasts.push(PastLease::clone(&past));
                self.pasts.sort_by_key(|past| past.key);
            }
            Op::DeletePast(key) => self.pasts.retain(|known| known.key != key),
            Op::PutCluster(record) => {
                self.clusters.retain(|known| known.id != record.id);
                self.clusters.push(record);
            }
            Op::DeleteCluster(id) => self.clusters.retain(|known| known.id != id),
            Op::PutAdoption(marker) => {
                self.adoptions.retain(|known| !same_marker(known, &marker));
                self.adoptions.push(marker);
            }
            Op::DeleteAdoption {
                network,
                cluster,
                system,
            } => self.adoptions.retain(|known| {
                (known.network, &known.cluster, &known.system) != (network, &cluster, &system)
            }),
            Op::PutEpoch(epoch) => self.epoch = Some(epoch),
            Op::PutClock(_)
            | Op::PutAccount(_)
            | Op::DeleteAccount(_)
            | Op::PutToken(_)
            | Op::DeleteToken(_)
            | Op::PutKey(_)
            | Op::DeleteKey(_)
            | Op::PutRollup(_) => {}
        }
    }

    fn shorten_hold(&mut self, elapsed: u64, now: Timestamp) -> Plan {
        let changed = |flight: &Flight| flight.ops.iter().any(|op| matches!(op, Op::PutEpoch(_)));
        if self.flights.iter().any(changed) {
            return Err(Stop::Busy);
        }
        let Some((mut epoch, hold)) = self.epoch.and_then(|epoch| Some((epoch, epoch.hold?)))
        else {
            return Err(Stop::Answer(Answer::Done));
        };
        let left = hold.left.saturating_sub(elapsed);
        let until = Timestamp(now.0 + left);
        let far = until.0.abs_diff(hold.until.0) > 120_000;
        let until = if far { until } else { hold.until };
        epoch.hold = (left > 0).then_some(RestoreHold { left, until });
        let mut flight = Flight {
            ops: vec![Op::PutEpoch(epoch)],
            ..Flight::default()
        };
        if left == 0 {
            flight.say(Action::RestoreHoldEnded);
        }
        Ok((flight, Answer::Done))
    }

    pub fn network_name(&self, id: NetworkId) -> Text {
        let network = self.networks.iter().find(|network| network.id == id);
        network.expect("a pool's network exists").name.clone()
    }

    pub fn pool(&self, id: PoolId) -> Option<&Arc<Pool>> {
        self.pools.iter().find(|pool| pool.id == id)
    }

    pub fn lease(&self, key: LeaseKey) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.key == key)
    }

    /// Why the network gives nothing new.
    pub fn holds(&self, network: NetworkId) -> Vec<Hold> {
        let mut expected: Vec<&Expectation> = self
            .expectations
            .iter()
            .filter(|expected| expected.network == network)
            .collect();
        expected.sort();
        expected.dedup();
        let mut holds = Vec::new();
        for expected in expected {
            let record = self
                .clusters
                .iter()
                .find(|record| record.names.contains(&expected.cluster));
            let by_name = format!("name:{}", expected.cluster);
            let met = self.adoptions.iter().any(|marker| {
                marker.network == network
                    && marker.system == expected.system
                    && (*marker.cluster == *by_name
                        || record.is_some_and(|record| record.id.0 == marker.cluster))
            });
            if !met {
                holds.push(Hold {
                    cluster: expected.cluster.clone(),
                    id: record.map(|record| record.id.clone()),
                    system: expected.system.clone(),
                });
            }
        }
        holds
    }

    pub fn locked(&self, key: LeaseKey) -> bool {
        let mut keys = self.flights.iter().flat_map(|flight| &flight.keys);
        keys.any(|one| one.key == key)
    }

    pub fn gains(&self, identity: &Identity) -> bool {
        self.flights
            .iter()
            .any(|flight| flight.gains.contains(identity))
    }

    pub fn edited(&self, network: NetworkId) -> bool {
        self.flights
            .iter()
            .any(|flight| flight.edits.contains(&network))
    }

    /// Leases with the identity as member or contender; busy while that may change.
    pub fn leases_with(&self, identity: &Identity) -> Result<Vec<Lease>, Stop> {
        let with = |lease: &&Lease| {
            lease.held_by(identity)
                || lease
                    .contenders
                    .iter()
                    .any(|c| c.holder.identity == *identity)
        };
        let leases: Vec<Lease> = self.leases.iter().filter(with).cloned().collect();
        if self.gains(identity) || leases.iter().any(|lease| self.locked(lease.key)) {
            return Err(Stop::Busy);
        }
        Ok(leases)
    }
}

impl Flight {
    pub fn locks_pools(&self) -> bool {
        self.pools || !self.edits.is_empty()
    }

    pub fn put(&mut self, lease: &Lease, action: Action, identity: Option<Identity>) {
        self.keys.push(lease.prefix());
        self.ops.push(Op::PutLease(Arc::new(lease.clone())));
        self.audit.push((action, Some(lease.key.address), identity));
    }

    pub fn say(&mut self, action: Action) {
        self.audit.push((action, None, None));
    }
}

pub fn owner(lease: &Lease) -> Option<Identity> {
    lease
        .members
        .first()
        .map(|member| member.holder.identity.clone())
}

pub fn new_lease(
    LeasePrefix { key, length }: LeasePrefix,
    pool: Option<PoolId>,
    holder: &Holder,
    tenant: &Option<Tenant>,
    now: Timestamp,
) -> Lease {
    Lease {
        key,
        length,
        pool,
        state: LeaseState::Allocated,
        members: [Member {
            holder: holder.clone(),
            ports: Vec::new(),
        }]
        .into_iter()
        .collect(),
        contenders: Vec::new(),
        tenant: tenant.clone(),
        group: None,
        since: now,
        until: None,
        labels: Default::default(),
    }
}

pub fn same_marker(a: &Adoption, b: &Adoption) -> bool {
    (a.network, &a.cluster, &a.system) == (b.network, &b.cluster, &b.system)
}

/// All addresses of the little world that the histories play in.
pub fn world(family: Family) -> Vec<IpAddr> {
    let (base, count): (u128, u128) = match family {
        Family::V4 => (0x0a00_0000, 64),
        Family::V6 => (0xfd00_u128 << 112, 64),
    };
    (base..base + count)
        .map(|number| family.address(number))
        .collect()
}
