//! The testbed against itself: what the other end-to-end tests stand on must be real.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fipd_tests::testbed::{
    ANNOUNCER_CRDS, Browser, BrowserOptions, ControlPlane, ControlPlaneOptions, Fault, FaultProxy,
    KeptSite, RANCHER_CRDS, RESTRICTED_USER, Site, SiteOptions, wait_until,
};
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use serde_json::json;

/// Kubernetes' own aggregated roles are empty without a controller manager, so the test brings one.
const RESTRICTED_READS_NAMESPACES: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-namespaces}
rules: [{apiGroups: [''], resources: [namespaces], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads-namespaces}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-namespaces}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: restricted}]
";

fn service(name: &str) -> Service {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "type": "LoadBalancer", "loadBalancerClass": "fipd.io/floating-ip",
                  "ports": [{ "port": 80, "protocol": "TCP" }], "ipFamilyPolicy": "PreferDualStack" },
    }))
    .unwrap()
}

fn services(client: &Client) -> Api<Service> {
    Api::namespaced(client.clone(), "default")
}

async fn identity(client: &Client) -> String {
    Api::<Namespace>::all(client.clone())
        .get("kube-system")
        .await
        .unwrap()
        .uid()
        .unwrap()
}

fn alive(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

async fn through(proxy: &FaultProxy, patience: Duration) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(proxy.kubeconfig_yaml()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    config.connect_timeout = Some(patience);
    config.read_timeout = Some(patience);
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn three_clusters_over_one_etcd_are_apart_and_gone_on_drop() {
    let start = Instant::now();
    let mut planes =
        ControlPlane::start_many(&["one", "two", "three"], &ControlPlaneOptions::default())
            .await
            .unwrap();
    println!(
        "three API servers ready after {:.1} s",
        start.elapsed().as_secs_f64()
    );

    let mut identities = Vec::new();
    for plane in &planes {
        let client = plane.client().await.unwrap();
        identities.push(identity(&client).await);
        let made = services(&client)
            .create(&PostParams::default(), &service(plane.name()))
            .await
            .unwrap();
        assert_eq!(
            made.spec.unwrap().ip_families.unwrap().len(),
            2,
            "service addresses are dual-stack"
        );
    }
    identities.sort();
    identities.dedup();
    assert_eq!(identities.len(), 3, "each has an identity of its own");

    let client = planes[1].client().await.unwrap();
    let names = services(&client)
        .list(&ListParams::default())
        .await
        .unwrap();
    let names = names
        .iter()
        .map(ResourceExt::name_any)
        .filter(|name| name != "kubernetes")
        .collect::<Vec<_>>();
    assert_eq!(names, ["two"], "a cluster sees only its own objects");

    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } } });
    let patched = services(&client)
        .patch_status("two", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    assert!(
        serde_json::to_string(&patched.status)
            .unwrap()
            .contains("192.0.2.7")
    );

    let before = identity(&client).await;
    let killed = planes[1].pids();
    let start = Instant::now();
    planes[1].restart_api().await.unwrap();
    println!(
        "one API server restarted in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    assert!(!alive(killed[0]));
    let client = planes[1].client().await.unwrap();
    assert_eq!(
        identity(&client).await,
        before,
        "the same cluster after the restart"
    );
    services(&client).get("two").await.unwrap();
    services(&client)
        .delete("two", &DeleteParams::default())
        .await
        .unwrap();

    planes[2].stop_api().await.unwrap();
    let gone = planes[2].client().await.unwrap();
    assert!(
        Api::<Namespace>::all(gone).get("default").await.is_err(),
        "a stopped API server does not answer"
    );

    let directory = planes[0].foundation().directory().to_path_buf();
    let mut pids = vec![planes[0].foundation().etcd().pid()];
    pids.extend(planes.iter().flat_map(ControlPlane::pids));
    assert!(directory.exists() && pids.len() == 3 && pids.iter().all(|pid| alive(*pid)));
    drop(planes);
    assert!(
        !directory.exists(),
        "the directory goes with the last cluster"
    );
    assert!(
        !pids.into_iter().any(alive),
        "no child outlives its control plane"
    );
}

#[tokio::test]
async fn the_restricted_user_may_only_what_rbac_says() {
    let plane = ControlPlane::start("rbac", ControlPlaneOptions::default())
        .await
        .unwrap();
    let restricted: Api<Namespace> = Api::all(plane.client_of(RESTRICTED_USER).await.unwrap());
    let refused = restricted.list(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 403),
        "{refused}"
    );

    plane.apply(RESTRICTED_READS_NAMESPACES).await.unwrap();
    let all = ListParams::default();
    wait_until("the binding counts", Duration::from_secs(10), || {
        restricted.list(&all)
    })
    .await
    .unwrap();

    let wrong = plane.kubeconfig_of("nobody-knows-me");
    let config =
        Config::from_custom_kubeconfig(Kubeconfig::from_yaml(&wrong).unwrap(), &Default::default())
            .await;
    let unknown: Api<Namespace> = Api::all(Client::try_from(config.unwrap()).unwrap());
    let refused = unknown.list(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 401),
        "{refused}"
    );
}

