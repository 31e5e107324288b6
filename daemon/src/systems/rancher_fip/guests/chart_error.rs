//! Why the charts of a guest are left as they are: what only this system knows.

use fipd_crds::labels::FLOATINGIP_CLEANUP;

use crate::{
    controller::client::CallError,
    guests::charts::{BUSY, ChartError},
};

impl ChartError {
    /// The controller that fipd installed is not removed before they have let go.
    pub(super) fn services_hold(count: usize, first: &[String]) -> Self {
        let more = if count > first.len() { ", ..." } else { "" };
        Self::new(
            "ServicesHoldAddresses",
            format!(
                "{count} Services there have addresses ({}{more}), which the LB controller lets go of: delete them, or give them another load balancer and take the finalizer {FLOATINGIP_CLEANUP} off; charts are uninstalled once none has it",
                first.join(", ")
            ),
        )
    }

    pub(super) fn services_unreadable(error: CallError) -> Self {
        Self::new(
            "ServicesUnreadable",
            format!(
                "charts are uninstalled once it is known that no Service there has an address; Services cannot be listed: {error}"
            ),
        )
    }

    /// Nothing is removed on what was read some time ago.
    pub(super) fn unconfirmed(error: CallError) -> Self {
        Self::new(
            "LabelUnreadable",
            format!(
                "no release is removed before the cluster's labels in Rancher are read again: {error}"
            ),
        )
    }

    pub(super) fn changed() -> Self {
        Self::new(
            "LabelChanged",
            "the cluster's labels in Rancher changed meanwhile; no release is removed",
        )
    }

    pub(super) fn other_settings() -> Self {
        Self::new(
            "SettingsChanged",
            "the settings changed meanwhile; no release is removed",
        )
    }

    /// Secrets and mappings come before the controller that reads them.
    pub(super) fn unprepared(namespace: &str) -> Self {
        Self::new(
            BUSY,
            format!(
                "no release is removed before the namespace {namespace:?} has what its controller needs"
            ),
        )
    }

    /// A release of the other load balancer.
    pub(super) fn other_load_balancer(namespace: &str, name: &str) -> Self {
        Self::new(
            "OtherLoadBalancer",
            format!(
                "the release {name:?} in namespace {namespace:?} was not installed by fipd: uninstall it, or set the cluster's label rancher-fip-lbtype to it"
            ),
        )
    }
}
