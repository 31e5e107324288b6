//! Which Services are not ours, and what they show.

use std::{collections::BTreeSet, net::IpAddr};

use fipd_core::{Text, Timestamp};
use k8s_openapi::api::core::v1::Service;

use crate::controllers::rancher_fip::{
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

/// `None`: it is ours, or was and carries what the family has written.
pub fn foreign(service: Service, class_less: bool) -> Option<ForeignService> {
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
    if marked || validate::is_ours(&svc, class_less, false) {
        return None;
    }
    let texts = svc.ingress.iter().chain(&external);
    let addresses = texts.filter_map(|text| text.trim().parse::<IpAddr>().ok());
    Some(ForeignService {
        addresses: addresses.map(|address| address.to_canonical()).collect(),
        uid: svc.uid,
        created: svc.created,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::rancher_fip::names::{CLASS, FINALIZER};

    fn service(class: Option<&str>, meta: Value) -> Service {
        let object = json!({
            "metadata": meta,
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": class, "externalIPs": ["10.60.0.9", "::ffff:10.60.0.1", "x"],
            },
            "status": { "loadBalancer": { "ingress": [{ "ip": "10.60.0.1" }, { "hostname": "a.example" }] } },
        });
        serde_json::from_value(object).expect("a Service")
    }

    fn shown(class: Option<&str>, class_less: bool) -> Option<Vec<String>> {
        let found = foreign(service(class, json!({ "uid": "u" })), class_less)?;
        Some(found.addresses.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn services_of_another_class_and_of_none_show_what_they_use() {
        let both = Some(vec!["10.60.0.1".to_owned(), "10.60.0.9".to_owned()]);
        assert_eq!(shown(Some("metallb.io/metallb"), false), both);
        assert_eq!(shown(None, false), both);
        assert_eq!(shown(None, true), both, "another gave it the address");
        assert_eq!(shown(Some(CLASS), false), None);
    }

    #[test]
    fn what_carries_our_mark_is_not_foreign() {
        for meta in [
            json!({ "annotations": { HOLDER: "Service/X/ns/web/1" } }),
            json!({ "annotations": { FLOATING_IP: "10.60.0.1" } }),
            json!({ "finalizers": [FINALIZER] }),
        ] {
            assert_eq!(foreign(service(None, meta), false), None);
        }
    }
}
