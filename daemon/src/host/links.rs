//! The VRFs of this host.
//!
//! Of a link only what is needed is read: its alias, for one, may be any bytes.

use std::collections::BTreeMap;

use fipd_core::Text;
use netlink_packet_core::NlasIterator;
use netlink_packet_route::{RouteNetlinkMessage, link::LinkMessage};
use nix::libc::{IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, RTM_NEWLINK};

use super::socket::{Requests, Trouble};

/// Length of `ifinfomsg` of `linux/rtnetlink.h`.
const HEADER: usize = 16;
/// Of `linux/if_link.h`.
const IFLA_VRF_TABLE: u16 = 1;
/// Times that a list which changed meanwhile is read.
const AGAIN: usize = 4;

/// Their tables by their names.
pub(super) async fn vrfs(requests: &mut Requests) -> Result<BTreeMap<Text, u32>, Trouble> {
    let mut tried = 0;
    loop {
        let like = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut vrfs = BTreeMap::new();
        let read = |kind, link: &[u8]| {
            if kind == RTM_NEWLINK {
                vrfs.extend(vrf(link));
            }
        };
        let interrupted = requests.list(like, read).await?;
        tried += 1;
        if !interrupted || tried == AGAIN {
            return Ok(vrfs);
        }
    }
}

fn vrf(link: &[u8]) -> Option<(Text, u32)> {
    let attributes = link.get(HEADER..)?;
    let info = value(attributes, IFLA_LINKINFO)?;
    if !value(info, IFLA_INFO_KIND)?.starts_with(b"vrf\0") {
        return None;
    }
    let table = value(value(info, IFLA_INFO_DATA)?, IFLA_VRF_TABLE)?;
    let table = u32::from_ne_bytes(*table.first_chunk()?);
    let name = value(attributes, IFLA_IFNAME)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    Some((String::from_utf8_lossy(name).as_ref().into(), table))
}

/// That of the first attribute of this kind.
fn value(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = NlasIterator::new(attributes).map_while(Result::ok);
    let found = all.find(|one| one.kind() == kind)?;
    let end = 4 + found.value_length();
    found.into_inner().get(4..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::Emitable as _;
    use netlink_packet_route::link::{InfoData, InfoKind, InfoVrf, LinkAttribute, LinkInfo};

    fn sent(link: &LinkMessage) -> Vec<u8> {
        let mut bytes = vec![0; link.buffer_len()];
        link.emit(&mut bytes);
        bytes
    }

    #[test]
    fn a_vrf_is_told_with_its_table_and_other_links_are_not() {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName("vrf-blue".to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vrf),
                LinkInfo::Data(InfoData::Vrf(vec![InfoVrf::TableId(1001)])),
            ]),
        ];
        let mut bytes = sent(&link);
        assert_eq!(vrf(&bytes), Some(("vrf-blue".into(), 1001)));
        let alias = [8_u16.to_ne_bytes(), 20_u16.to_ne_bytes()].concat();
        bytes.splice(16..16, alias.into_iter().chain([0xff, 0xfe, 0xfd, 0]));
        assert_eq!(vrf(&bytes), Some(("vrf-blue".into(), 1001)));
        let name = bytes.windows(8).position(|all| all == b"vrf-blue").unwrap();
        bytes[name] = 0xff;
        assert_eq!(vrf(&bytes), Some(("\u{fffd}rf-blue".into(), 1001)));
        link.attributes.pop();
        assert_eq!(vrf(&sent(&link)), None);
        assert_eq!(vrf(&[1, 2]), None);
    }
}
