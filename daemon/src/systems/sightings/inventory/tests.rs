mod bench;

use fipd_core::{Adopt, PoolSpec, Request, Text, Timestamp, sighting::HeldFor};

use self::bench::{Bench, address, key, service};
use super::*;
use crate::{
    clusters::testing,
    config::SightingMode,
    system::{OwnerRule, RunningSystem},
    systems::sightings::report::{EXAMPLES, REPORTED, RIGHTS},
};

const DAY: u64 = 24 * 3_600 * 1_000;

#[tokio::test]
async fn addresses_of_another_class_and_of_none_are_not_given_away() {
    let bench = Bench::new(vec![
        service("one", Some("metallb.io/metallb"), &[address(1)]),
        service("two", None, &[address(2), "192.0.2.7".into()]),
    ])
    .await;
    bench.adopt().await;
    assert_eq!(bench.owner(1).as_deref(), Some("foreign/X/Service/ns/one"));
    assert_eq!(bench.owner(2).as_deref(), Some("foreign/X/Service/ns/two"));
    assert!(bench.adopted());
    assert_eq!(bench.allocate().await.to_string(), address(3));
    let view = bench.view();
    assert_eq!((view.held, view.contended, view.waiting.len()), (2, 0, 0));
    let outside = bench.ipam.read(|ledger| {
        let mut key = key(1);
        key.address = [192, 0, 2, 7].into();
        ledger.lease(key).is_some()
    });
    assert!(!outside, "it is in no pool");
}

#[tokio::test]
async fn a_guest_that_shows_a_whole_network_leaves_the_rest_until_an_admin_confirms() {
    let all: Vec<String> = (1..=254).map(address).collect();
    let one_each = |last: &String| {
        service(
            &format!("s-{}", last.replace('.', "-")),
            None,
            std::slice::from_ref(last),
        )
    };
    let bench = Bench::new(all.iter().map(one_each).collect()).await;
    for _ in 0..2 {
        bench.adopt().await;
        let view = bench.view();
        assert_eq!((view.held, view.waiting.len()), (16, 254 - 16));
        assert_eq!(view.examples.len(), EXAMPLES);
        let troubles = testing::troubles(&bench.session);
        let why = &troubles[REPORTED];
        assert!(
            why.contains("238 addresses") && why.contains("confirm-sightings x"),
            "{why}"
        );
    }
    let ours = bench.allocate().await;
    assert!(bench.view().waiting.iter().any(|key| key.address == ours));
    testing::confirm_sightings(&bench.session)
        .await
        .expect("it");
    tokio::time::timeout(LOOK, bench.inventory.due())
        .await
        .expect("a list is due at once");
    bench.adopt().await;
    let view = bench.view();
    assert_eq!((view.held, view.contended, view.waiting.len()), (253, 1, 0));
    assert!(!testing::troubles(&bench.session).contains_key(REPORTED));
    let again = testing::confirm_sightings(&bench.session).await;
    assert!(again.is_err(), "nothing waits");
}

#[tokio::test]
async fn a_list_that_fails_after_a_word_of_an_admin_is_not_repeated_at_once() {
    let all: Vec<String> = (1..=30).map(address).collect();
    let bench = Bench::new(vec![service("one", None, &all)]).await;
    bench.adopt().await;
    assert!(!bench.is_due().await);
    testing::confirm_sightings(&bench.session)
        .await
        .expect("it");
    assert!(bench.is_due().await);
    bench.refused(500).await;
    assert!(
        !bench.is_due().await,
        "the sweep pauses before the next one"
    );
    bench.answers.lock().1 = 200;
    bench.adopt().await;
    assert_eq!(bench.view().held, 30, "the word counts for the next list");
}

