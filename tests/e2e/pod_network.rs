//! Pods on flat networks: real kubelets, containerd and scheduler, two nodes on one segment, a stand-in for Multus that calls the
//! plugin as Multus does, and fipd: one that decides, and an agent on each node.

#[path = "pod_network/bed.rs"]
mod bed;
#[path = "pod_network/stories.rs"]
mod stories;
