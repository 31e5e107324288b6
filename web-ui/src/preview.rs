//! What an edit of a pool would do, before it is done.

use askama::Template;

use crate::{Form, LeaseRow, Shell, count};

/// A quota that the edit touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchedQuota {
    pub tenant: String,
    pub used: u64,
    pub limit: u64,
}

/// Shown between the form of a pool and its doing.
#[derive(Clone, Debug, Default, Template)]
#[template(path = "preview.html")]
pub struct PreviewPage {
    pub shell: Shell,
    /// `Make pool dmz?`
    pub title: String,
    pub trail: Vec<(String, String)>,
    /// Label, before (empty for a new pool) and after of what becomes another.
    pub changes: Vec<(&'static str, String, String)>,
    /// Addresses or prefixes that can be given, before and after.
    pub size: (Option<u128>, Option<u128>),
    /// The pool gives prefixes.
    pub prefixes: bool,
    /// Leases that would be out of range, the first few.
    pub leaving: Vec<LeaseRow>,
    /// How many there are in all, at least.
    pub leaving_count: usize,
    pub leaving_more: bool,
    /// The list that has all of them, among others of the pool.
    pub leaving_list: String,
    /// Addresses and names of pools that share addresses with it.
    pub overlaps: Vec<(String, String)>,
    pub quotas: Vec<TouchedQuota>,
    /// Why it cannot be done; empty where it can.
    pub obstacle: String,
    /// The values, and a reason where one is needed.
    pub form: Form,
    /// Whether the form can be had back to change something.
    pub editable: bool,
    pub back: String,
}

impl PreviewPage {
    pub(crate) fn leaving_text(&self) -> String {
        let many = count(self.leaving_count);
        let or_more = if self.leaving_more { " or more" } else { "" };
        match self.leaving_count {
            1 => "1 lease would be out of range".to_owned(),
            _ => format!("{many}{or_more} leases would be out of range"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fipd_core::LeaseState;

    use crate::{Input, InputKind, sample};

    fn page() -> PreviewPage {
        let hidden = Input::new("name", "").kind(InputKind::Hidden);
        PreviewPage {
            shell: sample::shell(true),
            title: "Change pool dmz?".into(),
            trail: vec![],
            changes: vec![("Addresses", "10.0.0.0/24".into(), "10.0.0.0/25 <b>".into())],
            size: (Some(254), Some(126)),
            prefixes: true,
            leaving: vec![sample::lease("10.20.0.7", LeaseState::Allocated)],
            leaving_count: 1_204,
            leaving_more: false,
            leaving_list: "/ui/leases?pool=dmz&within=10.0.0.1-10.0.0.9".into(),
            overlaps: vec![("/ui/pools/3".into(), "o<ther>".into())],
            quotas: vec![TouchedQuota {
                tenant: "team<a>".into(),
                used: 3,
                limit: 200,
            }],
            obstacle: String::new(),
            form: Form {
                target: "/ui/pools/1/edit".into(),
                inputs: vec![
                    hidden.value("dmz"),
                    Input::new("reason", "Reason").required(),
                ],
                button: "Change it".into(),
                danger: true,
                ..Form::default()
            },
            editable: true,
            back: "/ui/pools/1".into(),
        }
    }

    #[test]
    fn says_what_changes_and_what_would_break() {
        let html = page().render().unwrap();
        for text in [
            "10.0.0.0/25 &#60;b&#62;",
            "Prefixes that can be given: <strong>254</strong> before",
            "254",
            "126",
            "1,204 leases would be out of range",
            "10.20.0.7",
            "and 1,203 more",
            "href=\"/ui/leases?pool=dmz&#38;within=10.0.0.1-10.0.0.9\"",
            "o&#60;ther&#62;",
            "team&#60;a&#62;",
            "name=\"reason\"",
            "name=\"step\" value=\"do\"",
            "name=\"step\" value=\"edit\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn what_cannot_be_done_has_no_button() {
        let mut page = page();
        page.obstacle = "It still has leases.".into();
        let html = page.render().unwrap();
        assert!(html.contains("It still has leases.") && !html.contains("value=\"do\""));
    }
}
