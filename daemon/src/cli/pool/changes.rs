//! `fipd pool update --dry-run` and `fipd pool move-network`.

use clap::Args;

use super::{facts, path};
use crate::{
    api::wire::{LeaseSummary, PageQuery, PoolMove, PoolMovePreview, PoolPatch, PoolPreviewView},
    cli::{
        CliSession,
        client::with_query,
        exit::Failure,
        output::{Table, or_dash},
    },
};

/// Shows what the edit would do, with all leases that it would leave out of range.
pub async fn preview(session: &CliSession, name: &str, patch: &PoolPatch) -> Result<(), Failure> {
    let path = format!("{}/preview", path(name));
    let mut query = PageQuery {
        cursor: None,
        limit: Some(1_000),
    };
    let mut leaving = Vec::new();
    loop {
        let path = with_query(&path, &query)?;
        let mut preview: PoolPreviewView = session.client.post(&path, patch).await?;
        leaving.append(&mut preview.leaving);
        query.cursor = preview.next.take();
        if query.cursor.is_none() {
            preview.leaving = leaving;
            return session.output.show(&preview, preview_table);
        }
    }
}

fn preview_table(preview: &PoolPreviewView) -> Table {
    let mut table = Table::facts([
        ("Pool", preview.pool.clone()),
        ("Size before", preview.size_before.to_string()),
        ("Size after", preview.size_after.to_string()),
        ("Overlaps", preview.overlaps.join(", ")),
        ("Out of range", preview.leaving.len().to_string()),
    ]);
    for lease in &preview.leaving {
        table.row([String::new(), text(lease)]);
    }
    table
}

fn text(lease: &LeaseSummary) -> String {
    format!("{} ({})", lease.address, or_dash(lease.owner.as_ref()))
}

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
    pub async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let path = format!("{}/move-network", path(&self.pool));
        let network = self.network;
        if self.dry_run {
            let path = with_query(&path, &PoolMove { network })?;
            return session.show(&path, move_table).await;
        }
        session
            .post_and_show(&path, &PoolMove { network }, facts)
            .await
    }
}

fn move_table(preview: &PoolMovePreview) -> Table {
    let mut listed: Vec<String> = preview.first.iter().map(ToString::to_string).collect();
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
