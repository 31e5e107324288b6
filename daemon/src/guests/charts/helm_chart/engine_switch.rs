//! The next step for the HelmChart of a release that switches between the two engines, or that is uninstalled: pure.

use fipd_crds::helm_chart::HelmChart;

/// helm-controller leaves an object with this annotation alone.
pub const UNMANAGED: &str = "helmcharts.helm.cattle.io/unmanaged";
/// helm-controller holds an object by it until the release is uninstalled.
pub const FINALIZER: &str = "wrangler.cattle.io/on-helm-chart-remove";

/// The next step with the object of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchStep {
    /// Nothing was begun: it is written where it differs.
    Write,
    /// Tells helm-controller to keep off.
    KeepOff,
    /// Tells helm-controller to look after it again: it would leave the release behind, or the object for ever.
    Manage,
    Delete,
    /// helm-controller was told to keep off: the object goes without the release.
    DropFinalizer,
    /// Somebody deleted the object: helm-controller uninstalls the release first.
    Wait,
}

/// What is to be done so that helm-controller lets go of the release without uninstalling it.
pub fn hand_back(chart: &HelmChart) -> SwitchStep {
    match state(chart) {
        (false, false) => SwitchStep::KeepOff,
        (false, true) => SwitchStep::Wait,
        (true, false) => SwitchStep::Delete,
        (true, true) => SwitchStep::DropFinalizer,
    }
}

/// What is to be done about an object that is to keep its release, whatever was begun with it.
pub fn keep(chart: &HelmChart) -> SwitchStep {
    match state(chart) {
        (false, false) => SwitchStep::Write,
        (true, false) => SwitchStep::Manage,
        (true, true) => SwitchStep::DropFinalizer,
        (false, true) => SwitchStep::Wait,
    }
}

/// What is to be done so that helm-controller uninstalls the release, whatever was begun with its object.
pub fn removal(chart: &HelmChart) -> SwitchStep {
    match state(chart) {
        (true, _) => SwitchStep::Manage,
        (false, false) => SwitchStep::Delete,
        (false, true) => SwitchStep::Wait,
    }
}

/// The rest of a hand-back that was begun, for a release that stays where it is; `None`: none was begun.
pub fn rest_of_hand_back(chart: &HelmChart) -> Option<SwitchStep> {
    Some(hand_back(chart)).filter(|step| *step != SwitchStep::KeepOff)
}

/// Whether helm-controller is told to keep off, and whether the object is being deleted.
fn state(chart: &HelmChart) -> (bool, bool) {
    let annotations = chart.metadata.annotations.as_ref();
    let off = annotations.is_some_and(|all| all.contains_key(UNMANAGED));
    (off, chart.metadata.deletion_timestamp.is_some())
}

#[cfg(test)]
mod tests {
    use super::{super::testing::switching, *};

    #[test]
    fn a_release_is_given_back_without_being_uninstalled() {
        assert_eq!(hand_back(&switching(false, false)), SwitchStep::KeepOff);
        assert_eq!(hand_back(&switching(false, true)), SwitchStep::Wait);
        assert_eq!(hand_back(&switching(true, true)), SwitchStep::DropFinalizer);
        assert_eq!(hand_back(&switching(true, false)), SwitchStep::Delete);
    }

    #[test]
    fn a_hand_back_that_was_cut_off_is_turned_round() {
        assert_eq!(keep(&switching(true, false)), SwitchStep::Manage);
        assert_eq!(keep(&switching(true, true)), SwitchStep::DropFinalizer);
        assert_eq!(keep(&switching(false, true)), SwitchStep::Wait);
        assert_eq!(keep(&switching(false, false)), SwitchStep::Write);
    }

    #[test]
    fn a_removal_after_half_a_hand_back_uninstalls_the_release() {
        assert_eq!(removal(&switching(true, false)), SwitchStep::Manage);
        assert_eq!(removal(&switching(true, true)), SwitchStep::Manage);
        assert_eq!(removal(&switching(false, false)), SwitchStep::Delete);
        assert_eq!(removal(&switching(false, true)), SwitchStep::Wait);
    }

    #[test]
    fn half_a_hand_back_of_a_release_that_stays_is_brought_to_its_end() {
        let rest = |off, deleted| rest_of_hand_back(&switching(off, deleted));
        assert_eq!(rest(false, false), None);
        assert_eq!(rest(true, false), Some(SwitchStep::Delete));
        assert_eq!(rest(true, true), Some(SwitchStep::DropFinalizer));
        assert_eq!(rest(false, true), Some(SwitchStep::Wait));
    }
}
