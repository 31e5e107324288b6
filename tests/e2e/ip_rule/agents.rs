//! The DaemonSet of an Agent, with the real controller of DaemonSets. Its pods are never run here.

use fipd_crds::ip_rule::Agent;
use k8s_openapi::api::apps::v1::DaemonSet;

use super::*;

const HASH: &str = "/spec/template/metadata/annotations/iprule.operator.brtrm.dev~1template-hash";

#[tokio::test(flavor = "multi_thread")]
async fn defect_14_and_9_one_agent_of_a_cluster_runs_and_its_status_is_written_when_it_changes() {
    let bench = Bench::start(&["n1"]).await;
    for role in ["fipd-ip-rule-agents", "fipd-ip-rule-node"] {
        bench.plane.bind_role(role, None).await.unwrap();
    }
    let agents: Api<Agent> = Api::namespaced(bench.client.clone(), "default");
    let sets: Api<DaemonSet> = Api::namespaced(bench.client.clone(), "default");
    let agent = |name: &str, spec: Value| json!({ "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": "Agent", "metadata": { "name": name }, "spec": spec });
    create(&agents, agent("default", json!({}))).await;
    bench.events("default", "NoImage").await;
    patch(
        &agents,
        "default",
        json!({ "spec": { "image": "fipd:1", "nodeSelector": { "lb": "true" }, "tolerations": [{ "operator": "Exists" }] } }),
    )
    .await;
    let reason =
        |wanted: &'static str| move |agent: &Value| condition(agent, "Ready")["reason"] == wanted;
    let scheduled = |agent: &Value| {
        agent["status"]["desiredNumberScheduled"] == 1
            && agent["status"]["currentNumberScheduled"] == 1
    };
    let first = wait(&agents, "default", "has its pod", scheduled).await;
    assert!(reason("Progressing")(&first), "{first}");
    let set = wait(&sets, "iprule-agent", "is there", |_| true).await;
    assert_eq!(
        set["spec"]["template"]["spec"]["serviceAccountName"],
        "iprule-agent"
    );
    let hash = set.pointer(HASH).cloned();
    assert!(hash.is_some());

    // Nothing is written without need, to neither of the two.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = wait(&agents, "default", "is there", |_| true).await;
    assert_eq!(
        later["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let same = wait(&sets, "iprule-agent", "is there", |_| true).await;
    assert_eq!(
        same["metadata"]["generation"],
        set["metadata"]["generation"]
    );

    // Another image is a rollout; what is edited by hand comes back.
    patch(&agents, "default", json!({ "spec": { "image": "fipd:2" } })).await;
    wait(&sets, "iprule-agent", "is rolled out", |set| {
        set.pointer(HASH).cloned() != hash
    })
    .await;
    patch(
        &sets,
        "iprule-agent",
        json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } }),
    )
    .await;
    let rolling = |set: &Value| set["spec"]["updateStrategy"]["type"] == "RollingUpdate";
    wait(&sets, "iprule-agent", "is put right", rolling).await;

    // One of a lesser name counts, one of another name never does.
    create(&agents, agent("mine", json!({ "image": "fipd:1" }))).await;
    wait(&agents, "mine", "is not run", reason("InvalidName")).await;
    create(&agents, agent("agent", json!({ "image": "fipd:3" }))).await;
    wait(
        &agents,
        "default",
        "counts no more",
        reason("InactiveInstance"),
    )
    .await;
    let uid = agents.get("agent").await.unwrap().metadata.uid;
    wait(&sets, "iprule-agent", "is the other's", |set| {
        set["metadata"]["ownerReferences"][0]["uid"] == json!(uid)
    })
    .await;

    // Without its Agent it goes, and the one that is left counts again.
    delete(&agents, "agent").await;
    wait(&agents, "default", "counts again", scheduled).await;
    delete(&agents, "default").await;
    absent(&sets, "iprule-agent").await;
}
