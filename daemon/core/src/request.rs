//! What may be asked of the ledger, and what it answers.

use std::{net::IpAddr, sync::Arc};

use crate::{
    Account, Action, Actor, Adoption, Choice, ClusterId, ClusterRecord, Holder, Identity, Import,
    KeyBytes, KeyId, Label, Lease, LeaseKey, LeasePrefix, Network, NetworkId, Pool, PoolId,
    PoolSpec, PortClaim, Probed, Quota, Role, RowFate, Separation, System, Tenant, Text, Timestamp,
    Token, TokenId,
};

/// One question to the address book; a pure value. `actor` says in the audit log who asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Allocate(Allocate),
    Reserve(Reserve),
    Release(Release),
    Probed(Probed),
    Adopt(Adopt),
    Handover(Handover),
    Transfer(Transfer),
    Label(Label),
    /// Makes a network. Asking again for the same name answers the existing one.
    CreateNetwork {
        name: Text,
        actor: Actor,
    },
    CreatePool {
        spec: PoolSpec,
        actor: Actor,
    },
    UpdatePool(PoolEdit),
    /// Refused while leases are in it. What is quarantined goes with it.
    DeletePool {
        pool: PoolId,
        actor: Actor,
    },
    /// Takes a pool to another network with all that it has: leases in every state with their contenders, what it
    /// remembers, its quotas and its queue. All or nothing. Refused while either network waits for clusters, after a
    /// restore, and where somebody has one of the addresses there.
    MoveNetwork {
        pool: PoolId,
        network: NetworkId,
        actor: Actor,
    },
    /// Says that two networks are two, even where nobody chose them; or, not `apart`, that this is open again.
    Separate {
        networks: Separation,
        apart: bool,
        actor: Actor,
    },
    /// Limits what a tenant may have of a pool, in place of the limit it had.
    SetQuota {
        quota: Quota,
        actor: Actor,
    },
    /// The tenant may have any number of what the pool gives.
    DeleteQuota {
        pool: PoolId,
        tenant: Tenant,
        actor: Actor,
    },
    /// Remembers names of a cluster and what it must show, keyed by its id.
    RecordCluster {
        record: ClusterRecord,
    },
    /// What goes by `name` becomes a cluster of its own, with the id and the proof of `record`; audited.
    SetApart {
        record: ClusterRecord,
        name: Text,
        actor: Actor,
    },
    /// The network has seen a complete list of the cluster's system (or an admin skips that).
    MarkAdopted {
        marker: Adoption,
        actor: Actor,
    },
    /// Marks up to `most` allocated leases of the cluster (and system) `Orphaned`. Answer: `Moved`.
    Orphan {
        cluster: ClusterId,
        system: Option<System>,
        most: usize,
        actor: Actor,
    },
    /// Frees orphaned leases of the cluster and what is reserved for it, and ends its contending, `most` leases at once;
    /// with the last ones its places in queues go. Answer: `Moved`, with the number of leases it had.
    Forget {
        cluster: ClusterId,
        most: usize,
        actor: Actor,
    },
    /// Ends up to `most` leases whose end has come: quarantines and reservations that are over. Answer: `Moved`.
    Expire {
        most: usize,
        actor: Actor,
    },
    /// Notes how the last hour that is over ended for up to `most` pools after `after`. Answer: `RolledUp`.
    RollUp {
        after: Option<PoolId>,
        most: usize,
        actor: Actor,
    },
    /// Refused where the name is taken.
    CreateAccount {
        account: Account,
        actor: Actor,
    },
    EditAccount(AccountEdit),
    /// Refused for the last admin.
    DeleteAccount {
        name: Text,
        actor: Actor,
    },
    PutToken {
        token: Token,
        actor: Actor,
    },
    DeleteToken {
        id: TokenId,
        actor: Actor,
    },
    /// This key signs from now on, if `after` is the one that does (`None`: none does); else nothing happens.
    RotateKey {
        bytes: KeyBytes,
        after: Option<KeyId>,
        actor: Actor,
    },
    /// What this key of another program signed counts for a while: it never signs here. Nothing happens if it is known.
    ImportKey {
        bytes: KeyBytes,
        actor: Actor,
    },
    /// Has it in the audit log what was done to things beside the address book; changes nothing else.
    Note {
        action: Action,
        what: Text,
        actor: Actor,
    },
    Import(Import),
    /// A cluster knows decisions on these networks that the store does not: their free addresses are held as after a restore.
    HoldNetworks {
        networks: Vec<NetworkId>,
        reason: Text,
        actor: Actor,
    },
    /// fipd has run for so many milliseconds more of a hold after a restore.
    PassHold {
        elapsed: u64,
        actor: Actor,
    },
    /// Ends a hold after a restore before its time: an admin's word.
    LiftHold {
        reason: Text,
        actor: Actor,
    },
}

