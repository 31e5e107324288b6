//! Why a guest cannot be worked on yet.

use std::{fmt, time::Duration};

use fipd_crds::labels::{HARVESTER_CLUSTER_ID_KEY, PROJECT_ID};

use crate::controller::{ReconcileError, client::CallError};

/// What keeps every system from a guest until others bring it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestUnready {
    #[error("there is no Secret {0} with a kubeconfig yet; Rancher makes it")]
    NoKubeconfig(String),
    #[error("{0}")]
    BadKubeconfig(String),
    #[error(
        "Rancher's account may not read the cluster yet, which is so while it is deployed: {0}"
    )]
    StillDeploying(String),
    #[error("the kubeconfig leads to Rancher's own cluster: correct the Secret")]
    WrongCluster,
    #[error(
        "the cluster does not answer, and is asked again: {0}; look whether it runs, and at the way to it"
    )]
    Unreachable(String),
    #[error("Rancher has no provisioning.cattle.io Cluster for it yet; Rancher makes it")]
    NoProvisioningCluster,
    #[error(
        "cloudCredentialSecretName = {0:?} of its provisioning.cattle.io Cluster is not NAMESPACE:NAME: correct it"
    )]
    BadCredentialName(String),
    #[error(
        "none of its machine pools has the control-plane role and a HarvesterConfig: give one of them both"
    )]
    NoControlPlanePool,
    #[error("there is no HarvesterConfig {0} yet; Rancher makes it")]
    NoMachineConfig(String),
    #[error("HarvesterConfig {0} names no network: name one in it")]
    NoNetwork(String),
    #[error(
        "networkName {network:?} of HarvesterConfig {config} is not NAMESPACE/NAME: correct it"
    )]
    BadNetworkName { config: String, network: String },
    #[error(
        "Secret {0} of its cloud credential does not exist or has no {HARVESTER_CLUSTER_ID_KEY}: make it, or name another credential"
    )]
    NoCredential(String),
    #[error(
        "Rancher has no cluster {0}, which its cloud credential names as its Harvester: correct the credential"
    )]
    NoHarvester(String),
    #[error("Harvester cluster {harvester}: {why}")]
    Harvester { harvester: String, why: String },
    #[error("namespace {0} of its machines does not exist in the Harvester cluster: make it there")]
    NoMachineNamespace(String),
    #[error(
        "namespace {0} of its machines has no annotation {PROJECT_ID} in the Harvester cluster: move it into a project"
    )]
    NoProject(String),
    #[error("its charts are being uninstalled")]
    ChartsLeaving,
    #[error("{0}")]
    Chart(String),
}

/// Why work on a guest ends early: a system waits for something, or a call failed.
pub enum Stop<W> {
    Wait(W),
    Reconcile(ReconcileError),
}

impl GuestUnready {
    pub fn reason(&self) -> &'static str {
        self.facts().0
    }

    /// The guest is looked at again after this time at the latest. Where there is a watch, a change wakes it earlier.
    pub fn pause(&self) -> Duration {
        Duration::from_secs(self.facts().1)
    }

    /// Reason, and pause in seconds.
    fn facts(&self) -> (&'static str, u64) {
        match self {
            Self::NoKubeconfig(_) => ("NoKubeconfig", 120),
            Self::BadKubeconfig(_) => ("BadKubeconfig", 60),
            Self::StillDeploying(_) => ("StillDeploying", 120),
            Self::WrongCluster => ("WrongCluster", 60),
            Self::Unreachable(_) => ("Unreachable", 30),
            Self::NoProvisioningCluster => ("NoProvisioningCluster", 120),
            Self::BadCredentialName(_) => ("BadCredentialName", 120),
            Self::NoControlPlanePool => ("NoControlPlanePool", 120),
            Self::NoMachineConfig(_) => ("NoMachineConfig", 120),
            Self::NoNetwork(_) => ("NoNetwork", 120),
            Self::BadNetworkName { .. } => ("BadNetworkName", 120),
            Self::NoCredential(_) => ("NoCredential", 60),
            Self::NoHarvester(_) => ("NoHarvester", 120),
            Self::Harvester { .. } => ("HarvesterUnreachable", 30),
            // No watch tells of these two.
            Self::NoMachineNamespace(_) => ("NoMachineNamespace", 60),
            Self::NoProject(_) => ("NoProject", 60),
            Self::ChartsLeaving => ("ChartsLeaving", 30),
            Self::Chart(_) => ("ChartNotRemoved", 30),
        }
    }
}

impl<W> Stop<W> {
    /// A wait is an answer too; a failed call is an error.
    pub fn wait_or_fail<T>(result: Result<T, Self>) -> Result<Result<T, W>, ReconcileError> {
        match result {
            Ok(done) => Ok(Ok(done)),
            Err(Self::Wait(wait)) => Ok(Err(wait)),
            Err(Self::Reconcile(trouble)) => Err(trouble),
        }
    }
}

impl<W: fmt::Display> Stop<W> {
    pub fn text(&self) -> String {
        match self {
            Self::Wait(wait) => wait.to_string(),
            Self::Reconcile(trouble) => trouble.to_string(),
        }
    }
}

impl<W: From<GuestUnready>> From<GuestUnready> for Stop<W> {
    fn from(unready: GuestUnready) -> Self {
        Self::Wait(unready.into())
    }
}

impl<W> From<ReconcileError> for Stop<W> {
    fn from(trouble: ReconcileError) -> Self {
        Self::Reconcile(trouble)
    }
}

impl<W> From<CallError> for Stop<W> {
    fn from(error: CallError) -> Self {
        Self::Reconcile(error.into())
    }
}
