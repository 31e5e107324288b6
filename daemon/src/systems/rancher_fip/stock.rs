//! FloatingIPs that another program of the family made for Services, by the Services that their labels name.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use super::floating_ip::observe::Fip;
use crate::controller::store::Key;

/// A Service as such a FloatingIP names it: Rancher's id of the cluster, the Service's namespace and name.
pub type User = (String, Key);

/// FloatingIPs by the Services that they are for.
pub struct FipIndex<U>(Mutex<IndexState<U>>);

struct IndexState<U> {
    users: BTreeMap<Key, BTreeSet<U>>,
    fips: BTreeMap<U, BTreeSet<Key>>,
}

impl<U> Default for FipIndex<U> {
    fn default() -> Self {
        Self(Mutex::new(IndexState {
            users: BTreeMap::new(),
            fips: BTreeMap::new(),
        }))
    }
}

impl<U: Ord + Clone> FipIndex<U> {
    /// Notes whom an object is for (nobody: it is gone); for whom it is or was, if that is a change.
    pub fn note(&self, key: &Key, now: BTreeSet<U>) -> BTreeSet<U> {
        let mut state = self.0.lock();
        let before = if now.is_empty() {
            state.users.remove(key)
        } else {
            state.users.insert(key.clone(), now.clone())
        };
        let before = before.unwrap_or_default();
        if before == now {
            return BTreeSet::new();
        }
        for user in before.difference(&now) {
            if let Some(keys) = state.fips.get_mut(user) {
                keys.remove(key);
                if keys.is_empty() {
                    state.fips.remove(user);
                }
            }
        }
        for user in &now {
            let keys = state.fips.entry(user.clone()).or_default();
            keys.insert(key.clone());
        }
        before.union(&now).cloned().collect()
    }

    /// The objects that are for this one.
    pub fn of(&self, user: &U) -> BTreeSet<Key> {
        self.0.lock().fips.get(user).cloned().unwrap_or_default()
    }
}

/// The index from Services to the FloatingIPs made for them. Those that we wrote are not in it.
#[derive(Default)]
pub struct Stock(FipIndex<User>);

impl Stock {
    /// Notes whom an object is for (`None`: it is gone); for whom it is or was, if that is a change.
    pub fn note(&self, key: &Key, fip: Option<&Fip>) -> BTreeSet<User> {
        self.0.note(key, fip.map(users).unwrap_or_default())
    }

    /// The objects made for a Service of the cluster that Rancher calls so; of this name in any cluster where that is not known.
    pub fn made_for(&self, cluster: Option<&str>, service: &Key) -> BTreeSet<Key> {
        if let Some(cluster) = cluster {
            return self.0.of(&(cluster.to_owned(), service.clone()));
        }
        let state = self.0.0.lock();
        let made = state.fips.iter().filter(|((_, one), _)| one == service);
        made.flat_map(|(_, keys)| keys.iter().cloned()).collect()
    }

    /// All objects made for Services.
    pub fn all(&self) -> Vec<Key> {
        self.0.0.lock().users.keys().cloned().collect()
    }
}

fn users(fip: &Fip) -> BTreeSet<User> {
    let Some(cluster) = fip.cluster.as_ref().filter(|_| fip.holder.is_none()) else {
        return BTreeSet::new();
    };
    let keys = fip.services.iter();
    let keys = keys.map(|one| Key::new(&one.service_namespace, &one.service_name));
    keys.map(|key| (cluster.clone(), key)).collect()
}

#[cfg(test)]
mod tests {
    use fipd_crds::floating_ip::{FloatingIP, ServiceRef as Assignee};

    use super::*;
    use crate::systems::rancher_fip::{floating_ip::observe::view, names::ServiceRef};

    fn fip(services: &[&str]) -> Fip {
        let mut fip = view(FloatingIP::default());
        fip.cluster = Some("c-m-a".into());
        let assignee = |name: &&str| Assignee {
            service_namespace: "ns".into(),
            service_name: (*name).into(),
        };
        fip.services = services.iter().map(assignee).collect();
        fip
    }

    #[test]
    fn services_find_what_was_made_for_them_until_it_changes() {
        let (stock, key) = (Stock::default(), Key::new("c-m-h", "fip-abc12"));
        let made = |name: &str| stock.made_for(Some("c-m-a"), &Key::new("ns", name)).len();
        stock.note(&key, Some(&fip(&["web", "api"])));
        assert_eq!((made("web"), made("api")), (1, 1));
        assert!(
            stock
                .made_for(Some("c-m-b"), &Key::new("ns", "web"))
                .is_empty()
        );
        let told = stock.note(&key, Some(&fip(&["web"])));
        assert_eq!(told.len(), 2, "who has it and who had it");
        assert!(stock.note(&key, Some(&fip(&["web"]))).is_empty());
        assert_eq!((made("web"), made("api")), (1, 0));
        assert_eq!(stock.made_for(None, &Key::new("ns", "web")).len(), 1);
        let taken = Fip {
            holder: ServiceRef::parse("Service/c/ns/web/u"),
            ..fip(&["web"])
        };
        stock.note(&key, Some(&taken));
        assert_eq!(made("web"), 0);
        stock.note(&key, Some(&fip(&["web"])));
        stock.note(&key, None);
        assert_eq!(made("web"), 0);
    }

    #[test]
    fn an_object_stays_where_it_is_for_the_same_as_before() {
        let (index, key) = (FipIndex::default(), Key::new("c-m-a", "fip-1"));
        let note = |users: &[&'static str]| index.note(&key, users.iter().copied().collect());
        assert_eq!(note(&["web"]).len(), 1);
        // Another instance of the Service has the same place.
        assert!(note(&["web"]).is_empty());
        assert!(index.of(&"web").contains(&key));
        assert_eq!(note(&["web", "api"]).len(), 2);
        assert!(index.of(&"web").contains(&key) && index.of(&"api").contains(&key));
        note(&["api"]);
        assert!(index.of(&"web").is_empty() && index.of(&"api").contains(&key));
    }
}
