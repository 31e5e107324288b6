//! What handlers work with: each takes the parts it uses.

use std::{ops::Deref, path::PathBuf, sync::Arc};

use axum::extract::FromRef;
use fipd_core::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::{
    access::accounts::Accounts,
    admission::Desk,
    fip_v1::FipV1,
    rest::{attach::Detacher, changes::Streams, tokens::LastUsed},
    ui::{KnownFlow, Sessions},
};
use crate::{
    adopt::Takeovers, backups::Backups, clusters::Clusters, config::Systems, guests::GuestBoard,
    helm::Helm, ipam::Ipam, liveness::Liveness, metrics::Metrics, nodes::NodeBoard, oidc::Oidc,
    reload::Reload, rules::RuleBoard, settings::effective::Effective, system::RunningSystems,
    webhooks::Webhooks,
};

/// All parts of a daemon that decides; cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<ApiParts>);

impl From<ApiParts> for Api {
    fn from(parts: ApiParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for Api {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.0
    }
}

/// A struct of parts, and how handlers get each of them.
macro_rules! parts {
    ($(#[$meta:meta])* $name:ident of $state:ty { $($(#[$doc:meta])* $field:ident: $part:ty,)* }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $field: $part,)*
        }

        $(impl FromRef<$state> for $part {
            fn from_ref(api: &$state) -> Self {
                api.$field.clone()
            }
        })*
    };
}

parts! {
    ApiParts of Api {
        ipam: Ipam,
        clusters: Clusters,
        guests: GuestBoard,
        /// `None`: no charts are installed.
        helm: Option<Helm>,
        accounts: Accounts,
        sessions: Arc<Sessions>,
        oidc: Oidc,
        metrics: Metrics,
        backups: Backups,
        reload: Reload,
        fip_v1: Arc<FipV1>,
        admission: Arc<Desk>,
        takeovers: Takeovers,
        /// What can be asked for something.
        running: RunningSystems,
        /// The systems of this build.
        known: Systems,
        rules: RuleBoard,
        webhooks: Webhooks,
        /// Of clusters that have policy-routing rules.
        nodes: NodeBoard,
        /// What this daemon was started with.
        settings: Arc<Effective>,
        /// What was given and freed in the hours that are over.
        flow: Arc<KnownFlow>,
        /// When the certificate of the TLS listener ends; `None`: it does not say.
        certificate: watch::Receiver<Option<Timestamp>>,
        /// The open streams of changes.
        streams: Streams,
        tokens_used: Arc<LastUsed>,
        data_dir: PathBuf,
        detacher: Detacher,
        /// One permit: a check copies the ledger and the store.
        checking: Arc<Semaphore>,
        /// The loops that accept connections, and the blocking pool.
        liveness: Liveness,
        /// Cancelled when the daemon stops; long answers (event streams) end then.
        stop: CancellationToken,
    }
}

parts! {
    /// The parts of a host that decides nothing.
    #[derive(Clone)]
    AgentApi of AgentApi {
        ipam: Ipam,
        clusters: Clusters,
        takeovers: Takeovers,
        rules: RuleBoard,
        reload: Reload,
        systems: RunningSystems,
    }
}
