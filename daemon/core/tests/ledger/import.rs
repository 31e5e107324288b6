//! The rules of imports: all rows or none, each with its fate, and twice is once.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use fipd_core::{
    Action, Answer, ClusterId, ClusterRecord, Decision, Epoch, Holder, Import, ImportRow,
    ImportedLease, ImportedPool, Lease, Ledger, Member, Op, Planned, PoolId, Refusal, Request,
    RestoreHold, RowFate, Tenant, Timestamp, Trial, testing,
};

const NOW: Timestamp = Timestamp(1_000);

fn holder(owner: &str) -> Holder {
    testing::holder(owner, "")
}

fn pool(name: &str, addresses: &str, id: Option<u32>) -> ImportRow {
    ImportRow::Pool(Box::new(ImportedPool {
        network: Some("default".into()),
        network_by_default: None,
        spec: testing::pool_spec(name, &[addresses]),
        id: id.map(PoolId),
        created: id.map(|_| Timestamp(7)),
        generation: id.map(|_| 3),
    }))
}

fn lease(address: &str, owner: &str) -> ImportRow {
    let member = testing::member(holder(owner));
    ImportRow::Lease(Box::new(ImportedLease {
        network: "default".into(),
        pool: None,
        since: Some(Timestamp(5)),
        lease: Lease {
            members: [member].into_iter().collect(),
            tenant: Some(Tenant("t".into())),
            since: Timestamp(0),
            ..testing::lease(testing::key_of(address), None, None)
        },
    }))
}

fn quota(pool: &str, limit: u64) -> ImportRow {
    ImportRow::Quota {
        pool: pool.into(),
        tenant: Tenant("t".into()),
        limit,
    }
}

fn import(rows: &[ImportRow], force: bool) -> Request {
    Request::Import(Import {
        rows: rows.to_vec(),
        force,
        actor: "test".into(),
    })
}

/// What became of the rows, and what was decided.
fn take(ledger: &mut Ledger, request: &Request) -> (Vec<RowFate>, Option<Decision>) {
    match ledger.plan(request, NOW) {
        Planned::Tentative {
            ticket,
            decision,
            answer: Answer::Imported { rows, written },
        } => {
            assert!(written);
            ledger.confirm(ticket);
            assert_eq!(ledger.check(), []);
            (rows, Some(decision))
        }
        Planned::Answer(Answer::Imported { rows, .. }) => (rows, None),
        other => panic!("{other:?}"),
    }
}

/// What would become of the rows, tried one by one.
fn tried(ledger: &Ledger, rows: &[ImportRow]) -> Vec<RowFate> {
    let mut trial = Trial::new(&"test".into(), false, NOW);
    let fates = rows.chunks(1).flat_map(|row| trial.rows(ledger, row));
    fates.collect()
}

fn site() -> [ImportRow; 5] {
    [
        pool("vips", "10.0.0.0/24", Some(4)),
        quota("vips", 30),
        lease("10.0.0.3", "fipd/Host/lab/a"),
        lease("10.0.0.9", "fipd/Host/lab/b"),
        lease("192.0.2.1", "fipd/Host/lab/c"),
    ]
}

fn rows(ledger: &Ledger) -> Vec<Op> {
    ledger.dump().collect()
}

#[test]
fn rows_stand_on_the_rows_before_them_and_are_one_decision() {
    let mut ledger = Ledger::new();
    let empty = rows(&ledger);
    let preview = tried(&ledger, &site());
    assert!(preview.iter().all(|fate| *fate == RowFate::Created));
    assert_eq!(rows(&ledger), empty, "a trial writes nothing");
    let (fates, decision) = take(&mut ledger, &import(&site(), false));
    assert_eq!(fates, preview);
    let audit = decision.expect("a decision").audit;
    assert_eq!(audit.len(), 5);
    assert_eq!(audit[4].action, Action::Imported);
    let made = ledger.find_pool("vips").expect("the pool is there");
    assert_eq!(
        (made.id, made.created, made.generation),
        (PoolId(4), Timestamp(7), 3)
    );
    let given = ledger.pool_leases(made.id, None, 9);
    assert_eq!(given.len(), 2);
    assert_eq!(given[0].since, Timestamp(5));
    assert_eq!(ledger.charged(made.id, &Tenant("t".into())), 2);
    // The next pool gets a number that none had.
    let (_, decision) = take(
        &mut ledger,
        &import(&[pool("more", "10.1.0.0/24", None)], false),
    );
    assert!(
        decision
            .expect("a decision")
            .ops
            .contains(&Op::PutNextPool(PoolId(6)))
    );
}

