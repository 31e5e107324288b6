//! Lists that a system serves, by their descriptions alone.

use askama::Template;

use crate::{Form, Pager, Shell};

/// One list, whole.
#[derive(Clone, Debug, Template)]
#[template(path = "system_list.html")]
pub struct SystemListPage {
    pub shell: Shell,
    pub title: String,
    /// The name of the system.
    pub system: String,
    /// Heading of the page of the system.
    pub system_title: String,
    pub filters: Form,
    pub table: SystemTable,
    /// How many rows there are, whatever the filters say.
    pub total: usize,
    pub pager: Pager,
}

/// All lists of a system, each with its first rows.
#[derive(Clone, Debug, Template)]
#[template(path = "system.html")]
pub struct SystemPage {
    pub shell: Shell,
    pub title: String,
    /// The name of the system.
    pub system: String,
    pub sections: Vec<SystemSection>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct SystemSection {
    /// Its name, which no other section has.
    pub name: String,
    pub title: String,
    /// The address of the whole list.
    pub here: String,
    pub table: SystemTable,
    /// How many rows there are.
    pub total: usize,
}

/// Rows of a list.
#[derive(Clone, Debug, Default)]
pub struct SystemTable {
    pub heads: Vec<String>,
    /// As many cells each as there are heads.
    pub rows: Vec<Vec<SystemCell>>,
}

/// A cell of such a list.
#[derive(Clone, Debug, Default)]
pub struct SystemCell {
    pub text: String,
    /// The page of what it names, where that is known.
    pub link: Option<String>,
}

impl SystemTable {
    /// The cells of a row with their heads.
    fn cells<'a>(
        &'a self,
        row: &'a [SystemCell],
    ) -> impl Iterator<Item = (&'a String, &'a SystemCell)> {
        self.heads.iter().zip(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str, link: Option<&str>) -> SystemCell {
        SystemCell {
            text: text.to_owned(),
            link: link.map(str::to_owned),
        }
    }

    fn table() -> SystemTable {
        SystemTable {
            heads: vec!["NAME".to_owned(), "COLOUR".to_owned()],
            rows: vec![vec![
                cell("fine", Some("/ui/pools/1")),
                cell("<b>red</b>", None),
            ]],
        }
    }

    #[test]
    fn rows_have_their_heads_and_nothing_is_markup() {
        let page = SystemListPage {
            shell: Shell::default(),
            title: "Brushes".to_owned(),
            system: "sixth".to_owned(),
            system_title: "Painting".to_owned(),
            filters: Form::default(),
            table: table(),
            total: 1,
            pager: Pager::default(),
        };
        let html = page.render().unwrap();
        let named = "<th scope=\"row\"><a href=\"/ui/pools/1\">fine</a></th>";
        for text in [
            "<td data-label=\"COLOUR\">",
            named,
            "<a href=\"/ui/sixth\">Painting</a>",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert!(!html.contains("<b>red"), "{html}");
        let none = SystemListPage {
            table: SystemTable::default(),
            total: 0,
            ..page
        };
        assert!(none.render().unwrap().contains("There are none."));
    }

    #[test]
    fn the_page_of_a_system_has_all_its_lists() {
        let section = |name: &str, table: SystemTable, total| SystemSection {
            name: name.to_owned(),
            title: name.to_uppercase(),
            here: format!("/ui/sixth/{name}"),
            table,
            total,
        };
        let page = SystemPage {
            shell: Shell::default(),
            title: "Painting".to_owned(),
            system: "sixth".to_owned(),
            sections: vec![
                section("brushes", table(), 21),
                section("pots", SystemTable::default(), 0),
            ],
        };
        let html = page.render().unwrap();
        for text in [
            "<a href=\"/ui/sixth/brushes\">All 21</a>",
            "id=\"pots-title\">POTS<",
            "There are none.",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
    }
}
