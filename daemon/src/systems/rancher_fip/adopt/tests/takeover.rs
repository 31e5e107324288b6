//! What a take-over does to a Rancher, in which order, and what the audit log has of it by then.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::Method;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::*;
use crate::{
    adopt::{Takeover, TakeoverError, TakeoverReport, Takeovers},
    clock,
    clusters::{ClusterSession, testing},
    ipam::Ipam,
    system::testing::means,
    systems::rancher_fip::{adopt::SiteTakeover, settings::RancherFipSettings},
};

const WITHIN: Duration = Duration::from_secs(10);
const LISTS: [&str; 6] = [
    "floatingippools",
    "floatingipprojectquotas",
    "floatingips",
    "clusters",
    "projects",
    "secrets",
];

/// A Rancher with the webhook of the original and a FloatingIP whose labels name a Service that is gone.
struct Rancher {
    /// The webhook goes once it is open.
    gate: watch::Receiver<bool>,
    ipam: Ipam,
    /// Each request.
    asked: Mutex<Vec<String>>,
    /// Each effect, with what the audit log says at that moment.
    effects: Mutex<Vec<(String, Vec<String>)>>,
}

impl Rancher {
    async fn answer(&self, method: &Method, path: &str) -> Option<Value> {
        self.asked.lock().push(format!("{method} {path}"));
        let name = path.rsplit('/').next().unwrap_or_default();
        if *method != Method::GET {
            let effect = (format!("{method} {name}"), audited(&self.ipam));
            self.effects.lock().push(effect);
            let mut gate = self.gate.clone();
            let _ = gate.wait_for(|open| *open).await;
            return Some(json!({}));
        }
        if path.contains("/leases/") {
            return Some(json!({ "metadata": {}, "spec": { "holderIdentity": "test" } }));
        }
        let config = json!({ "service": { "name": WEBHOOK, "namespace": "rancher-fip-manager" } });
        let webhook = json!({ "name": "a.b.c", "clientConfig": config, "admissionReviewVersions": ["v1"], "sideEffects": "None" });
        match name {
            "kube-system" => Some(json!({ "metadata": { "uid": "X" } })),
            "rancher-fip-manager-validator" => Some(json!({
                "metadata": { "name": name, "uid": "u", "resourceVersion": "7" }, "webhooks": [webhook],
            })),
            "ghost" => Some(ghost()),
            "floatingips" => Some(json!({ "metadata": {}, "items": [ghost()] })),
            list if LISTS.contains(&list) => Some(json!({ "metadata": {}, "items": [] })),
            _ => None,
        }
    }

    fn effects(&self) -> Vec<String> {
        let effects = self.effects.lock();
        effects.iter().map(|(effect, _)| effect.clone()).collect()
    }
}

fn ghost() -> Value {
    let labels = json!({
        format!("{GROUP}/project-name"): "p-1", format!("{GROUP}/service-0-name"): "web",
        format!("{GROUP}/service-0-namespace"): "shop",
    });
    json!({
        "metadata": { "name": "ghost", "namespace": "c-1", "uid": "g", "resourceVersion": "9", "labels": labels },
        "spec": { "floatingIPPool": "net" }, "status": { "ipAddr": "10.0.0.10" },
    })
}

/// What the audit log says of the take-over, oldest first.
fn audited(ipam: &Ipam) -> Vec<String> {
    let page = ipam.reader().audit_page(None, 100).expect("the audit log");
    let mut said: Vec<String> = page
        .into_iter()
        .map(|(_, entry)| entry)
        .filter(|entry| entry.action == fipd_core::Action::TakenOver)
        .map(|entry| entry.detail.to_string())
        .collect();
    said.reverse();
    said
}

struct Bed {
    rancher: Arc<Rancher>,
    open: watch::Sender<bool>,
    session: ClusterSession,
    takeovers: Takeovers,
    _dir: tempfile::TempDir,
}

async fn bed() -> Bed {
    let dir = tempfile::tempdir().expect("a directory");
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
    let (open, gate) = watch::channel(false);
    let rancher = Arc::new(Rancher {
        gate,
        ipam: ipam.clone(),
        asked: Mutex::default(),
        effects: Mutex::default(),
    });
    let asked = Arc::clone(&rancher);
    let serve = move |request: http::Request<Body>| {
        let rancher = Arc::clone(&asked);
        async move {
            let path = request.uri().path().to_owned();
            let answer = rancher.answer(request.method(), &path).await;
            let missing = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "" });
            let (status, body) = answer.map_or((404, missing), |body| (200, body));
            let answer = http::Response::builder().status(status);
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(answer.body(body).expect("an answer"))
        }
    };
    let client = Client::new(tower::service_fn(serve), "default");
    let session = testing::session(client, &ipam).await;
    let takeover = SiteTakeover::new(&means(&ipam));
    let takeover: Arc<dyn Takeover> = Arc::new(takeover);
    Bed {
        rancher,
        open,
        session,
        takeovers: Takeovers::new([(fipd_core::System::rancher_fip(), takeover)]),
        _dir: dir,
    }
}

