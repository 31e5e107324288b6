//! Which addresses have a MAC on a subnet, for who looks for one that nobody has.

use std::collections::{BTreeMap, BTreeSet};

use crate::{controller::store::Key, systems::flat_network::ip::FlatIpView};

/// Subnet and MAC.
type MacPlace = (String, String);

/// See the module. It follows the addresses as they are known; who needs certainty looks at those that it names.
#[derive(Debug, Default)]
pub struct MacIndex {
    places: BTreeMap<Key, Vec<MacPlace>>,
    users: BTreeMap<MacPlace, BTreeSet<Key>>,
}

impl MacIndex {
    /// Notes what an address has, or that it is gone.
    pub fn note(&mut self, key: &Key, ip: Option<&FlatIpView>) {
        let now = ip.map(places).unwrap_or_default();
        if self.places.get(key).is_some_and(|before| *before == now) {
            return;
        }
        for place in self.places.remove(key).into_iter().flatten() {
            if let Some(users) = self.users.get_mut(&place) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(&place);
                }
            }
        }
        for place in &now {
            let users = self.users.entry(place.clone()).or_default();
            users.insert(key.clone());
        }
        if !now.is_empty() {
            self.places.insert(key.clone(), now);
        }
    }

    /// The addresses that have this MAC on this subnet, or are to have it.
    pub fn users(&self, subnet: &str, mac: &str) -> impl Iterator<Item = &Key> {
        let place = (subnet.to_owned(), mac.to_owned());
        self.users.get(&place).into_iter().flatten()
    }
}

/// Whether an address has the MAC on the subnet, or is to have it.
pub fn has(ip: &FlatIpView, subnet: &str, mac: &str) -> bool {
    ip.spec.subnet == subnet && (ip.mac.as_deref() == Some(mac) || ip.status.mac == mac)
}

fn places(ip: &FlatIpView) -> Vec<MacPlace> {
    let shown = Some(&ip.status.mac).filter(|mac| !mac.is_empty());
    let all = ip.mac.iter().chain(shown);
    all.map(|mac| (ip.spec.subnet.clone(), mac.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use fipd_crds::flat_network::FlatNetworkIP;
    use serde_json::json;

    use super::*;
    use crate::systems::flat_network::names::CHOSEN_MAC;

    fn ip(subnet: &str, chosen: &str, shown: &str) -> FlatIpView {
        let object = json!({
            "metadata": { "name": "a", "annotations": { CHOSEN_MAC: chosen } },
            "spec": { "subnet": subnet },
            "status": { "mac": shown },
        });
        let object: FlatNetworkIP = serde_json::from_value(object).expect("an address");
        FlatIpView::of(object)
    }

    #[test]
    fn a_mac_is_found_by_its_subnet_until_its_address_has_another_or_goes() {
        let mut index = MacIndex::default();
        let (one, other) = (Key::new("ns", "one"), Key::new("ns", "other"));
        let view = ip("blue", "m1", "m2");
        assert!(has(&view, "blue", "m1") && has(&view, "blue", "m2"));
        assert!(!has(&view, "red", "m1") && !has(&view, "blue", "m3"));
        index.note(&one, Some(&view));
        index.note(&other, Some(&ip("red", "m1", "m1")));
        let users = |index: &MacIndex, subnet: &str, mac: &str| -> Vec<Key> {
            index.users(subnet, mac).cloned().collect()
        };
        assert_eq!(users(&index, "blue", "m1"), std::slice::from_ref(&one));
        assert_eq!(users(&index, "blue", "m2"), std::slice::from_ref(&one));
        assert_eq!(users(&index, "red", "m1"), std::slice::from_ref(&other));
        index.note(&one, Some(&ip("blue", "", "m3")));
        assert!(users(&index, "blue", "m1").is_empty());
        assert_eq!(users(&index, "blue", "m3"), std::slice::from_ref(&one));
        index.note(&one, Some(&ip("blue", "", "")));
        index.note(&other, None);
        assert!(index.places.is_empty() && index.users.is_empty());
    }
}
