//! A cluster with Services, a pool, and what becomes of them.

use std::{
    convert::Infallible,
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use fipd_core::{
    Adopt, Adoption, Answer, ClusterRecord, Expectation, PoolSpec, Request, Timestamp,
};
use fipd_crds::floating_ip::FloatingIP;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::*;
use crate::{
    clusters::{SightingsView, adoption, testing},
    controller::client::Remote,
    ipam::Ipam,
    system::testing::means,
    systems::{
        Runner,
        rancher_fip::{
            floating_ip::observe::{self, Fip},
            rancher::{Data, Ranchers},
        },
    },
};

/// A cluster X that answers with these Services, or with this status.
pub type Answers = Arc<Mutex<(Vec<Value>, u16)>>;

/// A status of all answers, also of those that say which cluster it is.
const GONE: u16 = 503;

fn client(answers: &Answers) -> Client {
    let answers = Arc::clone(answers);
    let serve = move |request: http::Request<Body>| {
        let (services, code) = answers.lock().clone();
        let path = request.uri().path().to_owned();
        let (code, body) = if path.ends_with("/kube-system") && code != GONE {
            let meta = json!({ "name": "kube-system", "uid": "X" });
            (200, json!({ "metadata": meta }))
        } else if path.ends_with("/services") && code == 200 {
            (200, json!({ "metadata": {}, "items": services }))
        } else {
            let code = if path.ends_with("/services") {
                code
            } else {
                404
            };
            (
                code,
                json!({ "kind": "Status", "status": "Failure", "message": "no", "code": code }),
            )
        };
        async move {
            let answer = http::Response::builder().status(code);
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(answer.body(body).expect("an answer"))
        }
    };
    Client::new(tower::service_fn(serve), "default")
}

pub fn service(name: &str, class: Option<&str>, addresses: &[String]) -> Value {
    let ingress: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    json!({
        "metadata": { "namespace": "ns", "name": name, "uid": name },
        "spec": { "type": "LoadBalancer", "loadBalancerClass": class },
        "status": { "loadBalancer": { "ingress": ingress } },
    })
}

pub fn address(last: u8) -> String {
    format!("10.60.0.{last}")
}

pub fn key(last: u8) -> LeaseKey {
    fipd_core::testing::key([10, 60, 0, last])
}

pub struct Bench {
    _dir: tempfile::TempDir,
    pub ipam: Ipam,
    pub clock: Arc<AtomicU64>,
    pub answers: Answers,
    pub session: ClusterSession,
    pub systems: RunningSystems,
    ranchers: Ranchers,
    pub inventory: ForeignInventory,
}

impl Bench {
    /// A pool of 10.60.0.1 to 10.60.0.254, and a cluster that is mapped to its network.
    pub async fn new(services: Vec<Value>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(AtomicU64::new(1_000));
        let time = Arc::clone(&clock);
        let now = Arc::new(move || Timestamp(time.load(Ordering::SeqCst)));
        let (ipam, _writer) = Ipam::start(dir.path(), now).expect("a store");
        let range = "10.60.0.1-10.60.0.254".parse().expect("a range");
        let spec = PoolSpec::own("net", vec![range]);
        let made = ipam.submit(fipd_core::testing::create_pool(spec)).await;
        made.expect("a pool");
        let answers: Answers = Arc::new(Mutex::new((services, 200)));
        let session = testing::session(client(&answers), &ipam).await;
        testing::map_to(&session, &System::foreign(), NetworkId::DEFAULT);
        let means = means(&ipam);
        let systems = Runner::new(&means).running();
        let inventory = ForeignInventory::new(session.clone(), systems.clone());
        Self {
            _dir: dir,
            ipam,
            clock,
            answers,
            session,
            systems,
            ranchers: means.shared.get(),
            inventory,
        }
    }

    /// A new session, with what is set by now.
    pub fn renew(&mut self) {
        self.inventory = ForeignInventory::new(self.session.clone(), self.systems.clone());
    }

    pub async fn adopt(&self) -> adoption::Adopted {
        let adopted = adoption::adopt(&self.session, &System::foreign(), &self.inventory).await;
        adopted.expect("an adoption")
    }

    pub async fn refused(&self, code: u16) {
        self.answers.lock().1 = code;
        let adopted = adoption::adopt(&self.session, &System::foreign(), &self.inventory).await;
        assert!(adopted.is_err(), "{adopted:?}");
    }

    /// The cluster does not answer at all.
    pub async fn gone(&self) {
        self.refused(GONE).await;
    }

    /// The network waits for this and for sightings.
    pub async fn expect(&self, system: System) {
        let record = ClusterRecord {
            names: vec!["x".into()],
            ..testing::record("X")
        };
        let recorded = self.ipam.submit(Request::RecordCluster { record }).await;
        recorded.expect("a cluster");
        let expect = |system| Expectation {
            network: NetworkId::DEFAULT,
            cluster: "x".into(),
            system,
        };
        self.ipam
            .set_expectations(vec![expect(system), expect(System::foreign())]);
    }

    /// Systems that the network waits for.
    pub fn holds(&self) -> Vec<String> {
        let holds = self
            .ipam
            .read(|ledger| ledger.holds(NetworkId::DEFAULT).to_vec());
        holds.iter().map(|hold| hold.system.to_string()).collect()
    }

    pub async fn is_due(&self) -> bool {
        let due = self.inventory.due();
        tokio::time::timeout(Duration::from_millis(1), due)
            .await
            .is_ok()
    }

    /// The lease is of this owner.
    pub async fn give(&self, last: u8, owner: &str) {
        let adopt = Adopt {
            length: None,
            key: key(last),
            holder: fipd_core::testing::holder(owner, "1"),
            tenant: None,
            since: Timestamp(1),
            actor: "test".into(),
        };
        let given = self.ipam.submit(Request::Adopt(adopt)).await;
        given.expect("a lease");
    }

    /// The cluster is a management cluster that was listed, without FloatingIPs.
    pub fn rancher(&self) -> Arc<Data> {
        let remote = Remote::new(client(&self.answers));
        let data = Data::new(self.session.id.clone(), remote, CancellationToken::new());
        let rancher = self.ranchers.get(&self.session.name);
        rancher.publish(Arc::clone(&data));
        data
    }

    /// The management cluster has `c-1/fip-LAST`, for this cluster.
    pub fn floating_ip(&self, rancher: &Data, last: u8, cluster: Option<&str>) {
        let fip = Fip {
            cluster: cluster.map(ToOwned::to_owned),
            ..observe::view(FloatingIP::default())
        };
        rancher
            .fips
            .set(&Key::new("c-1", &format!("fip-{last}")), fip);
    }

    pub fn contenders(&self, last: u8) -> usize {
        self.ipam.read(|ledger| {
            ledger
                .lease(key(last))
                .map_or(0, |one| one.contenders.len())
        })
    }

    pub fn shows(&self, services: Vec<Value>) {
        self.answers.lock().0 = services;
    }

    pub fn view(&self) -> SightingsView {
        testing::sightings(&self.session).expect("a view")
    }

    pub fn owner(&self, last: u8) -> Option<String> {
        self.ipam.read(|ledger| {
            let owner = ledger.lease(key(last))?.owner()?;
            Some(owner.identity.to_string())
        })
    }

    pub fn adopted(&self) -> bool {
        let foreign = System::foreign();
        self.ipam
            .read(|ledger| ledger.truly_adopted(NetworkId::DEFAULT, &self.session.id, &foreign))
    }

    pub async fn allocate(&self) -> IpAddr {
        self.try_allocate("net").await.expect("an address")
    }

    /// Of the pool with this name.
    pub async fn try_allocate(&self, pool: &str) -> Result<IpAddr, String> {
        let pool = self
            .ipam
            .read(|ledger| ledger.find_pool(pool).map(|pool| pool.id));
        let ask = fipd_core::testing::allocate(
            fipd_core::testing::holder("rancher-fip/Y/Service/ns/web", "1"),
            [fipd_core::testing::want(pool.expect("the pool"), None)],
        );
        match self.ipam.submit(Request::Allocate(ask)).await {
            Ok(Answer::Granted { leases, .. }) => Ok(leases[0].key.address),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    pub async fn mark(&self, cluster: &str, system: System) {
        let marker = Adoption {
            network: NetworkId::DEFAULT,
            cluster: cluster.into(),
            system,
            at: self.ipam.now(),
            skipped: false,
        };
        let actor = "test".into();
        let marked = self.ipam.submit(Request::MarkAdopted { marker, actor });
        marked.await.expect("a marker");
    }

    pub fn pass(&self, time: u64) {
        self.clock.fetch_add(time, Ordering::SeqCst);
    }
}
