//! How much of the processors is idle.

use std::fs;

/// Time of all processors since the machine started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTimes {
    idle: u64,
    all: u64,
}

impl ProcessorTimes {
    /// Nothing where the kernel does not say it: then no time seems idle.
    pub fn read() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(&text).unwrap_or_default()
    }

    /// The first line of `/proc/stat` (proc_stat(5)): `cpu user nice system idle iowait irq softirq steal guest guest_nice`. `guest`
    /// and `guest_nice` are in `user` and `nice`. Who waits for a disk gets on no faster beside others.
    fn parse(text: &str) -> Option<Self> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?;
        let fields: Result<Vec<u64>, _> =
            fields.split_whitespace().take(8).map(str::parse).collect();
        let fields = fields.ok()?;
        Some(Self {
            idle: *fields.get(3)?,
            all: fields.iter().sum(),
        })
    }

    /// How much of the time since `earlier` was idle, in percent.
    pub fn idle_since(self, earlier: Self) -> u64 {
        let idle = self.idle.saturating_sub(earlier.idle);
        let all = self.all.saturating_sub(earlier.all);
        (idle * 100).checked_div(all).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_idle_is_neither_work_nor_waiting_for_a_disk() {
        let at = |text: &str| ProcessorTimes::parse(text).unwrap();
        let before = at("cpu  100 0 50 800 40 5 5 0 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        let after = at("cpu  150 0 70 825 45 5 5 0 9 0\n");
        assert_eq!(after.idle_since(before), 25);
        assert_eq!(before.idle_since(before), 0);
        for text in ["", "cpu", "cpu  1 2 x 4", "cpu  1 2", "intr 5"] {
            assert_eq!(ProcessorTimes::parse(text), None, "{text:?}");
        }
        assert_ne!(ProcessorTimes::read(), ProcessorTimes::default());
    }
}
