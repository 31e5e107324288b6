//! What the system can be asked for.

use fipd_core::Action;

use super::guests::rotation::{RotateError, Rotated, SecretRotators};
use crate::{
    config::operation::{Column, Does, Operations, Served, SystemOperation},
    system::{Means, OperationCall, OperationError},
};

/// All of it.
pub(super) static OPERATIONS: Operations = Operations {
    title: "rancher-fip",
    about: "The rancher-fip family: clusters that Rancher manages",
    all: &[
        SystemOperation {
            name: "guests",
            about: "Clusters that Rancher manages and fipd looks after, and how they are doing",
            path: "/api/v1/guests",
            variable: "",
            does: Does::List {
                field: "guests",
                kind: "",
                columns: &[
                    Column::new("ID", "id"),
                    Column::new("NAME", "display_name"),
                    Column::new("PHASE", "phase"),
                    Column::new("REASON", "reason"),
                    Column::new("PROJECTS", "projects"),
                    Column::new("LB", "load_balancer"),
                    Column::new("SINCE", "since"),
                    Column::new("MESSAGE", "message"),
                ],
            },
            served: Served::ByFipd,
        },
        SystemOperation {
            name: "rotate-secret",
            about: "Give a project a new secret: its guests get it at once, the one before is accepted for an hour more",
            path: "/api/v1/projects/{project}/rotate-secret",
            variable: "Rancher's id of the project, p-...",
            does: Does::Change,
            served: Served::BySystem,
        },
        SystemOperation {
            name: "rotate-key",
            about: "Let another key sign the tokens of LB controllers: those that are out count until they end",
            path: "/api/v1/fip-v1/rotate-key",
            variable: "",
            does: Does::Change,
            served: Served::ByFipd,
        },
    ],
};

/// Gives a project a new secret, the only change that the system serves itself.
pub(super) async fn rotate_secret(
    rotators: &SecretRotators,
    means: &Means,
    asked: OperationCall<'_>,
) -> Result<String, OperationError> {
    let (project, actor) = (asked.value, asked.actor);
    let Rotated { rancher, until } = rotators.rotate(project).await?;
    tracing::info!(project, %rancher, until, %actor, "the project has a new secret");
    let what = format!("project {project} of {rancher}: the one before is accepted until {until}");
    let noted = means.ipam.note(Action::SecretRotated, what, actor).await;
    if let Err(error) = noted {
        tracing::warn!(%error, project, "its new secret is not in the audit log");
    }
    Ok(format!(
        "project {project} of {rancher} has a new secret, which its guests get at once; the one before is accepted until {until}"
    ))
}

impl From<RotateError> for OperationError {
    fn from(error: RotateError) -> Self {
        let what = error.to_string();
        match error {
            RotateError::UnknownProject(_) | RotateError::NoSecret(_) => Self::NotFound(what),
            RotateError::Several { .. } | RotateError::Conflict(_) => Self::Conflict(what),
            RotateError::Failed(_) => Self::Failed(what),
        }
    }
}
