//! Whether the loops that every answer depends on still run: `/healthz` fails when one of them is silent for [`SILENT`],
//! `/readyz` when the blocking pool is full.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fipd_core::Text;
use tokio_util::sync::CancellationToken;

/// Between two beats of a loop that has nothing to do.
pub const BEAT: Duration = Duration::from_secs(1);
/// A loop that was silent for so long hangs.
pub const SILENT: Duration = Duration::from_secs(60);
/// A blocking pool in which nothing began for so long is full.
const FULL: Duration = Duration::from_secs(10);

/// Beats are counted in milliseconds since then.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When a loop last went round. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// 0: never.
    last: Arc<AtomicU64>,
}

/// A new one has just beaten.
impl Default for Heartbeat {
    fn default() -> Self {
        let heartbeat = Self {
            last: Arc::default(),
        };
        heartbeat.beat();
        heartbeat
    }
}

impl Heartbeat {
    pub fn beat(&self) {
        let now = BEGIN.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX).max(1);
        self.last.fetch_max(now, Ordering::AcqRel);
    }

    /// How long ago the last beat was; without one the greatest duration.
    pub fn silent_for(&self) -> Duration {
        match self.last.load(Ordering::Acquire) {
            0 => Duration::MAX,
            last => BEGIN.elapsed().saturating_sub(Duration::from_millis(last)),
        }
    }
}

/// The loops of the daemon beside the writer, and its blocking pool.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    loops: Vec<(Text, Heartbeat)>,
    blocking: Heartbeat,
}

impl Liveness {
    pub fn new(loops: Vec<(Text, Heartbeat)>) -> Self {
        Self {
            loops,
            blocking: Heartbeat::default(),
        }
    }

    /// Which loops hang, and for how long; `writer`: how long the address book's is silent.
    pub fn hanging(&self, writer: Duration) -> Vec<(Text, Duration)> {
        let loops = self.loops.iter();
        let ages = loops.map(|(name, heartbeat)| (Text::clone(name), heartbeat.silent_for()));
        let writer = ("the writer of the address book".into(), writer);
        let all = ages.chain([writer]);
        all.filter(|(_, age)| *age >= SILENT).collect()
    }

    /// How long nothing began in the blocking pool; `None`: it has room.
    pub fn blocking_full(&self) -> Option<Duration> {
        Some(self.blocking.silent_for()).filter(|age| *age >= FULL)
    }

    /// Uses a thread of the blocking pool each second, until `stop`.
    pub async fn watch_blocking(self, stop: CancellationToken) {
        let watch = async {
            loop {
                let heartbeat = self.blocking.clone();
                // It cannot panic; a runtime that ends gives it up.
                let _ = tokio::task::spawn_blocking(move || heartbeat.beat()).await;
                tokio::time::sleep(BEAT).await;
            }
        };
        stop.run_until_cancelled(watch).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn never() -> Heartbeat {
        Heartbeat {
            last: Arc::default(),
        }
    }

    #[test]
    fn a_loop_hangs_after_a_minute_of_silence() {
        let beating = ("port".into(), Heartbeat::default());
        let stuck = never();
        let liveness = Liveness::new(vec![beating, ("socket".into(), stuck.clone())]);
        let names = |writer| {
            let hanging = liveness.hanging(writer).into_iter();
            hanging.map(|(name, _)| name).collect::<Vec<_>>()
        };
        let short = SILENT - Duration::from_secs(1);
        assert_eq!(names(short), ["socket".into()]);
        let writer = "the writer of the address book".into();
        assert_eq!(names(SILENT), ["socket".into(), writer]);
        stuck.beat();
        assert_eq!(names(short), []);
    }

    #[test]
    fn a_full_blocking_pool_is_seen_and_recovers() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(1).build();
        let liveness = Liveness {
            blocking: never(),
            ..Liveness::default()
        };
        let stop = CancellationToken::new();
        let (free, wait) = mpsc::channel::<()>();
        runtime.unwrap().block_on(async {
            let hog = tokio::task::spawn_blocking(move || wait.recv().ok());
            let watching = tokio::spawn(liveness.clone().watch_blocking(stop.clone()));
            tokio::task::yield_now().await;
            assert!(
                liveness.blocking_full().is_some(),
                "its only thread is taken"
            );
            free.send(()).unwrap();
            hog.await.unwrap();
            while liveness.blocking_full().is_some() {
                tokio::task::yield_now().await;
            }
            stop.cancel();
            watching.await.unwrap();
        });
    }
}
