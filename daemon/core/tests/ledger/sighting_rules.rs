//! Addresses that Services of others show: kept where they are free, contended where they are held, never taken from anybody.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{
    Adopt, Allocate, Answer, ClusterId, Holder, Identity, Lease, LeaseKey, Ledger, Planned, PoolId,
    PoolSpec, Quota, Refusal, Release, ReleaseScope, Request, System, Tenant, Timestamp,
    sighting::{ForeignUser, HeldFor, Ruling, SightingRules, limit},
    testing,
};
use proptest::prelude::*;

const POOL: PoolId = PoolId(1);

fn key(last: u8) -> LeaseKey {
    testing::key([10, 60, 0, last])
}

fn holder(owner: &str) -> Holder {
    testing::holder(owner, "1")
}

fn foreign(cluster: &str, service: u8) -> Holder {
    holder(&format!("foreign/{cluster}/Service/ns/s{service}"))
}

fn contention(contender: Holder, key: LeaseKey) -> ReleaseScope {
    ReleaseScope::Contention {
        contender,
        key,
        beside: None,
    }
}

/// An address book with a pool of 256 addresses.
struct Book(Ledger);

impl Book {
    fn new() -> Self {
        let mut book = Self(Ledger::new());
        let mut spec = testing::pool_spec("net", &["10.60.0.0/24"]);
        spec.ends.first = 0;
        spec.ends.last = 0;
        book.ask(testing::create_pool(spec));
        book
    }

