//! A store of the format before checksums, with a row of every kind and version in it, serves and is rewritten.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use fipd_core::{
    Account, Action, Adoption, AuditEntry, Authority as _, ClusterId, ClusterRecord, Contender,
    Decision, Ends, EndsOf, Epoch, Holder, Hour, KeyBytes, KeyId, Lease, LeaseKey, LeaseState,
    Member, Network, NetworkId, Op, Order, Origin, Outcome, PastLease, Pool, PoolId, PoolScope,
    PoolSpec, PortClaim, Protocol, Quota, RestoreHold, Role, Rollup, Scope, SigningKey, Sticky,
    System, Tenant, Text, Timestamp, Token, TokenId, testing,
};

use redb::{Database, Key, ReadableDatabase as _, TableDefinition, TableHandle as _};

use super::medium::Faulty;
use crate::store::{
    Medium as _, OpenError, Restore, Store, StoreOptions, batch, builder, check, codec,
    envelope::{RowDraft, RowFormat, StoredRow, Tags},
    open, rewrite,
    tables::{self, ACCOUNTS, LEASES, META, SCHEMA, SEAL, Visit, existing, lease_key},
};

/// The UID of the cluster with two ways to it.
const EAST: &str = "0d1f4f9e-36a5-4b1c-9d0f-3a6f1c2b7e11";
const WEST: &str = "5be7d3aa-0c3e-44c8-8a52-b7c1f0a9d202";

fn holder(cluster: &str, name: &str) -> Holder {
    Holder {
        identity: format!("rancher-fip/{cluster}/Service/apps/{name}")
            .parse()
            .unwrap(),
        instance: format!("uid-of-{name}").into(),
    }
}

fn key(network: u32, address: &str) -> LeaseKey {
    LeaseKey {
        network: NetworkId(network),
        address: address.parse().unwrap(),
    }
}

fn lease(key: LeaseKey, pool: u32, name: &str) -> Lease {
    Lease {
        tenant: Some(Tenant("p-12".into())),
        since: Timestamp(70_000),
        ..testing::lease(key, Some(PoolId(pool)), [holder(EAST, name)])
    }
}

/// A lease of a text that can be found in the file.
pub(super) fn lease_of(address: [u8; 4]) -> Op {
    let address = std::net::Ipv4Addr::from(address).to_string();
    let lease = Lease {
        pool: None,
        ..lease(
            key(1, &address),
            1,
            &format!("entry-of-the-lease-{address}"),
        )
    };
    Op::PutLease(Arc::new(lease))
}

/// Every state, labels, a sharing group, contenders, both families, with and without a pool.
fn leases() -> Vec<Lease> {
    let contender = |name: &str, since| Contender {
        holder: holder(WEST, name),
        tenant: Some(Tenant("p-34".into())),
        since: Timestamp(since),
        uses: Vec::new(),
    };
    let port = |protocol, port| PortClaim { protocol, port };
    let shared = vec![
        Member {
            holder: holder(EAST, "dns-tcp"),
            ports: vec![port(Protocol::Tcp, 53)],
        },
        Member {
            holder: holder(EAST, "dns-udp"),
            ports: vec![port(Protocol::Udp, 53), port(Protocol::Sctp, 9)],
        },
    ];
    let labels: BTreeMap<Text, Text> =
        [("team".into(), "net".into()), ("app".into(), "".into())].into();
    vec![
        Lease {
            contenders: vec![contender("old", 5_000), contender("older", 6_000)],
            ..lease(key(0, "10.60.0.1"), 1, "web")
        },
        Lease {
            labels: labels.into(),
            ..lease(key(0, "10.60.0.2"), 1, "labelled")
        },
        Lease {
            members: shared.into(),
            group: Some("dns".into()),
            ..lease(key(0, "10.60.0.3"), 1, "dns")
        },
        Lease {
            state: LeaseState::Reserved,
            until: Some(Timestamp(9_000_000_000_000)),
            ..lease(key(0, "10.60.0.4"), 1, "later")
        },
        Lease {
            state: LeaseState::Probing,
            until: Some(Timestamp(9_000_000_000_000)),
            ..lease(key(0, "10.60.0.5"), 1, "probed")
        },
        Lease {
            state: LeaseState::Orphaned,
            ..lease(key(0, "10.60.0.6"), 1, "orphan")
        },
        Lease {
            state: LeaseState::Quarantined,
            members: Default::default(),
            tenant: None,
            until: Some(Timestamp(9_000_000_000_000)),
            ..lease(key(2, "fd00:60::7"), 5, "gone")
        },
        Lease {
            pool: None,
            tenant: None,
            ..lease(key(1, "192.0.2.7"), 1, "of-no-pool")
        },
    ]
}

