//! Rancher's id of the cluster that a Service lives in. It says whose FloatingIPs may be taken, so it comes from
//! admins only: of fipd, or of Rancher by the cluster's name. Who may write a namespace may write a mark on it.

use crate::{
    clusters::ClusterSession,
    controller::{unserved::Unserved, waiters::Cause},
    systems::rancher_fip::{names::RANCHER_PROJECT, rancher::Data, settings::RancherFipSettings},
};

/// Why FloatingIPs of a Service cannot be told from those of other clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    Unknown,
    Disputed { named: String, marked: String },
}

/// Rancher's id of a cluster: configured or discovered, else of the one cluster of its name.
pub fn rancher_id(session: &ClusterSession, data: Option<&Data>) -> Option<String> {
    let configured = session
        .settings
        .of::<RancherFipSettings>()
        .cluster_id
        .as_ref();
    let named = || {
        let listed = data.filter(|data| data.clusters.is_complete());
        if let Some(data) = listed {
            return data.names.called(&session.names);
        }
        let mut names = session.names.iter();
        Some(names.find(|name| is_rancher_id(name))?.to_string())
    };
    configured.map(|id| id.to_string()).or_else(named)
}

/// The id, unless a mark on the Service's namespace says another. What is configured needs no mark.
pub fn agreed(id: Option<String>, configured: bool, marked: Option<&str>) -> Result<String, Doubt> {
    match (id, marked) {
        (None, _) => Err(Doubt::Unknown),
        (Some(named), Some(marked)) if !configured && named != marked => Err(Doubt::Disputed {
            named,
            marked: marked.to_owned(),
        }),
        (Some(id), _) => Ok(id),
    }
}

impl Doubt {
    /// What the owner of the Service reads.
    pub fn problem(&self) -> Unserved {
        let why = match self {
            Self::Unknown => "it is not known which cluster this is in Rancher".to_owned(),
            Self::Disputed { named, marked } => format!(
                "by its name this cluster is {named} in Rancher, by {RANCHER_PROJECT} of the namespace it is {marked}"
            ),
        };
        let message = format!(
            "the address of this Service is left as it is: {why}; set `cluster-id` of this cluster in fipd's configuration"
        );
        Unserved::new("ClusterIdUnknown", message, Some(Cause::Pools))
    }
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
        assert_eq!(agreed(None, false, Some("c-2")), Err(Doubt::Unknown));
        assert_eq!(agreed(id("c-1"), false, None), Ok("c-1".into()));
        assert_eq!(agreed(id("c-1"), false, Some("c-1")), Ok("c-1".into()));
        assert_eq!(agreed(id("c-1"), true, Some("c-2")), Ok("c-1".into()));
        let doubt = agreed(id("c-1"), false, Some("c-2")).expect_err("a doubt");
        let (named, marked) = ("c-1".into(), "c-2".into());
        assert_eq!(doubt, Doubt::Disputed { named, marked });
        for doubt in [doubt, Doubt::Unknown] {
            assert!(doubt.problem().message.contains("`cluster-id`"));
        }
    }
}
