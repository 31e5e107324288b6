//! Which program owns the Multus that calls the CNI plugin. The chart of the originals has one of its own, which goes with the
//! chart: then pods get no further interfaces any more.

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Container, PodSpec},
};
use kube::ResourceExt as _;

use crate::{
    adopt::{ChangeBy, FindingKind, TakeoverReport},
    controller::{client::Remote, kind::DAEMON_SET},
    systems::flat_network::names::{NAMESPACE, SERVICE_ACCOUNT},
};

/// DaemonSets with their templates are some kilobytes each.
const PAGE: u32 = 50;
/// Where helm notes its release on an object.
const RELEASE: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
/// Beginning of the names of the originals' releases.
const CHART: &str = "rancher-flat-network";

/// A DaemonSet that runs Multus.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Multus {
    /// `namespace/name`.
    name: String,
    owner: Owner,
    /// Nodes that it is to run on.
    nodes: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// The chart of the originals.
    Chart,
    /// `namespace/name` of another release of helm.
    Release(String),
    /// Nothing says who made it.
    Unknown,
}

/// Looks at the DaemonSets of the cluster.
pub async fn report<A>(remote: &Remote, report: &mut TakeoverReport<A>) {
    let keep = |one| {
        serde_json::from_value(one)
            .ok()
            .and_then(|one| multus(&one))
    };
    match remote.list_paged(&DAEMON_SET.all(), PAGE, keep).await {
        Ok(found) => tell(found, report),
        Err(error) => report.unseen.push(format!("DaemonSets of Multus: {error}")),
    }
}

fn tell<A>(found: Vec<Multus>, report: &mut TakeoverReport<A>) {
    let others = found.iter().any(|one| one.owner != Owner::Chart);
    let several = found.len() > 1;
    if found.is_empty() {
        let says = "no DaemonSet runs it: pods get further interfaces only if the nodes have it in another way";
        report.fine(FindingKind::Program, "Multus", says);
    }
    for one in found {
        let name = format!("DaemonSet {}", one.name);
        let of = match &one.owner {
            Owner::Chart => "the chart of rancher-flat-network".to_owned(),
            Owner::Release(release) => format!("the helm release {release}"),
            Owner::Unknown => "no helm release".to_owned(),
        };
        let says = format!("it runs Multus on {} nodes, and belongs to {of}", one.nodes);
        let mut wrongs = Vec::new();
        if one.owner == Owner::Chart {
            wrongs.push("it goes with the chart".to_owned());
            let does = match others {
                true => {
                    "before you remove the chart, make sure that the other Multus has written its configuration on every node: \
                     this one removes 00-multus.conf when it stops"
                }
                false => {
                    "before you remove the chart, install another Multus, such as that of RKE2: without one, pods get no further \
                     interfaces"
                }
            };
            report.change(ChangeBy::You, name.clone(), does);
        }
        if several {
            wrongs.push("another DaemonSet runs Multus as well".to_owned());
        }
        report.judge(FindingKind::Program, name, says, wrongs);
    }
}

/// `None`: it runs something else.
fn multus(object: &DaemonSet) -> Option<Multus> {
    let pod = object.spec.template.spec.as_ref()?;
    pod.containers.iter().find(|one| runs_multus(one))?;
    let status = object.status.as_ref();
    Some(Multus {
        name: format!(
            "{}/{}",
            object.namespace().unwrap_or_default(),
            object.name_any()
        ),
        owner: owner(object, pod),
        nodes: status.map_or(0, |status| status.desired_number_scheduled),
    })
}

/// By the program of its image: thin, or the daemon of the thick one. An image may have any name.
fn runs_multus(container: &Container) -> bool {
    const PROGRAMS: [&str; 2] = ["thin_entrypoint", "multus-daemon"];
    let file = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let command = container.command.iter().flatten();
    let mut words = command.chain(container.args.iter().flatten());
    if words.any(|word| PROGRAMS.contains(&&*file(word))) {
        return true;
    }
    let image = file(container.image.as_deref().unwrap_or_default());
    let image = image.split([':', '@']).next().unwrap_or_default();
    // The controller that attaches interfaces to running pods has an image of its own.
    image.contains("multus") && !image.contains("controller")
}

