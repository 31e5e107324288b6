//! The status of a guest, and how it is reported: on the board, in the log and by an Event.

use k8s_openapi::api::core::v1::ObjectReference;

use super::{
    GuestBoard, GuestPhase, GuestStatus, GuestUpdate, ReleaseView,
    charts::{ChartProgress, ChartRelease},
};
use crate::{clock, controller::events::Events};

/// The reason while charts are on their way.
const INSTALLING: &str = "ChartsInstalling";

impl GuestStatus {
    /// Whether what it waits for is fipd's own work, which is no error.
    pub(super) fn is_progress(&self) -> bool {
        self.reason == INSTALLING
    }

    /// Of a guest whose releases stand like this. A chart that failed says more than what is waited for.
    pub fn of(wait: Option<Self>, charts: ChartProgress) -> Self {
        match (wait, charts) {
            (None, ChartProgress::Done) => {
                Self::new(GuestPhase::Ready, "Ready", "it has everything it needs")
            }
            (None, ChartProgress::Unknown) => installing(""),
            (None, ChartProgress::UnderWay(what)) => installing(&what),
            (
                Some(wait),
                ChartProgress::Unknown | ChartProgress::UnderWay(_) | ChartProgress::Done,
            ) => wait,
            (None, ChartProgress::Failed(error)) => error.says(),
            (Some(wait), ChartProgress::Failed(error)) => {
                let mut says = error.says();
                says.message = format!("{}; {}", says.message, wait.message);
                says
            }
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

impl ReleaseView {
    pub fn of(release: &ChartRelease) -> Self {
        Self {
            name: release.name.clone(),
            namespace: release.namespace.clone(),
            chart: release.chart.clone(),
            version: release.version.clone(),
        }
    }
}

impl GuestBoard {
    /// Puts the update on the board; a new status goes to the log and to an Event on an object, with the reason `ready`
    /// once the guest is ready.
    pub fn report(
        &self,
        update: GuestUpdate<'_>,
        events: &Events,
        (object, ready): (&ObjectReference, &'static str),
    ) {
        let progress = update.says.is_progress();
        let GuestStatus {
            phase,
            reason,
            message,
        } = update.says.clone();
        let (id, name) = (update.id, update.display_name);
        let system = update.system.name;
        if !self.say(update, clock::now()) {
            return;
        }
        let (phase_name, why) = (phase.as_str(), &*message);
        tracing::info!(
            cluster = id,
            name,
            system,
            phase = phase_name,
            reason,
            why,
            "guest"
        );
        match phase {
            GuestPhase::Ready => events.normal(object, ready, message),
            GuestPhase::Waiting if progress => events.normal(object, reason, message),
            GuestPhase::Leaving | GuestPhase::Left => events.normal(object, reason, message),
            GuestPhase::Waiting | GuestPhase::Failed => events.warning(object, reason, message),
        }
    }
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
        let wait = || Some(GuestStatus::new(GuestPhase::Waiting, "NoPool", "no pool"));
        let waits = GuestStatus::of(wait(), ChartProgress::Done);
        assert_eq!(waits.reason, "NoPool");
        let both = GuestStatus::of(wait(), ChartProgress::Failed(error.clone()));
        assert_eq!(
            (both.phase, both.reason),
            (GuestPhase::Failed, "InstallFailed")
        );
        assert!(both.message.starts_with(&error.message), "{both:?}");
        assert!(both.message.ends_with("no pool"), "{both:?}");
    }

    #[test]
    fn a_guest_is_ready_once_its_charts_are_there() {
        for charts in [
            ChartProgress::Unknown,
            ChartProgress::UnderWay("a goes first".into()),
        ] {
            let says = GuestStatus::of(None, charts);
            assert_eq!((says.phase, says.reason), (GuestPhase::Waiting, INSTALLING));
        }
        let told = GuestStatus::of(None, ChartProgress::UnderWay("a goes first".into()));
        assert!(told.message.ends_with(": a goes first"), "{told:?}");
        let done = GuestStatus::of(None, ChartProgress::Done);
        assert_eq!(done.phase, GuestPhase::Ready);
    }
}
