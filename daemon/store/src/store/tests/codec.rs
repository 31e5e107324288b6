//! Rows read back as they were written, and arbitrary bytes do no harm; the file of this version still opens.

use std::{fs, net::IpAddr, path::Path, sync::Arc};

use fipd_core::{
    Account, Action, AddressSpec, Adoption, AuditEntry, Authority as _, BootId, ClockLine,
    ClusterId, ClusterProof, ClusterRecord, Contender, Decision, Ends, EndsOf, Holder, Identity,
    KeyBytes, KeyId, Lease, LeaseKey, LeaseState, Member, Network, NetworkId, Op, Order, Origin,
    Outcome, PastLease, Pool, PoolId, PoolScope, PoolSpec, PortClaim, Protocol, Quota, QuotaUnit,
    RestoreHold, Role, Scope, SigningKey, Sticky, Tenant, Text, Timestamp, Token, TokenId, testing,
};
use ipnet::IpNet;
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};

use super::{file::restore, upgrade::checked};
use crate::store::{
    DecodeError, Store, StoreOptions, check, codec,
    envelope::{RowDraft, RowFormat, StoredRow, Tags},
    rows::StateV1,
    tables,
};

/// A table and a key that rows of all kinds are put under here.
const AT: (&str, &[u8]) = ("table", b"key");

/// The value of a row under [`AT`].
fn value(draft: Result<RowDraft, postcard::Error>) -> Vec<u8> {
    draft.unwrap().finish(AT.0, AT.1).to_vec()
}

/// The row in a value under [`AT`].
fn opened(value: &[u8]) -> Result<StoredRow<'_>, DecodeError> {
    StoredRow::open(AT.0, AT.1, value, RowFormat::Mixed)
}

/// What a reader of one kind makes of a value under [`AT`].
fn read<T>(
    value: &[u8],
    decode: impl FnOnce(&StoredRow<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    decode(&opened(value)?)
}

fn text() -> impl Strategy<Value = Text> {
    "\\PC{0,30}".prop_map(Into::into)
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

fn time() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp)
}

fn system() -> impl Strategy<Value = fipd_core::System> {
    "[a-z][a-z0-9-]{0,39}".prop_map(|name| name.parse().unwrap())
}

fn identity() -> impl Strategy<Value = Identity> {
    (system(), option::of(text()), text(), text(), text(), text()).prop_map(
        |(system, cluster, kind, namespace, name, interface)| {
            let cluster = cluster.map(ClusterId);
            Identity {
                system,
                cluster,
                kind,
                namespace,
                name,
                interface,
            }
        },
    )
}

fn holder() -> impl Strategy<Value = Holder> {
    (identity(), text()).prop_map(|(identity, instance)| Holder { identity, instance })
}

fn member() -> impl Strategy<Value = Member> {
    let protocol = prop_oneof![
        Just(Protocol::Tcp),
        Just(Protocol::Udp),
        Just(Protocol::Sctp)
    ];
    let port = (protocol, any::<u16>()).prop_map(|(protocol, port)| PortClaim { protocol, port });
    (holder(), vec(port, 0..4)).prop_map(|(holder, ports)| Member { holder, ports })
}

fn contender() -> impl Strategy<Value = Contender> {
    let uses = vec(net(), 0..3);
    (holder(), option::of(text()), time(), uses).prop_map(|(holder, tenant, since, uses)| {
        Contender {
            holder,
            tenant: tenant.map(Tenant),
            since,
            uses,
        }
    })
}

fn key() -> impl Strategy<Value = LeaseKey> {
    (any::<u32>(), address()).prop_map(|(network, address)| LeaseKey {
        network: NetworkId(network),
        address,
    })
}

fn lease() -> impl Strategy<Value = Lease> {
    let state = prop_oneof![
        Just(LeaseState::Allocated),
        Just(LeaseState::Reserved),
        Just(LeaseState::Probing),
        Just(LeaseState::Quarantined),
        Just(LeaseState::Orphaned)
    ];
    let people = (
        vec(member(), 0..3),
        vec(contender(), 0..3),
        option::of(text()),
        option::of(text()),
        btree_map(text(), text(), 0..3),
    );
    (
        key(),
        option::of(any::<u32>()),
        state,
        people,
        time(),
        option::of(time()),
    )
        .prop_map(
            |(key, pool, state, (members, contenders, tenant, group, labels), since, until)| {
                Lease {
                    length: key.bits() - u8::try_from(since.0 % 3).unwrap(),
                    key,
                    pool: pool.map(PoolId),
                    state,
                    members: members.into(),
                    contenders,
                    tenant: tenant.map(Tenant),
                    group,
                    since,
                    until,
                    labels: labels.into(),
                }
            },
        )
}

