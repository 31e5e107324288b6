//! Leases with several members: who may join one, and what becomes of it.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use fipd_core::{
    Allocate, Answer, ClusterId, ClusterRecord, Handover, Holder, Lease, LeaseKey, LeaseState,
    Ledger, Planned, PoolEdit, PoolId, PoolSpec, PortClaim, Protocol, Quota, Refusal, Request,
    Reserve, Share, Tenant, Timestamp, Transfer, testing,
};

const POOL: PoolId = PoolId(1);
const NOW: Timestamp = Timestamp(100);

fn holder(owner: &str) -> Holder {
    testing::holder(format!("fipd/{owner}"), "1")
}

fn key(last: u8) -> LeaseKey {
    testing::key([10, 0, 0, last])
}

fn ports(texts: &[&str]) -> Vec<PortClaim> {
    let parsed = texts.iter().map(|text| text.parse().expect(text));
    parsed.collect()
}

fn ask(owner: &str, group: &str, claims: &[&str]) -> Allocate {
    Allocate {
        tenant: Some(Tenant("shop".into())),
        share: Some(Share {
            key: group.into(),
            ports: ports(claims),
        }),
        ..testing::allocate(holder(owner), [testing::want(POOL, None)])
    }
}

/// A ledger with a pool of 10.0.0.1 to 10.0.0.4.
struct Book(Ledger);

impl Book {
    fn new() -> Self {
        let mut book = Self(Ledger::new());
        let spec = testing::pool_spec("p", &["10.0.0.1-10.0.0.4"]);
        book.done(&testing::create_pool(spec));
        book
    }

    fn plan(&mut self, request: &Request) -> Result<Answer, Refusal> {
        testing::ask(&mut self.0, request, NOW).map(|(answer, _)| answer)
    }

    fn done(&mut self, request: &Request) -> Answer {
        self.plan(request).expect("an answer")
    }

    /// The last byte of the address that is given.
    fn asks(&mut self, ask: Allocate) -> Result<u8, Refusal> {
        let answer = self.plan(&Request::Allocate(ask))?;
        let Answer::Granted { leases, .. } = answer else {
            panic!("{answer:?}");
        };
        let found = (1..=4).find(|last| key(*last) == leases[0].key);
        Ok(found.expect("an address of the pool"))
    }

    fn gets(&mut self, owner: &str, group: &str, claims: &[&str]) -> u8 {
        self.asks(ask(owner, group, claims)).expect("an address")
    }

    fn gives_back(&mut self, owner: &str) {
        self.done(&testing::release(holder(owner)));
    }

    fn lease(&self, last: u8) -> &Arc<Lease> {
        self.0.lease(key(last)).expect("a lease")
    }

    fn edit(&mut self, change: impl FnOnce(&mut PoolSpec)) {
        let mut spec = self.0.pool(POOL).expect("the pool").spec.clone();
        change(&mut spec);
        self.done(&Request::UpdatePool(PoolEdit {
            pool: POOL,
            spec,
            if_generation: None,
            force: false,
            actor: "test".into(),
            reason: "".into(),
        }));
    }
}

#[test]
fn an_address_is_shared_where_no_port_is_used_twice() {
    let mut book = Book::new();
    assert_eq!(book.gets("svc/a/web", "g", &["TCP/80"]), 1);
    assert_eq!(book.gets("svc/a/tls", "g", &["TCP/443"]), 1);
    assert_eq!(
        book.gets("svc/a/dns", "g", &["UDP/80"]),
        1,
        "another protocol"
    );
    assert_eq!(book.gets("svc/a/two", "g", &["TCP/8080", "TCP/80"]), 2);
    assert_eq!(book.gets("svc/a/out", "h", &["TCP/22"]), 3, "another key");
    assert_eq!(book.gets("svc/a/all", "g", &[]), 4, "without ports");
    assert_eq!(book.gets("svc/a/tls", "g", &["TCP/443"]), 1, "asked again");
    assert_eq!(book.lease(1).members.len(), 3);
}

