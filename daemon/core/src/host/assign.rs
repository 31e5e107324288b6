//! Which sources a policy is about, and which policy wins where several are.

use std::{
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
    pub name: Text,
    pub vips: Vec<IpAddr>,
    pub cluster_ips: Vec<IpAddr>,
    pub endpoints: Vec<IpAddr>,
}

/// Why a source has a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReason {
    /// Its index among those given.
    pub policy: usize,
    pub vip: IpAddr,
    pub balanced: Text,
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
    pub sources: BTreeMap<IpAddr, SourceReason>,
    pub clashes: BTreeSet<Clash>,
}

/// A claim on a source: the longest prefix wins, then the lesser name, then the lesser address.
#[derive(Clone)]
struct SourceClaim {
    length: u8,
    assigned: SourceReason,
}

/// The most specific policy of each address says where its sources go; a source of several addresses goes where the most
/// specific one of them says.
pub fn assign(policies: &[Policy], all: &[Balanced]) -> Assignment {
    let index = PolicyIndex::of(policies);
    let mut won: BTreeMap<IpAddr, SourceClaim> = BTreeMap::new();
    let mut clashes = BTreeSet::new();
    for balanced in all {
        for vip in &balanced.vips {
            for claim in index.claims(*vip, &balanced.name) {
                let Some(policy) = policies.get(claim.assigned.policy) else {
                    continue;
                };
                for source in sources(policy.source, *vip, balanced) {
                    contest(policies, &mut won, &mut clashes, source, &claim);
                }
            }
        }
    }
    let sources = won.into_iter();
    Assignment {
        sources: sources
            .map(|(source, claim)| (source, claim.assigned))
            .collect(),
        clashes,
    }
}

/// Those of the family of the address, since no packet has two.
fn sources(mode: SourceMode, vip: IpAddr, balanced: &Balanced) -> Vec<IpAddr> {
    let family = Family::of(vip);
    let alike = |all: &[IpAddr]| {
        let all = all.iter().copied();
        all.filter(|one| Family::of(*one) == family).collect()
    };
    match mode {
        SourceMode::ClusterIp => alike(&balanced.cluster_ips),
        SourceMode::Vip => vec![vip],
        SourceMode::Endpoints => alike(&balanced.endpoints),
    }
}

fn contest(
    policies: &[Policy],
    won: &mut BTreeMap<IpAddr, SourceClaim>,
    clashes: &mut BTreeSet<Clash>,
    source: IpAddr,
    claim: &SourceClaim,
) {
    let Some(before) = won.get(&source) else {
        won.insert(source, claim.clone());
        return;
    };
    let policy = |claim: &SourceClaim| policies.get(claim.assigned.policy);
    let (Some(one), Some(other)) = (policy(before), policy(claim)) else {
        return;
    };
    let rank = |claim: &SourceClaim, policy: &Policy| {
        (
            std::cmp::Reverse(claim.length),
            Text::clone(&policy.name),
            claim.assigned.vip,
        )
    };
    let stays = rank(before, one) <= rank(claim, other);
    let (winner, loser) = if stays { (one, other) } else { (other, one) };
    if one.way != other.way {
        clashes.insert(Clash {
            source,
            winner: Text::clone(&winner.name),
            loser: Text::clone(&loser.name),
            by_length: before.length != claim.length,
        });
    }
    if !stays {
        won.insert(source, claim.clone());
    }
}

/// Policies by prefix, so that an address looks at no more than one place a length.
struct PolicyIndex {
    by_prefix: BTreeMap<IpNet, Vec<usize>>,
    lengths: BTreeSet<(Family, u8)>,
}

impl PolicyIndex {
    fn of(policies: &[Policy]) -> Self {
        let mut by_prefix: BTreeMap<IpNet, Vec<usize>> = BTreeMap::new();
        let mut lengths = BTreeSet::new();
        for (number, policy) in policies.iter().enumerate() {
            for prefix in &policy.prefixes {
                let prefix = prefix.trunc();
                lengths.insert((Family::of(prefix.addr()), prefix.prefix_len()));
                let there = by_prefix.entry(prefix).or_default();
                if there.last() != Some(&number) {
                    there.push(number);
                }
            }
        }
        Self { by_prefix, lengths }
    }

    /// The policies that are about the address, the longest prefix of each.
    fn claims(&self, vip: IpAddr, balanced: &Text) -> Vec<SourceClaim> {
        let family = Family::of(vip);
        let mut seen = BTreeSet::new();
        let mut claims = Vec::new();
        for (_, length) in self.lengths.range((family, 0)..=(family, 128)).rev() {
            let Ok(prefix) = IpNet::new(vip, *length) else {
                continue;
            };
            let policies = self.by_prefix.get(&prefix.trunc());
            for policy in policies.into_iter().flatten() {
                if seen.insert(*policy) {
                    let balanced = Text::clone(balanced);
                    claims.push(SourceClaim {
                        length: *length,
                        assigned: SourceReason {
                            policy: *policy,
                            vip,
                            balanced,
                        },
                    });
                }
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
            name: "shop/web".into(),
            vips: ips(vips),
            cluster_ips: ips(cluster_ips),
            endpoints: ips(endpoints),
        }
    }

    fn told(policies: &[Policy], all: &[Balanced]) -> Vec<String> {
        let assigned = assign(policies, all);
        let table =
            |one: &SourceReason| match policies.get(one.policy).map(|policy| &policy.way.target) {
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
