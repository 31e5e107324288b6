//! What the HelmChart of a release is to say: pure.

use fipd_crds::{
    helm_chart::{HelmChart, HelmChartSpec},
    labels::ADOPTED,
};
use serde_json::{Value, json};

use crate::{
    controller::{client::MANAGER, owned::is_ours},
    guests::{GuestSystem, charts::ReleaseOwner},
    helm::{Reference, Release, SYSTEM_LABEL, Stored},
};

/// helm-controller tries again over what is there.
const RETRY: &str = "retry";
/// It leaves a release that failed as it is.
const ABORT: &str = "abort";

/// The object that keeps this release.
pub fn find<'a>(all: &'a [HelmChart], namespace: &str, name: &str) -> Option<&'a HelmChart> {
    let keeps = |chart: &&HelmChart| {
        chart.metadata.name.as_deref() == Some(name) && chart.release_namespace() == namespace
    };
    all.iter().find(keeps)
}

/// Whose the release of a HelmChart is for the system that looks.
pub fn whose(chart: &HelmChart, system: GuestSystem) -> ReleaseOwner {
    let labels = chart.metadata.labels.as_ref();
    let mark = labels.and_then(|labels| labels.get(SYSTEM_LABEL));
    let own = is_ours(&chart.metadata) && mark.map(String::as_str) == system.mark();
    match labels.is_some_and(|labels| labels.contains_key(ADOPTED)) {
        _ if !own => ReleaseOwner::Other,
        true => ReleaseOwner::Adopted,
        false => ReleaseOwner::Fipd,
    }
}

/// What says to helm that there are no values: with none at all an upgrade keeps those of before. It drops what is null.
const NO_VALUES: &str = r#"{"fipd":null}"#;

/// What the object is to say.
///
/// # Errors
/// Why a HelmChart cannot say it.
pub fn spec(release: &Release, policy: &str) -> Result<HelmChartSpec, String> {
    let chart = &release.chart;
    let (name, repo) = match &chart.reference {
        Reference::Repository(url) => (chart.name.clone(), url.clone()),
        Reference::Oci(url) => (url.clone(), String::new()),
        Reference::Local(path) => {
            return Err(format!(
                "ChartRef = {:?} is a path on fipd's host, which a HelmChart cannot name; allowed are a repository and an OCI reference, or the engine \"helm\"",
                path.display()
            ));
        }
    };
    Ok(HelmChartSpec {
        chart: name,
        repo,
        version: chart.version.to_string(),
        target_namespace: release.namespace.clone(),
        create_namespace: true,
        values_content: match release.values.is_empty() {
            true => NO_VALUES.to_owned(),
            false => release.values.to_json(),
        },
        failure_policy: policy.to_owned(),
    })
}

/// What helm-controller is to do about a release that failed, by the CRD of HelmCharts; `None`: it cannot be read. Never
/// `reinstall`, which uninstalls it first, and all addresses with it. A helm-controller that does not know `retry` does
/// nothing by itself, and fipd clears the way for it.
pub fn policy(crd: Option<&Value>) -> &'static str {
    let versions = crd.and_then(|crd| crd.pointer("/spec/versions")?.as_array());
    let mut of = versions.into_iter().flatten();
    let version = of.find(|version| version.get("name") == Some(&json!("v1")));
    let field = "/schema/openAPIV3Schema/properties/spec/properties/failurePolicy/enum";
    let known = version.and_then(|version| version.pointer(field)?.as_array());
    match known.is_some_and(|known| known.contains(&json!(RETRY))) {
        true => RETRY,
        false => ABORT,
    }
}

/// Whether the policy that the object says is fipd's, as the API server notes it: an admin's stays.
pub fn is_policy_ours(chart: &HelmChart) -> bool {
    let mut managers = chart.metadata.managed_fields.iter().flatten();
    managers.any(|one| {
        let fields = one.fields_v1.as_ref();
        one.manager.as_deref() == Some(MANAGER)
            && fields.is_some_and(|all| all.0.pointer("/f:spec/f:failurePolicy").is_some())
    })
}

/// Whether the newest revision stands in the way of a helm-controller that leaves what failed alone. Without it the one
/// before is upgraded, or the release is installed over what is there.
pub fn is_in_the_way(policy: &str, newest: Option<&Stored>) -> bool {
    policy == ABORT && newest.is_some_and(|newest| newest.failed)
}

/// What makes `have` say what is wanted; nothing else of it is touched.
pub fn change(have: &HelmChartSpec, want: &HelmChartSpec) -> Option<Value> {
    let [repo, version] =
        [&want.repo, &want.version].map(|text| (!text.is_empty()).then_some(text));
    let mut spec = json!({
        "chart": want.chart, "repo": repo, "version": version,
        "targetNamespace": want.target_namespace, "createNamespace": true,
        "valuesContent": want.values_content,
    });
    // Who writes a field it has already would share it.
    if want.failure_policy != have.failure_policy {
        spec["failurePolicy"] = json!(want.failure_policy);
    }
    (want != have).then(|| json!({ "spec": spec }))
}

