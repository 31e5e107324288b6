//! A system that exists only here gets its place everywhere by its description alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use fipd_core::{System as SystemId, Text};
use futures::future::BoxFuture;
use prometheus_client::{metrics::counter::Counter, registry::Registry};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Runner;
use crate::{
    admission::{
        Asks, FuzzJudge, Judge, Judged, ReviewedKind, Sample,
        review::{Question, Verdict},
    },
    adopt::{AdoptLog, Takeover, TakeoverFuture, TakeoverReport},
    api::{rights, sample::Site},
    cli::{command_of, system::asked},
    clock,
    clusters::{
        ClusterSession, SystemRunner as _,
        tls_server_tests::{self, forbidden, kube_system, serve, whole},
    },
    config::{
        ClusterSettings, Config, Draws, Serve, SettingsTable, SystemConfig, SystemSettings,
        Systems, TypedSettings,
        operation::{Column, ColumnLink, Does, Operations, Served, SystemOperation},
        reference,
    },
    controller::{kind::Kind, store::Key},
    detach::{Leaving, Leftover, Marks, Past},
    fuzz,
    ipam::Ipam,
    oidc::Oidc,
    system::{Means, OperationCall, OperationError, RunningSystem, System, testing::means},
};

/// `[cluster.sixth]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct SixthSettings {
    /// What it is painted with.
    colour: Option<Text>,
}

impl SystemSettings for SixthSettings {}

impl TypedSettings for SixthSettings {
    const NAME: &'static str = "sixth";

    fn fallback() -> &'static Self {
        static FALLBACK: LazyLock<SixthSettings> = LazyLock::new(Default::default);
        &FALLBACK
    }
}

static CONFIG: SystemConfig = SystemConfig {
    name: SixthSettings::NAME,
    tick: "sixth: brushes",
    draws: Draws::Own,
    metrics: true,
    host_wishes: None,
    cni: false,
    cluster: SettingsTable::of::<SixthSettings>(),
    discovery: SettingsTable::of::<SixthSettings>(),
    alike: &[],
    compat: &[],
    operations: Some(&OPERATIONS),
};

/// What a listener serves of it.
const METRICS: Serve = Serve::SystemMetrics(SixthSettings::NAME);
const WITHIN: Duration = Duration::from_secs(60);
const KNOWN: Systems = Systems(&[&CONFIG]);
static OPERATIONS: Operations = Operations {
    title: "Brushes of sixth",
    about: "Brushes",
    all: &[
        SystemOperation {
            name: "brushes",
            about: "Brushes and what they are painted with",
            path: "/api/v1/brushes",
            variable: "",
            does: Does::List {
                field: "brushes",
                kind: "Brush",
                columns: &[
                    Column::new("NAME", "name").to(ColumnLink::Rows("brushes")),
                    Column::new("COLOUR", "colour"),
                ],
            },
            served: Served::BySystem,
        },
        SystemOperation {
            name: "clean",
            about: "Clean a brush",
            path: "/api/v1/brushes/{brush}/clean",
            variable: "Its name",
            does: Does::Change,
            served: Served::BySystem,
        },
    ],
};
const BRUSH: Kind = Kind::namespaced("apis/sixth.example/v1", "brushes", "Brush");
const REVIEWED: ReviewedKind = ReviewedKind {
    group: "sixth.example",
    plural: "brushes",
    operations: &["CREATE"],
    path: "validate-brush",
    namespaced: true,
    webhook: "brushes.sixth.fipd.io",
    conditions: &[],
};
static ASKS: Asks = Asks {
    system: SixthSettings::NAME,
    name: "fipd-sixth-validator",
    kinds: &[REVIEWED],
    versions: &["v1"],
    sample: Sample {
        api: "apis/sixth.example/v1",
        kind: "Brush",
        plural: "brushes",
        namespace: "default",
        spec: "{}",
        role: "none",
    },
    original: None,
};

struct Sixth;

#[derive(Clone, Default)]
struct RunningSixth {
    clusters: Arc<AtomicUsize>,
    ran: Counter,
}

struct SixthLeaving;

