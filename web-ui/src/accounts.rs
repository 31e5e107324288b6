//! Who may sign in, and with which tokens programs do.

use askama::Template;

use crate::{Column, Form, Moment, Pager, Shell};

/// Somebody who signs in with a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRow {
    pub name: String,
    pub role: String,
    pub created: Moment,
    /// May not sign in.
    pub disabled: bool,
    /// It is who looks at the page.
    pub me: bool,
}

/// What a program signs in with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    pub id: u64,
    pub name: String,
    pub role: String,
    /// What it is limited to; empty where it is not.
    pub scope: String,
    pub created: Moment,
    pub expires: Option<Moment>,
    pub expired: bool,
}

/// The list of users, or of those who are signed in by the provider.
#[derive(Clone, Debug, Template)]
#[template(path = "users.html")]
pub struct UsersPage {
    pub shell: Shell,
    pub filters: Form,
    pub columns: Vec<Column>,
    pub users: Vec<UserRow>,
    pub provided: Vec<ProvidedRow>,
    /// How many are signed in by the provider, whichever are listed.
    pub signed_in: usize,
    pub pager: Pager,
}

/// Somebody who is signed in by a provider, and has no account here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvidedRow {
    pub name: String,
    pub role: String,
    /// How many sessions.
    pub sessions: usize,
}

/// The list of tokens.
#[derive(Clone, Debug, Template)]
#[template(path = "tokens.html")]
pub struct TokensPage {
    pub shell: Shell,
    pub filters: Form,
    pub columns: Vec<Column>,
    pub tokens: Vec<TokenRow>,
    pub pager: Pager,
}

/// A token that was made; its text is on this page and nowhere else.
#[derive(Clone, Debug, Template)]
#[template(path = "token_made.html")]
pub struct TokenMadePage {
    pub shell: Shell,
    pub name: String,
    pub text: String,
}

/// A sign-in that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    pub id: String,
    pub from: String,
    pub browser: String,
    pub began: Moment,
    pub seen: Moment,
    /// It is the one that shows this page.
    pub mine: bool,
}

/// Where somebody is signed in.
#[derive(Clone, Debug, Template)]
#[template(path = "sessions.html")]
pub struct SessionsPage {
    pub shell: Shell,
    /// Whose they are; `None`: of who looks at the page.
    pub of: Option<String>,
    pub target: String,
    pub filters: Form,
    pub columns: Vec<Column>,
    /// How many there are, whatever the filters say.
    pub total: usize,
    pub sessions: Vec<SessionRow>,
    pub pager: Pager,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{links, sample};

    #[test]
    fn users_and_tokens_are_listed_with_what_can_be_done() {
        let user = |name: &str, me: bool| UserRow {
            name: name.into(),
            role: "admin".into(),
            created: Moment(1_795_240_640_000),
            disabled: !me,
            me,
        };
        let page = UsersPage {
            shell: sample::shell(true),
            filters: Form::default(),
            columns: vec![],
            users: vec![user("ann", true), user("bob@lab", false)],
            provided: vec![ProvidedRow {
                name: "eve@https://idp.example/realms/a".into(),
                role: "operator".into(),
                sessions: 2,
            }],
            signed_in: 1,
            pager: Pager::default(),
        };
        let html = page.render().unwrap();
        for text in [
            "/ui/users/ann/edit",
            "/ui/users/bob@lab/delete",
            "/ui/users/eve%40https%3A%2F%2Fidp.example%2Frealms%2Fa/sessions",
            "/ui/users?by=provider",
            "you",
            "disabled",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        let page = TokensPage {
            shell: sample::shell(true),
            filters: Form::default(),
            columns: vec![],
            tokens: vec![TokenRow {
                id: 77,
                name: "ci".into(),
                role: "operator".into(),
                scope: "pool dmz".into(),
                created: Moment(0),
                expires: Some(Moment(1)),
                expired: true,
            }],
            pager: Pager::default(),
        };
        let html = page.render().unwrap();
        for text in ["/ui/tokens/77/revoke", "expired", "pool dmz", "operator"] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn each_session_can_be_ended_and_the_own_one_is_marked() {
        let row = |id: &str, mine: bool| SessionRow {
            id: id.into(),
            from: "192.0.2.7".into(),
            browser: "<b>".into(),
            began: Moment(0),
            seen: Moment(1),
            mine,
        };
        let html = SessionsPage {
            shell: sample::shell(true),
            of: None,
            target: links::SESSIONS.into(),
            filters: Form::default(),
            columns: vec![],
            total: 2,
            sessions: vec![row("aa", true), row("bb", false)],
            pager: Pager::default(),
        }
        .render()
        .unwrap();
        for text in [
            "value=\"bb\"",
            "this one",
            "&#60;b&#62;",
            "value=\"others\"",
            "name=\"csrf\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn a_new_token_is_shown_with_how_to_use_it() {
        let page = TokenMadePage {
            shell: sample::shell(true),
            name: "ci".into(),
            text: "fipd_77_abc".into(),
        };
        let html = page.render().unwrap();
        assert!(html.contains("fipd_77_abc") && html.contains("not be shown again"));
    }
}
