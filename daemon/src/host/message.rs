//! Rules as the kernel's messages say them, and back. Pure.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's messages are enums of dozens, and grow"
)]

use std::net::IpAddr;

use data_encoding::HEXLOWER;
use fipd_core::{
    Family, Text,
    host::{FwMark, KernelRule, Rule, RuleAction},
};
use ipnet::IpNet;
use netlink_packet_core::{NlaBuffer, NlasIterator, Parseable as _};
use netlink_packet_route::{
    AddressFamily,
    route::RouteProtocol,
    rule::{RuleAction as Action, RuleAttribute, RuleFlags, RuleHeader, RuleMessage},
};

/// Length of `fib_rule_hdr` of `linux/fib_rules.h`.
const HEADER: usize = 12;
/// Of `linux/fib_rules.h`.
const FRA_IIFNAME: u16 = 3;
const FRA_OIFNAME: u16 = 17;
/// What the kernel shows where nothing is suppressed.
const SUPPRESS_NOTHING: u32 = u32::MAX;

/// Whole: what a request does not say, the kernel chooses when it adds, and takes for anything when it deletes.
pub(super) fn write(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header = RuleHeader {
        family: family_number(rule.family),
        src_len: rule.source.map_or(0, |prefix| prefix.prefix_len()),
        dst_len: rule.destination.map_or(0, |prefix| prefix.prefix_len()),
        action: match rule.action {
            RuleAction::Table(_) => Action::ToTable,
            RuleAction::Blackhole => Action::Blackhole,
            RuleAction::Unreachable => Action::Unreachable,
            RuleAction::Prohibit => Action::Prohibit,
            RuleAction::Other(number) => Action::from(number),
        },
        ..RuleHeader::default()
    };
    let name = |name: &Text| name.to_string();
    message.attributes = [
        Some(RuleAttribute::Priority(rule.priority)),
        Some(RuleAttribute::Protocol(RouteProtocol::from(rule.protocol))),
        rule.action.table().map(RuleAttribute::Table),
        said(rule.source).map(RuleAttribute::Source),
        said(rule.destination).map(RuleAttribute::Destination),
        rule.input.as_ref().map(name).map(RuleAttribute::Iifname),
        rule.output.as_ref().map(name).map(RuleAttribute::Oifname),
        rule.mark.map(|mark| RuleAttribute::FwMark(mark.value)),
        rule.mark.map(|mark| RuleAttribute::FwMask(mark.mask)),
    ]
    .into_iter()
    .flatten()
    .collect();
    message
}

/// The address of a prefix that has a length; the kernel refuses one without.
fn said(prefix: Option<IpNet>) -> Option<IpAddr> {
    let prefix = prefix.filter(|prefix| prefix.prefix_len() > 0)?;
    Some(prefix.addr())
}

pub(super) fn family_number(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

/// What a rule is deleted by, if all that it says is understood.
pub(super) fn whole(bytes: &[u8]) -> Option<RuleMessage> {
    RuleMessage::parse(bytes).ok()
}

/// Any bytes as a message of the kernel's: what is understood is written as it was read.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let _ = whole(bytes);
    if let Some(rule) = read(bytes) {
        let _ = write(&rule.rule);
    }
}

