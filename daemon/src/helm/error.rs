//! Why a release is not as it should be.

use std::{io, path::PathBuf, time::Duration};

use fipd_core::Timestamp;

use super::{
    plan::ReleaseRefusal,
    release::{KeyError, Release},
    state::Unreadable,
};

/// Every one becomes a condition; none ends the daemon.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HelmError {
    #[error(
        "the helm CLI is not on PATH; install helm 3.13 or later, or name it by path in [helm]"
    )]
    NotOnPath,
    #[error("{}: {what}; path in [helm] has to be the helm CLI", path.display())]
    NotThere { path: PathBuf, what: String },
    #[error("{} is helm {found}; 3.13 and later and 4 are allowed", path.display())]
    Unsupported { path: PathBuf, found: String },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{wanted} is wanted, but the chart at {} is {found}", path.display())]
    OtherVersion {
        path: PathBuf,
        wanted: String,
        found: String,
    },
    #[error(transparent)]
    Refused(#[from] ReleaseRefusal),
    #[error("the release does not carry fipd's label, and is not uninstalled")]
    Foreign,
    #[error("another operation on the release is under way; it counts as dead at {}", crate::clock::rfc3339(*until))]
    Busy { until: Timestamp },
    #[error("helm {operation} was not done within {} s and was ended", after.as_secs())]
    Deadline {
        operation: &'static str,
        after: Duration,
    },
    #[error("helm {operation} failed: {said}")]
    Failed {
        operation: &'static str,
        said: String,
    },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("the release is not as it should be after {0} operations")]
    NoProgress(usize),
    #[error("{}: {what}", path.display())]
    File { path: PathBuf, what: String },
    #[error("fipd is stopping")]
    Stopping,
}

impl HelmError {
    /// The same without the values of the release that helm quotes.
    pub(super) fn without_values_of(self, release: Option<&Release>) -> Self {
        match (self, release) {
            (Self::Failed { operation, said }, Some(release)) => Self::Failed {
                operation,
                said: release.without_values(&said),
            },
            (error, _) => error,
        }
    }
}

/// Why a chart is not as it should be, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartError {
    pub reason: &'static str,
    pub message: String,
}

impl ChartError {
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// The same without the values of the release that helm or an API server quotes.
    #[must_use]
    pub fn without_values_of(self, release: &Release) -> Self {
        Self {
            message: release.without_values(&self.message),
            ..self
        }
    }
}

impl HelmError {
    pub(super) fn file(path: impl Into<PathBuf>, error: &io::Error) -> Self {
        Self::File {
            path: path.into(),
            what: error.to_string(),
        }
    }

    /// The reason of a condition or an Event.
    pub fn reason(&self) -> &'static str {
        self.facts().0
    }

    /// How metrics count it.
    pub(super) fn result(&self) -> &'static str {
        self.facts().1
    }

    /// Whether trying again soon may help; otherwise only a change does.
    pub fn is_transient(&self) -> bool {
        self.facts().2
    }

    fn facts(&self) -> (&'static str, &'static str, bool) {
        match self {
            Self::NotOnPath | Self::NotThere { .. } => ("HelmMissing", "failure", false),
            Self::Unsupported { .. } => ("HelmUnsupported", "failure", false),
            Self::Key(_) | Self::OtherVersion { .. } => ("ChartConfigInvalid", "failure", false),
            Self::Refused(_) | Self::Foreign => ("ReleaseForeign", "failure", false),
            Self::Busy { .. } => ("ReleaseBusy", "failure", true),
            Self::Deadline { .. } => ("HelmTimeout", "timeout", true),
            Self::Failed { .. } | Self::Unreadable(_) | Self::NoProgress(_) => {
                ("HelmFailed", "failure", true)
            }
            Self::File { .. } => ("HelmFiles", "failure", true),
            Self::Stopping => ("Stopping", "cancelled", true),
        }
    }
}