/// Addresses for one holder, all or nothing.
///
/// A holder whose identity already has leases that answer a [`Want`] gets those again; a new instance of the
/// identity takes them over.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocate {
    pub holder: Holder,
    pub tenant: Option<Tenant>,
    /// One for a single address, two for dual-stack.
    pub wants: Vec<Want>,
    /// Where a pool is exhausted: keep a place in its queue, by this time (the creation of the object).
    /// Nobody with a later place is served before, as long as this one keeps asking.
    pub waiting_since: Option<Timestamp>,
    /// An admin asks: a named address is given even while it cools after a release by another tenant.
    pub by_admin: bool,
    /// The addresses may be shared with others; each want is one address then.
    pub share: Option<Share>,
    /// What the identity does not use yet is `Probing` first: the asker checks on the wire whether somebody else uses it,
    /// and reports that by [`Probed`] before [`Allocate::PROBE_TIME`] is over. Not together with `share`.
    pub probe: bool,
    pub actor: Actor,
}

/// Under which key an address is shared, and what of it the asker has for itself. Asking again changes the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Members of one lease are of one network and tenant, name one key, and have no port in common.
    pub key: Text,
    /// Without any, nothing is shared.
    pub ports: Vec<PortClaim>,
}

impl Share {
    /// The longest key, in bytes.
    pub const MAX_KEY: usize = 253;
    /// The most ports of one member.
    pub const MAX_PORTS: usize = 100;
}

/// Addresses kept for a holder that comes later: as [`Allocate`], but the leases are `Reserved` until the same identity
/// allocates them or `until` has come. What the identity has in use already is answered as it is. Asking again
/// changes `until`.
///
/// An address that cools is kept for nobody, neither its last tenant nor an admin: a reservation that ends unused frees
/// its address at once, which would shorten the quarantine for whoever comes next.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserve {
    pub ask: Allocate,
    /// In the future; `None`: without end.
    pub until: Option<Timestamp>,
}

/// `count` addresses of one pool, or just `address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub pool: Choice,
    /// This one and no other; `count` must be 1 then.
    pub address: Option<IpAddr>,
    /// 1 to 1,024.
    pub count: u32,
}

impl Allocate {
    /// How long a check on the wire may take, in milliseconds: several times what RFC 5227 takes, some seconds.
    pub const PROBE_TIME: u64 = 30_000;
    /// The most wants of one request.
    pub const MAX_WANTS: usize = 8;
}

impl Want {
    /// The most addresses of one want.
    pub const MAX_COUNT: u32 = 1_024;
}

/// Gives back. Releasing nothing succeeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    pub scope: ReleaseScope,
    pub actor: Actor,
    /// For the audit log; may be empty.
    pub reason: Text,
}

