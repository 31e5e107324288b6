//! Which load balancer a guest is to have, where that would replace one that fipd installed: a label that is wrong or
//! missing for a moment uninstalls none.

use std::time::Duration;

use super::{Guests, plan::GuestWait, settings::Settings};
use crate::{
    controller::client::CallError,
    guests::charts::{ReleaseMark, ReleaseOwner},
    systems::rancher_fip::clusters::{ClusterMark, LoadBalancer, RancherCluster},
};

impl Guests {
    /// The cluster with the load balancer that holds for it, and why that is not the one its label means. `marks` are
    /// needed where it [`may_replace`] one.
    pub(super) async fn typed(
        &self,
        id: &str,
        cluster: &RancherCluster,
        settings: &Settings,
        marks: &[ReleaseMark],
    ) -> Result<(RancherCluster, Option<GuestWait>), CallError> {
        let key = id.to_owned();
        let label = &cluster.load_balancer_label;
        let wanted = cluster.load_balancer;
        let installed = wanted.other();
        let serves = |name: &str| settings.serves(name);
        let has_other = has_load_balancer(marks, installed, serves);
        if !may_replace(cluster, settings) || !has_other {
            self.untyped.forget(&key);
            return Ok((cluster.clone(), None));
        }
        let left = match label {
            ClusterMark::Silent => self.untyped.missing(&key),
            ClusterMark::Known(_) | ClusterMark::Unclear(_) => {
                self.untyped.forget(&key);
                None
            }
        };
        let held = match held(label, installed, left) {
            None if !self.still_typed(id, cluster).await? => Some(GuestWait::LabelChanged),
            held => held,
        };
        let mut cluster = cluster.clone();
        if held.is_some() {
            cluster.load_balancer = installed;
        }
        Ok((cluster, held))
    }

    /// Whether a fresh read of the cluster says the same of its load balancer.
    pub(super) async fn still_typed(
        &self,
        id: &str,
        cluster: &RancherCluster,
    ) -> Result<bool, CallError> {
        let found = self.fresh_cluster(id).await?;
        Ok(found.is_some_and(|found| {
            found.is_guest() && found.load_balancer_label == cluster.load_balancer_label
        }))
    }
}

/// Whether fipd installed a load balancer of this type.
fn has_load_balancer(
    marks: &[ReleaseMark],
    of: LoadBalancer,
    serves: impl Fn(&str) -> Option<LoadBalancer>,
) -> bool {
    let installed =
        |mark: &ReleaseMark| mark.owner == ReleaseOwner::Fipd && serves(&mark.name) == Some(of);
    marks.iter().any(installed)
}

/// Why the load balancer that is `installed`, and that the label does not mean, stays. `left` is the time until a
/// missing label counts.
fn held(
    label: &ClusterMark<LoadBalancer>,
    installed: LoadBalancer,
    left: Option<Duration>,
) -> Option<GuestWait> {
    match label {
        ClusterMark::Known(_) => None,
        ClusterMark::Silent => left.map(|_| GuestWait::LbTypeGone { installed }),
        ClusterMark::Unclear(said) => Some(GuestWait::LbTypeInvalid {
            said: said.clone(),
            installed,
        }),
    }
}

/// Whether the cluster may get another load balancer than it has, without anybody having said so.
pub(super) fn may_replace(cluster: &RancherCluster, settings: &Settings) -> bool {
    let silent = !matches!(cluster.load_balancer_label, ClusterMark::Known(_));
    silent && !settings.releases(cluster.load_balancer).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METALLB: LoadBalancer = LoadBalancer::MetalLb;

    #[test]
    fn only_a_label_that_says_so_replaces_a_load_balancer_at_once() {
        let known = ClusterMark::Known(LoadBalancer::PureLb);
        assert_eq!(held(&known, METALLB, None), None);
        let gone = GuestWait::LbTypeGone { installed: METALLB };
        let left = Some(Duration::from_secs(60));
        assert_eq!(
            held(&ClusterMark::Silent, METALLB, left),
            Some(gone.clone())
        );
        assert_eq!(held(&ClusterMark::Silent, METALLB, None), None);
        let typo = held(&ClusterMark::Unclear("metalb".into()), METALLB, None).unwrap();
        assert_eq!(typo.reason(), "LbTypeInvalid");
        for part in [
            "rancher-fip-lbtype",
            "\"metalb\"",
            "\"metallb\"",
            "\"purelb\"",
        ] {
            assert!(typo.to_string().contains(part), "{typo}");
        }
        let gone = gone.to_string();
        assert!(
            gone.contains("\"metallb\" keeps it, \"purelb\" replaces it"),
            "{gone}"
        );
    }
}
