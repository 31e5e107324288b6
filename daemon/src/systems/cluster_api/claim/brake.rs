//! A brake on the checks of a pool. A router with proxy ARP answers for every address: without an end claim after claim would
//! quarantine all of them.

use std::{collections::BTreeMap, time::Duration};

use fipd_core::{PoolId, ProbeVerdict, Text};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Addresses in a row for which one and the same may answer.
pub const IN_A_ROW: u32 = 8;
/// How long none is checked then.
pub const PAUSE: Duration = Duration::from_secs(600);

/// Who answered last for the addresses of each pool.
#[derive(Default)]
pub struct PoolBrakes(Mutex<BTreeMap<PoolId, PoolAnswers>>);

struct PoolAnswers {
    by: Text,
    /// In a row, since the last pause.
    count: u32,
    paused_until: Option<Instant>,
}

impl PoolBrakes {
    /// What a check on the wire of an address of the pool has come to.
    pub fn note(&self, pool: PoolId, verdict: &ProbeVerdict) {
        let mut pools = self.0.lock();
        let ProbeVerdict::Taken { by } = verdict else {
            pools.remove(&pool);
            return;
        };
        let fresh = || PoolAnswers {
            by: Text::clone(by),
            count: 0,
            paused_until: None,
        };
        let answers = pools.entry(pool).or_insert_with(fresh);
        if answers.by != *by {
            *answers = fresh();
        }
        answers.count += 1;
        if answers.count >= IN_A_ROW {
            answers.count = 0;
            answers.paused_until = Some(Instant::now() + PAUSE);
        }
    }

    /// For how long no address of the pool is checked, and who answered.
    pub fn pause(&self, pool: PoolId) -> Option<(Duration, Text)> {
        let pools = self.0.lock();
        let answers = pools.get(&pool)?;
        let rest = answers
            .paused_until?
            .saturating_duration_since(Instant::now());
        (!rest.is_zero()).then(|| (rest, Text::clone(&answers.by)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(by: &str) -> ProbeVerdict {
        ProbeVerdict::Taken { by: by.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_answers_for_everything_ends_the_checks_of_its_pool_for_a_while() {
        let (brakes, one, two) = (PoolBrakes::default(), PoolId(1), PoolId(2));
        for _ in 1..IN_A_ROW {
            brakes.note(one, &taken("router"));
        }
        assert!(brakes.pause(one).is_none());
        brakes.note(one, &taken("router"));
        let (rest, by) = brakes.pause(one).expect("a pause");
        assert_eq!((rest, &*by), (PAUSE, "router"));
        assert!(brakes.pause(two).is_none(), "another pool");
        tokio::time::advance(PAUSE).await;
        assert!(brakes.pause(one).is_none());
        // It begins anew.
        for left in (0..IN_A_ROW).rev() {
            brakes.note(one, &taken("router"));
            assert_eq!(brakes.pause(one).is_some(), left == 0);
        }
        brakes.note(one, &ProbeVerdict::Free);
        assert!(brakes.pause(one).is_none(), "it does not answer for all");
    }

    #[tokio::test(start_paused = true)]
    async fn others_and_free_addresses_between_do_not_count() {
        let (brakes, pool) = (PoolBrakes::default(), PoolId(1));
        for turn in 0..4 * IN_A_ROW {
            brakes.note(pool, &taken("router"));
            if turn % (IN_A_ROW - 1) == 0 {
                brakes.note(pool, &ProbeVerdict::Free);
            } else if turn % 3 == 0 {
                brakes.note(pool, &taken("squatter"));
            }
            assert!(brakes.pause(pool).is_none(), "{turn}");
        }
    }
}
