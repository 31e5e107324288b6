//! Which sources a policy is about, and which policy wins where several are.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use super::desired::Mode;
use crate::{Family, Text};

/// What an admin said: packets of what is behind these addresses go by that table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Told in conflicts; of two that are equal otherwise the lesser name wins.
    pub name: Text,
    /// Ranges of load balancer addresses.
    pub prefixes: Vec<IpNet>,
    pub source: SourceMode,
    pub way: Way,
}

/// How packets of a source go; two policies that say another one of a source are in conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub target: Target,
    /// `None`: fipd chooses.
    pub priority: Option<u32>,
    pub fail_closed: bool,
    pub mode: Mode,
}

/// Where packets go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A routing table.
    Table(u32),
    /// The table of the VRF with this device, whatever that is on a host.
    Vrf(Text),
}

/// The sources of the rules for an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceMode {
    /// The `ClusterIP` of its Service, of the same family.
    #[default]
    ClusterIp,
    /// The address itself.
    Vip,
    /// The pods behind its Service.
    Endpoints,
}

/// Something that has load balancer addresses: a Service, or the owner of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balanced {
    pub vips: Vec<IpAddr>,
    pub cluster_ips: Vec<IpAddr>,
    pub endpoints: Vec<IpAddr>,
}

/// A source that two policies would send to different places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clash {
    pub source: IpAddr,
    /// The names of the policies.
    pub winner: Text,
    pub loser: Text,
    /// One was more specific; else the names decided, and an admin should.
    pub by_length: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// With the policy of each, by its index among those given.
    pub sources: BTreeMap<IpAddr, usize>,
    pub clashes: BTreeSet<Clash>,
}

/// A claim on a source.
#[derive(Clone, Copy)]
struct SourceClaim<'p> {
    length: u8,
    number: usize,
    policy: &'p Policy,
    vip: IpAddr,
}

impl SourceClaim<'_> {
    /// The longest prefix wins, then the lesser name, then the lesser address.
    fn rank(&self) -> impl Ord {
        (Reverse(self.length), &self.policy.name, self.vip)
    }
}

/// The most specific policy of each address says where its sources go; a source of several addresses goes where the most
/// specific one of them says.
pub fn assign(policies: &[Policy], all: &[Balanced]) -> Assignment {
    let index = PolicyIndex::of(policies);
    let mut won: BTreeMap<IpAddr, SourceClaim<'_>> = BTreeMap::new();
    let mut clashes = BTreeSet::new();
    for balanced in all {
        let claims = balanced.vips.iter().flat_map(|vip| index.claims(*vip));
        for claim in claims {
            for source in sources(&claim, balanced) {
                contest(&mut won, &mut clashes, source, claim);
            }
        }
    }
    let sources = won.into_iter();
    Assignment {
        sources: sources
            .map(|(source, claim)| (source, claim.number))
            .collect(),
        clashes,
    }
}

/// Those of the family of the address, since no packet has two.
fn sources(claim: &SourceClaim<'_>, balanced: &Balanced) -> Vec<IpAddr> {
    let family = Family::of(claim.vip);
    let alike = |all: &[IpAddr]| {
        let all = all.iter().copied();
        all.filter(|one| Family::of(*one) == family).collect()
    };
    match claim.policy.source {
        SourceMode::ClusterIp => alike(&balanced.cluster_ips),
        SourceMode::Vip => vec![claim.vip],
        SourceMode::Endpoints => alike(&balanced.endpoints),
    }
}

fn contest<'p>(
    won: &mut BTreeMap<IpAddr, SourceClaim<'p>>,
    clashes: &mut BTreeSet<Clash>,
    source: IpAddr,
    claim: SourceClaim<'p>,
) {
    let before = *won.entry(source).or_insert(claim);
    let (winner, loser) = match before.rank() <= claim.rank() {
        true => (before, claim),
        false => (claim, before),
    };
    if winner.policy.way != loser.policy.way {
        clashes.insert(Clash {
            source,
            winner: Text::clone(&winner.policy.name),
            loser: Text::clone(&loser.policy.name),
            by_length: winner.length != loser.length,
        });
    }
    won.insert(source, winner);
}

/// Policies by prefix, so that an address looks at no more than one place a length.
struct PolicyIndex<'p> {
    policies: &'p [Policy],
    by_prefix: BTreeMap<IpNet, BTreeSet<usize>>,
    lengths: BTreeSet<(Family, u8)>,
}

impl<'p> PolicyIndex<'p> {
    fn of(policies: &'p [Policy]) -> Self {
        let mut by_prefix: BTreeMap<IpNet, BTreeSet<usize>> = BTreeMap::new();
        let mut lengths = BTreeSet::new();
        for (number, policy) in policies.iter().enumerate() {
            for prefix in &policy.prefixes {
                let prefix = prefix.trunc();
                lengths.insert((Family::of(prefix.addr()), prefix.prefix_len()));
                by_prefix.entry(prefix).or_default().insert(number);
            }
        }
        Self {
            policies,
            by_prefix,
            lengths,
        }
    }

