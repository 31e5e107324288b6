//! A policy-routing rule, as the kernel knows it.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{Family, Text};

/// `RTPROT_UNSPEC` of `linux/rtnetlink.h`, of rules that say of nobody who made them; a request with it takes rules of any tag.
pub const UNTAGGED: u8 = 0;
/// `RTPROT_KERNEL`: rules that the kernel made.
pub const KERNEL: u8 = 2;

/// What a rule is, whole: two that differ in any of it are two rules. They sort by priority, as the kernel looks at them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// 0 to 2^32 - 1; the least is looked at first.
    pub priority: u32,
    pub family: Family,
    /// With the host bits that it was made with, by which alone the kernel deletes it; fipd makes none with such. `None`: any.
    pub source: Option<IpNet>,
    pub destination: Option<IpNet>,
    /// Name of the interface that a packet came by.
    pub input: Option<Text>,
    /// That of a socket that is bound to one.
    pub output: Option<Text>,
    pub mark: Option<FwMark>,
    pub action: RuleAction,
    /// `FRA_PROTOCOL` of `linux/fib_rules.h`: who made it.
    pub protocol: u8,
}

impl Rule {
    /// One for all packets of a family, of nobody, at the first priority.
    pub fn any(family: Family, action: RuleAction) -> Self {
        Self {
            priority: 0,
            family,
            source: None,
            destination: None,
            input: None,
            output: None,
            mark: None,
            action,
            protocol: UNTAGGED,
        }
    }

    /// Its source, where that is one host.
    pub fn host(&self) -> Option<IpAddr> {
        self.source.filter(is_host).map(|source| source.addr())
    }

    /// Whether nothing but the source tells its packets.
    pub fn is_by_source(&self) -> bool {
        self.destination.is_none()
            && self.input.is_none()
            && self.output.is_none()
            && self.mark.is_none()
    }

    /// Whether the kernel takes `there` for what a request to delete this one is about: what the request does not say may
    /// be anything.
    pub fn may_take(&self, there: &Self) -> bool {
        fn says<T: PartialEq>(wanted: &Option<T>, there: &Option<T>) -> bool {
            wanted.is_none() || wanted == there
        }
        (self.priority, self.family, self.action) == (there.priority, there.family, there.action)
            && (self.protocol == UNTAGGED || self.protocol == there.protocol)
            && says(&self.source, &there.source)
            && says(&self.destination, &there.destination)
            && says(&self.input, &there.input)
            && says(&self.output, &there.output)
            && says(&self.mark, &there.mark)
    }
}

/// Packets whose mark has this value under the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FwMark {
    pub value: u32,
    pub mask: u32,
}

/// What becomes of a packet; the numbers are `FR_ACT_*` of `linux/fib_rules.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RuleAction {
    /// The routing table that is asked; where it has no route, the next rule is.
    Table(u32),
    Blackhole,
    Unreachable,
    Prohibit,
    /// One that fipd never writes.
    Other(u8),
}

impl RuleAction {
    /// The table that is asked, of one that asks one.
    pub fn table(self) -> Option<u32> {
        match self {
            Self::Table(table) => Some(table),
            Self::Blackhole | Self::Unreachable | Self::Prohibit | Self::Other(_) => None,
        }
    }
}

/// A rule that is in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelRule {
    pub rule: Rule,
    /// What it says beyond that, for people: ports, users, inversion. One with such is never fipd's.
    pub more: Option<Text>,
}

impl From<Rule> for KernelRule {
    fn from(rule: Rule) -> Self {
        Self { rule, more: None }
    }
}

/// As `ip rule` shows it, and `inet6` behind what no address tells the family of.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: from ", self.priority)?;
        match &self.source {
            Some(source) => write!(f, "{}", HostOrNet(source))?,
            None => f.write_str("all")?,
        }
        if let Some(destination) = &self.destination {
            write!(f, " to {}", HostOrNet(destination))?;
        }
        if let Some(mark) = &self.mark {
            write!(f, " fwmark {:#x}/{:#x}", mark.value, mark.mask)?;
        }
        if let Some(input) = &self.input {
            write!(f, " iif {input}")?;
        }
        if let Some(output) = &self.output {
            write!(f, " oif {output}")?;
        }
        match self.action {
            RuleAction::Table(table) => write!(f, " lookup {table}")?,
            RuleAction::Blackhole => f.write_str(" blackhole")?,
            RuleAction::Unreachable => f.write_str(" unreachable")?,
            RuleAction::Prohibit => f.write_str(" prohibit")?,
            RuleAction::Other(number) => write!(f, " action {number}")?,
        }
        write!(f, " proto {}", self.protocol)?;
        let told = self.source.is_some() || self.destination.is_some();
        match (told, self.family) {
            (false, Family::V6) => f.write_str(" inet6"),
            (true, _) | (false, Family::V4) => Ok(()),
        }
    }
}

impl fmt::Display for KernelRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)?;
        match &self.more {
            Some(more) => write!(f, " {more}"),
            None => Ok(()),
        }
    }
}

/// A host without the length of its prefix.
pub struct HostOrNet<'a>(pub &'a IpNet);

impl fmt::Display for HostOrNet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match is_host(self.0) {
            true => self.0.addr().fmt(f),
            false => self.0.fmt(f),
        }
    }
}

fn is_host(prefix: &IpNet) -> bool {
    prefix.prefix_len() == prefix.max_prefix_len()
}
