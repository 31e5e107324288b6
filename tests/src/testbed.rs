//! The real things a test runs against: etcd, API servers and controller managers, a fault proxy, and fipd itself.
//!
//! ```text
//!  Site ── Rancher (ControlPlane) ──┐
//!     └─── downstream (ControlPlane)┼─ FaultProxy ── Fipd
//!                                   └─ shared Etcd
//! ```
//!
//! Everything is a child of this process on a free loopback port, in a temporary directory of its own, and gone on drop.

mod audit_log;
mod base64;
mod baseline;
mod browser;
mod certificates;
mod charts;
pub mod cluster_api;
mod cni;
mod control_plane;
mod directory;
mod etcd;
mod fault_proxy;
mod fipd;
mod for_all_tests;
mod harvester;
mod helm_controller;
mod http;
mod image;
mod kept_site;
mod kubeconfig;
mod kwok;
mod machine;
mod manifests;
mod node;
mod original;
mod packages;
mod ports;
mod rights;
mod shared_site;
mod site;
mod visitor;
mod vm;

pub use baseline::Baseline;
pub use browser::{Browser, BrowserOptions};
pub use certificates::CertificateAuthority;
pub use charts::{Charts, HelmCli};
pub use cni::{
    Called, CniBed, CniCall, CniHost, MASTER, SEGMENT_V4, SEGMENT_V6, on_a_host, with_previous,
};
pub use control_plane::{
    ControlPlane, ControlPlaneOptions, Foundation, RESTRICTED_USER, SERVICE_ADDRESS,
};
pub use directory::TestDirectory;
pub use etcd::Etcd;
pub use fault_proxy::{Fault, FaultProxy};
pub use fipd::{CliOutput, Fipd, FipdOptions, fipd_binary};
pub use for_all_tests::ForAllTests;
pub use harvester::HarvesterGuest;
pub use helm_controller::HelmController;
pub use http::{Method, Reply, UnixConnection, get_tcp, get_unix};
pub use kept_site::KeptSite;
pub use kubeconfig::with_server;
pub use kwok::Kwok;
pub use machine::{Machine, SHARED};
pub use manifests::{apply_yaml, documents, install_crds};
pub use node::{BRIDGE, Node, NodeNetwork, NodeOptions, PAUSE, on_a_node};
pub use original::{keep_renewing, renew_lease};
pub use packages::{Kind, NEWS, Packages, packaging};
pub use ports::free_port;
pub use shared_site::{ClustersOfTest, SharedClusters, SharedSite, TestFipd};
pub use site::{ANNOUNCER_CRDS, Downstream, RANCHER_CRDS, Site, SiteOptions};
pub use visitor::{Login, Visitor};
pub use vm::{HOST, Vm};

pub use crate::wait::{wait_object, wait_until};
