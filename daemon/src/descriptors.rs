//! How many files and connections the process may have open at once.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// As many as the unit has. More are of no use, and programs that fipd runs may go through all that there could be.
const WANTED: u64 = 65_536;
/// What Linux gives a process.
const USUAL: u64 = 1_024;

/// Allows the process as many as the unit has, or as many as it may have: started by hand or as a static pod it often has
/// [`USUAL`] only.
pub fn raise() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let wanted = hard.min(WANTED);
        if soft < wanted {
            setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
        } else {
            Ok(())
        }
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is: fewer connections are taken at once");
    }
}

/// How many it may have now.
pub fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft)
}
