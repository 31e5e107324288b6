//! Subnets of one cluster that cannot be there at once.

use fipd_cni::attachment::LinkKind;

use super::{
    super::Wrong,
    link::{FLAG, FLAT_MODE, MODE, flag_name, mode_name},
    spans,
    subnet::{CIDR, FlatSubnet, RANGES},
};

/// The most neighbours that a message names.
const NAMED: usize = 5;

/// A neighbour that a subnet cannot be beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetClash {
    /// Its name.
    pub with: String,
    pub wrong: Wrong,
}

/// Rules S8 to S10: each other subnet of the cluster that the subnet cannot be beside. All are looked at (defect g1-9), by
/// what they say and not by labels; the subnet itself is not to be among them.
pub fn clashes<'a>(
    subnet: &FlatSubnet,
    others: impl IntoIterator<Item = (&'a str, &'a FlatSubnet)>,
) -> Vec<SubnetClash> {
    let near = |other: &FlatSubnet| other.master == subnet.master && other.vlan == subnet.vlan;
    let others = others.into_iter().filter(|(_, other)| near(other));
    let clash = |(name, other): (&'a str, &'a FlatSubnet)| {
        let wrong = mode(subnet, name, other).or_else(|| addresses(subnet, name, other))?;
        let with = name.to_owned();
        Some(SubnetClash { with, wrong })
    };
    others.filter_map(clash).collect()
}

/// Refuses a subnet that clashes. The first one is told in full, and the names of others.
///
/// # Errors
/// There are clashes.
pub fn refuse(clashes: &[SubnetClash]) -> Result<(), Wrong> {
    let Some((first, more)) = clashes.split_first() else {
        return Ok(());
    };
    let mut wrong = first.wrong.clone();
    if !more.is_empty() {
        let names = super::some(more.iter().map(|clash| &clash.with), NAMED);
        wrong
            .allowed
            .push_str(&format!("; it clashes with {names} as well"));
    }
    Err(wrong)
}

/// Rule S8: one interface has pods of one kind only. Those of ipvlan also have one mode and flag, which are of the interface in the
/// kernel: the newest pod would change them for all.
fn mode(subnet: &FlatSubnet, name: &str, other: &FlatSubnet) -> Option<Wrong> {
    let words = |of: &FlatSubnet| [of.kind.as_str(), mode_name(of.kind), flag_name(of.kind)];
    let (mine, theirs) = (words(subnet), words(other));
    let compared = match subnet.kind {
        LinkKind::Macvlan(_) => 1,
        LinkKind::Ipvlan(..) => 3,
    };
    let both = mine.into_iter().zip(theirs).zip([FLAT_MODE, MODE, FLAG]);
    let ((mine, theirs), field) = both
        .take(compared)
        .find(|((mine, theirs), _)| mine != theirs)?;
    let kind = other.kind.as_str();
    let allowed = format!(
        "{kind} subnet {name:?} is already using master iface [{}]; write {theirs}, or another master or VLAN",
        subnet.interface()
    );
    Some(Wrong::new(field, mine, allowed))
}

/// Rules S9 and S10.
fn addresses(subnet: &FlatSubnet, name: &str, other: &FlatSubnet) -> Option<Wrong> {
    let (mine, theirs) = (&subnet.cidr, &other.cidr);
    if !mine.contains(theirs) && !theirs.contains(mine) {
        return None;
    }
    let interface = subnet.interface();
    if subnet.ranges.is_empty() || other.ranges.is_empty() {
        let allowed = format!(
            "CIDR conflict: subnet {name:?} has {theirs} on {interface}, and both need ranges to share it; write ranges that do not meet, or another CIDR, master or VLAN"
        );
        return Some(Wrong::new(CIDR, &mine.to_string(), allowed));
    }
    let both = spans::intersection(&subnet.ranges, &other.ranges)?;
    let allowed = format!(
        "range conflict: subnet {name:?} has these addresses on {interface}; write ranges that do not meet its own, or another master or VLAN"
    );
    Some(Wrong::new(RANGES, &spans::text(&both), allowed))
}
