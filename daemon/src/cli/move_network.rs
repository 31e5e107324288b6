//! `fipd pool move-network`.

use clap::Args;

use super::{
    Session,
    client::with_query,
    exit::Failure,
    output::Table,
    pool::{facts, path},
};
use crate::api::wire::{PoolMove, PoolMovePreview, PoolMoveQuery};

#[derive(Debug, Args)]
pub struct MoveNetwork {
    /// Full name of the pool, or the last part of it where that is unique
    pool: String,
    /// Network that it goes to
    network: String,
    /// Only say how many leases would go along and which addresses are in use there
    #[arg(long)]
    dry_run: bool,
}

impl MoveNetwork {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let path = format!("{}/move-network", path(&self.pool));
        let network = self.network;
        if self.dry_run {
            let path = with_query(&path, &PoolMoveQuery { network })?;
            return session.get(&path, table).await;
        }
        session.post(&path, &PoolMove { network }, facts).await
    }
}

fn table(preview: &PoolMovePreview) -> Table {
    let mut listed: Vec<String> = preview
        .first
        .iter()
        .map(|one| format!("{} ({})", one.address, one.owner))
        .collect();
    if preview.collisions > listed.len() as u64 {
        listed.push("...".to_owned());
    }
    Table::facts([
        ("Pool", preview.pool.clone()),
        ("From", preview.from.clone()),
        ("To", preview.to.clone()),
        ("Leases", preview.leases.to_string()),
        ("Collisions", preview.collisions.to_string()),
        ("In use there", listed.join(", ")),
    ])
}
