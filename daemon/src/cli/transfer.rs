//! `fipd lease transfer`.

use std::net::IpAddr;

use clap::Args;

use super::{
    Session,
    client::segment,
    exit::Failure,
    lease::{facts, find},
};
use crate::api::wire::{LeaseView, TransferRequest};

#[derive(Debug, Args)]
pub struct Transfer {
    address: IpAddr,
    /// Who has it then: SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME
    #[arg(long, value_name = "OWNER")]
    to: String,
    /// Instance of the new owner, such as an object's UID
    #[arg(long, default_value = "", value_name = "ID")]
    instance: String,
    /// Only if this owner has it now; needed where several share it
    #[arg(long, value_name = "OWNER")]
    from: Option<String>,
    /// Who is charged from then on; as before when left out
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Also where the tenant's quota is used up
    #[arg(long)]
    force: bool,
    /// Network, where several have the address
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Pool, where several have the address
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl Transfer {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let found = find(session, self.address, self.network, self.pool).await?;
        let nobody = || Failure::NotFound(format!("nobody holds the address {}", self.address));
        let network = found.ok_or_else(nobody)?.summary.network;
        let body = TransferRequest {
            to: self.to,
            instance: self.instance,
            from: self.from,
            from_instance: None,
            tenant: self.tenant,
            force: self.force,
            reason: self.reason,
        };
        let (network, address) = (segment(&network), self.address);
        let path = format!("/api/v1/leases/{network}/{address}/transfer");
        let lease: LeaseView = session.client.post(&path, &body).await?;
        session.output.show(&lease, facts)
    }
}
