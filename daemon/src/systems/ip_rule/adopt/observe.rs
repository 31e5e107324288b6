//! Complete lists of what counts, and who has the Lease.

use fipd_core::Text;
use fipd_crds::ip_rule::{AGENT_WORKLOAD, OPERATOR};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{super::names::is_original, RuleInventory};
use crate::{
    adopt::{
        OriginalWorkload, TakeoverError,
        leases::{self, LeaseHolder},
    },
    clusters::{CallError, ClusterSession, adoption::complete_list},
    controller::{client::Remote, kind::LEASE, owned::is_ours},
    rules::RuleBoard,
    systems::ip_rule::settings::IpRuleSettings,
};

pub async fn find(
    session: &ClusterSession,
    me: &Text,
    board: &RuleBoard,
) -> Result<RuleInventory, TakeoverError> {
    let client = || session.client.clone();
    let all = ListParams::default;
    session.verify_identity().await?;
    let rules = complete_list(session, &Api::all(client()), all(), "list IPRules", Some).await?;
    let configs = Api::all(client());
    let configs = complete_list(session, &configs, all(), "list IPRuleConfigs", Some).await?;
    let programs = programs(session).await;
    session.verify_identity().await?;
    Ok(RuleInventory {
        rules,
        configs,
        programs: programs.map_err(|error| error.to_string()),
        lease: lease(session, me).await,
        sets: super::sets_of(board),
        // Last, so that it is not older than what it is compared with.
        view: board.view(),
    })
}

/// The original's workloads by the label that all its manifests have. What fipd runs for an `Agent` is not the original's.
async fn programs(session: &ClusterSession) -> Result<Vec<OriginalWorkload>, CallError> {
    let labelled = || ListParams::default().labels(&format!("app.kubernetes.io/name={OPERATOR}"));
    let api: Api<DaemonSet> = Api::all(session.client.clone());
    let keep = |one: DaemonSet| (!is_ours(&one.metadata) && !runs_fipd(&one)).then_some(one);
    let agents = complete_list(session, &api, labelled(), "list DaemonSets", keep).await?;
    let agents = agents.iter().filter(|one| one.name_any() == AGENT_WORKLOAD);
    let agents = agents.map(OriginalWorkload::daemon_set);
    let api: Api<Deployment> = Api::all(session.client.clone());
    let keep = |one: Deployment| (!is_ours(&one.metadata)).then_some(one);
    let controllers = complete_list(session, &api, labelled(), "list Deployments", keep).await?;
    let controllers = controllers.iter().map(OriginalWorkload::deployment);
    Ok(agents.chain(controllers).collect())
}

/// What an `Agent` runs has the original's labels, whoever made it; only fipd is told something by such variables.
fn runs_fipd(set: &DaemonSet) -> bool {
    let pod = set.spec.template.spec.as_ref();
    let mut containers = pod.into_iter().flat_map(|pod| &pod.containers);
    containers.any(|one| {
        let image = one.image.as_deref().unwrap_or_default();
        let mut variables = one.env.iter().flatten();
        variables.any(|variable| variable.name.starts_with("FIPD_")) && !is_original(image)
    })
}

async fn lease(session: &ClusterSession, me: &Text) -> LeaseHolder {
    let settings = session.settings.of::<IpRuleSettings>();
    let target = LEASE.named(&settings.lease_lock_namespace, &settings.lease_lock_name);
    let remote = Remote::new(session.client.clone());
    let [holder] = leases::look(&remote, me, &[target], 1).await;
    holder
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_runs_fipd_is_not_the_originals() {
        let set = |variable: &str| {
            let env =
                json!([{ "name": "NODE_NAME", "value": "n" }, { "name": variable, "value": "x" }]);
            let pod = json!({ "containers": [{ "name": "agent", "env": env }] });
            let spec = json!({ "selector": {}, "template": { "spec": pod } });
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        assert!(runs_fipd(&set("FIPD_CONFIG")));
        assert!(!runs_fipd(&set("RECONCILE_PERIOD")));
    }
}
