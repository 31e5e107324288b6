use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// What the Harvester cluster `hv` answers: a code and its definitions. Code 0: nothing at all.
type Answers = Arc<Mutex<(u16, Vec<Value>)>>;

/// `hv` is a Harvester cluster until its kubeconfig is empty, two are called `twice`, and no other is one.
struct Fixed {
    answers: Answers,
    kubeconfig: Arc<Mutex<&'static str>>,
}

impl HarvesterAccess for Fixed {
    fn find(&self, cluster: &str) -> Result<Option<Text>, String> {
        match cluster {
            "hv" if self.kubeconfig.lock().is_empty() => Ok(None),
            "hv" | "c-m-hv" => Ok(Some("c-m-hv".into())),
            "twice" => Err("there are two".to_owned()),
            _ => Ok(None),
        }
    }

    fn way<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<HarvesterWay, String>> {
        let answers = Arc::clone(&self.answers);
        let kubeconfig = *self.kubeconfig.lock();
        let serve = move |request: Request<Body>| {
            let (code, items) = answers.lock().clone();
            async move {
                let watch = request.uri().query().unwrap_or_default().contains("watch=");
                if watch || code == 0 {
                    return std::future::pending().await;
                }
                let body = match code {
                    200 => json!({ "metadata": { "resourceVersion": "1" }, "items": items }),
                    _ => {
                        json!({ "status": "Failure", "code": code, "message": "no", "reason": "" })
                    }
                };
                let answer = Response::builder().status(code);
                let answer = answer.body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.expect("an answer"))
            }
        };
        let way = HarvesterWay {
            client: Client::new(tower::service_fn(serve), "default"),
            kubeconfig: kubeconfig.into(),
            over: CancellationToken::new(),
        };
        Box::pin(std::future::ready(Ok(way)))
    }
}

fn definition(namespace: &str, name: &str, config: Value) -> Value {
    let labels = json!({ "network.harvesterhci.io/clusternetwork": "mgmt" });
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "namespace": namespace, "name": name, "labels": labels },
        "spec": { "config": config },
    })
}

struct Bed {
    answers: Answers,
    kubeconfig: Arc<Mutex<&'static str>>,
    attachments: Arc<Attachments>,
}

impl Bed {
    fn new(code: u16, items: Vec<Value>) -> Self {
        let answers = Arc::new(Mutex::new((code, items)));
        let kubeconfig = Arc::new(Mutex::new("first"));
        let access = Fixed {
            answers: Arc::clone(&answers),
            kubeconfig: Arc::clone(&kubeconfig),
        };
        let attachments = Attachments::new(Box::new(access), Memory::default());
        tokio::spawn(Arc::clone(&attachments).follow());
        Self {
            answers,
            kubeconfig,
            attachments,
        }
    }

    fn answer(&self, code: u16, items: Vec<Value>) {
        *self.answers.lock() = (code, items);
    }

    fn lookup(&self, cluster: &str, network: &str) -> AttachmentLookup {
        self.attachments
            .lookup(HarvesterNetwork { cluster, network })
    }

    /// `VLAN PHYSICAL` of a network of `hv`, or the reason why it is not known.
    fn shown(&self, network: &str) -> String {
        match self.lookup("hv", network) {
            AttachmentLookup::Foreign => "Foreign".to_owned(),
            AttachmentLookup::Pending => "Pending".to_owned(),
            AttachmentLookup::Unread(fault) => fault.reason().to_owned(),
            AttachmentLookup::Known(Attachment { vlan, physical, .. }) => {
                format!("{vlan:?} {}", physical.as_deref().unwrap_or("-"))
            }
        }
    }

    /// Waits until the network of `hv` is shown so.
    async fn shows(&self, network: &str, expected: &str) {
        let of = HarvesterNetwork {
            cluster: "hv",
            network,
        };
        self.attachments.want(of);
        let mut changes = self.attachments.changes();
        let shown = async {
            while self.shown(network) != expected {
                changes.changed().await.expect("it goes on");
            }
        };
        let within = tokio::time::timeout(Duration::from_secs(600), shown).await;
        assert!(within.is_ok(), "{} not {expected}", self.shown(network));
    }
}

