//! Who uses what of the host. Pure.

use std::collections::BTreeMap;

use super::record::HostUse;

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
            HostUse::Vlan(_) | HostUse::Route(_) => None,
        })
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
