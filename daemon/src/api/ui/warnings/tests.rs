//! What is told of what needs somebody.

use std::{cell::Cell, sync::Arc, time::Duration};

use fipd_core::{Contender, Ledger, Op, Pool, PoolSpec, PoolUsage, Timestamp, testing};
use fipd_web_ui::{Health, PoolRow, Usage};

use super::{
    addresses::{NETWORKS, SOON, some_leases},
    config::CERTIFICATE,
    storage::DISK,
    *,
};
use crate::{
    backups::{BackupStatus, Schedule},
    clusters::DiscoveryView,
    guests::{GuestBoard, GuestPhase, GuestStatus, GuestUpdate, system::testing::FIRST},
    reload::ReloadStatus,
    rules::{EngineState, View},
};

fn pool(name: &str, free: u128, full_in: Option<u32>) -> Figures {
    let pool = testing::pool(PoolSpec::own(name, Vec::new()));
    Figures {
        pool: Arc::new(pool),
        network: "default".into(),
        open: true,
        permille: 0,
        free,
        waiting: 0,
        doubtful: false,
        full_in,
    }
}

fn row(one: &Figures) -> PoolRow {
    PoolRow {
        id: 1,
        name: one.pool.spec.name.to_string(),
        network: one.network.to_string(),
        family: "IPv4",
        usage: Usage(PoolUsage {
            withheld: u128::from(one.doubtful) * 1_200,
            ..PoolUsage::default()
        }),
        closed: !one.open,
        full_in: one.full_in,
        forecast: "full in about 2 days".to_owned(),
        mirrors: String::new(),
        waiting: one.waiting,
    }
}

fn whats(warnings: impl IntoIterator<Item = Warning>) -> Vec<String> {
    let all = warnings.into_iter();
    all.map(|warning| {
        assert!(!warning.next.is_empty(), "{warning:?} names no next step");
        assert!(warning.link.is_some(), "{warning:?} leads nowhere");
        warning.what
    })
    .collect()
}

/// The cause is told as such, and what to do is something else.
fn steps(warning: &Warning, why: &str, commands: &[&str]) {
    whats([warning.clone()]);
    assert_eq!(warning.why, why);
    assert!(why.is_empty() || !warning.next.contains(why), "{warning:?}");
    assert_eq!(warning.commands, commands, "{warning:?}");
}

#[test]
fn pools_that_are_full_or_soon_will_be_are_told_once() {
    let closed = Figures {
        open: false,
        ..pool("closed", 0, Some(0))
    };
    let pools = [
        pool("full", 0, Some(0)),
        pool("later", 5, Some(SOON)),
        pool("soon", 5, Some(3)),
        pool("never", 5, None),
        pool("next year", 5, Some(SOON + 1)),
        closed,
    ];
    assert_eq!(whats(full(&pools, row)), ["Pool full is full"]);
    assert_eq!(
        whats(filling(&pools, row)),
        ["soon", "later"].map(|name| format!("At its pace pool {name} is full in about 2 days"))
    );
    let doubt = Figures {
        doubtful: true,
        ..pool("dmz", 5, None)
    };
    assert!(whats(doubtful(&[doubt], row))[0].starts_with("1,200 addresses of pool dmz"));
}

#[test]
fn prefixes_are_told_as_such() {
    let full_pool = pool("delegated", 0, None);
    let mut prefixes = Pool::clone(&full_pool.pool);
    prefixes.spec.allocation_length = Some(64);
    let one = [Figures {
        pool: Arc::new(prefixes),
        waiting: 2,
        doubtful: true,
        ..full_pool
    }];
    assert_eq!(
        whats(full(&one, row)),
        ["Pool delegated is full and 2 wait for a prefix of it"]
    );
    assert!(whats(doubtful(&one, row))[0].starts_with("1,200 prefixes of pool delegated"));

    let key = testing::key_of("2001:db8:0:3::");
    let mut lease = testing::lease(key, None, [testing::holder("fipd/Router/lab/a", "")]);
    lease.length = 64;
    lease.contenders.push(Contender {
        holder: testing::holder("fipd/Router/lab/b", ""),
        tenant: None,
        since: Timestamp(1),
        uses: Vec::new(),
    });
    let mut ledger = Ledger::new();
    ledger.apply(&Op::PutLease(lease.into()));
    assert_eq!(
        whats(contended(&ledger)),
        ["2001:db8:0:3::/64 is used by more than one"]
    );
}