/// One pool of each version that a row of it can have.
fn pools() -> Vec<Op> {
    let own = |name: &str, addresses: &str| testing::pool_spec(name, &[addresses]);
    let scope = PoolScope {
        cluster: Some("east".into()),
        project: Some("p-12".into()),
        namespaces: vec!["apps".into()],
        labels: [("tier".into(), "front".into())].into(),
    };
    let specs = [
        own("plain", "10.60.0.0/24"),
        PoolSpec {
            quarantine: 600,
            origin: Origin::Mirror {
                system: System::rancher_fip(),
                cluster: ClusterId(EAST.into()),
                object: "front".into(),
                uid: "99".into(),
            },
            ..own("rancher-fip/east/front", "10.61.0.0/24")
        },
        PoolSpec {
            sticky: Sticky {
                lasts: 86_400,
                most: 100,
            },
            priority: 9,
            scopes: vec![scope],
            share_across_clusters: true,
            order: Order::LeastRecentlyUsed,
            ends: Ends {
                first: 2,
                last: 1,
                of: EndsOf::EachCidr,
            },
            ..own("third", "10.62.0.0/24")
        },
        PoolSpec {
            network: NetworkId(1),
            network_by_default: true,
            gateway: Some([10, 63, 0, 1].into()),
            subnet: Some("10.63.0.0/16".parse().unwrap()),
            prefix_len: Some(16),
            exclusions: vec!["10.63.0.9".parse().unwrap()],
            ..own("fourth", "10.63.0.0/24")
        },
        PoolSpec {
            network: NetworkId(2),
            quota_required: true,
            ..own("fifth", "fd00:60::/120")
        },
    ];
    let pool = |(spec, id)| Pool {
        id: PoolId(id),
        spec,
        created: Timestamp(2_000 + u64::from(id)),
        generation: 4,
    };
    let pools = specs.into_iter().zip(1..).map(pool);
    pools.map(|pool| Op::PutPool(Arc::new(pool))).collect()
}

fn people() -> Vec<Op> {
    let account = |name: &str, role, disabled| Account {
        name: name.into(),
        role,
        password_hash: "$argon2id$x".into(),
        created: Timestamp(4_000),
        disabled,
    };
    let token = |id, scope, from| Token {
        id: TokenId(id),
        name: format!("token-{id}").into(),
        role: Role::Operator,
        hash: [9; 32],
        created: Timestamp(4_000),
        expires: Some(Timestamp(9_000_000_000_000)),
        scope,
        from,
    };
    let limited = Scope {
        pools: vec![PoolId(1)],
        networks: vec![NetworkId(1)],
        tenants: vec![Tenant("p-12".into())],
    };
    vec![
        Op::PutAccount(account("ann", Role::Admin, false)),
        Op::PutAccount(account("bob", Role::Viewer, true)),
        Op::PutToken(token(17, Scope::default(), Vec::new())),
        Op::PutToken(token(18, limited, vec!["10.0.0.0/8".parse().unwrap()])),
        Op::PutKey(SigningKey {
            id: KeyId(3),
            created: Timestamp(4_000),
            bytes: KeyBytes([1, 2, 3, 4].into()),
            until: Some(Timestamp(9_000_000_000_000)),
        }),
    ]
}

