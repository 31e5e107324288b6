//! What is shown of sightings, and the conditions of the cluster that come of them.

use std::sync::Arc;

use fipd_core::{Identity, Lease, LeaseKey, Text};

use super::{
    kept::{self, Kept},
    list::{CHUNK, SightingList, Users},
    stage::Stages,
};
use crate::{
    clock,
    clusters::{ClusterSession, SightingView, SightingsView},
};

/// Reported addresses that are shown one by one.
pub const EXAMPLES: usize = 20;
/// The part of a cluster that is not in order where fipd may not look.
pub const RIGHTS: &str = "sightings-rights";
/// The same where Services show too many addresses.
pub const LIMIT: &str = "sightings-limit";
/// The same where addresses that others use are not kept for them.
pub const REPORTED: &str = "sightings-reported";

/// Shows whether fipd may list Services.
pub fn rights(session: &ClusterSession, forbidden: bool) {
    let why = "fipd may not list Services here, so that it does not know which addresses of its pools others use: apply the role \
               of packaging/rbac for this cluster again, or add apiGroups: [\"\"], resources: [services], verbs: [list]; or \
               set sightings = \"off\"";
    session.troubled(RIGHTS, forbidden.then(|| why.into()));
}

/// Shows whether Services show more addresses than fipd looks at.
pub fn limit(session: &ClusterSession, exceeded: Option<usize>) {
    let why = exceeded.map(|most| {
        format!(
            "Services of other load balancers show more than {most} addresses here: what they have stays with them, and nothing more is \
             held or reported; see limits.md"
        )
    });
    session.troubled(LIMIT, why.map(Into::into));
}

/// Shows what one list amounts to, before it is adopted.
pub fn show(
    session: &ClusterSession,
    list: &SightingList,
    kept: &Kept,
    stages: &Stages,
    users: &Users,
) {
    let (mut held, mut contended) = (kept::keys(&kept.held), kept::keys(&kept.contended));
    for one in &list.moot {
        contended.remove(&one.key);
    }
    let of_other = |lease: &Arc<Lease>| {
        let mut members = lease.members.iter();
        match lease.members.is_empty() {
            // Of a prefix that cools nobody gets anything before that ends.
            true => !lease.prefix().is_address(),
            false => !members.any(|one| kept::is_of(&one.holder, &session.id)),
        }
    };
    let new: Vec<LeaseKey> = (list.adopt.iter())
        .flat_map(|sighting| sighting.uses.iter().map(|used| used.key))
        .collect();
    for some in new.chunks(CHUNK) {
        session.ipam.read(|ledger| {
            for key in some {
                // The others are counted by the keys of their leases.
                let lease = ledger.lease_around(*key);
                let place = lease.map_or(*key, |lease| lease.key);
                match lease.is_some_and(of_other) {
                    true => contended.insert(place),
                    false => held.insert(place),
                };
            }
        });
    }
    let example = |key: &LeaseKey| {
        let (pool, users) = users.get(key)?;
        let Identity {
            namespace, name, ..
        } = &users.first()?.holder.identity;
        Some(SightingView {
            address: key.address,
            pool: Text::clone(&pool.spec.name),
            service: format!("{namespace}/{name}").into(),
        })
    };
    let reported = list.reported.iter();
    let view = SightingsView {
        held: held.len(),
        contended: contended.len(),
        examples: reported.filter_map(example).take(EXAMPLES).collect(),
        waiting: Arc::new(list.reported.clone()),
        preview_until: stages.preview_until(),
    };
    session.troubled(REPORTED, condition(&session.name, &view));
    session.show_sightings(view);
}

/// What waits for an admin; `None`: nothing.
fn condition(cluster: &str, view: &SightingsView) -> Option<Text> {
    let count = view.waiting.len();
    let next = format!("`fipd clusters confirm-sightings {cluster}` keeps them");
    let text = match view.preview_until {
        _ if count == 0 => return None,
        Some(end) => format!(
            "Services of other load balancers show {count} addresses of fipd's pools; after the upgrade they are only reported until \
             {}, {next} at once",
            clock::rfc3339(end)
        ),
        None => format!(
            "Services of other load balancers show {count} addresses of fipd's pools that are not kept for them and may be \
             allocated to others; {next}"
        ),
    };
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fipd_core::{Timestamp, testing};

    use super::*;

    #[test]
    fn the_condition_names_the_command_and_the_end_of_the_preview() {
        let key = testing::key([10, 60, 0, 1]);
        let mut view = SightingsView {
            waiting: Arc::new(BTreeSet::from([key])),
            ..SightingsView::default()
        };
        let text = condition("edge", &view).expect("a condition");
        assert!(text.contains("`fipd clusters confirm-sightings edge`"));
        view.preview_until = Some(Timestamp(0));
        let text = condition("edge", &view).expect("a condition");
        assert!(text.contains("until 1970-01-01T00:00:00"), "{text}");
        view.waiting = Arc::default();
        assert_eq!(condition("edge", &view), None);
    }
}
