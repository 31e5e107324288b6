//! Which system of fipd looks after a guest, and whose a release there is.

/// A system that looks after guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuestSystem {
    pub name: &'static str,
    /// What carries the name of no system is this one's: earlier versions had only one.
    pub unnamed: bool,
}

impl GuestSystem {
    /// Before all others in their order.
    pub const FIRST: Self = Self {
        name: "",
        unnamed: false,
    };

    /// The name as its releases and series carry it; `None`: they carry none.
    pub fn mark(self) -> Option<&'static str> {
        (!self.unnamed).then_some(self.name)
    }
}

#[cfg(test)]
pub mod testing {
    //! The two sorts of systems.

    use super::GuestSystem;

    /// What carries no name is its.
    pub const FIRST: GuestSystem = GuestSystem {
        name: "first",
        unnamed: true,
    };
    pub const SECOND: GuestSystem = GuestSystem {
        name: "second",
        unnamed: false,
    };
}