/// One row of each kind and version that schema 1 has.
pub(super) fn everything() -> Vec<Op> {
    let network = |id, name: &str| {
        Op::PutNetwork(Network {
            id: NetworkId(id),
            name: name.into(),
            hold: None,
        })
    };
    let cluster = |id: &str, names: &[&str], discovered| {
        Op::PutCluster(ClusterRecord {
            id: ClusterId(id.into()),
            names: names.iter().map(|name| (*name).into()).collect(),
            discovered,
            first_seen: Timestamp(2_000),
            proof: None,
        })
    };
    let adopted = |network, cluster: &str, skipped| {
        Op::PutAdoption(Adoption {
            network: NetworkId(network),
            cluster: cluster.into(),
            system: System::rancher_fip(),
            at: Timestamp(3_000),
            skipped,
        })
    };
    let past = PastLease {
        key: key(0, "10.62.0.20"),
        pool: PoolId(3),
        identity: holder(EAST, "was-here").identity,
        released: Timestamp(69_000),
        own: true,
    };
    let rollup = |hour| {
        Op::PutRollup(Rollup {
            pool: PoolId(1),
            hour: Hour(hour),
            size: 254,
            used: 6,
            quarantined: 0,
            highest: 7,
            given: 8,
            released: 1,
            refused: 2,
        })
    };
    let mut ops = vec![
        network(1, "vlan-7"),
        network(2, "vlan-8"),
        cluster(EAST, &["east", "c-m-abc"], true),
        cluster(WEST, &["west"], false),
        adopted(0, EAST, false),
        adopted(1, WEST, true),
        Op::PutSeparation((NetworkId(1), NetworkId(2))),
        Op::PutQuota(Quota {
            pool: PoolId(1),
            tenant: Tenant("p-12".into()),
            limit: 30,
        }),
        Op::PutPast(Arc::new(past)),
        Op::PutEpoch(Epoch {
            number: 2,
            began: Timestamp(1_000),
            hold: Some(RestoreHold {
                left: 3_600_000,
                until: Timestamp(3_601_000),
            }),
        }),
        rollup(1),
        rollup(2),
        Op::PutNextPool(PoolId(9)),
    ];
    ops.extend(pools());
    ops.extend(
        leases()
            .into_iter()
            .map(|lease| Op::PutLease(Arc::new(lease))),
    );
    ops.extend(people());
    ops
}

fn entry(number: u64) -> AuditEntry {
    AuditEntry {
        length: None,
        at: Timestamp(70_000 + number),
        actor: "controller:rancher-fip/east".into(),
        action: Action::Allocated,
        network: Some(NetworkId(0)),
        address: Some([10, 60, 0, 1].into()),
        pool: Some(PoolId(1)),
        identity: Some(holder(EAST, "web").identity),
        detail: format!("entry {number}").into(),
    }
}

/// Audit entries in the fixture.
const ENTRIES: u64 = 40;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-v1-full.redb")
}

fn copied(dir: &Path) -> PathBuf {
    let path = dir.join("fipd.redb");
    fs::copy(fixture(), &path).unwrap();
    path
}

fn problems(path: &Path) -> Vec<String> {
    let found = check(path).unwrap();
    found.iter().map(ToString::to_string).collect()
}

/// The file was written once, by the last fipd of schema 1, and is never written again.
#[test]
fn a_store_of_schema_1_opens_with_every_row_of_every_version() {
    let dir = tempfile::tempdir().unwrap();
    let path = copied(dir.path());
    assert_eq!(problems(&path), [""; 0]);
    let (store, loaded) = Store::open(&path, StoreOptions::default()).unwrap();
    let rows: Vec<_> = loaded.ledger.dump().collect();
    for op in everything() {
        assert!(rows.contains(&op), "{op:?} is not among {rows:#?}");
    }
    let entries = store.reader().audit_page(None, 100).unwrap();
    let expected: Vec<_> = (1..=ENTRIES)
        .rev()
        .map(|number| (number, entry(number)))
        .collect();
    assert_eq!(entries, expected);
}

/// The first bytes of the rows of all tables, but of the schema's.
fn versions(database: &Database) -> BTreeSet<u8> {
    struct Versions(redb::ReadTransaction, BTreeSet<u8>);
    impl Visit for Versions {
        type Error = redb::Error;
        fn table<K: Key + 'static>(
            &mut self,
            definition: TableDefinition<'static, K, &'static [u8]>,
        ) -> Result<(), redb::Error> {
            let Some(table) = existing(&self.0, definition)? else {
                return Ok(());
            };
            for item in table.range::<K::SelfType<'_>>(..)? {
                let (key, value) = item?;
                let key = K::as_bytes(&key.value()).as_ref().to_owned();
                if definition.name() != META.name() || key != SCHEMA.as_bytes() {
                    self.1.insert(value.value()[0]);
                }
            }
            Ok(())
        }
    }
    let mut versions = Versions(database.begin_read().unwrap(), BTreeSet::new());
    tables::each(&mut versions).unwrap();
    versions.1
}

fn rows_of(path: &Path) -> BTreeSet<u8> {
    versions(&Database::open(path).unwrap())
}

/// Lets the store do all that is due, at the times that it asks for.
pub(super) fn keep_up(store: &mut Store) -> usize {
    let mut now = Instant::now();
    let mut steps = 0;
    while let Some(due) = store.upkeep(now) {
        assert!(due > now, "a busy loop");
        (now, steps) = (due, steps + 1);
    }
    steps
}