    fn try_ask(&mut self, request: Request) -> Result<Answer, Refusal> {
        match self.0.plan(&request, Timestamp(100)) {
            Planned::Tentative { ticket, answer, .. } => {
                self.0.confirm(ticket);
                Ok(answer)
            }
            Planned::Answer(answer) => Ok(answer),
            Planned::Refused(refusal) => Err(refusal),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn ask(&mut self, request: Request) -> Answer {
        self.try_ask(request).expect("an answer")
    }

    fn allocate(&mut self, owner: &str, last: Option<u8>) -> Option<LeaseKey> {
        let want = testing::want(POOL, last.map(|last| key(last).address));
        let ask = Allocate {
            tenant: Some(Tenant("t".into())),
            ..testing::allocate(holder(owner), [want])
        };
        match self.try_ask(Request::Allocate(ask)).ok()? {
            Answer::Granted { leases, .. } => leases.first().map(|lease| lease.key),
            other => panic!("{other:?}"),
        }
    }

    fn adopt(&mut self, holder: Holder, key: LeaseKey) -> Answer {
        self.ask(Request::Adopt(Adopt {
            length: None,
            key,
            holder,
            tenant: None,
            since: Timestamp(1),
            actor: "test".into(),
        }))
    }

    fn release(&mut self, holder: Holder) {
        self.ask(Request::Release(Release {
            scope: ReleaseScope::Holder(holder),
            actor: "test".into(),
            reason: "gone".into(),
        }));
    }

    fn end_contention(&mut self, scope: ReleaseScope) {
        self.ask(Request::Release(Release {
            scope,
            actor: "test".into(),
            reason: "the same use".into(),
        }));
    }

    fn lease(&self, last: u8) -> Option<&Lease> {
        self.0.lease(key(last)).map(AsRef::as_ref)
    }

    fn owner(&self, last: u8) -> Option<String> {
        let owner = self.lease(last)?.owner()?;
        Some(owner.identity.to_string())
    }

    /// One list of a cluster: service and address. What was only reported.
    fn list(
        &mut self,
        cluster: &str,
        shown: &BTreeSet<(u8, u8)>,
        confirmed: &BTreeSet<LeaseKey>,
    ) -> BTreeSet<LeaseKey> {
        let id = ClusterId(cluster.into());
        let mut sightings = SightingRules::new(&id, confirmed);
        let held = self
            .0
            .cluster_leases(&id, Some(&System::foreign()), None, 1_000);
        held.iter()
            .for_each(|lease| sightings.count(&self.0, lease));
        let contended = self.0.contended_by(&id, None, 1_000);
        contended
            .iter()
            .for_each(|lease| sightings.count(&self.0, lease));
        let mut users: BTreeMap<LeaseKey, BTreeSet<ForeignUser>> = BTreeMap::new();
        for (service, last) in shown {
            let since = Timestamp(u64::from(*service));
            let holder = foreign(cluster, *service);
            users
                .entry(key(*last))
                .or_default()
                .insert(ForeignUser { since, holder });
        }
        let mut reported = BTreeSet::new();
        for (key, users) in users {
            let pool = self.0.pool_in_range(key).expect("a pool").clone();
            let held_for = |owner: &Identity| Self::held_for(&id, owner);
            match sightings.rule(&self.0, (key, &pool), &users, true, held_for) {
                Ruling::Adopt(holder) => drop(self.adopt(holder, key)),
                Ruling::Known(_) => {}
                Ruling::Report => drop(reported.insert(key)),
            }
        }
        for moot in sightings.take_moot() {
            self.end_contention(moot.scope());
        }
        reported
    }

    /// Of FloatingIPs it is not known.
    fn held_for(cluster: &ClusterId, owner: &Identity) -> HeldFor {
        if &*owner.kind == "FloatingIP" {
            return HeldFor::Unknown;
        }
        match owner.cluster.as_ref() == Some(cluster) {
            true => HeldFor::This,
            false => HeldFor::Another,
        }
    }

    fn contenders(&self, last: u8) -> Vec<Holder> {
        let contenders = self
            .lease(last)
            .into_iter()
            .flat_map(|lease| &lease.contenders);
        contenders.map(|one| one.holder.clone()).collect()
    }

    fn kept(&self, cluster: &str) -> BTreeSet<LeaseKey> {
        let id = ClusterId(cluster.into());
        let held = self
            .0
            .cluster_leases(&id, Some(&System::foreign()), None, 1_000);
        let contended = self.0.contended_by(&id, None, 1_000);
        held.iter()
            .chain(&contended)
            .map(|lease| lease.key)
            .collect()
    }
}

fn none() -> BTreeSet<LeaseKey> {
    BTreeSet::new()
}

#[test]
fn an_address_that_a_foreign_service_shows_is_not_allocated() {
    let mut book = Book::new();
    assert!(
        book.list("a", &BTreeSet::from([(1, 0), (2, 1)]), &none())
            .is_empty()
    );
    assert_eq!(book.owner(0).as_deref(), Some("foreign/a/Service/ns/s1"));
    assert_eq!(
        book.allocate("rancher-fip/b/Service/ns/web", None),
        Some(key(2))
    );
    assert_eq!(book.allocate("rancher-fip/b/Service/ns/api", Some(1)), None);
}

#[test]
fn a_sighting_costs_no_quota() {
    let mut book = Book::new();
    let quota = Quota {
        pool: POOL,
        tenant: Tenant("t".into()),
        limit: 1,
    };
    let actor = "test".into();
    book.ask(Request::SetQuota { quota, actor });
    book.list("a", &BTreeSet::from([(1, 0), (2, 1)]), &none());
    assert!(
        book.allocate("rancher-fip/a/Service/ns/web", None)
            .is_some()
    );
    assert_eq!(book.allocate("rancher-fip/a/Service/ns/api", None), None);
}

#[test]
fn a_service_that_shows_what_another_cluster_holds_contends_and_gets_it_next() {
    let mut book = Book::new();
    book.allocate("rancher-fip/b/Service/ns/web", Some(7));
    book.list("a", &BTreeSet::from([(1, 7)]), &none());
    assert_eq!(
        book.owner(7).as_deref(),
        Some("rancher-fip/b/Service/ns/web")
    );
    assert_eq!(book.lease(7).map(|lease| lease.contenders.len()), Some(1));
    book.release(holder("rancher-fip/b/Service/ns/web"));
    assert_eq!(book.owner(7).as_deref(), Some("foreign/a/Service/ns/s1"));
}

#[test]
fn what_a_cluster_holds_is_not_contended_by_its_own_services() {
    let mut book = Book::new();
    book.allocate("rancher-fip/a/Service/ns/web", Some(7));
    let all: BTreeSet<(u8, u8)> = (0..200).map(|service| (service, 7)).collect();
    assert!(book.list("a", &all, &none()).is_empty());
    assert_eq!(book.lease(7).map(|lease| lease.contenders.len()), Some(0));
    // Where the lease came between the look and the request, the next list ends it.
    book.adopt(foreign("a", 1), key(7));
    book.adopt(foreign("b", 1), key(7));
    assert_eq!(book.lease(7).map(|lease| lease.contenders.len()), Some(2));
    assert!(book.list("a", &all, &none()).is_empty());
    let contenders = |lease: &Lease| {
        lease
            .contenders
            .iter()
            .map(|one| one.holder.clone())
            .collect()
    };
    let left: Vec<Holder> = book.lease(7).map(contenders).expect("a lease");
    assert_eq!(left, [foreign("b", 1)]);
}

#[test]
fn the_end_of_a_contention_takes_no_lease() {
    let mut book = Book::new();
    book.allocate("rancher-fip/b/Service/ns/web", Some(7));
    book.adopt(foreign("a", 1), key(7));
    // It has got the address meanwhile.
    book.release(holder("rancher-fip/b/Service/ns/web"));
    book.end_contention(contention(foreign("a", 1), key(7)));
    assert_eq!(book.owner(7).as_deref(), Some("foreign/a/Service/ns/s1"));
    assert_eq!(book.0.check(), []);
}

#[test]
fn a_contention_that_was_moot_stays_once_another_has_the_address() {
    let mut book = Book::new();
    book.adopt(holder("rancher-fip/a/Service/ns/web"), key(7));
    book.adopt(holder("rancher-fip/b/Service/ns/web"), key(7));
    book.adopt(foreign("a", 1), key(7));
    let moot = |beside: &str| ReleaseScope::Contention {
        contender: foreign("a", 1),
        key: key(7),
        beside: beside.parse().ok(),
    };
    // Between the list and its end the lease passes to another cluster.
    book.release(holder("rancher-fip/a/Service/ns/web"));
    book.end_contention(moot("rancher-fip/a/Service/ns/web"));
    assert_eq!(book.contenders(7), [foreign("a", 1)]);
    book.end_contention(moot("rancher-fip/b/Service/ns/web"));
    assert_eq!(book.contenders(7), []);
}

#[test]
fn while_it_is_not_known_for_whom_an_address_is_held_contenders_neither_come_nor_go() {
    let mut book = Book::new();
    let fip = "rancher-fip/m/FloatingIP/c-1/fip";
    book.allocate(fip, Some(7));
    book.list("a", &BTreeSet::from([(1, 7)]), &none());
    assert_eq!(book.contenders(7), []);
    book.adopt(foreign("a", 1), key(7));
    for _ in 0..2 {
        book.list("a", &BTreeSet::from([(1, 7), (2, 7)]), &none());
        assert_eq!(book.contenders(7), [foreign("a", 1)]);
    }
    book.release(holder(fip));
    assert_eq!(book.owner(7).as_deref(), Some("foreign/a/Service/ns/s1"));
}

#[test]
fn nobody_holds_an_address_and_contends_for_it() {
    let mut book = Book::new();
    book.adopt(foreign("a", 1), key(7));
    let web = "rancher-fip/a/Service/ns/web";
    book.adopt(holder("rancher-fip/b/Service/ns/web"), key(8));
    book.adopt(foreign("a", 1), key(8));
    book.adopt(holder(web), key(8));
    book.release(holder("rancher-fip/b/Service/ns/web"));
    assert_eq!(book.owner(8).as_deref(), Some("foreign/a/Service/ns/s1"));
    assert_eq!(book.contenders(8), [holder(web)]);
    // As a cluster is adopted anew after a restore.
    book.adopt(holder(web), key(8));
    assert_eq!(book.owner(8).as_deref(), Some(web));
    assert_eq!(book.contenders(8), [foreign("a", 1)]);
    let answer = book.adopt(foreign("a", 2), key(7));
    assert!(matches!(answer, Answer::Contended { .. }), "{answer:?}");
    assert_eq!(book.0.check(), []);
}

#[test]
fn an_object_that_takes_a_foreign_service_s_address_over_leaves_it_a_contender() {
    let mut book = Book::new();
    book.adopt(foreign("m", 1), key(7));
    let fip = "rancher-fip/m/FloatingIP/c-1/fip";
    book.adopt(holder(fip), key(7));
    assert_eq!(book.owner(7).as_deref(), Some(fip));
    assert_eq!(book.contenders(7), [foreign("m", 1)]);
    book.release(holder(fip));
    assert_eq!(book.owner(7).as_deref(), Some("foreign/m/Service/ns/s1"));
    assert_eq!(book.0.check(), []);
}

#[test]
fn many_services_on_one_address_are_one_use() {
    let mut book = Book::new();
    book.allocate("rancher-fip/b/Service/ns/web", Some(8));
    let all: BTreeSet<(u8, u8)> = (0..250).flat_map(|one| [(one, 7), (one, 8)]).collect();
    for _ in 0..2 {
        assert!(book.list("a", &all, &none()).is_empty());
        assert_eq!(book.owner(7).as_deref(), Some("foreign/a/Service/ns/s0"));
        assert_eq!(book.lease(8).map(|lease| lease.contenders.len()), Some(1));
    }
}

#[test]
fn a_service_that_becomes_ours_gets_the_address_that_was_kept_for_it() {
    let mut book = Book::new();
    book.list("a", &BTreeSet::from([(1, 7)]), &none());
    let ours = "rancher-fip/a/Service/ns/s1";
    let answer = book.adopt(holder(ours), key(7));
    assert!(matches!(answer, Answer::Adopted { .. }), "{answer:?}");
    assert_eq!(book.owner(7).as_deref(), Some(ours));
    let elsewhere = book.adopt(holder("rancher-fip/b/Service/ns/s1"), key(7));
    assert!(
        matches!(elsewhere, Answer::Contended { .. }),
        "{elsewhere:?}"
    );
    assert_eq!(book.0.check(), []);
}

#[test]
fn a_guest_that_shows_a_whole_pool_gets_its_share_and_no_more() {
    let mut book = Book::new();
    let all: BTreeSet<(u8, u8)> = (0..=255).map(|last| (last, last)).collect();
    for _ in 0..3 {
        let reported = book.list("evil", &all, &none());
        assert_eq!(reported.len(), 256 - 16);
        assert_eq!(book.kept("evil").len(), 16);
    }
    assert_eq!(
        book.allocate("rancher-fip/b/Service/ns/web", None),
        Some(key(16))
    );
    // An admin who confirms the rest means what was shown then.
    let reported = book.list("evil", &all, &none());
    book.list("evil", &all, &reported);
    assert_eq!(book.kept("evil").len(), 256);
    assert_eq!(
        book.owner(16).as_deref(),
        Some("rancher-fip/b/Service/ns/web")
    );
}

#[test]
fn the_share_is_sixteen_or_a_twentieth() {
    assert_eq!(limit(0), 16);
    assert_eq!(limit(256), 16);
    assert_eq!(limit(400), 20);
    assert_eq!(limit(1 << 16), 3_276);
    assert_eq!(limit(1 << 64), 65_536, "a /64");
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// The cluster's list has these, service and address.
    List(usize, BTreeSet<(u8, u8)>),
    Allocate(u8),
    Release(u8),
    Confirm(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let shown = prop::collection::btree_set((0..6_u8, 0..60_u8), 0..50);
    let step = prop_oneof![
        4 => (0..2_usize, shown).prop_map(|(cluster, shown)| Step::List(cluster, shown)),
        3 => (0..40_u8).prop_map(Step::Allocate),
        2 => (0..40_u8).prop_map(Step::Release),
        1 => any::<bool>().prop_map(Step::Confirm),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn sightings_take_nothing_exceed_no_share_and_end_by_absence(steps in steps()) {
        const CLUSTERS: [&str; 2] = ["a", "b"];
        let mut book = Book::new();
        let ours = |n: u8| format!("rancher-fip/{}/Service/ns/w{n}", CLUSTERS[usize::from(n % 2)]);
        let mut held: BTreeMap<u8, LeaseKey> = BTreeMap::new();
        let (mut confirmed, mut reported) = (none(), none());
        for step in steps {
            match step {
                Step::List(cluster, shown) => {
                    let cluster = CLUSTERS[cluster];
                    let before = book.kept(cluster).len();
                    reported = book.list(cluster, &shown, &confirmed);
                    let most = before.max(limit(256)) + confirmed.len();
                    prop_assert!(book.kept(cluster).len() <= most);
                    // What its two lists did not have is released.
                    for service in 0..6 {
                        let gone: Vec<LeaseKey> = book.kept(cluster).into_iter()
                            .filter(|key| {
                                let lease = book.0.lease(*key).expect("kept");
                                let has = |one: &Holder| *one == foreign(cluster, service);
                                let members = lease.members.iter().map(|member| &member.holder);
                                let contenders = lease.contenders.iter().map(|one| &one.holder);
                                members.chain(contenders).any(has)
                            })
                            .filter(|one| !shown.iter().any(|(of, last)| *of == service && key(*last) == *one))
                            .collect();
                        if !gone.is_empty() {
                            let scope = ReleaseScope::HolderAddresses(foreign(cluster, service), gone);
                            let (actor, reason) = ("test".into(), "gone".into());
                            book.ask(Request::Release(Release { scope, actor, reason }));
                        }
                    }
                }
                Step::Allocate(n) => {
                    if let Some(key) = book.allocate(&ours(n), None) {
                        held.insert(n, key);
                    }
                }
                Step::Release(n) => {
                    if held.remove(&n).is_some() {
                        book.release(holder(&ours(n)));
                    }
                }
                Step::Confirm(yes) => confirmed = if yes { reported.clone() } else { none() },
            }
            for (n, key) in &held {
                let lease = book.0.lease(*key).expect("held");
                prop_assert!(lease.held_by(&holder(&ours(*n)).identity), "{n} lost {key:?}");
            }
            for lease in book.0.contentions() {
                let owner = lease.owner().and_then(|one| one.identity.cluster.clone());
                let own = lease.contenders.iter().any(|one| one.holder.identity.cluster == owner);
                prop_assert!(!own, "{lease:?}");
            }
            prop_assert_eq!(book.0.check(), vec![]);
        }
        for cluster in CLUSTERS {
            for service in 0..6 {
                book.release(foreign(cluster, service));
            }
            prop_assert!(book.kept(cluster).is_empty());
        }
    }
}

#[test]
fn a_cluster_has_so_many_uses_of_one_prefix_without_an_admin() {
    const MOST: usize = 250;
    let mut book = Book(Ledger::new());
    let spec = PoolSpec {
        allocation_length: Some(64),
        ..testing::pool_spec("blocks", &["2001:db8::/48"])
    };
    book.ask(testing::create_pool(spec));
    let first = testing::key_of("2001:db8::");
    book.ask(Request::Adopt(Adopt {
        length: Some(64),
        key: first,
        holder: holder("rancher-fip/west/Service/ns/web"),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    }));
    let keys: Vec<LeaseKey> = (1..=300)
        .map(|at| testing::key_of(format!("2001:db8::{at:x}")))
        .collect();
    let users = |at: usize| {
        let owner = format!("foreign/east/Service/ns/s{at}");
        BTreeSet::from([ForeignUser {
            since: Timestamp(1),
            holder: holder(&owner),
        }])
    };
    let adopted = |confirmed: &BTreeSet<LeaseKey>, book: &mut Book| {
        let cluster = ClusterId("east".into());
        let mut rules = SightingRules::new(&cluster, confirmed);
        let pool = book.0.pool(POOL).expect("the pool").clone();
        let mut rulings = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let held_for = |_: &Identity| HeldFor::Another;
            rulings.push(rules.rule(&book.0, (*key, &pool), &users(at), true, held_for));
        }
        let adopts = rulings
            .into_iter()
            .zip(&keys)
            .filter_map(|(ruling, key)| match ruling {
                Ruling::Adopt(holder) => Some((holder, *key)),
                _ => None,
            });
        let adopts: Vec<_> = adopts.collect();
        for (holder, key) in &adopts {
            book.adopt(holder.clone(), *key);
        }
        adopts.len()
    };
    let none = BTreeSet::new();
    assert_eq!(adopted(&none, &mut book), MOST, "in one list");
    assert_eq!(adopted(&none, &mut book), 0);
    let all: BTreeSet<LeaseKey> = keys.iter().copied().collect();
    assert_eq!(adopted(&all, &mut book), 300 - MOST, "an admin said so");
    assert_eq!(book.0.check(), vec![]);
}