impl System for Sixth {
    fn config(&self) -> &'static SystemConfig {
        &CONFIG
    }

    fn asks(&self) -> Option<&'static Asks> {
        Some(&ASKS)
    }

    fn fuzz(&self) -> Option<FuzzJudge> {
        Some(|kind, _| refused(kind))
    }

    fn adopts(&self) -> Option<&'static str> {
        Some("Brushes of the original")
    }

    fn leaving(&self) -> &'static dyn Leaving {
        &SixthLeaving
    }

    fn start(&self, means: &Means) -> Arc<dyn RunningSystem> {
        Arc::new(means.shared.get::<Arc<RunningSixth>>().as_ref().clone())
    }
}

impl RunningSystem for RunningSixth {
    fn run(&self, session: ClusterSession) -> BoxFuture<'static, ()> {
        let ran = self.ran.clone();
        Box::pin(async move {
            assert_eq!(&*session.name, "x");
            ran.inc();
            session.cancel.cancelled().await;
        })
    }

    fn set_clusters(&self, clusters: &BTreeMap<&Text, &ClusterSettings>) {
        self.clusters.store(clusters.len(), Ordering::Relaxed);
    }

    fn judge(&self) -> Option<Arc<dyn Judge>> {
        Some(Arc::new(self.clone()))
    }

    fn takeover(&self) -> Option<Arc<dyn Takeover>> {
        Some(Arc::new(self.clone()))
    }

    fn rows(&self, _list: &'static SystemOperation) -> BTreeMap<String, Value> {
        let brushes = ["broad", "fine"];
        let row = |name: &str| json!({ "name": name, "colour": format!("<{name} red>"), "waiting": name == "fine" });
        brushes.map(|name| (name.to_owned(), row(name))).into()
    }

    fn change<'a>(
        &'a self,
        asked: OperationCall<'a>,
    ) -> BoxFuture<'a, Result<String, OperationError>> {
        let OperationCall { value, actor, .. } = asked;
        let done = match value {
            "fine" => Ok(format!("fine is clean, says {actor}")),
            "wet" => Err(OperationError::Conflict("wet has to dry first".to_owned())),
            other => Err(OperationError::NotFound(format!("no brush {other}"))),
        };
        Box::pin(std::future::ready(done))
    }

    fn register_metrics(&self, registry: &mut Registry) {
        registry.register("sixth_ran", "Clusters that were served", self.ran.clone());
    }
}

fn refused(kind: &ReviewedKind) -> Verdict {
    Verdict::forbidden(format!("no {} today", kind.plural))
}

impl Judge for RunningSixth {
    fn judge<'a>(
        &'a self,
        _cluster: &'a str,
        kind: &'static ReviewedKind,
        _question: &'a Question,
    ) -> BoxFuture<'a, Judged> {
        Box::pin(std::future::ready(Judged::checked(refused(kind))))
    }
}

impl Takeover for RunningSixth {
    fn look<'a>(&'a self, _session: &'a ClusterSession) -> TakeoverFuture<'a> {
        let mut report = TakeoverReport::<&str>::default();
        report.act("Brush studio/fine", "cleans it", "soap");
        Box::pin(std::future::ready(Ok(report.shown())))
    }

    fn adopt<'a>(&'a self, log: AdoptLog<'a>) -> TakeoverFuture<'a> {
        self.look(log.session)
    }
}

impl Leaving for SixthLeaving {
    fn leftovers(&self) -> &'static [Leftover] {
        static LEFTOVERS: [Leftover; 1] = [Leftover::of(BRUSH, |past| !past.systems.is_empty())];
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec!["sixth.example/wet"],
            ..Marks::default()
        }
    }

    fn locks(&self, _past: &Past) -> Vec<(Key, bool)> {
        let lock = Key {
            namespace: "studio".into(),
            name: "painter".into(),
        };
        vec![(lock, true)]
    }
}

fn read(settings: &str) -> Result<Config, String> {
    let text = format!(
        "[[cluster]]\nname = \"a\"\nin-cluster = true\nsystems = [\"sixth\"]\n{settings}\n\
         [[listener]]\naddress = \"127.0.0.1:1\"\nserve = [\"metrics:sixth\"]\n"
    );
    Config::read(KNOWN, &text, Path::new("/etc/fipd"))
}

