//! What to ask the address book for a FloatingIP, and what it already says.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Adopt, Allocate, Handover, Holder, Identity, Lease, LeaseKey, LeaseState, Ledger, Pool,
    Request, Text, Transfer, Want,
};

use super::{in_use, observe::Fip, status::Shown, validate::Wish};
use crate::controller::unserved::Unserved;
use crate::{
    controller::unserved::contended,
    systems::rancher_fip::names::{self, ServiceRef},
};

/// What is to be done about a FloatingIP.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// All is decided.
    Show(Shown),
    /// The same, but for the project that is charged.
    Charge(Shown, Box<Request>),
    Ask(Box<Request>),
    Unserved(Unserved),
    /// The object shows the lease of a Service that has given it up.
    Delete,
    /// The same, but the object was there before: it keeps the address.
    HandBack,
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
        .filter(|lease| lease.key.network == network)
        .min_by_key(|lease| lease.state != LeaseState::Allocated);
    if let Some(lease) = mine
        && lease.state == LeaseState::Allocated
        && lease.members.iter().any(|member| member.holder == *holder)
    {
        return match charge(&lease, holder, wish, actor) {
            Some(request) => Plan::Charge(Shown::of(&lease), Box::new(request)),
            None => Plan::Show(Shown::of(&lease)),
        };
    }
    if let Some(request) = take_back(ledger, holder, fip, wish, pool, actor) {
        return Plan::Ask(Box::new(request));
    }
    if let Some(address) = fip.recorded() {
        let key = LeaseKey { network, address };
        return match ledger.lease(key) {
            Some(lease) if lease.owner().is_some_and(|owner| is_for(&owner.identity)) => {
                Plan::Leave
            }
            Some(lease) if contends(lease, &holder.identity) => Plan::Unserved(contended(lease)),
            Some(_) | None => Plan::Ask(Box::new(adopt(key, holder.clone(), fip, actor))),
        };
    }
    let allocate = Request::Allocate(Allocate {
        holder: holder.clone(),
        tenant: Some(wish.project.clone()),
        wants: vec![Want {
            pool: pool.id.into(),
            address: wish.address,
            count: 1,
        }],
        waiting_since: Some(fip.meta.created),
        by_admin: false,
        share: None,
        probe: false,
        actor: Text::clone(actor),
    });
    Plan::Ask(Box::new(allocate))
}

/// The request for the address that a former FloatingIP left to the Service which this one is for.
fn take_back(
    ledger: &Ledger,
    holder: &Holder,
    fip: &Fip,
    wish: &Wish,
    pool: &Pool,
    actor: &Text,
) -> Option<Request> {
    let management = holder.identity.cluster.as_ref()?;
    let called = fip.cluster.as_deref()?;
    let services = in_use::named(fip);
    let [service] = services.as_slice() else {
        return None;
    };
    let from = names::reported_service(management, called, service);
    let wanted = fip.recorded().or(wish.address);
    let leases = ledger.leases_of(&from.identity);
    let fits = |lease: &&Arc<Lease>| {
        lease.pool == Some(pool.id)
            && lease.tenant.as_ref() == Some(&wish.project)
            && wanted.is_none_or(|wanted| wanted == lease.key.address)
    };
    let lease = leases.iter().find(fits)?;
    Some(Request::Handover(Handover {
        from,
        to: holder.clone(),
        keys: vec![lease.key],
        actor: Text::clone(actor),
        reason: "its Service has a FloatingIP again".into(),
    }))
}

/// The request that charges the lease to the project that the label names; `None`: it is.
fn charge(lease: &Lease, holder: &Holder, wish: &Wish, actor: &Text) -> Option<Request> {
    let moved = lease.tenant.as_ref() != Some(&wish.project) && lease.members.len() == 1;
    moved.then(|| {
        Request::Transfer(Transfer {
            key: lease.key,
            from: Some(holder.clone()),
            to: holder.clone(),
            tenant: Some(wish.project.clone()),
            force: false,
            actor: Text::clone(actor),
            reason: "its project label names another project".into(),
        })
    })
}

