//! Growing pauses with jitter.

use std::time::Duration;

/// Pauses that double from `first` to `most`, each shortened by up to half at random.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            next: first,
        }
    }

    /// After a success: start over.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.most);
        jittered(full)
    }
}

/// Between half of `full` and `full`.
pub fn jittered(full: Duration) -> Duration {
    let mut bytes = [0_u8; 4];
    // Without random numbers the pause is merely not spread.
    let share = match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    };
    full.mul_f64(0.5 + share / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_most_and_start_over() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, second * 4);
        for full in [1, 2, 4, 4] {
            let pause = backoff.pause();
            assert!(
                pause >= second * full / 2 && pause <= second * full,
                "{pause:?} of {full} s"
            );
        }
        backoff.reset();
        assert!(backoff.pause() <= second);
    }
}