fn scope() -> impl Strategy<Value = Scope> {
    let ids = || vec(any::<u32>(), 0..2);
    (ids(), ids(), vec(text(), 0..2)).prop_map(|(pools, networks, tenants)| Scope {
        pools: pools.into_iter().map(PoolId).collect(),
        networks: networks.into_iter().map(NetworkId).collect(),
        tenants: tenants.into_iter().map(Tenant).collect(),
    })
}

fn net() -> impl Strategy<Value = IpNet> {
    (address(), 0..=128_u8).prop_map(|(address, len)| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        IpNet::new(address, len.min(most)).unwrap().trunc()
    })
}

fn spec() -> impl Strategy<Value = AddressSpec> {
    prop_oneof![
        net().prop_map(AddressSpec::Cidr),
        address().prop_map(AddressSpec::Single),
        (any::<u32>(), any::<u32>()).prop_map(|(a, b)| {
            let end = |number: u32| IpAddr::from(number.to_be_bytes());
            AddressSpec::Range(end(a.min(b)), end(a.max(b)))
        }),
    ]
}

fn pool() -> impl Strategy<Value = Pool> {
    let origin = prop_oneof![
        Just(Origin::Own),
        (system(), text(), text(), text()).prop_map(|(system, cluster, object, uid)| {
            Origin::Mirror {
                system,
                cluster: ClusterId(cluster),
                object,
                uid,
            }
        })
    ];
    let of = prop_oneof![Just(EndsOf::Prefix), Just(EndsOf::EachCidr)];
    let ends =
        (any::<u32>(), any::<u32>(), of).prop_map(|(first, last, of)| Ends { first, last, of });
    let space = (
        vec(spec(), 0..4),
        vec(spec(), 0..4),
        option::of(address()),
        option::of(0..=128_u8),
    );
    let scope = (
        option::of(text()),
        option::of(text()),
        vec(text(), 0..3),
        btree_map(text(), text(), 0..3),
    );
    let scope = scope.prop_map(|(cluster, project, namespaces, labels)| PoolScope {
        cluster,
        project,
        namespaces,
        labels,
    });
    let whom = (prop_oneof![Just(0), any::<u16>()], vec(scope, 0..3));
    let order = select(vec![Order::Lowest, Order::Random, Order::LeastRecentlyUsed]);
    let sticky = (any::<u32>(), any::<u32>()).prop_map(|(lasts, most)| Sticky { lasts, most });
    let sticky = prop_oneof![Just(Sticky::OFF), sticky];
    let closed = any::<bool>();
    let kept = (
        prop_oneof![Just(0), any::<u32>()],
        sticky,
        (whom, any::<bool>(), any::<bool>()),
    );
    let rest = (option::of(net()), ends, order, origin, closed, kept);
    (
        any::<u32>(),
        text(),
        any::<u32>(),
        space,
        rest,
        time(),
        any::<u64>(),
    )
        .prop_map(
            |(
                id,
                name,
                network,
                space,
                (
                    subnet,
                    ends,
                    order,
                    origin,
                    closed,
                    (
                        quarantine,
                        sticky,
                        ((priority, scopes), share_across_clusters, quota_required),
                    ),
                ),
                created,
                generation,
            )| {
                let (addresses, exclusions, gateway, prefix_len) = space;
                let network = NetworkId(network);
                let spec = PoolSpec {
                    allocation_length: prefix_len.filter(|_| closed),
                    quota_unit: match quota_required {
                        true => QuotaUnit::Address,
                        false => QuotaUnit::Lease,
                    },
                    name,
                    network,
                    network_by_default: closed ^ share_across_clusters,
                    addresses,
                    exclusions,
                    gateway,
                    prefix_len,
                    subnet,
                    ends,
                    order,
                    origin,
                    closed,
                    quarantine,
                    sticky,
                    priority,
                    scopes,
                    share_across_clusters,
                    quota_required,
                };
                Pool {
                    id: PoolId(id),
                    spec,
                    created,
                    generation,
                }
            },
        )
}

