//! What load balancers in a cluster draw from: read, and shown at the pools that have addresses in common with it.
//!
//! Kinds that are not there or may not be read hold nothing back.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use fipd_core::{AddressSpec, Span};
use fipd_crds::labels::{KUBE_VIP_KEYS, MANAGED_BY};
use serde_json::Value;

use crate::{
    backoff::jittered,
    clusters::{ClusterSession, ranges::ForeignRange},
    controller::{
        client::{CallError, MANAGER, Remote},
        kind::{CONFIG_MAP, Kind},
    },
};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(300);
/// After one that failed.
const RETRY: Duration = Duration::from_secs(60);
/// Ranges of one cluster that are kept.
const MOST: usize = 1_000;
/// The part of a cluster that is not in order where fipd may not look.
const RIGHTS: &str = "shared-ranges-rights";

/// A kind whose objects are ranges.
struct RangeSource {
    kind: Kind,
    /// The texts that name ranges.
    texts: fn(&Value) -> Vec<String>,
}

const SOURCES: [RangeSource; 4] = [
    RangeSource {
        kind: Kind::namespaced("apis/metallb.io/v1beta1", "ipaddresspools", "IPAddressPool"),
        texts: metallb,
    },
    RangeSource {
        kind: Kind::cluster(
            "apis/cilium.io/v2",
            "ciliumloadbalancerippools",
            "CiliumLoadBalancerIPPool",
        ),
        texts: cilium,
    },
    RangeSource {
        kind: Kind::cluster(
            "apis/cilium.io/v2alpha1",
            "ciliumloadbalancerippools",
            "CiliumLoadBalancerIPPool",
        ),
        texts: cilium,
    },
    RangeSource {
        kind: Kind::namespaced("apis/purelb.io/v1", "servicegroups", "ServiceGroup"),
        texts: purelb,
    },
];