#[test]
fn the_same_once_more_changes_nothing_and_a_difference_is_a_change() {
    let mut ledger = Ledger::new();
    take(&mut ledger, &import(&site(), false));
    let before = rows(&ledger);
    let (fates, decision) = take(&mut ledger, &import(&site(), false));
    assert!(fates.iter().all(|fate| *fate == RowFate::Same), "{fates:?}");
    assert_eq!((rows(&ledger), decision), (before, None));
    let mut other = site();
    other[0] = pool("vips", "10.0.0.0/23", None);
    other[1] = quota("vips", 9);
    if let ImportRow::Lease(row) = &mut other[2] {
        row.lease.tenant = Some(Tenant("u".into()));
    }
    let (fates, _) = take(&mut ledger, &import(&other, false));
    let changed = fates.iter().filter(|fate| **fate == RowFate::Changed);
    assert_eq!(changed.count(), 3, "{fates:?}");
}

#[test]
fn a_row_that_does_not_say_since_when_leaves_that_as_it_is() {
    let mut ledger = Ledger::new();
    let mut rows = site();
    for row in &mut rows {
        if let ImportRow::Lease(row) = row {
            row.since = None;
        }
    }
    take(&mut ledger, &import(&rows, false));
    let later = ledger.plan(&import(&rows, false), Timestamp(NOW.0 + 9));
    let Planned::Answer(Answer::Imported { rows, .. }) = later else {
        panic!("{later:?}")
    };
    assert!(rows.iter().all(|fate| *fate == RowFate::Same), "{rows:?}");
}

#[test]
fn one_bad_row_keeps_all_others_out_and_says_why() {
    let mut ledger = Ledger::new();
    take(&mut ledger, &import(&site(), false));
    let before = rows(&ledger);
    let bad: [(ImportRow, &str); 4] = [
        (lease("10.0.0.3", "fipd/Host/lab/z"), "held by"),
        (quota("nowhere", 1), "pool"),
        (
            {
                let mut row = lease("10.0.0.4", "fipd/Host/lab/z");
                if let ImportRow::Lease(row) = &mut row {
                    row.lease.until = Some(Timestamp(9));
                }
                row
            },
            "until",
        ),
        (
            {
                let mut row = lease("10.0.0.4", "fipd/Host/lab/z");
                if let ImportRow::Lease(row) = &mut row {
                    row.network = "none".into();
                }
                row
            },
            "network",
        ),
    ];
    for (row, words) in bad {
        let mut all: Vec<ImportRow> = (20..40)
            .map(|at| lease(&format!("10.0.0.{at}"), "fipd/Host/lab/y"))
            .collect();
        all.insert(7, row);
        let (fates, decision) = take(&mut ledger, &import(&all, false));
        assert_eq!(decision, None);
        let RowFate::Refused(refusal) = &fates[7] else {
            panic!("{:?}", fates[7])
        };
        assert!(refusal.to_string().contains(words), "{refusal}");
        let created = fates.iter().filter(|fate| **fate == RowFate::Created);
        assert_eq!(created.count(), 20);
        assert_eq!(rows(&ledger), before, "{words}");
    }
}

#[test]
fn what_is_being_imported_is_given_to_nobody_else() {
    let mut ledger = Ledger::new();
    take(
        &mut ledger,
        &import(&[pool("vips", "10.0.0.0/30", None)], false),
    );
    let rows = [lease("10.0.0.0", "fipd/Host/lab/a")];
    let Planned::Tentative { ticket, .. } = ledger.plan(&import(&rows, false), NOW) else {
        panic!("no decision")
    };
    let ask = |owner: &str| {
        Request::Allocate(testing::allocate(
            holder(owner),
            [testing::want(PoolId(1), None)],
        ))
    };
    assert_eq!(ledger.plan(&ask("fipd/Host/lab/a"), NOW), Planned::Busy);
    let Planned::Tentative {
        ticket: other,
        decision,
        ..
    } = ledger.plan(&ask("fipd/Host/lab/b"), NOW)
    else {
        panic!("no decision")
    };
    assert!(
        matches!(&decision.ops[..], [Op::PutLease(lease)] if lease.key.address.to_string() == "10.0.0.1"),
        "{decision:?}"
    );
    ledger.abort(ticket);
    ledger.abort(other);
    assert_eq!(ledger.check(), []);
}

