//! What a system says of its charts in one guest.

use super::{
    ChartError, ChartRelease, InstalledReleases, ReachedGuest, ReleaseMark, steps::ReleaseStep,
};
use crate::config::ChartEngine;

/// What a system wants of the charts in one guest, at one look.
pub trait ChartOwner: Send + Sync {
    /// The releases that the guest is to have.
    fn wanted(
        &mut self,
        installed: &InstalledReleases,
    ) -> impl Future<Output = Result<Vec<ChartRelease>, ChartError>> + Send;

    /// What brings them.
    fn engine(&self) -> Result<ChartEngine, ChartError>;

    /// Whether the release cannot stand beside another one of fipd's that nobody wants.
    fn excludes(&self, release: &ChartRelease, other: &ReleaseMark) -> bool;

    /// Whether nothing of somebody else keeps the release of a step out.
    fn check_room(
        &self,
        guest: &ReachedGuest<'_>,
        installed: &InstalledReleases,
        step: &ReleaseStep<'_>,
    ) -> impl Future<Output = Result<(), ChartError>> + Send;

    /// Whether [`Self::check_room`] changes something in the guest: then it is looked first whether the release is to be had.
    fn makes_room(&self) -> bool {
        false
    }

    /// Whether a fresh look still allows to remove a release: uninstalling the one before may have taken minutes.
    fn confirm_removal(
        &self,
        guest: &ReachedGuest<'_>,
    ) -> impl Future<Output = Result<(), ChartError>> + Send;

    /// A guest whose charts were there is not ready any more.
    fn begins(&self);

    /// Whether each release makes use of those before it: it does not come before they are there.
    fn in_order(&self) -> bool {
        false
    }

    /// A release was installed or changed (`well`), or could not be. Not called where there was nothing to do.
    fn ended(&self, _release: &ChartRelease, _well: bool) {}

    /// A release was uninstalled for another (`well`), or could not be.
    fn removed(&self, _mark: &ReleaseMark, _well: bool) {}
}

/// What has to be so before the releases of a guest go that is left.
pub trait ChartRemover: Send + Sync {
    /// Whether nothing in the guest needs what is there.
    fn check_unused(
        &self,
        guest: &ReachedGuest<'_>,
        installed: &InstalledReleases,
    ) -> impl Future<Output = Result<(), ChartError>> + Send;

    /// Whether this release goes before those of which it makes use.
    fn goes_first(&self, _mark: &ReleaseMark) -> bool {
        false
    }

    /// Whether a fresh look still says that the guest is left.
    fn confirm_leaving(&self) -> impl Future<Output = Result<(), ChartError>> + Send;

    /// A release was uninstalled (`well`), or could not be.
    fn removed(&self, _mark: &ReleaseMark, _well: bool) {}
}