#[tokio::test]
async fn a_cluster_that_an_earlier_build_adopted_is_only_reported_for_a_day() {
    let bench = Bench::new(vec![service("one", None, &[address(1)])]).await;
    bench.mark("X", System::rancher_fip()).await;
    bench.pass(5);
    bench.mark("sightings", System::foreign()).await;
    bench.pass(DAY);
    bench.adopt().await;
    let view = bench.view();
    assert_eq!((view.held, view.waiting.len()), (0, 1));
    assert_eq!(view.preview_until, Some(Timestamp(1_005 + 2 * DAY)));
    assert!(!bench.adopted() && bench.owner(1).is_none());
    bench.pass(DAY - 1);
    bench.adopt().await;
    assert_eq!(bench.view().preview_until, view.preview_until);
    assert_eq!(bench.owner(1), None);
    bench.pass(1);
    bench.adopt().await;
    assert!(bench.adopted() && bench.owner(1).is_some());
    assert_eq!(bench.view().preview_until, None);
}

#[tokio::test]
async fn an_admin_ends_the_preview() {
    let bench = Bench::new(vec![service("one", None, &[address(1)])]).await;
    bench.mark("X", System::claims()).await;
    bench.pass(5);
    bench.mark("sightings", System::foreign()).await;
    bench.adopt().await;
    assert_eq!(bench.owner(1), None);
    testing::confirm_sightings(&bench.session)
        .await
        .expect("it");
    bench.adopt().await;
    assert!(bench.adopted() && bench.owner(1).is_some());
}

#[tokio::test]
async fn what_fipd_serves_itself_is_adopted_first() {
    let bench = Bench::new(vec![service("one", None, &[address(1)])]).await;
    bench.expect(System::rancher_fip()).await;
    let early = tokio::time::timeout(Duration::from_millis(1), bench.inventory.ready()).await;
    assert!(early.is_err());
    bench.adopt().await;
    assert!(!bench.adopted() && bench.owner(1).is_none());
    bench.mark("X", System::rancher_fip()).await;
    bench.inventory.ready().await;
    bench.inventory.due().await;
    assert_eq!(bench.holds(), ["foreign"], "the network waits for them");
    bench.adopt().await;
    assert!(bench.adopted() && bench.owner(1).is_some());
    assert!(bench.holds().is_empty());
}

#[tokio::test]
async fn who_may_not_list_services_holds_no_network_back() {
    let bench = Bench::new(vec![service("one", None, &[address(1)])]).await;
    bench.expect(System::rancher_fip()).await;
    bench.refused(403).await;
    // What fipd serves itself is awaited all the same.
    assert_eq!(bench.holds(), ["rancher-fip"]);
    let why = &testing::troubles(&bench.session)[RIGHTS];
    assert!(
        why.contains("resources: [services], verbs: [list]"),
        "{why}"
    );
    bench.mark("X", System::rancher_fip()).await;
    assert!(bench.holds().is_empty());
    bench.refused(500).await;
    assert!(
        testing::troubles(&bench.session).contains_key(RIGHTS),
        "not known"
    );
    bench.answers.lock().1 = 200;
    bench.adopt().await;
    assert!(!testing::troubles(&bench.session).contains_key(RIGHTS));
    assert!(
        bench.adopted() && bench.owner(1).is_some(),
        "taken in later"
    );
}

#[tokio::test]
async fn a_network_that_comes_later_is_not_held_back_either() {
    let bench = Bench::new(vec![]).await;
    bench.refused(403).await;
    let (name, actor) = (Text::from("late"), "test".into());
    let made = Request::CreateNetwork {
        name: Text::clone(&name),
        actor,
    };
    bench.ipam.submit(made).await.expect("a network");
    let late = |ledger: &Ledger| ledger.network_by_name(&name).map(|network| network.id);
    let late = bench.ipam.read(late).expect("the network");
    testing::map_to(&bench.session, &System::foreign(), late);
    stage::open_networks(&bench.session).await;
    let (id, foreign) = (&bench.session.id, System::foreign());
    let open = |ledger: &Ledger| ledger.adopted(late, id, &foreign);
    assert!(bench.ipam.read(open));
    assert!(!bench.adopted(), "no list was seen");
}

