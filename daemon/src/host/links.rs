//! The VRFs of this host.

use std::{collections::BTreeMap, ops::ControlFlow};

use fipd_core::Text;
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoData, InfoKind, InfoVrf, LinkAttribute, LinkInfo, LinkMessage},
};

use super::{listing, socket::NetlinkError};

/// Times that a list which changed meanwhile is read.
const AGAIN: usize = 4;

/// Their tables by their names.
pub(super) async fn vrfs() -> Result<BTreeMap<Text, u32>, NetlinkError> {
    let mut tried = 0;
    loop {
        let mut vrfs = BTreeMap::new();
        let read = |message| {
            if let RouteNetlinkMessage::NewLink(link) = message {
                vrfs.extend(vrf(link));
            }
            ControlFlow::Continue(())
        };
        let interrupted = listing::list(RouteNetlinkMessage::GetLink(like()), read).await?;
        tried += 1;
        if !interrupted || tried == AGAIN {
            return Ok(vrfs);
        }
    }
}

/// Has the kernel list VRFs only; one that knows no VRFs lists all.
fn like() -> LinkMessage {
    let mut like = LinkMessage::default();
    let kind = LinkInfo::Kind(InfoKind::Vrf);
    like.attributes.push(LinkAttribute::LinkInfo(vec![kind]));
    like
}

fn vrf(link: LinkMessage) -> Option<(Text, u32)> {
    let (mut name, mut table) = (None, None);
    for attribute in link.attributes {
        if let LinkAttribute::IfName(text) = attribute {
            name = Some(text.into());
        } else if let LinkAttribute::LinkInfo(info) = attribute {
            table = info.iter().find_map(vrf_table);
        }
    }
    Some((name?, table?))
}

fn vrf_table(info: &LinkInfo) -> Option<u32> {
    let LinkInfo::Data(InfoData::Vrf(data)) = info else {
        return None;
    };
    data.iter().find_map(|one| {
        let InfoVrf::TableId(table) = one else {
            return None;
        };
        Some(*table)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vrf_is_told_with_its_table_and_other_links_are_not() {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfAlias("blue".to_owned()),
            LinkAttribute::IfName("vrf-blue".to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vrf),
                LinkInfo::Data(InfoData::Vrf(vec![InfoVrf::TableId(1001)])),
            ]),
        ];
        assert_eq!(vrf(link.clone()), Some(("vrf-blue".into(), 1001)));
        link.attributes.pop();
        assert_eq!(vrf(link), None);
        assert_eq!(vrf(LinkMessage::default()), None);
    }

    #[tokio::test]
    async fn the_kernel_lists_vrfs_only_and_fipd_asks_as_it_accepts() {
        assert!(vrfs().await.is_ok());
    }
}
