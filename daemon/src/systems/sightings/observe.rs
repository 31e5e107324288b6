//! What Services show that are not ours.

use std::{collections::BTreeSet, net::IpAddr};

use fipd_core::{Text, Timestamp};
use k8s_openapi::api::core::v1::Service;

use crate::controller::meta::created;

/// A Service that others serve, or nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignService {
    pub uid: Text,
    pub created: Timestamp,
    /// Of its status and `spec.externalIPs`.
    pub addresses: BTreeSet<IpAddr>,
}

impl ForeignService {
    pub fn of(
        Service {
            metadata: meta,
            spec,
            status,
        }: Service,
    ) -> Self {
        let balancer = status.and_then(|status| status.load_balancer);
        let ingress = balancer.and_then(|balancer| balancer.ingress);
        let given = ingress.into_iter().flatten().filter_map(|one| one.ip);
        let external = spec.and_then(|spec| spec.external_ips);
        let texts = given.chain(external.into_iter().flatten());
        let addresses = texts.filter_map(|text| parse(text.trim()));
        Self {
            addresses: addresses.map(|address| address.to_canonical()).collect(),
            uid: meta.uid.unwrap_or_default().into(),
            created: created(meta.creation_timestamp.as_ref()),
        }
    }
}

/// As Kubernetes reads addresses of objects that were stored long ago: numbers of IPv4 may begin with zeros.
fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let numbers = text.split('.').map(|number| number.parse().ok());
    let octets: Option<Vec<u8>> = numbers.collect();
    let octets: [u8; 4] = octets?.try_into().ok()?;
    Some(octets.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_those_of_the_status_and_external_ones_as_kubernetes_reads_them() {
        let object = json!({
            "metadata": { "uid": "u" },
            "spec": { "externalIPs": ["010.060.0.09", "::ffff:10.60.0.1", "x", "1.2.3.4.5", "256.0.0.1"] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "10.60.0.1" }, { "hostname": "a.example" }] } },
        });
        let service = serde_json::from_value(object).expect("a Service");
        let shown = ForeignService::of(service).addresses;
        let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.60.0.1", "10.60.0.9"]);
    }
}
