//! Why the charts of a guest are left as they are: what only this system knows.

use fipd_crds::labels::FLOATINGIP_CLEANUP;

use crate::{
    controller::client::CallError,
    guests::charts::{BUSY, ChartError},
};

/// Why no chart is installed, or no release removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChartsHeld {
    /// The controller that fipd installed is not removed before they have let go. How many, and the first of them.
    #[error(
        "{0} Services there have addresses ({1}), which the LB controller lets go of: delete them, or give them another load balancer and take the finalizer {FLOATINGIP_CLEANUP} off; charts are uninstalled once none has it"
    )]
    Services(usize, String),
    #[error(
        "charts are uninstalled once it is known that no Service there has an address; Services cannot be listed: {0}"
    )]
    ServicesUnreadable(CallError),
    /// Nothing is removed on what was read some time ago.
    #[error("no release is removed before the cluster's labels in Rancher are read again: {0}")]
    Unconfirmed(CallError),
    #[error("the cluster's labels in Rancher changed meanwhile; no release is removed")]
    LabelChanged,
    #[error("the settings changed meanwhile; no release is removed")]
    SettingsChanged,
    /// Secrets and mappings come before the controller that reads them.
    #[error("no release is removed before the namespace {0:?} has what its controller needs")]
    Unprepared(String),
    #[error(
        "the release {name:?} in namespace {namespace:?} was not installed by fipd: uninstall it, or set the cluster's label rancher-fip-lbtype to it"
    )]
    OtherLoadBalancer { namespace: String, name: String },
}

impl From<ChartsHeld> for ChartError {
    fn from(held: ChartsHeld) -> Self {
        let reason = match held {
            ChartsHeld::Services(..) => "ServicesHoldAddresses",
            ChartsHeld::ServicesUnreadable(_) => "ServicesUnreadable",
            ChartsHeld::Unconfirmed(_) => "LabelUnreadable",
            ChartsHeld::LabelChanged => "LabelChanged",
            ChartsHeld::SettingsChanged => "SettingsChanged",
            ChartsHeld::Unprepared(_) => BUSY,
            ChartsHeld::OtherLoadBalancer { .. } => "OtherLoadBalancer",
        };
        Self::new(reason, held.to_string())
    }
}
