//! What this program is and what it is made of.

use askama::Template;

use crate::{Column, Form, Pager, Shell, licences::Licence};

/// The page about fipd.
#[derive(Clone, Debug, Template)]
#[template(path = "about.html")]
pub struct AboutPage {
    pub shell: Shell,
    /// Name and value: version, commit, how it was built.
    pub facts: Vec<(&'static str, String)>,
    pub filters: Form,
    pub columns: Vec<Column>,
    /// How many packages there are, whatever the filters say.
    pub total: usize,
    pub packages: Vec<Licence>,
    pub pager: Pager,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{licences, sample};

    #[test]
    fn says_the_version_and_the_licences() {
        let page = AboutPage {
            shell: sample::shell(false),
            facts: vec![("Version", "1.2.3".into())],
            filters: Form::default(),
            columns: vec![Column::plain("Package")],
            total: 7,
            packages: licences::all().filter(|one| one.name == "redb").collect(),
            pager: Pager::default(),
        };
        let html = page.render().unwrap();
        for text in [
            "1.2.3",
            ">redb<",
            "Apache-2.0",
            "7 packages",
            "rel=\"noreferrer\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        assert!(!html.contains("/ui/settings"), "only admins may open them");
    }
}