/// For a FloatingIP that shows the lease of a Service. `own` is its own identity, which has the lease once the
/// Service gave it up.
pub fn view(ledger: &Ledger, own: &Identity, service: &ServiceRef, fip: &Fip) -> Plan {
    let made_here = service.made(&own.name);
    let end = if made_here {
        Plan::Delete
    } else {
        Plan::HandBack
    };
    if !ledger.leases_of(own).is_empty() {
        return end;
    }
    let address: Option<IpAddr> = fip.wanted.parse().ok();
    let has = |lease: &&Arc<Lease>| Some(lease.key.address) == address;
    let holder = service.holder();
    let leases = ledger.leases_of(&holder.identity);
    let held: Vec<&Arc<Lease>> = leases
        .iter()
        .filter(|lease| lease.members.iter().any(|member| member.holder == holder))
        .collect();
    if let Some(lease) = held.iter().copied().find(has) {
        return Plan::Show(Shown::of(lease));
    }
    let contentions = ledger.contentions_of(&holder.identity);
    if let Some(lease) = contentions.iter().find(has) {
        return Plan::Unserved(contended(lease));
    }
    let same_family = |lease: &&Arc<Lease>| {
        address.is_some_and(|one| one.is_ipv4() == lease.key.address.is_ipv4())
    };
    // One that is ours moves to another address with its Service, another's passes to the next instance.
    let goes_on = if made_here {
        held.iter().copied().any(|lease| same_family(&lease))
    } else {
        leases.iter().any(|lease| has(&lease))
    };
    if goes_on { Plan::Leave } else { end }
}

/// The request that takes over what the object shows.
pub fn adopt(key: LeaseKey, holder: Holder, fip: &Fip, actor: &Text) -> Request {
    Request::Adopt(Adopt {
        key,
        holder,
        tenant: fip.project.clone(),
        since: fip.meta.created,
        actor: Text::clone(actor),
    })
}

fn contends(lease: &Lease, identity: &Identity) -> bool {
    lease
        .contenders
        .iter()
        .any(|contender| contender.holder.identity == *identity)
}

#[cfg(test)]
mod tests {
    use fipd_core::{ClusterId, Family, Op, Tenant};
    use fipd_crds::floating_ip::FloatingIP;

    use super::*;
    use crate::{
        controller::store::Key,
        systems::rancher_fip::{
            floating_ip::observe::slim,
            names::{KIND_FLOATING_IP, KIND_SERVICE},
            sample,
        },
    };

    fn holder(kind: &str, name: &str) -> Holder {
        Holder {
            identity: names::identity(&ClusterId("c".into()), kind, &Key::new("ns", name)),
            instance: "u".into(),
        }
    }

    #[test]
    fn one_made_for_a_service_leaves_the_address_to_it() {
        let key = sample::place("10.0.0.5");
        let mut ledger = Ledger::new();
        let held = sample::lease(key, Some(holder(KIND_SERVICE, "web")));
        ledger.apply(&Op::PutLease(Arc::new(held)));
        let own_holder = holder(KIND_FLOATING_IP, "fip-abc12");
        let mut fip = slim(FloatingIP::default());
        fip.status.ip_addr = "10.0.0.5".into();
        let wish = Wish {
            project: Tenant("p".into()),
            address: Some(key.address),
        };
        let web = holder(KIND_SERVICE, "web").identity;
        let net = sample::pool(1, "net");
        let plan = |is_for: &dyn Fn(&Identity) -> bool| {
            let actor = "a".into();
            own(&ledger, &own_holder, &fip, &wish, &net, &actor, is_for)
        };
        assert_eq!(plan(&|user| *user == web), Plan::Leave);
        let contend = Box::new(adopt(key, own_holder.clone(), &fip, &"a".into()));
        assert_eq!(plan(&|_| false), Plan::Ask(contend), "another's address");
    }