fn entry() -> impl Strategy<Value = AuditEntry> {
    let about = (
        option::of(any::<u32>()),
        option::of(address()),
        option::of(any::<u32>()),
        option::of(identity()),
    );
    let action = prop_oneof![
        Just(Action::Allocated),
        Just(Action::PassedOn),
        Just(Action::TokenDeleted),
        Just(Action::Reserved),
        Just(Action::Expired)
    ];
    (time(), text(), action, about, text()).prop_map(
        |(at, actor, action, (network, address, pool, identity), detail)| AuditEntry {
            length: pool.map(|pool| pool.to_be_bytes()[3]),
            at,
            actor,
            action,
            network: network.map(NetworkId),
            address,
            pool: pool.map(PoolId),
            identity,
            detail,
        },
    )
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Viewer), Just(Role::Operator), Just(Role::Admin)]
}

fn hold() -> impl Strategy<Value = Option<RestoreHold>> {
    let hold = (1..=u64::MAX, time()).prop_map(|(left, until)| RestoreHold { left, until });
    option::of(hold)
}

fn proof() -> impl Strategy<Value = Option<ClusterProof>> {
    let texts = (text(), text(), text(), text());
    let proof = (option::of(text()), option::of(text()), texts).prop_map(
        |(nonce, next, (value, ca, lead, way))| ClusterProof {
            nonce,
            value,
            next,
            ca,
            lead,
            way,
        },
    );
    option::of(proof)
}

