//! `fipd pool update --dry-run`.

use super::{
    Session,
    client::with_query,
    exit::Failure,
    output::{Table, or_dash},
    pool::path,
};
use crate::api::wire::{LeaseSummary, PageQuery, PoolPatch, PoolPreviewView};

/// Shows what the edit would do, with all leases that it would leave out of range.
pub(super) async fn run(session: &Session, name: &str, patch: &PoolPatch) -> Result<(), Failure> {
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
            return session.output.show(&preview, table);
        }
    }
}

fn table(preview: &PoolPreviewView) -> Table {
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