#[cfg(test)]
mod tests {
    use super::{super::testing::chart, *};
    use crate::{
        guests::system::testing::{FIRST, SECOND},
        helm::{Values, secret, testing::release},
    };

    #[test]
    fn charts_of_repositories_and_registries_can_be_said_and_paths_cannot() {
        let of = |reference: &str| spec(&release(reference), RETRY);
        let repository = of("https://example.com/charts/").unwrap();
        assert_eq!(
            (&*repository.chart, &*repository.repo),
            ("purelb", "https://example.com/charts")
        );
        assert_eq!(repository.values_content, r#"{"a":1}"#);
        assert_eq!(repository.target_namespace, "lb");
        let oci = of("oci://r/p/purelb").unwrap();
        assert_eq!((&*oci.chart, &*oci.repo), ("oci://r/p/purelb", ""));
        let mut bare = release("https://example.com/charts");
        bare.values = Values::parse("").unwrap();
        assert_eq!(spec(&bare, RETRY).unwrap().values_content, NO_VALUES);
        let said = serde_json::from_str(NO_VALUES).unwrap();
        assert_eq!(Values::of(&said), Some(bare.values), "as helm stores it");
        assert!(of("/srv/purelb").unwrap_err().contains("/srv/purelb"));
    }

    #[test]
    fn only_a_difference_is_written() {
        let want = spec(&release("https://example.com/charts"), RETRY).unwrap();
        let mut have = want.clone();
        assert_eq!(change(&have, &want), None);
        have.values_content = "{}".into();
        let patch = change(&have, &want).unwrap();
        assert_eq!(patch["spec"]["valuesContent"], r#"{"a":1}"#);
        assert_eq!(patch["spec"].get("failurePolicy"), None);
        have.failure_policy = ABORT.into();
        let patch = change(&have, &want).unwrap();
        assert_eq!(patch["spec"]["failurePolicy"], RETRY);
        let oci = spec(&release("oci://r/p/purelb"), RETRY).unwrap();
        assert_eq!(change(&want, &oci).unwrap()["spec"]["repo"], Value::Null);
    }

    #[test]
    fn helm_controller_tries_again_where_it_knows_how_to() {
        let crd = |known: Value| {
            let spec = json!({ "properties": { "failurePolicy": known } });
            let schema = json!({ "openAPIV3Schema": { "properties": { "spec": spec } } });
            json!({ "spec": { "versions": [{ "name": "v1", "schema": schema }] } })
        };
        let known = crd(json!({ "enum": ["abort", "reinstall", "retry"] }));
        assert_eq!(policy(Some(&known)), RETRY);
        let before = crd(json!({ "enum": ["abort", "reinstall"] }));
        assert_eq!(policy(Some(&before)), ABORT);
        let free = crd(json!({ "type": "string" }));
        assert_eq!(policy(Some(&free)), ABORT);
        assert_eq!(policy(None), ABORT);
    }

    #[test]
    fn the_policy_of_an_admin_is_told_from_fipds() {
        let mut chart = chart(&json!(null));
        assert!(!is_policy_ours(&chart));
        let fields = json!({ "f:spec": { "f:failurePolicy": {}, "f:chart": {} } });
        let entry = json!({ "manager": "fipd", "operation": "Update", "fieldsV1": fields });
        let mut entries = vec![serde_json::from_value(entry).unwrap()];
        chart.metadata.managed_fields = Some(entries.clone());
        assert!(is_policy_ours(&chart));
        entries[0].manager = Some("kubectl-edit".into());
        chart.metadata.managed_fields = Some(entries);
        assert!(!is_policy_ours(&chart));
    }

    #[test]
    fn a_revision_that_failed_is_in_the_way_of_who_leaves_it_alone() {
        let newest = |status| {
            let secret = secret(2, status, ("purelb", "0.14.1"), &json!({}));
            Stored::read(&secret).unwrap()
        };
        assert!(is_in_the_way(ABORT, Some(&newest("failed"))));
        assert!(!is_in_the_way(RETRY, Some(&newest("failed"))));
        assert!(!is_in_the_way(ABORT, Some(&newest("pending-upgrade"))));
        assert!(!is_in_the_way(ABORT, Some(&newest("deployed"))));
        assert!(!is_in_the_way(ABORT, None));
    }

    #[test]
    fn a_release_has_one_object_wherever_that_is() {
        let all = [chart(&json!(null))];
        assert!(find(&all, "lb", "purelb").is_some());
        assert!(find(&all, "kube-system", "purelb").is_none());
        assert_eq!(whose(&all[0], FIRST), ReleaseOwner::Fipd);
        assert_eq!(whose(&all[0], SECOND), ReleaseOwner::Other);
        let mut other = all[0].clone();
        other.metadata.labels = None;
        assert_eq!(whose(&other, FIRST), ReleaseOwner::Other);
    }
}
