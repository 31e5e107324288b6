//! The store on files and on media that fail.

/// How often a test does what it does: as `variable` says, which is much more in `cargo torture`.
fn rounds(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |rounds| rounds.parse().unwrap())
}

mod age;
mod asks;
mod audit;
mod codec;
mod crash;
mod file;
mod flips;
mod full;
mod history;
mod host;
mod medium;
mod reset_clock;
mod restore;
mod rollups;
mod upgrade;
