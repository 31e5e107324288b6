//! The Secret by which fipd tells the cluster from its clones.

use serde_json::Value;

use super::{Found, Leftover, Marks, object};
use crate::{
    clusters::{ClusterSession, identity::secret as identity_secret},
    controller::{client::Remote, kind::SECRET},
};

const SECRETS: Leftover = Leftover {
    own: true,
    listed: None,
    ..Leftover::of(SECRET, |_| true)
};

/// It goes where fipd knows one; the last thing that does, for until then it proves that this is the cluster.
pub(super) async fn steps(session: &ClusterSession, remote: &Remote) -> Found {
    let mut found = Found::default();
    let Some(namespace) = session.identity_namespace() else {
        return found;
    };
    let target = SECRET.named(namespace, identity_secret::NAME);
    let object: Result<Option<Value>, _> = remote.get(&target).await;
    match object {
        Ok(object) => {
            let steps = object
                .iter()
                .flat_map(|object| object::steps(&SECRETS, object, &Marks::default()));
            found.steps.extend(steps);
        }
        Err(error) => found.missed(SECRET.kind, &error, true),
    }
    found
}
