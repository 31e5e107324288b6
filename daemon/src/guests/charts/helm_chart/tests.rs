//! One release of a cluster with canned answers, step by step.

use kube::core::ObjectMeta;
use tokio_util::sync::CancellationToken;

use super::{testing::switching, *};
use crate::{
    config,
    controller::client::testing::{Asked, canned},
    guests::system::testing::{FIRST, SECOND},
    helm::{ChartVersion, Helm, OWNER, OWNER_LABEL, secret, testing::release},
};

type Answer = (&'static str, u16, &'static str);
const GONE: Answer = ("GET", 404, "");
const TAKEN: Answer = ("PATCH", 200, "{}");
const DELETED: Answer = ("DELETE", 200, "{}");

/// The Secrets of a release whose newest revision is the second.
fn revisions() -> Answer {
    let secret = secret(2, "deployed", ("purelb", "0.14.1"), &json!({}));
    answer(&json!({ "items": [{ "metadata": secret["metadata"] }] }))
}

/// That revision.
fn revision(status: &str, chart: &str, values: &Value) -> Answer {
    answer(&secret(2, status, (chart, "0.14.1"), values))
}

fn answer(body: &Value) -> Answer {
    ("GET", 200, body.to_string().leak())
}

fn charts(found: impl IntoIterator<Item = HelmChart>) -> HelmCharts {
    HelmCharts {
        found: Some(found.into_iter().collect()),
        system: FIRST,
    }
}

