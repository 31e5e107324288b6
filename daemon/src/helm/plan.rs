//! What to do about a release: a pure function of what is wanted, what is there and the time.

use std::time::Duration;

use fipd_core::Timestamp;

use super::{
    release::{Chart, ChartVersion, Release},
    state::{Observed, Phase},
};

/// The next thing to do. After it the release is looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    Nothing,
    Install,
    /// Under a name whose history was kept.
    Reinstall,
    Upgrade(Why),
    /// A dead operation left it pending: back to the last revision that was in use, which deletes nothing of others.
    Restore,
    /// A removal of ours died: to its end, then anew.
    UninstallFirst,
    /// Somebody may be at work.
    Wait {
        until: Timestamp,
    },
    Refuse(ReleaseRefusal),
}

/// Why a release is upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Version,
    Values,
    /// The last operation failed.
    Failed,
    /// It lacks fipd's label: the original cluster manager made it.
    Adopted,
}

/// Why a release is left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseRefusal {
    #[error(
        "the release is of the chart {found:?}, not of {wanted:?}; uninstall it, or give the chart another name"
    )]
    OtherChart { found: String, wanted: String },
    #[error(
        "somebody is removing the release, which does not carry fipd's label; finish that with helm uninstall"
    )]
    Removed,
}

/// How a release comes to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    Nothing,
    Uninstall,
    Wait {
        until: Timestamp,
    },
    /// It does not carry fipd's label.
    Foreign,
}

/// How long an operation may be pending before it counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Of releases with fipd's label: longer than any operation of fipd lives.
    pub own: Duration,
    /// Of others.
    pub others: Duration,
    /// The operation was fipd's own and its process is gone: there is nobody to wait for.
    pub interrupted: bool,
}

impl Patience {
    fn until(self, ours: bool, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let patience = if ours { self.own } else { self.others };
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        // A cluster whose clock is ahead does not make it longer.
        let until = Timestamp(since.0.min(now.0).saturating_add(millis));
        (!self.interrupted && until > now).then_some(until)
    }
}

/// What to do so that the release becomes what it should be.
pub fn plan(
    desired: &Release,
    state: Option<&Observed>,
    now: Timestamp,
    patience: Patience,
) -> Plan {
    let Some(seen) = state else {
        return Plan::Install;
    };
    if let Some(refusal) = other_chart(&desired.chart, seen) {
        return Plan::Refuse(refusal);
    }
    match seen.phase {
        Phase::Pending { since } => match patience.until(seen.ours, since, now) {
            Some(until) => Plan::Wait { until },
            None => Plan::Restore,
        },
        Phase::Uninstalling { since } => match patience.until(seen.ours, since, now) {
            Some(until) => Plan::Wait { until },
            None if seen.ours => Plan::UninstallFirst,
            None => Plan::Refuse(ReleaseRefusal::Removed),
        },
        Phase::Uninstalled => Plan::Reinstall,
        Phase::Failed => Plan::Upgrade(Why::Failed),
        Phase::Deployed => {
            let adopted = (!seen.ours).then_some(Why::Adopted);
            let why = difference(desired, seen).or(adopted);
            why.map_or(Plan::Nothing, Plan::Upgrade)
        }
    }
}

/// What to do so that the release is gone.
pub fn plan_removal(state: Option<&Observed>, now: Timestamp, patience: Patience) -> Removal {
    let Some(seen) = state else {
        return Removal::Nothing;
    };
    if !seen.ours {
        return match seen.phase {
            Phase::Uninstalled => Removal::Nothing,
            Phase::Deployed
            | Phase::Failed
            | Phase::Pending { .. }
            | Phase::Uninstalling { .. } => Removal::Foreign,
        };
    }
    let since = match seen.phase {
        Phase::Pending { since } | Phase::Uninstalling { since } => since,
        Phase::Deployed | Phase::Failed | Phase::Uninstalled => return Removal::Uninstall,
    };
    match patience.until(seen.ours, since, now) {
        Some(until) => Removal::Wait { until },
        None => Removal::Uninstall,
    }
}

/// In what the release is not what is wanted.
pub fn difference(desired: &Release, seen: &Observed) -> Option<Why> {
    let (has, wanted) = (ChartVersion::parse(&seen.version), &desired.chart.version);
    if !wanted.is_newest() && has.as_ref() != Ok(wanted) {
        Some(Why::Version)
    } else if seen.values != desired.values.digest() {
        Some(Why::Values)
    } else {
        None
    }
}

/// Why the release is left alone, where it is of another chart.
pub fn other_chart(desired: &Chart, seen: &Observed) -> Option<ReleaseRefusal> {
    let wanted = desired.own_name()?;
    (wanted != seen.chart).then(|| ReleaseRefusal::OtherChart {
        found: seen.chart.clone(),
        wanted: wanted.to_owned(),
    })
}

#[cfg(test)]
mod tests;
