//! The end of a Service's use of an address, and of an address that nobody uses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::{Lease, Release, ReleaseScope, Request, Text};
use fipd_crds::labels::{remove_service, services};
use http::StatusCode;

use super::{
    ProjectCall, ProjectTurn,
    decide::{self, Known, TAKEN},
};
use crate::{
    controller::{client::CallError, store::Key},
    fip_v1::{Asker, Denied, FipRelease, Service},
    systems::rancher_fip::names::{self, CLUSTER, GROUP},
};

/// What of a project is to be released.
#[derive(Debug, PartialEq, Eq)]
pub enum ReleasePlan {
    /// These are to lose the Service.
    From(Vec<Text>),
    /// It was released before, or has gone with its FloatingIP.
    Was,
    Nothing,
}

/// How many Services an object remembers.
const REMEMBERED: usize = 16;

/// Decides what the Service is taken off.
pub fn plan_release(asker: &Asker, fip_release: &FipRelease, known: &[Known]) -> ReleasePlan {
    let meant = |one: &&Known| {
        let group = fip_release.group.as_deref();
        fip_release.address.is_none_or(|address| one.is_at(address))
            && group.is_none_or(|group| one.fip.group.as_deref() == Some(group))
            && one.fip.holder.is_none()
            && one.is_of(&asker.cluster)
            && one.names(&fip_release.service)
    };
    let names = known.iter().filter(meant);
    let names: Vec<Text> = names.map(|one| Text::clone(&one.name)).collect();
    if !names.is_empty() {
        return ReleasePlan::From(names);
    }
    // The client asks until it hears of a success, and may have missed the first.
    let user = user(asker, &fip_release.service);
    let was = |one: &Known| {
        let left = one.left.split(' ').any(|one| one == user);
        fip_release
            .address
            .is_some_and(|address| one.is_at(address))
            && (left || one.fip.cluster.is_none())
    };
    // Nothing is left to release: the Service must not be kept from its end.
    let gone = |address| !known.iter().any(|one| one.is_at(address));
    if known.iter().any(was) || fip_release.address.is_some_and(gone) {
        ReleasePlan::Was
    } else {
        ReleasePlan::Nothing
    }
}

/// The project's own FloatingIP with the address, if nobody uses it. Projects of one cluster share a namespace.
pub fn unused<'a>(asker: &Asker, known: &'a [Known], address: IpAddr) -> Result<&'a Known, Denied> {
    let own = |one: &&Known| {
        let project = one.fip.project.as_ref();
        project.is_some_and(|project| *project.0 == *asker.project)
    };
    let at = known.iter().filter(own).filter(|one| one.is_at(address));
    let Some(one) = at.clone().min_by_key(|one| one.fip.meta.deleted.is_some()) else {
        let message = "no floatingip found to delete";
        return Err(Denied::new(StatusCode::NOT_FOUND, message));
    };
    let living = at.filter(|one| one.fip.meta.deleted.is_none());
    let pools: BTreeSet<&str> = living.map(|one| one.fip.pool.as_str()).collect();
    if pools.len() > 1 {
        let pools: Vec<&str> = pools.into_iter().collect();
        let message = format!(
            "{address} is kept for the project in the pools {}; delete the FloatingIP of the one that is meant",
            pools.join(", ")
        );
        return Err(Denied::new(StatusCode::CONFLICT, message));
    }
    if one.fip.cluster.is_some() || one.fip.holder.is_some() {
        return Err(Denied::new(StatusCode::CONFLICT, TAKEN));
    }
    Ok(one)
}

/// The note of who left the object, with one more.
pub fn noted(before: &str, asker: &Asker, service: &Service) -> String {
    let user = user(asker, service);
    let others = before
        .split(' ')
        .filter(|one| !one.is_empty() && *one != user);
    let all = std::iter::once(&*user).chain(others).take(REMEMBERED);
    all.collect::<Vec<&str>>().join(" ")
}

fn user(asker: &Asker, service: &Service) -> String {
    format!("{}/{}/{}", asker.cluster, service.namespace, service.name)
}

/// The labels without the Service; with the last one the cluster goes as well.
pub fn without(
    mut labels: BTreeMap<String, String>,
    service: &Service,
) -> BTreeMap<String, String> {
    remove_service(&mut labels, &service.namespace, &service.name);
    if services(&labels).is_empty() {
        labels.remove(CLUSTER);
        labels.remove(GROUP);
    }
    labels
}

