//! What all pages share: head, navigation, who is signed in, a notice, paging.

use fipd_core::LeaseState;

/// The frame of a page.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Shell {
    /// The entry of the navigation that is marked as current.
    pub nav: Nav,
    /// `None` on pages that are shown before signing in.
    pub viewer: Option<Viewer>,
    /// What the last form did; shown once.
    pub notice: Option<Notice>,
    /// Why nothing new is decided at the moment; `None`: it is.
    pub store: Option<String>,
}

/// Entries of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Nav {
    Dashboard,
    Pools,
    Leases,
    Tenants,
    Clusters,
    Rules,
    Hosts,
    Audit,
    Users,
    Backup,
    Settings,
    About,
    #[default]
    None,
}

/// Who looks at the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    pub name: String,
    pub role: String,
    /// Whether forms that change something are shown; the server checks again.
    pub may_write: bool,
    /// Sent along with every form.
    pub csrf: String,
}

/// One sentence on top of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub good: bool,
    pub text: String,
    /// Address and text of a link after the sentence.
    pub link: Option<(String, String)>,
}

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Pager {
    /// Back to the start; `None` on the first page.
    pub first: Option<String>,
    pub next: Option<String>,
    /// What this page shows.
    pub label: String,
}

impl Pager {
    /// Of a list that only goes on: its start, unless this is it, and the next page.
    pub fn onward(first: Option<String>, next: Option<String>) -> Self {
        let label = String::new();
        Self { first, next, label }
    }
}

impl Shell {
    /// The token of the session; empty on pages without one.
    pub fn csrf(&self) -> &str {
        self.viewer.as_ref().map_or("", |viewer| &viewer.csrf)
    }

    /// Whether forms are shown.
    pub fn may_write(&self) -> bool {
        self.viewer.as_ref().is_some_and(|viewer| viewer.may_write)
    }

    /// Whether what only admins do is offered.
    pub fn is_admin(&self) -> bool {
        self.viewer
            .as_ref()
            .is_some_and(|viewer| viewer.role == "admin")
    }

    /// Whether a lease in this state may be released by hand: only an admin ends a quarantine.
    pub(crate) fn may_release(&self, state: &LeaseState) -> bool {
        self.may_write() && (*state != LeaseState::Quarantined || self.is_admin())
    }

    pub(crate) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}

#[cfg(test)]
mod tests {
    use askama::Template as _;

    use crate::{ErrorPage, Shell, sample};

    #[test]
    fn every_page_says_that_nothing_is_decided_to_those_who_are_signed_in() {
        let html = |shell: Shell| {
            let page = ErrorPage {
                shell,
                status: 404,
                title: "Not found".into(),
                what: "w".into(),
                next: "n".into(),
            };
            page.render().unwrap()
        };
        let mut shell = sample::shell(true);
        assert!(!html(shell.clone()).contains("id=\"store\""));
        shell.store = Some("The disk <is> full".into());
        assert!(
            html(shell)
                .contains("The disk &#60;is&#62; full. Until that is over nothing new is decided")
        );
        // Nothing is told to strangers, nor of time and version.
        let open = html(Shell::default());
        assert!(!open.contains("<footer") && !open.contains("<script"));
    }
}