#[test]
fn a_named_address_is_joined_or_refused() {
    let mut book = Book::new();
    book.gets("svc/a/web", "g", &["TCP/80"]);
    let named = |owner: &str, group: &str, claims: &[&str]| {
        let mut ask = ask(owner, group, claims);
        ask.wants[0].address = Some(key(1).address);
        ask
    };
    assert_eq!(book.asks(named("svc/a/tls", "g", &["TCP/443"])), Ok(1));
    let refused = book.asks(named("svc/a/two", "g", &["TCP/80"]));
    let text = refused.expect_err("a clash").to_string();
    assert!(
        text.contains("TCP/80") && text.contains("fipd/svc/a/web"),
        "{text}"
    );
    let other = book.asks(named("svc/a/two", "h", &["TCP/22"]));
    assert!(
        matches!(other, Err(Refusal::AddressTaken { .. })),
        "{other:?}"
    );
    let mut stranger = named("svc/a/two", "g", &["TCP/22"]);
    stranger.tenant = None;
    let other = book.asks(stranger);
    assert!(
        matches!(other, Err(Refusal::AddressTaken { .. })),
        "{other:?}"
    );
}

#[test]
fn the_last_member_frees_the_address_and_it_is_charged_once() {
    let mut book = Book::new();
    let tenant = Tenant("shop".into());
    let quota = Quota {
        pool: POOL,
        tenant: tenant.clone(),
        limit: 1,
    };
    let actor = "test".into();
    book.done(&Request::SetQuota { quota, actor });
    book.gets("svc/a/web", "g", &["TCP/80"]);
    book.gets("svc/a/tls", "g", &["TCP/443"]);
    assert_eq!(book.0.charged(POOL, &tenant), 1);
    let over = book.asks(ask("svc/a/two", "g", &["TCP/80"]));
    assert!(
        matches!(over, Err(Refusal::QuotaExceeded { .. })),
        "{over:?}"
    );
    book.gives_back("svc/a/web");
    assert_eq!(book.lease(1).members.len(), 1);
    assert_eq!(
        book.gets("svc/a/two", "g", &["TCP/80"]),
        1,
        "its port is free again"
    );
    book.gives_back("svc/a/tls");
    book.gives_back("svc/a/two");
    assert!(book.0.lease(key(1)).is_none());
    assert_eq!(book.0.charged(POOL, &tenant), 0);
}

#[test]
fn asking_again_changes_the_ports_if_nobody_has_them() {
    let mut book = Book::new();
    book.gets("svc/a/web", "g", &["TCP/80"]);
    book.gets("svc/a/tls", "g", &["TCP/443"]);
    assert_eq!(book.gets("svc/a/web", "g", &["TCP/80", "UDP/443"]), 1);
    assert_eq!(
        book.lease(1).members[0].ports,
        ports(&["TCP/80", "UDP/443"])
    );
    let clash = book.asks(ask("svc/a/web", "g", &["TCP/443"]));
    let text = clash.expect_err("a clash").to_string();
    assert!(
        text.contains("TCP/443") && text.contains("fipd/svc/a/tls"),
        "{text}"
    );
    assert_eq!(
        book.lease(1).members[0].ports,
        ports(&["TCP/80", "UDP/443"])
    );
    let other = book.asks(ask("svc/a/web", "h", &["TCP/80"]));
    assert!(
        matches!(other, Err(Refusal::NotShareable { .. })),
        "{other:?}"
    );
    book.gives_back("svc/a/tls");
    assert_eq!(book.gets("svc/a/web", "h", &["TCP/80"]), 1, "alone, it may");
    assert_eq!(book.lease(1).group.as_deref(), Some("h"));
}

