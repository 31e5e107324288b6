use std::{convert::Infallible, time::Duration};

use fipd_core::ClusterId;
use fipd_crds::floating_ip::FloatingIPPool;
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    decide::{AddressRequest, Undo},
    *,
};
use crate::{
    controller::client::{Remote, testing::canned},
    fip_v1::Service,
    guests::homes::GuestHome,
    systems::rancher_fip::clusters::RancherCluster,
};

fn rejected(why: &str) -> CallError {
    CallError::Rejected("secrets c-m-a/rancher-fip-config-p-a".into(), why.into())
}

#[test]
fn a_caller_hears_of_denials_and_of_no_internals() {
    let webhook = "admission webhook \"floatingip\" denied the request: quota exceeded for p-a";
    let heard = failed(&rejected(webhook));
    assert_eq!((heard.code.as_u16(), &*heard.message), (500, webhook));
    let heard = failed(&rejected(
        "secrets is forbidden: User \"fipd\" cannot get resource",
    ));
    assert_eq!(heard.code.as_u16(), 500);
    for internal in ["secrets", "fipd\"", "forbidden", "c-m-a"] {
        assert!(!heard.message.contains(internal), "{heard}");
    }
    let gone = CallError::Unavailable("x".into(), "connection refused".into());
    assert_eq!(failed(&gone), Denied::late());
}

fn asker() -> Asker {
    Asker {
        management: "rancher".into(),
        project: "p-a".to_owned(),
        namespace: "c-m-a".to_owned(),
        cluster: "c-m-a".to_owned(),
    }
}

/// What a daemon without a Rancher decides by, and its store.
struct Room {
    requests: Requests,
    _dir: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(|| fipd_core::Timestamp(1));
        let (ipam, _writer) = Ipam::start(dir.path(), clock).unwrap();
        Self {
            requests: Requests::new(Ranchers::default(), ipam),
            _dir: dir,
        }
    }

    /// A call of [`asker`] in the cluster that is reached so.
    fn call(&self, remote: Remote) -> ProjectCall {
        ProjectCall {
            all: self.requests.clone(),
            data: data(remote),
            asker: asker(),
        }
    }
}

fn data(remote: Remote) -> Arc<Data> {
    Data::new(ClusterId("m".into()), remote, CancellationToken::new())
}

const SERVICE: &str = "rancher.k8s.binbash.org/service";

/// An object that `services` of the asker's cluster use.
fn used(version: &str, services: &[&str]) -> Value {
    let mut labels = json!({ "rancher.k8s.binbash.org/cluster-name": "c-m-a" });
    for (number, service) in services.iter().enumerate() {
        labels[format!("{SERVICE}-{number}-name")] = json!(service);
        labels[format!("{SERVICE}-{number}-namespace")] = json!("shop");
    }
    if services.is_empty() {
        labels = json!({});
    }
    labels["rancher.k8s.binbash.org/project-name"] = json!("p-a");
    json!({
        "metadata": { "name": "fip-1", "uid": "u", "resourceVersion": version, "labels": labels },
        "spec": { "floatingIPPool": "net" },
    })
}