async fn with<T>(
    answers: &[Answer],
    work: impl AsyncFnOnce(ReachedGuest<'_>) -> T,
) -> (T, Vec<Asked>) {
    with_of(FIRST, answers, work).await
}

/// What comes of it for a system, and what was asked for it; every answer is used.
async fn with_of<T>(
    system: GuestSystem,
    answers: &[Answer],
    work: impl AsyncFnOnce(ReachedGuest<'_>) -> T,
) -> (T, Vec<Asked>) {
    let dir = tempfile::tempdir().unwrap();
    let helm = Helm::start(
        &config::Helm::default(),
        dir.path(),
        CancellationToken::new(),
    );
    let (remote, asked) = canned(answers);
    let guest = ReachedGuest {
        id: "c-1".into(),
        system,
        name: "rancher/c-1".into(),
        kubeconfig: "",
        remote: &remote,
        helm: &helm,
    };
    let result = work(guest).await;
    let asked = std::mem::take(&mut *asked.lock());
    assert_eq!(asked.len(), answers.len());
    (result, asked)
}

fn adopted(mut chart: HelmChart) -> HelmChart {
    let labels = chart.metadata.labels.get_or_insert_default();
    labels.insert(ADOPTED.to_owned(), "true".to_owned());
    chart
}

fn held(mut chart: HelmChart) -> HelmChart {
    chart.metadata.finalizers = Some(vec![engine_switch::FINALIZER.to_owned()]);
    chart
}

async fn hand_to_helm(chart: HelmChart, answers: &[Answer]) -> Vec<Asked> {
    let work = async |guest: ReachedGuest<'_>| guest.hand_to_helm(&chart).await;
    let (result, asked) = with(answers, work).await;
    assert_eq!(result.unwrap_err().reason, "ReleaseBusy");
    asked
}

#[tokio::test]
async fn a_release_is_taken_back_step_by_step_and_each_is_written_as_it_is_meant() {
    let asked = hand_to_helm(held(switching(false, false)), &[TAKEN]).await;
    let off =
        json!({ "metadata": { "uid": "u", "annotations": { engine_switch::UNMANAGED: "true" } } });
    assert_eq!(asked[0].body, off);

    let answers = [revisions(), TAKEN, DELETED];
    let asked = hand_to_helm(held(adopted(switching(true, false))), &answers).await;
    let mark =
        json!({ "metadata": { "uid": "u-2", "labels": { OWNER_LABEL: OWNER, ADOPTED: "true" } } });
    assert_eq!(asked[1].body, mark, "who took it over is known afterwards");
    assert!(asked[1].path.ends_with("/sh.helm.release.v1.purelb.v2"));
    assert_eq!(asked[2].body["preconditions"]["uid"], "u");

    let answers = [revisions(), TAKEN, TAKEN];
    let asked = hand_to_helm(held(switching(true, true)), &answers).await;
    let mark = json!({ "metadata": { "uid": "u-2", "labels": { OWNER_LABEL: OWNER } } });
    assert_eq!(asked[1].body, mark);
    assert_eq!(asked[2].body[2]["path"], "/metadata/finalizers/0");

    hand_to_helm(held(switching(false, true)), &[]).await;
}

async fn remove(
    chart: Option<HelmChart>,
    answers: &[Answer],
) -> Result<Option<ReleaseOwner>, &'static str> {
    let charts = charts(chart);
    let work = async |guest: ReachedGuest<'_>| guest.remove(&charts, "lb", "purelb").await;
    let (result, _) = with(answers, work).await;
    result.map_err(|error| error.reason)
}

/// What another installed stays, from wherever the hand-back of its object was cut off, and no object is left that
/// helm-controller keeps off.
#[tokio::test]
async fn half_a_hand_back_of_what_was_taken_over_converges_when_its_cluster_is_left() {
    let there = revisions();
    let of = |off, deleted| Some(held(adopted(switching(off, deleted))));
    let stays = Ok(Some(ReleaseOwner::Adopted));
    assert_eq!(remove(of(false, false), &[]).await, stays);
    let busy = Err("ReleaseBusy");
    assert_eq!(
        remove(of(true, false), &[there, TAKEN, DELETED]).await,
        busy
    );
    assert_eq!(remove(of(true, true), &[there, TAKEN, TAKEN]).await, busy);
    assert_eq!(
        remove(of(false, true), &[]).await,
        busy,
        "it is uninstalled"
    );
    let mut marked = secret(2, "deployed", ("purelb", "0.14.1"), &json!({}));
    marked["metadata"]["labels"][OWNER_LABEL] = json!(OWNER);
    marked["metadata"]["labels"][ADOPTED] = json!("true");
    let marked = answer(&json!({ "items": [marked] }));
    assert_eq!(remove(None, &[marked]).await, stays);
}

/// The object of a system that is not the first.
fn seconds(mut chart: HelmChart) -> HelmChart {
    let labels = chart.metadata.labels.get_or_insert_default();
    labels.insert(SYSTEM_LABEL.to_owned(), "second".to_owned());
    chart
}

/// The Secrets of a release that a system of fipd installed.
fn marked(system: Option<&str>) -> Answer {
    let mut secret = secret(2, "deployed", ("purelb", "0.14.1"), &json!({}));
    let labels = &mut secret["metadata"]["labels"];
    labels[OWNER_LABEL] = json!(OWNER);
    if let Some(system) = system {
        labels[SYSTEM_LABEL] = json!(system);
    }
    answer(&json!({ "items": [{ "metadata": secret["metadata"] }] }))
}

#[tokio::test]
async fn no_system_removes_or_takes_back_the_release_of_another() {
    let first = held(switching(false, false));
    for (system, chart, mark) in [
        (FIRST, seconds(first.clone()), Some("second")),
        (SECOND, first.clone(), None),
    ] {
        let all = |found: Option<&HelmChart>| HelmCharts {
            found: Some(found.cloned().into_iter().collect()),
            system,
        };
        let (by_object, by_secret) = (all(Some(&chart)), all(None));
        let remove = async |guest: ReachedGuest<'_>| {
            let object = guest.remove(&by_object, "lb", "purelb").await;
            let secret = guest.remove(&by_secret, "lb", "purelb").await;
            (object, secret)
        };
        let (removed, _) = with_of(system, &[marked(mark)], remove).await;
        let stays = Ok(Some(ReleaseOwner::Other));
        assert_eq!(removed, (stays.clone(), stays));
        let hand = async |guest: ReachedGuest<'_>| guest.hand_to_helm(&chart).await;
        let (handed, _) = with_of(system, &[], hand).await;
        assert_eq!(handed.unwrap_err().reason, "ReleaseOfOtherSystem");
        let wanted = release("https://x/charts");
        let bring = async |guest: ReachedGuest<'_>| guest.bring_object(&by_object, &wanted).await;
        let (brought, _) = with_of(system, &[], bring).await;
        assert_eq!(brought.unwrap_err().reason, "ReleaseOfOtherSystem");
    }
}