proptest! {
    #[test]
    fn lease_keys(key in key(), other in key()) {
        let (row, other_row) = (tables::lease_key(key), tables::lease_key(other));
        prop_assert_eq!(tables::parse_lease_key(&row).unwrap(), key);
        prop_assert_eq!(row.cmp(&other_row), key.cmp(&other), "rows must lie in the order of their keys");
    }

    #[test]
    fn leases(lease in lease()) {
        let row = value(codec::encode_lease(&lease));
        prop_assert_eq!(read(&row, |row| codec::decode_lease(lease.key, row)).unwrap(), lease);
    }

    #[test]
    fn pools(pool in pool()) {
        let row = value(codec::encode_pool(&pool));
        prop_assert_eq!(read(&row, |row| codec::decode_pool(pool.id.0.to_be_bytes(), row)).unwrap(), pool);
    }

    #[test]
    fn quotas(a in any::<u32>(), b in any::<u32>(), tenants in (text(), text()), limit in any::<u64>()) {
        let keys = [(PoolId(a), Tenant(tenants.0)), (PoolId(b), Tenant(tenants.1))];
        let [row, other] = keys.each_ref().map(|(pool, tenant)| tables::quota_key(*pool, tenant));
        let [key, other_key] = keys;
        prop_assert_eq!(row.cmp(&other), key.cmp(&other_key), "rows must lie in the order of their keys");
        prop_assert_eq!(tables::parse_quota_key(&row).unwrap(), key.clone());
        let quota = Quota { pool: key.0, tenant: key.1.clone(), limit };
        let row = value(codec::encode_quota(&quota));
        prop_assert_eq!(read(&row, |row| codec::decode_quota(key, row)).unwrap(), quota);
    }

    #[test]
    fn past_leases(key in key(), pool in any::<u32>(), identity in identity(), released in time(), own in any::<bool>()) {
        let past = PastLease { key, pool: PoolId(pool), identity, released, own };
        let row = value(codec::encode_past(&past));
        prop_assert_eq!(read(&row, |row| codec::decode_past(key, row)).unwrap(), past);
    }

    #[test]
    fn audit_entries(entry in entry()) {
        let row = value(codec::encode_audit(&entry));
        prop_assert_eq!(read(&row, codec::decode_audit).unwrap(), entry);
    }

    #[test]
    fn networks_and_clusters(id in any::<u32>(), name in text(), names in vec(text(), 0..4), found in any::<bool>(), at in time(), proof in proof(), hold in hold()) {
        let network = Network { id: NetworkId(id), name: name.clone(), hold };
        let row = value(codec::encode_network(&network));
        prop_assert_eq!(read(&row, |row| codec::decode_network(id.to_be_bytes(), row)).unwrap(), network);
        let cluster = ClusterRecord { id: ClusterId(name), names, discovered: found, first_seen: at, proof };
        let row = value(codec::encode_cluster(&cluster));
        prop_assert_eq!(read(&row, |row| codec::decode_cluster(&cluster.id.0, row)).unwrap(), cluster);
    }

    #[test]
    fn keys(id in any::<u64>(), created in time(), until in option::of(time()), bytes in vec(any::<u8>(), 0..9)) {
        let key = SigningKey { id: KeyId(id), created, bytes: KeyBytes(bytes.into()), until };
        let row = value(codec::encode_key(&key));
        prop_assert_eq!(read(&row, |row| codec::decode_key(id.to_be_bytes(), row)).unwrap(), key);
    }

    #[test]
    fn adoptions(network in any::<u32>(), cluster in text(), system in system(), at in time(), skipped in any::<bool>()) {
        let marker = Adoption { network: NetworkId(network), cluster, system, at, skipped };
        let row = value(codec::encode_adoption(&marker));
        prop_assert_eq!(read(&row, codec::decode_adoption).unwrap(), marker);
    }

    #[test]
    fn people(name in text(), role in role(), disabled in any::<bool>(), secret in text(), hash in any::<[u8; 32]>(), id in any::<u64>(), created in time(), expires in option::of(time()), scope in scope(), from in vec(net(), 0..2)) {
        let account = Account { name: name.clone(), role, password_hash: secret, created, disabled };
        let row = value(codec::encode_account(&account));
        prop_assert!(read(&row, |row| codec::decode_account(&account.name, row)).unwrap() == account);
        let token = Token { id: TokenId(id), name, role, hash, created, expires, scope, from };
        let row = value(codec::encode_token(&token));
        prop_assert!(read(&row, |row| codec::decode_token(id.to_be_bytes(), row)).unwrap() == token);
    }

    #[test]
    fn clock_lines(boot in option::of(any::<[u8; 16]>()), uptime in any::<u64>(), book in time(), unconfirmed in any::<u64>()) {
        let line = ClockLine { boot: boot.map(BootId), uptime, book, unconfirmed };
        let row = value(codec::encode_clock(&line));
        prop_assert_eq!(read(&row, codec::decode_clock).unwrap(), line);
    }

    #[test]
    fn states(numbers in any::<[u64; 5]>(), next_pool in any::<u32>()) {
        let [sequence, last_time, audit_first, audit_next, audit_bytes] = numbers;
        let state = StateV1 { sequence, last_time, audit_first, audit_next, audit_bytes, next_pool };
        prop_assert_eq!(read(&value(RowDraft::new(&state)), codec::plain::<StateV1>).unwrap(), state);
    }

    /// What the version and the checksum let in is decoded to the end.
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200), version in 0_u8..8, key in any::<[u8; 21]>()) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = version;
        }
        if let Some(body) = bytes.get(5..).filter(|_| version == 6) {
            bytes = checked(AT.0, AT.1, body);
        }
        let lease_key = LeaseKey { network: NetworkId(0), address: IpAddr::from([0; 4]) };
        tables::parse_lease_key(&key).ok();
        tables::parse_quota_key(&bytes).ok();
        read(&bytes, |row| codec::decode_quota((PoolId(0), Tenant("".into())), row)).ok();
        read(&bytes, codec::plain::<StateV1>).ok();
        read(&bytes, |row| codec::decode_lease(lease_key, row)).ok();
        read(&bytes, |row| codec::decode_past(lease_key, row)).ok();
        read(&bytes, |row| codec::decode_pool([0; 4], row)).ok();
        read(&bytes, |row| codec::decode_network([0; 4], row)).ok();
        read(&bytes, |row| codec::decode_cluster("", row)).ok();
        read(&bytes, codec::decode_adoption).ok();
        read(&bytes, |row| codec::decode_account("", row)).ok();
        read(&bytes, |row| codec::decode_token([0; 8], row)).ok();
        read(&bytes, |row| codec::decode_key([0; 8], row)).ok();
        read(&bytes, codec::decode_audit).ok();
    }

    /// Of the bytes after the version: rows of version 6 have a checksum, and the version is under test above.
    #[test]
    fn a_changed_byte_is_found(lease in lease(), at in any::<prop::sample::Index>(), change in 1..=u8::MAX) {
        let mut row = value(codec::encode_lease(&lease));
        let index = 1 + at.index(row.len() - 1);
        row[index] ^= change;
        prop_assert_eq!(read(&row, |row| codec::decode_lease(lease.key, row)), Err(DecodeError::Checksum));
    }

    #[test]
    fn a_row_under_another_key_or_of_another_table_is_found(pool in pool(), key in any::<[u8; 4]>(), bit in 0..32_u32) {
        let mut draft = codec::encode_pool(&pool).unwrap();
        let row = draft.finish("pools", &key).to_vec();
        let at = |table, key: [u8; 4]| {
            StoredRow::open(table, &key, &row, RowFormat::Latest).and_then(|row| codec::decode_pool(key, &row))
        };
        prop_assert!(at("pools", key).is_ok());
        let other = (u32::from_be_bytes(key) ^ (1 << bit)).to_be_bytes();
        prop_assert_eq!(at("pools", other), Err(DecodeError::Checksum));
        prop_assert_eq!(at("pool", key), Err(DecodeError::Checksum));
    }

    #[test]
    fn tagged_fields_are_read_back(fields in btree_map(any::<u16>(), vec(any::<u8>(), 0..40), 0..4), number in any::<u64>(), other in any::<u16>()) {
        let mut tags = Tags::default();
        for (tag, bytes) in fields.iter().rev() {
            tags.set(*tag, &(bytes, number)).unwrap();
        }
        let row = value(RowDraft::tagged(&tags, &number));
        let row = opened(&row).unwrap();
        prop_assert_eq!(row.read::<u64>(), Ok(number));
        for tag in fields.keys().copied().chain([0, other, u16::MAX]) {
            let expected = fields.get(&tag).map(|bytes| (bytes.clone(), number));
            prop_assert_eq!(row.tags.get::<(Vec<u8>, u64)>(tag).unwrap(), expected);
        }
    }
}

