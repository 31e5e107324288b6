//! A site for one test after another, as long as it can be brought back to what it was when it was new.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;
use futures::future::try_join_all;

use super::baseline::Baseline;
use super::control_plane::ControlPlane;
use super::site::{Site, SiteOptions};
use crate::say::progress;

/// Sites that no test has now.
static IDLE: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// A site with fipd's definitions in Rancher. Where [`SiteOptions::kept`] says so, the next test with these options has it, unless
/// this one failed or left a change that cannot be undone: an object that was there before is changed or gone, or there is another
/// definition.
pub struct KeptSite(
    /// `None` only while it is dropped.
    Option<Kept>,
);

struct Kept {
    options: SiteOptions,
    site: Site,
    /// What each cluster had when it was new; empty: nobody else is to have it.
    before: Vec<Baseline>,
}

impl KeptSite {
    pub async fn start(options: &SiteOptions) -> Result<Self> {
        while let Some(kept) = take_idle(options) {
            match kept.clean().await {
                Ok(()) => return Ok(Self(Some(kept))),
                Err(error) => progress(format_args!("a site is started anew: {error:#}")),
            }
        }
        let site = Site::start(options).await?;
        site.rancher.install_fipd_crds().await?;
        let mut kept = Kept {
            options: options.clone(),
            site,
            before: Vec::new(),
        };
        if options.kept {
            kept.before = kept.look().await?;
        }
        Ok(Self(Some(kept)))
    }
}

impl Deref for KeptSite {
    type Target = Site;

    fn deref(&self) -> &Site {
        match &self.0 {
            Some(kept) => &kept.site,
            None => unreachable!("it is dropped"),
        }
    }
}

impl DerefMut for KeptSite {
    fn deref_mut(&mut self) -> &mut Site {
        match &mut self.0 {
            Some(kept) => &mut kept.site,
            None => unreachable!("it is dropped"),
        }
    }
}

impl Drop for KeptSite {
    fn drop(&mut self) {
        let kept = self.0.take().filter(|kept| !kept.before.is_empty());
        // A test that failed may have left anything.
        if let Some(kept) = kept.filter(|_| !thread::panicking()) {
            idle().push(kept);
        }
    }
}

impl Kept {
    fn planes(&self) -> impl Iterator<Item = &ControlPlane> {
        let downstream = self.site.downstream.iter().map(|cluster| &cluster.plane);
        std::iter::once(&self.site.rancher).chain(downstream)
    }

    async fn look(&self) -> Result<Vec<Baseline>> {
        try_join_all(self.planes().map(ControlPlane::baseline)).await
    }

    async fn clean(&self) -> Result<()> {
        let planes = self.planes().zip(&self.before);
        let back = planes.map(|(plane, before)| plane.return_to(before));
        try_join_all(back).await?;
        Ok(())
    }
}

fn idle() -> MutexGuard<'static, Vec<Kept>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One with these options. Without any, those with other options end: they would take memory and time for nothing.
fn take_idle(options: &SiteOptions) -> Option<Kept> {
    let mut idle = idle();
    if let Some(place) = idle.iter().position(|kept| kept.options == *options) {
        return Some(idle.swap_remove(place));
    }
    let others = std::mem::take(&mut *idle);
    drop(idle);
    drop(others);
    None
}
