//! After a commit that failed: closes the file, opens it again and asks it whether the commit is in it.

use std::time::Duration;

use super::{Condition, OpenError, RETRY_MAX, ReadError, Store, StoreState, open, rows::StateV1};

impl Store {
    /// Whether the commit with number `sequence` is in the file; `None` when that cannot be known any more.
    pub(super) fn look_up(&mut self, sequence: u64, cause: &ReadError) -> Option<bool> {
        tracing::error!(error = %cause, "the store could not write; it is closed and opened again");
        self.shared.stats.lock().failed_commits += 1;
        *self.shared.database.write() = None;
        let mut error = cause.to_string();
        let mut pause = self.options.retry;
        for attempts in 1.. {
            self.shared.stats.lock().condition = Condition::Reopening {
                error: error.clone(),
                attempts,
            };
            // Reopening itself needs room; the writer has none to lose now.
            self.shared.medium.drop_ballast();
            match self.reopen() {
                Ok(state) => return self.judge(sequence, state),
                Err(again) => error = again.to_string(),
            }
            tracing::error!(%error, attempts, "the store cannot be reopened; trying again");
            if self.shared.wait(open::jittered(pause)) {
                break;
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
        self.shared.stats.lock().condition = Condition::Stopped { reason: error };
        None
    }

    fn reopen(&self) -> Result<StateV1, OpenError> {
        let (database, state) = open::reopen(&*self.shared.medium)?;
        self.shared.medium.note_own_write();
        *self.shared.database.write() = Some(database);
        Ok(state)
    }

    /// What the reopened file says of the commit. Any other number than the one before or the one tried means
    /// that the file is not the one this process has in memory.
    fn judge(&mut self, sequence: u64, state: StateV1) -> Option<bool> {
        let committed = state.sequence == sequence;
        if !committed && state.sequence + 1 != sequence {
            let reason = format!(
                "the reopened file {} has commit {}, where {} or {sequence} should be: it was replaced or has \
                 lost commits; start fipd again",
                self.shared.medium.path().display(),
                state.sequence,
                sequence.saturating_sub(1)
            );
            tracing::error!("{reason}");
            *self.shared.database.write() = None;
            self.shared.stats.lock().condition = Condition::Stopped { reason };
            return None;
        }
        tracing::info!(sequence, committed, "the store was reopened");
        self.state = state;
        self.shared.medium.keep_ballast();
        Some(committed)
    }
}

impl StoreState {
    /// Waits, and says whether the end was asked for.
    fn wait(&self, pause: Duration) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stopped.wait_for(&mut stopping, pause);
        }
        *stopping
    }
}
