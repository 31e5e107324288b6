//! What the socket of a host that decides nothing serves with.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::Admission,
    adopt::Takeovers,
    api::{self, Api, access::accounts::Accounts, admission::Desk, fip_v1::FipV1},
    backups::{Backups, Schedule},
    clusters::Clusters,
    fip_v1::FloatingIps,
    guests::GuestBoard,
    ipam::Ipam,
    liveness::Liveness,
    metrics::{Metrics, Original},
    nodes::NodeBoard,
    reload::Reload,
    rules::RuleBoard,
    settings::Settings,
    systems::{self, Runner},
};

/// What the socket serves with: that of a daemon, over an address book that is empty.
pub struct Handlers {
    ipam: Ipam,
    rules: RuleBoard,
    takeovers: Takeovers,
    decides: Option<Box<dyn FloatingIps>>,
    admission: Admission,
    originals: Vec<Original>,
}

impl Handlers {
    pub fn of(runner: &Runner, ipam: &Ipam, board: &RuleBoard) -> Self {
        Self {
            ipam: ipam.clone(),
            rules: board.clone(),
            originals: runner.originals(),
            takeovers: runner.takeovers(),
            decides: runner.floating_ips(),
            admission: runner.admission(),
        }
    }

    pub fn with(
        self,
        settings: &Settings,
        clusters: Clusters,
        reload: Reload,
        stop: &CancellationToken,
    ) -> Arc<Api> {
        let ipam = self.ipam;
        let schedule = Schedule::new(&settings.config.backup, &settings.data_dir);
        let backups = Backups::new(ipam.clone(), schedule);
        let guests = GuestBoard::default();
        Arc::new(Api {
            systems: systems::ALL,
            metrics: Metrics::new(
                ipam.clone(),
                clusters.clone(),
                (backups.clone(), Default::default()),
                guests.clone(),
                &self.originals,
                None,
                self.rules.clone(),
            ),
            guests,
            helm: None,
            backups,
            reload,
            admission: Desk::new(self.admission),
            fip_v1: FipV1::new(self.decides, ipam.clone(), settings.config.fip_v1),
            takeovers: self.takeovers,
            rules: self.rules,
            webhooks: Default::default(),
            oidc: Default::default(),
            flow: api::ui::KnownFlow::default(),
            nodes: NodeBoard::default(),
            settings: Arc::default(),
            certificate: watch::Sender::default().subscribe(),
            sessions: api::ui::Sessions::new(ipam.clone()),
            clusters,
            accounts: Accounts::closed(ipam.clone(), &settings.data_dir),
            streams: Default::default(),
            tokens_used: api::rest::tokens::LastUsed::default(),
            data_dir: settings.data_dir.clone(),
            checking: Arc::new(Semaphore::new(1)),
            liveness: Liveness::default(),
            stop: stop.clone(),
            ipam,
        })
    }
}