#[test]
fn addresses_are_added_to_those_that_a_pool_has_or_to_what_it_follows() {
    let mirror = |one: &Figures| PoolRow {
        mirrors: "vips of rancher-fip in cluster east".to_owned(),
        waiting: 1_204,
        ..row(one)
    };
    let (over, near) = ([pool("lab", 0, None)], [pool("lab", 5, Some(3))]);
    let (own, of) = (full(&over, row), full(&over, mirror));
    for warning in [&own[0], &filling(&near, row)[0]] {
        assert_eq!(warning.commands, ["fipd pool update lab --add-cidr CIDR"]);
    }
    for warning in [&of[0], &filling(&near, mirror)[0]] {
        assert_eq!(warning.commands, [""; 0]);
        let object = "follows: vips of rancher-fip in cluster east.";
        assert!(warning.next.ends_with(object), "{warning:?}");
    }
    assert!(of[0].what.contains("1,204 wait"), "{of:?}");
}

#[test]
fn of_many_the_first_are_told_and_how_many_more_there_are() {
    let pools: Vec<_> = (0..9).map(|n| pool(&format!("p{n}"), 0, None)).collect();
    let rows = Cell::new(0);
    let counted = |one: &Figures| {
        rows.set(rows.get() + 1);
        row(one)
    };
    let told = full(&pools, counted);
    assert_eq!((told.len(), rows.get()), (MOST, MOST), "no more rows");
    assert!(told[MOST - 1].next.ends_with(" 4 more like it."));
    assert_eq!(full(&pools[..5], row)[4].next, told[0].next);
    let held = [pool("own", 0, None)].map(|one| Figures { waiting: 2, ..one });
    assert!(whats(full(&held, row))[0].contains("2 wait for"));
}

#[test]
fn a_configuration_that_is_not_in_force_is_told() {
    assert_eq!(configuration(&ReloadStatus::default()), []);
    let standing = ReloadStatus {
        failed: Some("line 3".into()),
        needs_restart: vec!["helm", "host"],
    };
    let told = configuration(&standing);
    assert!(told[0].urgent && !told[1].urgent);
    assert!(whats(told)[1].ends_with("wait for a restart: helm, host"));
}

#[test]
fn a_disk_is_low_before_the_store_stops() {
    assert_eq!(disk(None), None);
    assert_eq!(disk(Some((1 << 20, DISK))), None);
    assert_eq!(whats(disk(Some((1 << 20, DISK - 1)))).len(), 1);
    assert_eq!(whats(disk(Some((2 * DISK, DISK)))).len(), 1);
}

#[test]
fn a_copy_is_too_old_after_two_that_did_not_come() {
    let schedule = |every| Schedule {
        directory: "/b".into(),
        every,
        keep: 7,
    };
    let day = Duration::from_secs(24 * 3600);
    let millis = 24 * 3_600_000;
    let standing = |last: Option<u64>| BackupStatus {
        last: last.map(Timestamp),
        failure: None,
    };
    let now = Timestamp(10 * millis);
    let told = |every, last| copies(&schedule(every), &standing(last), now).is_some();
    assert!(!told(Some(day), None), "the first one is still to come");
    assert!(!told(Some(day), Some(8 * millis)));
    assert!(told(Some(day), Some(8 * millis - 1)));
    assert!(!told(None, Some(1)), "nobody wants any");
    let failed = BackupStatus {
        last: Some(now),
        failure: Some((now, "no room".to_owned())),
    };
    let told = copies(&schedule(None), &failed, now).unwrap();
    steps(&told, "no room", &["fipd backup now"]);
    assert_eq!(told.at, Some(views::moment(now)));
}

#[test]
fn a_certificate_is_told_a_month_before_its_end() {
    let now = Timestamp(1_795_240_640_000);
    let month = u64::try_from(CERTIFICATE.as_millis()).unwrap();
    assert_eq!(certificate(None, now), None);
    assert_eq!(certificate(Some(Timestamp(now.0 + month)), now), None);
    let near = certificate(Some(Timestamp(now.0 + month - 1)), now).unwrap();
    assert!(!near.urgent && near.what.ends_with("ends at"));
    let over = certificate(Some(now), now).unwrap();
    assert!(over.urgent && over.what.ends_with("ended at"));
    assert_eq!(over.at, Some(views::moment(now)));
    steps(&over, "", &["sudo systemctl reload fipd"]);
}

