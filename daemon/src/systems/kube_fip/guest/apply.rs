//! Writes what a guest is to have beside its releases: the ConfigMap of its addresses, and the selector of Harvester's
//! kube-vip.

use std::net::IpAddr;

use fipd_crds::kube_fip::{ADDRESS_MAP, KUBE_SYSTEM, KUBE_VIP};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::ConfigMap};

use super::{address_map, harvester_kube_vip, plan::MapRule};
use crate::{
    controller::{
        client::{CallError, Remote, Target},
        kind::{CONFIG_MAP, DAEMON_SET},
        owned,
    },
    guests::objects::Texts,
};

/// Writes the keys of the ConfigMap that are fipd's, or takes them out: then a ConfigMap that fipd made and that holds nothing else
/// goes. Whether anything had to be written.
pub async fn addresses(remote: &Remote, rule: MapRule, keys: &Texts) -> Result<bool, CallError> {
    let (target, clears) = (map(), rule == MapRule::Clear);
    if rule == MapRule::Leave {
        return Ok(false);
    }
    let Some(found) = remote.get::<ConfigMap>(&target).await? else {
        if !clears {
            owned::create(remote, CONFIG_MAP, &target, address_map::new(keys)).await?;
        }
        return Ok(!clears);
    };
    let meta = &found.metadata;
    if clears && owned::is_ours(meta) && address_map::is_all_ours(&found) {
        let uid = meta.uid.as_deref().unwrap_or_default();
        let version = meta.resource_version.as_deref().unwrap_or_default();
        remote.delete_version(&target, uid, version).await?;
        return Ok(true);
    }
    let change = address_map::change(&found, keys).filter(|_| rule != MapRule::Make);
    let Some(change) = change else {
        return Ok(false);
    };
    owned::put_unchanged(remote, &target, meta, change).await?;
    Ok(true)
}

/// Switches Harvester's own kube-vip off, or on again.
pub async fn harvester(remote: &Remote, off: bool) -> Result<(), CallError> {
    let target = DAEMON_SET.named(KUBE_SYSTEM, KUBE_VIP);
    let Some(found) = remote.get::<DaemonSet>(&target).await? else {
        return Ok(());
    };
    match harvester_kube_vip::change(&found, off) {
        Some(change) => owned::put_unchanged(remote, &target, &found.metadata, change).await,
        None => Ok(()),
    }
}

/// Whether the guest has Harvester's own kube-vip.
pub async fn has_harvesters(remote: &Remote) -> Result<bool, CallError> {
    let target = DAEMON_SET.named(KUBE_SYSTEM, KUBE_VIP);
    let found = remote.get::<DaemonSet>(&target).await?;
    Ok(found.is_some_and(|found| harvester_kube_vip::is_harvesters(&found)))
}

/// Whether the ConfigMap offers an address to Services.
pub async fn offers(remote: &Remote) -> Result<impl Fn(IpAddr) -> bool, CallError> {
    let found = remote.get::<ConfigMap>(&map()).await?;
    let data = found.and_then(|found| found.data).unwrap_or_default();
    Ok(move |address| address_map::offers(&data, address))
}

fn map() -> Target {
    CONFIG_MAP.named(KUBE_SYSTEM, ADDRESS_MAP)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::client::testing::canned;

    fn keys() -> Texts {
        [("cidr-global".to_owned(), "10.0.0.5/32".to_owned())].into()
    }

    #[tokio::test]
    async fn a_map_that_is_there_is_left_unless_it_is_to_be_kept_in_step() {
        let theirs =
            r#"{"metadata":{"uid":"u","resourceVersion":"7"},"data":{"range-global":"x"}}"#;
        let (remote, asked) = canned(&[("GET", 200, theirs)]);
        for rule in [MapRule::Make, MapRule::Leave] {
            assert!(!addresses(&remote, rule, &keys()).await.unwrap());
        }
        assert_eq!(
            asked.lock().len(),
            1,
            "it was looked at once, and not written"
        );
        let (remote, asked) = canned(&[("GET", 200, theirs), ("PATCH", 200, "{}")]);
        assert!(addresses(&remote, MapRule::Keep, &keys()).await.unwrap());
        let body = asked.lock().pop().unwrap().body;
        assert_eq!(body["data"], json!({ "cidr-global": "10.0.0.5/32" }));
        let meta = &body["metadata"];
        assert_eq!(
            (&meta["uid"], &meta["resourceVersion"]),
            (&json!("u"), &json!("7"))
        );
    }

    #[tokio::test]
    async fn a_map_of_fipds_alone_goes_and_of_others_only_its_keys() {
        let map = |label: &str, more: &str| {
            let text = format!(
                r#"{{"metadata":{{"uid":"u","resourceVersion":"7","labels":{{"app.kubernetes.io/managed-by":"{label}"}},
                "annotations":{{"fipd.io/kube-fip-keys":"cidr-global"}}}},"data":{{"cidr-global":"x"{more}}}}}"#
            );
            &*text.leak()
        };
        let (remote, asked) = canned(&[("GET", 200, map("fipd", "")), ("DELETE", 200, "{}")]);
        let clear = async |remote: &Remote| addresses(remote, MapRule::Clear, &Texts::new()).await;
        assert!(clear(&remote).await.unwrap());
        assert_eq!(asked.lock()[1].body["preconditions"]["uid"], json!("u"));
        for kept in [map("fipd", r#","range-global":"y""#), map("helm", "")] {
            let (remote, asked) = canned(&[("GET", 200, kept), ("PATCH", 200, "{}")]);
            assert!(clear(&remote).await.unwrap());
            let body = asked.lock().pop().unwrap().body;
            assert_eq!(body["data"], json!({ "cidr-global": null }));
        }
    }
}
