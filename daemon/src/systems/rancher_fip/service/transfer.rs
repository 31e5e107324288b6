//! Services that another program of the family served before: each keeps the address that its FloatingIP has.
//!
//! Such a FloatingIP holds its lease itself. The Service takes the lease over, and the object becomes the one
//! that shows it.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Adopt, ClusterId, Family, Handover, Holder, Lease, LeaseKey, Ledger, Release, ReleaseScope,
    Request, System, Tenant, Text,
};

use super::{
    observe::Svc,
    plan::{self, PoolsByFamily},
    validate::Wish,
};
use crate::{
    controller::{store::Key, unserved::Unserved, waiters::Cause},
    systems::rancher_fip::{
        floating_ip::observe::Fip,
        names::{self, FLOATING_IP, HOLDER, KIND_FLOATING_IP, PROJECT, ServiceRef},
    },
};

/// What is known of a Service when its FloatingIPs are looked at.
pub struct Look<'a> {
    /// The cluster of the FloatingIPs.
    pub management: &'a ClusterId,
    pub service: &'a ServiceRef,
    pub wish: &'a Wish,
    pub named: Option<&'a PoolsByFamily>,
    pub held: &'a [Arc<Lease>],
    /// Addresses that the Service shows.
    pub shown: &'a [IpAddr],
    /// Of the Service.
    pub project: &'a Tenant,
    /// Which Services there are in its cluster.
    pub lives: &'a (dyn Fn(&Key) -> bool + Sync),
    pub actor: Text,
}

/// Whether another program of the family serves it.
pub fn is_stock(svc: &Svc) -> bool {
    let noted = svc.mark(FLOATING_IP).is_some_and(|text| !text.is_empty());
    noted && svc.mark(HOLDER).is_none()
}

/// What to ask the address book for, so that the Service has what its FloatingIPs have.
pub fn requests(
    ledger: &Ledger,
    look: &Look<'_>,
    mut fips: Vec<(Key, Arc<Fip>)>,
) -> Result<Vec<Request>, Unserved> {
    let mut missing = plan::compare(look.wish, look.held, look.named).missing;
    fips.sort_by_key(|(_, fip)| !fip.recorded().is_some_and(|one| look.shown.contains(&one)));
    let mut requests = Vec::new();
    for (key, fip) in fips.iter().filter(|(_, fip)| fip.meta.deleted.is_none()) {
        let pool = ledger.mirror(&System::rancher_fip(), look.management, &fip.pool);
        let (Some(address), Some(pool)) = (fip.recorded(), pool) else {
            continue;
        };
        let place = LeaseKey {
            network: pool.spec.network,
            address,
        };
        let uid = Text::clone(&fip.meta.uid);
        let own = names::holder(look.management, KIND_FLOATING_IP, key, uid);
        let lease = ledger.lease(place);
        if lease.is_some_and(|lease| lease.held_by(&look.service.holder().identity)) {
            requests.extend(lease.and_then(|lease| withdraw(lease, &own, look)));
            continue;
        }
        let (request, of_pool) = match lease {
            None => (adopt(look, fip, place), Some(pool.id)),
            Some(lease) => match handover(look, lease, &own) {
                Some(request) => (request, lease.pool),
                None => continue,
            },
        };
        let family = Family::of(address);
        if !missing.contains(&family) || !plan::fits(look.wish, look.named, address, of_pool) {
            continue;
        }
        if fip.project.as_ref() != Some(look.project) {
            if look.shown.contains(&address) {
                return Err(of_another_project(key, place, look.project));
            }
            continue;
        }
        if fip.is_shared(&look.service.key, look.lives) {
            return Err(shared(key, place));
        }
        missing.retain(|one| *one != family);
        requests.push(request);
    }
    Ok(requests)
}

fn handover(look: &Look<'_>, lease: &Lease, own: &Holder) -> Option<Request> {
    let mut members = lease.members.iter();
    let member = members.find(|member| member.holder.identity == own.identity)?;
    Some(Request::Handover(Handover {
        from: member.holder.clone(),
        to: look.service.holder(),
        keys: vec![lease.key],
        actor: Text::clone(&look.actor),
        reason: Text::default(),
    }))
}

