//! What lists share: columns that may be sorted by, and a form that filters.

use crate::{Form, links};

/// The head of a column.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Column {
    pub label: &'static str,
    /// The same list in the order of this column; `None` where it cannot be had.
    pub link: Option<String>,
    /// Whether the list is in its order: from the lowest on or from the highest.
    pub order: Option<Direction>,
    /// Holds numbers, which stand at the right.
    pub number: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

impl Column {
    /// A column that lists are not sorted by.
    pub fn plain(label: &'static str) -> Self {
        Self {
            label,
            ..Self::default()
        }
    }

    pub(crate) fn aria(&self) -> &'static str {
        match self.order {
            Some(Direction::Up) => "ascending",
            Some(Direction::Down) => "descending",
            None => "none",
        }
    }

    pub(crate) fn arrow(&self) -> &'static str {
        match self.order {
            Some(Direction::Up) => " ↑",
            Some(Direction::Down) => " ↓",
            None => "",
        }
    }
}

impl Form {
    /// Whether a filter is set: something was typed that is not an order.
    pub fn filters(&self) -> bool {
        let set = |input: &crate::Input| !input.field.value.is_empty() && input.name != "sort";
        self.inputs.iter().any(set)
    }
}

/// The columns of pools that are not sorted here.
pub(crate) fn of_pools() -> Vec<Column> {
    let number = |label| Column {
        number: true,
        ..Column::plain(label)
    };
    vec![
        Column::plain("Pool"),
        Column::plain("Network"),
        Column::plain("Family"),
        Column::plain("Use"),
        number("Free"),
    ]
}

/// The columns of leases that are not sorted here.
pub(crate) fn of_leases() -> Vec<Column> {
    ["Address", "State", "Owner", "Since"]
        .map(Column::plain)
        .to_vec()
}

/// The columns of leases of one pool, which are sorted on the page of all leases.
pub(crate) fn of_leases_in(pool: &str) -> Vec<Column> {
    let all = links::leases_of_pool(pool);
    let sorted = |label, sort: &str| Column {
        link: Some(format!("{all}&sort={sort}")),
        ..Column::plain(label)
    };
    let address = Column {
        order: Some(Direction::Up),
        ..Column::plain("Address")
    };
    vec![
        address,
        sorted("State", "state"),
        sorted("Owner", "owner"),
        sorted("Since", "-since"),
    ]
}

/// The columns of decisions that are not sorted here.
pub(crate) fn of_history() -> Vec<Column> {
    ["Time", "Who", "What", "Address", "Pool", "Owner", "Detail"]
        .map(Column::plain)
        .to_vec()
}