    #[test]
    fn a_floating_ip_that_comes_again_takes_back_what_its_service_kept() {
        let (key, net) = (sample::place("10.0.0.5"), sample::pool(1, "net"));
        let kept = |cluster: &str| {
            let service = Key::new("shop", "web");
            names::reported_service(&ClusterId("c".into()), cluster, &service)
        };
        let mut ledger = Ledger::new();
        let lease = Lease {
            pool: Some(net.id),
            tenant: Some(Tenant("p".into())),
            ..sample::lease(key, Some(kept("c-m-g")))
        };
        ledger.apply(&Op::PutLease(Arc::new(lease)));
        let own_holder = holder(KIND_FLOATING_IP, "fip-new");
        let plan = |cluster: &str, project: &str, address: Option<&str>| {
            let mut fip = slim(FloatingIP::default());
            fip.cluster = Some(cluster.into());
            fip.services = vec![fipd_crds::floating_ip::ServiceRef {
                service_namespace: "shop".into(),
                service_name: "web".into(),
            }];
            let wish = Wish {
                project: Tenant(project.into()),
                address: address.and_then(|address| address.parse().ok()),
            };
            let actor = "a".into();
            own(&ledger, &own_holder, &fip, &wish, &net, &actor, &|_| false)
        };
        for address in [None, Some("10.0.0.5")] {
            let Plan::Ask(request) = plan("c-m-g", "p", address) else {
                panic!("it asks for the address");
            };
            let Request::Handover(handover) = *request else {
                panic!("{request:?}");
            };
            assert_eq!((handover.from, handover.keys), (kept("c-m-g"), vec![key]));
        }
        for other in [
            plan("c-m-h", "p", None),
            plan("c-m-g", "p-2", None),
            plan("c-m-g", "p", Some("10.0.0.6")),
        ] {
            let Plan::Ask(request) = other else {
                panic!("it asks for another");
            };
            assert!(matches!(*request, Request::Allocate(_)), "{request:?}");
        }
    }

    #[test]
    fn defect_11_a_moved_project_label_charges_the_other_project() {
        let mut ledger = Ledger::new();
        let key = sample::place("10.0.0.5");
        let own_holder = holder(KIND_FLOATING_IP, "fip-abc12");
        let lease = Lease {
            tenant: Some(Tenant("p-old".into())),
            ..sample::lease(key, Some(own_holder.clone()))
        };
        ledger.apply(&Op::PutLease(Arc::new(lease)));
        let (fip, net) = (slim(FloatingIP::default()), sample::pool(1, "net"));
        let plan = |project: &str| {
            let wish = Wish {
                project: Tenant(project.into()),
                address: None,
            };
            own(
                &ledger,
                &own_holder,
                &fip,
                &wish,
                &net,
                &"a".into(),
                &|_| false,
            )
        };
        assert!(matches!(plan("p-old"), Plan::Show(_)));
        let Plan::Charge(shown, request) = plan("p-new") else {
            panic!("it is to be charged to the other");
        };
        assert_eq!(shown.address, key.address);
        let Request::Transfer(transfer) = *request else {
            panic!("{request:?}");
        };
        assert_eq!(transfer.tenant, Some(Tenant("p-new".into())));
        assert!(!transfer.force && transfer.to == own_holder);
    }

    #[test]
    fn only_what_was_made_for_a_service_is_deleted_with_it() {
        let service =
            |uid: &str| ServiceRef::parse(&format!("Service/c/ns/web/{uid}")).expect("a Service");
        let lease = |address: &str, holder: Holder| {
            let lease = sample::lease(sample::place(address), Some(holder));
            Op::PutLease(Arc::new(lease))
        };
        let mut fip = slim(FloatingIP::default());
        fip.wanted = "10.0.0.5".into();
        let ours = service("u").floating_ip_name(Family::V4);
        let plan = |ledger: &Ledger, name: &str| {
            view(
                ledger,
                &holder(KIND_FLOATING_IP, name).identity,
                &service("u"),
                &fip,
            )
        };
        let mut ledger = Ledger::new();
        assert_eq!(plan(&ledger, &ours), Plan::Delete);
        assert_eq!(plan(&ledger, "fip-abc12"), Plan::HandBack);
        ledger.apply(&lease("10.0.0.6", service("u").holder()));
        assert_eq!(plan(&ledger, &ours), Plan::Leave, "it moves");
        assert_eq!(
            plan(&ledger, "fip-abc12"),
            Plan::HandBack,
            "it keeps its address"
        );
        ledger.apply(&lease("10.0.0.5", service("next").holder()));
        assert_eq!(plan(&ledger, "fip-abc12"), Plan::Leave, "the next shows it");
        ledger.apply(&lease("10.0.0.5", service("u").holder()));
        assert!(matches!(plan(&ledger, "fip-abc12"), Plan::Show(_)));
        ledger.apply(&lease("10.0.0.5", holder(KIND_FLOATING_IP, "fip-abc12")));
        assert_eq!(plan(&ledger, "fip-abc12"), Plan::HandBack);
    }
}
