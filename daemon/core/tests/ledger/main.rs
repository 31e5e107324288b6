//! What the ledger does, through its public interface: one file per subject.

mod ambiguity;
mod book_time;
mod ends;
mod hold;
mod host_steps;
mod import;
mod lookouts;
mod memory;
mod moves;
mod prefixes;
mod probing;
mod quotas;
mod rollups;
mod rules;
mod select;
mod sharing;
mod sighting_rules;
