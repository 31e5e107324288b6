//! A list that a system serves, by its description alone.

use askama::Template;

use crate::{Form, Pager, Shell};

/// The list.
#[derive(Clone, Debug, Template)]
#[template(path = "system_list.html")]
pub struct SystemListPage {
    pub shell: Shell,
    pub title: String,
    /// The name of the system.
    pub system: String,
    pub filters: Form,
    pub heads: Vec<String>,
    /// As many cells each as there are heads.
    pub rows: Vec<Vec<String>>,
    /// How many there are, whatever the filters say.
    pub total: usize,
    pub pager: Pager,
}

impl SystemListPage {
    /// The cells of a row with their heads.
    fn cells<'a>(&'a self, row: &'a [String]) -> impl Iterator<Item = (&'a String, &'a String)> {
        self.heads.iter().zip(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_heads_and_nothing_is_markup() {
        let page = SystemListPage {
            shell: Shell::default(),
            title: "Brushes".to_owned(),
            system: "sixth".to_owned(),
            filters: Form::default(),
            heads: vec!["NAME".to_owned(), "COLOUR".to_owned()],
            rows: vec![vec!["fine".to_owned(), "<b>red</b>".to_owned()]],
            total: 1,
            pager: Pager::default(),
        };
        let html = page.render().unwrap();
        assert!(html.contains("<td data-label=\"COLOUR\">"), "{html}");
        assert!(html.contains("<th scope=\"row\">fine</th>"), "{html}");
        assert!(!html.contains("<b>red"), "{html}");
        let none = SystemListPage {
            rows: Vec::new(),
            total: 0,
            ..page
        };
        assert!(none.render().unwrap().contains("There are none."));
    }
}
