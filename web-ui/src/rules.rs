//! The policy-routing rules of the host.

use askama::Template;

use crate::{Column, Form, Health, Moment, Pager, Shell};

/// One rule, or one source of an indexed set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRow {
    pub health: Health,
    /// Such as `applied`.
    pub state: String,
    /// The set that wants it; empty: none, or several.
    pub owner: String,
    /// `IPv4` or `IPv6`: not every rule says it.
    pub family: &'static str,
    /// As `ip rule` shows it.
    pub text: String,
}

/// One change that is still to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// `add` or `delete`.
    pub does: String,
    pub rule: String,
}

/// The rules of the host.
#[derive(Clone, Debug, Template)]
#[template(path = "rules.html")]
pub struct RulesPage {
    pub shell: Shell,
    /// Whether this host is told to have rules.
    pub on: bool,
    pub health: Health,
    pub state: String,
    /// What that means, and what is waited for.
    pub means: String,
    /// The Node that the host is; empty: none.
    pub node: String,
    /// The tag of fipd's rules.
    pub protocol: u8,
    /// When the kernel was last looked at; `None`: not yet.
    pub at: Option<Moment>,
    /// Whether the visitor may have all of fipd's rules removed, or brought back where they are paused.
    pub may_flush: bool,
    pub paused: bool,
    /// How many there are of each.
    pub counts: Vec<(&'static str, String)>,
    /// What had to be repaired since the start, by cause.
    pub drift: Vec<(&'static str, String)>,
    pub warnings: Vec<String>,
    /// How many steps of the plan are still to be done; `None`: none.
    pub to_do: Option<String>,
    pub filters: Form,
    pub columns: Vec<Column>,
    /// Whether the list is that of the plan, instead of rules.
    pub of_plan: bool,
    pub steps: Vec<StepRow>,
    pub rules: Vec<RuleRow>,
    /// Whether these are rules of others.
    pub strange: bool,
    pub pager: Pager,
    /// The first rules of others.
    pub foreign: Vec<RuleRow>,
    /// Where all of them are; `None`: these are all.
    pub more_foreign: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn row(state: &str, text: &str) -> RuleRow {
        RuleRow {
            health: Health::Good,
            state: state.into(),
            owner: "shop<1>".into(),
            family: "IPv6",
            text: text.into(),
        }
    }

    fn page() -> RulesPage {
        RulesPage {
            shell: sample::shell(false),
            on: true,
            health: Health::Bad,
            state: "degraded".into(),
            means: "CAP_NET_ADMIN is <missing>".into(),
            node: "node-1".into(),
            protocol: 200,
            at: Some(sample::NOW),
            may_flush: false,
            paused: false,
            counts: vec![("Desired", "2".into())],
            drift: vec![("Removed by others", "3".into())],
            warnings: vec!["table 100 has <no> route".into()],
            to_do: Some("1,007".into()),
            of_plan: false,
            steps: Vec::new(),
            filters: Form::default(),
            columns: vec![Column::plain("Rule")],
            rules: vec![row("missing", "10000: from 10.0.0.7 lookup 100 proto 200")],
            strange: false,
            pager: Pager::default(),
            foreign: vec![row("foreign", "5: from all lookup 7 proto 0")],
            more_foreign: Some("/ui/rules?state=foreign".into()),
        }
    }

    #[test]
    fn only_who_may_is_offered_to_flush_or_to_resume() {
        let may = |may_flush, paused| {
            let page = RulesPage {
                may_flush,
                paused,
                ..page()
            };
            let html = page.render().unwrap();
            (
                html.contains("/ui/rules/flush"),
                html.contains("/ui/rules/resume"),
            )
        };
        assert_eq!(may(false, false), (false, false));
        assert_eq!(may(false, true), (false, false));
        assert_eq!(may(true, false), (true, false));
        assert_eq!(may(true, true), (false, true));
    }

    #[test]
    fn what_was_not_looked_at_is_not_said_to_be_well() {
        let unseen = RulesPage {
            at: None,
            to_do: None,
            rules: Vec::new(),
            foreign: Vec::new(),
            ..page()
        };
        let html = unseen.render().unwrap();
        for text in [
            "has all rules that are to be",
            "There are none",
            "No rule is wanted",
        ] {
            assert!(!html.contains(text), "{text} in {html}");
        }
        assert!(html.contains("not looked at"), "{html}");
    }

    #[test]
    fn rules_that_may_come_on_the_next_page_are_not_said_to_be_none() {
        let mut page = RulesPage {
            rules: Vec::new(),
            ..page()
        };
        page.pager.next = Some("/ui/rules?after=x".into());
        let html = page.render().unwrap();
        assert!(html.contains("None so far: go on to the next page."));
    }

    #[test]
    fn state_plan_rules_and_those_of_others_are_shown() {
        let html = page().render().unwrap();
        for text in [
            "class=\"tag bad\">degraded",
            "CAP_NET_ADMIN is &#60;missing&#62;",
            "table 100 has &#60;no&#62; route",
            "shop&#60;1&#62;",
            "Removed by others",
            "Steps still to be done: 1,007.",
            "href=\"/ui/rules?of=plan\"",
            "5: from all lookup 7 proto 0",
            "href=\"/ui/rules?state=foreign\"",
            "data-live",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn the_plan_is_a_list_of_its_own() {
        let of_plan = |to_do: Option<&str>, steps| RulesPage {
            to_do: to_do.map(str::to_owned),
            of_plan: true,
            steps,
            rules: Vec::new(),
            ..page()
        };
        let step = StepRow {
            does: "delete".into(),
            rule: "10000: from 10.0.0.<7>".into(),
        };
        let html = of_plan(Some("1"), vec![step]).render().unwrap();
        for text in [
            "<th scope=\"row\">delete</th>",
            "10000: from 10.0.0.&#60;7&#62;",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        assert!(!html.contains("Rules of others"), "{html}");
        let html = of_plan(Some("1"), Vec::new()).render().unwrap();
        assert!(html.contains("No step is like that."), "{html}");
        let mut none = of_plan(None, Vec::new());
        let html = none.render().unwrap();
        assert!(html.contains("Nothing is left to be done."), "{html}");
        none.at = None;
        let html = none.render().unwrap();
        assert!(!html.contains("Nothing is left to be done."), "{html}");
    }

    #[test]
    fn where_it_is_off_the_next_step_is_named() {
        let html = RulesPage {
            on: false,
            ..page()
        }
        .render()
        .unwrap();
        assert!(html.contains("[host]") && !html.contains("Rules of others"));
    }
}
