//! What holds for guests: settings and projects, as they were seen last.

use std::sync::Arc;

use fipd_crds::labels::{CA_SECRET, CONFIG_NAME};
use k8s_openapi::api::core::v1::ConfigMap;

use super::{
    Guests, Stop,
    plan::{GuestPlan, GuestWait, Project},
    settings::Settings,
};
use crate::{
    config::host_of,
    controller::{
        Reconciled, client::CallError, endpoint::OwnEndpoint, kind::CONFIG_MAP, store::Key,
    },
    guests::{homes, hosting::RunsOn, objects::Texts},
    systems::rancher_fip::{
        clusters::RancherCluster,
        settings::{ClusterManager, RancherFipSettings},
    },
};

/// ConfigMap in the app namespace: what `rancher-fip-config` said when it was last there.
pub const COPY: &str = "fipd-settings";

impl Guests {
    pub(super) fn given(&self) -> &ClusterManager {
        &self.site.settings::<RancherFipSettings>().cluster_manager
    }

    pub(super) fn app_namespace(&self) -> &str {
        &self.site.settings::<RancherFipSettings>().app_namespace
    }

    /// What holds for all guests. A ConfigMap that is gone says nothing: what it said before stays.
    pub(super) fn settings(&self) -> Settings {
        let map = self.map(CONFIG_NAME);
        let gone = map.is_none();
        let said = {
            let mut said = self.said.lock();
            *said = map.or_else(|| said.take()).or_else(|| self.map(COPY));
            said.clone()
        };
        let of = |map: Option<&Texts>| Settings::new(map, self.given(), self.own.url.as_deref());
        let settings = of(said.as_deref());
        match gone && said.is_some() {
            true => settings.instead_of(&of(None)),
            false => settings,
        }
    }

    pub(super) fn map(&self, name: &str) -> Option<Arc<Texts>> {
        self.maps.get(name)
    }