/// The FloatingIP was found using its address beside the Service, for which it uses it.
fn withdraw(lease: &Lease, own: &Holder, look: &Look<'_>) -> Option<Request> {
    let mut contenders = lease.contenders.iter();
    let contender = contenders.find(|one| one.holder.identity == own.identity)?;
    Some(Request::Release(Release {
        scope: ReleaseScope::Contention {
            contender: contender.holder.clone(),
            key: lease.key,
            beside: Some(look.service.holder().identity),
        },
        actor: Text::clone(&look.actor),
        reason: "its Service has the address".into(),
    }))
}

fn adopt(look: &Look<'_>, fip: &Fip, key: LeaseKey) -> Request {
    Request::Adopt(Adopt {
        key,
        holder: look.service.holder(),
        tenant: fip.project.clone(),
        since: fip.meta.created,
        actor: Text::clone(&look.actor),
    })
}

fn shared(key: &Key, place: LeaseKey) -> Unserved {
    let message = format!(
        "{} is shared with other Services by FloatingIP {}/{}, which fipd does not do: give each Service a FloatingIP of its own, or leave these to the controller that served them",
        place.address, key.namespace, key.name
    );
    Unserved::new("AddressShared", message, Some(Cause::Address(place)))
}

fn of_another_project(key: &Key, place: LeaseKey, project: &Tenant) -> Unserved {
    let message = format!(
        "{} is kept by FloatingIP {}/{} for another project than {}, which this Service belongs to: correct the label {PROJECT} of the one or the project of the other",
        place.address, key.namespace, key.name, project.0
    );
    Unserved::new("OtherProject", message, Some(Cause::Address(place)))
}