#[tokio::test]
async fn a_second_system_marks_what_it_makes_and_what_it_hands_over() {
    let none = answer(&json!({ "items": [] }));
    let answers = [none, none, knows_retry(), ("POST", 200, "{}")];
    let wanted = release("https://x/charts");
    let charts = HelmCharts {
        found: Some(Vec::new()),
        system: SECOND,
    };
    let bring = async |guest: ReachedGuest<'_>| guest.bring_object(&charts, &wanted).await;
    let (result, asked) = with_of(SECOND, &answers, bring).await;
    assert_eq!(result, Ok(Settled::NotYet));
    let labels = json!({ OWNER_LABEL: OWNER, SYSTEM_LABEL: "second" });
    assert_eq!(asked[3].body["metadata"]["labels"], labels);

    let chart = seconds(held(switching(true, false)));
    let hand = async |guest: ReachedGuest<'_>| guest.hand_to_helm(&chart).await;
    let (_, asked) = with_of(SECOND, &[revisions(), TAKEN, DELETED], hand).await;
    assert_eq!(asked[1].body["metadata"]["labels"], labels);
}

async fn bring(
    chart: Option<HelmChart>,
    answers: &[Answer],
) -> (Result<Settled, ChartError>, Vec<Asked>) {
    bring_wanted(&release("https://x/charts"), chart, answers).await
}

async fn bring_wanted(
    wanted: &Release,
    chart: Option<HelmChart>,
    answers: &[Answer],
) -> (Result<Settled, ChartError>, Vec<Asked>) {
    let charts = charts(chart);
    let answers = &[&[revisions()], answers].concat();
    with(answers, async |guest: ReachedGuest<'_>| {
        guest.bring_object(&charts, wanted).await
    })
    .await
}

/// fipd's, with what is wanted, and with a policy that fipd wrote.
fn object(policy: &str) -> HelmChart {
    let mut chart = testing::chart(&json!({ "jobName": "helm-install-purelb" }));
    chart.spec = plan::spec(&release("https://x/charts"), policy).unwrap();
    let managed = json!({ "managedFields": [{
        "manager": "fipd", "operation": "Update", "time": "1970-01-01T00:00:10Z",
        "fieldsV1": { "f:spec": { "f:failurePolicy": {} } },
    }] });
    let managed: ObjectMeta = serde_json::from_value(managed).unwrap();
    chart.metadata.managed_fields = managed.managed_fields;
    chart
}

#[tokio::test]
async fn a_foreign_release_of_another_chart_is_left_alone() {
    let other = revision("deployed", "metallb", &json!({}));
    for chart in [None, Some(object("retry"))] {
        let (result, _) = bring(chart, &[other]).await;
        let error = result.unwrap_err();
        assert_eq!(error.reason, "ReleaseForeign");
        assert!(error.message.contains("\"metallb\""), "{}", error.message);
    }
}

fn complete() -> Answer {
    let job = testing::job(
        11,
        &json!({ "conditions": [{ "type": "Complete", "status": "True" }] }),
    );
    answer(&json!(job))
}

fn knows_retry() -> Answer {
    let policy = json!({ "properties": { "failurePolicy": { "enum": ["abort", "retry"] } } });
    let schema = json!({ "openAPIV3Schema": { "properties": { "spec": policy } } });
    answer(&json!({ "spec": { "versions": [{ "name": "v1", "schema": schema }] } }))
}

#[tokio::test]
async fn a_release_that_failed_is_told_though_its_job_succeeded() {
    let failed = revision("failed", "purelb", &json!({ "a": 1 }));
    let (result, _) = bring(Some(object("retry")), &[failed, knows_retry(), complete()]).await;
    let error = result.unwrap_err();
    assert_eq!(error.reason, "HelmChartFailed");
    assert!(
        error.message.contains("it is failed") && error.message.contains("retry"),
        "{}",
        error.message
    );
    let deployed = revision("deployed", "purelb", &json!({ "a": 1 }));
    let answers = [deployed, knows_retry(), complete()];
    let (result, _) = bring(Some(object("retry")), &answers).await;
    assert_eq!(result, Ok(Settled::Yes));
}

#[tokio::test]
async fn values_that_an_admin_adds_are_no_failure() {
    let more = revision("deployed", "purelb", &json!({ "a": 2 }));
    let config = answer(&json!({}));
    let answers = [more, knows_retry(), complete(), config];
    let (result, asked) = bring(Some(object("retry")), &answers).await;
    assert_eq!(result, Ok(Settled::Yes));
    let path = "/apis/helm.cattle.io/v1/namespaces/kube-system/helmchartconfigs/purelb";
    assert_eq!(asked[4].path, path);
    let answers = [more, knows_retry(), complete(), GONE];
    let (result, _) = bring(Some(object("retry")), &answers).await;
    assert_eq!(result, Ok(Settled::NotYet));
}

