//! Who uses what of the host. Pure.

use std::collections::BTreeMap;

use super::{
    record::{HostUse, IpvlanUse},
    refusal::CallRefusal,
};

/// How many attachments use each thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UseCounts(BTreeMap<HostUse, usize>);

impl UseCounts {
    pub fn add(&mut self, uses: &[HostUse]) {
        for one in uses {
            *self.0.entry(one.clone()).or_default() += 1;
        }
    }

    pub fn remove(&mut self, uses: &[HostUse]) {
        for one in uses {
            if let Some(count) = self.0.get_mut(one) {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(one);
                }
            }
        }
    }

    /// What nobody uses once these uses end.
    pub fn unused_without(&self, ending: &[HostUse]) -> Vec<HostUse> {
        let mut ends = BTreeMap::<&HostUse, usize>::new();
        for one in ending {
            *ends.entry(one).or_default() += 1;
        }
        let unused = ends
            .into_iter()
            .filter(|(one, count)| self.0.get(*one) <= Some(count));
        unused.map(|(one, _)| one.clone()).collect()
    }

    /// Interfaces that have to be promiscuous.
    pub fn masters(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter_map(|one| match one {
            HostUse::Promiscuous(master) => Some(&**master),
            HostUse::Vlan(_) | HostUse::Route(_) | HostUse::Ipvlan(_) => None,
        })
    }

    /// Whether `wanted` may be there once `ending` is not.
    ///
    /// # Errors
    /// Another is attached to the interface with another mode or flag of ipvlan, which would change under it.
    pub fn check_ipvlan(&self, wanted: &[HostUse], ending: &[HostUse]) -> Result<(), CallRefusal> {
        let ipvlan = |one: &HostUse| match one {
            HostUse::Ipvlan(one) => Some(one.clone()),
            HostUse::Vlan(_) | HostUse::Promiscuous(_) | HostUse::Route(_) => None,
        };
        let unused = self.unused_without(ending);
        let used = self.0.keys().filter(|one| !unused.contains(one));
        let used: Vec<IpvlanUse> = used.filter_map(ipvlan).collect();
        for wanted in wanted.iter().filter_map(ipvlan) {
            let on_it = |one: &&IpvlanUse| one.interface == wanted.interface;
            if let Some(other) = used.iter().filter(on_it).find(|one| **one != wanted) {
                let IpvlanUse {
                    interface,
                    mode,
                    flag,
                } = other;
                return Err(CallRefusal::later(format!(
                    "containers on {interface} have ipvlan with mode {mode} and flag {flag}, and all on one interface have the same: write these, or another master or VLAN"
                )));
            }
        }
        Ok(())
    }

    /// Whether anybody uses it.
    pub fn has(&self, one: &HostUse) -> bool {
        self.0.contains_key(one)
    }

    /// How many things are used.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(name: &str) -> HostUse {
        HostUse::Promiscuous(name.into())
    }

    /// The kernel would change the mode of those that are there.
    #[test]
    fn one_interface_has_one_mode_and_flag_of_ipvlan() {
        let ipvlan = |interface: &str, mode: &str, flag: &str| {
            let [interface, mode, flag] = [interface, mode, flag].map(str::to_owned);
            [HostUse::Ipvlan(IpvlanUse {
                interface,
                mode,
                flag,
            })]
        };
        let first = ipvlan("eth0", "l2", "bridge");
        let mut counts = UseCounts::default();
        counts.add(&first);
        let check = |counts: &UseCounts, wanted: &[HostUse], ending: &[HostUse]| {
            counts.check_ipvlan(wanted, ending).map_err(|why| why.why)
        };
        assert_eq!(check(&counts, &first, &[]), Ok(()));
        let elsewhere = ipvlan("eth0.10", "l3", "bridge");
        assert_eq!(check(&counts, &elsewhere, &[]), Ok(()));
        for other in [ipvlan("eth0", "l3", "bridge"), ipvlan("eth0", "l2", "vepa")] {
            let why = check(&counts, &other, &[]).unwrap_err();
            assert!(why.contains("mode l2 and flag bridge"), "{why}");
            assert_eq!(check(&counts, &other, &first), Ok(()), "it was alone");
        }
        counts.add(&first);
        let other = ipvlan("eth0", "l3", "bridge");
        assert!(check(&counts, &other, &first).is_err(), "another has it");
    }

    #[test]
    fn the_last_user_takes_a_thing_away_and_no_other() {
        let route = HostUse::Route("10.0.0.1".parse().unwrap());
        let first = [master("eth0"), route.clone()];
        let second = [master("eth0")];
        let mut counts = UseCounts::default();
        counts.add(&first);
        counts.add(&second);
        assert_eq!(counts.len(), 2);
        assert!(counts.has(&route) && !counts.has(&master("eth1")));
        assert_eq!(counts.masters().collect::<Vec<_>>(), ["eth0"]);
        assert_eq!(counts.unused_without(&first), std::slice::from_ref(&route));
        assert_eq!(counts.unused_without(&second), []);
        let both = [&first[..], &second].concat();
        assert_eq!(counts.unused_without(&both), [master("eth0"), route]);
        counts.remove(&first);
        assert_eq!(counts.len(), 1);
        assert_eq!(counts.unused_without(&second), [master("eth0")]);
        counts.remove(&second);
        counts.remove(&second);
        assert_eq!(counts, UseCounts::default());
    }
}
