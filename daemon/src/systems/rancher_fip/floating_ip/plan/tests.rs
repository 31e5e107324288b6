use fipd_core::{Contender, Family, Op, Origin, Request, Timestamp};
use fipd_crds::floating_ip::FloatingIP;

use super::*;
use crate::{
    controller::{
        address_user::settle::{AddressAsker, AddressPlan, AddressPolicy, settle},
        store::Key,
    },
    systems::rancher_fip::{
        floating_ip::{ManagedFloatingIps, observe},
        names::{KIND_FLOATING_IP, KIND_SERVICE},
        sample,
    },
};

fn management() -> ClusterId {
    ClusterId("c".into())
}

fn holder(kind: &str, name: &str) -> Holder {
    Holder {
        identity: names::identity(&management(), kind, &Key::new("ns", name)),
        instance: "u".into(),
    }
}

/// The mirror of FloatingIPPool `net`.
fn net() -> Pool {
    let mut pool = sample::pool(1, "net");
    pool.spec.origin = Origin::Mirror {
        system: System::rancher_fip(),
        cluster: management(),
        object: "net".into(),
        uid: "p".into(),
    };
    pool
}

fn ledger(leases: impl IntoIterator<Item = Lease>) -> Ledger {
    let mut ledger = Ledger::new();
    ledger.apply(&Op::PutPool(Arc::new(net())));
    for lease in leases {
        ledger.apply(&Op::PutLease(Arc::new(lease)));
    }
    ledger
}

/// A FloatingIP of the pool and the project.
fn fip(project: &str) -> Fip {
    let mut fip = observe::view(FloatingIP::default());
    fip.project = Some(Tenant(project.into()));
    fip.pool = "net".into();
    fip
}

fn plan(ledger: &Ledger, holder: &Holder, fip: &Fip) -> AddressPlan {
    let wish = wish(ledger, &management(), fip);
    let policy = AddressPolicy::of::<ManagedFloatingIps>();
    let asker = AddressAsker {
        holder: holder.clone(),
        created: fip.meta.created,
        actor: "a".into(),
    };
    settle(ledger, policy, &asker, &wish)
}

fn asked(plan: AddressPlan) -> Request {
    let AddressPlan::Ask(request) = plan else {
        panic!("{plan:?}");
    };
    *request
}

#[test]
fn one_made_for_a_service_leaves_the_address_to_it() {
    let key = sample::place("10.0.0.5");
    let web = holder(KIND_SERVICE, "web");
    let ledger = ledger([sample::lease(key, Some(web.clone()))]);
    let own = holder(KIND_FLOATING_IP, "fip-abc12");
    let mut fip = fip("p");
    fip.status.ip_addr = "10.0.0.5".into();
    assert!(yields(&ledger, &own, &fip, &|user| *user == web.identity));
    assert!(!yields(&ledger, &own, &fip, &|_| false));
    let Request::Adopt(adopt) = asked(plan(&ledger, &own, &fip)) else {
        panic!("it contends for another's address");
    };
    assert_eq!((adopt.key, adopt.holder), (key, own));
}

#[test]
fn a_floating_ip_that_comes_again_takes_back_what_its_service_kept() {
    let key = sample::place("10.0.0.5");
    let kept = |cluster: &str| {
        let service = Key::new("shop", "web");
        names::reported_service(&management(), cluster, &service)
    };
    let ledger = ledger([Lease {
        pool: Some(net().id),
        tenant: Some(Tenant("p".into())),
        ..sample::lease(key, Some(kept("c-m-g")))
    }]);
    let own = holder(KIND_FLOATING_IP, "fip-new");
    let plan = |cluster: &str, project: &str, address: &str| {
        let mut fip = fip(project);
        fip.wanted = address.into();
        fip.cluster = Some(cluster.into());
        fip.services = vec![fipd_crds::floating_ip::ServiceRef {
            service_namespace: "shop".into(),
            service_name: "web".into(),
        }];
        asked(plan(&ledger, &own, &fip))
    };
    for address in ["", "10.0.0.5"] {
        let Request::Handover(handover) = plan("c-m-g", "p", address) else {
            panic!("it asks for the address");
        };
        assert_eq!((handover.from, handover.keys), (kept("c-m-g"), vec![key]));
    }
    for other in [
        plan("c-m-h", "p", ""),
        plan("c-m-g", "p-2", ""),
        plan("c-m-g", "p", "10.0.0.6"),
    ] {
        assert!(matches!(other, Request::Allocate(_)), "{other:?}");
    }
}

