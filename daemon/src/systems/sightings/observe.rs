//! Which Services are not ours, and what they show.

use std::{collections::BTreeSet, net::IpAddr};

use fipd_core::{Text, Timestamp};
use k8s_openapi::api::core::v1::Service;

use crate::systems::rancher_fip::{
    names::{FLOATING_IP, HOLDER},
    service::{
        observe::{self, Svc},
        validate,
    },
};

/// A Service that others serve, or nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignService {
    pub uid: Text,
    pub created: Timestamp,
    /// Of its status and `spec.externalIPs`.
    pub addresses: BTreeSet<IpAddr>,
}

/// `None`: it is ours, or was and carries what the family has written. `serves`: fipd serves Services of its class here; else they
/// are another program's.
pub fn foreign(service: Service, serves: bool, class_less: bool) -> Option<ForeignService> {
    let external = service
        .spec
        .as_ref()
        .and_then(|spec| spec.external_ips.clone())
        .unwrap_or_default();
    let svc = Svc {
        terminating: false,
        ..observe::all(service)
    };
    let marked = svc.has_finalizer()
        || svc.marks.contains_key(HOLDER)
        || svc.mark(FLOATING_IP).is_some_and(|noted| !noted.is_empty());
    if marked || serves && validate::is_ours(&svc, class_less, false) {
        return None;
    }
    let texts = svc.ingress.iter().chain(&external);
    let addresses = texts.filter_map(|text| parse(text.trim()));
    Some(ForeignService {
        addresses: addresses.map(|address| address.to_canonical()).collect(),
        uid: svc.uid,
        created: svc.created,
    })
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
    use serde_json::{Value, json};

    use super::*;
    use crate::systems::rancher_fip::names::{CLASS, FINALIZER};

    fn service(class: Option<&str>, meta: Value) -> Service {
        let object = json!({
            "metadata": meta,
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": class, "externalIPs": ["010.060.0.09", "::ffff:10.60.0.1", "x", "1.2.3.4.5", "256.0.0.1"],
            },
            "status": { "loadBalancer": { "ingress": [{ "ip": "10.60.0.1" }, { "hostname": "a.example" }] } },
        });
        serde_json::from_value(object).expect("a Service")
    }

    fn shown(class: Option<&str>, class_less: bool) -> Option<Vec<String>> {
        let found = foreign(service(class, json!({ "uid": "u" })), true, class_less)?;
        Some(found.addresses.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn services_of_another_class_and_of_none_show_what_they_use() {
        let both = Some(vec!["10.60.0.1".to_owned(), "10.60.0.9".to_owned()]);
        assert_eq!(shown(Some("metallb.io/metallb"), false), both);
        assert_eq!(shown(None, false), both);
        assert_eq!(shown(None, true), both, "another gave it the address");
        assert_eq!(shown(Some(CLASS), false), None);
        let elsewhere = foreign(service(Some(CLASS), json!({ "uid": "u" })), false, false);
        assert_eq!(
            elsewhere.map(|found| found.addresses.len()),
            Some(2),
            "the original serves it"
        );
    }

    #[test]
    fn what_carries_our_mark_is_not_foreign() {
        for meta in [
            json!({ "annotations": { HOLDER: "Service/X/ns/web/1" } }),
            json!({ "annotations": { FLOATING_IP: "10.60.0.1" } }),
            json!({ "finalizers": [FINALIZER] }),
        ] {
            assert_eq!(foreign(service(None, meta), true, false), None);
        }
    }
}