#[tokio::test]
async fn the_controller_manager_ends_namespaces_and_collects_garbage() {
    let options = ControlPlaneOptions {
        controller_manager: true,
        ..ControlPlaneOptions::default()
    };
    let start = Instant::now();
    let plane = ControlPlane::start("managed", options).await.unwrap();
    println!(
        "etcd, API server and controller manager ready after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let client = plane.client().await.unwrap();

    let namespaces: Api<Namespace> = Api::all(client.clone());
    let shop = Namespace {
        metadata: ObjectMeta {
            name: Some("shop".into()),
            ..Default::default()
        },
        ..Default::default()
    };
    namespaces
        .create(&PostParams::default(), &shop)
        .await
        .unwrap();
    let in_shop: Api<Service> = Api::namespaced(client.clone(), "shop");
    in_shop
        .create(&PostParams::default(), &service("web"))
        .await
        .unwrap();
    namespaces
        .delete("shop", &DeleteParams::default())
        .await
        .unwrap();
    wait_until(
        "the namespace and all in it are gone",
        Duration::from_secs(60),
        || async {
            match namespaces.get_opt("shop").await {
                Ok(None) => Ok(()),
                Ok(Some(namespace)) => Err(format!("{:?}", namespace.status)),
                Err(error) => Err(error.to_string()),
            }
        },
    )
    .await
    .unwrap();

    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let owner = services(&client)
        .create(&PostParams::default(), &service("owner"))
        .await
        .unwrap();
    let owned: Secret =
        serde_json::from_value(json!({ "metadata": { "name": "owned", "ownerReferences": [{
        "apiVersion": "v1", "kind": "Service", "name": "owner", "uid": owner.uid().unwrap() }] } }))
        .unwrap();
    secrets
        .create(&PostParams::default(), &owned)
        .await
        .unwrap();
    services(&client)
        .delete("owner", &DeleteParams::background())
        .await
        .unwrap();
    wait_until(
        "the owned Secret is collected",
        Duration::from_secs(60),
        || async {
            match secrets.get_opt("owned").await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn the_fault_proxy_does_what_its_modes_say() {
    let plane = ControlPlane::start("faulty", ControlPlaneOptions::default())
        .await
        .unwrap();
    let proxy = plane.fault_proxy().unwrap();
    let patience = Duration::from_secs(2);
    let namespaces: Api<Namespace> = Api::all(through(&proxy, patience).await);
    namespaces.get("default").await.expect("pass");
    assert_eq!(proxy.connections(), 1);

    proxy.set(Fault::Cut);
    assert!(namespaces.get("default").await.is_err(), "cut");
    proxy.set(Fault::Pass);
    namespaces.get("default").await.expect("pass after cut");

    proxy.set(Fault::BlackHole);
    let start = Instant::now();
    assert!(namespaces.get("default").await.is_err(), "black hole");
    assert!(
        start.elapsed() >= patience - Duration::from_millis(100),
        "it is silent, it does not refuse"
    );
    proxy.set(Fault::Pass);
    wait_until("pass after black hole", Duration::from_secs(10), || {
        namespaces.get("default")
    })
    .await
    .unwrap();

    proxy.set(Fault::Delay(Duration::from_millis(150)));
    let start = Instant::now();
    namespaces.get("default").await.expect("delay");
    assert!(
        start.elapsed() >= Duration::from_millis(300),
        "there and back: {:?}",
        start.elapsed()
    );

    proxy.set(Fault::Throttle(20_000));
    let size = serde_json::to_vec(&namespaces.list(&ListParams::default()).await.unwrap())
        .unwrap()
        .len();
    let start = Instant::now();
    let rounds = 20_000 / size + 1;
    for _ in 0..rounds {
        namespaces
            .list(&ListParams::default())
            .await
            .expect("throttle");
    }
    assert!(
        start.elapsed() >= Duration::from_millis(500),
        "{rounds} x {size} bytes took {:?}",
        start.elapsed()
    );

    // kube's client repeats a request that was answered with 429, so one request goes through in the end. The first may
    // have gone into the connection that the proxy is about to close, and nobody knows then what became of it.
    proxy.set(Fault::TooManyRequests);
    let request = async {
        match namespaces.get("default").await {
            Err(kube::Error::HyperError(_) | kube::Error::Service(_)) => {
                namespaces.get("default").await
            }
            answer => answer,
        }
    };
    let switch_back = async {
        wait_until("two refusals", Duration::from_secs(20), || {
            let refused = proxy.refused_requests();
            std::future::ready(if refused >= 2 { Ok(()) } else { Err(refused) })
        })
        .await
        .unwrap();
        proxy.set(Fault::Pass);
    };
    let (answer, ()) = futures::future::join(request, switch_back).await;
    answer.expect("pass after 429");
}

#[tokio::test]
async fn a_site_looks_like_rancher() {
    let start = Instant::now();
    let options = SiteOptions {
        proxied: true,
        ..SiteOptions::of(&["alpha", "beta"])
    };
    let site = Site::start(&options).await.unwrap();
    println!(
        "a site of three API servers ready after {:.1} s",
        start.elapsed().as_secs_f64()
    );

    let rancher = site.rancher.client().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(rancher.clone(), "fleet-default");
    for (index, name) in ["alpha", "beta"].into_iter().enumerate() {
        let cluster = site.cluster(name).unwrap();
        let secret = secrets
            .get(&format!("{}-kubeconfig", cluster.id))
            .await
            .unwrap();
        let text = String::from_utf8(secret.data.unwrap().remove("value").unwrap().0).unwrap();
        let config = Config::from_custom_kubeconfig(
            Kubeconfig::from_yaml(&text).unwrap(),
            &Default::default(),
        )
        .await;
        let found = identity(&Client::try_from(config.unwrap()).unwrap()).await;
        assert_eq!(
            found,
            identity(&site.downstream[index].plane.client().await.unwrap()).await
        );
        assert!(
            cluster.proxy.as_ref().unwrap().connections() > 0,
            "its kubeconfig goes through the proxy"
        );
    }

    let kind = kube::core::GroupVersionKind::gvk("management.cattle.io", "v3", "Cluster");
    let (resource, _) = kube::discovery::pinned_kind(&rancher, &kind).await.unwrap();
    let clusters: Api<DynamicObject> = Api::all_with(rancher, &resource);
    let names = clusters.list(&ListParams::default()).await.unwrap();
    let names = names.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    assert_eq!(names, ["c-m-alpha", "c-m-beta", "local"]);

    let alpha = site.cluster("alpha").unwrap();
    alpha.add_namespace("shop").await.unwrap();
    let shop = Api::<Namespace>::all(alpha.plane.client().await.unwrap())
        .get("shop")
        .await
        .unwrap();
    assert_eq!(
        shop.annotations()["field.cattle.io/projectId"],
        "c-m-alpha:p-alpha"
    );
    assert!(site.cluster("gamma").is_err());
    alpha.plane.install_crds(ANNOUNCER_CRDS).await.unwrap();
    assert!(RANCHER_CRDS.contains("harvesterconfigs.rke-machine-config.cattle.io"));
}

#[tokio::test]
async fn a_kept_site_is_as_new_or_another_one() {
    let options = SiteOptions::of(&["alpha"]).kept();
    let site = KeptSite::start(&options).await.unwrap();
    let first = site.rancher.pids();
    let alpha = site.cluster("alpha").unwrap();
    alpha.add_namespace("shop").await.unwrap();
    let client = alpha.plane.client().await.unwrap();
    let shop: Api<Service> = Api::namespaced(client, "shop");
    let mut web = service("web");
    web.metadata.finalizers = Some(vec!["example.com/nobody".to_owned()]);
    shop.create(&PostParams::default(), &web).await.unwrap();
    // Nobody answers it.
    let refuses = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "refuses" },
        "webhooks": [{
            "name": "refuses.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": { "url": "https://127.0.0.1:1/" },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["services"] }],
        }],
    });
    alpha.plane.apply(&refuses.to_string()).await.unwrap();
    drop(site);

    let site = KeptSite::start(&options).await.unwrap();
    assert_eq!(site.rancher.pids(), first);
    let client = site.cluster("alpha").unwrap().plane.client().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert!(namespaces.get_opt("shop").await.unwrap().is_none());
    let services: Api<Service> = Api::all(client);
    let all = services.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["kubernetes"]);

    // What cannot be undone.
    let local = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
        "metadata": { "name": "local" }, "spec": { "displayName": "other" },
    });
    site.rancher.apply(&local.to_string()).await.unwrap();
    drop(site);
    let site = KeptSite::start(&options).await.unwrap();
    assert_ne!(site.rancher.pids(), first);
    assert!(first.iter().all(|pid| !alive(*pid)));
}