impl ProjectCall {
    pub(super) async fn release_fip(
        &self,
        fip_release: &FipRelease,
        turn: &mut ProjectTurn,
    ) -> Result<(), Denied> {
        let asker = &self.asker;
        for _ in 0..super::TRIES {
            let known = self.known(turn).await?;
            let names = match plan_release(asker, fip_release, &known.what) {
                ReleasePlan::From(names) => names,
                gone @ (ReleasePlan::Was | ReleasePlan::Nothing) => {
                    turn.pass_on(known);
                    let freed = self.give_up_kept(fip_release).await?;
                    if freed || gone == ReleasePlan::Was {
                        return Ok(());
                    }
                    let message = "no floatingip found to release";
                    return Err(Denied::new(StatusCode::NOT_FOUND, message));
                }
            };
            let (mut settled, mut changed) = (true, Vec::new());
            for one in known.what.iter().filter(|one| names.contains(&one.name)) {
                let after = without(one.labels.clone(), &fip_release.service);
                let left = noted(&one.left, asker, &fip_release.service);
                let now = self.relabel(one, &after, &left).await?;
                settled &= now.is_some();
                changed.extend(now);
            }
            if settled {
                turn.pass_on(known.with(changed));
                return Ok(());
            }
        }
        Err(Denied::late())
    }

    /// Frees what is kept for the Service since its FloatingIP was deleted; whether there was anything.
    pub(super) async fn give_up_kept(&self, fip_release: &FipRelease) -> Result<bool, Denied> {
        let Self { all, data, asker } = self;
        let service = &fip_release.service;
        let key = Key::new(&service.namespace, &service.name);
        let holder = names::reported_service(&data.cluster, &asker.cluster, &key);
        let kept = all.ipam.read(|ledger| ledger.leases_of(&holder.identity));
        let meant = |lease: &&Arc<Lease>| {
            let project = lease.tenant.as_ref();
            project.is_some_and(|project| *project.0 == *asker.project)
                && fip_release
                    .address
                    .is_none_or(|address| address == lease.key.address)
        };
        let keys: Vec<_> = kept.iter().filter(meant).map(|lease| lease.key).collect();
        if keys.is_empty() {
            return Ok(false);
        }
        let scope = ReleaseScope::HolderAddresses(holder, keys);
        let freed = self.free(scope, "given up by its Service");
        freed.await.map(|()| true)
    }

    /// Deletes the project's own FloatingIP with the address. Its lease is free before this answers.
    pub(super) async fn give_back(
        &self,
        address: IpAddr,
        turn: &mut ProjectTurn,
    ) -> Result<(), Denied> {
        for _ in 0..super::TRIES {
            let known = self.known(turn).await?;
            let one = unused(&self.asker, &known.what, address)?;
            let (remote, target) = (&self.data.remote, self.target(&one.name));
            // Somebody may have assigned it meanwhile.
            let (uid, version) = (&one.fip.meta.uid, &one.fip.meta.version);
            match remote.delete_version(&target, uid, version).await {
                Ok(()) => {
                    let scope = ReleaseScope::Holder(self.holder(one));
                    return self.free(scope, "deleted").await;
                }
                Err(CallError::Conflict(..)) => {}
                Err(error) => return Err(super::failed(&error)),
            }
        }
        Err(Denied::late())
    }

    async fn free(&self, scope: ReleaseScope, reason: &str) -> Result<(), Denied> {
        let release = Release {
            scope,
            actor: self.actor(),
            reason: reason.into(),
        };
        let released = self.all.ipam.submit(Request::Release(release)).await;
        released.map(drop).map_err(|error| decide::error(&error))
    }
}

#[cfg(test)]
mod tests {
    use fipd_crds::floating_ip::FloatingIP;
    use serde_json::json;

    use super::*;
    use crate::systems::rancher_fip::floating_ip::observe::view;

