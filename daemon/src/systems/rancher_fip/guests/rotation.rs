//! New secrets for projects, asked for by the project alone: which Rancher has it is found out.

use std::sync::Weak;

use fipd_core::Text;
use futures::future::BoxFuture;

use crate::connected::Connected;

/// What a rotation did.
#[derive(Debug)]
pub struct Rotated {
    pub rancher: Text,
    /// Until when the secret before is accepted, RFC 3339.
    pub until: String,
}

/// Why a secret is not rotated; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error(
        "no Rancher that is connected with its cluster manager switched on has a project {0:?}"
    )]
    UnknownProject(String),
    #[error("project {project:?} is in several Ranchers: {ranchers}; nothing was changed")]
    Several { project: String, ranchers: String },
    #[error("project {0:?} has no secret yet: it gets one with its first guest")]
    NoSecret(String),
    /// Somebody else changed it meanwhile.
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Failed(String),
}

/// The cluster manager of one Rancher, as far as secrets go.
pub trait SecretRotator: Send + Sync {
    fn has_project(&self, project: &str) -> bool;
    /// Gives a project a new secret; its guests get it with their next look, which begins at once.
    fn rotate<'a>(&'a self, project: &'a str) -> BoxFuture<'a, Result<Rotated, RotateError>>;
}

/// Those of all Ranchers; cheap to clone.
#[derive(Clone, Default)]
pub struct SecretRotators(Connected<dyn SecretRotator>);

impl SecretRotators {
    /// Who rotates the secrets of a Rancher, for as long as it lives.
    pub fn set(&self, rancher: &Text, rotator: Weak<dyn SecretRotator>) {
        self.0.add(rancher, rotator);
    }

    /// Gives a project a new secret.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub async fn rotate(&self, project: &str) -> Result<Rotated, RotateError> {
        let mut found = self.0.all();
        found.retain(|(_, rotator)| rotator.has_project(project));
        match found.as_slice() {
            [] => Err(RotateError::UnknownProject(project.to_owned())),
            [(_, rotator)] => rotator.rotate(project).await,
            several => {
                let names = several.iter().map(|(rancher, _)| rancher.to_string());
                Err(RotateError::Several {
                    project: project.to_owned(),
                    ranchers: names.collect::<Vec<_>>().join(", "),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A cluster manager with one project.
    struct RotatorOf(&'static str);

    impl SecretRotator for RotatorOf {
        fn has_project(&self, project: &str) -> bool {
            project == self.0
        }

        fn rotate<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Rotated, RotateError>> {
            Box::pin(async { Err(RotateError::NoSecret("it was asked".into())) })
        }
    }

    #[tokio::test]
    async fn a_project_of_two_ranchers_is_not_rotated() {
        let rotators = SecretRotators::default();
        let both: [Arc<dyn SecretRotator>; 2] =
            [Arc::new(RotatorOf("p-1")), Arc::new(RotatorOf("p-1"))];
        rotators.set(&"a".into(), Arc::downgrade(&both[0]));
        let error = rotators.rotate("p-1").await.unwrap_err();
        assert!(matches!(error, RotateError::NoSecret(_)), "{error}");
        rotators.set(&"b".into(), Arc::downgrade(&both[1]));
        let error = rotators.rotate("p-1").await.unwrap_err().to_string();
        assert!(error.contains("a, b"), "{error}");
        let error = rotators.rotate("p-2").await.unwrap_err();
        assert!(matches!(error, RotateError::UnknownProject(_)), "{error}");
    }
}
