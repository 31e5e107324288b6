//! Says which rules the address book wants on this host: for the leased addresses of pools.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use fipd_core::{Lease, LeaseFilter, LeaseKey, LeaseState, Ledger, Pool, Text, host::RuleSet};
use tokio_util::sync::CancellationToken;

use super::RuleBoard;
use crate::{config::HostRule, ipam::Ipam};

/// Who that is to the board.
pub const NAME: &str = "ledger";
/// Changes that come within this time are looked at together.
const CALM: Duration = Duration::from_millis(20);

/// Follows the address book until it is told to stop.
pub async fn run(ipam: Ipam, board: RuleBoard, rules: Vec<HostRule>, stop: CancellationToken) {
    let mut revisions = ipam.revisions();
    let mut all: Vec<Sources> = rules.into_iter().map(Sources::of).collect();
    let mut last = None;
    loop {
        revisions.borrow_and_update();
        // What changes while pools are read is among the changes of the next round.
        let first = last.is_none();
        let changed = ipam.read(|ledger| {
            let keys = last.and_then(|last| changed(ledger, last));
            last = Some(ledger.revision());
            let follow = |one: &mut Sources| one.follow(ledger, keys.as_deref());
            all.iter_mut().map(follow).fold(false, |any, one| any | one)
        });
        for one in &mut all {
            one.load(&ipam).await;
        }
        if changed || first {
            board.want(&Text::from(NAME), all.iter().map(Sources::set).collect());
        }
        let next = async {
            let changed = revisions.changed().await.is_ok();
            tokio::time::sleep(CALM).await;
            changed
        };
        if stop.run_until_cancelled(next).await != Some(true) {
            return;
        }
    }
}

/// The leases that changed since. `None`: that is not known any more, or they are too many to be looked at in one go.
fn changed(ledger: &Ledger, since: u64) -> Option<Vec<LeaseKey>> {
    let changes = ledger.changes_page(since, Ledger::SCAN).ok()?;
    let keys = changes
        .iter()
        .flat_map(|change| change.leases.iter().map(|prefix| prefix.key));
    let keys: Vec<LeaseKey> = keys.take(Ledger::SCAN + 1).collect();
    (changes.len() < Ledger::SCAN && keys.len() <= Ledger::SCAN).then_some(keys)
}

/// The addresses of the pool of a rule that somebody has.
struct Sources {
    rule: HostRule,
    /// As it was when these were read; `None`: there is none of this name.
    pool: Option<Arc<Pool>>,
    addresses: BTreeSet<IpAddr>,
    /// All are to be read.
    stale: bool,
    /// That there is no such pool was told.
    told: bool,
}

impl Sources {
    fn of(rule: HostRule) -> Self {
        Self {
            rule,
            pool: None,
            addresses: BTreeSet::new(),
            stale: true,
            told: false,
        }
    }

    /// Whether there is something else to be said than before. `None`: all may have changed.
    fn follow(&mut self, ledger: &Ledger, keys: Option<&[LeaseKey]>) -> bool {
        let pool = self.find(ledger);
        if pool != self.pool || self.stale || keys.is_none() {
            self.pool = pool;
            self.stale = true;
            return true;
        }
        let Some(pool) = &pool else { return false };
        let keys = keys.into_iter().flatten();
        let mut changed = false;
        for key in keys.filter(|key| key.network == pool.spec.network) {
            changed |= match ledger.lease(*key).is_some_and(|lease| counts(lease, pool)) {
                true => self.addresses.insert(key.address),
                false => self.addresses.remove(&key.address),
            };
        }
        changed
    }

    fn find(&mut self, ledger: &Ledger) -> Option<Arc<Pool>> {
        let rule = &self.rule;
        match ledger.find_pool(&rule.pool) {
            Ok(pool) => {
                self.told = false;
                Some(Arc::clone(pool))
            }
            Err(error) => {
                if !std::mem::replace(&mut self.told, true) {
                    tracing::warn!(rule = %rule.name, pool = %rule.pool, %error, "[[host.rules]] has no rules until there is such a pool");
                }
                None
            }
        }
    }

    async fn load(&mut self, ipam: &Ipam) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.addresses.clear();
        let Some(pool) = &self.pool else { return };
        let filter = LeaseFilter {
            pool: Some(pool.id),
            ..LeaseFilter::default()
        };
        let mut after = None;
        loop {
            after = ipam.read(|ledger| {
                let step = ledger.leases(&filter, after, Ledger::SCAN);
                let used = step.leases.iter().filter(|lease| counts(lease, pool));
                self.addresses.extend(used.map(|lease| lease.key.address));
                step.next
            });
            if after.is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn set(&self) -> RuleSet {
        let rule = &self.rule;
        RuleSet {
            name: format!("host/{}", rule.name).into(),
            sources: self.addresses.clone(),
            table: rule.table,
            priority: rule.priority,
            fail_closed: rule.fail_closed,
            mode: rule.mode,
        }
    }
}

/// An orphan's owner may still use it. A rule is about one source, so that prefixes have none.
fn counts(lease: &Lease, pool: &Pool) -> bool {
    lease.pool == Some(pool.id)
        && lease.prefix().is_address()
        && matches!(lease.state, LeaseState::Allocated | LeaseState::Orphaned)
}

#[cfg(test)]
mod tests {
    use fipd_core::{Choice, Request, Want, host::Mode, testing};

    use super::*;

    fn rule(pool: &str) -> HostRule {
        HostRule {
            name: pool.into(),
            pool: pool.into(),
            table: 100,
            priority: Some(1_500),
            fail_closed: true,
            mode: Mode::Flat,
        }
    }

    #[tokio::test]
    async fn what_is_leased_of_a_pool_is_wanted_and_no_more_once_it_is_released() {
        let dir = tempfile::tempdir().unwrap();
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(crate::clock::now)).unwrap();
        let create = Request::CreatePool {
            spec: testing::pool_spec("vips", &["10.0.0.0/24"]),
            actor: "test".into(),
        };
        ipam.submit(create).await.unwrap();
        let (board, stop) = (RuleBoard::default(), CancellationToken::new());
        let rules = vec![rule("vips"), rule("none")];
        let following = run(ipam.clone(), board.clone(), rules, stop.clone());
        let following = tokio::spawn(following);
        let sources = async |count: usize| {
            let mut changes = board.changes();
            let wanted = async {
                loop {
                    let sets = board.wanted().wishes;
                    let sets = sets.values().next().map(Arc::clone);
                    if let Some(sets) = sets.filter(|sets| sets[0].sources.len() == count) {
                        assert!(sets[1].sources.is_empty());
                        return RuleSet::clone(&sets[0]);
                    }
                    changes.changed().await.unwrap();
                }
            };
            let within = tokio::time::timeout(Duration::from_secs(20), wanted);
            within.await.unwrap()
        };
        assert_eq!(sources(0).await.table, 100);
        let pool = ipam.read(|ledger| ledger.find_pool("vips").unwrap().id);
        let ask = testing::allocate(
            testing::holder("fipd/Host/lab/a", "1"),
            [Want {
                pool: Choice::Pool(pool),
                address: None,
                count: 2,
            }],
        );
        ipam.submit(Request::Allocate(ask)).await.unwrap();
        let set = sources(2).await;
        assert_eq!(
            (&*set.name, set.priority, set.fail_closed),
            ("host/vips", Some(1_500), true)
        );
        stop.cancel();
        following.await.unwrap();
    }
}