/// `None`: it is of another family. The kernel has rules for multicast routes, too. What is not understood is told as it is,
/// and makes the rule another's.
pub(super) fn read(bytes: &[u8]) -> Option<KernelRule> {
    let family = match AddressFamily::from(*bytes.first()?) {
        AddressFamily::Inet => Family::V4,
        AddressFamily::Inet6 => Family::V6,
        _ => return None,
    };
    let mut more = Vec::new();
    let header = RuleHeader::parse(bytes).unwrap_or_else(|_| {
        more.push(format!("cannot be read: {}", HEXLOWER.encode(bytes)));
        RuleHeader::default()
    });
    let header = &header;
    let mut seen = Seen {
        rule: Rule {
            source: prefix(family.address(0), header.src_len),
            destination: prefix(family.address(0), header.dst_len),
            ..Rule::any(family, RuleAction::Other(0))
        },
        table: header.table.into(),
        mark: None,
        mask: None,
    };
    let attributes = bytes.get(HEADER..).unwrap_or_default();
    for attribute in NlasIterator::new(attributes) {
        match attribute {
            Ok(attribute) => seen.read(header, &attribute, &mut more),
            Err(error) => more.push(format!("cannot be read: {error}")),
        }
    }
    let rule = Rule {
        mark: mark(seen.mark, seen.mask),
        action: action(header.action, seen.table),
        ..seen.rule
    };
    flags(header, &mut more);
    let more = (!more.is_empty()).then(|| more.join(" ").into());
    Some(KernelRule { rule, more })
}

/// With the bits of the host that it was made with: the kernel deletes it by no others.
fn prefix(address: IpAddr, length: u8) -> Option<IpNet> {
    let prefix = IpNet::new(address, length).ok();
    prefix.filter(|_| length > 0)
}

struct Seen {
    rule: Rule,
    table: u32,
    mark: Option<u32>,
    mask: Option<u32>,
}

impl Seen {
    fn read(&mut self, header: &RuleHeader, attribute: &NlaBuffer<&[u8]>, more: &mut Vec<String>) {
        match (RuleAttribute::parse(attribute), attribute.kind()) {
            (Ok(attribute), _) => self.note(header, &attribute, more),
            // The kernel takes nearly any bytes for the name of a device.
            (Err(_), FRA_IIFNAME) => more.push(format!("iif {}", name(attribute.value()))),
            (Err(_), FRA_OIFNAME) => more.push(format!("oif {}", name(attribute.value()))),
            (Err(_), kind) => {
                let value = HEXLOWER.encode(attribute.value());
                more.push(format!("attribute {kind} {value}"));
            }
        }
    }

    fn note(&mut self, header: &RuleHeader, attribute: &RuleAttribute, more: &mut Vec<String>) {
        let rule = &mut self.rule;
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) => self.table = *table,
            RuleAttribute::Protocol(protocol) => rule.protocol = u8::from(*protocol),
            RuleAttribute::Source(address) => rule.source = prefix(*address, header.src_len),
            RuleAttribute::Destination(address) => {
                rule.destination = prefix(*address, header.dst_len);
            }
            RuleAttribute::Iifname(name) => rule.input = Some(name.as_str().into()),
            RuleAttribute::Oifname(name) => rule.output = Some(name.as_str().into()),
            RuleAttribute::FwMark(mark) => self.mark = Some(*mark),
            RuleAttribute::FwMask(mask) => self.mask = Some(*mask),
            RuleAttribute::SuppressPrefixLen(SUPPRESS_NOTHING)
            | RuleAttribute::SuppressIfGroup(SUPPRESS_NOTHING)
            | RuleAttribute::L3MDev(false) => {}
            RuleAttribute::SuppressPrefixLen(length) => {
                more.push(format!("suppress_prefixlength {length}"));
            }
            RuleAttribute::SuppressIfGroup(group) => more.push(format!("suppress_ifgroup {group}")),
            RuleAttribute::Goto(target) => more.push(format!("goto {target}")),
            RuleAttribute::TunId(id) => more.push(format!("tun_id {id}")),
            RuleAttribute::L3MDev(true) => more.push("l3mdev".to_owned()),
            RuleAttribute::UidRange(range) => {
                more.push(format!("uidrange {}-{}", range.start, range.end));
            }
            RuleAttribute::IpProtocol(protocol) => {
                more.push(format!("ipproto {}", u8::from(*protocol)));
            }
            RuleAttribute::SourcePortRange(range) => {
                more.push(format!("sport {}-{}", range.start, range.end));
            }
            RuleAttribute::DestinationPortRange(range) => {
                more.push(format!("dport {}-{}", range.start, range.end));
            }
            other => more.push(attribute_text(other)),
        }
    }
}

