//! What is remembered of an announcer's objects, so that one that is as it should be is not written again.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::Text;

use super::{announce::Address, originals::Place};
use crate::{controller::store::Key, systems::rancher_fip::names::ServiceRef};

/// See the module.
#[derive(Default)]
pub struct AnnouncedObjects {
    /// As last applied, by Service: the instance and its addresses.
    applied: BTreeMap<Key, (Text, Vec<Address>)>,
    /// Those of the original by address, as of the last look.
    originals: Option<BTreeMap<IpAddr, Vec<String>>>,
}

impl AnnouncedObjects {
    /// Whether the objects of this instance are as these addresses want them.
    pub fn has(&self, service: &ServiceRef, addresses: &[Address]) -> bool {
        let applied = self.applied.get(&service.key);
        applied.is_some_and(|(uid, last)| *uid == service.uid && last == addresses)
    }

    pub fn note(&mut self, service: &ServiceRef, addresses: Vec<Address>) {
        let applied = (Text::clone(&service.uid), addresses);
        self.applied.insert(service.key.clone(), applied);
    }

    /// Forgets the objects of a Service; whether there were any.
    pub fn forget(&mut self, service: &Key) -> bool {
        self.applied.remove(service).is_some()
    }

    pub fn note_originals(&mut self, originals: BTreeMap<IpAddr, Vec<String>>) {
        self.originals = Some(originals);
    }

    /// Whether the original has an object for this address under another Service's name, as far as is known.
    pub fn may_be_in_the_way(&self, service: &Key, address: IpAddr) -> bool {
        let Some(originals) = &self.originals else {
            return true;
        };
        let place = Place { service, address };
        let own = [place.name(), place.legacy()];
        let names = originals.get(&address);
        names.is_some_and(|names| names.iter().any(|name| !own.contains(name)))
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::ClusterId;

    use super::*;

    fn service(uid: &str) -> ServiceRef {
        ServiceRef {
            cluster: ClusterId("c".into()),
            key: Key::new("ns", "web"),
            uid: uid.into(),
        }
    }

    fn address(last: u8) -> Address {
        Address {
            address: [10, 0, 0, last].into(),
            name: format!("ip4-10.0.0.{last}"),
            subnet: None,
            interface: None,
        }
    }

    #[test]
    fn objects_are_written_again_for_another_instance_or_address() {
        let mut announced = AnnouncedObjects::default();
        assert!(!announced.has(&service("1"), &[]), "nothing was applied");
        announced.note(&service("1"), vec![address(5)]);
        assert!(announced.has(&service("1"), &[address(5)]));
        assert!(!announced.has(&service("2"), &[address(5)]));
        assert!(!announced.has(&service("1"), &[address(6)]));
        assert!(announced.forget(&service("1").key));
        assert!(!announced.forget(&service("1").key));
        assert!(!announced.has(&service("1"), &[address(5)]));
    }

    #[test]
    fn originals_of_other_services_are_in_the_way_and_so_they_may_be_before_the_first_look() {
        let mut announced = AnnouncedObjects::default();
        let (web, one) = (service("1").key, address(5));
        let in_the_way =
            |announced: &AnnouncedObjects| announced.may_be_in_the_way(&web, one.address);
        assert!(in_the_way(&announced), "nobody has looked");
        announced.note_originals(BTreeMap::new());
        assert!(!in_the_way(&announced));
        let place = Place {
            service: &web,
            address: one.address,
        };
        let own = vec![place.name(), place.legacy()];
        announced.note_originals(BTreeMap::from([(one.address, own)]));
        assert!(!in_the_way(&announced), "its own");
        let others = vec!["rancher-fip-ns-api".to_owned()];
        announced.note_originals(BTreeMap::from([(one.address, others)]));
        assert!(in_the_way(&announced));
    }
}
