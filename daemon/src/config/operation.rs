//! What a system can be asked for: a route, a command and, for lists, a page, all by one description.

use std::borrow::Cow;

use serde_json::Value;

/// The operations of a system.
#[derive(Debug)]
pub struct Operations {
    /// Heading of the page of the system.
    pub title: &'static str,
    /// What `fipd SYSTEM` is about.
    pub about: &'static str,
    pub all: &'static [SystemOperation],
}

/// One operation.
#[derive(Debug)]
pub struct SystemOperation {
    /// `fipd SYSTEM NAME`, and the end of the address of its page.
    pub name: &'static str,
    /// A sentence without its full stop, for help, page and OpenAPI document.
    pub about: &'static str,
    /// The pattern of its route, with at most one variable in braces.
    pub path: &'static str,
    /// What the variable is; empty: there is none.
    pub variable: &'static str,
    pub does: Does,
    /// Who serves the route.
    pub served: Served,
}

/// What an operation does.
#[derive(Clone, Copy, Debug)]
pub enum Does {
    /// Shows rows, which the answer has in `field`. Rows with `waiting: true` come first on the page of the system.
    List {
        field: &'static str,
        /// The kind of the objects that rows are about, as holders of leases name it; empty: they are about no objects.
        kind: &'static str,
        columns: &'static [Column],
    },
    /// Changes something; for admins.
    Change,
}

/// Who serves a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The system; a list has a page too.
    BySystem,
    /// The same, for a list about the host that fipd runs on: hosts that decide nothing serve it too, without the page.
    OfHost,
    /// fipd itself, for several systems.
    ByFipd,
    /// The same, which has only what the system says of its guests. The page is that of all guests.
    Guests,
}

/// A column of a list.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    /// Of the JSON object that is a row.
    pub field: &'static str,
    pub link: ColumnLink,
}

/// The page that a cell leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnLink {
    None,
    /// Of the pool whose number the row has in `FIELD_id`.
    Pool,
    /// Of the address, in the network whose number the row has in `FIELD_network`.
    Lease,
    /// The list of this name of the same system, with rows that contain the cell.
    Rows(&'static str),
}

impl SystemOperation {
    /// The name of the variable in the path.
    pub fn variable_name(&self) -> Option<&'static str> {
        let (_, rest) = self.path.split_once('{')?;
        rest.split('}').next()
    }

    /// The path with the value of its variable, which is already fit for a URL.
    pub fn path_of(&self, value: &str) -> String {
        match self.variable_name() {
            Some(name) => self.path.replace(&format!("{{{name}}}"), value),
            None => self.path.to_owned(),
        }
    }

    /// Whether other systems have rows in the list too.
    pub fn is_shared_list(&self) -> bool {
        matches!(self.does, Does::List { .. }) && self.served == Served::ByFipd
    }

    /// Where the page of a list is; `None`: it has none of its own.
    pub fn page(&self, system: &str) -> Option<String> {
        let own = matches!(self.served, Served::BySystem | Served::OfHost);
        let has = matches!(self.does, Does::List { .. }) && own;
        has.then(|| format!("/ui/{system}/{}", self.name))
    }
}

impl Column {
    pub const fn new(title: &'static str, field: &'static str) -> Self {
        let link = ColumnLink::None;
        Self { title, field, link }
    }

    pub const fn to(self, link: ColumnLink) -> Self {
        Self { link, ..self }
    }

    /// The cell of a row: a text as it is, a list joined, the names of an object.
    pub fn cell(&self, row: &Value) -> String {
        match row.get(self.field) {
            None | Some(Value::Null) => String::new(),
            Some(Value::Array(all)) => all.iter().map(plain).collect::<Vec<_>>().join(","),
            Some(Value::Object(all)) => all.keys().cloned().collect::<Vec<_>>().join(","),
            Some(one @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => {
                plain(one).into_owned()
            }
        }
    }
}

fn plain(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.into(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_texts_whatever_a_row_has() {
        let row = json!({ "text": "a", "number": 7, "list": ["x", 1], "map": { "k": 1, "l": {} }, "nothing": null });
        let cell = |field| Column::new("", field).cell(&row);
        let cells = ["text", "number", "list", "map", "nothing", "missing"].map(cell);
        assert_eq!(cells, ["a", "7", "x,1", "k,l", "", ""]);
    }

    #[test]
    fn a_path_has_the_value_of_its_variable() {
        let operation = SystemOperation {
            name: "rotate",
            about: "",
            path: "/api/v1/projects/{project}/rotate",
            variable: "Its id",
            does: Does::Change,
            served: Served::BySystem,
        };
        assert_eq!(operation.variable_name(), Some("project"));
        assert_eq!(operation.path_of("p-1"), "/api/v1/projects/p-1/rotate");
        assert_eq!(operation.page("x"), None);
    }
}