fn owner(object: &DaemonSet, pod: &PodSpec) -> Owner {
    let account = pod.service_account_name.as_deref();
    let of_original =
        object.namespace().as_deref() == Some(NAMESPACE) && account == Some(SERVICE_ACCOUNT);
    let annotation = |key: &str| object.annotations().get(key).map(String::as_str);
    let release = annotation(RELEASE);
    if of_original || release.is_some_and(|release| release.starts_with(CHART)) {
        return Owner::Chart;
    }
    release.map_or(Owner::Unknown, |release| {
        let namespace = annotation(RELEASE_NAMESPACE).unwrap_or_default();
        Owner::Release(format!("{namespace}/{release}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn daemon_set(namespace: &str, release: Option<&str>, pod: Value) -> DaemonSet {
        let annotations = release.map(|release| {
            json!({ "meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace })
        });
        serde_json::from_value(json!({
            "metadata": { "name": "ds", "namespace": namespace, "annotations": annotations },
            "spec": { "selector": {}, "template": { "spec": pod } },
            "status": {
                "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 3,
            },
        }))
        .unwrap()
    }

    fn container(image: &str) -> Value {
        json!({ "containers": [{ "name": "c", "image": image }] })
    }

    fn owner_of(namespace: &str, release: Option<&str>, pod: Value) -> Option<Owner> {
        multus(&daemon_set(namespace, release, pod)).map(|found| found.owner)
    }

    #[test]
    fn multus_is_known_by_its_program_or_its_image() {
        for (pod, is_multus) in [
            (container("rancher/hardened-multus-cni:v4.2.2-build1"), true),
            (container("registry:5000/mirror/multus-cni@sha256:00"), true),
            (
                container("rancher/hardened-multus-dynamic-networks-controller:v0.3.7"),
                false,
            ),
            (container("registry.multus.io/cilium:v1"), false),
            (
                json!({ "containers": [{ "name": "c", "image": "mirror/a", "command": ["/thin_entrypoint"] }] }),
                true,
            ),
            (
                json!({ "containers": [{ "name": "c", "command": ["/usr/src/multus-cni/bin/multus-daemon"] }] }),
                true,
            ),
            (
                json!({
                    "containers": [{ "name": "c", "image": "cilium" }],
                    "initContainers": [{ "name": "i", "image": "multus-cni" }],
                }),
                false,
            ),
        ] {
            let found = owner_of("kube-system", None, pod.clone());
            assert_eq!(found.is_some(), is_multus, "{pod}");
        }
    }

    #[test]
    fn its_owner_is_the_chart_of_the_originals_or_another_release() {
        let pod = || container("multus-cni");
        let mut own = pod();
        own["serviceAccountName"] = SERVICE_ACCOUNT.into();
        let of = |namespace, release, pod| owner_of(namespace, release, pod).unwrap();
        assert_eq!(of(NAMESPACE, None, own.clone()), Owner::Chart);
        assert_eq!(
            of("kube-system", None, own),
            Owner::Unknown,
            "another's account of that name"
        );
        assert_eq!(
            of("kube-system", Some("rancher-flat-network"), pod()),
            Owner::Chart
        );
        let rke2 = Owner::Release("kube-system/rke2-multus".to_owned());
        assert_eq!(of("kube-system", Some("rke2-multus"), pod()), rke2);
        assert_eq!(of("kube-system", None, pod()), Owner::Unknown);
    }

    #[test]
    fn the_report_says_what_goes_with_the_chart() {
        let one = |name: &str, owner| Multus {
            name: name.to_owned(),
            owner,
            nodes: 3,
        };
        let told = |found: Vec<Multus>| {
            let mut report = TakeoverReport::<()>::default();
            tell(found, &mut report);
            report
        };
        let chart = one("cattle-flat-network/multus", Owner::Chart);
        let rke2 = Owner::Release("kube-system/rke2-multus".to_owned());
        let rke2 = one("kube-system/rke2-multus-ds", rke2);

        let alone = told(vec![chart.clone()]);
        assert!(!alone.findings[0].fine);
        assert!(alone.findings[0].says.contains("goes with the chart"));
        assert!(alone.changes[0].does.contains("install another Multus"));

        let fine = told(vec![rke2.clone()]);
        assert!(fine.findings[0].fine && fine.changes.is_empty());
        assert!(fine.findings[0].says.contains("kube-system/rke2-multus"));

        let both = told(vec![chart, rke2]);
        assert!(both.findings.iter().all(|finding| !finding.fine));
        assert!(both.changes[0].does.contains("00-multus.conf"));
        assert!(
            both.blockers.is_empty(),
            "it does not keep fipd from serving"
        );

        let none = told(Vec::new());
        assert_eq!((none.findings.len(), none.findings[0].fine), (1, true));
    }
}
