//! A batch of decisions as rows: encoded before the transaction starts, written inside it.

use std::collections::BTreeMap;

use fipd_core::{AuditEntry, Decision, Op, PoolId, Retention, Rollup};
use redb::{Key, TableDefinition, TableHandle as _, WriteTransaction};

use super::{
    codec::{self, DecodeError, EncodeError},
    envelope::{self, RowDraft},
    error::ReadError,
    rollups,
    rows::StateV1,
    schema,
    tables::{
        self, ACCOUNTS, ADOPTIONS, AUDIT, CLOCK, CLUSTERS, EPOCH, KEYS, LEASES, META, NETWORKS,
        PASTS, POOLS, QUOTAS, SEPARATIONS, STATE, TOKENS, Visit, adoption_key, lease_key,
        quota_key, separation_key,
    },
};

/// Trimming starts this many entries above the limit, so that it works on runs of neighbours.
const TRIM_SLACK: u64 = 64;
/// Entries removed by one commit at least, once trimming starts.
const TRIM_STEP: u64 = 256;

/// How much of what only grows is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryLimits {
    /// Audit entries.
    pub audit: u64,
    pub history: Retention,
}

/// Rows to write (`Some`) or to remove, under the bytes of their keys.
type Rows = Vec<(Vec<u8>, Option<RowDraft>)>;

/// The rows of a batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// By the name of their table.
    tables: BTreeMap<&'static str, Rows>,
    /// Pools that are deleted.
    gone: Vec<PoolId>,
    /// The number of the epoch that begins or goes on with the batch.
    pub(super) epoch_number: Option<u64>,
    rollups: Vec<(Rollup, RowDraft)>,
    audit: Vec<RowDraft>,
    latest: u64,
    next_pool: u32,
}

impl Batch {
    /// Adds all rows of a decision.
    ///
    /// # Errors
    /// When a row cannot be encoded; the decision is then partly added, and the batch must not be written.
    pub(super) fn add(&mut self, decision: &Decision) -> Result<(), EncodeError> {
        for op in &decision.ops {
            self.add_op(op)?;
        }
        for entry in &decision.audit {
            self.add_audit(entry)?;
        }
        Ok(())
    }

    fn add_op(&mut self, op: &Op) -> Result<(), EncodeError> {
        match op {
            Op::PutNetwork(network) => {
                let row = codec::encode_network(network)?;
                self.push(&NETWORKS, network.id.0.to_be_bytes(), Some(row));
            }
            Op::PutPool(pool) => {
                self.next_pool = self.next_pool.max(pool.id.0.saturating_add(1));
                let row = codec::encode_pool(pool)?;
                self.push(&POOLS, pool.id.0.to_be_bytes(), Some(row));
            }
            Op::PutNextPool(id) => self.next_pool = self.next_pool.max(id.0),
            Op::DeletePool(id) => {
                self.next_pool = self.next_pool.max(id.0.saturating_add(1));
                self.gone.push(*id);
                self.push(&POOLS, id.0.to_be_bytes(), None);
            }
            Op::PutQuota(quota) => {
                let key = quota_key(quota.pool, &quota.tenant);
                self.push(&QUOTAS, &key, Some(codec::encode_quota(quota)?));
            }
            Op::DeleteQuota { pool, tenant } => {
                self.push(&QUOTAS, &quota_key(*pool, tenant), None);
            }
            Op::PutLease(lease) => {
                let key = lease_key(lease.key);
                self.push(&LEASES, key, Some(codec::encode_lease(lease)?));
            }
            Op::DeleteLease(key) => self.push(&LEASES, lease_key(*key), None),
            Op::PutPast(past) => {
                let key = lease_key(past.key);
                self.push(&PASTS, key, Some(codec::encode_past(past)?));
            }
            Op::DeletePast(key) => self.push(&PASTS, lease_key(*key), None),
            Op::PutCluster(cluster) => {
                let row = codec::encode_cluster(cluster)?;
                self.push(&CLUSTERS, &*cluster.id.0, Some(row));
            }
            Op::DeleteCluster(id) => self.push(&CLUSTERS, &*id.0, None),
            Op::PutAdoption(marker) => {
                let key = adoption_key(marker.network, &marker.cluster, &marker.system);
                self.push(&ADOPTIONS, &key, Some(codec::encode_adoption(marker)?));
            }
            Op::DeleteAdoption {
                network,
                cluster,
                system,
            } => self.push(&ADOPTIONS, &adoption_key(*network, cluster, system), None),
            Op::PutAccount(account) => {
                let row = codec::encode_account(account)?;
                self.push(&ACCOUNTS, &*account.name, Some(row));
            }
            Op::DeleteAccount(name) => self.push(&ACCOUNTS, &**name, None),
            Op::PutToken(token) => {
                let row = codec::encode_token(token)?;
                self.push(&TOKENS, token.id.0.to_be_bytes(), Some(row));
            }
            Op::DeleteToken(id) => self.push(&TOKENS, id.0.to_be_bytes(), None),
            Op::PutKey(key) => {
                let row = codec::encode_key(key)?;
                self.push(&KEYS, key.id.0.to_be_bytes(), Some(row));
            }
            Op::DeleteKey(id) => self.push(&KEYS, id.0.to_be_bytes(), None),
            Op::PutEpoch(epoch) => {
                self.epoch_number = Some(epoch.number);
                self.push(&META, EPOCH, Some(codec::encode_epoch(epoch)?));
            }
            Op::PutClock(line) => self.push(&META, CLOCK, Some(codec::encode_clock(line)?)),
            Op::PutSeparation(pair) => {
                let key = separation_key(*pair);
                self.push(&SEPARATIONS, key, Some(RowDraft::new(&())?));
            }
            Op::DeleteSeparation(pair) => self.push(&SEPARATIONS, separation_key(*pair), None),
            Op::PutRollup(row) => self.add_rollup(row)?,
        }
        Ok(())
    }

