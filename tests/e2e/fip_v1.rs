//! The REST API that the stock LB controller speaks, with a real API server as Rancher.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeSet;
use std::time::Duration;

use fipd_crds::floating_ip::FloatingIP;
use fipd_tests::scenario::{Scenario, config_of, write_kubeconfig};
use fipd_tests::stock::{self, FipClient as Client, secret};
use fipd_tests::testbed::{Fipd, RESTRICTED_USER, SiteOptions, free_port, get_tcp, wait_until};
use futures::future::join_all;
use http::Method;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const ROLES: &str = include_str!("../../packaging/rbac/rancher-fip-management.yaml");
const MANY: &str = "[fip-v1]\nrate-limit-per-second = 1000\nrate-limit-burst = 1000\n";

/// The controller of a cluster, as the Secret in the guest tells it.
fn client(fipd: &Fipd, cluster: &str, project: &str) -> Client {
    let url = format!("{}/v1", fipd.url());
    let ca = std::fs::read(fipd.data_dir().join("tls/ca.crt")).unwrap();
    Client::new(&url, &ca, cluster, project, &secret(project)).unwrap()
}

#[path = "fip_v1/burst.rs"]
mod burst;
#[path = "fip_v1/moved.rs"]
mod moved;

struct Rancher {
    scenario: Scenario,
    fips: Api<FloatingIP>,
}

/// Clusters `c-m-a` with the projects `p-a` and `p-b`, `c-m-b` without, and the Harvester cluster `c-m-h` with the project
/// `p-h` and the guest `c-m-g`.
fn objects() -> Vec<Value> {
    let quota = json!({ "net": 200, "other": 200, "tiny": 1 });
    let mut all: Vec<Value> = ["c-m-a", "c-m-b", "c-m-h", "c-m-g"]
        .iter()
        .flat_map(|id| stock::cluster(id))
        .collect();
    for (project, owner) in [("p-a", "c-m-a"), ("p-b", "c-m-a"), ("p-h", "c-m-h")] {
        all.extend(stock::project(owner, project, &quota));
    }
    let credential = json!({ "harvestercredentialConfig-clusterId": "c-m-h" });
    all.extend([
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "cattle-global-data" } }),
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "cc-1", "namespace": "cattle-global-data" }, "stringData": credential,
        }),
        json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": { "name": "g", "namespace": "fleet-default" },
            "spec": { "cloudCredentialSecretName": "cattle-global-data:cc-1" },
        }),
        stock::pool("net", "10.60.0.0/16", "10.60.0.10", "10.60.0.250"),
        stock::pool("other", "10.61.0.0/24", "10.61.0.10", "10.61.0.20"),
        stock::pool("tiny", "10.62.0.0/24", "10.62.0.10", "10.62.0.11"),
    ]);
    all
}

impl Rancher {
    /// With the rights of the manifest alone.
    async fn start(extra: &str) -> Self {
        let mut scenario = Scenario::prepare(&SiteOptions::of(&[]).kept())
            .await
            .unwrap();
        let plane = &scenario.site.rancher;
        let texts = objects()
            .iter()
            .map(|object| format!("---\n{object}\n"))
            .collect::<String>();
        plane.apply(&texts).await.unwrap();
        plane.apply(ROLES).await.unwrap();
        for role in ["fipd-rancher-fip-management", "fipd-rancher-fip-api"] {
            plane.bind_role(role, None).await.unwrap();
        }
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        let fips = Api::namespaced(plane.client().await.unwrap(), "c-m-a");
        write_kubeconfig(&scenario.fipd, "rancher", &kubeconfig).unwrap();
        let config = config_of(&scenario.site, &[], "");
        scenario
            .fipd
            .write_config(&format!("{extra}\n{config}"))
            .unwrap();
        scenario.fipd.restart().await.unwrap();
        scenario.fipd.wait_ready(DEADLINE).await.unwrap();
        Self { scenario, fips }
    }

    fn client(&self, cluster: &str, project: &str) -> Client {
        client(&self.scenario.fipd, cluster, project)
    }

    /// Asks as the controller does: again until it is given one.
    async fn given(&self, client: &Client, service: &str, pool: &str) -> Value {
        wait_until(&format!("{service} has an address"), DEADLINE, || async {
            match client.request(service, pool, "").await? {
                (200, answer) => Ok(answer),
                (code, answer) => Err(format!("{code} {answer}")),
            }
        })
        .await
        .unwrap()
    }

    async fn objects(&self) -> Vec<FloatingIP> {
        self.fips.list(&ListParams::default()).await.unwrap().items
    }

