//! What all pages share: head, navigation, who is signed in, a notice, paging.

use crate::assets;

/// The frame of a page.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Shell {
    /// The entry of the navigation that is marked as current.
    pub nav: Nav,
    /// `None` on pages that are shown before signing in.
    pub viewer: Option<Viewer>,
    /// What the last form did; shown once.
    pub notice: Option<Notice>,
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
    Audit,
    Users,
    Backup,
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
    pub(crate) fn may_release(&self, state: &crate::State) -> bool {
        self.may_write() && (*state != crate::State::Quarantined || self.is_admin())
    }

    pub(crate) fn is(&self, nav: Nav) -> bool {
        self.nav == nav
    }

    pub(crate) fn style(&self) -> String {
        assets::style()
    }

    pub(crate) fn script(&self) -> String {
        assets::script()
    }

    pub(crate) fn icon(&self) -> String {
        assets::icon()
    }
}