pub fn not_reached() -> Unserved {
    let message = format!(
        "annotation {FLOATING_IP} tells of a FloatingIP, and the management cluster has not been reached since the start; it is tried again when it is"
    );
    Unserved::new("WaitingForRancher", message, Some(Cause::Pools))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fipd_core::{AddressSpec, Contender, Op, Origin, PoolId, Timestamp};
    use fipd_crds::floating_ip::{FloatingIP, ServiceRef as Assignee};

    use super::*;
    use crate::systems::rancher_fip::{
        floating_ip::observe::view,
        sample::{self, place},
    };

    const ADDRESS: &str = "10.0.0.5";

    fn management() -> ClusterId {
        ClusterId("m".into())
    }

    fn service() -> ServiceRef {
        ServiceRef {
            cluster: ClusterId("d".into()),
            key: Key::new("ns", "web"),
            uid: "u".into(),
        }
    }

    fn own(name: &str) -> Holder {
        Holder {
            identity: names::identity(&management(), KIND_FLOATING_IP, &Key::new("c", name)),
            instance: "f".into(),
        }
    }

    fn ledger() -> Ledger {
        let mut pool = sample::pool(1, "rancher-fip/m/net");
        pool.spec.addresses = vec![AddressSpec::Cidr("10.0.0.0/24".parse().expect("a CIDR"))];
        pool.spec.origin = Origin::Mirror {
            system: System::rancher_fip(),
            cluster: management(),
            object: "net".into(),
            uid: "p".into(),
        };
        let mut ledger = Ledger::new();
        ledger.apply(&Op::PutPool(Arc::new(pool)));
        ledger
    }

    fn lease(address: &str, holder: Holder, contender: Option<Holder>) -> Arc<Lease> {
        let contender = contender.map(|holder| Contender {
            holder,
            tenant: None,
            since: Timestamp(0),
        });
        Arc::new(Lease {
            pool: Some(PoolId(1)),
            contenders: contender.into_iter().collect(),
            tenant: Some(Tenant("p".into())),
            ..sample::lease(place(address), Some(holder))
        })
    }

    fn fip(name: &str, address: &str, services: &[&str]) -> (Key, Arc<Fip>) {
        let mut fip = view(FloatingIP::default());
        fip.meta.uid = "f".into();
        fip.pool = "net".into();
        fip.project = Some(Tenant("p".into()));
        fip.status.ip_addr = address.into();
        let assignee = |name: &&str| Assignee {
            service_namespace: "ns".into(),
            service_name: (*name).into(),
        };
        fip.services = services.iter().map(assignee).collect();
        (Key::new("c", name), Arc::new(fip))
    }

    fn wish() -> Wish {
        Wish {
            families: vec![Family::V4],
            second_optional: false,
            pool: None,
            addresses: BTreeMap::new(),
        }
    }

    fn asked(
        ledger: &Ledger,
        wish: &Wish,
        shown: &str,
        fips: Vec<(Key, Arc<Fip>)>,
    ) -> Result<Vec<Request>, Unserved> {
        let (management, service) = (management(), service());
        let held = ledger.leases_of(&service.holder().identity);
        let look = Look {
            management: &management,
            service: &service,
            wish,
            named: None,
            held: &held,
            shown: &[shown.parse().expect("an address")],
            project: &Tenant("p".into()),
            lives: &|key| &*key.name != "gone",
            actor: "a".into(),
        };
        requests(ledger, &look, fips)
    }

    fn taken(address: &str, name: &str) -> Request {
        Request::Handover(Handover {
            from: own(name),
            to: service().holder(),
            keys: vec![place(address)],
            actor: "a".into(),
            reason: "".into(),
        })
    }

    #[test]
    fn a_service_takes_the_lease_of_its_floating_ip() {
        let mut ledger = ledger();
        ledger.apply(&Op::PutLease(lease(ADDRESS, own("one"), None)));
        ledger.apply(&Op::PutLease(lease("10.0.0.6", own("two"), None)));
        let fips = || {
            vec![
                fip("one", ADDRESS, &["web"]),
                fip("two", "10.0.0.6", &["web"]),
            ]
        };
        assert_eq!(
            asked(&ledger, &wish(), "10.0.0.6", fips()),
            Ok(vec![taken("10.0.0.6", "two")]),
            "that which it shows, and no second one"
        );
        assert_eq!(
            asked(&ledger, &wish(), "10.0.0.9", fips()),
            Ok(vec![taken(ADDRESS, "one")])
        );
        let mut other = wish();
        other
            .addresses
            .insert(Family::V4, "10.0.0.7".parse().expect("v4"));
        assert_eq!(asked(&ledger, &other, ADDRESS, fips()), Ok(vec![]));
    }

    #[test]
    fn nothing_is_taken_from_others() {
        let mut ledger = ledger();
        ledger.apply(&Op::PutLease(lease(ADDRESS, own("other"), None)));
        let fips = vec![fip("one", ADDRESS, &["web"])];
        assert_eq!(asked(&ledger, &wish(), ADDRESS, fips), Ok(vec![]));
        ledger.apply(&Op::PutLease(lease(ADDRESS, own("one"), None)));
        let problem = asked(
            &ledger,
            &wish(),
            ADDRESS,
            vec![fip("one", ADDRESS, &["web", "api"])],
        )
        .expect_err("shared");
        assert_eq!(problem.reason, "AddressShared");
        let stale = fip("one", ADDRESS, &["web", "gone", ""]);
        assert_eq!(
            asked(&ledger, &wish(), ADDRESS, vec![stale]),
            Ok(vec![taken(ADDRESS, "one")]),
            "labels of Services that are gone share nothing"
        );
        let anothers = || {
            let (key, fip) = fip("one", ADDRESS, &["web"]);
            let project = Some(Tenant("other".into()));
            vec![(
                key,
                Arc::new(Fip {
                    project,
                    ..Fip::clone(&fip)
                }),
            )]
        };
        let problem = asked(&ledger, &wish(), ADDRESS, anothers()).expect_err("another project's");
        assert_eq!(problem.reason, "OtherProject");
        assert_eq!(asked(&ledger, &wish(), "10.0.0.9", anothers()), Ok(vec![]));
    }

    #[test]
    fn an_address_of_nobody_is_adopted_and_a_floating_ip_beside_its_service_withdrawn() {
        let mut ledger = ledger();
        let fips = || vec![fip("one", ADDRESS, &["web"])];
        let adopted = asked(&ledger, &wish(), ADDRESS, fips()).expect("requests");
        assert!(
            matches!(adopted.as_slice(), [Request::Adopt(ask)] if ask.key == place(ADDRESS) && ask.holder == service().holder()),
            "{adopted:?}"
        );
        let both = lease(ADDRESS, service().holder(), Some(own("one")));
        ledger.apply(&Op::PutLease(both));
        let release = Request::Release(Release {
            scope: ReleaseScope::Contention {
                contender: own("one"),
                key: place(ADDRESS),
                beside: Some(service().holder().identity),
            },
            actor: "a".into(),
            reason: "its Service has the address".into(),
        });
        assert_eq!(asked(&ledger, &wish(), ADDRESS, fips()), Ok(vec![release]));
        ledger.apply(&Op::PutLease(lease(ADDRESS, service().holder(), None)));
        assert_eq!(asked(&ledger, &wish(), ADDRESS, fips()), Ok(vec![]));
    }
}