/// What is given back.
#[derive(Clone, Debug, PartialEq)]
pub enum ReleaseScope {
    /// All that this holder has: leases, places as contender, places in queues. An `instance` other than the
    /// lease's is someone else's: nothing happens to that lease.
    Holder(Holder),
    /// Just these: keys of leases that it has, and first addresses of what it uses of leases of others.
    HolderAddresses(Holder, Vec<LeaseKey>),
    /// A place as contender for an address, never the lease; with `beside` only while that one has it.
    Contention {
        contender: Holder,
        key: LeaseKey,
        beside: Option<Identity>,
    },
    /// Whoever holds it: an admin's word. All members go. An address that cools already goes on cooling: asking again
    /// must not end its quarantine.
    Address(LeaseKey),
    /// The quarantine of an address, before its time.
    Quarantine(LeaseKey),
}

/// An address found in use.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopt {
    pub key: LeaseKey,
    /// Bits of the prefix that begins there; `None`: the address alone.
    pub length: Option<u8>,
    pub holder: Holder,
    pub tenant: Option<Tenant>,
    /// Since when it is in use, as far as known: decides who is the older contender.
    pub since: Timestamp,
    pub actor: Actor,
}

/// Gives leases of one holder to another without a moment in between. `keys` empty: all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Handover {
    pub from: Holder,
    pub to: Holder,
    pub keys: Vec<LeaseKey>,
    pub actor: Actor,
    /// For the audit log; may be empty.
    pub reason: Text,
}

/// Gives one lease to another holder, whoever has it: an admin's word. The lease is never free in between.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    pub key: LeaseKey,
    /// Who must have it when it is decided; `None`: whoever has it alone.
    pub from: Option<Holder>,
    pub to: Holder,
    /// Who is charged from then on; `None`: as before.
    pub tenant: Option<Tenant>,
    /// The tenant may have it beyond its quota.
    pub force: bool,
    pub actor: Actor,
    /// For the audit log.
    pub reason: Text,
}

/// What of an account becomes another; what is `None` stays.
#[derive(Clone, PartialEq)]
pub struct AccountEdit {
    pub name: Text,
    /// Refused for the last admin.
    pub role: Option<Role>,
    /// PHC string (argon2id). Never logged.
    pub password_hash: Option<Text>,
    /// Whether it may not sign in. Refused for the last admin that may.
    pub disabled: Option<bool>,
    pub actor: Actor,
}

/// A new specification for a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolEdit {
    pub pool: PoolId,
    pub spec: PoolSpec,
    /// Refused unless the pool still has this generation.
    pub if_generation: Option<u64>,
    /// Leases that the edit leaves out of range are kept and marked, instead of the edit being refused.
    pub force: bool,
    pub actor: Actor,
    /// For the audit log; may be empty.
    pub reason: Text,
}

/// What the ledger answers once the decision is durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// In the order of the wants, then by address. `fresh`: at least one of them is new or was not in use before.
    Granted {
        leases: Vec<Arc<Lease>>,
        fresh: bool,
    },
    /// What is free, cools or has passed to a contender.
    Released {
        leases: Vec<LeasePrefix>,
    },
    /// It holds the address.
    Adopted {
        lease: Arc<Lease>,
    },
    /// Another holds it; the asker is noted as contender.
    Contended {
        lease: Arc<Lease>,
    },
    HandedOver {
        leases: Vec<LeaseKey>,
    },
    /// The new holder has it.
    Transferred {
        lease: Arc<Lease>,
    },
    /// It has the labels.
    Labelled {
        lease: Arc<Lease>,
    },
    Network(Network),
    Pool(Arc<Pool>),
    /// `more`: ask again.
    Moved {
        leases: usize,
        more: bool,
    },
    /// `next`: ask again, for the pools after it.
    RolledUp {
        rows: usize,
        next: Option<PoolId>,
    },
    /// What became of each row, or what would become of it; `written`: all of them are.
    Imported {
        rows: Vec<RowFate>,
        written: bool,
    },
    Done,
}

impl std::fmt::Debug for AccountEdit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountEdit")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}