#[test]
fn ten_thousand_rows_are_decided_at_once_and_more_than_the_most_are_refused() {
    let mut ledger = Ledger::new();
    let mut all = vec![pool("vips", "10.0.0.0/16", None)];
    all.extend((0..9_999).map(|at| {
        let address = format!("10.0.{}.{}", at / 250, at % 250);
        lease(&address, &format!("fipd/Host/lab/h{at}"))
    }));
    let (fates, _) = take(&mut ledger, &import(&all, false));
    assert!(fates.iter().all(|fate| *fate == RowFate::Created));
    let many = vec![quota("vips", 1); Import::MAX_ROWS + 1];
    let refused = ledger.plan(&import(&many, true), NOW);
    assert!(
        matches!(
            &refused,
            Planned::Refused(Refusal::Invalid { field: "rows", .. })
        ),
        "{refused:?}"
    );
}

/// The lease row with one more member and ports for both.
fn shared(row: ImportRow) -> ImportRow {
    let ImportRow::Lease(mut row) = row else {
        panic!("no lease");
    };
    row.lease.group = Some("web".into());
    row.lease.members.push(Member {
        holder: holder("fipd/Host/lab/late"),
        ports: vec!["TCP/443".parse().expect("a port")],
    });
    for member in row.lease.members.iter_mut().take(1) {
        member.ports = vec!["TCP/80".parse().expect("a port")];
        member.holder.instance = "uid-1".into();
    }
    ImportRow::Lease(row)
}

#[test]
fn nobody_who_uses_an_address_is_left_out_by_an_older_file() {
    let mut ledger = Ledger::new();
    let old = lease("10.0.0.3", "fipd/Host/lab/a");
    take(&mut ledger, &import(&[shared(old.clone())], false));
    let before = rows(&ledger);
    let (fates, decision) = take(&mut ledger, &import(&[old], false));
    let RowFate::Refused(refusal) = fates.first().expect("a row") else {
        panic!("{fates:?}");
    };
    assert!(refusal.to_string().contains("lab/late"), "{refusal}");
    assert_eq!((rows(&ledger), decision), (before, None));
}

#[test]
fn what_a_row_does_not_say_of_its_owner_stays() {
    let mut ledger = Ledger::new();
    let whole = shared(lease("10.0.0.3", "fipd/Host/lab/a"));
    take(&mut ledger, &import(std::slice::from_ref(&whole), false));
    let ImportRow::Lease(mut less) = whole else {
        panic!("no lease");
    };
    less.lease.tenant = None;
    less.lease.group = None;
    for member in &mut less.lease.members {
        member.ports.clear();
        member.holder.instance = "".into();
    }
    let (fates, _) = take(&mut ledger, &import(&[ImportRow::Lease(less)], false));
    assert_eq!(fates, [RowFate::Same]);
}

#[test]
fn one_file_does_not_use_up_the_numbers_of_pools() {
    let mut ledger = Ledger::new();
    let far = pool("far", "10.0.0.0/24", Some(u32::MAX - 1));
    take(&mut ledger, &import(&[far], false));
    let made = ledger.find_pool("far").expect("the pool is there").id;
    assert_eq!(made, PoolId(1));
}

#[test]
fn a_pool_stays_while_a_lease_that_names_it_is_imported() {
    let mut ledger = Ledger::new();
    let given = pool("vips", "10.0.0.0/24", None);
    take(&mut ledger, &import(&[given], false));
    let ImportRow::Lease(mut row) = lease("192.0.2.1", "fipd/Host/lab/a") else {
        panic!("no lease");
    };
    row.pool = Some("vips".into());
    let Planned::Tentative { ticket, .. } =
        ledger.plan(&import(&[ImportRow::Lease(row)], false), NOW)
    else {
        panic!("it is not imported");
    };
    let delete = Request::DeletePool {
        pool: PoolId(1),
        actor: "test".into(),
    };
    assert!(matches!(ledger.plan(&delete, NOW), Planned::Busy));
    ledger.confirm(ticket);
    assert_eq!(ledger.check(), []);
    let refused = Planned::Refused(Refusal::PoolInUse {
        pool: "vips".into(),
        leases: 1,
    });
    assert_eq!(ledger.plan(&delete, NOW), refused);
}