#[tokio::test]
async fn the_browser_fills_forms_runs_scripts_or_not_and_keeps_pictures() {
    let page = "data:text/html,<title>T</title><style>@media (prefers-color-scheme: dark){p{color:rgb(1,2,3)}}</style>\
                <p>plain</p><input name=a><script>document.querySelector('p').textContent='scripted'</script>";
    let browser = Browser::start(BrowserOptions::default()).await.unwrap();
    browser.open(page).await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "T");
    assert_eq!(browser.text("p").await.unwrap(), "scripted");
    browser.fill("input[name=a]", "hello").await.unwrap();
    assert_eq!(browser.count("input, p").await.unwrap(), 2);
    let picture = std::fs::read(browser.screenshot("testbed").await.unwrap()).unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
    assert!(
        browser.open("http://192.0.2.1/").await.is_err(),
        "nothing but loopback is reachable"
    );
    drop(browser);

    let options = BrowserOptions {
        javascript: false,
        dark: true,
        ..BrowserOptions::default()
    };
    let browser = Browser::start(options).await.unwrap();
    browser.open(page).await.unwrap();
    assert_eq!(browser.text("p").await.unwrap(), "plain");
    assert_eq!(
        browser.style("p", "color").await.unwrap(),
        "rgba(1, 2, 3, 1)"
    );
    assert!(
        browser
            .text("h1")
            .await
            .unwrap_err()
            .to_string()
            .contains("no such element")
    );
}