/// The same row for an address and a prefix: an fipd that knows no prefixes does not take one for an address.
#[test]
fn a_lease_says_how_long_its_prefix_is() {
    let lease = |address: &str| Lease {
        length: if address.contains(':') { 128 } else { 32 },
        key: LeaseKey {
            network: NetworkId(1),
            address: address.parse().unwrap(),
        },
        pool: None,
        state: LeaseState::Quarantined,
        members: Default::default(),
        contenders: Vec::new(),
        tenant: None,
        group: None,
        since: Timestamp(8),
        until: Some(Timestamp(9)),
        labels: Default::default(),
    };
    for (lease, length) in [(lease("10.0.0.1"), 32), (lease("fd00::5"), 128)] {
        let mut row = value(codec::encode_lease(&lease));
        let length_at = 6;
        // Lengths below 128 are one byte, and a byte of 128 is as it is.
        assert_eq!(row[length_at], length);
        let mut with = |other: u8| {
            row[length_at] = other;
            let row = checked(AT.0, AT.1, &row[5..]);
            read(&row, |row| codec::decode_lease(lease.key, row))
        };
        let prefix = with(length - 8).unwrap();
        assert_eq!(
            prefix,
            Lease {
                length: length - 8,
                ..lease.clone()
            }
        );
        if length == 32 {
            let error = with(33).unwrap_err();
            assert!(error.to_string().contains("prefix length"), "{error}");
        }
    }
}

