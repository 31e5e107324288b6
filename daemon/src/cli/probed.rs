//! `fipd lease probed`.

use std::net::IpAddr;

use clap::Args;

use super::{
    Session,
    client::segment,
    exit::Failure,
    lease::{facts, find},
};
use crate::api::wire::{LeaseView, ProbedReport};

#[derive(Debug, Args)]
pub struct Report {
    address: IpAddr,
    /// Whether anybody answered for it
    #[arg(value_parser = ["free", "taken"])]
    verdict: String,
    /// Who answered, such as a MAC address, for the audit log
    #[arg(long, value_name = "MAC")]
    by: Option<String>,
    /// Who has the lease; whoever has it when left out
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Network, where several have the address
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Pool, where several have the address
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
}

impl Report {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let address = self.address;
        let found = find(session, address, self.network, self.pool).await?;
        let found = found
            .ok_or_else(|| Failure::NotFound(format!("nobody holds the address {address}")))?
            .summary;
        let owner = self.owner.or(found.owner);
        let owner = owner.ok_or_else(|| {
            Failure::Input(format!(
                "address: {address} is in quarantine; name the owner by --owner"
            ))
        })?;
        let body = ProbedReport {
            owner,
            verdict: self.verdict,
            by: self.by,
        };
        let path = format!(
            "/api/v1/leases/{}/{address}/probed",
            segment(&found.network)
        );
        let lease: LeaseView = session.client.post(&path, &body).await?;
        session.output.show(&lease, facts)
    }
}
