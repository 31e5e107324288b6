//! Who serves the clusters of the family: fipd for as long as it holds the Leases of the original programs.

use std::sync::Arc;

use fipd_core::System;
use fipd_crds::labels::{API_SERVER_LEASE, MANAGER_LEASE};

use super::{RunningRancherFip, downstream, management, site_of};
use crate::{
    clusters::ClusterSession,
    controller::{
        leader_election::{self, Wanted},
        store::Key,
    },
    systems::rancher_fip::settings::RancherFipSettings,
};

impl RunningRancherFip {
    /// Runs a management cluster for as long as this daemon is the one that leads there.
    pub(super) async fn manage(&self, session: ClusterSession) {
        let rancher = self.ranchers.get(&session.name);
        let run = |session| management(site_of(session), self);
        let settings = session.settings.of::<RancherFipSettings>();
        if !settings.leader_elect {
            rancher.led_elsewhere(false);
            return run(session).await;
        }
        let mut names = vec![MANAGER_LEASE, API_SERVER_LEASE];
        // Otherwise the original cluster manager may go on.
        let third = settings.cluster_manager.enabled;
        names.extend(third.then_some(&*settings.lease_lock_name));
        let namespace = &settings.lease_lock_namespace;
        let wanted = Wanted {
            leases: (names.iter())
                .map(|name| Key::new(namespace, name))
                .collect(),
            me: self.means.me.clone(),
        };
        let elsewhere = |elsewhere| rancher.led_elsewhere(elsewhere);
        let system = System::rancher_fip();
        leader_election::while_held(&session, &system, &wanted, elsewhere, run).await;
    }

    /// Runs a downstream cluster for as long as no other program leads in its management cluster.
    pub(super) async fn serve(&self, session: ClusterSession) {
        let Some(management) = session.pools_in.get(&System::rancher_fip()).cloned() else {
            tracing::error!(cluster = %session.name, "no management cluster is configured for this downstream cluster");
            return session.cancel.cancelled().await;
        };
        let rancher = self.ranchers.get(&management);
        let system = System::rancher_fip();
        let waits = format!("waiting until fipd leads in cluster {management}");
        session.waits_for(&system, Some(waits.into()));
        tokio::select! {
            () = session.cancel.cancelled() => {}
            () = rancher.free() => {}
        }
        session.waits_for(&system, None);
        let run = |session| downstream(site_of(session), Arc::clone(&rancher));
        leader_election::run_until(&session, rancher.taken(), run).await;
    }
}
