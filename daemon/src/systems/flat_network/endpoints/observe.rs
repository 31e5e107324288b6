//! What is kept of EndpointSlices and Endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_core::Text;
use fipd_crds::{
    flat_network::names::{COMPANION_SUFFIX, SLICE_MANAGER},
    labels::{FIELD_MANAGER, MANAGED_BY},
};
use k8s_openapi::{
    api::{
        core::v1::{EndpointSubset, Endpoints},
        discovery::v1::{Endpoint, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use super::resolve::ResolvedPort;

/// Label on slices: the Service whose they are.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label on slices: who keeps them.
pub const SLICE_KEEPER: &str = "endpointslice.kubernetes.io/managed-by";
/// The controller of Kubernetes that keeps slices of Services with a selector.
const STOCK_KEEPER: &str = "endpointslice-controller.k8s.io";
/// Label on slices and Endpoints of headless Services: kube-proxy leaves them out.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// Label on Endpoints: Kubernetes makes no slices of them.
pub const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";

/// An EndpointSlice of fipd's or of the original, or one that the controller of Kubernetes made of a companion.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceView {
    pub uid: Text,
    pub service: Text,
    /// What it says; `None`: it is of the controller of Kubernetes.
    pub content: Option<SliceContent>,
}

/// What an EndpointSlice of fipd's says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SliceContent {
    pub address_type: String,
    pub is_headless: bool,
    /// UIDs.
    pub owners: Vec<String>,
    /// By address.
    pub endpoints: Vec<Endpoint>,
    pub ports: Vec<EndpointPort>,
}

/// Endpoints of which Kubernetes makes no slices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointsView {
    /// UIDs.
    pub owners: Vec<String>,
    pub addresses: EndpointAddresses,
}

/// Where Endpoints lead, however they are grouped: address, whether it is ready, and ports.
pub type EndpointAddresses = BTreeSet<(IpAddr, bool, Vec<ResolvedPort>)>;

/// Nothing of slices that are neither fipd's to keep nor in its way.
pub fn slice(slice: EndpointSlice) -> Option<SliceView> {
    let labels = slice.metadata.labels.unwrap_or_default();
    let service = labels.get(SERVICE_NAME)?;
    let content = match labels.get(SLICE_KEEPER)?.as_str() {
        SLICE_MANAGER => Some(SliceContent {
            address_type: slice.address_type,
            is_headless: labels.contains_key(HEADLESS),
            owners: uids(slice.metadata.owner_references),
            endpoints: slice.endpoints.unwrap_or_default(),
            ports: slice.ports.unwrap_or_default(),
        }),
        STOCK_KEEPER if service.ends_with(COMPANION_SUFFIX) => None,
        _ => return None,
    };
    Some(SliceView {
        uid: slice.metadata.uid.unwrap_or_default().into(),
        service: service.as_str().into(),
        content,
    })
}

pub fn endpoints(endpoints: Endpoints) -> EndpointsView {
    let subsets = endpoints.subsets.unwrap_or_default();
    EndpointsView {
        owners: uids(endpoints.metadata.owner_references),
        addresses: subsets.iter().flat_map(addresses).collect(),
    }
}

fn uids(owners: Option<Vec<OwnerReference>>) -> Vec<String> {
    let owners = owners.unwrap_or_default().into_iter();
    owners.map(|owner| owner.uid).collect()
}

fn addresses(subset: &EndpointSubset) -> Vec<(IpAddr, bool, Vec<ResolvedPort>)> {
    let ports = subset.ports.iter().flatten().map(|one| ResolvedPort {
        name: one.name.clone().unwrap_or_default(),
        protocol: one.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
        number: one.port,
        app_protocol: one.app_protocol.clone(),
    });
    let mut ports: Vec<_> = ports.collect();
    ports.sort();
    let ready = subset.addresses.iter().flatten().map(|one| (one, true));
    let unready = subset.not_ready_addresses.iter().flatten();
    let all = ready.chain(unready.map(|one| (one, false)));
    all.filter_map(|(one, ready)| Some((one.ip.parse().ok()?, ready, ports.clone())))
        .collect()
}

/// The labels of what fipd keeps of a Service.
pub fn labels(service: &str, is_headless: bool) -> BTreeMap<&'static str, &str> {
    let headless = is_headless.then_some((HEADLESS, ""));
    let own = [
        (SERVICE_NAME, service),
        (SLICE_KEEPER, SLICE_MANAGER),
        (MANAGED_BY, FIELD_MANAGER),
    ];
    own.into_iter().chain(headless).collect()
}