#[test]
fn an_import_waits_until_nothing_is_in_flight() {
    let mut ledger = Ledger::new();
    let record = ClusterRecord {
        id: ClusterId("c1".into()),
        names: vec!["one".into()],
        discovered: false,
        first_seen: NOW,
        proof: None,
    };
    let other = Request::RecordCluster { record };
    let Planned::Tentative { ticket, .. } = ledger.plan(&other, NOW) else {
        panic!("no cluster");
    };
    let row = import(&[pool("vips", "10.0.0.0/24", None)], false);
    assert!(matches!(ledger.plan(&row, NOW), Planned::Busy));
    ledger.confirm(ticket);
    take(&mut ledger, &row);
}

/// A pool of this network by its name, or of the one that it gets without any.
fn placed(name: &str, network: Option<&str>, by_default: Option<bool>) -> ImportRow {
    let ImportRow::Pool(mut row) = pool(name, "10.0.0.0/30", None) else {
        panic!("no pool");
    };
    row.network = network.map(Into::into);
    row.network_by_default = by_default;
    ImportRow::Pool(row)
}

#[test]
fn an_imported_pool_that_names_no_network_gives_nothing_that_another_may_mean() {
    let withheld = |rows: &[ImportRow]| {
        let mut ledger = Ledger::new();
        let (fates, _) = take(&mut ledger, &import(rows, false));
        assert!(fates.iter().all(|fate| *fate == RowFate::Created));
        let used = |name| ledger.usage(ledger.find_pool(name).expect(name).id);
        used("here").expect("a pool").withheld
    };
    let blue = || ImportRow::Network("blue".into());
    let there = || placed("there", Some("blue"), Some(true));
    let here = |network, by_default| placed("here", network, by_default);
    let separation = ImportRow::Separation("blue".into(), "default".into());
    for (row, expected) in [
        (here(None, None), 4),
        (here(None, Some(false)), 0),
        (here(Some("default"), None), 0),
        (here(Some("default"), Some(true)), 4),
    ] {
        assert_eq!(
            withheld(&[blue(), there(), row.clone()]),
            expected,
            "{row:?}"
        );
    }
    let apart = [blue(), separation.clone(), there(), here(None, None)];
    assert_eq!(withheld(&apart), 0);
    let mut ledger = Ledger::new();
    take(&mut ledger, &import(&apart, false));
    let again = [
        separation,
        placed("here", None, None),
        placed("here", Some("default"), None),
    ];
    let (fates, _) = take(&mut ledger, &import(&again, false));
    assert!(fates.iter().all(|fate| *fate == RowFate::Same), "{fates:?}");
    let nowhere = ImportRow::Separation("blue".into(), "none".into());
    let (fates, _) = take(&mut ledger, &import(&[nowhere], false));
    let [RowFate::Refused(refusal)] = fates.as_slice() else {
        panic!("{fates:?}");
    };
    assert!(refusal.to_string().contains("none"), "{refusal}");
}

/// Leases of tenant `t` on 10.0.0.1 and what follows.
fn many(count: usize) -> Vec<ImportRow> {
    let row = |at| lease(&format!("10.0.0.{at}"), &format!("fipd/Host/lab/h{at}"));
    (1..=count).map(row).collect()
}

#[test]
fn a_tenant_gets_more_than_its_quota_only_by_force() {
    let mut ledger = Ledger::new();
    let first = [
        pool("vips", "10.0.0.0/24", None),
        lease("10.0.0.200", "fipd/Host/lab/z"),
    ];
    take(&mut ledger, &import(&first, false));
    let mut all = vec![quota("vips", 5)];
    all.extend(many(100));
    let before = rows(&ledger);
    let preview = tried(&ledger, &all);
    let (fates, decision) = take(&mut ledger, &import(&all, false));
    assert_eq!((&fates, decision), (&preview, None));
    let exceeded = RowFate::Refused(Refusal::QuotaExceeded {
        tenant: Tenant("t".into()),
        pool: "vips".into(),
        used: 5,
        limit: 5,
    });
    // One was there, and what is refused counts for nothing.
    let refused = fates.iter().filter(|fate| **fate == exceeded);
    assert_eq!(refused.count(), 96);
    assert_eq!(rows(&ledger), before);
    let (fates, decision) = take(&mut ledger, &import(&all, true));
    assert!(fates.iter().all(|fate| *fate == RowFate::Created));
    let audit = decision.expect("a decision").audit;
    let beyond = audit.iter().filter(|entry| entry.detail.contains("quota"));
    assert_eq!(beyond.count(), 96);
    // What is there already counts once.
    let (fates, _) = take(&mut ledger, &import(&all, false));
    assert!(fates.iter().all(|fate| *fate == RowFate::Same), "{fates:?}");
}