#[test]
fn asking_again_without_a_key_shares_nothing() {
    let mut book = Book::new();
    let mut alone = ask("svc/a/web", "g", &[]);
    alone.share = None;
    book.gets("svc/a/web", "g", &["TCP/80"]);
    book.gets("svc/a/tls", "g", &["TCP/443"]);
    let refused = book.asks(alone.clone());
    let text = refused.expect_err("another member").to_string();
    assert!(text.contains("others share it"), "{text}");
    assert_eq!(book.lease(1).members.len(), 2);
    book.gives_back("svc/a/tls");
    assert_eq!(book.asks(alone), Ok(1));
    assert_eq!(book.lease(1).group, None);
    assert_eq!(book.lease(1).members[0].ports, []);
    assert_eq!(book.gets("svc/a/tls", "g", &["TCP/443"]), 2, "not joined");
}

#[test]
fn what_is_shared_and_reserved_again_stays_shared() {
    let mut book = Book::new();
    book.gets("svc/a/web", "g", &["TCP/80"]);
    let (mut ask, until) = (ask("svc/a/web", "g", &[]), None);
    ask.share = None;
    book.done(&Request::Reserve(Reserve { ask, until }));
    assert_eq!(book.lease(1).group.as_deref(), Some("g"));
}

#[test]
fn one_forget_ends_what_two_systems_of_a_cluster_share() {
    let mut book = Book::new();
    let record = ClusterRecord {
        id: ClusterId("c1".into()),
        names: vec!["one".into()],
        discovered: false,
        first_seen: NOW,
        proof: None,
    };
    book.done(&Request::RecordCluster { record });
    book.gets("c1/svc/a/web", "g", &["TCP/80"]);
    let mut other = ask("c1/svc/a/web", "g", &["TCP/443"]);
    other.holder.identity = "kube-fip/c1/svc/a/web".parse().expect("an identity");
    assert_eq!(book.asks(other), Ok(1));
    let cluster = ClusterId("c1".into());
    let (most, actor) = (10, "test".into());
    book.done(&Request::Forget {
        cluster: cluster.clone(),
        most,
        actor,
    });
    assert!(book.0.lease(key(1)).is_none());
    assert!(book.0.cluster(&cluster).is_none(), "its record went along");
}

#[test]
fn clusters_share_only_where_the_pool_allows_it() {
    let mut book = Book::new();
    assert_eq!(book.gets("c1/svc/a/web", "g", &["TCP/80"]), 1);
    assert_eq!(book.gets("c2/svc/a/tls", "g", &["TCP/443"]), 2);
    book.edit(|spec| spec.share_across_clusters = true);
    assert_eq!(book.gets("c2/svc/a/dns", "g", &["UDP/53"]), 1);
}

#[test]
fn a_place_goes_to_another_cluster_only_where_the_pool_allows_it() {
    let mut book = Book::new();
    assert_eq!(book.gets("c1/svc/a/web", "g", &["TCP/80"]), 1);
    assert_eq!(book.gets("c1/svc/a/tls", "g", &["TCP/443"]), 1);
    let give = |to: &str| {
        Request::Transfer(Transfer {
            key: key(1),
            from: Some(holder("c1/svc/a/web")),
            to: holder(to),
            tenant: None,
            force: false,
            actor: "test".into(),
            reason: "test".into(),
        })
    };
    let refused = book.plan(&give("c2/svc/a/web"));
    let Err(Refusal::NotTransferable { why, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        why.contains("c1/svc/a/tls") && why.contains("pool p"),
        "{why}"
    );
    book.edit(|spec| spec.share_across_clusters = true);
    book.done(&give("c2/svc/a/web"));
    assert_eq!(book.lease(1).members[0].holder, holder("c2/svc/a/web"));
}

#[test]
fn a_cluster_that_leaves_takes_its_members_along_and_nobody_elses() {
    let mut book = Book::new();
    book.edit(|spec| spec.share_across_clusters = true);
    book.gets("c1/svc/a/web", "g", &["TCP/80"]);
    book.gets("c2/svc/a/tls", "g", &["TCP/443"]);
    let mut own = ask("c1/svc/a/own", "g", &[]);
    own.share = None;
    assert_eq!(book.asks(own), Ok(2));
    let cluster = ClusterId("c1".into());
    let (most, actor) = (10, "test".into());
    let forget = Request::Forget {
        cluster: cluster.clone(),
        most,
        actor,
    };
    assert!(book.plan(&forget).is_err(), "it has not left");

    let actor = "test".into();
    book.done(&Request::Orphan {
        cluster,
        system: None,
        most,
        actor,
    });
    assert_eq!(book.lease(1).state, LeaseState::Allocated);
    assert_eq!(book.lease(1).members.len(), 2, "nothing is lost yet");
    book.done(&forget);
    let members = &book.lease(1).members;
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].holder, holder("c2/svc/a/tls"));
    assert!(book.0.lease(key(2)).is_none());
}

