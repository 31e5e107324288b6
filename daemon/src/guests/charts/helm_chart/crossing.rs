//! A release between the two engines, or on its way out, and what its HelmChart needs next: pure.

use fipd_crds::helm_chart::HelmChart;

/// helm-controller leaves an object with this annotation alone.
pub const UNMANAGED: &str = "helmcharts.helm.cattle.io/unmanaged";
/// helm-controller holds an object by it until the release is uninstalled.
pub const FINALIZER: &str = "wrangler.cattle.io/on-helm-chart-remove";

/// The next step in giving a release back to the helm CLI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOver {
    KeepOff,
    Delete,
    DropFinalizer,
    /// Somebody deleted the object: helm-controller uninstalls the release first.
    Wait,
}

/// The next step in keeping a release by an object that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
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
pub enum Removal {
    /// helm-controller was told to keep off, and would leave the release behind or the object for ever.
    Manage,
    Delete,
    Wait,
}

/// What is to be done so that helm-controller lets go of the release without uninstalling it.
pub fn hand_over(chart: &HelmChart) -> HandOver {
    match crossing(chart) {
        (false, false) => HandOver::KeepOff,
        (false, true) => HandOver::Wait,
        (true, false) => HandOver::Delete,
        (true, true) => HandOver::DropFinalizer,
    }
}

/// What is to be done about an object that is to keep its release, whatever was begun with it.
pub fn keep(chart: &HelmChart) -> Keep {
    match crossing(chart) {
        (false, false) => Keep::Write,
        (true, false) => Keep::Manage,
        (true, true) => Keep::DropFinalizer,
        (false, true) => Keep::Wait,
    }
}

/// What is to be done so that helm-controller uninstalls the release, whatever was begun with its object.
pub fn removal(chart: &HelmChart) -> Removal {
    match crossing(chart) {
        (true, _) => Removal::Manage,
        (false, false) => Removal::Delete,
        (false, true) => Removal::Wait,
    }
}

/// The rest of a hand-over that was begun, for a release that stays where it is; `None`: none was begun.
pub fn rest_of_hand_over(chart: &HelmChart) -> Option<HandOver> {
    Some(hand_over(chart)).filter(|step| *step != HandOver::KeepOff)
}

/// Whether helm-controller is told to keep off, and whether the object is being deleted.
fn crossing(chart: &HelmChart) -> (bool, bool) {
    let annotations = chart.metadata.annotations.as_ref();
    let off = annotations.is_some_and(|all| all.contains_key(UNMANAGED));
    (off, chart.metadata.deletion_timestamp.is_some())
}

#[cfg(test)]
mod tests {
    use super::{super::testing::crossed, *};

    #[test]
    fn a_release_is_given_back_without_being_uninstalled() {
        assert_eq!(hand_over(&crossed(false, false)), HandOver::KeepOff);
        assert_eq!(hand_over(&crossed(false, true)), HandOver::Wait);
        assert_eq!(hand_over(&crossed(true, true)), HandOver::DropFinalizer);
        assert_eq!(hand_over(&crossed(true, false)), HandOver::Delete);
    }

    #[test]
    fn a_hand_over_that_was_cut_off_is_turned_round() {
        assert_eq!(keep(&crossed(true, false)), Keep::Manage);
        assert_eq!(keep(&crossed(true, true)), Keep::DropFinalizer);
        assert_eq!(keep(&crossed(false, true)), Keep::Wait);
        assert_eq!(keep(&crossed(false, false)), Keep::Write);
    }

    #[test]
    fn a_removal_after_half_a_hand_over_uninstalls_the_release() {
        assert_eq!(removal(&crossed(true, false)), Removal::Manage);
        assert_eq!(removal(&crossed(true, true)), Removal::Manage);
        assert_eq!(removal(&crossed(false, false)), Removal::Delete);
        assert_eq!(removal(&crossed(false, true)), Removal::Wait);
    }

    #[test]
    fn half_a_hand_over_of_a_release_that_stays_is_brought_to_its_end() {
        let rest = |off, deleted| rest_of_hand_over(&crossed(off, deleted));
        assert_eq!(rest(false, false), None);
        assert_eq!(rest(true, false), Some(HandOver::Delete));
        assert_eq!(rest(true, true), Some(HandOver::DropFinalizer));
        assert_eq!(rest(false, true), Some(HandOver::Wait));
    }
}
