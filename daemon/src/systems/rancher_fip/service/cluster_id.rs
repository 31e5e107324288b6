//! Rancher's id of the cluster that a Service lives in. It says whose FloatingIPs may be taken, so it comes from
//! admins only: of fipd, or of Rancher by the cluster's name. Who may write a namespace may write a mark on it.

use crate::{
    clusters::ClusterSession,
    controller::{unserved::Unserved, waiters::Cause},
    systems::rancher_fip::{names::RANCHER_PROJECT, rancher::Data, settings::RancherFipSettings},
};

/// Rancher's id of a cluster: configured or discovered, else of the one cluster of its name.
pub fn rancher_id(session: &ClusterSession, data: Option<&Data>) -> Option<String> {
    let settings = session.settings.of::<RancherFipSettings>();
    let named = || {
        let listed = data.filter(|data| data.clusters.is_complete());
        if let Some(data) = listed {
            return data.names.called(&session.names);
        }
        let mut names = session.names.iter();
        Some(names.find(|name| is_rancher_id(name))?.to_string())
    };
    let configured = settings.cluster_id.as_ref();
    configured.map(|id| id.to_string()).or_else(named)
}

/// The id, unless a mark on the Service's namespace says another: then FloatingIPs of the Service cannot be told from those
/// of other clusters. What is configured needs no mark.
pub fn agreed(
    id: Option<String>,
    configured: bool,
    marked: Option<&str>,
) -> Result<String, Unserved> {
    let why = match (id, marked) {
        (None, _) => "it is not known which cluster this is in Rancher".to_owned(),
        (Some(named), Some(marked)) if !configured && named != marked => format!(
            "by its name this cluster is {named} in Rancher, by {RANCHER_PROJECT} of the namespace it is {marked}"
        ),
        (Some(id), _) => return Ok(id),
    };
    let message = format!(
        "the address of this Service is left as it is: {why}; set `cluster-id` of this cluster in fipd's configuration"
    );
    let cause = Some(Cause::Pools);
    Err(Unserved::new("ClusterIdUnknown", message, cause))
}

/// `c-xxxxx` or `c-m-xxxxxxxx`.
fn is_rancher_id(name: &str) -> bool {
    let rest = name
        .strip_prefix("c-m-")
        .or_else(|| name.strip_prefix("c-"));
    rest.is_some_and(|rest| {
        (5..=8).contains(&rest.len())
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_confirms_the_cluster_and_never_replaces_it() {
        let id = |id: &str| Some(id.to_owned());
        let why = |id, marked| agreed(id, false, marked).expect_err("a doubt").message;
        let unknown = why(None, Some("c-2"));
        assert!(unknown.contains("not known which cluster"), "{unknown}");
        assert_eq!(agreed(id("c-1"), false, None), Ok("c-1".into()));
        assert_eq!(agreed(id("c-1"), false, Some("c-1")), Ok("c-1".into()));
        assert_eq!(agreed(id("c-1"), true, Some("c-2")), Ok("c-1".into()));
        let disputed = why(id("c-1"), Some("c-2"));
        assert!(disputed.contains("is c-1 in Rancher"), "{disputed}");
        assert!(disputed.contains("it is c-2"), "{disputed}");
        for message in [unknown, disputed] {
            assert!(message.contains("`cluster-id`"), "{message}");
        }
    }
}
