//! Clusters that all tests of a process share, and the fipd that most of them share.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tokio::sync::{RwLock, RwLockMappedWriteGuard, RwLockReadGuard, RwLockWriteGuard};

use super::fipd::Fipd;

const READY_WITHIN: Duration = Duration::from_secs(60);

/// Clusters that several tests can use.
pub trait SharedClusters: Sized + Send + Sync + 'static {
    /// Starts them, with the definitions and rights that fipd needs.
    fn start() -> impl Future<Output = Result<Self>>;

    /// Removes the objects of earlier tests, and the leader-election Leases of a fipd that was killed: another one would wait for
    /// 15 s until they expire.
    fn clean(&self) -> impl Future<Output = Result<()>>;

    /// Prepares a fipd for them, with these settings, and does not start it.
    fn prepare_fipd(&self, settings: &str) -> impl Future<Output = Result<Fipd>>;
}

/// The first test that needs the clusters starts them.
///
/// Most tests use them and one fipd at the same time, each with names, namespaces and addresses of its own. A test that kills
/// fipd or needs other settings waits until it has the clusters alone, and gets a fipd with an empty store.
///
/// Nothing drops a `static`: its processes end with the test process. It holds nothing that belongs to a runtime, as clients do,
/// since each test has a runtime of its own.
pub struct SharedSite<C: 'static>(RwLock<Option<Started<C>>>);

struct Started<C> {
    // Dropped in this order: fipd ends before its clusters.
    fipd: Option<Arc<Fipd>>,
    clusters: C,
}

/// The fipd of a test.
pub enum TestFipd {
    Own(Box<Fipd>),
    Shared(Arc<Fipd>),
}

/// The clusters, for as long as a test has them.
pub enum ClustersOfTest<C: 'static> {
    Shared(RwLockReadGuard<'static, C>),
    Alone(RwLockMappedWriteGuard<'static, C>),
}

impl<C: SharedClusters> SharedSite<C> {
    pub const fn new() -> Self {
        Self(RwLock::const_new(None))
    }

    /// The clusters and the fipd that other tests use as well. All of them give the same settings.
    pub async fn share(&'static self, settings: &str) -> Result<(TestFipd, ClustersOfTest<C>)> {
        let mut started = self.0.read().await;
        if started.as_ref().is_none_or(|one| one.fipd.is_none()) {
            drop(started);
            let mut place = self.0.write().await;
            let inside = start(&mut place).await?;
            // Another test may have come first.
            if inside.fipd.is_none() {
                inside.clusters.clean().await?;
                let mut fipd = inside.clusters.prepare_fipd(settings).await?;
                fipd.restart().await?;
                fipd.wait_ready(READY_WITHIN).await?;
                inside.fipd = Some(Arc::new(fipd));
            }
            started = place.downgrade();
        }
        let fipd = started.as_ref().and_then(|one| one.fipd.clone());
        let fipd = fipd.context("fipd was not started")?;
        let clusters = RwLockReadGuard::try_map(started, |one| Some(&one.as_ref()?.clusters));
        let clusters = clusters.map_err(|_| anyhow!("the clusters were not started"))?;
        Ok((TestFipd::Shared(fipd), ClustersOfTest::Shared(clusters)))
    }

    /// The clusters alone, without objects, and a fipd that is not started yet.
    pub async fn alone(&'static self, settings: &str) -> Result<(TestFipd, ClustersOfTest<C>)> {
        let mut place = self.0.write().await;
        let inside = start(&mut place).await?;
        inside.fipd = None;
        inside.clusters.clean().await?;
        let fipd = inside.clusters.prepare_fipd(settings).await?;
        let clusters =
            RwLockWriteGuard::try_map(place, |one| one.as_mut().map(|one| &mut one.clusters));
        let clusters = clusters.map_err(|_| anyhow!("the clusters were not started"))?;
        Ok((
            TestFipd::Own(Box::new(fipd)),
            ClustersOfTest::Alone(clusters),
        ))
    }
}

async fn start<C: SharedClusters>(place: &mut Option<Started<C>>) -> Result<&mut Started<C>> {
    if place.is_none() {
        let clusters = C::start().await?;
        *place = Some(Started {
            fipd: None,
            clusters,
        });
    }
    place.as_mut().context("the clusters were not started")
}

impl<C: SharedClusters> Default for SharedSite<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl TestFipd {
    /// To kill it, to change its configuration, or to put another one in its place.
    pub fn own(&mut self) -> Result<&mut Fipd> {
        match self {
            Self::Own(fipd) => Ok(fipd),
            Self::Shared(_) => bail!("other tests use this fipd: the test needs the site alone"),
        }
    }
}

impl Deref for TestFipd {
    type Target = Fipd;

    fn deref(&self) -> &Fipd {
        match self {
            Self::Own(fipd) => fipd,
            Self::Shared(fipd) => fipd,
        }
    }
}

impl<C: 'static> Deref for ClustersOfTest<C> {
    type Target = C;

    fn deref(&self) -> &C {
        match self {
            Self::Shared(clusters) => clusters,
            Self::Alone(clusters) => clusters,
        }
    }
}
