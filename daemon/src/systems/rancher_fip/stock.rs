//! FloatingIPs that another program of the family made for Services, by the Services that their labels name.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use super::floating_ip::observe::Fip;
use crate::controller::store::Key;

/// A Service as such a FloatingIP names it: Rancher's id of the cluster, the Service's namespace and name.
pub type User = (String, Key);

/// The index from Services to the FloatingIPs made for them. Those that we wrote are not in it.
#[derive(Default)]
pub struct Stock {
    state: Mutex<StockState>,
}

#[derive(Default)]
struct StockState {
    users: BTreeMap<Key, BTreeSet<User>>,
    made: BTreeMap<User, BTreeSet<Key>>,
}

impl Stock {
    /// Notes whom an object is for (`None`: it is gone); for whom it is or was, if that is a change.
    pub fn note(&self, key: &Key, fip: Option<&Fip>) -> BTreeSet<User> {
        let now = fip.map(users).unwrap_or_default();
        let mut state = self.state.lock();
        let before = if now.is_empty() {
            state.users.remove(key)
        } else {
            state.users.insert(key.clone(), now.clone())
        };
        let before = before.unwrap_or_default();
        if before == now {
            return BTreeSet::new();
        }
        for user in &before {
            if let Some(keys) = state.made.get_mut(user) {
                keys.remove(key);
                if keys.is_empty() {
                    state.made.remove(user);
                }
            }
        }
        for user in &now {
            let keys = state.made.entry(user.clone()).or_default();
            keys.insert(key.clone());
        }
        before.union(&now).cloned().collect()
    }

    /// The objects made for a Service of the cluster that Rancher calls so; of this name in any cluster where that is not known.
    pub fn made_for(&self, cluster: Option<&str>, service: &Key) -> BTreeSet<Key> {
        let state = self.state.lock();
        if let Some(cluster) = cluster {
            let made = state.made.get(&(cluster.to_owned(), service.clone()));
            return made.cloned().unwrap_or_default();
        }
        let made = state.made.iter().filter(|((_, one), _)| one == service);
        made.flat_map(|(_, keys)| keys.iter().cloned()).collect()
    }

    /// All objects made for Services.
    pub fn all(&self) -> Vec<Key> {
        self.state.lock().users.keys().cloned().collect()
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
    use crate::systems::rancher_fip::{floating_ip::observe::slim, names::ServiceRef};

    fn fip(services: &[&str]) -> Fip {
        let mut fip = slim(FloatingIP::default());
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
}
