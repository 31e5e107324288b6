//! Rules for the addresses that pools of this address book have given: what `[[host.rule]]` of the configuration wants.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use fipd_core::{
    Change, Lease, LeaseState, Ledger, Pool, Text,
    host::{Mode, RuleSet},
};
use tokio_util::sync::CancellationToken;

use crate::{ipam::Ipam, rules::RuleBoard};

/// Who wants these.
pub const WHO: &str = "ledger";

/// Changes within this are told together.
const TOGETHER: Duration = Duration::from_millis(20);
/// Leases that are read at once; a reader must not hold the ledger for longer.
const PAGE: usize = 1_000;

/// Where packets of the addresses of a pool go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    pub name: Text,
    /// Name of the pool.
    pub pool: Text,
    /// 1 to 2^32 - 1.
    pub table: u32,
    /// `None`: the first of the band.
    pub priority: Option<u32>,
    pub fail_closed: bool,
    pub mode: Mode,
}

/// Follows the ledger, and says what these want, until `stop`.
pub async fn follow(rules: Vec<HostRule>, ipam: Ipam, board: RuleBoard, stop: CancellationToken) {
    let who = Text::from(WHO);
    let mut revisions = ipam.revisions();
    let mut sources: Vec<Sources> = rules.iter().map(|rule| Sources::of(&rule.pool)).collect();
    let mut last = None;
    loop {
        revisions.borrow_and_update();
        last = Some(ipam.read(|ledger| {
            let changes = last.map(|last| ledger.changes_since(last));
            let changes = changes.and_then(Result::ok);
            for one in &mut sources {
                one.follow(ledger, changes.as_deref());
            }
            ledger.revision()
        }));
        for one in &mut sources {
            one.load(&ipam);
        }
        let sets = rules.iter().zip(&sources);
        board.want(
            &who,
            sets.map(|(rule, sources)| set(rule, sources)).collect(),
        );
        let more = async {
            tokio::time::sleep(TOGETHER).await;
            revisions.changed().await.is_ok()
        };
        tokio::select! {
            () = stop.cancelled() => return,
            more = more => if !more { return },
        }
    }
}

fn set(rule: &HostRule, sources: &Sources) -> RuleSet {
    RuleSet {
        name: Text::clone(&rule.name),
        sources: sources.addresses.clone(),
        table: rule.table,
        priority: rule.priority,
        fail_closed: rule.fail_closed,
        mode: rule.mode,
    }
}

/// The allocated addresses of a pool.
struct Sources {
    name: Text,
    /// As it was when these were read; `None`: there is none of this name.
    pool: Option<Arc<Pool>>,
    addresses: BTreeSet<IpAddr>,
    /// All are to be read.
    stale: bool,
}

impl Sources {
    fn of(pool: &Text) -> Self {
        Self {
            name: Text::clone(pool),
            pool: None,
            addresses: BTreeSet::new(),
            stale: false,
        }
    }

    /// `None`: what changed is not known.
    fn follow(&mut self, ledger: &Ledger, changes: Option<&[Arc<Change>]>) {
        let pool = ledger.find_pool(&self.name).ok().cloned();
        if pool != self.pool || changes.is_none() {
            self.pool = pool;
            self.stale = true;
        }
        let Some(pool) = self.pool.as_ref().filter(|_| !self.stale) else {
            return;
        };
        let keys = changes.into_iter().flatten();
        let keys = keys.flat_map(|change| change.leases.iter());
        for key in keys.filter(|key| key.network == pool.spec.network) {
            match ledger.lease(*key) {
                Some(lease) if counts(lease, pool) => self.addresses.insert(key.address),
                Some(_) | None => self.addresses.remove(&key.address),
            };
        }
    }