fn all() -> Vec<Value> {
    vec![
        definition("default", "vlan178", json!(r#"{"vlan":178}"#)),
        definition("tenants", "vlan178", json!(r#"{"vlan":178}"#)),
        definition("others", "twice", json!(r#"{"vlan":1}"#)),
        definition("tenants", "twice", json!(r#"{"vlan":2}"#)),
        definition("harvester-public", "shared", json!(r#"{"vlan":5}"#)),
        definition("tenants", "shared", json!("{")),
        definition("default", "both", json!(r#"{"vlan":1}"#)),
        definition("harvester-public", "both", json!(r#"{"vlan":2}"#)),
        definition("default", "bad", json!("{")),
        definition("default", "odd", json!({ "vlan": 7 })),
        definition("default", "none", Value::Null),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_network_is_known_or_it_is_known_why_not() {
    let bed = Bed::new(200, all());
    assert_eq!(bed.shown("vlan178"), "Pending");
    bed.shows("vlan178", "Some(178) mgmt").await;
    for (network, reason) in [
        ("twice", "Ambiguous"),
        ("both", "Ambiguous"),
        ("shared", "Some(5) mgmt"),
        ("bad", "Malformed"),
        ("odd", "Malformed"),
        ("none", "Malformed"),
        ("gone", "NotFound"),
    ] {
        assert_eq!(bed.shown(network), reason, "{network}");
    }
    let AttachmentLookup::Unread(fault) = bed.lookup("hv", "twice") else {
        panic!("it is ambiguous");
    };
    assert!(fault.to_string().contains("others, tenants"), "{fault}");
    let by_id = bed.lookup("c-m-hv", "vlan178");
    assert_eq!(by_id, bed.lookup("hv", "vlan178"));
    let foreign = bed.lookup("bare-metal", "vlan178");
    assert_eq!(foreign, AttachmentLookup::Foreign);
    let twice = bed.lookup("twice", "vlan178");
    assert!(matches!(twice, AttachmentLookup::Unread(_)), "{twice:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_stops_answering_leaves_what_is_known() {
    let bed = Bed::new(200, all());
    bed.shows("vlan178", "Some(178) mgmt").await;
    bed.answer(0, Vec::new());
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(bed.shown("vlan178"), "Some(178) mgmt");
    bed.answer(500, Vec::new());
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(bed.shown("vlan178"), "Some(178) mgmt");
}

#[tokio::test(start_paused = true)]
async fn what_a_cluster_refuses_is_reported_until_it_allows_it() {
    for (code, reason) in [
        (0, "Unreachable"),
        (403, "Forbidden"),
        (404, "NotServed"),
        (500, "Unreachable"),
    ] {
        let bed = Bed::new(code, Vec::new());
        bed.shows("vlan178", reason).await;
        bed.answer(200, all());
        bed.shows("vlan178", "Some(178) mgmt").await;
        if reason != "Unreachable" {
            bed.answer(code, Vec::new());
            bed.shows("vlan178", reason).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_kubeconfig_is_used() {
    let bed = Bed::new(200, all());
    bed.shows("vlan178", "Some(178) mgmt").await;
    // Nothing of this comes over the watch that is under way.
    let other = definition("default", "vlan178", json!(r#"{"vlan":179}"#));
    bed.answer(200, vec![other]);
    *bed.kubeconfig.lock() = "second";
    bed.shows("vlan178", "Some(179) mgmt").await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_loses_name_or_label_leaves_its_networks_unread_and_others_untouched() {
    let bed = Bed::new(200, all());
    bed.shows("vlan178", "Some(178) mgmt").await;
    let of = |network| HarvesterNetwork {
        cluster: "hv",
        network,
    };
    assert!(
        bed.attachments
            .is_touched(&bed.attachments.take_touched(), of("vlan178"))
    );
    let other = definition("default", "new", json!(r#"{"vlan":9}"#));
    bed.answer(200, all().into_iter().chain([other]).collect());
    *bed.kubeconfig.lock() = "second";
    bed.shows("new", "Some(9) mgmt").await;
    let touched = bed.attachments.take_touched();
    assert!(bed.attachments.is_touched(&touched, of("new")));
    assert!(!bed.attachments.is_touched(&touched, of("vlan178")));

    *bed.kubeconfig.lock() = "";
    assert_eq!(bed.shown("vlan178"), "ClusterNotFound");
    let never = bed.lookup("bare-metal", "vlan178");
    assert_eq!(never, AttachmentLookup::Foreign);
}