    /// The policies that are about the address, the longest prefix of each.
    fn claims(&self, vip: IpAddr) -> Vec<SourceClaim<'p>> {
        let family = Family::of(vip);
        let mut seen = BTreeSet::new();
        let mut claims = Vec::new();
        for (_, length) in self.lengths.range((family, 0)..=(family, 128)).rev() {
            let prefix = IpNet::new(vip, *length).ok();
            let numbers = prefix.and_then(|prefix| self.by_prefix.get(&prefix.trunc()));
            for number in numbers.into_iter().flatten().copied() {
                let policy = self.policies.get(number).filter(|_| seen.insert(number));
                claims.extend(policy.map(|policy| SourceClaim {
                    length: *length,
                    number,
                    policy,
                    vip,
                }));
            }
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, prefixes: &[&str], table: u32) -> Policy {
        let prefixes = prefixes.iter().map(|one| one.parse().unwrap());
        Policy {
            name: name.into(),
            prefixes: prefixes.collect(),
            source: SourceMode::default(),
            way: Way {
                target: Target::Table(table),
                priority: Some(1000),
                fail_closed: false,
                mode: Mode::Auto,
            },
        }
    }

    fn ips(all: &[&str]) -> Vec<IpAddr> {
        let all = all.iter().map(|one| one.parse());
        all.map(|one| one.unwrap()).collect()
    }

    fn service(vips: &[&str], cluster_ips: &[&str], endpoints: &[&str]) -> Balanced {
        Balanced {
            vips: ips(vips),
            cluster_ips: ips(cluster_ips),
            endpoints: ips(endpoints),
        }
    }

    fn told(policies: &[Policy], all: &[Balanced]) -> Vec<String> {
        let assigned = assign(policies, all);
        let table = |number: &usize| match policies.get(*number).map(|policy| &policy.way.target) {
            Some(Target::Table(table)) => *table,
            Some(Target::Vrf(_)) | None => 0,
        };
        let sources = assigned.sources.iter();
        let sources = sources.map(|(source, one)| format!("{source} {}", table(one)));
        let clashes = assigned.clashes.iter().map(|clash| {
            let by = if clash.by_length { "length" } else { "name" };
            format!("{} over {} by {by}", clash.winner, clash.loser)
        });
        sources.chain(clashes).collect()
    }

    #[test]
    fn conformance_1_and_2_a_service_in_the_range_has_its_cluster_ip_as_source() {
        let policies = [policy("lb", &["203.0.113.7/24"], 100)];
        let inside = service(&["203.0.113.45"], &["10.96.23.17"], &[]);
        assert_eq!(told(&policies, &[inside]), ["10.96.23.17 100"]);
        let outside = service(&["203.0.114.45"], &["10.96.23.17"], &[]);
        assert!(told(&policies, &[outside]).is_empty());
        let headless = service(&["203.0.113.45"], &[], &[]);
        assert!(told(&policies, &[headless]).is_empty());
    }

    #[test]
    fn conformance_4_the_most_specific_range_wins_and_defect_5_a_source_has_one_rule() {
        let wide = policy("a-wide", &["203.0.0.0/16"], 100);
        let narrow = policy("narrow", &["203.0.113.0/24"], 200);
        let one = service(&["203.0.113.45"], &["10.96.0.1"], &[]);
        let both = [wide, narrow];
        let expected = ["10.96.0.1 200", "narrow over a-wide by length"];
        assert_eq!(told(&both, std::slice::from_ref(&one)), expected);
        let two = service(&["203.0.5.5", "203.0.113.45"], &["10.96.0.1"], &[]);
        assert_eq!(told(&both, &[two]), expected, "of two addresses, too");
        let alike = Policy {
            way: both[0].way.clone(),
            ..both[1].clone()
        };
        let same = [both[0].clone(), alike.clone()];
        assert_eq!(told(&same, std::slice::from_ref(&one)), ["10.96.0.1 100"]);
        let closed = Policy {
            way: Way {
                fail_closed: true,
                ..alike.way.clone()
            },
            ..alike
        };
        let other = told(&[both[0].clone(), closed], &[one]);
        assert_eq!(
            other.len(),
            2,
            "what happens without a route is part of the way: {other:?}"
        );
    }

    #[test]
    fn conformance_6_of_equal_ranges_the_lesser_name_wins_and_it_is_told() {
        let policies = [
            policy("b", &["203.0.113.0/24"], 200),
            policy("a", &["203.0.113.0/24"], 100),
        ];
        let one = service(&["203.0.113.45"], &["10.96.0.1"], &[]);
        let expected = ["10.96.0.1 100", "a over b by name"];
        assert_eq!(told(&policies, &[one]), expected);
    }

    #[test]
    fn conformance_8_families_are_never_crossed() {
        let policies = [policy("lb", &["203.0.113.0/24", "2001:db8::/64"], 100)];
        let dual = service(
            &["203.0.113.45", "2001:db8::1"],
            &["fd00::1", "10.96.0.1"],
            &[],
        );
        let expected = ["10.96.0.1 100", "fd00::1 100"];
        assert_eq!(told(&policies, &[dual]), expected);
        let crossed = service(&["2001:db8::1"], &["10.96.0.1"], &[]);
        assert!(told(&policies, &[crossed]).is_empty());
    }

    #[test]
    fn the_sources_are_what_the_mode_says() {
        let all = [service(
            &["203.0.113.45"],
            &["10.96.0.1"],
            &["10.42.0.5", "10.42.1.5", "fd00::5"],
        )];
        let with = |source| Policy {
            source,
            ..policy("lb", &["203.0.113.0/24"], 100)
        };
        assert_eq!(told(&[with(SourceMode::Vip)], &all), ["203.0.113.45 100"]);
        let pods = ["10.42.0.5 100", "10.42.1.5 100"];
        assert_eq!(told(&[with(SourceMode::Endpoints)], &all), pods);
    }
}
