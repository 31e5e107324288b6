//! A batch of decisions as rows: encoded before the transaction starts, written inside it.

use fipd_core::{AuditEntry, Decision, Op, PoolId, Retention, Rollup};
use redb::{Key, TableDefinition, TableHandle as _, WriteTransaction};

use super::{
    codec::{self, EncodeError},
    envelope::{self, RowDraft, StoredRow},
    error::ReadError,
    rollups,
    rows::StateV1,
    schema::{self, unencodable},
    tables::{
        ACCOUNTS, ADOPTIONS, AUDIT, CLOCK, CLUSTERS, EPOCH, KEYS, LEASES, LeaseBytes, META,
        NETWORKS, PASTS, POOLS, QUOTAS, SEPARATIONS, STATE, TOKENS, adoption_key, lease_key,
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

/// A row to write (`Some`) or to remove.
type Rows<K> = Vec<(K, Option<RowDraft>)>;

/// The rows of a batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    networks: Rows<[u8; 4]>,
    pools: Rows<[u8; 4]>,
    quotas: Rows<Vec<u8>>,
    leases: Rows<LeaseBytes>,
    pasts: Rows<LeaseBytes>,
    separations: Rows<[u8; 8]>,
    clusters: Rows<String>,
    adoptions: Rows<Vec<u8>>,
    accounts: Rows<String>,
    tokens: Rows<[u8; 8]>,
    keys: Rows<[u8; 8]>,
    epoch: Option<RowDraft>,
    /// The number of the epoch that begins or goes on with the batch.
    pub(super) epoch_number: Option<u64>,
    clock: Option<RowDraft>,
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
                write_row(&mut self.networks, network.id.0.to_be_bytes(), row);
            }
            Op::PutPool(pool) => {
                self.next_pool = self.next_pool.max(pool.id.0.saturating_add(1));
                let row = codec::encode_pool(pool)?;
                write_row(&mut self.pools, pool.id.0.to_be_bytes(), row);
            }
            Op::PutNextPool(id) => self.next_pool = self.next_pool.max(id.0),
            Op::DeletePool(id) => {
                self.next_pool = self.next_pool.max(id.0.saturating_add(1));
                self.pools.push((id.0.to_be_bytes(), None));
            }
            Op::PutQuota(quota) => {
                let key = quota_key(quota.pool, &quota.tenant);
                write_row(&mut self.quotas, key, codec::encode_quota(quota)?);
            }
            Op::DeleteQuota { pool, tenant } => {
                self.quotas.push((quota_key(*pool, tenant), None));
            }
            Op::PutLease(lease) => {
                let key = lease_key(lease.key);
                write_row(&mut self.leases, key, codec::encode_lease(lease)?);
            }
            Op::DeleteLease(key) => self.leases.push((lease_key(*key), None)),
            Op::PutPast(past) => {
                let key = lease_key(past.key);
                write_row(&mut self.pasts, key, codec::encode_past(past)?);
            }
            Op::DeletePast(key) => self.pasts.push((lease_key(*key), None)),
            Op::PutCluster(cluster) => {
                let row = codec::encode_cluster(cluster)?;
                write_row(&mut self.clusters, cluster.id.to_string(), row);
            }
            Op::DeleteCluster(id) => self.clusters.push((id.to_string(), None)),
            Op::PutAdoption(marker) => {
                let key = adoption_key(marker.network, &marker.cluster, &marker.system);
                write_row(&mut self.adoptions, key, codec::encode_adoption(marker)?);
            }
            Op::DeleteAdoption {
                network,
                cluster,
                system,
            } => {
                let key = adoption_key(*network, cluster, system);
                self.adoptions.push((key, None));
            }
            Op::PutAccount(account) => {
                let row = codec::encode_account(account)?;
                write_row(&mut self.accounts, account.name.to_string(), row);
            }
            Op::DeleteAccount(name) => self.accounts.push((name.to_string(), None)),
            Op::PutToken(token) => {
                let row = codec::encode_token(token)?;
                write_row(&mut self.tokens, token.id.0.to_be_bytes(), row);
            }
            Op::DeleteToken(id) => self.tokens.push((id.0.to_be_bytes(), None)),
            Op::PutKey(key) => {
                let row = codec::encode_key(key)?;
                write_row(&mut self.keys, key.id.0.to_be_bytes(), row);
            }
            Op::DeleteKey(id) => self.keys.push((id.0.to_be_bytes(), None)),
            Op::PutEpoch(epoch) => {
                self.epoch_number = Some(epoch.number);
                self.epoch = Some(codec::encode_epoch(epoch)?);
            }
            Op::PutClock(line) => self.clock = Some(codec::encode_clock(line)?),
            Op::PutSeparation(pair) => {
                let key = separation_key(*pair);
                write_row(&mut self.separations, key, codec::encode_mark()?);
            }
            Op::DeleteSeparation(pair) => self.separations.push((separation_key(*pair), None)),
            Op::PutRollup(row) => self.add_rollup(row)?,
        }
        Ok(())
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
        self.networks.len()
            + self.pools.len()
            + self.quotas.len()
            + self.leases.len()
            + self.pasts.len()
            + self.clusters.len()
            + self.adoptions.len()
            + self.accounts.len()
            + self.tokens.len()
            + self.keys.len()
            + usize::from(self.epoch.is_some())
            + usize::from(self.clock.is_some())
            + self.rollups.len()
            + self.separations.len()
            + self.audit.len()
    }

    /// Writes everything into the transaction and returns the state after it.
    pub(super) fn write(
        &mut self,
        txn: &WriteTransaction,
        before: &StateV1,
        keep: HistoryLimits,
    ) -> Result<StateV1, ReadError> {
        put(txn, NETWORKS, &mut self.networks, |key| *key)?;
        put(txn, POOLS, &mut self.pools, |key| *key)?;
        put(txn, QUOTAS, &mut self.quotas, Vec::as_slice)?;
        put(txn, LEASES, &mut self.leases, |key| *key)?;
        put(txn, PASTS, &mut self.pasts, |key| *key)?;
        if !self.separations.is_empty() {
            put(txn, SEPARATIONS, &mut self.separations, |key| *key)?;
        }
        put(txn, CLUSTERS, &mut self.clusters, String::as_str)?;
        put(txn, ADOPTIONS, &mut self.adoptions, Vec::as_slice)?;
        put(txn, ACCOUNTS, &mut self.accounts, String::as_str)?;
        put(txn, TOKENS, &mut self.tokens, |key| *key)?;
        put(txn, KEYS, &mut self.keys, |key| *key)?;
        let mut after = StateV1 {
            sequence: before.sequence + 1,
            last_time: before.last_time.max(self.latest),
            next_pool: before.next_pool.max(self.next_pool),
            ..*before
        };
        let gone = self.pools.iter().filter(|(_, row)| row.is_none());
        let gone = gone.map(|(id, _)| PoolId(u32::from_be_bytes(*id)));
        rollups::write(txn, &mut self.rollups, gone, keep.history)?;
        self.write_audit(txn, &mut after, keep.audit)?;
        write_state(txn, &after)?;
        if let Some(epoch) = &mut self.epoch {
            let mut meta = txn.open_table(META)?;
            envelope::insert(&mut meta, META.name(), &EPOCH, epoch)?;
        }
        if let Some(clock) = &mut self.clock {
            let mut meta = txn.open_table(META)?;
            envelope::insert(&mut meta, META.name(), &CLOCK, clock)?;
        }
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

fn write_row<K>(rows: &mut Rows<K>, key: K, row: RowDraft) {
    rows.push((key, Some(row)));
}

/// Writes and removes rows of one table, which is not touched where there are none.
fn put<K: Key + 'static, T>(
    txn: &WriteTransaction,
    definition: TableDefinition<'_, K, &'static [u8]>,
    rows: &mut [(T, Option<RowDraft>)],
    key: impl for<'a> Fn(&'a T) -> K::SelfType<'a>,
) -> Result<(), ReadError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut table = txn.open_table(definition)?;
    for (name, row) in rows {
        match row {
            Some(row) => envelope::insert(&mut table, definition.name(), &key(name), row)?,
            None => drop(table.remove(key(name))?),
        }
    }
    Ok(())
}

/// Writes the state row.
pub(super) fn write_state(txn: &WriteTransaction, state: &StateV1) -> Result<(), ReadError> {
    let mut row = codec::encode_state(state).map_err(|error| unencodable(STATE, &error))?;
    envelope::insert(&mut txn.open_table(META)?, META.name(), &STATE, &mut row)
}

/// The state row.
pub(super) fn read_state(
    meta: &impl redb::ReadableTable<&'static str, &'static [u8]>,
) -> Result<StateV1, ReadError> {
    let row = |error| ReadError::Row {
        table: META.name().to_owned(),
        row: STATE.to_owned(),
        error,
    };
    let format = schema::format(meta)?;
    let value = meta
        .get(STATE)?
        .ok_or_else(|| row(codec::DecodeError::Empty))?;
    StoredRow::open(META.name(), STATE.as_bytes(), value.value(), format)
        .and_then(|row| codec::decode_state(&row))
        .map_err(row)
}
