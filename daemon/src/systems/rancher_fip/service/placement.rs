//! What Rancher and the configuration say of Services: which pools serve them, and which project pays.

use std::sync::Arc;

use fipd_core::{ClusterId, Family, Ledger, Origin, Pool, System, Text};

use super::{
    Services,
    plan::{PoolsByFamily, ServiceMatch},
    validate::{self, Wish},
};
use crate::{
    clusters::ClusterSession,
    controller::{store::Key, unserved::Unserved, waiters::Cause},
    systems::rancher_fip::{
        floating_ip::plan::unknown_pool,
        names::{DEFAULT_NETWORK, PARTNER_POOL, RANCHER_PROJECT, STATIC_NETWORK},
        rancher::{Data, NoDefault},
        settings::RancherFipSettings,
    },
};

impl Services {
    /// The project that pays for the Services of a namespace.
    pub(super) fn project(&self, namespace: &str) -> Result<validate::Project, Unserved> {
        let marks = |namespace: &str| self.namespaces.get(&Key::new("", namespace));
        let (app, own) = (marks(&self.settings().app_namespace), marks(namespace));
        validate::project(
            self.settings().project.as_deref(),
            app.as_deref(),
            own.as_deref(),
            namespace,
        )
    }

    /// Rancher's id of this cluster.
    pub fn rancher_cluster(&self) -> Option<String> {
        rancher_id(&self.context.site.session, self.rancher.data().as_deref())
    }

    /// The same, beyond doubt.
    pub(super) fn agreed_cluster(&self, project: &validate::Project) -> Result<String, Unserved> {
        let marked = project.rancher_cluster.as_deref();
        let configured = self.settings().cluster_id.is_some();
        agreed(self.rancher_cluster(), configured, marked)
    }

    /// The pool that is named or the default, and its partner of the other family.
    pub(super) fn pools(&self, wish: &Wish) -> Result<PoolsByFamily, Unserved> {
        let data = self.rancher.data();
        let (field, name) = self.base_name(wish, data.as_deref())?;
        let management = self.management();
        let base = self.pool(management.as_ref(), data.as_deref(), &name);
        let base = base.ok_or_else(|| unknown_pool(&field, &name))?;
        if let Some(length) = base.spec.allocation_length {
            return Err(pool_of_prefixes(&field, &name, length));
        }
        let partner = data
            .as_deref()
            .zip(object(&base))
            .and_then(|(data, object)| {
                let partner = data.partner(object)?;
                self.pool(management.as_ref(), Some(data), &partner)
            });
        let partner = partner.filter(|pool| pool.spec.allocation_length.is_none());
        let by_family = |pool: Arc<Pool>| Some((pool.spec.family()?, pool));
        let pools = partner.into_iter().chain([base]);
        Ok(pools.filter_map(by_family).collect())
    }

    /// The management cluster's identity, even while it cannot be reached.
    pub(super) fn management(&self) -> Option<ClusterId> {
        if let Some(data) = self.rancher.data() {
            return Some(data.cluster.clone());
        }
        let site = &self.context.site;
        let name = site.session.pools_in.get(&site.system)?;
        site.ipam
            .read(|ledger| ledger.cluster_by_name(name).map(|record| record.id.clone()))
    }

    fn base_name(&self, wish: &Wish, data: Option<&Data>) -> Result<(String, String), Unserved> {
        if let Some(name) = &wish.pool {
            return Ok((format!("annotation {STATIC_NETWORK}"), name.clone()));
        }
        if let Some(name) = &self.settings().default_pool {
            let field = "`default-pool` in fipd's configuration";
            return Ok((field.into(), name.to_string()));
        }
        let Some(data) = data else {
            let message = "no pool is known: the management cluster has not been reached since the start; name one by `default-pool` in fipd's configuration to be independent of it";
            return Err(Unserved::new("PoolNotFound", message, Some(Cause::Pools)));
        };
        let mut names: Vec<Text> = self.context.site.session.names.clone();
        names.extend(self.settings().cluster_id.clone());
        names.extend(data.clusters_called(&names));
        let message = match data.default_pool(&names) {
            Ok(name) => return Ok((DEFAULT_NETWORK.into(), name)),
            Err(NoDefault::None) => format!(
                "no FloatingIPPool has spec.targetCluster {}; make one, or name one by annotation {STATIC_NETWORK} or `default-pool` in fipd's configuration",
                names.join(" or ")
            ),
            Err(NoDefault::Several(pools)) => format!(
                "several FloatingIPPools could be meant ({}): mark one with annotation {DEFAULT_NETWORK}: \"true\", or name one by annotation {STATIC_NETWORK}",
                pools.join(", ")
            ),
        };
        Err(Unserved::new("PoolNotFound", message, Some(Cause::Pools)))
    }

    /// A pool as users call it: a mirror of the management cluster by its object's name or by the computed
    /// one, else a pool of fipd's own. The mirror is closed only after its object was seen to be gone.
    fn pool(
        &self,
        management: Option<&ClusterId>,
        data: Option<&Data>,
        name: &str,
    ) -> Option<Arc<Pool>> {
        let real = data
            .and_then(|data| data.pool_called(name))
            .unwrap_or_else(|| name.to_owned());
        self.context
            .read(|ledger| find(ledger, management, &real))
            .filter(|pool| !pool.spec.closed && !is_gone(pool, data))
    }
}

fn find(ledger: &Ledger, management: Option<&ClusterId>, name: &str) -> Option<Arc<Pool>> {
    let mirror =
        management.and_then(|cluster| ledger.mirror(&System::rancher_fip(), cluster, name));
    let own = || {
        ledger
            .find_pool(name)
            .ok()
            .filter(|pool| object(pool).is_none())
    };
    mirror.or_else(own).cloned()
}

/// The pool is there, and a prefix would be no address of a Service.
fn pool_of_prefixes(field: &str, pool: &str, length: u8) -> Unserved {
    let message = format!(
        "{field}: pool {pool:?} gives prefixes of /{length}, and a Service needs a pool of addresses; it is tried again when there is one of this name"
    );
    Unserved::new("PoolNotFound", message, Some(Cause::Pools))
}

/// Whether a pool of the management cluster is known to have no object any more.
fn is_gone(pool: &Pool, data: Option<&Data>) -> bool {
    let object = object(pool).zip(data);
    object.is_some_and(|(name, data)| data.pools.seen(&Key::new("", name)).is_none())
}

/// The missing families that have a pool; a problem if one that must be served has none.
pub fn served(
    wish: &Wish,
    found: &ServiceMatch,
    pools: &PoolsByFamily,
) -> Result<Vec<Family>, Unserved> {
    let (with, without): (Vec<Family>, Vec<Family>) = found
        .missing
        .iter()
        .copied()
        .partition(|family| pools.contains_key(family));
    let nothing = with.is_empty() && found.kept.is_empty();
    match without.first() {
        Some(family) if !wish.second_optional || nothing => {
            let message = format!(
                "no pool for {family}: the pool of this Service is of the other family and names no usable partner by annotation {PARTNER_POOL}"
            );
            Err(Unserved::new("PoolNotFound", message, Some(Cause::Pools)))
        }
        Some(_) | None => Ok(with),
    }
}

/// The object that a mirror follows.
pub fn object(pool: &Pool) -> Option<&str> {
    match &pool.spec.origin {
        Origin::Mirror { object, .. } => Some(object),
        Origin::Own => None,
    }
}

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
