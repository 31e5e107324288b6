//! Raw redb: what one commit of the same rows costs without us.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redb::{Builder, Database, ReadableDatabase as _, TableDefinition};

use super::fill::Pools;

const LEASES: TableDefinition<[u8; 21], &[u8]> = TableDefinition::new("leases");
const AUDIT: TableDefinition<[u8; 8], &[u8]> = TableDefinition::new("audit");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const CACHE: usize = 16 << 20;

/// A store, written by hand.
pub struct Floor {
    database: Database,
    key: [u8; 21],
    pools: Pools,
    /// Of the next lease.
    next: u64,
    lease: Vec<u8>,
    number: u64,
    audit: Vec<u8>,
    state: Vec<u8>,
}

impl Floor {
    /// Takes the last rows of each table as what to write more of, at the places of leases `next` and above.
    pub fn open(path: &Path, pools: Pools, next: u64) -> Result<Self> {
        let database = Builder::new().set_cache_size(CACHE).open(path)?;
        let txn = database.begin_read()?;
        let last = txn
            .open_table(LEASES)?
            .range::<[u8; 21]>(..)?
            .next_back()
            .context("no lease")??;
        let entry = txn
            .open_table(AUDIT)?
            .range::<[u8; 8]>(..)?
            .next_back()
            .context("no entry")??;
        let state = txn
            .open_table(META)?
            .get("state")?
            .context("no state")?
            .value()
            .to_vec();
        drop(txn);
        Ok(Self {
            key: last.0.value(),
            pools,
            next,
            lease: last.1.value().to_vec(),
            number: u64::from_be_bytes(entry.0.value()),
            audit: entry.1.value().to_vec(),
            state,
            database,
        })
    }

    /// A lease and an audit row for each of `decisions` and the state, in one commit.
    pub fn commit(&mut self, decisions: usize) -> Result<Duration> {
        let began = Instant::now();
        let txn = self.database.begin_write()?;
        {
            let mut leases = txn.open_table(LEASES)?;
            for _ in 0..decisions {
                let (_, address) = self.pools.place(self.next)?;
                self.next += 1;
                let [.., a, b, c, d] = &mut self.key;
                [*a, *b, *c, *d] = address.octets();
                leases.insert(self.key, self.lease.as_slice())?;
            }
            let mut audit = txn.open_table(AUDIT)?;
            for _ in 0..decisions {
                self.number += 1;
                audit.insert(self.number.to_be_bytes(), self.audit.as_slice())?;
            }
            txn.open_table(META)?
                .insert("state", self.state.as_slice())?;
        }
        txn.commit()?;
        Ok(began.elapsed())
    }
}

/// Keys a second of one table with 100,000 rows of 160 bytes under random u128 keys, 256 a commit: says how fast the
/// machine is.
pub fn yardstick(path: &Path) -> Result<f64> {
    const TABLE: TableDefinition<u128, &[u8]> = TableDefinition::new("rows");
    const COMMITS: u32 = 60;
    const KEYS: u32 = 256;
    let database = Builder::new().set_cache_size(CACHE).create(path)?;
    let value = [7; 160];
    let mut key = 1_u128;
    let mut write = |count: u32| -> Result<()> {
        let txn = database.begin_write()?;
        {
            let mut table = txn.open_table(TABLE)?;
            for _ in 0..count {
                key = key
                    .wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645)
                    .wrapping_add(1);
                table.insert(key, value.as_slice())?;
            }
        }
        Ok(txn.commit()?)
    };
    write(100_000)?;
    let began = Instant::now();
    for _ in 0..COMMITS {
        write(KEYS)?;
    }
    Ok(f64::from(COMMITS * KEYS) / began.elapsed().as_secs_f64())
}