#[test]
fn defect_11_a_moved_project_label_charges_the_other_project() {
    let key = sample::place("10.0.0.5");
    let own = holder(KIND_FLOATING_IP, "fip-abc12");
    let ledger = ledger([Lease {
        tenant: Some(Tenant("p-old".into())),
        ..sample::lease(key, Some(own.clone()))
    }]);
    let kept = plan(&ledger, &own, &fip("p-old"));
    assert!(matches!(kept, AddressPlan::Show(_)));
    let AddressPlan::Charge(shown, request) = plan(&ledger, &own, &fip("p-new")) else {
        panic!("it is to be charged to the other");
    };
    assert_eq!(shown.key, key);
    let Request::Transfer(transfer) = *request else {
        panic!("{request:?}");
    };
    assert_eq!(transfer.tenant, Some(Tenant("p-new".into())));
    assert!(!transfer.force && transfer.to == own);
}

#[test]
fn only_what_was_made_for_a_service_is_deleted_with_it() {
    let service =
        |uid: &str| ServiceRef::parse(&format!("Service/c/ns/web/{uid}")).expect("a Service");
    let lease = |address: &str, holder: Holder| {
        let lease = sample::lease(sample::place(address), Some(holder));
        Op::PutLease(Arc::new(lease))
    };
    let mut fip = fip("p");
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
    assert_eq!(plan(&ledger, &ours), ServiceView::Delete);
    assert_eq!(plan(&ledger, "fip-abc12"), ServiceView::HandBack);
    ledger.apply(&lease("10.0.0.6", service("u").holder()));
    assert_eq!(plan(&ledger, &ours), ServiceView::Leave, "it moves");
    assert_eq!(
        plan(&ledger, "fip-abc12"),
        ServiceView::HandBack,
        "it keeps its address"
    );
    ledger.apply(&lease("10.0.0.5", service("next").holder()));
    assert_eq!(
        plan(&ledger, "fip-abc12"),
        ServiceView::Leave,
        "the next shows it"
    );
    ledger.apply(&lease("10.0.0.5", service("u").holder()));
    assert!(matches!(
        plan(&ledger, "fip-abc12"),
        ServiceView::Show(shown) if shown.is_ok()
    ));
    ledger.apply(&lease("10.0.0.5", holder(KIND_FLOATING_IP, "fip-abc12")));
    assert_eq!(plan(&ledger, "fip-abc12"), ServiceView::HandBack);
}

#[test]
fn one_whose_service_contends_for_a_prefix_around_its_address_stays() {
    let service = ServiceRef::parse("Service/c/ns/web/u").expect("a Service");
    let contender = Contender {
        holder: service.holder(),
        tenant: None,
        since: Timestamp(1),
        uses: Vec::new(),
    };
    let prefix = Lease {
        length: 30,
        contenders: vec![contender],
        ..sample::lease(sample::place("10.0.0.4"), Some(holder(KIND_SERVICE, "api")))
    };
    let ledger = ledger([prefix]);
    let own = holder(KIND_FLOATING_IP, &service.floating_ip_name(Family::V4)).identity;
    let plan = |address: &str| {
        let mut fip = fip("p");
        fip.wanted = address.into();
        view(&ledger, &own, &service, &fip)
    };
    assert!(matches!(plan("10.0.0.5"), ServiceView::Show(shown) if shown.is_err()));
    assert_eq!(plan("10.0.0.8"), ServiceView::Delete);
}

#[test]
fn a_wish_needs_project_and_pool_and_a_readable_address() {
    assert_eq!(asks_for(&fip("p-1")), Ok((Tenant("p-1".into()), None)));
    let reason = |fip: &Fip| asks_for(fip).expect_err("a problem").reason;
    assert_eq!(
        reason(&Fip {
            project: None,
            ..fip("p-1")
        }),
        "MissingProject"
    );
    assert_eq!(
        reason(&Fip {
            pool: String::new(),
            ..fip("p-1")
        }),
        "Invalid"
    );
    assert_eq!(
        reason(&Fip {
            wanted: "10.0.0.300".into(),
            ..fip("p-1")
        }),
        "Invalid"
    );
    let v6 = asks_for(&Fip {
        wanted: "2001:DB8:0::5".into(),
        ..fip("p-1")
    })
    .expect("a wish");
    assert_eq!(
        v6.1.map(|address| address.to_string()),
        Some("2001:db8::5".into())
    );
}
