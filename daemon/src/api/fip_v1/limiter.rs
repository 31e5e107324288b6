//! How often somebody may ask: a bucket of tokens for each.
//!
//! Wrong secrets count as well: whoever shows many is told to wait. Whoever shows the right one is not, so that nobody without
//! it can lock a project out.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use http::StatusCode;
use parking_lot::Mutex;

use super::too_many;
use crate::{
    api::listen::network,
    fip_v1::{Asker, Claim, Denied},
};

/// More buckets than these, and those that are full again are forgotten.
const MOST: usize = 10_000;

/// How much of something is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub burst: f64,
}

/// Of wrong secrets: ten at once, then one in ten seconds, from one network for one project.
const GUESSES: Rate = Rate {
    per_second: 0.1,
    burst: 10.0,
};

/// Who is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whom {
    /// A project that has shown its secret.
    Project(String),
    /// IPv6 counts as its /64.
    Peer(IpAddr),
    /// One who said to be of a project.
    Stranger(IpAddr, String),
}

impl Whom {
    pub fn peer(address: IpAddr) -> Self {
        Self::Peer(network(address))
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// The buckets.
#[derive(Debug, Default)]
pub struct Limiter(Mutex<BTreeMap<Whom, Bucket>>);

impl Limiter {
    /// Takes one token, if there is one.
    pub fn take(&self, whom: Whom, rate: Rate, now: Instant) -> bool {
        let mut buckets = self.0.lock();
        if buckets.len() >= MOST && !buckets.contains_key(&whom) {
            buckets.retain(|_, bucket| bucket.filled(rate, now) < rate.burst);
            // All of them ask all the time: the newcomer waits until one of them stops.
            if buckets.len() >= MOST {
                return false;
            }
        }
        let full = Bucket {
            tokens: rate.burst,
            at: now,
        };
        let bucket = buckets.entry(whom).or_insert(full);
        let tokens = bucket.filled(rate, now);
        let enough = tokens >= 1.0;
        *bucket = Bucket {
            tokens: if enough { tokens - 1.0 } else { tokens },
            // Whoever read the clock earlier may come later: no time counts twice.
            at: now.max(bucket.at),
        };
        enough
    }

    /// Puts a token back that was taken.
    pub fn give_back(&self, whom: &Whom, rate: Rate, now: Instant) {
        if let Some(bucket) = self.0.lock().get_mut(whom) {
            let tokens = bucket.filled(rate, now) + 1.0;
            *bucket = Bucket {
                tokens: tokens.min(rate.burst),
                at: now.max(bucket.at),
            };
        }
    }

    /// Who asks, as `authorized` says, unless too many wrong secrets came from there.
    pub async fn watch(
        &self,
        peer: Option<IpAddr>,
        claim: &Claim,
        authorized: impl Future<Output = Result<Asker, Denied>>,
    ) -> Result<Asker, Denied> {
        let said = authorized.await;
        let wrong = matches!(&said, Err(denied) if denied.code == StatusCode::FORBIDDEN);
        let network = network(peer.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
        let whom = Whom::Stranger(network, claim.project.clone());
        if wrong && !self.take(whom, GUESSES, Instant::now()) {
            return Err(too_many());
        }
        said
    }
}

impl Bucket {
    fn filled(&self, rate: Rate, now: Instant) -> f64 {
        let since: Duration = now.saturating_duration_since(self.at);
        (self.tokens + since.as_secs_f64() * rate.per_second).min(rate.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        per_second: 10.0,
        burst: 20.0,
    };

    #[test]
    fn defect_29_a_noisy_project_starves_no_other() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let project = |name: &str| Whom::Project(name.to_owned());
        let granted = (0..100).filter(|_| limiter.take(project("p-a"), RATE, start));
        assert_eq!(granted.count(), 20);
        assert!(limiter.take(project("p-b"), RATE, start));
        let later = start + Duration::from_millis(250);
        let granted = (0..100).filter(|_| limiter.take(project("p-a"), RATE, later));
        assert_eq!(granted.count(), 2);
    }

    #[test]
    fn no_time_counts_twice_whoever_comes_late() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let whom = || Whom::Project("p-a".to_owned());
        assert!((0..20).all(|_| limiter.take(whom(), RATE, start)));
        let times = [start + Duration::from_millis(100), start];
        let granted = (0..50).filter(|turn| limiter.take(whom(), RATE, times[turn % 2]));
        assert_eq!(granted.count(), 1);
    }

    #[test]
    fn what_was_put_back_is_taken_again_and_no_more() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let whom = Whom::Project("p-a".to_owned());
        limiter.give_back(&whom, RATE, start);
        for _ in 0..100 {
            assert!(limiter.take(whom.clone(), RATE, start));
            limiter.give_back(&whom, RATE, start);
            limiter.give_back(&whom, RATE, start);
        }
        let granted = (0..100).filter(|_| limiter.take(whom.clone(), RATE, start));
        assert_eq!(granted.count(), 20);
    }

    #[test]
    fn peers_of_one_network_count_together_and_the_table_has_an_end() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let peer = |text: &str| Whom::peer(text.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        for number in 0..MOST as u32 {
            assert!(limiter.take(Whom::Peer(IpAddr::V4(number.into())), RATE, start));
        }
        assert!(!limiter.take(peer("192.0.2.1"), RATE, start));
        assert!(limiter.take(peer("192.0.2.1"), RATE, start + Duration::from_secs(3)));
        assert_eq!(limiter.0.lock().len(), 1);
    }

    async fn shown(guesses: &Limiter, peer: &str, secret: &str) -> u16 {
        let claim = Claim {
            client: "client-c-m-a".to_owned(),
            project: "p-a".to_owned(),
            secret: secret.into(),
            cluster: None,
        };
        let authorized = async {
            if secret != "right" {
                return Err(Denied::unauthorized());
            }
            Ok(Asker {
                management: "rancher".into(),
                project: "p-a".to_owned(),
                namespace: "c-m-a".to_owned(),
                cluster: "c-m-a".to_owned(),
            })
        };
        let said = guesses.watch(peer.parse().ok(), &claim, authorized).await;
        said.map_or_else(|denied| denied.code.as_u16(), |_| 200)
    }

    #[tokio::test]
    async fn guessing_is_slow_and_locks_nobody_out() {
        let guesses = Limiter::default();
        for guess in 0..10 {
            let code = shown(&guesses, "192.0.2.1", &guess.to_string()).await;
            assert_eq!(code, 403, "{guess}");
        }
        assert_eq!(shown(&guesses, "192.0.2.1", "another").await, 429);
        assert_eq!(shown(&guesses, "192.0.2.2", "another").await, 403);
        for peer in ["192.0.2.1", "192.0.2.2"] {
            let code = shown(&guesses, peer, "right").await;
            assert_eq!(code, 200, "nobody is locked out: {peer}");
        }
        assert_eq!(shown(&guesses, "192.0.2.1", "another").await, 429);
    }
}
