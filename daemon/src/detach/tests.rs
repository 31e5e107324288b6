use std::{collections::BTreeSet, sync::Arc};

use fipd_core::System;
use parking_lot::Mutex;

use super::*;
use crate::{
    clock,
    clusters::testing,
    config::ClusterSettings,
    controller::{
        client::testing::{Asked, serving},
        kind::SERVICE,
    },
    ipam::Ipam,
    systems::{
        ALL,
        rancher_fip::{leaving::RancherFipLeaving, settings::RancherFipSettings},
    },
};

const LABEL: &str = "app.kubernetes.io/managed-by";

fn past(system: System) -> Past {
    Past {
        systems: BTreeSet::from([system]),
        settings: ClusterSettings::default(),
        guest: false,
        unheard: BTreeSet::new(),
    }
}

/// A server that has these objects at these paths, and refuses every other path or says that nothing is there.
fn server(
    objects: &'static [(&'static str, Value)],
    others: u16,
) -> (Remote, Arc<Mutex<Vec<Asked>>>) {
    serving(move |path| {
        let found = objects.iter().find(|(at, _)| *at == path);
        found.map_or(
            (others, json!("User \"u\" cannot do that")),
            |(_, object)| (200, object.clone()),
        )
    })
}

/// What each system leaves.
pub fn leaving() -> Vec<&'static dyn Leaving> {
    ALL.iter().map(|system| system.leaving()).collect()
}

/// The kind of this plural.
pub fn leftover(plural: &str) -> &'static Leftover {
    let mut all = leaving().into_iter().flat_map(|one| one.leftovers());
    all.find(|one| one.kind.plural == plural).unwrap()
}

/// What would be done, in words, and what could not be seen.
async fn all(remote: &Remote, past: &Past) -> (Vec<String>, Vec<String>) {
    let (mut found, systems) = (Vec::new(), leaving());
    for system in &systems {
        found.push(system.first(remote, past).await);
    }
    for kind in systems.iter().flat_map(|one| one.leftovers()) {
        found.push(steps_of(remote, past, kind, &Marks::of(&systems)).await);
    }
    found.push(leases::steps(remote, &systems, past, "me").await);
    let (mut steps, mut unseen) = (Vec::new(), Vec::new());
    for found in found {
        steps.extend(found.steps);
        unseen.extend(found.unseen);
    }
    let text = |step: &Step| format!("{}: {}", step.object, step.does.text());
    (steps.iter().map(text).collect(), unseen)
}

/// Kinds that fipd installs and writes nothing in.
const UNTOUCHED: [(&str, &str); 1] = [
    // Users make them, without a finalizer or a mark of fipd's. What they run goes before anything else.
    ("api.operator.brtrm.dev", "Agent"),
];

#[test]
fn every_kind_that_fipd_installs_is_left_by_a_system() {
    let leftovers = leaving().into_iter().flat_map(|one| one.leftovers());
    let left: BTreeSet<_> = leftovers
        .map(|one| (one.kind.group(), one.kind.kind))
        .collect();
    let untouched = BTreeSet::from(UNTOUCHED);
    for definition in fipd_crds::all() {
        let spec = definition.spec;
        let kind = (&*spec.group, &*spec.names.kind);
        let times = [&left, &untouched]
            .iter()
            .filter(|all| all.contains(&kind))
            .count();
        assert_eq!(
            times, 1,
            "{kind:?} is in the leftovers of a system, or there is a reason why not"
        );
    }
}

/// A system that has Services in common with others.
struct Sharer;

impl Leaving for Sharer {
    fn leftovers(&self) -> &'static [Leftover] {
        static LEFTOVERS: [Leftover; 1] = [Leftover::of(SERVICE, |_| true)];
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec!["example.org/shared"],
            ..Marks::default()
        }
    }
}

#[tokio::test]
async fn what_two_systems_leave_is_taken_away_once() {
    let meta = json!({ "namespace": "shop", "name": "web", "uid": "u", "finalizers": ["example.org/shared"] });
    let services = json!({ "items": [{ "metadata": meta }] });
    let (remote, _) = server(leak(vec![("/api/v1/services", services)]), 404);
    let dir = tempfile::tempdir().unwrap();
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
    let session = testing::session(remote.client(), &ipam).await;
    let both: [&dyn Leaving; 2] = [&Sharer, &Sharer];
    let report = leave(&session, &both, &past(System::claims()), "me", None).await;
    let steps = report.unwrap().steps;
    assert_eq!(steps.len(), 1, "{steps:?}");
}