#[test]
fn it_has_settings_that_are_typed_described_and_refused_with_their_place() {
    let config = read("[cluster.sixth]\ncolour = \"red\"").unwrap();
    let settings: &SixthSettings = config.clusters[0].settings.of();
    assert_eq!(settings.colour.as_deref(), Some("red"));
    let system = SixthSettings::NAME.parse::<SystemId>().unwrap();
    let pools = config.pools_of(&system, &"a".into(), &config.clusters[0].settings);
    assert_eq!(
        pools.as_deref(),
        Some("a"),
        "no other cluster keeps its networks waiting"
    );
    let wrong = read("[cluster.sixth]\ncolor = \"red\"").unwrap_err();
    assert!(
        wrong.contains("line 6, column 1") && wrong.contains("`colour`"),
        "{wrong}"
    );
    let other = read("[cluster.claims]\n").unwrap_err();
    assert!(
        other.contains("claims"),
        "there is no other system: {other}"
    );
    let reference = reference::markdown(KNOWN);
    for text in [
        "## `[cluster.sixth]`",
        "What it is painted with",
        "`metrics:sixth`",
    ] {
        assert!(reference.contains(text), "{text}");
    }
}

#[tokio::test]
async fn it_is_told_of_its_clusters_and_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
    let means = means(&ipam);
    let running: Arc<RunningSixth> = means.shared.get();
    let runner = Runner::of(&[&Sixth], &means);
    let config = read("").unwrap();
    let (systems, settings) = (&config.clusters[0].systems, &config.clusters[0].settings);
    let none = BTreeSet::new();
    runner.known(&[
        (&"a".into(), systems, settings),
        (&"b".into(), &none, settings),
    ]);
    assert_eq!(running.clusters.load(Ordering::Relaxed), 1);
    let admission = runner.admission();
    let kind = admission.kind("validate-brush").unwrap();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "fine",
            "resource": { "group": "sixth.example", "version": "v1", "resource": "brushes" },
            "object": { "metadata": {} },
        },
    });
    let review = review.to_string();
    let question = Question::read(review.as_bytes(), kind).unwrap();
    let judged = admission.judge("a", kind, &question).await.verdict;
    let fuzzed = fuzz::verdicts(&[&Sixth], review.as_bytes());
    for verdict in [judged].into_iter().chain(fuzzed) {
        assert_eq!(verdict.denied.unwrap().message, "no brushes today");
    }
    let agent = Means {
        only_host: true,
        ..means
    };
    let here = Runner::of(&[&Sixth], &agent);
    assert!(here.originals().is_empty(), "it has no part there");
}

/// An API server of the cluster `x`, in which fipd leads and has left its mark.
fn studio(path: &str) -> http::Response<tls_server_tests::Body> {
    let brush = json!({ "metadata": {
        "namespace": "studio", "name": "fine", "uid": "u", "finalizers": ["sixth.example/wet"],
    } });
    let lease = json!({ "metadata": { "uid": "l" }, "spec": { "holderIdentity": "fipd" } });
    match path {
        "/api/v1/namespaces/kube-system" => whole(200, &kube_system("X")),
        "/apis/sixth.example/v1/brushes" => whole(200, &json!({ "items": [brush] })),
        "/apis/coordination.k8s.io/v1/namespaces/studio/leases/painter" => whole(200, &lease),
        _ => forbidden(),
    }
}

