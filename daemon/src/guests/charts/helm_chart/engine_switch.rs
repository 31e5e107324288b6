//! The next step for the HelmChart of a release that switches between the two engines, or that is uninstalled: pure.

use fipd_crds::helm_chart::HelmChart;

/// helm-controller leaves an object with this annotation alone.
pub const UNMANAGED: &str = "helmcharts.helm.cattle.io/unmanaged";
/// helm-controller holds an object by it until the release is uninstalled.
pub const FINALIZER: &str = "wrangler.cattle.io/on-helm-chart-remove";

/// The next step in giving a release back to the helm CLI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandBack {
    KeepOff,
    Delete,
    DropFinalizer,
    /// Somebody deleted the object: helm-controller uninstalls the release first.
    Wait,
}

/// The next step in keeping a release by an object that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepStep {
    Write,
    /// It was to be given back to the helm CLI, and is not any more.
    Manage,
    /// helm-controller was told to keep off: the object goes without the release, and is made anew.
    DropFinalizer,
    /// helm-controller uninstalls the release first.
    Wait,
}

/// The next step in uninstalling a release by its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UninstallStep {
    /// helm-controller was told to keep off, and would leave the release behind or the object for ever.
    Manage,
    Delete,
    Wait,
}

/// What is to be done so that helm-controller lets go of the release without uninstalling it.
pub fn hand_back(chart: &HelmChart) -> HandBack {
    match state(chart) {
        (false, false) => HandBack::KeepOff,
        (false, true) => HandBack::Wait,
        (true, false) => HandBack::Delete,
        (true, true) => HandBack::DropFinalizer,
    }
}

/// What is to be done about an object that is to keep its release, whatever was begun with it.
pub fn keep(chart: &HelmChart) -> KeepStep {
    match state(chart) {
        (false, false) => KeepStep::Write,
        (true, false) => KeepStep::Manage,
        (true, true) => KeepStep::DropFinalizer,
        (false, true) => KeepStep::Wait,
    }
}

/// What is to be done so that helm-controller uninstalls the release, whatever was begun with its object.
pub fn removal(chart: &HelmChart) -> UninstallStep {
    match state(chart) {
        (true, _) => UninstallStep::Manage,
        (false, false) => UninstallStep::Delete,
        (false, true) => UninstallStep::Wait,
    }
}

/// The rest of a hand-back that was begun, for a release that stays where it is; `None`: none was begun.
pub fn rest_of_hand_back(chart: &HelmChart) -> Option<HandBack> {
    Some(hand_back(chart)).filter(|step| *step != HandBack::KeepOff)
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
        assert_eq!(hand_back(&switching(false, false)), HandBack::KeepOff);
        assert_eq!(hand_back(&switching(false, true)), HandBack::Wait);
        assert_eq!(hand_back(&switching(true, true)), HandBack::DropFinalizer);
        assert_eq!(hand_back(&switching(true, false)), HandBack::Delete);
    }

    #[test]
    fn a_hand_back_that_was_cut_off_is_turned_round() {
        assert_eq!(keep(&switching(true, false)), KeepStep::Manage);
        assert_eq!(keep(&switching(true, true)), KeepStep::DropFinalizer);
        assert_eq!(keep(&switching(false, true)), KeepStep::Wait);
        assert_eq!(keep(&switching(false, false)), KeepStep::Write);
    }

    #[test]
    fn a_removal_after_half_a_hand_back_uninstalls_the_release() {
        assert_eq!(removal(&switching(true, false)), UninstallStep::Manage);
        assert_eq!(removal(&switching(true, true)), UninstallStep::Manage);
        assert_eq!(removal(&switching(false, false)), UninstallStep::Delete);
        assert_eq!(removal(&switching(false, true)), UninstallStep::Wait);
    }

    #[test]
    fn half_a_hand_back_of_a_release_that_stays_is_brought_to_its_end() {
        let rest = |off, deleted| rest_of_hand_back(&switching(off, deleted));
        assert_eq!(rest(false, false), None);
        assert_eq!(rest(true, false), Some(HandBack::Delete));
        assert_eq!(rest(true, true), Some(HandBack::DropFinalizer));
        assert_eq!(rest(false, true), Some(HandBack::Wait));
    }
}
