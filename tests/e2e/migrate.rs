//! `fipd migrate flat-network` on a site of macvlan, against real API servers.
//!
//! Numbers of rows are those of the contract's conformance table on migration; `g1_23_...` are about defects of the original.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test a panic is the verdict"
)]

#[path = "migrate/defects.rs"]
mod defects;
#[path = "migrate/input.rs"]
mod input;
#[path = "migrate/interrupted.rs"]
mod interrupted;
#[path = "migrate/rows.rs"]
mod rows;
#[path = "migrate/site.rs"]
mod site;

use site::{Bed, SITE};