/// Reads the ranges of a cluster again and again; does not end.
pub async fn keep(session: &ClusterSession) {
    let remote = Remote::new(session.client.clone());
    let mut reconnects = session.reconnects();
    loop {
        reconnects.borrow_and_update();
        let pause = match read(session, &remote).await {
            Ok(ranges) => {
                session.show_ranges(ranges);
                PERIOD
            }
            Err(error) => {
                tracing::debug!(cluster = %session.name, %error, "ranges of load balancers are not known");
                RETRY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(jittered(pause)) => {}
            Ok(()) = reconnects.changed() => {}
        }
    }
}

async fn read(session: &ClusterSession, remote: &Remote) -> Result<Vec<ForeignRange>, CallError> {
    let mut ranges = Vec::new();
    let mut missing = Vec::new();
    for source in &SOURCES {
        if ranges.len() < MOST && is_served(remote, source).await? {
            match list(remote, source).await {
                Ok(listed) => ranges.extend(listed),
                Err(CallError::Rejected(..)) => missing.push(format!(
                    "apiGroups: [{}], resources: [{}], verbs: [list]",
                    source.kind.group(),
                    source.kind.plural
                )),
                Err(CallError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    match kube_vip(remote).await {
        Ok(listed) => ranges.extend(listed),
        Err(CallError::Rejected(..)) => missing.push(
            "apiGroups: [\"\"], resources: [configmaps], resourceNames: [kubevip], verbs: [get]"
                .to_owned(),
        ),
        Err(error) => return Err(error),
    }
    let why = (!missing.is_empty()).then(|| {
        format!(
            "fipd does not know from which ranges load balancers here allocate; apply the role of packaging/rbac for this cluster \
             again, or add {}",
            missing.join("; ")
        )
    });
    session.troubled(RIGHTS, why.map(Into::into));
    ranges.sort_unstable();
    ranges.dedup();
    ranges.truncate(MOST);
    Ok(ranges)
}

/// Whether the API server has the kind; who may not list it learns nothing by trying.
async fn is_served(remote: &Remote, source: &RangeSource) -> Result<bool, CallError> {
    match source.kind.is_served(remote).await {
        Err(CallError::Rejected(..)) => Ok(false),
        served => served,
    }
}

async fn list(remote: &Remote, source: &RangeSource) -> Result<Vec<ForeignRange>, CallError> {
    let target = source.kind.all();
    let count = AtomicUsize::new(0);
    let keep = |object: Value| {
        // What fipd made for an announcer.
        let ours = object["metadata"]["labels"][MANAGED_BY] == MANAGER;
        if ours || count.load(Ordering::Relaxed) >= MOST {
            return None;
        }
        let ranges = ranges_of(source.kind.kind, &object, &(source.texts)(&object));
        count.fetch_add(ranges.len(), Ordering::Relaxed);
        Some(ranges)
    };
    Ok(remote.list_kept(&target, "", keep).await?.concat())
}

/// What kube-vip's cloud provider allocates from.
async fn kube_vip(remote: &Remote) -> Result<Vec<ForeignRange>, CallError> {
    let target = CONFIG_MAP.named("kube-system", "kubevip");
    let object: Option<Value> = remote.get(&target).await?;
    let ranges = |object: &Value| ranges_of("ConfigMap", object, &kube_vip_texts(object));
    Ok(object.as_ref().map(ranges).unwrap_or_default())
}

fn ranges_of(kind: &str, object: &Value, texts: &[String]) -> Vec<ForeignRange> {
    let meta = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    let name = match meta("namespace") {
        "" => format!("{kind} {}", meta("name")),
        namespace => format!("{kind} {namespace}/{}", meta("name")),
    };
    let spans = texts.iter().filter_map(|text| span(text));
    let range = |span: Span| ForeignRange {
        object: name.as_str().into(),
        span,
    };
    spans.map(range).take(MOST).collect()
}

/// A CIDR, with host bits if need be, an address or a range. What else is there is no range for its load balancer either.
fn span(text: &str) -> Option<Span> {
    let text: String = text.split_whitespace().collect();
    match text.parse::<ipnet::IpNet>() {
        Ok(net) => Some(Span::of_net(net)),
        Err(_) => text.parse::<AddressSpec>().ok().map(|spec| spec.span()),
    }
}

fn elements<const N: usize>(lists: [&Value; N]) -> impl Iterator<Item = &Value> {
    lists.into_iter().filter_map(Value::as_array).flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn metallb(object: &Value) -> Vec<String> {
    elements([&object["spec"]["addresses"]])
        .filter_map(text)
        .collect()
}

fn cilium(object: &Value) -> Vec<String> {
    let blocks = elements([&object["spec"]["blocks"], &object["spec"]["cidrs"]]);
    let ends = |block: &Value| {
        let start = block["start"].as_str()?;
        let stop = block["stop"].as_str().unwrap_or(start);
        Some(format!("{start}-{stop}"))
    };
    blocks
        .filter_map(|block| text(&block["cidr"]).or_else(|| ends(block)))
        .collect()
}

fn purelb(object: &Value) -> Vec<String> {
    let local = &object["spec"]["local"];
    let pools = elements([&local["v4pools"], &local["v6pools"]]);
    let all = pools.chain([&local["v4pool"], &local["v6pool"], local]);
    all.filter_map(|pool| text(&pool["pool"])).collect()
}

fn kube_vip_texts(object: &Value) -> Vec<String> {
    // Those that fipd wrote are of its own leases.
    let own = object["metadata"]["annotations"][KUBE_VIP_KEYS].as_str();
    let is_own = |key: &str| own.is_some_and(|own| own.split(',').any(|one| one == key));
    let data = object["data"].as_object().into_iter().flatten();
    let data = data.filter(|(key, _)| !is_own(key));
    let ranges = data.filter(|(key, _)| key.starts_with("cidr-") || key.starts_with("range-"));
    ranges
        .filter_map(|(_, value)| value.as_str())
        .flat_map(|value| value.split(',').map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(kind: &str, object: &Value, texts: &[String]) -> Vec<String> {
        let ranges = ranges_of(kind, object, texts).into_iter();
        let text = |range: ForeignRange| {
            let (first, last) = (range.span.first_address(), range.span.last_address());
            format!("{} {first}-{last}", range.object)
        };
        ranges.map(text).collect()
    }

    #[test]
    fn ranges_of_each_load_balancer_are_read() {
        let pool = json!({
            "metadata": { "namespace": "metallb-system", "name": "a" },
            "spec": { "addresses": ["10.60.0.1/24", "10.61.0.1 - 10.61.0.9", "junk"] },
        });
        assert_eq!(
            shown("IPAddressPool", &pool, &metallb(&pool)),
            [
                "IPAddressPool metallb-system/a 10.60.0.0-10.60.0.255",
                "IPAddressPool metallb-system/a 10.61.0.1-10.61.0.9",
            ]
        );
        let pool = json!({
            "metadata": { "name": "b" },
            "spec": {
                "blocks": [{ "cidr": "10.62.0.0/30" }, { "start": "fd00::1", "stop": "fd00::9" }, { "start": "10.62.1.1" }],
            },
        });
        assert_eq!(
            shown("CiliumLoadBalancerIPPool", &pool, &cilium(&pool)),
            [
                "CiliumLoadBalancerIPPool b 10.62.0.0-10.62.0.3",
                "CiliumLoadBalancerIPPool b fd00::1-fd00::9",
                "CiliumLoadBalancerIPPool b 10.62.1.1-10.62.1.1",
            ]
        );
        let group = json!({
            "metadata": { "namespace": "purelb", "name": "c" },
            "spec": { "local": {
                "v4pools": [{ "pool": "10.63.0.1-10.63.0.2" }], "v6pool": { "pool": "fd01::/127" }, "pool": "10.64.0.1/32",
            } },
        });
        assert_eq!(
            shown("ServiceGroup", &group, &purelb(&group)),
            [
                "ServiceGroup purelb/c 10.63.0.1-10.63.0.2",
                "ServiceGroup purelb/c fd01::-fd01::1",
                "ServiceGroup purelb/c 10.64.0.1-10.64.0.1",
            ]
        );
        let map = json!({
            "metadata": {
                "namespace": "kube-system", "name": "kubevip",
                "annotations": { "fipd.io/kube-fip-keys": "cidr-own,cidr-other" },
            },
            "data": { "cidr-own": "10.67.0.1/32", "cidr-global": "10.65.0.0/31,10.65.1.0/31", "range-dev": "10.66.0.1-10.66.0.2", "interface-dev": "eth0" },
        });
        assert_eq!(
            shown("ConfigMap", &map, &kube_vip_texts(&map)),
            [
                "ConfigMap kube-system/kubevip 10.65.0.0-10.65.0.1",
                "ConfigMap kube-system/kubevip 10.65.1.0-10.65.1.1",
                "ConfigMap kube-system/kubevip 10.66.0.1-10.66.0.2",
            ]
        );
    }
}