    async fn wait_objects(&self, count: usize) {
        wait_until(&format!("{count} FloatingIPs"), DEADLINE, || async {
            let names: Vec<_> = self
                .objects()
                .await
                .iter()
                .map(|one| one.name_any())
                .collect();
            if names.len() == count {
                Ok(())
            } else {
                Err(names.join(" "))
            }
        })
        .await
        .unwrap();
    }
}

fn text<'a>(answer: &'a Value, key: &str) -> &'a str {
    answer[key].as_str().unwrap()
}

/// The name of the object for Service `named`; where there was none it is made and deleted.
async fn made_name(rancher: &Rancher, web: &Client) -> String {
    let (code, answer) = web.request("named", "net", "").await.unwrap();
    assert_eq!(code, 200, "{answer}");
    let all = rancher.objects().await;
    let called = |one: &&FloatingIP| {
        let name = one.labels().get("rancher.k8s.binbash.org/service-0-name");
        name.is_some_and(|name| name == "named")
    };
    let name = all.iter().find(called).unwrap().name_any();
    let address = text(&answer, "ipaddr");
    web.release("named", address).await.unwrap();
    assert_eq!(web.delete(address).await.unwrap().0, 200);
    wait_until("it is gone", DEADLINE, || async {
        match rancher.fips.get_opt(&name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    name
}

/// Code and words of a refusal, and that it has nothing else.
fn refusal(answer: Result<(u16, Value), String>) -> (u16, String) {
    let (code, body) = answer.unwrap();
    assert_eq!(body["code"], code, "{body}");
    assert_eq!(body.as_object().unwrap().len(), 2, "{body}");
    (code, text(&body, "message").to_owned())
}

fn is(code: u16, words: &str) -> (u16, String) {
    (code, words.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_client_requests_releases_lists_and_deletes() {
    let (plain, secure) = (free_port().unwrap(), free_port().unwrap());
    let listeners = format!(
        "{MANY}[[listener]]\naddress = \"127.0.0.1:{plain}\"\ntls = false\nserve = [\"ipam\"]\n\
         [[listener]]\naddress = \"127.0.0.1:{secure}\"\nserve = [\"fip-v1\"]\n"
    );
    let rancher = Rancher::start(&listeners).await;
    let web = rancher.client("c-m-a", "p-a");
    let given = rancher.given(&web, "web", "dc--net").await;
    let address = text(&given, "ipaddr").to_owned();
    let expected = json!({
        "clientsecret": secret("p-a"), "status": "approved", "cluster": "c-m-a", "project": "p-a",
        "floatingippool": "dc--net", "servicenamespace": "shop", "servicename": "web",
        "ipaddr": "10.60.0.10", "subnet": "10.60.0.0/16",
    });
    assert_eq!(given, expected);

    // defect 5: a retry is the same question, with a fixed address too; without the prefix and in other letters.
    let again = web.request("web", "net", &address).await.unwrap();
    assert_eq!((again.0, text(&again.1, "ipaddr")), (200, &*address));
    let token = web.token().await.unwrap();
    let lower = json!({
        "clientsecret": web.secret, "CLUSTER": "c-m-a", "project": "p-a", "floatingIPPool": "net",
        "serviceNamespace": "shop", "serviceName": "web",
    });
    let bare = web
        .send(
            Method::POST,
            "/fip/request",
            Some(&token),
            &lower.to_string(),
        )
        .await
        .unwrap();
    assert_eq!((bare.0, text(&bare.1, "ipaddr")), (200, &*address));
    assert_eq!(rancher.objects().await.len(), 1);
    let taken = is(409, "IP address is already assigned");
    assert_eq!(refusal(web.request("api", "net", &address).await), taken);
    let none = refusal(web.request("api", "none", "").await);
    assert!(
        none.0 == 500 && none.1.contains("denied the request"),
        "{none:?}"
    );
    let outside = refusal(web.request("api", "net", "10.9.9.9").await);
    assert!(
        outside.0 == 500 && outside.1.contains("denied the request"),
        "{outside:?}"
    );
    rancher.wait_objects(1).await;

    tokens_and_bodies(&web, &token).await;
    nobody_else(&rancher, &address).await;

    // Released, it stays the project's; what was heard before is no error.
    assert_eq!(
        refusal(web.release("api", &address).await),
        is(404, "no floatingip found to release")
    );
    let in_use = refusal(web.delete(&address).await);
    assert_eq!(in_use, taken);
    for _ in 0..2 {
        let (code, answer) = web.release("web", &address).await.unwrap();
        assert_eq!((code, text(&answer, "status")), (200, "released"));
    }
    let (_, listed) = web.list().await.unwrap();
    let unused = json!([{
        "project": "p-a", "cluster": "", "floatingippool": "net", "servicenamespace": "",
        "servicename": "", "ipaddr": address,
    }]);
    assert_eq!(listed["floatingips"], unused);

    // defect 6: it is not given as an address of another pool.
    let (code, other) = web.request("api", "other", "").await.unwrap();
    assert_eq!((code, text(&other, "subnet")), (200, "10.61.0.0/24"));
    assert!(text(&other, "ipaddr").starts_with("10.61.0."), "{other}");
    let (_, reused) = web.request("shop", "net", "").await.unwrap();
    assert_eq!(text(&reused, "ipaddr"), address);
    // A release whose answer was lost is asked for again, though another Service has the address by now.
    let (code, answer) = web.release("web", &address).await.unwrap();
    assert_eq!((code, text(&answer, "status")), (200, "released"));
    let never = is(404, "no floatingip found to release");
    assert_eq!(refusal(web.release("never", &address).await), never);
    let (_, still) = web.request("shop", "net", "").await.unwrap();
    assert_eq!(text(&still, "ipaddr"), address);
    web.release("shop", &address).await.unwrap();
    let (code, answer) = web.delete(&address).await.unwrap();
    assert_eq!((code, text(&answer, "status")), (200, "deleted"));
    let gone = is(404, "no floatingip found to delete");
    assert_eq!(refusal(web.delete(&address).await), gone);
    rancher.wait_objects(1).await;

    let fipd = &rancher.scenario.fipd;
    let rotated = fipd.cli(["rancher-fip", "rotate-key"]).await.unwrap();
    assert!(rotated.success().unwrap().contains("key 2 signs"));
    let old = web
        .send(
            Method::POST,
            "/v1/fip/list",
            Some(&token),
            &lower.to_string(),
        )
        .await;
    assert_eq!(old.unwrap().0, 200, "what the last key signed counts");

    groups(&web).await;
    let figures = get_tcp(plain, "/ipam").await.unwrap();
    let figures: Value = serde_json::from_str(&figures.body).unwrap();
    assert_eq!(
        figures["other"]["used_ips"],
        json!([text(&other, "ipaddr")])
    );
    assert_eq!(figures["other"]["broadcast"], "10.61.0.255");
    assert_eq!(figures["tiny"]["used_ips"], Value::Null);
    told(&rancher).await;
}

async fn tokens_and_bodies(web: &Client, token: &str) {
    let post = |path: &'static str, token: Option<&'static str>, body: &'static str| async move {
        web.send(Method::POST, path, token, body).await
    };
    let bad = is(400, "Invalid request body");
    let said = refusal(post("/v1/auth/token", None, "{").await);
    assert_eq!(said, bad);
    assert_eq!(refusal(post("/auth/token", None, "[]").await), bad);
    let said = refusal(post("/v1/auth/token", None, "{}").await);
    assert_eq!(said, is(400, "clientID is required"));
    let said = web
        .send(Method::POST, "/v1/fip/list", Some(token), "no")
        .await;
    assert_eq!(refusal(said), bad);
    let said = refusal(post("/v1/fip/list", Some("a.b.c"), "{}").await);
    assert_eq!(said, is(401, "Invalid token"));
    assert_eq!(refusal(post("/v1/fip/list", None, "{}").await).0, 401);
    let wrong = web.send(Method::GET, "/v1/fip/list", None, "").await;
    assert_eq!(wrong.unwrap().0, 405);
    assert_eq!(post("/v1/fip/none", None, "").await.unwrap().0, 404);
    // The token alone grants nothing.
    let nobody = is(403, "Client not authorized");
    let said = web
        .send(Method::POST, "/v1/fip/list", Some(token), "{}")
        .await;
    assert_eq!(refusal(said), nobody);
}

/// defect_26, defect_27 and defect_28: who is not the project's, or not of its cluster, gets and changes nothing.
async fn nobody_else(rancher: &Rancher, address: &str) {
    let nobody = is(403, "Client not authorized");
    let mut wrong = rancher.client("c-m-a", "p-a");
    wrong.secret = secret("p-b");
    assert_eq!(refusal(wrong.list().await), nobody);
    wrong.secret = String::new();
    assert_eq!(refusal(wrong.delete(address).await), nobody);
    wrong = rancher.client("c-m-b", "p-a");
    assert_eq!(refusal(wrong.list().await), nobody, "another cluster");
    assert_eq!(refusal(wrong.delete(address).await), nobody);
    wrong.cluster = "c-m-none".to_owned();
    assert_eq!(refusal(wrong.request("web", "net", "").await), nobody);
    wrong = rancher.client("c-m-a", "p-none");
    assert_eq!(refusal(wrong.list().await), nobody, "no such project");
    wrong = rancher.client("c-m-g", "p-a");
    assert_eq!(
        refusal(wrong.list().await),
        nobody,
        "a guest of another host"
    );

    // A project of the same cluster, in the same namespace.
    let other = rancher.client("c-m-a", "p-b");
    let (code, empty) = other.list().await.unwrap();
    assert_eq!((code, &empty["floatingips"]), (200, &Value::Null));
    let said = refusal(other.delete(address).await);
    assert_eq!(said, is(404, "no floatingip found to delete"));
    // defect_14: what is not the project's own is gone to it, and stays what it is.
    let (code, answer) = other.release("web", address).await.unwrap();
    assert_eq!((code, text(&answer, "status")), (200, "released"));
    let said = refusal(other.request("web", "net", address).await);
    assert_eq!(said, is(409, "IP address is already assigned"));

    // A guest is charged to a project of its Harvester cluster.
    let guest = rancher.client("c-m-g", "p-h");
    let (code, given) = guest.request("web", "net", "").await.unwrap();
    assert_eq!(code, 200, "{given}");
    assert_ne!(text(&given, "ipaddr"), address);
}

async fn groups(web: &Client) {
    let ask = |group: &'static str, service: &'static str, address: String| async move {
        web.request_in(group, service, "net", &address).await
    };
    let (_, first) = ask("g", "one", String::new()).await.unwrap();
    let (_, second) = ask("g", "two", String::new()).await.unwrap();
    let address = text(&first, "ipaddr").to_owned();
    for key in ["ipaddr", "sharedkey", "floatingipgroup"] {
        assert_eq!(first[key], second[key], "{key}");
    }
    let key = text(&first, "sharedkey").strip_prefix("c-m-a-").unwrap();
    assert!(key.len() == 12 && key.chars().all(|c| c.is_ascii_alphanumeric()));
    assert_eq!(
        refusal(ask("h", "three", address.clone()).await),
        is(
            409,
            "FloatingIPGroup does not match the assigned FloatingIPGroup"
        )
    );
    let (code, joined) = web.request("three", "net", &address).await.unwrap();
    assert_eq!((code, &joined["sharedkey"]), (200, &first["sharedkey"]));
    for service in ["one", "two", "three"] {
        web.release(service, &address).await.unwrap();
    }
    let (_, listed) = web.list().await.unwrap();
    let rows = listed["floatingips"].as_array().unwrap();
    let row = rows.iter().find(|row| row["ipaddr"] == *address).unwrap();
    assert_eq!(
        (&row["cluster"], row.get("floatingipgroup")),
        (&json!(""), None)
    );
}

/// What the operator sees of it: figures, the audit log, and no secret anywhere.
async fn told(rancher: &Rancher) {
    let fipd = &rancher.scenario.fipd;
    let metrics = fipd.get("/metrics").await.unwrap().body;
    let series = "fipd_fip_v1_requests_total{path=\"fip/request\",code=\"200\"}";
    assert!(metrics.contains(series), "{metrics}");
    let audit = fipd.cli(["audit", "-o", "json"]).await.unwrap();
    let audit = audit.success().unwrap();
    for part in [
        "fip-v1:p-a/c-m-a",
        "services-changed",
        "is used by no Service",
    ] {
        assert!(audit.contains(part), "{part}: {audit}");
    }
    let log = fipd.log().unwrap();
    assert!(log.contains("an LB controller asked"), "{log}");
    for project in ["p-a", "p-b", "p-h"] {
        assert!(!log.contains(&secret(project)));
    }
}

/// An address kept for the project, for which its quota has no room, is not left with the Service that asked for it.
async fn attached_in_vain(rancher: &Rancher, web: &Client) {
    let kept = json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIP",
        "metadata": { "name": "fip-kept", "namespace": "c-m-a", "labels": {
            "rancher.k8s.binbash.org/project-name": "p-a",
        } },
        "spec": { "floatingIPPool": "tiny", "ipAddr": "10.62.0.11" },
    });
    let plane = &rancher.scenario.site.rancher;
    plane.apply(&kept.to_string()).await.unwrap();
    let (code, words) = refusal(web.request("kept", "tiny", "10.62.0.11").await);
    assert_eq!(code, 409, "{words}");
    let left = rancher.fips.get("fip-kept").await.unwrap();
    assert_eq!(left.labels().len(), 1, "{:?}", left.labels());

    // A name that an object of another project has is passed over.
    let name = made_name(rancher, web).await;
    let theirs = json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIP",
        "metadata": { "name": name, "namespace": "c-m-a", "labels": {
            "rancher.k8s.binbash.org/project-name": "p-b",
        } },
        "spec": { "floatingIPPool": "tiny" },
    });
    plane.apply(&theirs.to_string()).await.unwrap();
    let (code, answer) = web.request("named", "net", "").await.unwrap();
    assert_eq!(code, 200, "{answer}");
    assert_ne!(made_name(rancher, web).await, name);
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_at_once_and_across_a_kill_gives_each_service_one_address() {
    let mut rancher = Rancher::start(MANY).await;
    let web = rancher.client("c-m-a", "p-a");
    rancher.given(&web, "first", "net").await;
    let names: Vec<String> = (0..64).map(|number| format!("web-{number}")).collect();
    // A busy machine may not get to all of them before the deadline; those ask again.
    let asked = names.iter().map(|name| rancher.given(&web, name, "net"));
    let answers = join_all(asked).await;
    let mut addresses = BTreeSet::new();
    for answer in answers {
        assert!(
            addresses.insert(text(&answer, "ipaddr").to_owned()),
            "{answer}"
        );
    }

    let (names, before) = rancher.killed_amid_burst(&web, "api", 32).await;
    rancher.scenario.fipd.restart().await.unwrap();
    let new = rancher.ask_again(&web, &names, before).await;
    assert!(addresses.is_disjoint(&new), "{new:?}");
    rancher.wait_objects(1 + 64 + 32).await;
    let services: BTreeSet<String> = rancher
        .objects()
        .await
        .iter()
        .map(|one| one.labels()["rancher.k8s.binbash.org/service-0-name"].clone())
        .collect();
    assert_eq!(services.len(), 1 + 64 + 32, "one object each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_leaves_nothing_behind_and_a_noisy_project_is_slowed_alone() {
    let rancher = Rancher::start("").await;
    let (web, other) = (
        rancher.client("c-m-a", "p-a"),
        rancher.client("c-m-a", "p-b"),
    );
    rancher.given(&web, "web", "tiny").await;
    let fipd = &rancher.scenario.fipd;
    let set = [
        "quota",
        "set",
        "--tenant",
        "p-a",
        "--pool",
        "rancher-fip/rancher/tiny",
        "--limit",
        "1",
    ];
    fipd.cli(set).await.unwrap().success().unwrap();
    let (code, words) = refusal(web.request("api", "tiny", "").await);
    assert_eq!(code, 500);
    assert!(
        words.contains("denied the request: quota exceeded"),
        "{words}"
    );
    rancher.wait_objects(1).await;

    // A full pool may have room again: the client is to ask again.
    rancher.given(&other, "web", "tiny").await;
    let (code, words) = refusal(other.request("api", "tiny", "").await);
    assert!(
        code == 500 && !words.contains("fipd denied the request: pool"),
        "{words}"
    );
    rancher.wait_objects(2).await;

    // defect 7: what somebody else made stays, refused or not.
    let theirs = json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIP",
        "metadata": { "name": "fip-abc12", "namespace": "c-m-a", "labels": {
            "rancher.k8s.binbash.org/project-name": "p-b",
            "rancher.k8s.binbash.org/cluster-name": "c-m-a",
            "rancher.k8s.binbash.org/service-0-name": "old",
            "rancher.k8s.binbash.org/service-0-namespace": "shop",
        } },
        "spec": { "floatingIPPool": "tiny" },
    });
    let plane = &rancher.scenario.site.rancher;
    plane.apply(&theirs.to_string()).await.unwrap();
    assert_eq!(refusal(other.request("old", "tiny", "").await).0, 500);
    let left = rancher.fips.get("fip-abc12").await.unwrap();
    assert_eq!(left.metadata.deletion_timestamp, None);
    attached_in_vain(&rancher, &web).await;

    // defect 29
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = join_all((0..60).map(|_| web.list())).await;
    let slowed = calls
        .into_iter()
        .filter(|answer| matches!(answer, Ok((429, _))));
    let slowed: Vec<_> = slowed.collect();
    assert!(!slowed.is_empty());
    for answer in slowed {
        assert_eq!(refusal(answer), is(429, "rate limit exceeded"));
    }
    assert_eq!(other.list().await.unwrap().0, 200);
}