fn leak(objects: Vec<(&'static str, Value)>) -> &'static [(&'static str, Value)] {
    objects.leak()
}

#[tokio::test]
async fn what_may_not_be_listed_is_asked_for_by_name() {
    let webhook = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let objects = leak(vec![
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/fipd-rancher-fip-validator",
            json!({ "metadata": { "name": "fipd-rancher-fip-validator", "uid": "w", "labels": { LABEL: "fipd" } } }),
        ),
        (
            "/api/v1/namespaces/rancher-fip-manager/services/rancher-fip-api-server",
            json!({ "metadata": {
                "name": "rancher-fip-api-server", "namespace": "rancher-fip-manager", "uid": "s",
                "annotations": { "fipd.io/selector": "{\"app\":\"api\"}" },
            } }),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/rancher-fip-manager/leases/rancher-fip-manager-lock",
            json!({ "metadata": { "uid": "l" }, "spec": { "holderIdentity": "me" } }),
        ),
    ]);
    let (remote, asked) = server(objects, 403);
    let mut past = past(System::rancher_fip());
    past.settings.of_mut::<RancherFipSettings>().api_service = true;
    let (steps, unseen) = all(&remote, &past).await;
    assert_eq!(
        steps,
        [
            "ValidatingWebhookConfiguration fipd-rancher-fip-validator: delete",
            "Service rancher-fip-manager/rancher-fip-api-server: take off fipd.io/selector",
            "Lease rancher-fip-manager/rancher-fip-manager-lock: let go",
        ]
    );
    assert!(asked.lock().iter().all(|asked| asked.path != webhook));
    let named = |what: &str| unseen.iter().any(|unseen| unseen.starts_with(what));
    for what in [
        "FloatingIP:",
        "FloatingIPProjectQuota:",
        "EndpointSlice:",
        "Lease:",
    ] {
        assert!(named(what), "{what} {unseen:#?}");
    }
    assert!(
        unseen.iter().all(|one| one.contains("packaging/rbac")),
        "{unseen:#?}"
    );
    for what in ["IPRule", "AddressClaim", "Secret", "Service:", "HelmChart"] {
        assert!(!named(what), "never written there: {unseen:#?}");
    }
}

#[tokio::test]
async fn what_fipd_never_wrote_there_is_not_missed_where_it_may_not_be_seen() {
    let lists = |plural: &str| format!("/apis/fipd.io/v1alpha1/{plural}");
    let (remote, _) =
        serving(
            move |path| match path == lists("addressclaims") || path == lists("pools") {
                true => (200, json!({ "items": [] })),
                false => (403, json!("no")),
            },
        );
    let (steps, unseen) = all(&remote, &past(System::claims())).await;
    assert_eq!((steps, unseen), (Vec::new(), Vec::new()));
    let (_, unseen) = all(&remote, &past(System::ip_rule())).await;
    let all_of: Vec<&str> = (unseen.iter())
        .filter_map(|one| one.split_once(':').map(|(kind, _)| kind))
        .collect();
    let wanted = [
        "Agent",
        "ValidatingWebhookConfiguration",
        "IPRule",
        "IPRuleConfig",
        "Lease",
    ];
    assert_eq!(all_of, wanted, "{unseen:#?}");
}

#[tokio::test]
async fn what_agents_run_goes_where_fipd_made_it_and_is_named_where_it_may_not_be_seen() {
    let fields = json!([{ "manager": "fipd", "operation": "Apply" }]);
    let owners = json!([{ "uid": "a-1" }]);
    let agents = json!({ "items": [{ "metadata": { "name": "default", "namespace": "rules", "uid": "a-1" } }] });
    let objects = leak(vec![
        (
            "/apis/api.operator.brtrm.dev/v1alpha1/agents",
            agents.clone(),
        ),
        (
            "/apis/apps/v1/namespaces/rules/daemonsets/iprule-agent",
            json!({ "metadata": { "uid": "d", "managedFields": fields, "ownerReferences": owners } }),
        ),
        (
            // The original's.
            "/api/v1/namespaces/rules/serviceaccounts/iprule-agent",
            json!({ "metadata": { "uid": "s", "ownerReferences": owners } }),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/iprule-agent",
            json!({ "metadata": { "uid": "b", "managedFields": fields, "labels": { "managed-by": "ip-rule-operator" } } }),
        ),
    ]);
    let (remote, _) = server(objects, 404);
    let (steps, unseen) = all(&remote, &past(System::ip_rule())).await;
    assert_eq!(
        steps,
        [
            "DaemonSet rules/iprule-agent: delete",
            "ClusterRoleBinding iprule-agent: delete"
        ]
    );
    assert_eq!(unseen, Vec::<String>::new());
    let only = leak(vec![(
        "/apis/api.operator.brtrm.dev/v1alpha1/agents",
        agents,
    )]);
    let (remote, _) = server(only, 403);
    let (_, unseen) = all(&remote, &past(System::ip_rule())).await;
    for what in [
        "DaemonSet: daemonsets rules/iprule-agent",
        "ServiceAccount:",
        "ConfigMap:",
        "ClusterRoleBinding:",
    ] {
        assert!(
            unseen.iter().any(|one| one.starts_with(what)),
            "{what} {unseen:#?}"
        );
    }
}

#[tokio::test]
async fn what_is_in_guests_is_named_by_the_notes_which_stay_meanwhile() {
    let path = "/api/v1/namespaces/rancher-fip-manager/configmaps/fipd-guests";
    let mut past = past(System::rancher_fip());
    past.settings
        .of_mut::<RancherFipSettings>()
        .cluster_manager
        .enabled = true;
    let maps = leftover("configmaps");
    let look = async |past: &Past, data: Value| {
        let map = json!({ "metadata": {
            "name": "fipd-guests", "namespace": "rancher-fip-manager", "uid": "u", "labels": { LABEL: "fipd" },
        }, "data": data });
        let all = json!({ "items": [map] });
        let (remote, _) = server(leak(vec![(path, map), ("/api/v1/configmaps", all)]), 404);
        let noted = RancherFipLeaving.elsewhere(&remote, past, "r").await;
        let steps = steps_of(&remote, past, maps, &Marks::of(&leaving()))
            .await
            .steps;
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert_eq!(noted.unseen, Vec::<String>::new());
        (noted.needs(&steps[0]), noted.left)
    };
    let both = json!({ "c-1": "new old\np-1", "c-2": "fip" });
    let (needed, left) = look(&past, both.clone()).await;
    let [first, second] = left.as_slice() else {
        panic!("{left:#?}")
    };
    assert!(
        first.starts_with("guest c-1 of r")
            && first.contains("(in namespace new and old, Secrets of project p-1)"),
        "{first}"
    );
    assert!(second.contains("(in namespace fip)"), "{second}");
    assert!(needed, "nothing else says so");
    assert!(!first.contains("app-namespace"), "{first}");
    assert_eq!(look(&past, json!({})).await, (false, Vec::new()));

    // The settings name another namespace by now.
    let mut moved = past.clone();
    moved.settings.of_mut::<RancherFipSettings>().app_namespace = "fip".into();
    let (needed, left) = look(&moved, both).await;
    assert!(needed && left.len() == 2, "{left:#?}");
    assert!(
        left[0].contains("app-namespace = \"rancher-fip-manager\""),
        "{left:#?}"
    );

    let (remote, _) = server(leak(Vec::new()), 403);
    let noted = RancherFipLeaving.elsewhere(&remote, &past, "r").await;
    assert!(
        noted.unseen[0].starts_with("ConfigMap:"),
        "it is not taken as empty"
    );
    past.settings
        .of_mut::<RancherFipSettings>()
        .cluster_manager
        .enabled = false;
    let noted = RancherFipLeaving.elsewhere(&remote, &past, "r").await;
    assert_eq!(noted.unseen, Vec::<String>::new(), "there never were any");
}

#[tokio::test]
async fn notes_are_read_where_they_would_go_although_the_settings_say_nothing_of_guests_by_now() {
    let maps = "/api/v1/namespaces/rancher-fip-manager/configmaps";
    let map = |name: &str, data: Value| {
        let metadata = json!({
            "name": name, "namespace": "rancher-fip-manager", "uid": name, "labels": { LABEL: "fipd" },
        });
        json!({ "metadata": metadata, "data": data })
    };
    let notes = map("fipd-guests", json!({ "c-1": "fip" }));
    let copy = map("fipd-settings", json!({}));
    // The role of before, which allows no look in all namespaces.
    let objects = vec![
        (maps, json!({ "items": [notes.clone(), copy] })),
        (
            "/api/v1/namespaces/rancher-fip-manager/configmaps/fipd-guests",
            notes,
        ),
    ];
    let (remote, _) = server(leak(objects), 403);
    let past = past(System::rancher_fip());
    let noted = RancherFipLeaving.elsewhere(&remote, &past, "r").await;
    assert!(
        noted.left.len() == 1 && noted.left[0].starts_with("guest c-1 of r"),
        "{:#?}",
        noted.left
    );
    assert_eq!(noted.unseen, Vec::<String>::new());
    let steps = steps_of(
        &remote,
        &past,
        leftover("configmaps"),
        &Marks::of(&leaving()),
    )
    .await
    .steps;
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(steps.iter().all(|step| noted.needs(step)), "{steps:?}");
}

#[tokio::test]
async fn the_secrets_of_projects_stay_without_fipds_mark() {
    let secret = |namespace: &str, name: &str, by: &str| {
        let labels = json!({ LABEL: by });
        json!({ "metadata": { "namespace": namespace, "name": name, "uid": "u", "labels": labels } })
    };
    let all = json!({ "items": [
        secret("c-1", "rancher-fip-config-p-1", "fipd"),
        secret("c-2", "rancher-fip-config-p-2", "Helm"),
        secret("c-2", "another", "fipd"),
    ] });
    let mut past = past(System::rancher_fip());
    let (remote, _) = server(leak(vec![("/api/v1/secrets", all)]), 404);
    let text = |step: &Step| format!("{}: {}", step.object, step.does.text());
    let step = format!("Secret c-1/rancher-fip-config-p-1: take off {LABEL}");
    for enabled in [false, true] {
        past.settings
            .of_mut::<RancherFipSettings>()
            .cluster_manager
            .enabled = enabled;
        let found = RancherFipLeaving.last(&remote, &past).await;
        let steps: Vec<String> = found.steps.iter().map(text).collect();
        let wanted = (vec![step.clone()], Vec::new());
        assert_eq!(
            (steps, found.unseen),
            wanted,
            "the manager is on: {enabled}"
        );
    }

    let (remote, asked) = server(leak(Vec::new()), 403);
    let unseen = RancherFipLeaving.last(&remote, &past).await.unseen;
    assert!(unseen[0].starts_with("Secret:"), "{unseen:?}");
    past.settings
        .of_mut::<RancherFipSettings>()
        .cluster_manager
        .enabled = false;
    let unseen = RancherFipLeaving.last(&remote, &past).await.unseen;
    assert_eq!(
        unseen,
        Vec::<String>::new(),
        "there may never have been any"
    );
    past.systems = BTreeSet::from([System::claims()]);
    RancherFipLeaving.last(&remote, &past).await;
    assert_eq!(asked.lock().len(), 2, "there never were any");
}

/// A server may have either version of Cluster API alone; the finalizers go there all the same.
#[tokio::test]
async fn finalizers_go_in_the_version_that_the_cluster_serves() {
    let marks = Marks::of(&leaving());
    for version in ["v1beta2", "v1beta1"] {
        for (plural, kind, finalizer) in [
            (
                "ipaddressclaims",
                "IPAddressClaim",
                "ipam.cluster.x-k8s.io/ReleaseAddress",
            ),
            (
                "ipaddresses",
                "IPAddress",
                "ipam.cluster.x-k8s.io/ProtectAddress",
            ),
        ] {
            let api = format!("apis/ipam.cluster.x-k8s.io/{version}");
            let meta =
                json!({ "namespace": "ns", "name": "a", "uid": "u", "finalizers": [finalizer] });
            let (served, list) = (format!("/{api}/"), format!("/{api}/{plural}"));
            let (remote, asked) = serving(move |path| {
                if path == served {
                    (200, json!({ "resources": [{ "name": plural }] }))
                } else if path == list {
                    let pool = |group: &str, kind: &str| json!({ "poolRef": { "apiGroup": group, "kind": kind, "name": "net" } });
                    let ours = pool("ipam.cluster.x-k8s.io", "InClusterIPPool");
                    let others = pool("ipam.infoblox.com", "InfobloxIPPool");
                    let items =
                        [ours, others].map(|spec| json!({ "metadata": meta, "spec": spec }));
                    (200, json!({ "items": items }))
                } else {
                    (404, json!("there is no such version"))
                }
            });
            let never = past(System::claims());
            let found = steps_of(&remote, &never, leftover(plural), &marks).await;
            assert_eq!(found.steps, [], "they are another program's");
            let past = past(System::cluster_api());
            let found = steps_of(&remote, &past, leftover(plural), &marks).await;
            let steps: Vec<String> = found
                .steps
                .iter()
                .map(|step| format!("{} {}: {}", step.target.api, step.object, step.does.text()))
                .collect();
            let expected = format!("{api} {kind} ns/a: take the finalizer {finalizer} off");
            assert_eq!((steps, found.unseen), (vec![expected], Vec::new()));
            // What is done goes the same way.
            let before = asked.lock().len();
            let _ = apply(&remote, &found.steps[0]).await;
            let path = asked.lock()[before].path.clone();
            assert_eq!(path, format!("/{api}/namespaces/ns/{plural}/a"));
        }
    }
    let (remote, _) = serving(|_| (503, json!("it starts")));
    let past = past(System::cluster_api());
    let found = steps_of(&remote, &past, leftover("ipaddresses"), &marks).await;
    assert_eq!(
        found.unseen.len(),
        1,
        "it is not taken for a server without them"
    );
}

#[test]
fn what_is_not_seen_is_in_doubt_until_every_cluster_manager_has_said_where_it_was() {
    let mut past = past(System::claims());
    assert_eq!(past.doubt(), None);
    past.unheard = BTreeSet::from(["a".into(), "b".into()]);
    let doubt = past.doubt().unwrap();
    assert!(doubt.contains("cluster manager of a or of b"), "{doubt}");
}