#[test]
fn after_a_restore_a_file_gives_no_free_address_to_anybody_new() {
    let mut ledger = Ledger::new();
    take(
        &mut ledger,
        &import(&[pool("vips", "10.0.0.0/24", None)], false),
    );
    take(&mut ledger, &import(&many(2), false));
    ledger.apply(&Op::PutEpoch(Epoch {
        number: 1,
        began: NOW,
        hold: Some(RestoreHold::starting(NOW)),
    }));
    let mut all = many(3);
    let ImportRow::Lease(second) = &mut all[1] else {
        panic!("no lease");
    };
    second.lease.tenant = Some(Tenant("u".into()));
    for force in [false, true] {
        let (fates, decision) = take(&mut ledger, &import(&all, force));
        assert_eq!(
            (&fates[..2], decision),
            (&[RowFate::Same, RowFate::Changed][..], None)
        );
        let RowFate::Refused(refusal @ Refusal::RestoreHeld { .. }) = &fates[2] else {
            panic!("{fates:?}");
        };
        assert!(refusal.to_string().contains("fipd hold lift"), "{refusal}");
    }
    let (fates, _) = take(&mut ledger, &import(&all[..2], false));
    assert_eq!(fates, [RowFate::Same, RowFate::Changed]);
}

#[test]
fn a_pool_that_is_changed_twice_keeps_the_leases_that_leave_it_the_second_time() {
    let mut ledger = Ledger::new();
    take(
        &mut ledger,
        &import(&[pool("vips", "10.0.0.0/24", None)], false),
    );
    take(&mut ledger, &import(&many(9), false));
    let twice = [
        pool("vips", "10.0.0.0/28", None),
        pool("vips", "10.0.0.0/29", None),
    ];
    let (fates, _) = take(&mut ledger, &import(&twice, false));
    let [
        RowFate::Changed,
        RowFate::Refused(Refusal::WouldOrphan { count: 2, .. }),
    ] = &fates[..]
    else {
        panic!("{fates:?}");
    };
    let next = [
        pool("vips", "10.0.0.0/28", None),
        lease("10.0.0.77", "fipd/Host/lab/out"),
    ];
    take(&mut ledger, &import(&next, false));
    let key = testing::key_of("10.0.0.77");
    assert_eq!(ledger.lease(key).expect("it is there").pool, None);
    let wide = [pool("vips", "10.0.0.0/24", None), quota("vips", 1)];
    let (fates, _) = take(&mut ledger, &import(&wide, false));
    assert_eq!(fates, [RowFate::Changed, RowFate::Created]);
}

#[test]
fn a_pool_stays_in_its_network_while_any_of_its_leases_does() {
    let mut ledger = Ledger::new();
    let blue = ImportRow::Network("blue".into());
    let rows = [
        blue,
        pool("a", "10.0.0.0/24", None),
        pool("b", "10.0.0.0/16", None),
    ];
    take(&mut ledger, &import(&rows, false));
    let of = |row: ImportRow, name: &str| {
        let ImportRow::Lease(mut row) = row else {
            panic!("no lease");
        };
        row.pool = Some(name.into());
        ImportRow::Lease(row)
    };
    let (near, far) = (
        lease("10.0.0.1", "fipd/Host/lab/a"),
        lease("10.9.0.9", "fipd/Host/lab/b"),
    );
    take(
        &mut ledger,
        &import(&[of(near.clone(), "a"), of(far, "a")], false),
    );
    // The nearer one goes to another pool, and its old pool to another network, where the far one is not.
    let rows = [of(near, "b"), placed("a", Some("blue"), None)];
    let (fates, decision) = take(&mut ledger, &import(&rows, false));
    assert!(matches!(fates[1], RowFate::Refused(_)), "{fates:?}");
    assert_eq!(decision, None);
    assert_eq!(tried(&ledger, &rows), fates);
}

#[test]
fn after_a_restore_a_file_gives_no_port_to_anybody_new() {
    let mut ledger = Ledger::new();
    let alone = lease("10.0.0.3", "fipd/Host/lab/a");
    take(&mut ledger, &import(std::slice::from_ref(&alone), false));
    ledger.apply(&Op::PutEpoch(Epoch {
        number: 1,
        began: NOW,
        hold: Some(RestoreHold::starting(NOW)),
    }));
    let (fates, _) = take(&mut ledger, &import(&[shared(alone)], false));
    assert!(
        matches!(fates[0], RowFate::Refused(Refusal::RestoreHeld { .. })),
        "{fates:?}"
    );
}
