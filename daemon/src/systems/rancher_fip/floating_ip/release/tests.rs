use std::{convert::Infallible, sync::Arc};

use fipd_core::{Adopt, ClusterId, LeaseKey, Request, System, Tenant};
use fipd_crds::floating_ip::{FloatingIP, ServiceRef as Assignee};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::{
    clock,
    clusters::{adoption::Inventory, testing},
    controller::{
        address_user::inventory::AddressInventory, client::Remote, events::Events, meta::Meta,
        queue::Next, reconcile::Controller,
    },
    ipam::Ipam,
    systems::rancher_fip::{
        Site,
        clusters::RancherCluster,
        floating_ip::{ManagedFloatingIps, controller, observe},
        kinds::FLOATING_IP,
        names::{FINALIZER, ServiceRef},
        rancher::{Data, Rancher, Ranchers},
        sample::{Shows, connect},
    },
};

const ADDRESS: [u8; 4] = [10, 0, 0, 5];

struct Bench {
    _dir: tempfile::TempDir,
    ipam: Ipam,
    rancher: Arc<Rancher>,
    fips: Arc<FloatingIpController>,
    inventory: AddressInventory<ManagedFloatingIps>,
    patched: Arc<Mutex<Vec<(String, Value)>>>,
}

/// Answers `{}` to everything, says that no cluster `c-gone` is there, and notes what is patched.
fn client(patched: &Arc<Mutex<Vec<(String, Value)>>>) -> Client {
    let patched = Arc::clone(patched);
    let serve = move |request: http::Request<Body>| {
        let patched = Arc::clone(&patched);
        async move {
            use http_body_util::BodyExt as _;
            let (head, body) = request.into_parts();
            let path = head.uri.path().to_owned();
            let gone = path.ends_with("/clusters/c-gone");
            if head.method == http::Method::PATCH {
                let bytes = body.collect().await.map(|body| body.to_bytes());
                let body = serde_json::from_slice(&bytes.unwrap_or_default());
                patched.lock().push((path, body.unwrap_or_default()));
            }
            let (code, text) = match gone {
                true => (
                    404,
                    json!({ "status": "Failure", "code": 404, "reason": "NotFound", "message": "" }),
                ),
                false => (200, json!({ "metadata": {} })),
            };
            let answer = http::Response::builder().status(code);
            let answer = answer.body(Body::from(text.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.expect("an answer"))
        }
    };
    Client::new(tower::service_fn(serve), "default")
}

impl Bench {
    /// Cluster X is Rancher; its FloatingIP `c-m-a/fip-abc12` has the address.
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let patched = Arc::default();
        let client = client(&patched);
        let session = testing::session(client.clone(), &ipam).await;
        let site = Arc::new(Site::new(session, System::rancher_fip()));
        let rancher = Ranchers::default().get("x");
        let data = Data::new(site.id.clone(), Remote::new(client), site.cancel());
        let quiet = || std::future::ready(());
        let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
        let context = data.context(FLOATING_IP, &site, &Arc::new(events), &data.fips);
        let fips = controller(context, Arc::clone(&rancher), data);
        let inventory = AddressInventory(Arc::clone(&fips));
        let bench = Self {
            _dir: dir,
            ipam,
            rancher,
            fips,
            inventory,
            patched,
        };
        let adopt = Adopt {
            length: None,
            key: place(),
            holder: bench.fips.context.holder(&key(), &"f".into()),
            tenant: Some(Tenant("p-1".into())),
            since: fipd_core::Timestamp(1),
            actor: "test".into(),
        };
        let adopted = bench.ipam.submit(Request::Adopt(adopt)).await;
        adopted.expect("a lease");
        bench
    }

    /// Deletes the object, which is for Service `shop/web` of this cluster.
    async fn delete(&self, cluster: &str) {
        let fip = Fip {
            meta: Meta {
                uid: "f".into(),
                deleted: Some(fipd_core::Timestamp(1)),
                finalizers: vec![FINALIZER.into()],
                ..Meta::default()
            },
            cluster: Some(cluster.into()),
            services: vec![Assignee {
                service_namespace: "shop".into(),
                service_name: "web".into(),
            }],
            ..observe::view(FloatingIP::default())
        };
        let meta = fip.meta.clone();
        let next = self.fips.release(&key(), &meta, Some(Arc::new(fip))).await;
        assert_eq!(next.expect("an end"), Next::Done);
    }

    fn holder(&self) -> Option<String> {
        let lease = self.ipam.read(|ledger| ledger.lease(place()).cloned())?;
        let owner = lease.owner()?;
        Some(format!("{} {}", owner.identity, owner.instance))
    }

    /// Whether our finalizer was taken off.
    fn is_finalized(&self) -> bool {
        let patched = self.patched.lock();
        patched.iter().any(|(_, body)| body.is_array())
    }
}

