//! How much memory the answers and objects of one way to a cluster may take.
//!
//! Each has a share of its own ([`SHARE`]) and may borrow from what is common to all, as long as it leaves there at least as
//! much as it has borrowed: one that takes all it can get takes half, and nobody's share.

use std::{
    fmt::{self, Debug, Write as _},
    sync::{Arc, LazyLock},
    time::Duration,
};

use fipd_core::Text;
use parking_lot::Mutex;
use tokio::time::Instant;

/// What each may use at any time, in bytes.
pub const SHARE: usize = 8 << 20;
/// What all together may use beyond their shares, in bytes.
const COMMON: usize = 256 << 20;
/// How long what was wrong last is shown: a watch that fails again does so within half a minute.
const SHOWN: Duration = Duration::from_secs(120);

static PROCESS: LazyLock<Arc<Common>> = LazyLock::new(|| Arc::new(Common::new(COMMON)));

/// The account of one way to a cluster; cheap to clone.
#[derive(Clone)]
pub struct Memory(Arc<Account>);

struct Account {
    used: Mutex<usize>,
    common: Arc<Common>,
    /// What was refused last, and when.
    trouble: Mutex<Option<(Instant, Text)>>,
}

struct Common {
    size: usize,
    borrowed: Mutex<usize>,
}

/// What one thing uses of an account; gives it back when dropped.
pub struct Charge {
    memory: Memory,
    bytes: usize,
}

/// There is no memory for it; nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cluster needs more memory than the {} MiB that are its own and what it may borrow: see which of its objects are so \
     many or so large",
    SHARE >> 20
)]
pub struct OverBudget;

impl Common {
    fn new(size: usize) -> Self {
        Self {
            size,
            borrowed: Mutex::new(0),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::of(Arc::clone(&PROCESS))
    }
}

impl Memory {
    fn of(common: Arc<Common>) -> Self {
        Self(Arc::new(Account {
            used: Mutex::new(0),
            common,
            trouble: Mutex::new(None),
        }))
    }

    /// Charges nothing yet.
    pub fn charge(&self) -> Charge {
        Charge {
            memory: self.clone(),
            bytes: 0,
        }
    }

    /// Notes that something of the cluster was refused because of its size.
    pub fn refused(&self, why: impl Into<Text>) {
        *self.0.trouble.lock() = Some((Instant::now(), why.into()));
    }

    /// What was refused so came in smaller parts.
    pub fn overcame(&self, why: &str) {
        let mut trouble = self.0.trouble.lock();
        if trouble.as_ref().is_some_and(|(_, last)| **last == *why) {
            *trouble = None;
        }
    }

    /// What was refused lately.
    pub fn trouble(&self) -> Option<Text> {
        let trouble = self.0.trouble.lock();
        let (at, why) = trouble.as_ref()?;
        (at.elapsed() < SHOWN).then(|| why.clone())
    }

    fn change(&self, from: usize, to: usize) -> Result<(), OverBudget> {
        let mut used = self.0.used.lock();
        let after = used.saturating_sub(from).saturating_add(to);
        let (had, wants) = (used.saturating_sub(SHARE), after.saturating_sub(SHARE));
        if had != wants {
            let common = &self.0.common;
            let mut borrowed = common.borrowed.lock();
            let all = borrowed.saturating_sub(had).saturating_add(wants);
            if wants > had && wants > common.size.saturating_sub(all) {
                return Err(OverBudget);
            }
            *borrowed = all;
        }
        *used = after;
        Ok(())
    }
}

impl Charge {
    /// Charges so many bytes instead of those before.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn set(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.memory.change(self.bytes, bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Charges so many bytes more.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn add(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.set(self.bytes.saturating_add(bytes))
    }

    /// Charges `after` instead of `before`, which is part of it.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn change(&mut self, before: usize, after: usize) -> Result<(), OverBudget> {
        self.set(self.bytes.saturating_sub(before).saturating_add(after))
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // Less is never refused.
        let _ = self.memory.change(self.bytes, 0);
    }
}

/// About how many bytes a value keeps: the length of its text for debugging, which has all that was read from an object.
pub fn weight<T: Debug>(value: &T) -> usize {
    struct Count(usize);
    impl fmt::Write for Count {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut count = Count(size_of::<T>());
    // Where a value cannot be written it counts as far as it was.
    let _ = write!(count, "{value:?}");
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hog_takes_at_most_half_of_what_is_common_and_nobodys_share() {
        let common = Arc::new(Common::new(100 << 20));
        let (hog, other) = (Memory::of(Arc::clone(&common)), Memory::of(common));
        let mut all = hog.charge();
        let mut taken = 0;
        while all.add(1 << 20).is_ok() {
            taken += 1 << 20;
        }
        assert_eq!(taken, SHARE + (50 << 20));
        let mut share = other.charge();
        share.set(SHARE).unwrap();
        share.set(SHARE + (25 << 20)).unwrap();
        assert_eq!(share.set(SHARE + (26 << 20)), Err(OverBudget));
        drop(all);
        share.set(SHARE + (50 << 20)).unwrap();
    }

    #[test]
    fn what_is_given_back_can_be_had_again() {
        let common = Arc::new(Common::new(10 << 20));
        let memory = Memory::of(Arc::clone(&common));
        let charges: Vec<Charge> = (0..13)
            .map(|_| {
                let mut charge = memory.charge();
                charge.set(1 << 20).unwrap();
                charge
            })
            .collect();
        assert_eq!(*common.borrowed.lock(), 5 << 20);
        assert_eq!(memory.charge().set(1 << 20), Err(OverBudget));
        drop(charges);
        assert_eq!((*common.borrowed.lock(), *memory.0.used.lock()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_is_shown_for_a_while() {
        let memory = Memory::default();
        assert_eq!(memory.trouble(), None);
        memory.refused("too large");
        assert_eq!(memory.trouble().as_deref(), Some("too large"));
        tokio::time::advance(SHOWN).await;
        assert_eq!(memory.trouble(), None);
    }

    #[test]
    fn the_weight_of_a_value_has_its_texts() {
        let text = "x".repeat(1_000);
        assert!((1_000..1_100).contains(&weight(&text)));
        assert!(weight(&vec![Some(text.clone()), Some(text)]) > 2_000);
    }
}