#[test]
fn rules_are_told_where_they_are_not_kept_or_had_to_be_mended() {
    assert_eq!(engine(&View::default()), []);
    let mut view = View {
        state: EngineState::Degraded("no CAP_NET_ADMIN".to_owned()),
        ..View::default()
    };
    view.drift.removed = 2;
    view.warnings.push(crate::rules::Warning {
        code: "table-empty",
        text: "table 100 has no route".to_owned(),
    });
    let told = engine(&view);
    assert_eq!(whats(told.clone()).len(), 3);
    assert!(told[0].urgent);
    steps(&told[0], "no CAP_NET_ADMIN", &["fipd check"]);
    assert!(told[1].what.contains("2 were repaired"));
    let of = |state| {
        let view = View {
            state,
            ..View::default()
        };
        engine(&view).remove(0)
    };
    let log = ["journalctl --unit fipd --lines 50"];
    let starting = of(EngineState::Starting("it looks at the kernel".to_owned()));
    steps(&starting, "it looks at the kernel", &log);
    steps(&of(EngineState::Paused), "", &["fipd rules resume"]);
}

fn cluster(state: &str, last_error: &str) -> ClusterRow {
    ClusterRow {
        name: "east".to_owned(),
        id: String::new(),
        health: if last_error.is_empty() {
            Health::Good
        } else {
            Health::Bad
        },
        state: state.to_owned(),
        since: None,
        last_error: last_error.to_owned(),
        server: String::new(),
        found: String::new(),
        detached: false,
        systems: Vec::new(),
        leases: 99,
        held_back: Vec::new(),
        sightings: String::new(),
        sightings_wait: false,
    }
}

#[test]
fn what_keeps_clusters_from_working_is_told_apart_from_what_to_do() {
    let since = Some(views::moment(Timestamp(7)));
    let refused = ClusterRow {
        since,
        ..cluster("degraded", "connection refused.")
    };
    let told: Vec<_> = ill(&[refused, cluster("ready", "")]).collect();
    assert_eq!((told.len(), told[0].at), (1, since));
    assert_eq!(told[0].what, "Cluster east is degraded since");
    steps(&told[0], "connection refused", &["fipd check"]);
    let view = |error: Option<&str>| DiscoveryView {
        cluster: "rancher".into(),
        listed: true,
        last_error: error.map(Into::into),
        found: 3,
    };
    assert_eq!(discovery(None), None);
    assert_eq!(discovery(Some(view(None))), None);
    let told = discovery(Some(view(Some("secrets is forbidden")))).unwrap();
    let show = ["fipd clusters show rancher"];
    steps(&told, "secrets is forbidden", &show);
    let board = GuestBoard::default();
    let news = GuestUpdate {
        rancher: &"rancher".into(),
        id: "c-m-1",
        display_name: "shop",
        system: FIRST,
        says: GuestStatus::new(GuestPhase::Failed, "Reason", "the chart is gone."),
        details: vec![],
        releases: None,
    };
    board.say(news, Timestamp(1));
    let told = guests(&board);
    steps(&told[0], "the chart is gone", &[]);
    assert!(told[0].next.starts_with("Put that right in Rancher"));
}

#[test]
fn all_that_one_word_would_release_is_told() {
    let row = ClusterRow {
        held_back: vec![
            "7 leases of claims".into(),
            "12 leases of rancher-fip".into(),
        ],
        ..cluster("ready", "")
    };
    let told: Vec<_> = held_back(&[row]).collect();
    let what = "The owners of 7 leases of claims and of 12 leases of rancher-fip of cluster east seem to be gone";
    assert_eq!(told[0].what, what);
}

#[test]
fn only_admins_are_led_to_what_only_admins_may_open() {
    let told = |to: &str| Warning {
        link: link(to, "See it"),
        ..Warning::default()
    };
    for to in ADMINS {
        let mut warning = told(to);
        for_others(&mut warning);
        let (to, text) = warning.link.unwrap();
        assert_eq!(
            (to.as_str(), text.as_str()),
            ("", "That is for an admin to do.")
        );
    }
    let mut open = told(links::RULES);
    for_others(&mut open);
    assert_eq!(open, told(links::RULES));
}

#[test]
fn of_too_many_contended_leases_their_list_is_named() {
    let leases = |many: usize| {
        let one = Warning {
            link: link("/ui/networks/0/addresses/10.0.0.9", "See by whom"),
            ..Warning::default()
        };
        some_leases(vec![one; many])
    };
    let list = link("/ui/leases?mark=contended", "See all of them");
    assert_ne!(leases(MOST)[MOST - 1].link, list);
    let told = leases(NETWORKS);
    assert_eq!((told.len(), &told[MOST - 1].link), (MOST, &list));
    assert!(told[MOST - 1].next.ends_with("995 more like it."));
    let told = leases(NETWORKS + 1);
    assert!(
        told[MOST - 1]
            .next
            .ends_with("like it. And that is not all.")
    );
}