fn place() -> LeaseKey {
    fipd_core::testing::key(ADDRESS)
}

fn key() -> Key {
    Key::new("c-m-a", "fip-abc12")
}

fn web() -> ServiceRef {
    ServiceRef {
        cluster: ClusterId("G".into()),
        key: Key::new("shop", "web"),
        uid: "w".into(),
    }
}

const OWN: &str = "rancher-fip/G/Service/shop/web w";

#[tokio::test]
async fn deleting_a_floating_ip_leaves_its_address_to_the_service_that_shows_it() {
    for fresh in [false, true] {
        let bench = Bench::new().await;
        let shown = Some(web());
        let guest = match fresh {
            true => Shows {
                fresh: shown,
                ..Shows::default()
            },
            false => Shows {
                listed: shown,
                ..Shows::default()
            },
        };
        connect(&bench.rancher, "G", "c-m-g", guest);
        bench.delete("c-m-g").await;
        assert_eq!(bench.holder().as_deref(), Some(OWN));
        assert!(bench.is_finalized());
        let said = bench.patched.lock().iter().any(|(path, body)| {
            path.ends_with("/status") && body.to_string().contains("10.0.0.5 stays with Service")
        });
        assert!(said, "the condition says who keeps it");
        bench.delete("c-m-g").await;
        assert_eq!(
            bench.holder().as_deref(),
            Some(OWN),
            "after a crash in between"
        );
    }
}

#[tokio::test]
async fn a_cluster_that_is_down_or_not_connected_keeps_the_addresses_of_its_services() {
    let bench = Bench::new().await;
    let silent = Shows {
        silent: true,
        ..Shows::default()
    };
    connect(&bench.rancher, "G", "c-m-g", silent);
    bench.delete("c-m-g").await;
    let kept = bench.holder();
    assert_eq!(kept.as_deref(), Some("rancher-fip/G/Service/shop/web "));
    assert!(bench.is_finalized(), "nothing waits for it");

    let bench = Bench::new().await;
    bench.delete("c-m-g").await;
    let reported = "rancher-fip/X/Service/shop/web@c-m-g ";
    assert_eq!(bench.holder().as_deref(), Some(reported));
    assert!(bench.is_finalized());
}

#[tokio::test]
async fn an_address_that_its_cluster_does_not_show_is_free() {
    let bench = Bench::new().await;
    connect(&bench.rancher, "G", "c-m-g", Shows::default());
    bench.delete("c-m-g").await;
    assert_eq!(bench.holder(), None);
    assert!(bench.is_finalized());

    let bench = Bench::new().await;
    let clusters = &bench.fips.user.data.clusters;
    clusters.set(&Key::new("", "c-m-b"), RancherCluster::default());
    clusters.complete();
    bench
        .fips
        .user
        .data
        .names
        .note(&"c-gone".into(), Some("gone"));
    bench.delete("c-gone").await;
    assert_eq!(bench.holder(), None, "Rancher has no such cluster any more");
}