    fn known(name: &str, cluster: Option<&str>, services: &[&str]) -> Known {
        let prefix = "rancher.k8s.binbash.org";
        let mut labels = BTreeMap::new();
        if let Some(cluster) = cluster {
            labels.insert(format!("{prefix}/cluster-name"), cluster.to_owned());
            labels.insert(format!("{prefix}/floatingip-group"), "g".to_owned());
        }
        for (number, service) in services.iter().enumerate() {
            let key = format!("{prefix}/service-{number}");
            labels.insert(format!("{key}-name"), (*service).to_owned());
            labels.insert(format!("{key}-namespace"), "shop".to_owned());
        }
        let object: FloatingIP = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": labels }, "spec": { "floatingIPPool": "net" },
        }))
        .unwrap();
        Known {
            name: name.into(),
            labels,
            fip: view(object),
            address: "10.0.0.5".parse().ok(),
            held: true,
            contended: false,
            network: None,
            left: String::new(),
        }
    }

    fn asker() -> Asker {
        Asker {
            management: "rancher".into(),
            project: "p-a".to_owned(),
            namespace: "c-m-a".to_owned(),
            cluster: "c-m-a".to_owned(),
        }
    }

    fn fip_release(address: Option<&str>) -> FipRelease {
        FipRelease {
            service: Service {
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
            },
            address: address.and_then(|address| address.parse().ok()),
            group: None,
        }
    }

    #[test]
    fn a_release_that_was_heard_before_is_no_error() {
        let used = known("fip-1", Some("c-m-a"), &["web", "api"]);
        let theirs = known("fip-2", Some("c-m-b"), &["web"]);
        let unused = known("fip-3", None, &[]);
        let said = |address, known: &[Known]| plan_release(&asker(), &fip_release(address), known);
        let all = [used.clone(), theirs.clone()];
        assert_eq!(said(None, &all), ReleasePlan::From(vec!["fip-1".into()]));
        assert_eq!(said(Some("10.0.0.5"), &[theirs]), ReleasePlan::Nothing);
        assert_eq!(
            said(Some("10.0.0.5"), std::slice::from_ref(&unused)),
            ReleasePlan::Was
        );
        assert_eq!(said(None, &[unused]), ReleasePlan::Nothing);
        let mut other_group = fip_release(None);
        other_group.group = Some("h".to_owned());
        assert_eq!(
            plan_release(&asker(), &other_group, &[used]),
            ReleasePlan::Nothing
        );
    }

    #[test]
    fn a_release_that_was_not_heard_is_none_too_when_another_has_the_address_meanwhile() {
        let mut used = known("fip-1", Some("c-m-a"), &["api"]);
        let said = |used: &Known| {
            plan_release(
                &asker(),
                &fip_release(Some("10.0.0.5")),
                std::slice::from_ref(used),
            )
        };
        assert_eq!(said(&used), ReleasePlan::Nothing, "web never had it");
        used.left = noted("c-m-a/shop/old", &asker(), &fip_release(None).service);
        assert_eq!(used.left, "c-m-a/shop/web c-m-a/shop/old");
        assert_eq!(said(&used), ReleasePlan::Was);
    }

    #[test]
    fn defect_14_an_address_that_the_project_has_no_more_is_released() {
        let used = known("fip-1", Some("c-m-a"), &["api"]);
        let said = |address, known: &[Known]| plan_release(&asker(), &fip_release(address), known);
        assert_eq!(said(Some("10.0.0.6"), &[]), ReleasePlan::Was);
        let all = [used];
        assert_eq!(said(Some("10.0.0.6"), &all), ReleasePlan::Was);
        assert_eq!(said(Some("10.0.0.5"), &all), ReleasePlan::Nothing, "in use");
        assert_eq!(said(None, &[]), ReleasePlan::Nothing, "none is named");
    }

    #[test]
    fn defect_28_only_an_unused_address_of_the_same_project_is_deleted() {
        let address = "10.0.0.5".parse().unwrap();
        let of = |project: &str, cluster| {
            let mut one = known("fip-1", cluster, &[]);
            one.fip.project = Some(fipd_core::Tenant(project.into()));
            [one]
        };
        let code = |known: &[Known]| match unused(&asker(), known, address) {
            Ok(_) => StatusCode::OK,
            Err(denied) => denied.code,
        };
        assert_eq!(code(&of("p-a", None)), StatusCode::OK);
        assert_eq!(code(&of("p-b", None)), StatusCode::NOT_FOUND);
        let used = of("p-a", Some("c-m-a"));
        assert_eq!(code(&used), StatusCode::CONFLICT);
        assert_eq!(code(&[]), StatusCode::NOT_FOUND);
    }

    #[test]
    fn an_address_of_several_pools_is_deleted_in_none() {
        let address: IpAddr = [10, 0, 0, 5].into();
        let (one, mut other) = (known("fip-1", None, &[]), known("fip-2", None, &[]));
        other.fip.pool = "other".to_owned();
        let mut all = [one, other];
        for one in &mut all {
            one.fip.project = Some(fipd_core::Tenant("p-a".into()));
        }
        let refused = unused(&asker(), &all, address).unwrap_err();
        assert_eq!(refused.code, StatusCode::CONFLICT);
        assert!(refused.message.contains("net, other"), "{refused}");
        all[0].fip.meta.deleted = Some(fipd_core::Timestamp(1));
        assert_eq!(*unused(&asker(), &all, address).unwrap().name, *"fip-2");
        all[0].fip.meta.deleted = None;
        all[1].address = None;
        assert_eq!(*unused(&asker(), &all, address).unwrap().name, *"fip-1");
    }

    #[test]
    fn an_object_remembers_each_once_and_not_for_ever() {
        let web = fip_release(None).service;
        let once = noted("c-m-a/shop/web", &asker(), &web);
        assert_eq!(once, "c-m-a/shop/web");
        let many = (0..40).fold(String::new(), |left, number| {
            let service = Service {
                namespace: "shop".to_owned(),
                name: format!("web-{number}"),
            };
            noted(&left, &asker(), &service)
        });
        assert_eq!(many.split(' ').count(), REMEMBERED);
        assert!(many.starts_with("c-m-a/shop/web-39 "));
    }

    #[test]
    fn the_last_service_takes_cluster_and_group_with_it() {
        let used = known("fip-1", Some("c-m-a"), &["web", "api"]);
        let service = |name: &str| Service {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        let left = without(used.labels, &service("web"));
        assert_eq!(services(&left).len(), 1);
        assert!(left.contains_key(CLUSTER) && left.contains_key(GROUP));
        assert!(without(left, &service("api")).is_empty());
    }
}
