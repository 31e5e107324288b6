//! What to ask the address book for a claim, and what it already says.

use fipd_core::{
    Adopt, Allocate, Holder, LeaseState, Ledger, Request, Tenant, Text, Timestamp, Want,
};

use super::{pools::Wish, status::Shown};
use crate::controller::unserved::{Unserved, contended};

/// What is to be done about a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// All is decided.
    Show(Shown),
    Ask(Box<Request>),
    Unserved(Unserved),
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Asker {
    pub holder: Holder,
    pub tenant: Tenant,
    pub created: Timestamp,
    pub actor: Text,
}

/// What a claim has goes before what it asks for: neither its status nor an edit of a pool takes an address away.
pub fn plan(ledger: &Ledger, asker: &Asker, wish: Result<Wish, Unserved>) -> Plan {
    let identity = &asker.holder.identity;
    let leases = ledger.leases_of(identity);
    if let Some(lease) = leases
        .iter()
        .min_by_key(|lease| lease.state != LeaseState::Allocated)
    {
        let ours = lease
            .members
            .iter()
            .any(|member| member.holder == asker.holder);
        if lease.state == LeaseState::Allocated && ours {
            return Plan::Show(Shown::of(ledger, lease));
        }
        // Kept for it, or of an object of this name before: it is its own.
        return Plan::Ask(Box::new(Request::Adopt(Adopt {
            key: lease.key,
            holder: asker.holder.clone(),
            tenant: Some(asker.tenant.clone()),
            since: asker.created,
            actor: Text::clone(&asker.actor),
        })));
    }
    if let Some(lease) = ledger.contentions_of(identity).first() {
        return Plan::Unserved(contended(lease));
    }
    match wish {
        Err(problem) => Plan::Unserved(problem),
        Ok(wish) => Plan::Ask(Box::new(allocate(asker, &wish))),
    }
}

fn allocate(asker: &Asker, wish: &Wish) -> Request {
    Request::Allocate(Allocate {
        holder: asker.holder.clone(),
        tenant: Some(asker.tenant.clone()),
        wants: vec![Want {
            pool: wish.pool.id.into(),
            address: wish.address,
            count: 1,
        }],
        waiting_since: Some(asker.created),
        by_admin: false,
        share: None,
        probe: false,
        actor: Text::clone(&asker.actor),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{
        AddressSpec, ClusterId, Contender, Lease, LeaseKey, Member, NetworkId, Op, Pool, PoolId,
        PoolSpec,
    };

    use super::*;
    use crate::{
        controller::{conditions::CONFLICT, store::Key, waiters::Cause},
        systems::claims::names,
    };

    fn asker(name: &str, uid: &str) -> Asker {
        let key = Key::new("ns", name);
        Asker {
            holder: Holder {
                identity: names::identity(&ClusterId("c".into()), &key),
                instance: uid.into(),
            },
            tenant: names::tenant("x", "ns"),
            created: Timestamp(7),
            actor: "test".into(),
        }
    }

    fn pool() -> Arc<Pool> {
        let addresses: AddressSpec = "10.0.0.0/24".parse().expect("addresses");
        Arc::new(Pool {
            id: PoolId(1),
            spec: PoolSpec {
                gateway: "10.0.0.1".parse().ok(),
                ..PoolSpec::own("lab", vec![addresses])
            },
            created: Timestamp(0),
            generation: 1,
        })
    }

    fn lease(holder: Holder, contender: Option<Holder>) -> Lease {
        Lease {
            key: LeaseKey {
                network: NetworkId::DEFAULT,
                address: [10, 0, 0, 9].into(),
            },
            pool: Some(PoolId(1)),
            state: LeaseState::Allocated,
            members: [Member {
                holder,
                ports: vec![],
            }]
            .into_iter()
            .collect(),
            contenders: contender
                .map(|holder| Contender {
                    holder,
                    tenant: None,
                    since: Timestamp(1),
                })
                .into_iter()
                .collect(),
            tenant: None,
            group: None,
            since: Timestamp(1_000),
            until: None,
            labels: Default::default(),
        }
    }

    fn asked(plan: &Plan) -> &'static str {
        match plan {
            Plan::Show(_) => "show",
            Plan::Unserved(problem) => problem.reason,
            Plan::Ask(request) if matches!(**request, Request::Allocate(_)) => "allocate",
            Plan::Ask(request) if matches!(**request, Request::Adopt(_)) => "adopt",
            Plan::Ask(request) => panic!("{request:?}"),
        }
    }

    #[test]
    fn what_it_has_goes_before_what_it_asks_for() {
        let mut ledger = Ledger::new();
        ledger.apply(&Op::PutPool(pool()));
        let wish = || {
            Ok(Wish {
                pool: pool(),
                address: None,
            })
        };
        let gone = || Err(Unserved::new("PoolNotFound", "", Some(Cause::Pools)));
        let one = asker("one", "u");
        assert_eq!(asked(&plan(&ledger, &one, wish())), "allocate");
        assert_eq!(asked(&plan(&ledger, &one, gone())), "PoolNotFound");

        let two = asker("two", "u");
        let held = lease(one.holder.clone(), Some(two.holder.clone()));
        ledger.apply(&Op::PutLease(Arc::new(held.clone())));
        let Plan::Show(shown) = plan(&ledger, &one, gone()) else {
            panic!("it has an address");
        };
        assert_eq!(
            (shown.address.to_string(), shown.prefix_len),
            ("10.0.0.9".into(), 24)
        );
        assert_eq!(
            shown.gateway.map(|one| one.to_string()),
            Some("10.0.0.1".into())
        );
        assert_eq!(shown.contenders.len(), 1);
        assert_eq!(asked(&plan(&ledger, &two, wish())), CONFLICT);
        assert_eq!(
            asked(&plan(&ledger, &asker("one", "next"), wish())),
            "adopt"
        );

        let orphan = Lease {
            state: LeaseState::Orphaned,
            ..held
        };
        ledger.apply(&Op::PutLease(Arc::new(orphan)));
        assert_eq!(asked(&plan(&ledger, &one, gone())), "adopt");
    }
}
