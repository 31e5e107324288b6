//! Looks at a site: complete lists of what counts, and the originals' other objects as far as fipd may read them.

mod lists;
mod programs;

use std::sync::Arc;

use fipd_core::{SigningKey, Text};
use fipd_crds::labels::{API_SERVER_LEASE, API_SERVICE, MANAGER_LEASE};
use serde::de::DeserializeOwned;

use self::lists::SiteLists;
use super::{
    api_service::ApiService,
    foreign,
    inventory::{Duties, LeaseSeen, SiteInventory},
    ledger_view,
};
use crate::systems::rancher_fip::settings::{RancherFipQuotas, RancherFipSettings};
use crate::{
    adopt::{
        Looked, TakeoverError,
        leases::{self, LOOKS_ALONE, LeaseHolder},
    },
    clusters::ClusterSession,
    controller::{
        attachments::Attachments,
        client::{Remote, Target},
        endpoint::OwnEndpoint,
        kind::{LEASE, SERVICE},
    },
    systems::rancher_fip::{
        api_service::{self, plan::loopback},
        site_of,
    },
};

/// Looks at everything.
pub async fn find(
    session: &ClusterSession,
    me: &Text,
    endpoint: &OwnEndpoint,
    attachments: Option<Arc<Attachments>>,
) -> Result<SiteInventory, TakeoverError> {
    session.verify_identity().await?;
    let settings = session.settings.of::<RancherFipSettings>();
    let mut found = SiteInventory {
        duties: duties(session, endpoint),
        ..SiteInventory::default()
    };
    let lists = SiteLists { session };
    lists.fill(&mut found).await?;
    let looks = Looks {
        remote: Remote::new(session.client.clone()),
        namespace: &settings.app_namespace,
    };
    found.secrets = Some(lists.secrets().await);
    found.leases = looks.leases(session, me).await;
    found.tokens_over = tokens_over(&found.leases, jiff::Timestamp::now());
    found.webhook = looks.webhook().await.transpose();
    let manager = &settings.cluster_manager;
    found.deployments = Some(looks.deployments().await);
    looks
        .service(settings.api_service, endpoint, &mut found)
        .await;
    found.guest_url = looks.guest_url(manager).await.transpose();
    found.remains = looks.remains().await;
    found.key = looks.key().await.transpose();
    found.known_keys = session
        .ipam
        .read(|ledger| ledger.keys().map(|key| key.bytes.clone()).collect());
    session.verify_identity().await?;
    let site = site_of(session.clone());
    let read = move || {
        found.book = ledger_view::read(&site, &found.pools, attachments.as_deref());
        foreign::note(&site, &found.fips, &mut found.book);
        found
    };
    // There may be thousands of pools.
    let found = tokio::task::spawn_blocking(read).await;
    found.map_err(TakeoverError::Unmade)
}

fn duties(session: &ClusterSession, endpoint: &OwnEndpoint) -> Duties {
    let settings = session.settings.of::<RancherFipSettings>();
    let url = endpoint.url.as_ref();
    Duties {
        leader_elect: settings.leader_elect,
        cluster_manager: settings.cluster_manager.enabled,
        quotas_required: settings.quotas == RancherFipQuotas::Required,
        app_namespace: Text::clone(&settings.app_namespace),
        api_url: url.map(|url| format!("{}/v1", url.trim_end_matches('/'))),
        closed: loopback(endpoint).filter(|_| settings.api_service),
    }
}

/// Looks at objects by their names.
struct Looks<'a> {
    remote: Remote,
    /// The app namespace. Webhook and key of the originals are in their own whatever it is.
    namespace: &'a str,
}

impl Looks<'_> {
    /// Who holds the originals' Leases.
    async fn leases(&self, session: &ClusterSession, me: &Text) -> Vec<LeaseSeen> {
        let settings = session.settings.of::<RancherFipSettings>();
        let names = [
            (MANAGER_LEASE, true),
            (API_SERVER_LEASE, true),
            (&*settings.lease_lock_name, settings.cluster_manager.enabled),
        ];
        let namespace = &settings.lease_lock_namespace;
        let targets = names.map(|(name, _)| LEASE.named(namespace, name));
        let looks = match settings.leader_elect {
            true => 1,
            false => LOOKS_ALONE,
        };
        let holders = leases::look(&self.remote, me, &targets, looks).await;
        let seen = names.into_iter().zip(holders);
        let seen = seen.map(|((name, rival), holder)| LeaseSeen {
            name: format!("{namespace}/{name}"),
            rival,
            holder,
        });
        seen.collect()
    }

    /// What there is of the Service of the original API server, and where it is to lead.
    async fn service(&self, kept: bool, endpoint: &OwnEndpoint, found: &mut SiteInventory) {
        if !kept {
            let target = SERVICE.named(self.namespace, API_SERVICE);
            let seen = self.get(&target).await;
            found.service = Some(seen.map(|found| ApiService { found, want: None }));
            return;
        }
        let look = api_service::look(&self.remote, self.namespace, endpoint).await;
        found.service = Some(look.map_err(|error| error.to_string()).map(|look| {
            found.unseen_ingresses = look.unseen;
            ApiService {
                found: look.found,
                want: Some(look.want),
            }
        }));
        let strangers = api_service::strangers(&self.remote, self.namespace).await;
        found.strangers = Some(strangers.map_err(|error| error.to_string()));
    }

    async fn get<K: DeserializeOwned>(&self, target: &Target) -> Looked<Option<K>> {
        let found = self.remote.get(target).await;
        found.map_err(|error| error.to_string())
    }
}

/// Whether fipd has served the API for so long that no token of the original counts any more.
fn tokens_over(leases: &[LeaseSeen], now: jiff::Timestamp) -> bool {
    let mut api = leases
        .iter()
        .filter(|lease| lease.name.ends_with(API_SERVER_LEASE));
    let ours = api.find_map(|lease| {
        let LeaseHolder::Ours { since } = lease.holder else {
            return None;
        };
        since
    });
    ours.is_some_and(|since| {
        let led = now.duration_since(since).as_millis();
        u64::try_from(led).is_ok_and(|led| led > SigningKey::OVERLAP)
    })
}