    /// Keeps what the ConfigMap says, so that it holds after a restart too. Before anything is written by it.
    pub(super) async fn keep_said(&self) -> Result<(), Stop> {
        match self.map(CONFIG_NAME) {
            Some(said) if self.map(COPY).as_ref() != Some(&said) => {
                self.change_map(COPY, |_| Some(Texts::clone(&said))).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a fresh read of the ConfigMap says what is known of it.
    pub(super) async fn still_said(&self) -> Result<bool, CallError> {
        let target = CONFIG_MAP.named(self.app_namespace(), CONFIG_NAME);
        let found: Option<ConfigMap> = self.data.remote.get(&target).await?;
        let said = found.map(|map| map.data.unwrap_or_default());
        Ok(said.as_ref() == self.map(CONFIG_NAME).as_deref())
    }

    /// As [`ConfigMaps::change`], in the app namespace.
    ///
    /// [`ConfigMaps::change`]: crate::guests::config_maps::ConfigMaps::change
    pub(super) async fn change_map(
        &self,
        name: &str,
        change: impl FnOnce(&Texts) -> Option<Texts>,
    ) -> Result<(), Stop> {
        match self.maps.change(name, change).await {
            Err(CallError::NotFound(_)) => {
                Err(GuestWait::NoAppNamespace(self.app_namespace().to_owned()).into())
            }
            other => Ok(other?),
        }
    }

    /// What holds for one of them.
    pub(super) fn settings_of(&self, id: &str) -> Settings {
        let noted = self.noted(id);
        let noted = noted.as_ref().map(|note| &*note.namespace);
        self.settings()
            .of(noted.filter(|namespace| !namespace.is_empty()))
    }

    pub(super) fn projects(&self) -> Vec<Project> {
        let keys = self.data.projects.keys().into_iter();
        let project = |key: Key| Project {
            id: key.name.to_string(),
            namespace: key.namespace.to_string(),
        };
        keys.map(project).collect()
    }

    /// Notes whose the guest is, once it has what it needs to ask as that. Until then it is as it was, so that it can give
    /// back what it has.
    pub(super) fn note_home(&self, id: &str, home: &Result<RunsOn, GuestWait>, plan: &GuestPlan) {
        match home {
            Ok(RunsOn::BareMetal) => self.data.homes.forget(id),
            Ok(RunsOn::Harvester {
                id: harvester,
                project: Ok(project),
                ..
            }) => {
                let mut given = plan.desired.access.iter();
                if given.any(|access| access.project.id == *project) {
                    let (harvester, project) = (harvester.clone(), project.clone());
                    self.data
                        .homes
                        .set(id, homes::GuestHome { harvester, project });
                }
            }
            Ok(RunsOn::Harvester {
                project: Err(_), ..
            })
            | Err(_) => {}
        }
    }

    /// Where the guest runs.
    pub(super) async fn home(&self, id: &str, cluster: &RancherCluster) -> Result<RunsOn, Stop> {
        let display_name = |harvester: &str| {
            let found = self.data.clusters.get(&Key::new("", harvester))?;
            Some(found.display_name.clone())
        };
        let place = (id, &*cluster.display_name);
        Ok(self
            .access
            .runs_on(&self.sources, place, display_name)
            .await?)
    }

    /// What guests with these settings trust, PEM.
    pub(super) async fn ca(&self, settings: &Settings) -> Reconciled<String> {
        let site = self.seen.ca.get(&Key::new(self.app_namespace(), CA_SECRET));
        let own = self.own.ca().await?;
        let asked = settings.api_url.as_deref();
        let serves = asked.is_some_and(|asked| serves(&self.own, asked));
        let site = site.as_ref().map_or("", |site| site.as_str());
        Ok(chain(site, &own, serves))
    }
}

/// Whether TLS with who asks this URL ends at fipd.
fn serves(own: &OwnEndpoint, asked: &str) -> bool {
    let url = own.url.as_deref().unwrap_or_default();
    let below = !url.is_empty() && asked.starts_with(url.trim_end_matches('/'));
    below || host_of(asked).is_some_and(|host| own.names.contains(&host))
}

/// The certificates that a guest trusts: those of the site, and fipd's own. A guest that is given any trusts no
/// others, so without those of the site fipd's is given only where it `serves` the guest.
fn chain(site: &str, own: &str, serves: bool) -> String {
    let (site, own) = (site.trim(), own.trim());
    if own.is_empty() || site.contains(own) || (site.is_empty() && !serves) {
        return if site.is_empty() {
            String::new()
        } else {
            format!("{site}\n")
        };
    }
    let parts = [site, own].into_iter().filter(|part| !part.is_empty());
    parts.map(|part| format!("{part}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_served_under_every_name_that_the_certificate_is_of() {
        let own = OwnEndpoint {
            url: Some("https://fipd.example.net:8443/".into()),
            names: ["rancher-fip-api.example.net".to_owned()].into(),
            ..OwnEndpoint::default()
        };
        for asked in [
            "https://fipd.example.net:8443/v1",
            "https://rancher-fip-api.example.net:30001/v1",
        ] {
            assert!(serves(&own, asked), "{asked}");
        }
        for asked in [
            "https://elsewhere.example.net/v1",
            "http://rancher-fip-api.example.net/v1",
            "",
        ] {
            assert!(!serves(&own, asked), "{asked}");
        }
        assert!(!serves(
            &OwnEndpoint::default(),
            "https://fipd.example.net:8443/v1"
        ));
    }

    #[test]
    fn a_guest_trusts_the_site_and_fipd_and_nobody_new_where_it_is_served_by_another() {
        assert_eq!(chain("A\n", "B\n", false), "A\nB\n");
        assert_eq!(chain("A\nB", "B\n", true), "A\nB\n");
        assert_eq!(chain("", "B", true), "B\n");
        assert_eq!(chain("", "B", false), "");
        assert_eq!(chain("A", "", true), "A\n");
        assert_eq!(chain("", "", true), "");
    }
}