#[tokio::test]
async fn the_preview_begins_with_the_first_list_that_fipd_may_read() {
    let bench = Bench::new(vec![service("one", None, &[address(1)])]).await;
    bench.mark("X", System::rancher_fip()).await;
    bench.pass(5);
    bench.mark("sightings", System::foreign()).await;
    bench.refused(403).await;
    bench.pass(7 * DAY);
    bench.answers.lock().1 = 200;
    bench.adopt().await;
    assert_eq!(bench.view().preview_until, Some(Timestamp(1_005 + 8 * DAY)));
    assert_eq!((bench.owner(1), bench.adopted()), (None, false));
    let why = &testing::troubles(&bench.session)[REPORTED];
    assert!(why.contains("after the upgrade"), "{why}");
}

#[tokio::test]
async fn a_cluster_that_only_reports_holds_nothing_and_nobody_back() {
    let mut bench = Bench::new(vec![service("one", None, &[address(1)])]).await;
    bench.session.settings.sightings = SightingMode::Report;
    bench.renew();
    bench.adopt().await;
    let view = bench.view();
    assert_eq!((view.held, view.waiting.len()), (0, 1));
    assert_eq!(bench.allocate().await.to_string(), address(1));
    testing::confirm_sightings(&bench.session)
        .await
        .expect("it");
    bench.adopt().await;
    assert_eq!(bench.contenders(1), 1, "an admin said so");
}

#[tokio::test]
async fn five_hundred_users_of_one_address_are_one_use() {
    let copy = |number: usize| service(&format!("copy-{number}"), None, &[address(1), address(2)]);
    let bench = Bench::new((0..500).map(copy).collect()).await;
    bench.give(1, "rancher-fip/X/Service/ns/web").await;
    for _ in 0..2 {
        bench.adopt().await;
        assert_eq!(
            bench.owner(1).as_deref(),
            Some("rancher-fip/X/Service/ns/web")
        );
        assert_eq!((bench.contenders(1), bench.contenders(2)), (0, 0));
        assert!(
            bench
                .owner(2)
                .is_some_and(|owner| owner.starts_with("foreign/X/"))
        );
    }
    let view = bench.view();
    assert_eq!((view.held, view.contended, view.waiting.len()), (1, 0, 0));
}

#[tokio::test]
async fn while_rancher_is_not_listed_its_floating_ips_may_be_for_this_cluster() {
    let mut bench = Bench::new(vec![service("one", None, &[address(1), address(2)])]).await;
    bench.session.pools_in = BTreeMap::from([(System::rancher_fip(), "rancher".into())]);
    bench.renew();
    bench.give(1, "rancher-fip/R/FloatingIP/c-1/fip").await;
    bench.give(2, "rancher-fip/Y/Service/ns/web").await;
    bench.adopt().await;
    assert_eq!((bench.contenders(1), bench.contenders(2)), (0, 1));
}

#[tokio::test]
async fn a_contender_stays_until_it_is_known_that_it_is_the_same_use() {
    let mut bench = Bench::new(vec![service("one", None, &[address(1)])]).await;
    bench.session.pools_in = BTreeMap::from([(System::rancher_fip(), "rancher".into())]);
    bench.renew();
    bench.give(1, "rancher-fip/X/FloatingIP/c-1/fip-1").await;
    bench.give(1, "foreign/X/Service/ns/one").await;
    // Not listed, listed without the FloatingIP, and with one that names no cluster.
    bench.adopt().await;
    assert_eq!(bench.contenders(1), 1);
    bench.session.pools_in = BTreeMap::from([(System::rancher_fip(), bench.session.name.clone())]);
    let rancher = bench.rancher();
    bench.renew();
    bench.adopt().await;
    assert_eq!(bench.contenders(1), 1);
    bench.floating_ip(&rancher, 1, None);
    bench.adopt().await;
    assert_eq!(bench.contenders(1), 1);
    bench.floating_ip(&rancher, 1, Some("local"));
    bench.adopt().await;
    assert_eq!(bench.contenders(1), 0);
}