async fn adopt(
    takeovers: &Takeovers,
    session: &ClusterSession,
    actor: &str,
) -> Result<TakeoverReport, TakeoverError> {
    let takeover = takeovers.of("rancher-fip")?;
    takeover.adopt(session, &actor.into()).await
}

/// Waits until so many effects were asked for.
async fn wait_effects(bed: &Bed, count: usize) {
    let asked = async {
        while bed.rancher.effects().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(WITHIN, asked).await;
    assert!(waited.is_ok(), "{:?}", bed.rancher.asked.lock());
}

/// Who asked goes away while the first step is under way.
#[tokio::test]
async fn a_takeover_ends_and_is_audited_though_nobody_waits_and_each_step_is_audited_before_it_is_done()
 {
    let bed = bed().await;
    let (takeovers, session) = (bed.takeovers.clone(), bed.session.clone());
    let request = tokio::spawn(async move { adopt(&takeovers, &session, "local:root").await });
    wait_effects(&bed, 1).await;
    request.abort();
    assert!(request.await.is_err_and(|error| error.is_cancelled()));
    let busy = adopt(&bed.takeovers, &bed.session, "other").await;
    assert!(matches!(busy, Err(TakeoverError::Busy(_))), "it goes on");
    bed.open.send_replace(true);
    wait_effects(&bed, 2).await;
    let ended = async {
        loop {
            match adopt(&bed.takeovers, &bed.session, "again").await {
                Err(TakeoverError::Busy(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                other => break other.expect("a report"),
            }
        }
    };
    let ended = tokio::time::timeout(WITHIN, ended).await;
    ended.expect("the first has ended");

    let webhook = "x: ValidatingWebhookConfiguration rancher-fip-manager-validator";
    let steps = [
        format!("{webhook}: is being deleted"),
        format!("{webhook}: deleted"),
        "x: FloatingIPs: labels are being removed: c-1/ghost".to_owned(),
        "x: FloatingIPs: labels removed from 1: c-1/ghost".to_owned(),
    ];
    let effects = bed.rancher.effects.lock();
    let expected = [
        ("DELETE rancher-fip-manager-validator", &steps[..1]),
        ("PATCH ghost", &steps[..3]),
    ];
    for ((effect, log), (what, before)) in effects.iter().zip(expected) {
        assert_eq!((&**effect, &**log), (what, before));
    }
    assert_eq!(audited(&bed.rancher.ipam)[..4], steps);
}

#[tokio::test]
async fn another_app_namespace_is_looked_at_where_the_originals_are_told_of_it_and_no_other() {
    let mut bed = bed().await;
    let settings = &mut bed.session.settings.of_mut::<RancherFipSettings>();
    settings.app_namespace = "fip".into();
    let takeover = bed.takeovers.of("rancher-fip").expect("there is one");
    let report = takeover.look(&bed.session).await.expect("a report");
    assert_eq!(report.unseen, Vec::<String>::new());
    let asked = bed.rancher.asked.lock().clone();
    let named = |kind: &str| {
        let end = format!("/{kind}/");
        let paths = asked.iter().filter(|path| path.contains(&end));
        let parts = paths.map(|path| {
            let parts: Vec<&str> = path.split('/').rev().take(3).collect();
            format!("{}/{}", parts[2], parts[0])
        });
        parts.collect::<BTreeSet<_>>()
    };
    let set = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned());
        names.collect::<BTreeSet<_>>()
    };
    let deployments = [
        "fip/rancher-fip-manager",
        "fip/rancher-fip-api-server",
        "fip/rancher-fip-cluster-manager",
        "rancher-fip-manager/rancher-fip-manager-webhook",
    ];
    assert_eq!(named("deployments"), set(&deployments));
    assert_eq!(named("services"), set(&["fip/rancher-fip-api-server"]));
    assert_eq!(named("configmaps"), set(&["fip/rancher-fip-config"]));
    let secrets = ["jwt-private-key", "rancher-fip-manager-webhook-tls"];
    let secrets = secrets.map(|name| format!("rancher-fip-manager/{name}"));
    assert_eq!(named("secrets"), secrets.into());
    assert!(bed.rancher.effects().is_empty(), "a look changes nothing");
}
