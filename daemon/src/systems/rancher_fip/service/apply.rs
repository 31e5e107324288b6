//! What is written on a Service.

use std::{collections::BTreeMap, net::IpAddr};

use serde_json::{Map, Value, json};

use super::{observe::Svc, originals};
use crate::systems::rancher_fip::{
    names::{
        FINALIZER, FLOATING_IP, HOLDER, KUBE_VIP_ADDRESSES, PURELB_GROUP, SERVICE_LABEL,
        SERVICE_NAMESPACE_LABEL, ServiceRef,
    },
    settings::Announce,
};

/// All annotations and labels that fipd ever writes on a Service.
const ANNOTATIONS: [&str; 4] = [FLOATING_IP, HOLDER, KUBE_VIP_ADDRESSES, PURELB_GROUP];
const LABELS: [&str; 2] = [SERVICE_LABEL, SERVICE_NAMESPACE_LABEL];

/// The patch (strategic) that marks the Service as holding `addresses`; `None` if it is marked.
pub fn claim(
    svc: &Svc,
    service: &ServiceRef,
    addresses: &[IpAddr],
    announce: Announce,
) -> Option<Value> {
    let (annotations, labels) = marks(svc, service, addresses, announce);
    let annotations = changes(svc, &ANNOTATIONS, &annotations, addresses);
    let labels = changes(svc, &LABELS, &labels, addresses);
    let mut metadata = filled(annotations, labels);
    if !svc.has_finalizer() {
        metadata.insert("finalizers".into(), json!([FINALIZER]));
    }
    wrap(metadata, svc)
}

/// The patch (strategic) that takes everything of ours off a Service that lives on.
pub fn disclaim(svc: &Svc) -> Option<Value> {
    let gone = |keys: &[&'static str]| -> Map<String, Value> {
        let there = keys.iter().filter(|key| svc.marks.contains_key(*key));
        there.map(|key| ((*key).to_owned(), Value::Null)).collect()
    };
    let mut metadata = filled(gone(&ANNOTATIONS), gone(&LABELS));
    if svc.has_finalizer() {
        let key = "$deleteFromPrimitiveList/finalizers";
        metadata.insert(key.into(), json!([FINALIZER]));
    }
    wrap(metadata, svc)
}

/// The patch of the status that shows `addresses`; `None` if it does.
pub fn show(svc: &Svc, addresses: &[IpAddr]) -> Option<Value> {
    let shown = svc.ingress.iter().map(|text| text.parse().ok());
    if shown.eq(addresses.iter().copied().map(Some)) {
        return None;
    }
    let ingress = addresses
        .iter()
        .map(|address| json!({ "ip": address.to_string() }));
    let ingress: Option<Vec<Value>> = (!addresses.is_empty()).then(|| ingress.collect());
    Some(
        json!({ "metadata": { "uid": &*svc.uid }, "status": { "loadBalancer": { "ingress": ingress } } }),
    )
}

/// A patch of the status that also does what `claim` does.
pub fn both(claim: &Value, mut status: Value) -> Value {
    if let (Some(all), Some(metadata)) = (status.as_object_mut(), claim.get("metadata")) {
        all.insert("metadata".to_owned(), metadata.clone());
    }
    status
}

type ServiceMarks = BTreeMap<&'static str, String>;

/// Annotations and labels of a Service that has these addresses.
fn marks(
    svc: &Svc,
    service: &ServiceRef,
    addresses: &[IpAddr],
    announce: Announce,
) -> (ServiceMarks, ServiceMarks) {
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let list = list.join(",");
    let mut labels = ServiceMarks::new();
    if matches!(announce, Announce::Metallb | Announce::Purelb) {
        labels.insert(SERVICE_LABEL, service.key.name.to_string());
        labels.insert(SERVICE_NAMESPACE_LABEL, service.key.namespace.to_string());
    }
    let mut annotations =
        ServiceMarks::from([(FLOATING_IP, list.clone()), (HOLDER, service.to_string())]);
    match (announce, addresses.first()) {
        (Announce::KubeVip, _) => {
            annotations.insert(KUBE_VIP_ADDRESSES, list);
        }
        (Announce::Purelb, Some(first)) => {
            let group = originals::group_name(svc, &service.key, *first);
            annotations.insert(PURELB_GROUP, group);
        }
        (Announce::None | Announce::Metallb | Announce::Purelb, _) => {}
    }
    (annotations, labels)
}

/// Metadata with those of both that are there.
fn filled(annotations: Map<String, Value>, labels: Map<String, Value>) -> Map<String, Value> {
    let parts = [("annotations", annotations), ("labels", labels)];
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    parts
        .map(|(name, part)| (name.to_owned(), Value::Object(part)))
        .collect()
}