/// One that has no name here: its number and its bytes.
fn attribute_text(attribute: &RuleAttribute) -> String {
    use netlink_packet_core::Nla as _;
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    format!("attribute {} {}", attribute.kind(), HEXLOWER.encode(&bytes))
}

fn name(bytes: &[u8]) -> String {
    let name = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    name.escape_ascii().to_string()
}

/// The kernel shows a mask of all bits for a mark that was given none.
fn mark(value: Option<u32>, mask: Option<u32>) -> Option<FwMark> {
    let (value, mask) = match (value, mask) {
        (None, None) | (None | Some(0), Some(0)) => return None,
        (Some(value), None) => (value, u32::MAX),
        (value, Some(mask)) => (value.unwrap_or(0), mask),
    };
    Some(FwMark { value, mask })
}

fn action(action: Action, table: u32) -> RuleAction {
    match action {
        Action::ToTable => RuleAction::Table(table),
        Action::Blackhole => RuleAction::Blackhole,
        Action::Unreachable => RuleAction::Unreachable,
        Action::Prohibit => RuleAction::Prohibit,
        other => RuleAction::Other(u8::from(other)),
    }
}

fn flags(header: &RuleHeader, more: &mut Vec<String>) {
    if header.tos != 0 {
        more.push(format!("tos {:#x}", header.tos));
    }
    let told = [
        (RuleFlags::Invert, "not"),
        (RuleFlags::Unresolved, "[unresolved]"),
        (RuleFlags::IifDetached, "[iif detached]"),
        (RuleFlags::OifDetached, "[oif detached]"),
    ];
    let told = told.iter().filter(|(flag, _)| header.flags.contains(*flag));
    more.extend(told.map(|(_, text)| (*text).to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{DefaultNla, Emitable as _};
    use netlink_packet_route::rule::{RulePortRange, RuleUidRange};

    fn rule(family: Family, source: &str) -> Rule {
        Rule {
            priority: 10_000,
            family,
            source: Some(source.parse().unwrap()),
            destination: None,
            input: None,
            output: None,
            mark: None,
            action: RuleAction::Table(u32::MAX),
            protocol: 200,
        }
    }

    /// Through the bytes, as the kernel has them.
    fn sent(message: &RuleMessage) -> Vec<u8> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    #[test]
    fn a_rule_comes_back_as_it_was_said() {
        let full = Rule {
            destination: Some("2001:db8:1::/48".parse().unwrap()),
            input: Some("eth0".into()),
            output: Some("vrf-blue".into()),
            mark: Some(FwMark {
                value: 0x0001_0000,
                mask: 0x00ff_0000,
            }),
            action: RuleAction::Unreachable,
            ..rule(Family::V6, "2001:db8::1/128")
        };
        let bare = Rule {
            source: None,
            action: RuleAction::Blackhole,
            ..rule(Family::V4, "10.0.0.0/8")
        };
        for rule in [rule(Family::V4, "10.96.0.1/32"), full, bare] {
            let back = read(&sent(&write(&rule)));
            assert_eq!(back, Some(KernelRule::from(rule)));
        }
    }

    #[test]
    fn a_rule_with_host_bits_is_deleted_by_the_bytes_that_were_read() {
        for (family, prefix) in [(Family::V4, "10.7.7.7/24"), (Family::V6, "2001:db8::7/64")] {
            let bytes = sent(&write(&rule(family, prefix)));
            let read = read(&bytes).unwrap();
            assert_eq!(read.rule.source, Some(prefix.parse().unwrap()));
            assert_eq!(sent(&write(&read.rule)), bytes);
        }
    }

    #[test]
    fn conformance_26_families_of_multicast_are_ignored() {
        let mut message = write(&rule(Family::V4, "10.0.0.1/32"));
        for family in [128, 129, 0] {
            message.header.family = AddressFamily::from(family);
            assert_eq!(read(&sent(&message)), None, "{family}");
        }
    }

    #[test]
    fn what_fipd_never_writes_is_told_and_makes_a_rule_not_ours() {
        let plain = write(&rule(Family::V4, "10.0.0.1/32"));
        let ports = RulePortRange { start: 80, end: 81 };
        let users = RuleUidRange { start: 0, end: 9 };
        let cases = [
            (RuleAttribute::SourcePortRange(ports), "sport 80-81"),
            (RuleAttribute::DestinationPortRange(ports), "dport 80-81"),
            (RuleAttribute::UidRange(users), "uidrange 0-9"),
            (RuleAttribute::IpProtocol(6.into()), "ipproto 6"),
            (RuleAttribute::TunId(7), "tun_id 7"),
            (RuleAttribute::L3MDev(true), "l3mdev"),
            (RuleAttribute::Goto(5), "goto 5"),
            (
                RuleAttribute::SuppressPrefixLen(0),
                "suppress_prefixlength 0",
            ),
            (RuleAttribute::SuppressIfGroup(3), "suppress_ifgroup 3"),
            (
                RuleAttribute::Other(DefaultNla::new(99, vec![1, 0xab])),
                "attribute 99 01ab",
            ),
        ];
        for (attribute, told) in cases {
            let mut message = plain.clone();
            message.attributes.push(attribute);
            let read = read(&sent(&message)).unwrap();
            assert_eq!(read.more.as_deref(), Some(told));
            assert!(!fipd_core::host::is_own(&read, 200));
        }
        let mut message = plain.clone();
        message.header.tos = 0x10;
        message.header.flags = RuleFlags::Invert | RuleFlags::IifDetached | RuleFlags::Permanent;
        let read_more = read(&sent(&message)).unwrap().more;
        assert_eq!(read_more.as_deref(), Some("tos 0x10 not [iif detached]"));
        let mut message = plain;
        let nothing = RuleAttribute::SuppressPrefixLen(u32::MAX);
        message.attributes.push(nothing);
        assert_eq!(read(&sent(&message)).unwrap().more, None);
    }

    #[test]
    fn a_rule_that_is_not_understood_is_anothers_and_says_what_it_is() {
        let plain = sent(&write(&rule(Family::V4, "10.0.0.1/32")));
        let with = |kind: u16, value: &[u8]| {
            let mut bytes = plain.clone();
            let length = u16::try_from(4 + value.len()).unwrap();
            bytes.extend(length.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let cut = [plain.as_slice(), &[200, 0, 1, 0]].concat();
        let cases = [
            (with(FRA_IIFNAME, b"eth\xff\0"), "iif eth\\xff"),
            (with(FRA_OIFNAME, b"\xfe0\0"), "oif \\xfe0"),
            (with(20, &[1, 2]), "attribute 20 0102"),
            (cut, "cannot be read: "),
        ];
        for (bytes, told) in cases {
            let read = read(&bytes).unwrap();
            let more = read.more.as_deref().unwrap();
            assert!(more.starts_with(told), "{more}");
            assert!(!fipd_core::host::is_own(&read, 200));
            assert_eq!(read.rule, rule(Family::V4, "10.0.0.1/32"));
            assert_eq!(
                whole(&bytes),
                None,
                "it cannot be deleted by what is not understood"
            );
        }
        assert!(whole(&plain).is_some());
        let read = read(&plain[..8]).unwrap();
        assert!(read.more.is_some() && read.rule.family == Family::V4);
    }

    #[test]
    fn a_mark_without_mask_has_all_bits() {
        let all = FwMark {
            value: 5,
            mask: u32::MAX,
        };
        assert_eq!(mark(Some(5), None), Some(all));
        assert_eq!(mark(Some(0), Some(0)), None);
        assert_eq!(mark(None, None), None);
        assert!(mark(Some(0), Some(0xff)).is_some(), "no bit of these");
    }
}