    /// What changes between two pages is in the changes that follow.
    fn load(&mut self, ipam: &Ipam) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.addresses.clear();
        let Some(pool) = &self.pool else { return };
        let mut after = None;
        loop {
            let page = ipam.read(|ledger| ledger.pool_leases(pool.id, after, PAGE));
            let counting = page.iter().filter(|lease| counts(lease, pool));
            self.addresses
                .extend(counting.map(|lease| lease.key.address));
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.key.address),
                Some(_) | None => return,
            }
        }
    }
}

fn counts(lease: &Lease, pool: &Pool) -> bool {
    lease.state == LeaseState::Allocated && lease.pool == Some(pool.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use fipd_core::{
        Allocate, Answer, Holder, PoolId, PoolSpec, Release, ReleaseScope, Request, Want,
    };

    fn holder(number: u32) -> Holder {
        Holder {
            identity: format!("fipd/Service/apps/s{number}").parse().unwrap(),
            instance: "i".into(),
        }
    }

    async fn make_pool(ipam: &Ipam, name: &str, addresses: &str) -> PoolId {
        let spec = PoolSpec::own(name, vec![addresses.parse().unwrap()]);
        let actor = "test".into();
        let answer = ipam.submit(Request::CreatePool { spec, actor }).await;
        let Ok(Answer::Pool(pool)) = answer else {
            panic!("no pool")
        };
        pool.id
    }

    async fn allocate(ipam: &Ipam, pool: PoolId, number: u32) -> IpAddr {
        let ask = Allocate {
            holder: holder(number),
            tenant: None,
            wants: vec![Want {
                pool: pool.into(),
                address: None,
                count: 1,
            }],
            waiting_since: None,
            by_admin: false,
            share: None,
            probe: false,
            actor: "test".into(),
        };
        let answer = ipam.submit(Request::Allocate(ask)).await.unwrap();
        let Answer::Granted { leases, .. } = answer else {
            panic!("{answer:?}")
        };
        leases.first().unwrap().key.address
    }

    async fn wants(board: &RuleBoard, expected: &[&[IpAddr]]) {
        let same = || {
            let (_, wanted) = board.wanted();
            let sets = wanted.into_iter().flat_map(|(_, sets)| sets.to_vec());
            let sources = sets.map(|set| set.sources.into_iter().collect::<Vec<_>>());
            sources.eq(expected.iter().map(|sources| sources.to_vec()))
        };
        let mut changes = board.changes();
        let changed = async {
            while !same() {
                changes.changed().await.unwrap();
            }
        };
        let changed = tokio::time::timeout(Duration::from_secs(5), changed).await;
        assert!(changed.is_ok(), "{expected:?}: {:?}", board.wanted());
    }

    #[tokio::test]
    async fn the_given_addresses_of_a_pool_are_sources_and_a_pool_may_come_later() {
        let dir = tempfile::tempdir().unwrap();
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
        let front = make_pool(&ipam, "front", "10.0.0.0/24").await;
        let first = allocate(&ipam, front, 1).await;
        let board = RuleBoard::default();
        let rules = ["front", "late"].map(|pool| HostRule {
            name: format!("rule of {pool}").into(),
            pool: pool.into(),
            table: 100,
            priority: None,
            fail_closed: false,
            mode: Mode::Auto,
        });
        let stop = CancellationToken::new();
        let follow = follow(rules.to_vec(), ipam.clone(), board.clone(), stop.clone());
        let task = tokio::spawn(follow);
        wants(&board, &[&[first], &[]]).await;
        let second = allocate(&ipam, front, 2).await;
        wants(&board, &[&[first, second], &[]]).await;
        let late = make_pool(&ipam, "late", "2001:db8::/120").await;
        let third = allocate(&ipam, late, 3).await;
        wants(&board, &[&[first, second], &[third]]).await;
        let release = Release {
            scope: ReleaseScope::Holder(holder(1)),
            actor: "test".into(),
            reason: "".into(),
        };
        ipam.submit(Request::Release(release)).await.unwrap();
        wants(&board, &[&[second], &[third]]).await;
        stop.cancel();
        task.await.unwrap();
    }
}
