//! For whom a pool is there, as `fipd pool` reads and shows it.

use clap::Args;

use crate::api::wire::PoolScope;

/// Who may have addresses of a pool without naming it.
#[derive(Debug, Args)]
pub struct Scopes {
    /// Pools with a higher number are asked first where the asker names none
    #[arg(long, value_name = "NUMBER")]
    pub(super) priority: Option<u16>,
    /// For whom the pool is there without being named: any, or parts that must all fit of cluster=C, project=P,
    /// namespace=N (several: one of them), label=KEY=VALUE, with commas in between (repeatable)
    #[arg(long, value_name = "WHOM")]
    pub(super) scope: Vec<PoolScope>,
}
