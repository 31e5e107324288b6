//! The interface of a subnet on the nodes, and how pods share it.

use fipd_cni::attachment::{IpvlanFlag, IpvlanMode, LinkKind, MacvlanMode};
use fipd_crds::flat_network::FlatNetworkSubnetSpec;

use super::{super::Wrong, labels};

pub(super) const FLAT_MODE: &str = "spec.flatMode";
pub(super) const MASTER: &str = "spec.master";
pub(super) const VLAN: &str = "spec.vlan";
pub(super) const MODE: &str = "spec.mode";
pub(super) const FLAG: &str = "spec.ipvlanFlag";

/// The longest name of an interface, in bytes.
const INTERFACE: usize = 15;
const HIGHEST_VLAN: u16 = 4094;

/// The first counts where nothing is said.
const MACVLAN_MODES: [(&str, MacvlanMode); 4] = [
    ("bridge", MacvlanMode::Bridge),
    ("vepa", MacvlanMode::Vepa),
    ("private", MacvlanMode::Private),
    ("passthru", MacvlanMode::Passthru),
];
const IPVLAN_MODES: [(&str, IpvlanMode); 3] = [
    ("l2", IpvlanMode::L2),
    ("l3", IpvlanMode::L3),
    ("l3s", IpvlanMode::L3s),
];
const IPVLAN_FLAGS: [(&str, IpvlanFlag); 3] = [
    ("bridge", IpvlanFlag::Bridge),
    ("private", IpvlanFlag::Private),
    ("vepa", IpvlanFlag::Vepa),
];

/// How the interfaces of pods are made: rules S1, S6 and S7.
pub fn kind(spec: &FlatNetworkSubnetSpec) -> Result<LinkKind, Wrong> {
    match spec.flat_mode.as_str() {
        "macvlan" => {
            let mode = choice(MODE, &spec.mode, &MACVLAN_MODES, "macvlan")?;
            if !spec.ipvlan_flag.is_empty() {
                let allowed = "it must be empty: flatMode is macvlan, which has no flags";
                return Err(Wrong::new(FLAG, &spec.ipvlan_flag, allowed));
            }
            Ok(LinkKind::Macvlan(mode))
        }
        "ipvlan" => Ok(LinkKind::Ipvlan(
            choice(MODE, &spec.mode, &IPVLAN_MODES, "ipvlan")?,
            choice(FLAG, &spec.ipvlan_flag, &IPVLAN_FLAGS, "ipvlan")?,
        )),
        other => {
            let allowed = "unrecognized subnet flatMode: write macvlan or ipvlan";
            Err(Wrong::new(FLAT_MODE, other, allowed))
        }
    }
}

/// The value of `spec.mode` that means this, never empty.
pub fn mode_name(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Macvlan(mode) => name_of(&MACVLAN_MODES, mode),
        LinkKind::Ipvlan(mode, _) => name_of(&IPVLAN_MODES, mode),
    }
}

/// The same of `spec.ipvlanFlag`; empty for macvlan, which has none.
pub fn flag_name(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Macvlan(_) => "",
        LinkKind::Ipvlan(_, flag) => name_of(&IPVLAN_FLAGS, flag),
    }
}

fn choice<T: Copy>(
    field: &str,
    text: &str,
    choices: &[(&'static str, T)],
    of: &str,
) -> Result<T, Wrong> {
    let mut all = choices.iter();
    let found = match text {
        "" => all.next(),
        _ => all.find(|(name, _)| *name == text),
    };
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let allowed = format!(
            "flatMode {of} has {}; write one of these, or nothing for the first",
            names.join(", ")
        );
        Wrong::new(field, text, allowed)
    })
}

fn name_of<T: Copy + PartialEq>(choices: &[(&'static str, T)], value: T) -> &'static str {
    let found = choices.iter().find(|(_, one)| *one == value);
    found.map_or("", |(name, _)| name)
}

/// The VLAN on the master; 0: none.
pub(super) fn vlan(spec: &FlatNetworkSubnetSpec) -> Result<u16, Wrong> {
    let vlan = u16::try_from(spec.vlan).ok();
    vlan.filter(|vlan| *vlan <= HIGHEST_VLAN).ok_or_else(|| {
        let allowed = format!("it must be 1 to {HIGHEST_VLAN}, or 0 for no VLAN");
        Wrong::new(VLAN, &spec.vlan.to_string(), allowed)
    })
}

/// The interface of the nodes.
pub(super) fn master(spec: &FlatNetworkSubnetSpec) -> Result<String, Wrong> {
    let master = spec.master.as_str();
    if !is_interface_name(master) {
        let allowed = format!(
            "it must name an interface of the nodes, such as eth0: 1 to {INTERFACE} bytes without space, '/' and ':'"
        );
        return Err(Wrong::new(MASTER, master, allowed));
    }
    Ok(master.to_owned())
}

/// The interface on the nodes that pods are attached to: `eth0`, or `eth0.10` with a VLAN; where that is too long for the kernel,
/// a short name that is always the same.
pub fn interface(master: &str, vlan: u16) -> String {
    if vlan == 0 {
        return master.to_owned();
    }
    let name = format!("{master}.{vlan}");
    match name.len() {
        0..=INTERFACE => name,
        _ => format!("fipd-{}", labels::digest(&name)),
    }
}

/// Whether Linux takes it as the name of an interface.
pub fn is_interface_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':');
    (1..=INTERFACE).contains(&name.len()) && !matches!(name, "." | "..") && name.bytes().all(fits)
}
