//! The Secret by which fipd tells the cluster from its clones.

use super::{Found, Leftover, Marks};
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
    let object = remote.get(&target).await;
    found.take::<Option<_>>(object, (&SECRETS, &Marks::default()), true);
    found
}