#[tokio::test]
async fn a_service_is_taken_off_though_somebody_changed_the_object_meanwhile() {
    let room = Room::new();
    let list = json!({ "items": [used("3", &["web", "api"])] }).to_string();
    let (first, second): (&'static str, &'static str) = (list.leak(), "{}");
    let (remote, asked) = canned(&[
        ("PATCH", 409, "the object has been modified"),
        ("GET", 200, first),
        ("PATCH", 200, second),
    ]);
    let call = room.call(remote);
    let look = |object: Value| call.look(serde_json::from_value(object).unwrap());
    let (before, one) = (look(used("1", &[])), look(used("2", &["web"])));
    let service = Service {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    let ask = AddressRequest {
        asker: &call.asker,
        service: &service,
        pool: "net",
        network: None,
        address: None,
        group: None,
    };
    call.undo(&ask, &one, Some(&before), Undo::Restore).await;
    let asked = asked.lock();
    let last = asked.last().unwrap();
    assert_eq!(last.body["metadata"]["resourceVersion"], "3");
    let expected = json!({
        format!("{SERVICE}-0-name"): null, format!("{SERVICE}-0-namespace"): null,
    });
    assert_eq!(last.body["metadata"]["labels"], expected);
}

#[tokio::test]
async fn an_address_is_deleted_though_the_object_changed_meanwhile() {
    let room = Room::new();
    let unused = |version| {
        let mut object = used(version, &[]);
        object["spec"]["ipAddr"] = json!("10.0.0.5");
        let list: &'static str = json!({ "items": [object] }).to_string().leak();
        list
    };
    let (remote, asked) = canned(&[
        ("GET", 200, unused("1")),
        ("DELETE", 409, "the object has been modified"),
        ("GET", 200, unused("2")),
        ("DELETE", 200, "{}"),
    ]);
    let call = room.call(remote);
    let address = "10.0.0.5".parse().unwrap();
    let mut turn = room.requests.turns.next(call.asker.turn()).await;
    let deleted = call.give_back(address, &mut turn).await;
    assert_eq!(deleted, Ok(()));
    let asked = asked.lock();
    let versions = asked
        .iter()
        .filter_map(|one| one.body["preconditions"]["resourceVersion"].as_str());
    assert_eq!(versions.collect::<Vec<_>>(), ["1", "2"]);
}

/// Has nothing, and makes an object once `open`; notes the methods.
fn slow(open: &watch::Sender<bool>) -> (Remote, Arc<Mutex<Vec<http::Method>>>) {
    let asked: Arc<Mutex<Vec<http::Method>>> = Arc::default();
    let (all, open) = (Arc::clone(&asked), open.subscribe());
    let serve = move |request: http::Request<Body>| {
        let (method, mut open) = (request.method().clone(), open.clone());
        all.lock().push(method.clone());
        async move {
            let mut body = json!({ "items": [] });
            if method == http::Method::POST {
                open.wait_for(|open| *open).await.unwrap();
                let bytes = request.into_body().collect().await.unwrap().to_bytes();
                body = serde_json::from_slice(&bytes).unwrap();
                body["metadata"]["uid"] = json!("u");
            }
            Ok::<_, Infallible>(http::Response::new(Body::from(
                body.to_string().into_bytes(),
            )))
        }
    };
    let client = kube::Client::new(tower::service_fn(serve), "default");
    (Remote::new(client), asked)
}

#[tokio::test]
async fn what_nobody_waits_for_is_undone_before_the_project_has_its_next_turn() {
    let room = Room::new();
    let (open, _) = watch::channel(false);
    let asked = making(&room, &open);
    let wish = Wish {
        service: Service {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        },
        pool: "net".to_owned(),
        address: None,
        group: None,
    };
    let whose = asker();
    let short = Duration::from_millis(200);
    let gone = tokio::time::timeout(short, room.requests.request(whose.clone(), wish)).await;
    assert!(gone.is_err(), "the client has gone");
    let next = tokio::time::timeout(short, room.requests.turns.next(whose.turn())).await;
    assert!(next.is_err(), "the object may be made yet");
    open.send_replace(true);
    let next = tokio::time::timeout(
        Duration::from_secs(10),
        room.requests.turns.next(whose.turn()),
    )
    .await;
    assert!(next.is_ok());
    let asked: Vec<String> = asked.lock().iter().map(ToString::to_string).collect();
    assert_eq!(asked, ["GET", "POST", "DELETE"]);
}

/// A management cluster that makes objects and lists none; the methods it was asked by.
fn making(room: &Room, open: &watch::Sender<bool>) -> Arc<Mutex<Vec<http::Method>>> {
    let (remote, asked) = slow(open);
    let data = data(remote);
    data.pools
        .set(&Key::new("", "net"), FloatingIPPool::default());
    room.requests.ranchers.get("rancher").publish(data);
    asked
}

#[tokio::test]
async fn who_waits_uses_what_was_read_after_it_asked_and_who_comes_later_does_not() {
    let room = Room::new();
    let (open, _) = watch::channel(true);
    let asked = making(&room, &open);
    let whose = asker();
    let address = "10.0.0.5".parse().unwrap();
    let turn = room.requests.turns.next(whose.turn()).await;
    let fip_release = |name: &str| FipRelease {
        service: Service {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        },
        address: Some(address),
        group: None,
    };
    let (one, other) = (fip_release("one"), fip_release("other"));
    let both = async {
        tokio::join!(
            room.requests.release(whose.clone(), one.clone()),
            room.requests.release(whose.clone(), other),
            async {
                tokio::task::yield_now().await;
                drop(turn);
            },
        )
    };
    let (first, second, ()) = both.await;
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(asked.lock().len(), 1, "one reading for both");
    assert_eq!(room.requests.release(whose, one).await, Ok(()));
    assert_eq!(asked.lock().len(), 2, "nobody waited for what was read");
}

#[tokio::test]
async fn what_was_read_before_a_call_was_made_is_not_passed_to_it() {
    let turns = Turns::<Vec<Known>>::default();
    let whose = asker();
    let mut turn = turns.next(whose.turn()).await;
    let at = Instant::now();
    let next = turns.next(whose.turn());
    let held = async {
        tokio::task::yield_now().await;
        turn.pass_on(Reading {
            at,
            what: Vec::new(),
        });
        drop(turn);
    };
    let (mut next, ()) = tokio::join!(next, held);
    assert!(next.take().is_none());
}

#[tokio::test]
async fn who_cannot_be_known_yet_is_told_to_ask_again() {
    let room = Room::new();
    let (remote, _) = canned(&[("GET", 404, "")]);
    let (data, ranchers) = (data(remote), &room.requests.ranchers);
    ranchers.get("rancher").publish(Arc::clone(&data));
    let claim = claim();
    let asked = || room.requests.authorize(&claim);
    let later = Err(Denied::elsewhere());
    data.clusters
        .set(&Key::new("", "c-m-a"), RancherCluster::default());
    assert_eq!(asked().await, later, "the projects are not read");
    data.projects.complete();
    assert_eq!(asked().await, Err(Denied::unauthorized()));
    ranchers.get("second");
    assert_eq!(asked().await, later, "it may be of the second");
    ranchers.configured(["rancher".into()].into());
    assert_eq!(asked().await, Err(Denied::unauthorized()));
    assert_eq!(
        room.requests.not_leading(),
        0,
        "the second is configured no more"
    );
    ranchers.configured(["rancher".into(), "second".into()].into());
    data.projects.set(&Key::new("c-m-a", "p-a"), "A".to_owned());
    let guess = asked().await;
    assert_eq!(guess, Err(Denied::unauthorized()), "it is of the first");
}

fn claim() -> Claim {
    Claim {
        client: "client-c-m-a".to_owned(),
        project: "p-a".to_owned(),
        secret: "s".into(),
        cluster: None,
    }
}

/// The guest `c-m-a` of the Harvester cluster `c-m-h`, whose project `p-a` has this secret.
async fn asked_of(home: Option<&str>, answers: &[(&'static str, u16, &'static str)]) -> bool {
    let secret = r#"{ "data": { "project": "cC1h", "clientSecret": "cw==" } }"#;
    let all: Vec<_> = [("GET", 200, secret)]
        .iter()
        .chain(answers)
        .copied()
        .collect();
    let (room, (remote, asked)) = (Room::new(), canned(&all));
    let (data, ranchers) = (data(remote), &room.requests.ranchers);
    ranchers.get("rancher").publish(Arc::clone(&data));
    (data.clusters).set(&Key::new("", "c-m-a"), RancherCluster::default());
    data.projects.set(&Key::new("c-m-h", "p-a"), "A".to_owned());
    if let Some(project) = home {
        let home = GuestHome {
            harvester: "c-m-h".to_owned(),
            project: project.to_owned(),
        };
        data.homes.set("c-m-a", home);
    }
    let known = room.requests.authorize(&claim()).await;
    assert_eq!(asked.lock().len(), all.len());
    if let Err(denied) = &known {
        assert_eq!(denied, &Denied::unauthorized());
    }
    known.is_ok()
}

#[tokio::test]
async fn defect_27_a_guest_is_of_the_project_that_its_machines_are_in() {
    assert!(asked_of(Some("p-a"), &[]).await);
    let other = asked_of(Some("p-b"), &[]).await;
    assert!(!other, "though it is on the same Harvester");
    let provisioned =
        r#"{ "metadata": { "name": "c-m-a" }, "spec": { "cloudCredentialSecretName": "n:cc" } }"#;
    let credential = r#"{ "data": { "harvestercredentialConfig-clusterId": "Yy1tLWg=" } }"#;
    let answers = [("GET", 200, provisioned), ("GET", 200, credential)];
    assert!(asked_of(None, &answers).await, "nobody knows its project");
}

#[tokio::test]
async fn defect_34_what_a_former_leader_knows_is_not_served() {
    let ranchers = Ranchers::default();
    let over = CancellationToken::new();
    let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let remote = Remote::new(kube::Client::try_from(config).unwrap());
    let data = Data::new(ClusterId("m".into()), remote, over.clone());
    let rancher = ranchers.get("rancher");
    rancher.led_elsewhere(false);
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(|| fipd_core::Timestamp(1));
    let (ipam, writer) = Ipam::start(dir.path(), clock).unwrap();
    let requests = Requests::new(ranchers.clone(), ipam.clone());
    assert_eq!(requests.figures().unwrap_err(), Denied::elsewhere());
    assert_eq!(requests.not_leading(), 1);
    rancher.publish(Arc::clone(&data));
    assert_eq!(requests.not_leading(), 0);
    assert!(requests.figures().unwrap().is_empty());
    assert!(requests.call(asker()).is_ok());

    // A call that is under way ends as well.
    let under_way = while_leading(&data, std::future::pending::<Result<(), Denied>>());
    // The lease could not be renewed: nobody else is known to hold it.
    over.cancel();
    assert_eq!(under_way.await, Err(Denied::elsewhere()));
    let asked = requests.list(asker()).await;
    assert_eq!(asked.unwrap_err(), Denied::elsewhere());
    assert_eq!(requests.figures().unwrap_err(), Denied::elsewhere());
    let heard = requests.authorize(&claim()).await.unwrap_err();
    assert_eq!(heard, Denied::elsewhere());
    assert_eq!(requests.not_leading(), 1);
    assert!(rancher.data().is_some(), "Services are served from it");
    ipam.shutdown().await;
    writer.join();
}

#[tokio::test]
async fn a_service_gives_up_the_address_that_outlived_its_floating_ip() {
    let room = Room::new();
    let (remote, _) = canned(&[]);
    let mut call = room.call(remote);
    let key = Key::new("shop", "web");
    let holder = names::reported_service(&call.data.cluster, "c-m-a", &key);
    let place = fipd_core::LeaseKey {
        network: NetworkId::DEFAULT,
        address: [10, 0, 0, 5].into(),
    };
    let adopt = fipd_core::Adopt {
        length: None,
        key: place,
        holder,
        tenant: Some(fipd_core::Tenant("p-a".into())),
        since: fipd_core::Timestamp(1),
        actor: "test".into(),
    };
    let adopted = room.requests.ipam.submit(fipd_core::Request::Adopt(adopt));
    adopted.await.unwrap();
    let fip_release = |name: &str, address: Option<[u8; 4]>| FipRelease {
        service: Service {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        },
        address: address.map(IpAddr::from),
        group: None,
    };
    let other_project = Asker {
        project: "p-b".to_owned(),
        ..asker()
    };
    let other_cluster = Asker {
        cluster: "c-m-b".to_owned(),
        ..asker()
    };
    let mut gone = async |asker: Asker, fip_release: FipRelease| {
        call.asker = asker;
        call.give_up_kept(&fip_release).await
    };
    for (asker, fip_release) in [
        (other_project, fip_release("web", None)),
        (other_cluster, fip_release("web", None)),
        (asker(), fip_release("api", None)),
        (asker(), fip_release("web", Some([10, 0, 0, 6]))),
    ] {
        assert_eq!(gone(asker, fip_release).await, Ok(false));
    }
    assert_eq!(
        gone(asker(), fip_release("web", Some([10, 0, 0, 5]))).await,
        Ok(true)
    );
    let held = room
        .requests
        .ipam
        .read(|ledger| ledger.lease(place).is_some());
    assert!(!held);
}