#[test]
fn a_handover_between_members_keeps_the_ports() {
    let mut book = Book::new();
    book.gets("svc/a/web", "g", &["TCP/80"]);
    book.gets("svc/a/tls", "g", &["TCP/443"]);
    let mut heir = holder("svc/a/tls");
    heir.instance = "2".into();
    book.done(&Request::Handover(Handover {
        from: holder("svc/a/web"),
        to: heir.clone(),
        keys: Vec::new(),
        actor: "test".into(),
        reason: "".into(),
    }));
    assert_eq!(book.lease(1).members.len(), 1);
    assert_eq!(book.lease(1).members[0].holder, heir, "as it was reported");
    assert_eq!(
        book.lease(1).members[0].ports,
        ports(&["TCP/443", "TCP/80"])
    );
}

#[test]
fn two_of_a_group_in_one_batch_share_as_well() {
    let mut book = Book::new();
    let first = Request::Allocate(ask("svc/a/web", "g", &["TCP/80"]));
    let Planned::Tentative { ticket, .. } = book.0.plan(&first, NOW) else {
        panic!("not planned");
    };
    let second = Request::Allocate(ask("svc/a/tls", "g", &["TCP/443"]));
    assert_eq!(book.0.plan(&second, NOW), Planned::Busy);
    book.0.confirm(ticket);
    assert_eq!(book.gets("svc/a/tls", "g", &["TCP/443"]), 1);
}

#[test]
fn limits_are_told() {
    let mut book = Book::new();
    let field = |book: &mut Book, change: &dyn Fn(&mut Allocate)| {
        let mut ask = ask("svc/a/web", "g", &["TCP/80"]);
        change(&mut ask);
        match book.asks(ask) {
            Err(Refusal::Invalid { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    };
    let share = |ask: &mut Allocate, key: String, ports: Vec<PortClaim>| {
        let key = key.into();
        ask.share = Some(Share { key, ports });
    };
    let tcp = |port| PortClaim {
        protocol: Protocol::Tcp,
        port,
    };
    assert_eq!(
        field(&mut book, &|ask| share(ask, String::new(), vec![tcp(1)])),
        "share.key"
    );
    assert_eq!(
        field(&mut book, &|ask| share(ask, "k".repeat(254), vec![tcp(1)])),
        "share.key"
    );
    let many = || (1..=101).map(tcp).collect();
    assert_eq!(
        field(&mut book, &|ask| share(ask, "g".into(), many())),
        "share.ports"
    );
    assert_eq!(
        field(&mut book, &|ask| share(ask, "g".into(), vec![tcp(0)])),
        "share.ports"
    );
    assert_eq!(field(&mut book, &|ask| ask.wants[0].count = 2), "count");
    let (ask, until) = (ask("svc/a/web", "g", &["TCP/80"]), None);
    let kept = book.plan(&Request::Reserve(Reserve { ask, until }));
    assert!(
        matches!(kept, Err(Refusal::Invalid { field: "share", .. })),
        "{kept:?}"
    );

    for text in ["TCP", "80", "TCP/0", "TCP/65536", "ICMP/1", "TCP/80/1"] {
        assert!(text.parse::<PortClaim>().is_err(), "{text}");
    }
    let parsed: PortClaim = "udp/53".parse().expect("a port");
    assert_eq!(parsed.to_string(), "UDP/53");
}
