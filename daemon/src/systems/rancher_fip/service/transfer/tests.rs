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
        uses: Vec::new(),
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

#[test]
fn an_address_in_a_prefix_of_another_is_not_adopted() {
    let mut ledger = ledger();
    let prefix = Lease {
        length: 30,
        pool: None,
        ..Lease::clone(&lease("10.0.0.4", own("other"), None))
    };
    ledger.apply(&Op::PutLease(Arc::new(prefix)));
    let fips = vec![fip("one", ADDRESS, &["web"])];
    assert_eq!(asked(&ledger, &wish(), ADDRESS, fips), Ok(vec![]));
}
