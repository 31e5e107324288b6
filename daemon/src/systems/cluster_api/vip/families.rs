//! Of which families the addresses of a Cluster are, by its networks. Pure.

use std::net::IpAddr;

use fipd_core::Family;
use ipnet::IpNet;

/// The families that the networks of a Cluster have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterFamilies {
    /// That of the first CIDR block of its Services, or of its pods where it names none of Services.
    pub first: Family,
    /// The other one, where a Cluster has both.
    pub second: Option<Family>,
}

impl ClusterFamilies {
    /// By CIDR blocks, those of Services first. What is no block counts as absent; `None`: there are none.
    pub fn of(blocks: impl Iterator<Item = impl AsRef<str>>) -> Option<Self> {
        let mut families = blocks.filter_map(|text| {
            let block: IpNet = text.as_ref().trim().parse().ok()?;
            Some(Family::of(block.addr()))
        });
        let first = families.next()?;
        Some(Self {
            first,
            second: families.find(|family| *family != first),
        })
    }

    /// The family of the second address of a role, whose first one is `first` or comes from the first family.
    pub fn beside(self, first: Option<IpAddr>) -> Option<Family> {
        let second = self.second?;
        match first.map(Family::of) {
            Some(taken) if taken == second => Some(self.first),
            Some(_) | None => Some(second),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: &str = "10.244.0.0/16";
    const SIX: &str = "fd00:96::/112";

    /// E-15: as core's `GetIPFamily` had it, but that a Cluster that says nothing may have either.
    #[test]
    fn e_15_the_networks_of_a_cluster_say_its_families() {
        use Family::{V4, V6};
        let of = |first, second| Some(ClusterFamilies { first, second });
        let cases: [(&[&str], Option<ClusterFamilies>); 8] = [
            (&[], None),
            (&["", "nonsense", "10.0.0.1"], None),
            (&[FOUR], of(V4, None)),
            (&[FOUR, "10.96.0.0/12"], of(V4, None)),
            (&[SIX, "fd00:244::/56"], of(V6, None)),
            (&[SIX, FOUR], of(V6, Some(V4))),
            (&[FOUR, SIX, FOUR], of(V4, Some(V6))),
            (&["nonsense", SIX, FOUR], of(V6, Some(V4))),
        ];
        for (blocks, expected) in cases {
            assert_eq!(ClusterFamilies::of(blocks.iter()), expected, "{blocks:?}");
        }
    }

    #[test]
    fn the_second_address_is_of_the_family_that_the_first_is_not() {
        let both = ClusterFamilies::of([SIX, FOUR].into_iter()).expect("families");
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        for (first, second) in [
            (None, Family::V4),
            (Some(ip("fd00::1")), Family::V4),
            (Some(ip("10.0.0.1")), Family::V6),
        ] {
            assert_eq!(both.beside(first), Some(second), "{first:?}");
        }
        let one = ClusterFamilies::of([FOUR].into_iter()).expect("families");
        assert_eq!(one.beside(Some(ip("fd00::1"))), None);
    }
}
