//! Complete lists of what counts, and two looks at the Lease.

use std::time::Duration;

use fipd_core::Text;
use fipd_crds::{
    ip_rule::{AGENT_WORKLOAD, OPERATOR},
    labels::{FIELD_MANAGER, MANAGED_BY},
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    coordination::v1::Lease,
};
use kube::{Api, ResourceExt as _, api::ListParams, core::ObjectMeta};

use super::{super::names::is_original, AdoptError, Found, LeaseSeen, Program};
use crate::{
    clusters::{CallError, ClusterSession, adoption::complete_list},
    controller::{client::Remote, kind::LEASE},
    rules::RuleBoard,
    systems::ip_rule::settings::IpRuleSettings,
};

/// The original's controller renews its Lease every two seconds.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

pub async fn find(
    session: &ClusterSession,
    me: &Text,
    board: &RuleBoard,
) -> Result<Found, AdoptError> {
    let client = || session.client.clone();
    let all = ListParams::default;
    session.verify_identity().await?;
    let rules = complete_list(session, &Api::all(client()), all(), "list IPRules", Some).await?;
    let configs = Api::all(client());
    let configs = complete_list(session, &configs, all(), "list IPRuleConfigs", Some).await?;
    let programs = programs(session).await;
    session.verify_identity().await?;
    Ok(Found {
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
async fn programs(session: &ClusterSession) -> Result<Vec<Program>, CallError> {
    let labelled = || ListParams::default().labels(&format!("app.kubernetes.io/name={OPERATOR}"));
    let theirs = |meta: &ObjectMeta| {
        let labels = meta.labels.as_ref();
        labels
            .and_then(|all| all.get(MANAGED_BY))
            .map(String::as_str)
            != Some(FIELD_MANAGER)
    };
    let api: Api<DaemonSet> = Api::all(session.client.clone());
    let keep = |one: DaemonSet| (theirs(&one.metadata) && !runs_fipd(&one)).then_some(one);
    let agents = complete_list(session, &api, labelled(), "list DaemonSets", keep).await?;
    let agents = agents.iter().filter(|one| one.name_any() == AGENT_WORKLOAD);
    let agents = agents.map(|one| Program {
        name: shown("DaemonSet", one),
        wanted: one
            .status
            .as_ref()
            .map_or(0, |status| status.desired_number_scheduled),
    });
    let api: Api<Deployment> = Api::all(session.client.clone());
    let keep = |one: Deployment| theirs(&one.metadata).then_some(one);
    let controllers = complete_list(session, &api, labelled(), "list Deployments", keep).await?;
    let controllers = controllers.iter().map(|one| Program {
        name: shown("Deployment", one),
        wanted: one.spec.replicas.unwrap_or(1),
    });
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

fn shown<K: kube::Resource>(kind: &str, one: &K) -> String {
    let namespace = one.meta().namespace.as_deref().unwrap_or_default();
    format!("{kind} {namespace}/{}", one.name_any())
}

async fn lease(session: &ClusterSession, me: &Text) -> LeaseSeen {
    let settings = session.settings.of::<IpRuleSettings>();
    let target = LEASE.named(&settings.lease_lock_namespace, &settings.lease_lock_name);
    let remote = Remote::new(session.client.clone());
    let first = match remote.get::<Lease>(&target).await {
        Ok(first) => held(first, me),
        Err(error) => return LeaseSeen::Unknown(error.to_string()),
    };
    let Some((by, renewed)) = first else {
        return LeaseSeen::Free;
    };
    tokio::time::sleep(BETWEEN_LOOKS).await;
    match remote.get::<Lease>(&target).await {
        Ok(second) => second_look((by, renewed), held(second, me)),
        Err(error) => LeaseSeen::Unknown(error.to_string()),
    }
}

/// Its holder, if that is another, and when that renewed it.
type Holding = (String, Option<String>);

fn held(lease: Option<Lease>, me: &Text) -> Option<Holding> {
    let spec = lease?.spec?;
    let by = spec
        .holder_identity
        .filter(|by| !by.is_empty() && **by != **me)?;
    Some((by, spec.renew_time.map(|time| time.0.to_string())))
}

fn second_look(first: Holding, second: Option<Holding>) -> LeaseSeen {
    match second {
        None => LeaseSeen::Free,
        Some(second) => LeaseSeen::Other {
            alive: second != first,
            by: second.0,
        },
    }
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

    #[test]
    fn a_holder_lives_that_renews_between_two_looks() {
        let look = |holder: &str, renewed: &str| {
            let lease = json!({ "metadata": {}, "spec": { "holderIdentity": holder, "renewTime": renewed } });
            held(serde_json::from_value(lease).unwrap(), &"me".into())
        };
        let (early, late) = ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:02.000000Z");
        assert_eq!((look("me", early), look("", early)), (None, None));
        let first = || look("other", early).unwrap();
        let seen = |alive| LeaseSeen::Other {
            by: "other".into(),
            alive,
        };
        assert_eq!(second_look(first(), look("other", early)), seen(false));
        assert_eq!(second_look(first(), look("other", late)), seen(true));
        assert_eq!(second_look(first(), look("me", late)), LeaseSeen::Free);
    }
}
