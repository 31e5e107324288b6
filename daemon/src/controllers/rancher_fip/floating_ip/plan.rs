//! What to ask the address book for a FloatingIP, and what it already says.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Adopt, Allocate, Holder, Identity, Lease, LeaseKey, Ledger, Pool, Request, Text, Want,
};

use super::{
    observe::Fip,
    status::{CONFLICT, Shown},
    validate::{Problem, Wish},
};
use crate::controllers::wakes::Cause;

/// What is to be done about a FloatingIP.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// All is decided.
    Show(Shown),
    Ask(Request),
    Problem(Problem),
    /// The object shows the lease of a Service that has given it up.
    Delete,
    /// Somebody is about to change the object.
    Leave,
}

/// For a FloatingIP that holds its address itself. `is_for` tells whether another program made it for a Service,
/// which then takes it over.
pub fn own(
    ledger: &Ledger,
    holder: &Holder,
    fip: &Fip,
    wish: &Wish,
    pool: &Pool,
    actor: &Text,
    is_for: &dyn Fn(&Identity) -> bool,
) -> Plan {
    let network = pool.spec.network;
    let mine = ledger
        .leases_of(&holder.identity)
        .into_iter()
        .find(|lease| lease.key.network == network);
    if let Some(lease) = mine
        && lease.members.iter().any(|member| member.holder == *holder)
    {
        return Plan::Show(Shown::of(&lease));
    }
    if let Some(address) = fip.recorded() {
        let key = LeaseKey { network, address };
        return match ledger.lease(key) {
            Some(lease) if lease.owner().is_some_and(|owner| is_for(&owner.identity)) => {
                Plan::Leave
            }
            Some(lease) if contends(lease, &holder.identity) => Plan::Problem(contended(lease)),
            Some(_) | None => Plan::Ask(adopt(key, holder.clone(), fip, actor)),
        };
    }
    Plan::Ask(Request::Allocate(Allocate {
        holder: holder.clone(),
        tenant: Some(wish.project.clone()),
        wants: vec![Want {
            pool: pool.id,
            address: wish.address,
            count: 1,
        }],
        waiting_since: Some(fip.created),
        actor: Text::clone(actor),
    }))
}

/// For a FloatingIP that shows the lease of a Service. `own` is its own identity, which has the lease once the
/// Service gave it up.
pub fn view(ledger: &Ledger, own: &Identity, service: &Holder, fip: &Fip) -> Plan {
    if !ledger.leases_of(own).is_empty() {
        return Plan::Delete;
    }
    let address: Option<IpAddr> = fip.wanted.parse().ok();
    let leases = ledger.leases_of(&service.identity);
    let held: Vec<&Arc<Lease>> = leases
        .iter()
        .filter(|lease| lease.members.iter().any(|member| member.holder == *service))
        .collect();
    if let Some(lease) = held.iter().find(|lease| Some(lease.key.address) == address) {
        return Plan::Show(Shown::of(lease));
    }
    let contentions = ledger.contentions_of(&service.identity);
    if let Some(lease) = contentions
        .iter()
        .find(|lease| Some(lease.key.address) == address)
    {
        return Plan::Problem(contended(lease));
    }
    let same_family = |lease: &&Arc<Lease>| {
        address.is_some_and(|one| one.is_ipv4() == lease.key.address.is_ipv4())
    };
    if held.iter().any(same_family) {
        Plan::Leave
    } else {
        Plan::Delete
    }
}

/// The request that takes over what the object shows.
pub fn adopt(key: LeaseKey, holder: Holder, fip: &Fip, actor: &Text) -> Request {
    Request::Adopt(Adopt {
        key,
        holder,
        tenant: fip.project.clone(),
        since: fip.created,
        actor: Text::clone(actor),
    })
}

/// Another holds the address.
pub fn contended(lease: &Lease) -> Problem {
    let owner = lease
        .owner()
        .map_or_else(|| "nobody".into(), |holder| holder.identity.to_string());
    let message = format!(
        "{} is held by {owner}; this one gets it when that is released, end one of the two uses",
        lease.key.address
    );
    Problem::new(CONFLICT, message, Some(Cause::Address(lease.key)))
}

fn contends(lease: &Lease, identity: &Identity) -> bool {
    lease
        .contenders
        .iter()
        .any(|contender| contender.holder.identity == *identity)
}

#[cfg(test)]
mod tests {
    use fipd_core::{
        ClusterId, Ends, EndsOf, LeaseState, Member, NetworkId, Op, Order, Origin, PoolId,
        PoolSpec, Tenant, Timestamp,
    };
    use fipd_crds::floating_ip::FloatingIP;

    use super::*;
    use crate::controllers::{
        objects::Key,
        rancher_fip::{
            floating_ip::observe::slim,
            names::{self, KIND_FLOATING_IP, KIND_SERVICE},
        },
    };

    fn holder(kind: &str, name: &str) -> Holder {
        Holder {
            identity: names::identity(&ClusterId("c".into()), kind, &Key::new("ns", name)),
            instance: "u".into(),
        }
    }

    fn pool() -> Pool {
        let spec = PoolSpec {
            name: "net".into(),
            network: NetworkId::DEFAULT,
            addresses: vec![],
            exclusions: vec![],
            gateway: None,
            prefix_len: None,
            subnet: None,
            ends: Ends {
                first: 0,
                last: 0,
                of: EndsOf::Prefix,
            },
            order: Order::Lowest,
            origin: Origin::Own,
            closed: false,
        };
        Pool {
            id: PoolId(1),
            spec,
            created: Timestamp(0),
            generation: 1,
        }
    }

    #[test]
    fn one_made_for_a_service_leaves_the_address_to_it() {
        let key = LeaseKey {
            network: NetworkId::DEFAULT,
            address: "10.0.0.5".parse().expect("v4"),
        };
        let member = Member {
            holder: holder(KIND_SERVICE, "web"),
            ports: vec![],
        };
        let mut ledger = Ledger::new();
        ledger.apply(&Op::PutLease(Arc::new(Lease {
            key,
            pool: None,
            state: LeaseState::Allocated,
            members: std::iter::once(member).collect(),
            contenders: vec![],
            tenant: None,
            group: None,
            since: Timestamp(0),
            until: None,
        })));
        let own_holder = holder(KIND_FLOATING_IP, "fip-abc12");
        let mut fip = slim(FloatingIP::default());
        fip.status.ip_addr = "10.0.0.5".into();
        let wish = Wish {
            project: Tenant("p".into()),
            address: Some(key.address),
        };
        let web = holder(KIND_SERVICE, "web").identity;
        let plan = |is_for: &dyn Fn(&Identity) -> bool| {
            let actor = "a".into();
            own(&ledger, &own_holder, &fip, &wish, &pool(), &actor, is_for)
        };
        assert_eq!(plan(&|user| *user == web), Plan::Leave);
        let contend = adopt(key, own_holder.clone(), &fip, &"a".into());
        assert_eq!(plan(&|_| false), Plan::Ask(contend), "another's address");
    }
}
