//! The networks in which clusters may use pools of fipd's own, kept up to date pool by pool.
//!
//! Every event of the registry asks for them. A walk over all pools for each cluster would keep the writer of the ledger waiting.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::{Ledger, NetworkId, Origin, Pool, PoolId, Text};

use crate::{config::Pattern, ipam::Ipam};

/// Changes that are read at a time.
const CHANGES: usize = 500;

/// How many pools of which networks each list of patterns names; a list without any pool counts none.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// The revision of the ledger that `pools` has. `None`: all are still to be read.
    revision: Option<u64>,
    /// fipd's own pools.
    pools: BTreeMap<PoolId, (NetworkId, Text)>,
    offered: BTreeMap<Vec<Pattern>, BTreeMap<NetworkId, usize>>,
}

impl Offers {
    /// Follows the ledger. From now on these lists of patterns are known, and no others.
    pub fn follow(&mut self, ipam: &Ipam, asked: BTreeSet<&[Pattern]>) {
        let asked: BTreeSet<_> = asked.into_iter().filter(|list| !list.is_empty()).collect();
        if asked.is_empty() {
            *self = Self::default();
            return;
        }
        self.offered.retain(|list, _| asked.contains(&**list));
        if !self.catch_up(ipam) {
            self.read_all(ipam);
        }
        for list in asked {
            if !self.offered.contains_key(list) {
                let mut counts = BTreeMap::new();
                let named = self.pools.values().filter(|(_, name)| names(list, name));
                for (network, _) in named {
                    *counts.entry(*network).or_default() += 1;
                }
                self.offered.insert(list.to_vec(), counts);
            }
        }
    }

    /// The networks of the pools that one of these lists names.
    pub fn networks(&self, patterns: &[Pattern]) -> impl Iterator<Item = NetworkId> {
        let counts = self.offered.get(patterns).into_iter().flatten();
        counts.map(|(network, _)| *network)
    }

    /// Whether the ledger still knows what changed since the last time.
    fn catch_up(&mut self, ipam: &Ipam) -> bool {
        while let Some(since) = self.revision {
            let Ok(changes) = ipam.read(|ledger| ledger.changes_page(since, CHANGES)) else {
                return false;
            };
            let last = changes.last().map_or(since, |change| change.revision);
            let pools = changes.iter().flat_map(|one| one.pools.iter().copied());
            let pools: Vec<PoolId> = pools.collect::<BTreeSet<_>>().into_iter().collect();
            for some in pools.chunks(Ledger::SCAN) {
                ipam.read(|ledger| some.iter().for_each(|id| self.put(*id, ledger.pool(*id))));
            }
            self.revision = Some(last);
            if last == since {
                return true;
            }
        }
        false
    }

    fn read_all(&mut self, ipam: &Ipam) {
        *self = Self {
            // What changes during the walk is looked at once more.
            revision: Some(ipam.read(Ledger::revision)),
            ..Self::default()
        };
        ipam.for_each_pool(|_, pool| self.put(pool.id, Some(pool)));
    }

    /// Counts a pool as it is now; `None`: it is gone.
    fn put(&mut self, id: PoolId, pool: Option<&std::sync::Arc<Pool>>) {
        let own = pool.filter(|pool| matches!(pool.spec.origin, Origin::Own));
        let before = (self.pools.get(&id)).map(|(network, name)| (*network, name));
        if before == own.map(|pool| (pool.spec.network, &pool.spec.name)) {
            return;
        }
        if let Some((network, name)) = self.pools.remove(&id) {
            for (list, counts) in &mut self.offered {
                if names(list, &name)
                    && let Some(count) = counts.get_mut(&network)
                {
                    *count -= 1;
                    if *count == 0 {
                        counts.remove(&network);
                    }
                }
            }
        }
        if let Some(pool) = own {
            let (network, name) = (pool.spec.network, Text::clone(&pool.spec.name));
            let named = self
                .offered
                .iter_mut()
                .filter(|(list, _)| names(list, &name));
            for (_, counts) in named {
                *counts.entry(network).or_default() += 1;
            }
            self.pools.insert(id, (network, name));
        }
    }
}

