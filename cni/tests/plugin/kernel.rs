//! `link` against the kernel, as the daemon uses it.

use std::{io::ErrorKind, os::fd::AsFd as _};

use fipd_cni::{
    attachment::{IpvlanFlag, IpvlanMode, LinkKind},
    link::{Family, KindOfLink, MemberLink, Route},
    namespace::Namespace,
};
use nix::libc::EOPNOTSUPP;

use super::site::Site;

#[test]
fn flags_addresses_and_routes_are_set_and_read_back() {
    let site = Site::new();
    site.host_netlink(|netlink| {
        let up0 = netlink.find("up0").unwrap().unwrap();
        assert!(up0.up && !up0.promiscuous && up0.mac.is_some());
        assert!(
            up0.kind
                .as_ref()
                .is_some_and(|kind| !kind.is_of_containers())
        );
        netlink.set_promiscuous(up0.index, true).unwrap();
        assert!(netlink.find("up0").unwrap().unwrap().promiscuous);
        netlink.set_promiscuous(up0.index, false).unwrap();
        assert!(!netlink.find("up0").unwrap().unwrap().promiscuous);
        netlink.set_alias(up0.index, "fipd").unwrap();
        let alias = netlink.find("up0").unwrap().unwrap().alias;
        assert_eq!(alias.as_deref(), Some("fipd"));
        let address = "192.0.2.7/24".parse().unwrap();
        assert!(netlink.add_address(up0.index, address, false).unwrap());
        assert!(!netlink.add_address(up0.index, address, false).unwrap());
        let found = netlink.addresses().unwrap();
        assert!(
            found
                .iter()
                .any(|one| one.address == address && one.interface == up0.index)
        );
        let mut route = Route::over(up0.index, "198.51.100.5/32".parse().unwrap());
        route.src = Some("192.0.2.7".parse().unwrap());
        route.protocol = 200;
        route.table = 1000;
        let mut mixed = route.clone();
        mixed.gw = Some("2001:db8::1".parse().unwrap());
        let error = netlink.add_route(&mixed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(netlink.routes(Family::V4, 1000).unwrap(), []);
        assert!(netlink.add_route(&route).unwrap());
        assert!(!netlink.add_route(&route).unwrap());
        let listed = netlink.routes(Family::V4, 1000).unwrap();
        assert_eq!((listed.len(), listed[0].route.protocol), (1, 200));
        assert!(netlink.delete_listed(&listed[0]).unwrap());
        assert!(netlink.restore_route(&listed[0]).unwrap());
        assert!(netlink.delete_route(&route).unwrap());
        assert!(!netlink.delete_route(&route).unwrap());
        assert_eq!(netlink.find("up9").unwrap(), None);
        assert!(!netlink.delete(9999).unwrap());
        let error = netlink.set_up(9999, true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::ENODEV));
    });
}

#[test]
fn a_vlan_is_made_once_where_the_kernel_has_them() {
    let site = Site::new();
    site.host_netlink(|netlink| {
        let parent = netlink.find("up0").unwrap().unwrap().index;
        match netlink.create_vlan("making", parent, 100) {
            Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => {
                eprintln!("skipped: this kernel has no VLANs");
                return;
            }
            made => assert!(made.unwrap()),
        }
        for taken in ["making", "another"] {
            assert!(!netlink.create_vlan(taken, parent, 100).unwrap());
        }
        let made = netlink.find("making").unwrap().unwrap();
        assert!(!made.up);
        netlink.set_alias(made.index, "fipd").unwrap();
        netlink.rename(made.index, "up0.100").unwrap();
        netlink.set_up(made.index, true).unwrap();
        let vlan = netlink.find("up0.100").unwrap().unwrap();
        assert!(vlan.up && vlan.parent == Some(parent) && vlan.mtu == 1500);
        assert_eq!(vlan.alias.as_deref(), Some("fipd"));
        let kind = KindOfLink::Vlan {
            id: 100,
            protocol: 0x8100,
        };
        assert_eq!(vlan.kind, Some(kind));
    });
}

#[test]
fn an_ipvlan_is_made_where_the_kernel_has_them() {
    let site = Site::new();
    let kind = LinkKind::Ipvlan(IpvlanMode::L2, IpvlanFlag::Private);
    let pod = Namespace::open(&site.netns()).unwrap();
    let made = site.host_netlink(|netlink| {
        let link = MemberLink {
            name: "eth1",
            kind,
            parent: netlink.find("up0").unwrap().unwrap().index,
            mtu: None,
            mac: None,
            up: true,
        };
        netlink.create_in(pod.as_fd(), &link)
    });
    match made {
        Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => {
            eprintln!("skipped: this kernel has no ipvlan");
            return;
        }
        made => made.unwrap(),
    }
    let link = site.pod_netlink(|netlink| netlink.find("eth1").unwrap().unwrap());
    assert!(link.kind.unwrap().is(kind));
}
