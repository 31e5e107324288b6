//! Which Secrets of projects nobody needs any more.

use fipd_crds::labels::PROJECT_SECRET_PREFIX;

/// The project that a Secret of this name is of, where that has no quota.
pub fn left_by(secret: &str, has_quota: impl Fn(&str) -> bool) -> Option<&str> {
    let project = secret.strip_prefix(PROJECT_SECRET_PREFIX)?;
    (!project.is_empty() && !has_quota(project)).then_some(project)
}