/// One row of each kind, as version 1 of the schema can hold them.
fn everything() -> Vec<Op> {
    let holder = |name: &str| Holder {
        identity: format!("rancher-fip/0d1f4f9e/Service/apps/{name}")
            .parse()
            .unwrap(),
        instance: "7a1b2c3d".into(),
    };
    let key = |address: &str| LeaseKey {
        network: NetworkId(1),
        address: address.parse().unwrap(),
    };
    let lease = Lease {
        contenders: vec![Contender {
            holder: holder("old"),
            tenant: None,
            since: Timestamp(5),
            uses: Vec::new(),
        }],
        tenant: Some(Tenant("p-12".into())),
        since: Timestamp(7),
        ..testing::lease(key("10.0.0.1"), Some(PoolId(3)), [holder("web")])
    };
    let cooling = Lease {
        members: Default::default(),
        state: LeaseState::Quarantined,
        since: Timestamp(8),
        until: Some(Timestamp(1_000_000)),
        ..testing::lease(key("fd00::5"), None, None)
    };
    let spec = PoolSpec {
        allocation_length: None,
        quota_unit: Default::default(),
        name: "rancher-fip/east/front".into(),
        network: NetworkId(1),
        network_by_default: false,
        addresses: vec![
            "10.0.0.0/28".parse().unwrap(),
            "10.0.0.40-10.0.0.44".parse().unwrap(),
        ],
        exclusions: vec!["10.0.0.9".parse().unwrap()],
        gateway: Some("10.0.0.14".parse().unwrap()),
        prefix_len: Some(24),
        subnet: Some("10.0.0.0/24".parse().unwrap()),
        ends: Ends {
            first: 0,
            last: 0,
            of: EndsOf::EachCidr,
        },
        order: Order::Lowest,
        origin: Origin::Mirror {
            system: fipd_core::System::rancher_fip(),
            cluster: ClusterId("0d1f4f9e".into()),
            object: "front".into(),
            uid: "99".into(),
        },
        closed: false,
        quarantine: 0,
        sticky: Sticky::OFF,
        priority: 0,
        scopes: Vec::new(),
        share_across_clusters: false,
        quota_required: false,
    };
    let cluster = ClusterRecord {
        id: ClusterId("0d1f4f9e".into()),
        names: vec!["east".into(), "c-m-abc".into()],
        discovered: true,
        first_seen: Timestamp(2),
        proof: None,
    };
    let marker = Adoption {
        network: NetworkId(1),
        cluster: "0d1f4f9e".into(),
        system: fipd_core::System::rancher_fip(),
        at: Timestamp(3),
        skipped: false,
    };
    let account = Account {
        name: "ann".into(),
        role: Role::Admin,
        password_hash: "$argon2id$x".into(),
        created: Timestamp(4),
        disabled: false,
    };
    let token = Token {
        id: TokenId(17),
        name: "ci".into(),
        role: Role::Operator,
        hash: [9; 32],
        created: Timestamp(4),
        expires: None,
        scope: Scope::default(),
        from: Vec::new(),
    };
    vec![
        Op::PutNetwork(Network {
            id: NetworkId(1),
            name: "vlan-7".into(),
            hold: None,
        }),
        Op::PutCluster(cluster),
        Op::PutAdoption(marker),
        Op::PutPool(Arc::new(Pool {
            id: PoolId(3),
            spec,
            created: Timestamp(2),
            generation: 4,
        })),
        Op::PutLease(Arc::new(lease)),
        Op::PutLease(Arc::new(cooling)),
        Op::PutAccount(account),
        Op::PutToken(token),
        Op::PutNextPool(PoolId(9)),
    ]
}

fn said() -> AuditEntry {
    AuditEntry {
        length: None,
        at: Timestamp(7),
        actor: "controller:rancher-fip/east".into(),
        action: Action::Allocated,
        network: Some(NetworkId(1)),
        address: Some(IpAddr::from([10, 0, 0, 1])),
        pool: Some(PoolId(3)),
        identity: Some("rancher-fip/0d1f4f9e/Service/apps/web".parse().unwrap()),
        detail: "first".into(),
    }
}

fn fixture() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-v1.redb")
}

/// The file was written once, by the fipd that introduced schema 1, and is never written again.
#[test]
fn a_file_of_schema_1_opens_with_everything_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    fs::copy(fixture(), &path).unwrap();
    assert_eq!(
        check(&path)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [""; 0]
    );
    let (store, loaded) = Store::open(&path, StoreOptions::default()).unwrap();
    let rows: Vec<_> = loaded.ledger.dump().collect();
    for op in everything() {
        assert!(rows.contains(&op), "{op:?} is not among {rows:#?}");
    }
    assert_eq!(store.reader().audit_page(None, 10).unwrap(), [(1, said())]);
    assert_eq!(loaded.last_time, Timestamp(7));
}