    /// Writes the row of a key, or removes it where it is `None`.
    fn push<K: Key + 'static>(
        &mut self,
        table: &'static TableDefinition<'static, K, &'static [u8]>,
        key: K::SelfType<'_>,
        row: Option<RowDraft>,
    ) {
        let key = K::as_bytes(&key).as_ref().to_vec();
        let rows = self.tables.entry(table.name()).or_default();
        rows.push((key, row));
    }

    fn add_rollup(&mut self, row: &Rollup) -> Result<(), EncodeError> {
        // A clock that is set back must not bring the hour again.
        self.latest = self.latest.max(row.hour.end().0);
        self.rollups.push((*row, codec::encode_rollup(row)?));
        Ok(())
    }

    fn add_audit(&mut self, entry: &AuditEntry) -> Result<(), EncodeError> {
        self.latest = self.latest.max(entry.at.0);
        self.audit.push(codec::encode_audit(entry)?);
        Ok(())
    }

    /// How many rows are written or removed.
    pub(super) fn rows(&self) -> usize {
        let rows: usize = self.tables.values().map(Vec::len).sum();
        rows + self.rollups.len() + self.audit.len()
    }

    /// Writes everything into the transaction and returns the state after it.
    pub(super) fn write(
        &mut self,
        txn: &WriteTransaction,
        before: &StateV1,
        keep: HistoryLimits,
    ) -> Result<StateV1, ReadError> {
        let mut rows = WriteRows {
            txn,
            tables: &mut self.tables,
            written: 0,
        };
        tables::each(&mut rows)?;
        debug_assert_eq!(rows.written, rows.tables.len(), "a table is left out");
        let mut after = StateV1 {
            sequence: before.sequence + 1,
            last_time: before.last_time.max(self.latest),
            next_pool: before.next_pool.max(self.next_pool),
            ..*before
        };
        let gone = self.gone.iter().copied();
        rollups::write(txn, &mut self.rollups, gone, keep.history)?;
        self.write_audit(txn, &mut after, keep.audit)?;
        write_state(txn, &after)?;
        Ok(after)
    }

    fn write_audit(
        &mut self,
        txn: &WriteTransaction,
        state: &mut StateV1,
        limit: u64,
    ) -> Result<(), ReadError> {
        if self.audit.is_empty() {
            return Ok(());
        }
        let mut table = txn.open_table(AUDIT)?;
        for row in &mut self.audit {
            let number = state.audit_next.to_be_bytes();
            envelope::insert(&mut table, AUDIT.name(), &number, row)?;
            state.audit_next += 1;
            state.audit_bytes += row.len() as u64;
        }
        let kept = state.audit_next - state.audit_first;
        if kept < limit.saturating_add(TRIM_SLACK) {
            return Ok(());
        }
        // Twice what came in, so that a lowered limit is reached in time; never more than is too much.
        let step = (2 * self.audit.len() as u64)
            .max(TRIM_STEP)
            .min(kept - limit);
        let end = state.audit_first + step;
        let mut freed = 0;
        table.retain_in(
            state.audit_first.to_be_bytes()..end.to_be_bytes(),
            |_, value| {
                freed += value.len() as u64;
                false
            },
        )?;
        state.audit_bytes = state.audit_bytes.saturating_sub(freed);
        state.audit_first = end;
        Ok(())
    }
}

/// Writes and removes the rows of each table, which is not touched where there are none.
struct WriteRows<'a> {
    txn: &'a WriteTransaction,
    tables: &'a mut BTreeMap<&'static str, Rows>,
    written: usize,
}

impl Visit for WriteRows<'_> {
    type Error = ReadError;

    fn table<K: Key + 'static>(
        &mut self,
        definition: TableDefinition<'static, K, &'static [u8]>,
    ) -> Result<(), ReadError> {
        let Some(rows) = self.tables.get_mut(definition.name()) else {
            return Ok(());
        };
        self.written += 1;
        let mut table = self.txn.open_table(definition)?;
        for (key, row) in rows {
            let key = K::from_bytes(key);
            match row {
                Some(row) => envelope::insert(&mut table, definition.name(), &key, row)?,
                None => drop(table.remove(key)?),
            }
        }
        Ok(())
    }
}

/// Writes the state row.
pub(super) fn write_state(txn: &WriteTransaction, state: &StateV1) -> Result<(), ReadError> {
    schema::write_meta(txn, STATE, state)
}

/// The state row.
pub(super) fn read_state(
    meta: &impl redb::ReadableTable<&'static str, &'static [u8]>,
) -> Result<StateV1, ReadError> {
    let state = schema::read_meta(meta, STATE, schema::format(meta)?, codec::plain)?;
    state.ok_or_else(|| ReadError::of_row(META.name(), STATE)(DecodeError::Empty))
}
