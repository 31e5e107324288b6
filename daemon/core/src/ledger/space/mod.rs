//! Free space: which addresses of a network nobody has, and how one is chosen.

mod attribution;
pub(super) mod choice;
pub(super) mod dice;
pub(super) mod free;
pub(super) mod memory;
mod overlap;
pub(super) mod runs;
pub(super) mod segments;
mod spans;

pub use overlap::Overlap;
pub use spans::PoolSpans;
