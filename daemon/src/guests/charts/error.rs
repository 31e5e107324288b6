//! Why the charts of a guest are not as they should be.

use super::{ReleaseMark, Settled};
use crate::{
    controller::client::CallError,
    guests::{GuestPhase, GuestStatus},
    helm::{ChartError, HelmError},
};

/// The reason while something goes on that ends soon.
pub const BUSY: &str = "ReleaseBusy";
/// The reason where the guest does not show its releases.
const UNREADABLE: &str = "ReleasesUnreadable";
/// The reason where the load balancer of somebody else is in the cluster.
pub const OTHER_LOAD_BALANCER: &str = "OtherLoadBalancer";

impl ChartError {
    pub fn of(release: &str, error: &HelmError) -> Self {
        Self::new(error.reason(), format!("chart {release:?}: {error}"))
    }

    pub fn unreadable(error: CallError) -> Self {
        Self::new(
            UNREADABLE,
            format!("the releases in the cluster cannot be listed: {error}"),
        )
    }

    /// A release of the same, which is to be somewhere else.
    pub fn elsewhere(mark: &ReleaseMark, wanted: &str) -> Self {
        let ReleaseMark {
            namespace, name, ..
        } = mark;
        Self::new(
            "ReleaseElsewhere",
            format!(
                "the release {name:?} in namespace {namespace:?} was not installed by fipd and is in the way of {wanted}: uninstall it, or let the settings name it as it is"
            ),
        )
    }

    /// Two systems of fipd want a release of one name.
    pub fn other_system(mark: &ReleaseMark) -> Self {
        let ReleaseMark {
            namespace, name, ..
        } = mark;
        Self::new(
            "ReleaseOfOtherSystem",
            format!(
                "another system of fipd keeps the release {name:?} in namespace {namespace:?}: let the settings of one of the two give it another name"
            ),
        )
    }

    /// A release of somebody else that stays as it is, and is not well.
    pub fn not_deployed(namespace: &str, name: &str) -> Self {
        Self::new(
            "ReleaseNotDeployed",
            format!(
                "the release {name:?} in namespace {namespace:?} was not installed by fipd, and its last operation did not end well: look with `helm status`, or let the settings update it"
            ),
        )
    }

    /// A release of another system of fipd is there.
    pub fn other_load_balancer(mark: &ReleaseMark) -> Self {
        let ReleaseMark {
            namespace, name, ..
        } = mark;
        Self::new(
            OTHER_LOAD_BALANCER,
            format!(
                "the release {name:?} in namespace {namespace:?} is kept by another system of fipd, and two load balancers would answer for the same Services: switch one of the two systems off for the cluster; if the release stays after that, uninstall it with helm"
            ),
        )
    }

    /// Something goes on that ends soon.
    pub fn is_busy(&self) -> bool {
        self.reason == BUSY
    }

    /// The guest does not answer, or does not allow the read.
    pub fn is_unreadable(&self) -> bool {
        self.reason == UNREADABLE
    }

    /// Both of them; what ends soon by itself does not hide the other.
    fn and(self, other: Self) -> Self {
        if self.message == other.message {
            return self;
        }
        let reason = match self.is_busy() {
            true => other.reason,
            false => self.reason,
        };
        Self {
            reason,
            message: format!("{}; {}", self.message, other.message),
        }
    }

    pub fn says(&self) -> GuestStatus {
        GuestStatus::new(GuestPhase::Failed, self.reason, self.message.clone())
    }
}

/// What became of two releases.
pub fn both(
    one: Result<Settled, ChartError>,
    other: Result<Settled, ChartError>,
) -> Result<Settled, ChartError> {
    match (one, other) {
        (Err(one), Err(other)) => Err(one.and(other)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Ok(Settled::Yes), Ok(Settled::Yes)) => Ok(Settled::Yes),
        (Ok(_), Ok(_)) => Ok(Settled::NotYet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_that_failed_is_told() {
        let error = |reason, message: &str| {
            let message = message.to_owned();
            Err(ChartError { reason, message })
        };
        let (busy, failed) = (error("ReleaseBusy", "a"), error("UpgradeFailed", "b"));
        let told = both(busy.clone(), failed.clone()).unwrap_err();
        assert_eq!((told.reason, &*told.message), ("UpgradeFailed", "a; b"));
        let told = both(failed.clone(), error("InstallFailed", "c")).unwrap_err();
        assert_eq!((told.reason, &*told.message), ("UpgradeFailed", "b; c"));
        assert_eq!(both(Ok(Settled::NotYet), failed.clone()), failed);
        assert_eq!(both(failed.clone(), failed.clone()), failed);
        let some = both(Ok(Settled::NotYet), Ok(Settled::Yes));
        assert_eq!(some, Ok(Settled::NotYet));
    }
}
