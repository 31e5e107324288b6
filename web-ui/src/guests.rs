//! The clusters that Rancher manages and the cluster manager looks after.

use askama::Template;

use crate::{Form, Health, Moment, Pager, Shell};

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestRow {
    /// The name people see; the id where it has none.
    pub name: String,
    /// Rancher's id of it.
    pub id: String,
    /// The configured name of its Rancher.
    pub rancher: String,
    /// The system that says this; empty: the first.
    pub system: String,
    pub health: Health,
    pub phase: String,
    pub message: String,
    pub since: Moment,
    /// Why it was not ready last; empty: it always was.
    pub last_error: String,
    pub details: Vec<DetailRow>,
    pub releases: Vec<ReleaseRow>,
}

/// What else a system says of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailRow {
    pub label: String,
    pub says: DetailText,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetailText {
    Plain(String),
    /// Where each leads, and its text.
    Links(Vec<(String, String)>),
    Projects(Vec<ProjectRow>),
}

/// A project that a guest may ask addresses for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRow {
    pub id: String,
    /// What people call it; empty: nothing else.
    pub name: String,
    /// The pool of Services that name none.
    pub pool: String,
}

/// A chart that a guest is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRow {
    pub name: String,
    pub namespace: String,
    pub chart: String,
    pub version: String,
    pub health: Health,
    /// Such as `deployed`, or what goes on.
    pub state: String,
    /// The last error; empty: none.
    pub error: String,
    /// Since when its last result is what it is.
    pub since: Option<Moment>,
}

/// All guests.
#[derive(Clone, Debug, Template)]
#[template(path = "guests.html")]
pub struct GuestsPage {
    pub shell: Shell,
    pub filters: Form,
    /// How many there are, whatever the filters say.
    pub total: usize,
    pub guests: Vec<GuestRow>,
    pub pager: Pager,
}

impl GuestRow {
    /// The last error, where the phase does not tell it anyway.
    pub(crate) fn was_ill(&self) -> Option<&str> {
        let told = self.health != Health::Good || self.last_error.is_empty();
        (!told).then_some(&*self.last_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn guest(health: Health) -> GuestRow {
        GuestRow {
            name: "shop<1>".into(),
            id: "c-m-abc12".into(),
            rancher: "rancher".into(),
            system: String::new(),
            health,
            phase: "Waiting".into(),
            message: "no project is marked on namespace vms".into(),
            since: sample::NOW,
            last_error: "NoProject: none".into(),
            details: vec![
                DetailRow {
                    label: "Load balancer".into(),
                    says: DetailText::Plain("purelb".into()),
                },
                DetailRow {
                    label: "Addresses".into(),
                    says: DetailText::Links(vec![
                        (
                            "/ui/networks/0/addresses/10.0.0.5".into(),
                            "10.0.0.5".into(),
                        ),
                        (
                            "/ui/networks/0/addresses/10.0.0.6".into(),
                            "10.0.0.6".into(),
                        ),
                    ]),
                },
                DetailRow {
                    label: "Projects and their pools".into(),
                    says: DetailText::Projects(vec![ProjectRow {
                        id: "p-x7k2f".into(),
                        name: "Shop <2>".into(),
                        pool: "harv--vlan-20".into(),
                    }]),
                },
            ],
            releases: vec![ReleaseRow {
                name: "purelb".into(),
                namespace: "rancher-fip-manager".into(),
                chart: "purelb".into(),
                version: "0.14.1".into(),
                health: Health::Bad,
                state: "failed".into(),
                error: "UpgradeFailed: <timeout>".into(),
                since: Some(sample::NOW),
            }],
        }
    }

    fn html(guests: Vec<GuestRow>) -> String {
        html_for(true, guests)
    }

    fn html_for(operator: bool, guests: Vec<GuestRow>) -> String {
        let page = GuestsPage {
            shell: sample::shell(operator),
            filters: Form::default(),
            total: guests.len(),
            guests,
            pager: Pager::default(),
        };
        page.render().unwrap()
    }

    #[test]
    fn what_a_guest_waits_for_and_gets_is_shown() {
        let html = html(vec![guest(Health::Busy)]);
        for text in [
            "shop&#60;1&#62;",
            "c-m-abc12",
            "class=\"tag busy\"",
            "no project is marked on namespace vms",
            "href=\"/ui/tenants?filter=p-x7k2f\"",
            "p-x7k2f (Shop &#60;2&#62;)",
            "harv--vlan-20",
            "purelb 0.14.1",
            "class=\"tag bad\">failed",
            "UpgradeFailed: &#60;timeout&#62;",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        assert!(!html.contains("NoProject: none"), "it is told already");
        let viewer = html_for(false, vec![guest(Health::Busy)]);
        assert!(viewer.contains("p-x7k2f (Shop &#60;2&#62;)") && !viewer.contains("/ui/tenants"));
    }

    #[test]
    fn the_facts_stand_in_lines_of_their_own_and_a_second_system_is_named() {
        let shown = html(vec![guest(Health::Busy)]);
        let facts = "<div><dt>Load balancer</dt><dd>purelb</dd></div>\n<div><dt>Addresses</dt><dd><a href=\"/ui/networks/0/addresses/10.0.0.5\">10.0.0.5</a>, <a href=\"/ui/networks/0/addresses/10.0.0.6\">10.0.0.6</a></dd></div>\n<div><dt>Projects and their pools</dt><dd><a href=\"/ui/tenants?filter=p-x7k2f\">p-x7k2f (Shop &#60;2&#62;)</a>: harv--vlan-20</dd></div>\n<div><dt>Charts</dt>";
        assert!(shown.contains(facts), "{shown}");
        assert!(!shown.contains("second"));
        let second = GuestRow {
            system: "second".into(),
            details: vec![],
            ..guest(Health::Busy)
        };
        let shown = html(vec![second]);
        assert!(
            shown.contains("<span class=\"tag\">second</span>"),
            "{shown}"
        );
    }

    #[test]
    fn a_guest_that_is_well_tells_what_it_had() {
        assert!(html(vec![guest(Health::Good)]).contains("NoProject: none"));
    }

    #[test]
    fn without_guests_the_next_step_is_named() {
        let html = html(vec![]);
        for text in ["cluster-manager", "rancher-fip=enabled"] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }
}
