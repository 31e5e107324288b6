//! The VRFs of this host.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's messages are enums of dozens, and grow"
)]

use std::collections::BTreeMap;

use fipd_core::Text;
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoData, InfoVrf, LinkAttribute, LinkInfo, LinkMessage},
};

use super::socket::{Requests, Trouble};

/// Times that a list which changed meanwhile is read.
const AGAIN: usize = 4;

/// Their tables by their names.
pub(super) async fn vrfs(requests: &mut Requests) -> Result<BTreeMap<Text, u32>, Trouble> {
    let mut tried = 0;
    loop {
        let like = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let listed = requests.list(like).await?;
        tried += 1;
        if !listed.interrupted || tried == AGAIN {
            let links = listed.messages.iter().filter_map(|message| match message {
                RouteNetlinkMessage::NewLink(link) => vrf(link),
                _ => None,
            });
            return Ok(links.collect());
        }
    }
}

fn vrf(link: &LinkMessage) -> Option<(Text, u32)> {
    let mut name = None;
    let mut table = None;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(said) => name = Some(said.as_str().into()),
            LinkAttribute::LinkInfo(infos) => {
                table = infos.iter().find_map(|info| match info {
                    LinkInfo::Data(InfoData::Vrf(all)) => all.iter().find_map(|one| match one {
                        InfoVrf::TableId(table) => Some(*table),
                        _ => None,
                    }),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some((name?, table?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::InfoKind;

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
        assert_eq!(vrf(&link), Some(("vrf-blue".into(), 1001)));
        link.attributes.pop();
        assert_eq!(vrf(&link), None);
    }
}