#[tokio::test]
async fn an_object_that_loses_its_finalizer_leaves_the_address_to_its_project_alone() {
    let bench = Bench::new().await;
    let gone = bench.fips.context.holder(&key(), &"f".into());
    let shows = |project: &str| Shows {
        listed: Some(web()),
        project: Some(Tenant(project.into())),
        ..Shows::default()
    };
    connect(&bench.rancher, "H", "c-m-h", shows("p-other"));
    assert_eq!(bench.inventory.heir(&gone, place()), None);
    connect(&bench.rancher, "G", "c-m-g", shows("p-1"));
    assert_eq!(bench.inventory.heir(&gone, place()), Some(web().holder()));
}

fn fip(cluster: Option<&str>, services: &[&str]) -> Fip {
    let mut fip = observe::view(FloatingIP::default());
    fip.cluster = cluster.map(str::to_owned);
    let assignee = |name: &&str| Assignee {
        service_namespace: "shop".into(),
        service_name: (*name).into(),
    };
    fip.services = services.iter().map(assignee).collect();
    fip
}

fn shown() -> ServiceRef {
    ServiceRef::parse("Service/g/shop/web/u").expect("a Service")
}

fn end(fip: &Fip, name: &str, word: Word) -> Option<String> {
    let kept = keeper(&ClusterId("m".into()), &Key::new("c-m-a", name), fip, word);
    kept.map(|holder| format!("{} {}", holder.identity, holder.instance))
}

#[test]
fn an_address_that_a_service_shows_stays_with_it() {
    let fip = fip(Some("c-m-a"), &["web"]);
    let own = Some("rancher-fip/g/Service/shop/web u".to_owned());
    assert_eq!(end(&fip, "a", Word::Shows(shown())), own);
    assert_eq!(end(&fip, "a", Word::ShowsNowhere), None);
}

#[test]
fn a_cluster_that_does_not_answer_loses_nothing() {
    let used = fip(Some("c-m-a"), &["web"]);
    let silent = || Word::Silent(ClusterId("g".into()));
    let kept = Some("rancher-fip/g/Service/shop/web ".to_owned());
    assert_eq!(end(&used, "a", silent()), kept);
    let reported = Some("rancher-fip/m/Service/shop/web@c-m-a ".to_owned());
    assert_eq!(end(&used, "a", Word::Unconnected), reported);
    let shared = fip(Some("c-m-a"), &["web", "api"]);
    let by_name = Some("rancher-fip/m/Service/c-m-a/a@c-m-a ".to_owned());
    assert_eq!(end(&shared, "a", Word::Unconnected), by_name);
}

#[test]
fn an_address_that_no_service_has_is_free() {
    for one in [fip(None, &["web"]), fip(Some("c-m-a"), &[])] {
        assert_eq!(end(&one, "a", Word::Unconnected), None);
        assert_eq!(end(&one, "a", Word::Silent(ClusterId("g".into()))), None);
    }
    let nameless = fip(Some("c-m-a"), &[""]);
    assert_eq!(end(&nameless, "a", Word::Unconnected), None);
    let service = shown();
    let made = service.floating_ip_name(fipd_core::Family::V4);
    let given_up = Fip {
        holder: Some(service),
        ..fip(Some("c-m-a"), &["web"])
    };
    assert_eq!(end(&given_up, &made, Word::Unconnected), None);
    let kept = end(&given_up, "fip-abc12", Word::Unconnected);
    assert!(kept.is_some(), "another program made it");
}

#[test]
fn what_is_said_names_the_user_and_the_way_out() {
    let fip = fip(Some("c-m-a"), &["web"]);
    let address = IpAddr::from([10, 0, 0, 5]);
    let text = kept_note(address, &fip, &shown().holder());
    assert!(
        text.starts_with("10.0.0.5 stays with Service shop/web of cluster c-m-a"),
        "{text}"
    );
    let reported =
        names::reported_service(&ClusterId("m".into()), "c-m-a", &Key::new("shop", "web"));
    assert!(kept_note(address, &fip, &reported).contains("`fipd lease release`"));
}
