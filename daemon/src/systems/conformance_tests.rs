//! Every kind that uses an address keeps the contract of [`AddressUser`](crate::controller::address_user::AddressUser).

use crate::{
    controller::address_user::conformance_tests::conforms,
    systems::{
        claims::claim::ManagedClaims, cluster_api::claim::IpClaims, flat_network::ip::FlatIps,
        kube_fip::floating_ip::GuestFloatingIps, rancher_fip::floating_ip::ManagedFloatingIps,
    },
};

#[tokio::test]
async fn address_claims_conform() {
    conforms::<ManagedClaims>().await;
}

#[tokio::test]
async fn floating_ips_conform() {
    conforms::<ManagedFloatingIps>().await;
}

#[tokio::test]
async fn guest_floating_ips_conform() {
    conforms::<GuestFloatingIps>().await;
}

#[tokio::test]
async fn claims_of_cluster_api_conform() {
    conforms::<IpClaims>().await;
}

#[tokio::test]
async fn addresses_of_pods_conform() {
    conforms::<FlatIps>().await;
}
