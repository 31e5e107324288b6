//! Whose the guests on Harvester are, as the cluster manager found out last. It asks the Harvester clusters, so that nobody
//! who checks a call of a guest has to.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// By Rancher's id of the guest; one that is not known may be anybody's.
#[derive(Default)]
pub struct GuestHomes {
    found: Mutex<BTreeMap<String, GuestHome>>,
    /// The projects whose Secret each guest may have, as was noted before the last start.
    noted: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

/// Where a guest runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestHome {
    /// Rancher's id of the Harvester cluster.
    pub harvester: String,
    /// The project of the machines' namespace there.
    pub project: String,
}

impl GuestHomes {
    pub fn of(&self, guest: &str) -> Option<GuestHome> {
        self.found.lock().get(guest).cloned()
    }

    /// Whether one whose home is not found yet may be of this project.
    pub fn may_be_of(&self, guest: &str, project: &str) -> bool {
        let noted = self.noted.lock();
        noted
            .get(guest)
            .is_none_or(|projects| projects.contains(project))
    }

    /// What was noted of all guests.
    pub fn note(&self, noted: BTreeMap<String, BTreeSet<String>>) {
        *self.noted.lock() = noted;
    }

    pub fn set(&self, guest: &str, home: GuestHome) {
        self.found.lock().insert(guest.to_owned(), home);
    }

    pub fn forget(&self, guest: &str) {
        self.found.lock().remove(guest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_a_home_is_found_only_the_noted_projects_count() {
        let homes = GuestHomes::default();
        assert!(homes.may_be_of("c-1", "p-1"), "nobody noted anything");
        let noted = BTreeSet::from(["p-1".to_owned()]);
        homes.note(BTreeMap::from([("c-1".to_owned(), noted)]));
        assert!(homes.may_be_of("c-1", "p-1"));
        assert!(!homes.may_be_of("c-1", "p-2"));
        assert!(homes.may_be_of("c-2", "p-2"));
    }
}