#[test]
fn a_pool_of_the_third_version_is_read_as_it_was_written() {
    let scope = PoolScope {
        cluster: Some("c".into()),
        project: None,
        namespaces: vec!["a".into()],
        labels: [("k".into(), "v".into())].into(),
    };
    let addresses = vec!["10.0.0.0/24".parse().unwrap()];
    let pool = Pool {
        id: PoolId(5),
        spec: PoolSpec {
            exclusions: vec!["10.0.0.9".parse().unwrap()],
            gateway: Some([10, 0, 0, 1].into()),
            ends: Ends {
                first: 1,
                last: 2,
                of: EndsOf::EachCidr,
            },
            order: Order::LeastRecentlyUsed,
            quarantine: 60,
            sticky: Sticky {
                lasts: 300,
                most: 5,
            },
            priority: 9,
            scopes: vec![scope],
            share_across_clusters: true,
            ..PoolSpec::own("p", addresses)
        },
        created: Timestamp(7),
        generation: 3,
    };
    let first = [
        1, b'p', 0, 1, 0, 0, 10, 0, 0, 0, 24, 1, 1, 0, 10, 0, 0, 9, 1, 0, 10, 0, 0, 1, 0, 0, 1, 2,
        1, 2, 0, 0, 7, 3,
    ];
    let second = [60];
    let third = [
        172, 2, 5, 9, 1, 1, 1, b'c', 0, 1, 1, b'a', 1, 1, b'k', 1, b'v', 1,
    ];
    let row = [&[3], &first[..], &second, &third].concat();
    assert_eq!(
        read(&row, |row| codec::decode_pool([0, 0, 0, 5], row)),
        Ok(pool.clone())
    );
    let with_more = [row, vec![1]].concat();
    assert!(read(&with_more, |row| codec::decode_pool([0, 0, 0, 5], row)).is_err());
}

#[test]
fn a_pool_of_the_fifth_version_is_read_as_it_was_written() {
    let addresses = vec!["10.0.0.0/24".parse().unwrap()];
    let mut pool = Pool {
        id: PoolId(5),
        spec: PoolSpec::own("p", addresses),
        created: Timestamp(7),
        generation: 3,
    };
    let first = [
        1, b'p', 0, 1, 0, 0, 10, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 3,
    ];
    let (second, third, fourth) = ([0], [0, 0, 0, 0, 0], [0]);
    let old = [&[4], &first[..], &second, &third, &fourth].concat();
    assert_eq!(
        read(&old, |row| codec::decode_pool([0, 0, 0, 5], row)),
        Ok(pool.clone())
    );
    pool.spec.quota_required = true;
    let row = [&[5], &first[..], &second, &third, &fourth, &[1]].concat();
    assert_eq!(
        read(&row, |row| codec::decode_pool([0, 0, 0, 5], row)),
        Ok(pool)
    );
    assert!(
        read(&row[..row.len() - 1], |row| codec::decode_pool(
            [0, 0, 0, 5],
            row
        ))
        .is_err()
    );
}

/// It has no table of quotas, until it has one.
#[test]
fn a_file_from_before_quotas_takes_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fipd.redb");
    fs::copy(fixture(), &path).unwrap();
    let (mut store, loaded) = Store::open(&path, StoreOptions::default()).unwrap();
    store.reader().backup(&dir.path().join("before")).unwrap();
    let pool = loaded.ledger.pools().next().unwrap().id;
    let quota = Op::PutQuota(Quota {
        pool,
        tenant: Tenant("p-12".into()),
        limit: 3,
    });
    let decision = Decision {
        ops: vec![quota.clone()],
        audit: vec![said()],
    };
    assert_eq!(store.commit(&[decision]), [Outcome::Committed]);
    let copy = dir.path().join("after");
    store.reader().backup(&copy).unwrap();
    drop(store);
    let restored = dir.path().join("restored.redb");
    restore(&copy, &restored);
    for path in [path, restored] {
        assert!(check(&path).unwrap().is_empty());
        let (_store, loaded) = Store::open(&path, StoreOptions::default()).unwrap();
        assert!(
            loaded.ledger.dump().any(|row| row == quota),
            "{}",
            path.display()
        );
    }
}

/// Writes the fixture anew: `cargo test -p fipd --lib write_the_fixture -- --ignored`. Only for a new schema, under a
/// new name.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_fixture() {
    fs::remove_file(fixture()).ok();
    fs::create_dir_all(fixture().parent().unwrap()).unwrap();
    let (mut store, _) = Store::open(
        &fixture(),
        StoreOptions {
            ballast: 0,
            ..StoreOptions::default()
        },
    )
    .unwrap();
    let decision = Decision {
        ops: everything(),
        audit: vec![said()],
    };
    assert_eq!(store.commit(&[decision]), [Outcome::Committed]);
}
