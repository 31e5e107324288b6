//! What the API server of a cluster calls fipd: whoever writes may name its field manager.

use std::{sync::OnceLock, time::Duration};

use serde_json::{Value, json};

use crate::controller::{
    client::{CallError, Remote},
    kind::Kind,
    site::Site,
};

/// How long until the API server is asked again that did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(5);

const SELF_SUBJECT_REVIEW: Kind = Kind::cluster(
    "apis/authentication.k8s.io/v1",
    "selfsubjectreviews",
    "SelfSubjectReview",
);

/// fipd's user in a cluster, once it is known; `None`: the API server does not say.
#[derive(Debug, Default)]
pub struct OwnUser(OnceLock<Option<String>>);

impl OwnUser {
    /// Asks the API server, which every user may, until it answers or the session of the site is over.
    pub async fn learn(&self, remote: &Remote, site: &Site) {
        let cancel = site.cancel();
        loop {
            match whoami(remote).await {
                Ok(user) => {
                    let _ = self.0.set(user);
                    return;
                }
                Err(CallError::Unavailable(..) | CallError::Conflict(..)) => {}
                Err(error) => {
                    tracing::info!(cluster = %site.name, %error, "the API server does not say what it calls fipd: \
                        the admission webhook knows fipd's writes by their field manager alone");
                    let _ = self.0.set(None);
                    return;
                }
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(ASK_AGAIN) => {}
            }
        }
    }

    /// Whether this is fipd, as far as the API server says. Until that is known nobody is.
    pub fn is(&self, user: &str) -> bool {
        match self.0.get() {
            None => false,
            Some(None) => true,
            Some(Some(own)) => own == user,
        }
    }
}

/// What the API server calls fipd.
pub(super) async fn whoami(remote: &Remote) -> Result<Option<String>, CallError> {
    let who = SELF_SUBJECT_REVIEW.all();
    let kind = json!({ "apiVersion": SELF_SUBJECT_REVIEW.api_version(), "kind": SELF_SUBJECT_REVIEW.kind });
    let review: Value = remote.create_seen(&who, &kind).await?;
    let user = review.pointer("/status/userInfo/username");
    Ok(user.and_then(Value::as_str).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_the_api_server_calls_otherwise_is_not_fipd() {
        for (known, fipd, other) in [
            (None, false, false),
            (Some(None), true, true),
            (Some(Some("fipd".to_owned())), true, false),
        ] {
            let user = OwnUser::default();
            if let Some(known) = known.clone() {
                user.0.set(known).unwrap();
            }
            assert_eq!(
                (user.is("fipd"), user.is("eve")),
                (fipd, other),
                "{known:?}"
            );
        }
    }
}
