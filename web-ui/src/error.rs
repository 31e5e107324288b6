//! Pages for what cannot be shown.

use askama::Template;

use crate::Shell;

/// One sentence about what is wrong and one about what to do.
#[derive(Clone, Debug, Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    pub shell: Shell,
    /// HTTP status.
    pub status: u16,
    pub title: String,
    pub what: String,
    pub next: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_and_what_next() {
        let page = ErrorPage {
            shell: Shell::default(),
            status: 404,
            title: "Not found".into(),
            what: "There is no pool <9>.".into(),
            next: "Go back to the list of pools.".into(),
        };
        let html = page.render().unwrap();
        assert!(html.contains("<title>Not found – fipd</title>"));
        assert!(html.contains("404") && html.contains("There is no pool &#60;9&#62;."));
        assert!(html.contains("Go back to the list of pools."));
    }
}
