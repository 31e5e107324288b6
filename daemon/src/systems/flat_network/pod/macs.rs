//! Which addresses have a MAC on a subnet, and which MAC a pod gets that names some.

use std::collections::{BTreeMap, BTreeSet};

use super::{PodController, plan::choose_mac};
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

impl PodController {
    /// Notes which MACs an address has; whether there is such an address.
    pub(super) fn note_mac(&self, key: &Key) -> bool {
        // Read under the lock, so that nobody notes an earlier one after a later one.
        let mut index = self.mac_index.lock();
        let ip = self.ips.context.objects.get(key);
        index.note(key, ip.as_deref());
        ip.is_some()
    }

    /// The MAC that the pod gets, which nobody else gets from then on.
    pub(super) fn mac(
        &self,
        key: &Key,
        subnet: &str,
        wanted: &[String],
        ip: Option<&FlatIpView>,
    ) -> Option<String> {
        if wanted.is_empty() {
            return None;
        }
        let (mut given, index) = (self.macs.lock(), self.mac_index.lock());
        let (ips, pods) = (&self.ips.context.objects, &self.context.objects);
        // One that was given counts until its address is gone, and its pod uses it no more.
        let of_other = |mac: &str| {
            let user = given.get(&(subnet.to_owned(), mac.to_owned()));
            let mut user = user.into_iter().filter(|user| *user != key);
            let runs = |user: &Key| pods.get(user).is_some_and(|pod| !pod.finished);
            user.any(|user| ips.get(user).is_some() || runs(user))
        };
        let shows = |mac: &str| {
            let mut others = index.users(subnet, mac).filter(|other| *other != key);
            others.any(|other| ips.get(other).is_some_and(|ip| has(&ip, subnet, mac)))
        };
        let has = ip.and_then(|ip| ip.mac.as_deref().or(Some(&*ip.status.mac)));
        let chosen = choose_mac(wanted, has, |mac| of_other(mac) || shows(mac))?;
        given.insert((subnet.to_owned(), chosen.clone()), key.clone());
        Some(chosen)
    }

    /// The address that shows the MAC.
    pub fn mac_user(&self, subnet: &str, mac: &str) -> Option<Key> {
        let (ips, index) = (&self.ips.context.objects, self.mac_index.lock());
        let shows = |ip: &FlatIpView| ip.spec.subnet == subnet && ip.status.mac == mac;
        let mut users = index.users(subnet, mac);
        let user = users.find(|key| ips.get(key).is_some_and(|ip| shows(&ip)));
        user.cloned()
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
