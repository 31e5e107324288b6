//! Says which rules the address book wants on this host: for the leased addresses of pools.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use fipd_core::{LeaseFilter, LeaseState, Ledger, Text, host::RuleSet};
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
    let mut unknown = BTreeSet::new();
    loop {
        revisions.borrow_and_update();
        let mut sets = Vec::with_capacity(rules.len());
        for rule in &rules {
            let sources = sources(&ipam, rule, &mut unknown).await;
            sets.push(RuleSet {
                name: format!("host/{}", rule.name).into(),
                sources,
                table: rule.table,
                priority: rule.priority,
                fail_closed: rule.fail_closed,
                mode: rule.mode,
            });
        }
        board.want(&Text::from(NAME), sets);
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

/// The addresses of the pool that somebody has. An orphan's owner may still use it.
async fn sources(ipam: &Ipam, rule: &HostRule, unknown: &mut BTreeSet<Text>) -> BTreeSet<IpAddr> {
    let found = ipam.read(|ledger| ledger.find_pool(&rule.pool).map(|pool| pool.id));
    let pool = match found {
        Ok(pool) => {
            unknown.remove(&rule.pool);
            pool
        }
        Err(error) => {
            if unknown.insert(Text::clone(&rule.pool)) {
                tracing::warn!(rule = %rule.name, pool = %rule.pool, %error, "[[host.rules]] has no rules until there is such a pool");
            }
            return BTreeSet::new();
        }
    };
    let filter = LeaseFilter {
        pool: Some(pool),
        ..LeaseFilter::default()
    };
    let (mut sources, mut after) = (BTreeSet::new(), None);
    loop {
        after = ipam.read(|ledger| {
            let step = ledger.leases(&filter, after, Ledger::SCAN);
            let used = step.leases.iter().filter(|lease| {
                matches!(lease.state, LeaseState::Allocated | LeaseState::Orphaned)
            });
            sources.extend(used.map(|lease| lease.key.address));
            step.next
        });
        if after.is_none() {
            return sources;
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{Allocate, Choice, Holder, PoolSpec, Request, Want, host::Mode};

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
            spec: PoolSpec::own("vips", vec!["10.0.0.0/24".parse().unwrap()]),
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
        let ask = Allocate {
            holder: Holder {
                identity: "fipd/Host/lab/a".parse().unwrap(),
                instance: "1".into(),
            },
            tenant: None,
            wants: vec![Want {
                pool: Choice::Pool(pool),
                address: None,
                count: 2,
            }],
            waiting_since: None,
            by_admin: false,
            share: None,
            probe: false,
            actor: "test".into(),
        };
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
