//! Whether a FlatNetworkSubnet may be stored.

use std::net::IpAddr;

use fipd_core::{Identity, Ledger, PoolId, Span, System, Text};
use fipd_crds::{flat_network::FlatNetworkSubnetSpec, labels::NETWORK};

use super::{BookReader, FlatFacts, for_now, holder_text};
use crate::{
    admission::{
        review::{Operation, Question, Verdict},
        spec,
    },
    controller::pool_source::may_follow,
    systems::flat_network::subnet::left_behind,
    validation::{
        Wrong,
        flat_network::{
            changes, clash, pools, spans,
            subnet::{FlatSubnet, check_namespace},
        },
    },
};

/// Leases that are looked at for a user to name.
const LOOKED_AT: usize = 200;
/// Runs of addresses that a change would lose, and leases of each that are looked at.
const RUNS: usize = 25;
const OF_RUN: usize = 20;

/// A subnet whose fields are as they must be.
pub struct SubnetWrite {
    name: String,
    after: FlatSubnet,
    is_new: bool,
    /// The network that the object names.
    network: Option<String>,
}

/// What the address book knows of a subnet.
#[derive(Default)]
struct SubnetUse {
    pool: Option<PoolId>,
    /// Its pool goes where the VLAN leads, as nobody chose its network and nothing of it is in use.
    follows: bool,
    /// Why it may not be on its VLAN.
    left: Option<Wrong>,
    /// Somebody has an address of it.
    in_use: bool,
    /// Of those, one to name.
    user: Option<Identity>,
    /// Addresses in use that it would not give any more.
    outside: Vec<IpAddr>,
}

impl SubnetWrite {
    /// Rules S1 to S7, and what nobody checked.
    pub fn read(question: &Question, namespace: Option<&Text>) -> Result<Self, Verdict> {
        let is_new = question.operation == Operation::Create;
        let before = question.before();
        if before.is_some_and(|old| old.spec == question.object.spec) {
            return Err(Verdict::allowed());
        }
        match counts(question, namespace) {
            Err(wrong) if is_new => return Err(wrong.into()),
            // It counts for nothing, and whoever moves it may write it.
            Err(wrong) => return Err(Verdict::warned(vec![wrong.to_string()])),
            Ok(()) => {}
        }
        let after = FlatSubnet::read(&spec::<FlatNetworkSubnetSpec>(&question.object.spec)?)?;
        after.check_partner(&question.name)?;
        Ok(Self {
            name: question.name.clone(),
            after,
            is_new,
            network: question.object.annotation(NETWORK).map(str::to_owned),
        })
    }

    /// Rules S8 to S10, by all pools of the network, and what may not change.
    pub fn judge(
        &self,
        facts: &dyn FlatFacts,
        book: &impl BookReader,
    ) -> Result<Vec<String>, Verdict> {
        let after = &self.after;
        // Not what the object said before: that may have been refused.
        let before = facts.subnet(&self.name).filter(|_| !self.is_new);
        let before = before.as_deref();
        let lost = before.map(|before| changes::lost(before, after));
        let lost = lost.unwrap_or_default();
        let used = book.look(|ledger| SubnetUse::of(ledger, facts, self, &lost));
        if let Some(before) = before.filter(|_| used.in_use) {
            let user = used.user.as_ref().map(|user| holder_text(user, facts));
            let user = user.unwrap_or_else(|| "a pod".to_owned());
            changes::check_fixed(before, after, &user).map_err(for_now)?;
        }
        if before.is_none_or(|before| before.vlan != after.vlan) {
            used.left.clone().map_or(Ok(()), Err).map_err(for_now)?;
        }
        changes::check_outside(&used.outside).map_err(for_now)?;
        let had = before.map(FlatSubnet::given).unwrap_or_default();
        let all = after.given();
        let more = spans::minus(&all, &had);
        let moved = before.is_none_or(|before| is_elsewhere(before, after));
        if moved || !more.is_empty() {
            let subnets = facts.subnets();
            let others = subnets.iter().filter(|(name, _)| *name != self.name);
            let clashes = clash::clashes(after, others.map(|(name, one)| (name.as_str(), &**one)));
            clash::refuse(&clashes).map_err(for_now)?;
        }
        let network = facts.network(&self.name, after, self.network.as_deref());
        let given = (all.as_slice(), more.as_slice());
        let overlaps = book.look(|ledger| overlaps(ledger, &used, &network, given));
        pools::refuse(&overlaps).map_err(for_now)?;
        Ok(after.remark().into_iter().collect())
    }
}

/// Whether its pods are on another interface, or made in another way.
fn is_elsewhere(before: &FlatSubnet, after: &FlatSubnet) -> bool {
    let place = |one: &FlatSubnet| (one.interface(), one.kind.as_str(), one.cidr);
    place(before) != place(after)
}

/// The pools that give any of these addresses as well: of those that are new, or of all where the subnet goes to another network. A
/// network that is yet to be made has none.
fn overlaps(
    ledger: &Ledger,
    used: &SubnetUse,
    network: &str,
    (all, new): (&[Span], &[Span]),
) -> Vec<pools::PoolOverlap> {
    let pool = used.pool.and_then(|id| ledger.pool(id));
    let own = pool.map(|pool| pool.spec.network);
    let by_name = ledger.network_by_name(network).map(|network| network.id);
    let (network, given) = match used.follows && by_name != own {
        true => (by_name, all),
        false => (own.or(by_name), new),
    };
    network.map_or_else(Vec::new, |network| {
        pools::overlaps(ledger, network, used.pool, given)
    })
}

/// Whether a subnet counts where it is; also where that is not known.
pub fn counts(question: &Question, namespace: Option<&Text>) -> Result<(), Wrong> {
    namespace.map_or(Ok(()), |allowed| {
        check_namespace(&question.namespace, allowed)
    })
}

/// What the address book calls the subnet.
pub fn object_of(facts: &dyn FlatFacts, name: &str) -> String {
    format!("{}/{name}", facts.namespace())
}

impl SubnetUse {
    fn of(ledger: &Ledger, facts: &dyn FlatFacts, write: &SubnetWrite, lost: &[Span]) -> Self {
        let system = System::flat_network();
        let pool = ledger.mirror(&system, facts.id(), &object_of(facts, &write.name));
        let Some(found) = pool else {
            return Self::default();
        };
        let pool = found.id;
        let usage = ledger.usage(pool);
        let leases = ledger.pool_leases(pool, None, LOOKED_AT);
        let follows = may_follow(ledger, found);
        let left = || left_behind(ledger, found, &write.after);
        let user = leases.iter().find_map(|lease| lease.owner());
        let runs = lost.iter().take(RUNS);
        let leases = runs.flat_map(|span| ledger.pool_range(pool, *span, OF_RUN));
        let held = leases.filter(|lease| lease.pool == Some(pool) && lease.owner().is_some());
        Self {
            pool: Some(pool),
            follows,
            left: (!follows).then(left).flatten(),
            in_use: usage.is_some_and(|usage| usage.held() > 0),
            user: user.map(|user| user.identity.clone()),
            outside: held.map(|lease| lease.key.address).collect(),
        }
    }
}
