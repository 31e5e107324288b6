//! The audit log.

use askama::Template;

use crate::{Column, Form, Moment, Pager, Shell};

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub at: Moment,
    pub actor: String,
    pub action: String,
    /// The address and the link to its page.
    pub address: Option<(String, String)>,
    /// The pool's name and the link to its page; the link is empty where the pool is gone.
    pub pool: Option<(String, String)>,
    pub owner: String,
    pub detail: String,
}

/// One page of it.
#[derive(Clone, Debug, Template)]
#[template(path = "audit.html")]
pub struct AuditPage {
    pub shell: Shell,
    pub filters: Form,
    /// The same rows as CSV, all of them; `None` while a filter is wrong.
    pub csv: Option<String>,
    pub columns: Vec<Column>,
    pub rows: Vec<AuditRow>,
    pub pager: Pager,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, sample};

    #[test]
    fn rows_name_time_actor_action_and_object() {
        let page = AuditPage {
            shell: sample::shell(false),
            filters: Form {
                target: "/ui/audit".into(),
                inputs: vec![Input::new("actor", "Who").value("a<nn")],
                ..Form::default()
            },
            csv: Some("/ui/audit.csv?actor=a%3Cnn".into()),
            columns: crate::list::of_history(),
            rows: sample::history(),
            pager: Pager {
                first: Some("/ui/audit".into()),
                next: None,
                label: "Rows 51 to 52".into(),
            },
        };
        let html = page.render().unwrap();
        for text in [
            "user:ann",
            "handed-over",
            "datetime=\"2026-11-21T05:57:20Z\"",
            "Rows 51 to 52",
            "a &#60;reason&#62;",
            "value=\"a&#60;nn\"",
            "href=\"/ui/audit.csv?actor=a%3Cnn\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn an_empty_log_says_so() {
        let page = AuditPage {
            shell: sample::shell(false),
            filters: Form::default(),
            csv: None,
            columns: crate::list::of_history(),
            rows: vec![],
            pager: Pager::default(),
        };
        assert!(page.render().unwrap().contains("Nothing was decided yet"));
    }
}
