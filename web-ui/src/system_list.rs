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
    pub rows: Vec<Vec<SystemCell>>,
    /// How many there are, whatever the filters say.
    pub total: usize,
    pub pager: Pager,
}

/// A cell of such a list.
#[derive(Clone, Debug, Default)]
pub struct SystemCell {
    pub text: String,
    /// The page of what it names, where that is known.
    pub link: Option<String>,
}

impl SystemListPage {
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

    fn plain(text: &str) -> SystemCell {
        SystemCell {
            text: text.to_owned(),
            link: None,
        }
    }

    #[test]
    fn rows_have_their_heads_and_nothing_is_markup() {
        let page = SystemListPage {
            shell: Shell::default(),
            title: "Brushes".to_owned(),
            system: "sixth".to_owned(),
            filters: Form::default(),
            heads: vec!["NAME".to_owned(), "COLOUR".to_owned()],
            rows: vec![vec![plain("fine"), plain("<b>red</b>")]],
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
