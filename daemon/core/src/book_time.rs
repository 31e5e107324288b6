//! The time of the address book: advances with the boot clock, and follows the wall clock only as far as it can be trusted.

use crate::Timestamp;

/// Names one boot of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

/// Both clocks of a host at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// `None` where the host does not say: every start of fipd counts as a reboot then.
    pub boot: Option<BootId>,
    /// Milliseconds of CLOCK_BOOTTIME; never runs backwards in a boot.
    pub uptime: u64,
    pub wall: Timestamp,
}

/// Book time at a moment of a boot. Until another line replaces it, book time advances from there with the boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLine {
    pub boot: Option<BootId>,
    pub uptime: u64,
    pub book: Timestamp,
    /// Milliseconds of forward jumps that counted since the last confirmation; at most [`BookTime::TOLERANCE`].
    pub unconfirmed: u64,
}

impl ClockLine {
    /// Both say the same at every moment.
    fn agrees(&self, other: &Self) -> bool {
        let offset = |line: &Self| i128::from(line.book.0) - i128::from(line.uptime);
        self.boot == other.boot
            && self.unconfirmed == other.unconfirmed
            && offset(self) == offset(other)
    }
}

/// What the time of the address book is.
///
/// Invariants: it never runs backwards; between confirmations it is ahead of the boot clock by at most
/// [`Self::TOLERANCE`], however often the wall clock is set and the host reboots.
#[derive(Clone, Debug)]
pub struct BookTime {
    line: Option<ClockLine>,
    /// As the store has it.
    saved: Option<ClockLine>,
    /// The latest time of a decision in the store.
    floor: Timestamp,
    wall: Timestamp,
    /// The jump that does not count, in milliseconds.
    held_back: u64,
}

impl BookTime {
    /// The sum of forward jumps that count before the kernel or an admin confirms the wall clock, in milliseconds.
    pub const TOLERANCE: u64 = 300_000;

    /// Continues where the store ends. An empty store (`last` is 0) takes the first wall time as it is.
    pub fn resume(saved: Option<ClockLine>, last: Timestamp) -> Self {
        // A host that does not name its boots may have had one since then.
        let another_boot = |line: ClockLine| ClockLine {
            uptime: u64::MAX,
            ..line
        };
        Self {
            line: saved.map(|line| match line.boot {
                Some(_) => line,
                None => another_boot(line),
            }),
            saved,
            floor: last,
            wall: last,
            held_back: 0,
        }
    }

    /// Book time at `reading`. `confirmed` is called only where the wall clock is ahead.
    pub fn at(&mut self, reading: &ClockReading, confirmed: impl FnOnce() -> bool) -> Timestamp {
        self.wall = reading.wall;
        let mut line = self.advanced(reading);
        let jump = reading.wall.0.saturating_sub(line.book.0);
        let unconfirmed = line.unconfirmed.saturating_add(jump);
        self.held_back = 0;
        if jump > 0 {
            if confirmed() {
                (line.book, line.unconfirmed) = (reading.wall, 0);
            } else if unconfirmed <= Self::TOLERANCE {
                (line.book, line.unconfirmed) = (reading.wall, unconfirmed);
            } else {
                self.held_back = jump;
            }
        }
        self.line = Some(line);
        line.book
    }

    /// Lets the wall clock count as it is: an admin's word. Book time still never runs backwards.
    pub fn accept(&mut self, reading: &ClockReading) -> Timestamp {
        let book = self.at(reading, || true);
        if let Some(line) = &mut self.line {
            line.unconfirmed = 0;
        }
        book
    }

    /// The line at the moment of the reading, by the boot clock alone.
    fn advanced(&self, reading: &ClockReading) -> ClockLine {
        let start = |book, unconfirmed| ClockLine {
            boot: reading.boot,
            uptime: reading.uptime,
            book,
            unconfirmed,
        };
        match &self.line {
            None if self.floor == Timestamp(0) => start(reading.wall, 0),
            None => start(self.floor, 0),
            // A boot clock that ran back is another boot, or a snapshot of this one: what passed is unknown.
            Some(line) if line.boot == reading.boot && line.uptime <= reading.uptime => {
                let book = line.book.0.saturating_add(reading.uptime - line.uptime);
                start(Timestamp(book).max(self.floor), line.unconfirmed)
            }
            Some(line) => start(line.book.max(self.floor), line.unconfirmed),
        }
    }

    /// The line, where the store has another one. Of a host that does not name its boots only the sum of its jumps is kept:
    /// the rest says nothing after a start.
    pub fn unsaved(&self) -> Option<ClockLine> {
        let line = self.line?;
        let same = match (line.boot, self.saved) {
            (Some(_), saved) => saved.is_some_and(|saved| saved.agrees(&line)),
            (None, saved) => saved.map_or(0, |saved| saved.unconfirmed) == line.unconfirmed,
        };
        (!same).then_some(line)
    }

    /// The line as it is, to be kept over a boot; `None` on a host that does not name its boots.
    pub fn lasting(&self) -> Option<ClockLine> {
        self.line.filter(|line| line.boot.is_some())
    }

    /// The store has this line.
    pub fn note_saved(&mut self, line: ClockLine) {
        self.saved = Some(line);
    }

    /// How far the wall clock is ahead without being believed, in milliseconds.
    pub fn held_back(&self) -> u64 {
        self.held_back
    }

