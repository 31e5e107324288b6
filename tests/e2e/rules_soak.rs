//! The whole chain of ip-rule: a real API server with its garbage collector, `fipd serve` as it is built, and the real kernel, all
//! in a network namespace of their own.
//!
//! `FIPD_SOAK_SECONDS` says how long the soak goes on (30), `FIPD_SOAK_SEED` has it repeat what an earlier one did.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "rules_soak/adopt.rs"]
mod adopt;
#[path = "rules_soak/chain.rs"]
mod chain;
#[path = "rules_soak/leave.rs"]
mod leave;
#[path = "rules_soak/mix.rs"]
mod mix;
#[path = "rules_soak/model.rs"]
mod model;

/// Threads of a test.
const WORKERS: usize = 2;

fn in_namespace(test: impl AsyncFnOnce() + Send) {
    // The components are fetched from outside.
    fipd_tests::toolchain::prepare().unwrap();
    let run = async || {
        test().await;
        Ok(())
    };
    fipd_tests::namespace::in_namespace(WORKERS, run).unwrap();
}