#[tokio::test]
async fn a_service_of_the_management_cluster_contends_for_what_is_held_for_a_guest() {
    let three: Vec<String> = (1..=3).map(address).collect();
    let mut bench = Bench::new(vec![service("one", None, &three)]).await;
    bench.session.pools_in = BTreeMap::from([(System::rancher_fip(), bench.session.name.clone())]);
    let rancher = bench.rancher();
    bench.renew();
    for (last, cluster) in [(1, Some("c-m-a")), (2, None), (3, Some("local"))] {
        bench.floating_ip(&rancher, last, cluster);
        let owner = format!("rancher-fip/X/FloatingIP/c-1/fip-{last}");
        bench.give(last, &owner).await;
    }
    bench.adopt().await;
    let contenders = |bench: &Bench| {
        (1..=3)
            .map(|last| bench.contenders(last))
            .collect::<Vec<_>>()
    };
    assert_eq!(contenders(&bench), [1, 0, 0], "a guest has the first");
    // What turns out to be the same use is none of two.
    bench.floating_ip(&rancher, 1, Some("local"));
    bench.inventory.list().await.expect("a list");
    assert_eq!(bench.view().contended, 0);
    bench.inventory.end(false).await;
    assert_eq!(contenders(&bench), [1, 0, 0], "of another cluster perhaps");
    bench.adopt().await;
    assert_eq!(contenders(&bench), [0, 0, 0]);
    let owner = bench.owner(1);
    assert_eq!(owner.as_deref(), Some("rancher-fip/X/FloatingIP/c-1/fip-1"));
}

/// A system that serves Services of its own class, and whose cards have addresses for all clusters.
struct Painter;

impl RunningSystem for Painter {
    fn run(&self, _: ClusterSession) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn serves(&self, _: &ClusterSession, service: &Service) -> bool {
        let spec = service.spec.as_ref();
        spec.and_then(|spec| spec.load_balancer_class.as_deref()) == Some("painter.example")
    }

    fn held_for(&self, _: &ClusterSession) -> OwnerRule {
        Box::new(|owner| (&*owner.kind == "Card").then_some(HeldFor::This))
    }
}

#[tokio::test]
async fn a_system_says_which_services_it_serves_and_for_whom_its_owners_have_addresses() {
    let four: Vec<String> = (2..=5).map(address).collect();
    let own = service("own", Some("painter.example"), &[address(1)]);
    let mut bench = Bench::new(vec![own.clone(), service("other", None, &four)]).await;
    bench.session.pools_in = BTreeMap::from([(System::rancher_fip(), bench.session.name.clone())]);
    let rancher = bench.rancher();
    for last in [2, 3] {
        bench.floating_ip(&rancher, last, Some("c-m-a"));
    }
    bench.give(2, "rancher-fip/X/FloatingIP/c-1/fip-2").await;
    // Another system's kind of the same name.
    bench.give(3, "painter/X/FloatingIP/c-1/fip-3").await;
    bench.give(4, "painter/Y/FloatingIP/c-1/fip-4").await;
    bench.give(5, "painter/Y/Card/c-1/fip-5").await;
    let mut systems = BTreeMap::clone(&bench.systems.0);
    systems.insert("painter", Arc::new(Painter));
    bench.systems = RunningSystems(Arc::new(systems));
    bench.renew();
    bench.adopt().await;
    assert_eq!(bench.owner(1), None, "what a system serves is no sighting");
    let contenders = [2, 3, 4, 5].map(|last| bench.contenders(last));
    assert_eq!(contenders, [1, 0, 1, 0]);
    let own = serde_json::from_value(own).expect("a Service");
    assert!(bench.inventory.foreign(own).is_none());
}

#[tokio::test]
async fn a_service_counts_as_absent_with_what_it_shows_no_more() {
    let both = service("one", None, &[address(1), address(2)]);
    let bench = Bench::new(vec![both]).await;
    bench.adopt().await;
    let holder = bench.ipam.read(|ledger| {
        let lease = ledger.lease(key(2))?;
        lease.owner().cloned()
    });
    let holder = holder.expect("a holder");
    assert!(bench.inventory.is_whole(&holder.identity));
    assert_eq!(
        bench.inventory.presence(&holder.identity).await,
        Presence::Present
    );
    bench.shows(vec![
        service("one", None, &[address(1)]),
        service("two", None, &[address(2)]),
    ]);
    bench.adopt().await;
    assert!(!bench.inventory.is_whole(&holder.identity));
    assert_eq!(
        bench.inventory.presence(&holder.identity).await,
        Presence::Gone
    );
    assert_eq!(bench.inventory.heir(&holder, key(1)), Some(holder.clone()));
    let other = bench.inventory.heir(&holder, key(2)).expect("an heir");
    assert_eq!(&*other.identity.name, "two", "it shows the address as well");
    bench.shows(vec![service("one", None, &[address(1)])]);
    bench.adopt().await;
    assert_eq!(bench.inventory.heir(&holder, key(2)), None);
    bench.shows(vec![]);
    bench.adopt().await;
    assert_eq!(
        bench.inventory.presence(&holder.identity).await,
        Presence::Gone
    );
}

