//! What is said of a guest.

use super::plan::{GuestPlan, GuestWait};
use crate::guests::{
    GuestGoal, GuestPhase, GuestStatus, ReleaseView,
    charts::{ChartProgress, ChartRelease},
};

/// The reason while charts are on their way.
pub(super) const INSTALLING: &str = "ChartsInstalling";

/// What is shown of what a guest is to have.
pub(super) fn described(plan: &GuestPlan) -> GuestGoal {
    let access = plan.desired.access.iter();
    let projects = access.map(|access| (access.project.id.clone(), access.pool.clone()));
    GuestGoal {
        projects: projects.collect(),
        releases: plan.desired.releases.iter().map(shown).collect(),
    }
}

fn shown(release: &ChartRelease) -> ReleaseView {
    ReleaseView {
        name: release.name.clone(),
        namespace: release.namespace.clone(),
        chart: release.chart.clone(),
        version: release.version.clone(),
    }
}

/// A chart that failed says more than what is waited for.
pub(super) fn says(wait: Option<&GuestWait>, charts: ChartProgress) -> GuestStatus {
    match (wait, charts) {
        (None, ChartProgress::Done) => {
            GuestStatus::new(GuestPhase::Ready, "Ready", "it has everything it needs")
        }
        (None, ChartProgress::Unknown) => installing(""),
        (None, ChartProgress::UnderWay(what)) => installing(&what),
        (Some(wait), ChartProgress::Unknown | ChartProgress::UnderWay(_) | ChartProgress::Done) => {
            waiting(wait)
        }
        (None, ChartProgress::Failed(error)) => error.says(),
        (Some(wait), ChartProgress::Failed(error)) => {
            let mut says = error.says();
            says.message = format!("{}; {wait}", says.message);
            says
        }
    }
}

fn installing(what: &str) -> GuestStatus {
    let mut text = "its charts are being looked at, installed or upgraded".to_owned();
    if !what.is_empty() {
        text = format!("{text}: {what}");
    }
    GuestStatus::new(GuestPhase::Waiting, INSTALLING, text)
}

pub(super) fn waiting(wait: &GuestWait) -> GuestStatus {
    GuestStatus::new(GuestPhase::Waiting, wait.reason(), wait.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::charts::ChartError;

    #[test]
    fn a_failed_chart_is_told_before_what_is_waited_for() {
        let error = ChartError {
            reason: "InstallFailed",
            message: "chart \"purelb\": no".into(),
        };
        let wait = GuestWait::NoDefaultPool;
        assert_eq!(says(Some(&wait), ChartProgress::Done).reason, wait.reason());
        let both = says(Some(&wait), ChartProgress::Failed(error.clone()));
        assert_eq!(
            (both.phase, both.reason),
            (GuestPhase::Failed, "InstallFailed")
        );
        assert!(both.message.starts_with(&error.message), "{both:?}");
        assert!(both.message.ends_with(&wait.to_string()), "{both:?}");
    }

    #[test]
    fn a_guest_is_ready_once_its_charts_are_there() {
        for charts in [
            ChartProgress::Unknown,
            ChartProgress::UnderWay("a goes first".into()),
        ] {
            let says = says(None, charts);
            assert_eq!((says.phase, says.reason), (GuestPhase::Waiting, INSTALLING));
        }
        let told = says(None, ChartProgress::UnderWay("a goes first".into())).message;
        assert!(told.ends_with(": a goes first"), "{told}");
        assert_eq!(says(None, ChartProgress::Done).phase, GuestPhase::Ready);
    }
}