#[test]
fn a_store_of_schema_1_is_rewritten_while_it_serves() {
    let dir = tempfile::tempdir().unwrap();
    let path = copied(dir.path());
    assert_eq!(rows_of(&path), [1, 2, 3, 4, 5].into());
    let (mut store, loaded) = Store::open(&path, StoreOptions::default()).unwrap();
    let rows: Vec<_> = loaded.ledger.dump().collect();
    let later = Decision {
        ops: people(),
        audit: vec![entry(ENTRIES + 1)],
    };
    assert_eq!(store.commit(&[later]), [Outcome::Committed]);
    keep_up(&mut store);
    let entries = store.reader().audit_page(None, 100).unwrap();
    let numbers = (1..=ENTRIES + 1).rev();
    assert_eq!(
        entries,
        numbers
            .map(|number| (number, entry(number)))
            .collect::<Vec<_>>()
    );
    drop(store);
    assert_eq!(rows_of(&path), [6].into());
    assert_eq!(problems(&path), [""; 0]);
    let (mut store, loaded) = Store::open(&path, StoreOptions::default()).unwrap();
    assert_eq!(loaded.ledger.dump().collect::<Vec<_>>(), rows);
    assert_eq!(store.upkeep(Instant::now()), None, "it is finished");
}

#[test]
fn a_new_store_has_nothing_to_rewrite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    let (mut store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    assert_eq!(store.upkeep(Instant::now()), None);
    drop(store);
    assert_eq!(rows_of(&path), [6].into());
    assert!(!dir.path().join("backups").exists());
}

#[test]
fn an_older_store_is_backed_up_as_its_own_fipd_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = copied(dir.path());
    drop(Store::open(&path, StoreOptions::default()).unwrap());
    // One start, one backup.
    drop(Store::open(&path, StoreOptions::default()).unwrap());
    let copies: Vec<_> = fs::read_dir(dir.path().join("backups")).unwrap().collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
    let copy = copies[0].as_ref().unwrap().path();
    assert_eq!(problems(&copy), [""; 0]);
    assert_eq!(rows_of(&copy), [1, 2, 3, 4, 5].into());
    let database = Database::open(&copy).unwrap();
    let txn = database.begin_read().unwrap();
    let seal = txn.open_table(SEAL).unwrap();
    assert_eq!(seal.get("backup").unwrap().unwrap().value()[0], 1);
    let schema = txn.open_table(META).unwrap().get(SCHEMA).unwrap();
    assert_eq!(schema.unwrap().value(), 1_u32.to_be_bytes());
    drop((seal, txn, database));
    // And this fipd puts it back.
    let restored = dir.path().join("restored.redb");
    Restore {
        backup: &copy,
        store: &restored,
        no_hold: None,
        actor: "test".into(),
        now: Timestamp(80_000),
        host: None,
    }
    .run()
    .unwrap();
    let (mut store, loaded) = Store::open(&restored, StoreOptions::default()).unwrap();
    keep_up(&mut store);
    let rows: Vec<_> = loaded.ledger.dump().collect();
    for op in leases()
        .into_iter()
        .map(|lease| Op::PutLease(Arc::new(lease)))
    {
        assert!(rows.contains(&op), "{op:?}");
    }
}