#[tokio::test]
async fn why_it_failed_is_told_while_it_is_tried_again_until_it_succeeds() {
    let failed = revision("failed", "purelb", &json!({ "a": 1 }));
    let before = revision("deployed", "purelb", &json!({ "a": 0 }));
    let deployed = revision("deployed", "purelb", &json!({ "a": 1 }));
    let running = answer(&json!(testing::job(11, &json!({ "failed": 1 }))));
    let unreadable = ("GET", 403, "no");
    let first = [revisions(), failed, unreadable, DELETED];
    let second = [revisions(), before, unreadable, running, GONE];
    let third = [revisions(), deployed, unreadable, complete()];
    let answers = [&first[..], &second, &third, &second].concat();
    let charts = charts([object("abort")]);
    let wanted = release("https://x/charts");
    let (came, _) = with(&answers, async |guest: ReachedGuest<'_>| {
        let mut came = Vec::new();
        for _ in 0..4 {
            came.push(guest.bring_object(&charts, &wanted).await);
        }
        came
    })
    .await;
    let told = came[0].as_ref().unwrap_err();
    assert!(told.message.contains("it is failed"), "{}", told.message);
    assert_eq!(came[1].as_ref().unwrap_err(), told, "it is tried again");
    assert_eq!(came[2..], [Ok(Settled::Yes), Ok(Settled::NotYet)]);
}

#[tokio::test]
async fn a_failure_is_cleared_where_helm_controller_would_leave_it() {
    let failed = revision("failed", "purelb", &json!({ "a": 0 }));
    let running = answer(&json!(testing::job(11, &json!({ "failed": 1 }))));
    let unreadable = ("GET", 403, "no");
    let answers = [failed, unreadable, DELETED, running, GONE];
    let (result, asked) = bring(Some(object("abort")), &answers).await;
    assert_eq!(result, Ok(Settled::NotYet));
    assert!(asked[3].path.ends_with("/sh.helm.release.v1.purelb.v2"));
    assert_eq!(asked[3].body["preconditions"]["uid"], "u-2");
    // What an admin set says what an admin wants.
    let mut theirs = object("abort");
    theirs.metadata.managed_fields = None;
    let (result, _) = bring(Some(theirs), &[failed, running, GONE]).await;
    assert_eq!(result, Ok(Settled::NotYet));
    // The cluster got a helm-controller that knows better.
    let (_, asked) = bring(Some(object("abort")), &[failed, knows_retry(), TAKEN]).await;
    assert_eq!(asked[3].body["spec"]["failurePolicy"], "retry");
}

#[tokio::test]
async fn a_version_that_nobody_named_is_noted_in_the_object_once_it_is_installed() {
    let mut wanted = release("https://x/charts");
    wanted.chart.version = ChartVersion::newest();
    let unversioned = || {
        let mut chart = object("retry");
        chart.spec.version = String::new();
        Some(chart)
    };
    let values = json!({ "a": 1 });
    let [pending, deployed] =
        ["pending-install", "deployed"].map(|status| revision(status, "purelb", &values));
    let running = answer(&json!(testing::job(11, &json!({}))));
    let answers = [pending, knows_retry(), running];
    let (result, _) = bring_wanted(&wanted, unversioned(), &answers).await;
    assert_eq!(result, Ok(Settled::NotYet), "helm is at work on it");
    let answers = [deployed, knows_retry(), TAKEN];
    let (result, asked) = bring_wanted(&wanted, unversioned(), &answers).await;
    assert_eq!(result, Ok(Settled::NotYet));
    assert_eq!(asked[3].body["spec"]["version"], "0.14.1");
    let answers = [deployed, knows_retry(), complete()];
    let (result, _) = bring_wanted(&wanted, Some(object("retry")), &answers).await;
    assert_eq!(result, Ok(Settled::Yes), "nothing is written again");
}

#[tokio::test]
async fn an_object_has_the_name_of_its_release_and_says_the_chart() {
    let mut wanted = release("https://x/charts");
    wanted.name = "lb-two".to_owned();
    let none = answer(&json!({ "items": [] }));
    let answers = [none, none, knows_retry(), ("POST", 200, "{}")];
    let charts = charts(None);
    let bring = async |guest: ReachedGuest<'_>| guest.bring_object(&charts, &wanted).await;
    let (result, asked) = with(&answers, bring).await;
    assert_eq!(result, Ok(Settled::NotYet));
    let object = &asked[3].body;
    assert_eq!(object["metadata"]["name"], "lb-two");
    assert_eq!(object["spec"]["chart"], "purelb");
}