/// A pool of 10.61.0.1 to 10.61.0.254.
async fn late_pool(bench: &Bench) {
    let range = "10.61.0.1-10.61.0.254".parse().expect("a range");
    let spec = PoolSpec::own("late", vec![range]);
    let made = bench
        .ipam
        .submit(fipd_core::testing::create_pool(spec))
        .await;
    made.expect("a pool");
}

#[tokio::test]
async fn a_pool_that_comes_later_gives_nothing_before_the_next_list() {
    let used = service("one", Some("metallb.io/metallb"), &["10.61.0.1".into()]);
    let bench = Bench::new(vec![used]).await;
    bench.adopt().await;
    late_pool(&bench).await;
    let refused = bench.try_allocate("late").await.expect_err("it waits");
    assert!(
        refused.contains("pool late is new") && refused.contains("foreign"),
        "{refused}"
    );
    assert_eq!(
        bench.allocate().await.to_string(),
        address(1),
        "other pools give"
    );
    tokio::time::timeout(LOOK, bench.inventory.due())
        .await
        .expect("a list is due");
    bench.adopt().await;
    let given = bench.try_allocate("late").await.expect("an address");
    assert_eq!(given.to_string(), "10.61.0.2");
    assert!(!bench.is_due().await, "nothing is new");
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_holds_no_new_pool_back() {
    let bench = Bench::new(vec![]).await;
    bench.adopt().await;
    late_pool(&bench).await;
    bench.try_allocate("late").await.expect_err("it waits");
    bench.refused(500).await;
    bench.try_allocate("late").await.expect("an address");
}

#[tokio::test]
async fn a_cluster_that_is_gone_holds_no_new_pool_back_and_is_not_asked_again_and_again() {
    let bench = Bench::new(vec![]).await;
    bench.adopt().await;
    late_pool(&bench).await;
    bench.gone().await;
    bench.try_allocate("late").await.expect("an address");
    let due = tokio::time::timeout(GATHER * 3, bench.inventory.due());
    assert!(due.await.is_err(), "the sweep pauses before the next one");
}

#[tokio::test]
async fn a_new_session_has_new_pools_wait_for_its_first_list() {
    let bench = Bench::new(vec![service("one", None, &["10.61.0.1".into()])]).await;
    bench.adopt().await;
    bench.inventory.end_look_out();
    late_pool(&bench).await;
    bench.inventory.look_out();
    bench.try_allocate("late").await.expect_err("it waits");
    bench.adopt().await;
    let given = bench.try_allocate("late").await.expect("an address");
    assert_eq!(given.to_string(), "10.61.0.2");
}

#[test]
fn services_beyond_the_most_addresses_count_as_unreadable() {
    let service = |shown: u8| ForeignService {
        uid: "u".into(),
        created: Timestamp(1),
        addresses: (0..shown).map(|last| [10, 0, 0, last].into()).collect(),
    };
    let one = |n: u8| -> Identity { format!("foreign/X/Service/ns/s{n}").parse().expect("one") };
    let all = [3, 9, 2, 1].map(|shown| (one(shown), Some(service(shown))));
    let mut services: Services = all.into();
    assert!(!cut(&mut services, 15));
    assert!(cut(&mut services, 5));
    let left = services.iter().map(|(_, service)| service.is_some());
    assert_eq!(left.collect::<Vec<_>>(), [true, false, true, false]);
}

#[tokio::test]
async fn a_session_that_ends_holds_no_new_pool_back() {
    let mut bench = Bench::new(vec![]).await;
    bench.adopt().await;
    late_pool(&bench).await;
    bench.renew();
    bench.try_allocate("late").await.expect("an address");
}

#[tokio::test]
async fn a_service_still_waits_for_what_it_goes_on_showing() {
    let bench = Bench::new(vec![service("one", None, &[address(1), address(2)])]).await;
    bench.give(2, "rancher-fip/Y/Service/ns/web").await;
    bench.adopt().await;
    let holder = bench
        .ipam
        .read(|ledger| ledger.lease(key(1))?.owner().cloned());
    let holder = holder.expect("a holder");
    bench.shows(vec![service("one", None, &[address(2)])]);
    bench.adopt().await;
    assert!(bench.inventory.still_shows(&holder, key(2)));
    bench.shows(vec![]);
    bench.adopt().await;
    assert!(!bench.inventory.still_shows(&holder, key(2)));
}

/// Addresses of the leased /64 that Services show.
const INSIDE: &str = "2001:db8:60:3::77";
const BESIDE: &str = "2001:db8:60:3::88";

fn shown(address: &str) -> LeaseKey {
    fipd_core::testing::key_of(address)
}

/// The holder of the /64, of another cluster.
fn tenant_of_prefix() -> Holder {
    fipd_core::testing::holder("rancher-fip/Y/Service/ns/web", "1")
}

/// A pool that gives /64s, one of which is leased.
async fn leased_prefix(bench: &Bench) -> LeaseKey {
    let cidr = "2001:db8:60::/56".parse().expect("a CIDR");
    let spec = PoolSpec {
        allocation_length: Some(64),
        ..PoolSpec::own("blocks", vec![cidr])
    };
    let made = bench
        .ipam
        .submit(fipd_core::testing::create_pool(spec))
        .await;
    made.expect("a pool");
    let key = fipd_core::testing::key_of("2001:db8:60:3::");
    let adopt = Adopt {
        length: Some(64),
        key,
        holder: tenant_of_prefix(),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    };
    let adopted = bench.ipam.submit(Request::Adopt(adopt)).await;
    adopted.expect("a lease");
    key
}

#[tokio::test]
async fn a_service_contends_for_the_prefix_around_what_it_shows() {
    let bench = Bench::new(vec![service("one", None, &[INSIDE.into()])]).await;
    let key = leased_prefix(&bench).await;
    for _ in 0..2 {
        bench.adopt().await;
        let contender = bench.ipam.read(|ledger| {
            let lease = ledger.lease(key).expect("the /64");
            assert_eq!(lease.contenders.len(), 1);
            lease.contenders.first().map(|one| one.holder.clone())
        });
        let contender = contender.expect("a contender");
        assert_eq!(&*contender.identity.name, "one");
        let view = bench.view();
        assert_eq!((view.held, view.contended, view.waiting.len()), (0, 1, 0));
        assert!(bench.inventory.is_whole(&contender.identity));
        assert!(bench.inventory.still_shows(&contender, shown(INSIDE)));
        assert_eq!(bench.inventory.heir(&contender, shown(INSIDE)), None);
    }
    let contender = fipd_core::testing::holder("foreign/X/Service/ns/one", "one");
    bench.shows(vec![]);
    bench.adopt().await;
    assert!(!bench.inventory.still_shows(&contender, shown(INSIDE)));
}

#[tokio::test]
async fn each_address_that_services_show_in_a_prefix_is_a_use_of_its_own() {
    let both = [INSIDE.into(), BESIDE.into()];
    let bench = Bench::new(vec![service("one", None, &both)]).await;
    let key = leased_prefix(&bench).await;
    bench.adopt().await;
    let uses = |ledger: &Ledger| {
        let contenders = ledger.lease(key).expect("the /64").contenders.iter();
        let uses = contenders.map(|one| (one.holder.clone(), one.uses.len()));
        uses.collect::<Vec<_>>()
    };
    let contenders = bench.ipam.read(uses);
    let (one, of_one) = contenders.first().expect("a contender");
    assert_eq!((contenders.len(), *of_one), (1, 2));
    assert!(bench.inventory.is_whole(&one.identity));
    bench.shows(vec![
        service("one", None, &[BESIDE.into()]),
        service("two", None, &[INSIDE.into()]),
    ]);
    bench.adopt().await;
    assert!(
        !bench.inventory.is_whole(&one.identity),
        "it shows one of two"
    );
    assert!(!bench.inventory.still_shows(one, shown(INSIDE)));
    assert!(bench.inventory.still_shows(one, shown(BESIDE)));
    let mut contenders = bench.ipam.read(uses);
    contenders.sort_by_key(|(_, uses)| *uses);
    let names = contenders
        .iter()
        .map(|(one, uses)| (&*one.identity.name, *uses));
    assert_eq!(names.collect::<Vec<_>>(), [("two", 1), ("one", 2)]);
}

#[tokio::test]
async fn what_a_service_shows_is_kept_also_where_the_prefix_around_it_goes_meanwhile() {
    let bench = Bench::new(vec![service("one", None, &[INSIDE.into()])]).await;
    let key = leased_prefix(&bench).await;
    let sightings = bench.inventory.list().await.expect("a list");
    let uses = sightings.into_iter().flat_map(|one| one.uses);
    let uses: Vec<LeaseKey> = uses.map(|used| used.key).collect();
    let shown = shown(INSIDE);
    assert_eq!(uses, [shown]);
    let release = fipd_core::testing::release(tenant_of_prefix());
    bench.ipam.submit(release).await.expect("a release");
    bench.adopt().await;
    let lease = |key| bench.ipam.read(|ledger| ledger.lease(key).cloned());
    let owner = lease(shown).and_then(|lease| lease.owner().cloned());
    let owner = owner.expect("an owner");
    assert_eq!(&*owner.identity.name, "one");
    assert_eq!(lease(key), None, "nobody shows the first address");
    assert_eq!(bench.view().held, 1);
}

#[tokio::test]
async fn a_report_names_the_address_that_a_service_shows() {
    let mut bench = Bench::new(vec![service("one", None, &[INSIDE.into()])]).await;
    let key = leased_prefix(&bench).await;
    bench.session.settings.sightings = SightingMode::Report;
    bench.renew();
    bench.adopt().await;
    let view = bench.view();
    assert_eq!((view.held, view.contended, view.waiting.len()), (0, 0, 1));
    let examples: Vec<String> = view
        .examples
        .iter()
        .map(|one| one.address.to_string())
        .collect();
    assert_eq!(examples, [INSIDE]);
    testing::confirm_sightings(&bench.session)
        .await
        .expect("it");
    bench.adopt().await;
    let contended = |ledger: &Ledger| {
        ledger
            .lease(key)
            .is_some_and(|one| one.contenders.len() == 1)
    };
    assert!(bench.ipam.read(contended), "an admin said so");
}

#[tokio::test]
async fn what_a_service_shows_of_a_prefix_is_its_own_after_a_release() {
    let bench = Bench::new(vec![service("one", None, &[INSIDE.into()])]).await;
    let key = leased_prefix(&bench).await;
    bench.adopt().await;
    let release = fipd_core::testing::release(tenant_of_prefix());
    bench.ipam.submit(release).await.expect("a release");
    let owner = |ledger: &Ledger| ledger.lease(shown(INSIDE))?.owner().cloned();
    let one = bench.ipam.read(owner).expect("an owner");
    assert_eq!(&*one.identity.name, "one", "it waited for the prefix");
    assert_eq!(bench.ipam.read(|ledger| ledger.lease(key).cloned()), None);
    bench.adopt().await;
    let heir = || bench.inventory.heir(&one, shown(INSIDE));
    assert_eq!(heir(), Some(one.clone()));
    bench.shows(vec![service("two", None, &[INSIDE.into()])]);
    bench.adopt().await;
    assert_eq!(&*heir().expect("an heir").identity.name, "two");
    bench.shows(vec![service("two", None, &[BESIDE.into()])]);
    bench.adopt().await;
    assert_eq!(heir(), None);
}