#[test]
fn without_a_backup_an_older_store_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = copied(dir.path());
    fs::write(dir.path().join("backups"), "no directory").unwrap();
    let before = fs::read(&path).unwrap();
    let error = Store::open(&path, StoreOptions::default()).unwrap_err();
    assert!(
        matches!(error, OpenError::NoBackup { found: 1, .. }),
        "{error}"
    );
    let line = error.to_string();
    assert!(
        line.contains("start fipd again") && !line.contains('\n'),
        "{line}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// A cut between any two writes leaves a store with every row, from which the rewrite goes on to its end.
#[test]
fn a_rewrite_that_is_cut_at_any_point_goes_on() {
    let medium = Faulty::of(fs::read(fixture()).unwrap());
    let history = StoreOptions::default().history;
    let open::Opened {
        database,
        loaded,
        mut state,
        ..
    } = open::open(&medium, history).unwrap();
    let rows: Vec<_> = loaded.ledger.dump().collect();
    medium.keep_cuts(3);
    let mut cuts = Vec::new();
    loop {
        let (after, more) = rewrite::step(&database, &state, 7).unwrap();
        state = after;
        cuts.extend(medium.take_cuts());
        if !more {
            break;
        }
    }
    assert_eq!(versions(&database), [6].into());
    assert!(cuts.len() > 20, "{} cuts", cuts.len());
    for image in cuts {
        let open::Opened {
            database,
            loaded,
            mut state,
            ..
        } = open::open(&Faulty::of(image), history).unwrap();
        assert_eq!(loaded.ledger.dump().collect::<Vec<_>>(), rows);
        while let (after, true) = rewrite::step(&database, &state, 31).unwrap() {
            state = after;
        }
        assert_eq!(versions(&database), [6].into());
        let txn = database.begin_read().unwrap();
        let state = batch::read_state(&txn.open_table(META).unwrap()).unwrap();
        let (_, problems) = check::contents(&txn, &state).unwrap();
        assert!(problems.is_empty(), "{}", problems[0]);
    }
}

#[test]
fn once_rewritten_an_older_row_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = copied(dir.path());
    let old = {
        let database = Database::open(&path).unwrap();
        let txn = database.begin_read().unwrap();
        let row = txn.open_table(ACCOUNTS).unwrap().get("ann").unwrap();
        row.unwrap().value().to_vec()
    };
    let (mut store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    keep_up(&mut store);
    drop(store);
    let database = Database::open(&path).unwrap();
    let txn = database.begin_write().unwrap();
    let mut table = txn.open_table(ACCOUNTS).unwrap();
    table.insert("ann", old.as_slice()).unwrap();
    drop(table);
    txn.commit().unwrap();
    drop(database);
    let error = Store::open(&path, StoreOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("accounts") && error.contains("version 1"),
        "{error}"
    );
    assert_eq!(problems(&path).len(), 1);
}

/// What a later fipd of the same schema adds to a row is still there when this one has changed the row.
#[test]
fn fields_of_a_later_fipd_are_kept() {
    let medium = Faulty::default();
    let open = || Store::open_medium(Arc::new(medium.clone()), StoreOptions::default()).unwrap();
    let (mut store, _) = open();
    let decision = |ops| Decision {
        ops,
        audit: Vec::new(),
    };
    assert_eq!(
        store.commit(&[decision(everything())]),
        [Outcome::Committed]
    );
    drop(store);
    let (key, mut tags) = (lease_key(key(0, "10.60.0.1")), Tags::default());
    tags.set(4_000, &"of a later fipd").unwrap();
    let database = medium.open(&builder()).unwrap();
    let row = |database: &Database| {
        let txn = database.begin_read().unwrap();
        let row = txn.open_table(LEASES).unwrap().get(key).unwrap();
        row.unwrap().value().to_vec()
    };
    let old = row(&database);
    // A row is its tags, none in one byte, and what follows them.
    let mut body = old[6..].to_vec();
    let mut with = RowDraft::tagged(&tags, &()).unwrap();
    let head = with.finish(LEASES.name(), &key).to_vec();
    body.splice(0..0, head[5..].iter().copied());
    let txn = database.begin_write().unwrap();
    let mut table = txn.open_table(LEASES).unwrap();
    table
        .insert(key, checked(LEASES.name(), &key, &body).as_slice())
        .unwrap();
    drop(table);
    txn.commit().unwrap();
    drop(database);

    let (mut store, loaded) = open();
    let lease = &leases()[0];
    assert!(
        loaded
            .ledger
            .dump()
            .any(|op| op == Op::PutLease(Arc::new(lease.clone())))
    );
    let changed = Lease {
        contenders: Vec::new(),
        ..lease.clone()
    };
    let put = Op::PutLease(Arc::new(changed.clone()));
    assert_eq!(store.commit(&[decision(vec![put])]), [Outcome::Committed]);
    drop(store);
    let value = row(&medium.open(&builder()).unwrap());
    let stored = StoredRow::open(LEASES.name(), &key, &value, RowFormat::Latest).unwrap();
    assert_eq!(stored.tags, tags);
    assert_eq!(codec::decode_lease(changed.key, &stored), Ok(changed));
}

/// A value with a checksum that holds.
pub(super) fn checked(table: &str, key: &[u8], body: &[u8]) -> Vec<u8> {
    let mut sum = crc32fast::Hasher::new();
    for part in [table.as_bytes(), key] {
        sum.update(&(part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    sum.update(body);
    [&[6], &sum.finalize().to_le_bytes()[..], body].concat()
}

/// Writes the fixture anew: only a fipd of schema 1 can.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_full_fixture() {
    fs::remove_file(fixture()).ok();
    let options = StoreOptions {
        ballast: 0,
        ..StoreOptions::default()
    };
    let (mut store, _) = Store::open(&fixture(), options).unwrap();
    let decision = Decision {
        ops: everything(),
        audit: (1..=ENTRIES).map(entry).collect(),
    };
    assert_eq!(store.commit(&[decision]), [Outcome::Committed]);
}
