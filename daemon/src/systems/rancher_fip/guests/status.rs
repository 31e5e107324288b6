//! What is said of a guest.

use super::{
    charts::Charts,
    plan::{Plan, Wait},
    settings::Release,
};
use crate::guests::{Has, Phase, ReleaseView, Says};

/// The reason while charts are on their way.
pub(super) const INSTALLING: &str = "ChartsInstalling";

/// What is shown of what a guest is to have.
pub(super) fn described(plan: &Plan) -> Has {
    let access = plan.desired.access.iter();
    let projects = access.map(|access| (access.project.id.clone(), access.pool.clone()));
    Has {
        projects: projects.collect(),
        releases: plan.desired.releases.iter().map(shown).collect(),
    }
}

fn shown(release: &Release) -> ReleaseView {
    ReleaseView {
        name: release.name.clone(),
        namespace: release.namespace.clone(),
        chart: release.chart.clone(),
        version: release.version.clone(),
    }
}

/// A chart that failed says more than what is waited for.
pub(super) fn says(wait: Option<&Wait>, charts: Charts) -> Says {
    match (wait, charts) {
        (None, Charts::Done) => Says::new(Phase::Ready, "Ready", "it has everything it needs"),
        (None, Charts::Unknown) => installing(""),
        (None, Charts::UnderWay(what)) => installing(&what),
        (Some(wait), Charts::Unknown | Charts::UnderWay(_) | Charts::Done) => waiting(wait),
        (None, Charts::Failed(error)) => error.says(),
        (Some(wait), Charts::Failed(error)) => {
            let mut says = error.says();
            says.message = format!("{}; {wait}", says.message);
            says
        }
    }
}

fn installing(what: &str) -> Says {
    let mut text = "its charts are being looked at, installed or upgraded".to_owned();
    if !what.is_empty() {
        text = format!("{text}: {what}");
    }
    Says::new(Phase::Waiting, INSTALLING, text)
}

pub(super) fn waiting(wait: &Wait) -> Says {
    Says::new(Phase::Waiting, wait.reason(), wait.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::charts::error::ChartError;

    #[test]
    fn a_failed_chart_is_told_before_what_is_waited_for() {
        let error = ChartError {
            reason: "InstallFailed",
            message: "chart \"purelb\": no".into(),
        };
        let wait = Wait::NoDefaultPool;
        assert_eq!(says(Some(&wait), Charts::Done).reason, wait.reason());
        let both = says(Some(&wait), Charts::Failed(error.clone()));
        assert_eq!((both.phase, both.reason), (Phase::Failed, "InstallFailed"));
        assert!(both.message.starts_with(&error.message), "{both:?}");
        assert!(both.message.ends_with(&wait.to_string()), "{both:?}");
    }

    #[test]
    fn a_guest_is_ready_once_its_charts_are_there() {
        for charts in [Charts::Unknown, Charts::UnderWay("a goes first".into())] {
            let says = says(None, charts);
            assert_eq!((says.phase, says.reason), (Phase::Waiting, INSTALLING));
        }
        let told = says(None, Charts::UnderWay("a goes first".into())).message;
        assert!(told.ends_with(": a goes first"), "{told}");
        assert_eq!(says(None, Charts::Done).phase, Phase::Ready);
    }
}