#[tokio::test]
async fn a_cluster_with_it_is_served_counted_taken_over_and_left() {
    let site = Site::of((KNOWN, &[&Sixth]), Oidc::default(), Arc::new(clock::now)).await;
    let ask = async |method: &str, path: &str, body: Value| {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let request = request.body(body.to_string().into()).unwrap();
        let (status, body) = site.body(request).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        (status.as_u16(), body)
    };
    let kubeconfig = serve(|request| studio(request.uri().path())).await;
    let add = json!({ "kubeconfig": kubeconfig, "systems": ["sixth"] });
    let (status, added) = ask("PUT", "/api/v1/clusters/x", add).await;
    assert_eq!(status, 200, "{added}");
    let served = async {
        while !site
            .open(METRICS, "/metrics")
            .await
            .1
            .contains("sixth_ran_total 1")
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WITHIN, served)
        .await
        .expect("it runs there");
    let adopt = "/api/v1/clusters/x/adopt/sixth";
    let (_, planned) = ask("GET", adopt, Value::Null).await;
    assert_eq!(planned["message"], "1 things would be done");
    let (status, done) = ask("POST", adopt, Value::Null).await;
    assert_eq!(
        (status, &done["changes"][0]["name"]),
        (200, &json!("Brush studio/fine"))
    );
    let (_, left) = ask("GET", "/api/v1/clusters/x/detach", Value::Null).await;
    let steps = left["steps"].as_array().unwrap().iter();
    let steps: Vec<_> = steps
        .map(|step| format!("{}: {}", step["object"], step["does"]))
        .collect();
    assert_eq!(
        steps,
        [
            r#""Brush studio/fine": "take the finalizer sixth.example/wet off""#,
            r#""Lease studio/painter": "let go""#,
        ]
    );
    let command = command_of(KNOWN, &[&Sixth]);
    let adopted = command.try_get_matches_from(["fipd", "adopt", "sixth", "--cluster", "x"]);
    let (_, arguments) = adopted.unwrap().remove_subcommand().unwrap();
    assert_eq!(arguments.get_one::<String>("system").unwrap(), "sixth");
}

#[tokio::test]
async fn its_operations_are_routes_pages_and_commands() {
    let site = Site::of((KNOWN, &[&Sixth]), Oidc::default(), Arc::new(clock::now)).await;
    let ask = async |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path);
        let (status, body) = site.body(request.body(Body::empty()).unwrap()).await;
        (status.as_u16(), body)
    };
    let (_, first) = ask("GET", "/api/v1/brushes?limit=1").await;
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first["brushes"][0]["name"], "broad");
    let next = first["next"].as_str().unwrap();
    let (_, second) = ask("GET", &format!("/api/v1/brushes?cursor={next}")).await;
    let second: Value = serde_json::from_str(&second).unwrap();
    assert_eq!(second["brushes"][0]["name"], "fine");
    assert_eq!(second["next"], Value::Null);
    for (brush, status, text) in [
        ("fine", 200, "fine is clean"),
        ("wet", 409, "wet has to dry first"),
        ("lost", 404, "no brush lost"),
    ] {
        let (answered, body) = ask("POST", &format!("/api/v1/brushes/{brush}/clean")).await;
        assert_eq!((answered, body.contains(text)), (status, true), "{body}");
    }
    let (_, openapi) = ask("GET", "/api/v1/openapi.json").await;
    let openapi: Value = serde_json::from_str(&openapi).unwrap();
    let clean = &openapi["paths"]["/api/v1/brushes/{brush}/clean"]["post"];
    assert_eq!(clean["parameters"][0]["name"], "brush");
    assert!(clean["responses"]["404"].is_object(), "{clean}");
    let rights = rights::markdown(KNOWN);
    assert!(rights.contains("/api/v1/brushes/{brush}/clean"), "{rights}");
    site.sign_in().await;
    let (status, page) = ask("GET", "/ui/sixth/brushes?filter=bro").await;
    assert_eq!(status, 200);
    assert!(page.contains("broad") && !page.contains(">fine<"), "{page}");
    assert!(!page.contains("<broad red>"), "markup is escaped: {page}");
    let (_, page) = ask("GET", "/ui/sixth").await;
    let link = "<a href=\"/ui/sixth/brushes?filter=fine\">fine</a>";
    let (waiting, other) = (page.find(">fine<"), page.find(">broad<"));
    assert!(page.contains(link) && waiting < other, "{page}");
    let command = command_of(KNOWN, &[&Sixth]);
    let matches = command.try_get_matches_from(["fipd", "sixth", "clean", "fine"]);
    let (_, path) = asked(&matches.unwrap(), KNOWN).unwrap();
    assert_eq!(path, "/api/v1/brushes/fine/clean");
}