/// What to set and what to take off. A mark that is not wanted is taken off only where we set it: everything
/// but an announcer's annotation on a Service that was not ours before.
fn changes(
    svc: &Svc,
    keys: &[&'static str],
    wanted: &ServiceMarks,
    addresses: &[IpAddr],
) -> Map<String, Value> {
    let mut changes = Map::new();
    for key in keys {
        match (svc.mark(key), wanted.get(key)) {
            (Some(before), Some(after)) if before == after => {}
            (_, Some(after)) => {
                changes.insert((*key).to_owned(), json!(after));
            }
            (Some(before), None) if svc.is_marked() || names_address(before, addresses) => {
                changes.insert((*key).to_owned(), Value::Null);
            }
            (Some(_) | None, None) => {}
        }
    }
    changes
}

fn names_address(text: &str, addresses: &[IpAddr]) -> bool {
    text.split(',').any(|one| {
        one.trim()
            .parse()
            .is_ok_and(|address: IpAddr| addresses.contains(&address))
    })
}

fn wrap(mut metadata: Map<String, Value>, svc: &Svc) -> Option<Value> {
    if metadata.is_empty() {
        return None;
    }
    metadata.insert("uid".into(), json!(&*svc.uid));
    Some(json!({ "metadata": metadata }))
}

#[cfg(test)]
mod tests {
    use fipd_core::ClusterId;

    use super::*;
    use crate::controller::store::Key;

    fn service() -> ServiceRef {
        ServiceRef {
            cluster: ClusterId("c".into()),
            key: Key::new("ns", "web"),
            uid: "u".into(),
        }
    }

    fn v4() -> Vec<IpAddr> {
        vec!["10.0.0.5".parse().expect("v4")]
    }

    fn svc() -> Svc {
        Svc {
            uid: "u".into(),
            balanced: true,
            ..Svc::default()
        }
    }

    /// What the API server would make of our patch.
    fn patched(mut svc: Svc, patch: &Value) -> Svc {
        let keys = ANNOTATIONS
            .iter()
            .map(|key| ("annotations", *key))
            .chain(LABELS.iter().map(|key| ("labels", *key)));
        for (part, key) in keys {
            match patch["metadata"][part].get(key) {
                Some(Value::String(value)) => drop(svc.marks.insert(key, value.clone())),
                Some(_) => drop(svc.marks.remove(key)),
                None => {}
            }
        }
        if patch["metadata"].get("finalizers").is_some() {
            svc.finalizers.push(FINALIZER.into());
        }
        svc
    }

    #[test]
    fn one_patch_marks_a_new_service_and_then_none() {
        for announce in [
            Announce::None,
            Announce::KubeVip,
            Announce::Metallb,
            Announce::Purelb,
        ] {
            let patch = claim(&svc(), &service(), &v4(), announce).expect("a patch");
            assert_eq!(patch["metadata"]["uid"], "u");
            assert_eq!(patch["metadata"]["finalizers"], json!([FINALIZER]));
            assert_eq!(patch["metadata"]["annotations"][FLOATING_IP], "10.0.0.5");
            let marked = patched(svc(), &patch);
            assert_eq!(
                claim(&marked, &service(), &v4(), announce),
                None,
                "{announce:?}"
            );
        }
    }

    #[test]
    fn another_announcer_takes_the_former_ones_marks_away() {
        let marked = patched(
            svc(),
            &claim(&svc(), &service(), &v4(), Announce::KubeVip).expect("a patch"),
        );
        let patch = claim(&marked, &service(), &v4(), Announce::Purelb).expect("a patch");
        assert_eq!(
            patch["metadata"]["annotations"][KUBE_VIP_ADDRESSES],
            Value::Null
        );
        assert_eq!(
            patch["metadata"]["annotations"][PURELB_GROUP],
            "ip4-10.0.0.5"
        );
        let mut foreign = svc();
        foreign.marks.insert(KUBE_VIP_ADDRESSES, "0.0.0.0".into());
        let patch = claim(&foreign, &service(), &v4(), Announce::None).expect("a patch");
        assert_eq!(
            patch["metadata"]["annotations"].get(KUBE_VIP_ADDRESSES),
            None,
            "it is not ours"
        );
    }

    #[test]
    fn a_group_that_the_original_named_keeps_its_name() {
        let mut stock = svc();
        let name = "rancher-fip-ns-web";
        stock.marks.insert(PURELB_GROUP, name.into());
        let patch = claim(&stock, &service(), &v4(), Announce::Purelb).expect("a patch");
        assert_eq!(patch["metadata"]["annotations"].get(PURELB_GROUP), None);
        let marked = patched(stock.clone(), &patch);
        assert_eq!(marked.mark(PURELB_GROUP), Some(name));
        stock
            .marks
            .insert(PURELB_GROUP, "rancher-fip-ns-other".into());
        let patch = claim(&stock, &service(), &v4(), Announce::Purelb).expect("a patch");
        let group = &patch["metadata"]["annotations"][PURELB_GROUP];
        assert_eq!(group, "ip4-10.0.0.5");
    }

    #[test]
    fn everything_comes_off_again() {
        let marked = patched(
            svc(),
            &claim(&svc(), &service(), &v4(), Announce::Metallb).expect("a patch"),
        );
        let patch = disclaim(&marked).expect("a patch");
        assert_eq!(
            patch["metadata"]["labels"],
            json!({ SERVICE_LABEL: null, SERVICE_NAMESPACE_LABEL: null })
        );
        assert_eq!(
            patch["metadata"]["$deleteFromPrimitiveList/finalizers"],
            json!([FINALIZER])
        );
        assert_eq!(disclaim(&svc()), None);
    }

    #[test]
    fn defect_17_one_patch_marks_and_shows() {
        let claim = claim(&svc(), &service(), &v4(), Announce::None).expect("a patch");
        let both = both(&claim, show(&svc(), &v4()).expect("a patch"));
        assert_eq!(both["metadata"], claim["metadata"]);
        assert_eq!(both["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(both["metadata"]["uid"], json!(&*svc().uid));
        assert_eq!(
            both["status"]["loadBalancer"]["ingress"],
            json!([{ "ip": "10.0.0.5" }])
        );
    }

    #[test]
    fn the_status_is_written_once() {
        let patch = show(&svc(), &v4()).expect("a patch");
        assert_eq!(
            patch["status"]["loadBalancer"]["ingress"],
            json!([{ "ip": "10.0.0.5" }])
        );
        let shown = Svc {
            ingress: vec!["10.0.0.5".into()],
            ..svc()
        };
        assert_eq!(show(&shown, &v4()), None);
        assert_eq!(
            show(&shown, &[]).expect("a patch")["status"]["loadBalancer"]["ingress"],
            Value::Null
        );
        assert_eq!(show(&svc(), &[]), None);
    }
}