    /// How far book time is ahead of the wall clock, in milliseconds.
    pub fn ahead(&self) -> u64 {
        let book = self.line.map_or(self.floor, |line| line.book);
        book.0.saturating_sub(self.wall.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;
    const START: u64 = 1_767_225_600_000;

    fn reading(boot: u8, uptime: u64, wall: u64) -> ClockReading {
        ClockReading {
            boot: Some(BootId([boot; 16])),
            uptime,
            wall: Timestamp(wall),
        }
    }

    fn started() -> BookTime {
        let mut time = BookTime::resume(None, Timestamp(0));
        assert_eq!(
            time.at(&reading(1, HOUR, START), || false),
            Timestamp(START)
        );
        time
    }

    #[test]
    fn book_time_advances_with_the_boot_clock_while_the_wall_clock_is_behind() {
        let mut time = started();
        let back = reading(1, 2 * HOUR, START - 48 * HOUR);
        assert_eq!(time.at(&back, || true), Timestamp(START + HOUR));
        assert_eq!(time.ahead(), 49 * HOUR);
    }

    #[test]
    fn a_jump_over_five_minutes_counts_only_once_it_is_confirmed() {
        let mut time = started();
        let far = |minutes: u64| {
            let passed = minutes * MINUTE;
            reading(1, HOUR + passed, START + passed + 24 * HOUR)
        };
        assert_eq!(time.at(&far(1), || false), Timestamp(START + MINUTE));
        assert_eq!(time.held_back(), 24 * HOUR);
        assert_eq!(time.at(&far(2), || true), far(2).wall);
        assert_eq!(time.held_back(), 0);
        let mut time = started();
        assert_eq!(time.accept(&far(3)), far(3).wall);
        assert_eq!(time.held_back(), 0);
    }

    #[test]
    fn a_jump_of_almost_five_minutes_every_minute_passes_the_tolerance_once() {
        const JUMP: u64 = 5 * MINUTE - 1_000;
        let mut time = started();
        for minutes in 1..20 {
            let wall = START + minutes * (MINUTE + JUMP);
            let book = time.at(&reading(1, HOUR + minutes * MINUTE, wall), || false);
            assert_eq!(book, Timestamp(START + minutes * MINUTE + JUMP));
        }
        assert_eq!(time.held_back(), 18 * JUMP);
        // Neither the way back nor a restart or a boot gives the tolerance anew.
        let last = Timestamp(START + 19 * MINUTE + JUMP);
        let mut again = BookTime::resume(time.unsaved(), last);
        let far = reading(2, MINUTE, START + 24 * HOUR);
        assert_eq!(again.at(&far, || false), last);
        again.at(&far, || true);
        let more = reading(2, MINUTE, far.wall.0 + JUMP);
        assert_eq!(again.at(&more, || false), more.wall, "what was confirmed");
    }

    #[test]
    fn a_host_that_does_not_name_its_boots_has_the_tolerance_once() {
        let nameless = |uptime, wall| ClockReading {
            boot: None,
            ..reading(1, uptime, wall)
        };
        let mut time = BookTime::resume(None, Timestamp(START));
        assert_eq!(time.at(&nameless(HOUR, START), || false), Timestamp(START));
        assert_eq!(time.unsaved(), None);
        let jumped = Timestamp(START + 4 * MINUTE);
        assert_eq!(time.at(&nameless(HOUR, jumped.0), || false), jumped);
        let mut again = BookTime::resume(time.unsaved(), jumped);
        let more = nameless(2 * HOUR, START + 8 * MINUTE);
        assert_eq!(again.at(&more, || false), jumped, "the gap is a jump");
    }

    #[test]
    fn small_jumps_that_the_kernel_confirms_use_up_no_tolerance() {
        let mut time = started();
        for times in 1..20 {
            let read = reading(1, HOUR, START + times * 4 * MINUTE);
            assert_eq!(time.at(&read, || true), read.wall);
        }
        let read = reading(1, HOUR, START + 80 * MINUTE);
        assert_eq!(time.at(&read, || false), read.wall);
    }

    #[test]
    fn the_time_that_a_host_was_off_counts_as_a_jump() {
        let mut time = started();
        time.at(&reading(1, 2 * HOUR, START + HOUR), || false);
        let saved = time.unsaved();
        let last = Timestamp(START + HOUR);
        let mut again = BookTime::resume(saved, last);
        let off = reading(2, MINUTE, START + 9 * HOUR);
        assert_eq!(again.at(&off, || false), last);
        assert_eq!(again.at(&off, || true), off.wall);
        let mut short = BookTime::resume(saved, last);
        let soon = reading(2, MINUTE, START + HOUR + 2 * MINUTE);
        assert_eq!(short.at(&soon, || false), soon.wall);
    }

    #[test]
    fn a_restart_in_the_same_boot_takes_no_time_away() {
        let mut time = started();
        let saved = time.unsaved().unwrap();
        time.note_saved(saved);
        time.at(&reading(1, 3 * HOUR, START + 2 * HOUR), || false);
        assert_eq!(time.unsaved(), None, "only a jump needs another row");
        let mut again = BookTime::resume(Some(saved), Timestamp(START));
        let back = reading(1, 4 * HOUR, START - HOUR);
        assert_eq!(again.at(&back, || false), Timestamp(START + 3 * HOUR));
    }

    #[test]
    fn a_store_of_an_earlier_version_goes_on_from_its_last_decision() {
        let mut time = BookTime::resume(None, Timestamp(START));
        let far = reading(1, 5, START + HOUR);
        assert_eq!(time.at(&far, || false), Timestamp(START));
        assert_eq!(time.held_back(), HOUR);
    }

    #[test]
    fn a_boot_clock_that_ran_back_never_takes_book_time_back() {
        let mut time = started();
        let read = reading(1, 5, START);
        assert_eq!(time.at(&read, || false), Timestamp(START));
        let later = reading(1, 5 + HOUR, START);
        assert_eq!(time.at(&later, || false), Timestamp(START + HOUR));
        let end = reading(1, u64::MAX, 0);
        assert_eq!(time.at(&end, || false), Timestamp(u64::MAX));
    }
}
