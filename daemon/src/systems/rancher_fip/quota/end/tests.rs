use fipd_core::{ClusterId, Family, System};
use fipd_crds::floating_ip::FloatingIP;
use serde_json::json;

use super::*;
use crate::{
    clusters::testing,
    config::ReleaseWait,
    controller::{client::testing::canned, events::Events},
    ipam::Ipam,
    systems::rancher_fip::{
        Site,
        clusters::RancherCluster,
        floating_ip::observe::view,
        kinds::QUOTA,
        names::ServiceRef,
        rancher::{Data, Rancher, Ranchers},
        sample::{Shows, connect},
    },
};

const SINCE: u64 = 1_000_000;

struct Bench {
    _dir: tempfile::TempDir,
    rancher: Arc<Rancher>,
    quotas: Arc<Quotas>,
    ipam: Ipam,
}

impl Bench {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let client = kube::Client::new(tower::service_fn(unused), "default");
        let session = testing::session(client, &ipam).await;
        let site = Arc::new(Site::new(session, System::rancher_fip()));
        let (remote, _) = canned(&[]);
        let data = Data::new(site.id.clone(), remote, site.cancel());
        let quiet = || std::future::ready(());
        let events = Events::start(site.session.recorder.clone(), site.cancel(), quiet);
        let rancher = Ranchers::default().get("x");
        let context = data.context(QUOTA, &site, &Arc::new(events), &data.quotas);
        let quotas = Quotas::new(context, Arc::clone(&rancher), data);
        Self {
            _dir: dir,
            rancher,
            quotas,
            ipam,
        }
    }

    /// How long it still waits after so many seconds; `None`: it goes.
    async fn waits(&self, left: &[(Key, Arc<Fip>)], after: u64) -> Option<u64> {
        let now = Timestamp(SINCE + after * 1000);
        let next = self.quotas.patience(Timestamp(SINCE), left, now).await?;
        match next {
            Next::After(pause) => Some(pause.as_secs()),
            Next::Done | Next::Retry => panic!("{next:?}"),
        }
    }
}

async fn unused(
    _: http::Request<kube::client::Body>,
) -> Result<http::Response<kube::client::Body>, std::convert::Infallible> {
    std::future::pending().await
}

/// One that shows the lease of a Service of the cluster G, which Rancher calls `c-m-g`.
fn used() -> (Key, Arc<Fip>) {
    let service = ServiceRef {
        cluster: ClusterId("G".into()),
        key: Key::new("shop", "web"),
        uid: "w".into(),
    };
    let mut fip = Fip {
        cluster: Some("c-m-g".into()),
        holder: Some(service.clone()),
        ..view(FloatingIP::default())
    };
    fip.status.ip_addr = "10.0.0.5".into();
    let name = service.floating_ip_name(Family::V4);
    (Key::new("c-m-a", &name), Arc::new(fip))
}

/// One that only the project has.
fn kept(name: &str) -> (Key, Arc<Fip>) {
    let fip = view(FloatingIP::default());
    (Key::new("c-1", name), Arc::new(fip))
}

#[tokio::test]
async fn a_quota_waits_for_services_of_a_cluster_that_answers_and_ten_minutes_at_most() {
    let bench = Bench::new().await;
    connect(&bench.rancher, "G", "c-m-g", Shows::default());
    let left = [used()];
    assert_eq!(bench.waits(&left, 0).await, Some(5));
    assert_eq!(bench.waits(&left, 598).await, Some(2));
    assert_eq!(bench.waits(&left, 600).await, None, "the Service lives on");
    let both = [kept("fip-1"), used()];
    assert_eq!(bench.waits(&both, 0).await, Some(1));
    assert_eq!(bench.waits(&both, 900).await, None);
}

#[tokio::test]
async fn a_quota_does_not_wait_for_a_cluster_that_is_down_or_gone() {
    let bench = Bench::new().await;
    let left = [used()];
    assert_eq!(bench.waits(&left, 0).await, None, "it is not connected");
    let silent = Shows {
        silent: true,
        ..Shows::default()
    };
    connect(&bench.rancher, "G", "c-m-g", silent);
    assert_eq!(bench.waits(&left, 0).await, None, "it does not answer");
    connect(&bench.rancher, "G", "c-m-g", Shows::default());
    assert_eq!(bench.waits(&left, 0).await, Some(5));
    let mut ending = RancherCluster::default();
    ending.managed.ending = true;
    bench
        .quotas
        .data
        .clusters
        .set(&Key::new("", "c-m-g"), ending);
    assert_eq!(bench.waits(&left, 0).await, None, "it is being deleted");
}

#[tokio::test]
async fn what_outlives_a_quota_is_in_the_audit_log() {
    let bench = Bench::new().await;
    let meta = Meta {
        uid: "u".into(),
        finalizers: vec![QUOTA_CLEANUP.to_owned()],
        deleted: Some(Timestamp(SINCE)),
        ..Meta::default()
    };
    let key = Key::new("", "p-1");
    let left = bench.quotas.leave_used(&key, &meta, None, &[used()]).await;
    left.expect("a note");
    let page = bench.ipam.reader().audit_page(None, 10);
    let text = format!("{page:?}");
    assert!(
        text.contains("FloatingIPProjectQuota p-1: the quota goes before its FloatingIPs")
            && text.contains(&*used().0.name),
        "{text}"
    );
}

#[test]
fn what_is_waited_for_is_named() {
    let mut left: Vec<_> = (0..7).map(|n| kept(&format!("fip-{n}"))).collect();
    left.push((Key::new("c-1", "shown"), used().1));
    let text = waiting(&left);
    assert!(text.contains("being deleted: c-1/fip-0,") && text.contains("c-1/fip-4 and 2 more"));
    assert!(text.ends_with("no load balancer: c-1/shown"), "{text}");
}

#[tokio::test]
async fn a_quota_does_not_wait_for_ever_for_a_cluster_manager_that_is_off() {
    let since = Timestamp(1_000_000);
    let meta = Meta {
        uid: "u".into(),
        finalizers: vec!["other".to_owned(), SECRET_CLEANUP.to_owned()],
        deleted: Some(since),
        ..Meta::default()
    };
    let key = Key::new("", "p-1");
    let rest = |now| ReleaseWait::default().left(since, Timestamp(now));
    let (remote, _) = canned(&[]);
    let early = drop_late(&remote, &key, &meta, rest(1_590_000)).await;
    assert_eq!(early.unwrap(), Next::After(Duration::from_secs(10)));
    let (remote, asked) = canned(&[("PATCH", 200, "{}")]);
    let late = drop_late(&remote, &key, &meta, rest(1_600_000)).await;
    assert_eq!(late.unwrap(), Next::Done);
    let body = asked.lock().pop().unwrap().body;
    let test = json!({ "op": "test", "path": "/metadata/finalizers/1", "value": SECRET_CLEANUP });
    assert_eq!(body[1], test);
}