fn names(patterns: &[Pattern], pool: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(pool))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::{Answer, ClusterId, PoolEdit, PoolSpec, Request};
    use proptest::prelude::*;

    use super::*;
    use crate::{config::SystemSettings as _, systems::claims::settings::ClaimsSettings};

    /// A step of a history.
    #[derive(Clone, Debug)]
    enum Step {
        Create {
            name: usize,
            network: usize,
            own: bool,
        },
        Delete(usize),
        Move {
            pool: usize,
            network: usize,
        },
        /// The lists that clusters ask by.
        Ask(Vec<usize>),
        /// So many changes at once that the log forgets them.
        Forgotten,
    }

    const NAMES: [&str; 6] = ["a", "ab", "b", "team-a", "team-b", "z"];
    const LISTS: [&[&str]; 5] = [&["*"], &["team-*"], &["a", "b"], &["nothing"], &[]];

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..NAMES.len(), 0..3_usize, prop::bool::weighted(0.8))
                .prop_map(|(name, network, own)| Step::Create { name, network, own }),
            2 => (0..40_usize).prop_map(Step::Delete),
            2 => (0..40_usize, 0..3_usize).prop_map(|(pool, network)| Step::Move { pool, network }),
            2 => prop::collection::vec(0..LISTS.len(), 0..4).prop_map(Step::Ask),
            1 => Just(Step::Forgotten),
        ];
        prop::collection::vec(step, 1..40)
    }

    fn patterns(list: usize) -> Vec<Pattern> {
        let list = LISTS[list].iter();
        list.map(|one| Pattern::try_from((*one).to_owned()).unwrap())
            .collect()
    }

    /// What a walk over all pools finds.
    fn walk(ipam: &Ipam, patterns: &[Pattern]) -> BTreeSet<NetworkId> {
        let claims = ClaimsSettings {
            pools: patterns.to_vec(),
            ..ClaimsSettings::default()
        };
        let mut found = BTreeSet::new();
        ipam.for_each_pool(|_, pool| {
            found.extend(claims.offers(pool).then_some(pool.spec.network))
        });
        found
    }

    struct Book {
        ipam: Ipam,
        networks: Vec<NetworkId>,
        pools: Vec<PoolId>,
        made: u8,
    }

    impl Book {
        async fn new(ipam: Ipam) -> Self {
            let mut networks = vec![NetworkId::DEFAULT];
            for name in ["n1", "n2"] {
                let (name, actor) = (name.into(), "test".into());
                let request = Request::CreateNetwork { name, actor };
                let Ok(Answer::Network(network)) = ipam.submit(request).await else {
                    panic!("no network");
                };
                networks.push(network.id);
            }
            Self {
                ipam,
                networks,
                pools: Vec::new(),
                made: 0,
            }
        }

        async fn take(&mut self, step: &Step) {
            let actor = || "test".into();
            match step {
                Step::Create { name, network, own } => {
                    self.made += 1;
                    let made = self.made;
                    let addresses = format!("10.{made}.0.0/24").parse().unwrap();
                    let name = match own {
                        true => format!("{}{made}", NAMES[*name]),
                        false => format!("claims/c/{}{made}", NAMES[*name]),
                    };
                    let mut spec = PoolSpec::own(&*name, vec![addresses]);
                    spec.network = self.networks[*network];
                    if !own {
                        spec.origin = Origin::Mirror {
                            system: fipd_core::System::claims(),
                            cluster: ClusterId("c".into()),
                            object: name.as_str().into(),
                            uid: "1".into(),
                        };
                    }
                    let request = Request::CreatePool {
                        spec,
                        actor: actor(),
                    };
                    if let Ok(Answer::Pool(pool)) = self.ipam.submit(request).await {
                        self.pools.push(pool.id);
                    }
                }
                Step::Delete(pool) if !self.pools.is_empty() => {
                    let id = self.pools.swap_remove(pool % self.pools.len());
                    let request = Request::DeletePool {
                        pool: id,
                        actor: actor(),
                    };
                    self.ipam.submit(request).await.unwrap();
                }
                Step::Move { pool, network } if !self.pools.is_empty() => {
                    let id = self.pools[pool % self.pools.len()];
                    let pool = self
                        .ipam
                        .read(|ledger| Arc::clone(ledger.pool(id).unwrap()));
                    let mut spec = pool.spec.clone();
                    spec.network = self.networks[*network];
                    let edit = PoolEdit {
                        pool: id,
                        spec,
                        if_generation: None,
                        force: true,
                        actor: actor(),
                        reason: "".into(),
                    };
                    let request = Request::UpdatePool(edit);
                    // One that may not move stays.
                    drop(self.ipam.submit(request).await);
                }
                Step::Delete(_) | Step::Move { .. } | Step::Ask(_) => {}
                Step::Forgotten => {
                    for _ in 0..17_000 {
                        self.ipam.set_expectations(Vec::new());
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn after_any_history_the_index_has_what_a_walk_finds(steps in steps()) {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let dir = tempfile::tempdir().unwrap();
                let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(crate::clock::now)).unwrap();
                let mut book = Book::new(ipam.clone()).await;
                let (mut offers, mut lists) = (Offers::default(), vec![patterns(0)]);
                for step in &steps {
                    book.take(step).await;
                    if let Step::Ask(asked) = step {
                        lists = asked.iter().copied().map(patterns).collect();
                    }
                    offers.follow(&ipam, lists.iter().map(Vec::as_slice).collect());
                    for list in &lists {
                        let found: BTreeSet<_> = offers.networks(list).collect();
                        assert_eq!(found, walk(&ipam, list), "{list:?} after {step:?}");
                    }
                }
                ipam.shutdown().await;
            });
        }
    }
}
