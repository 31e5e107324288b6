//! Signing in.

use askama::Template;

use crate::Shell;

/// The form for name and password.
#[derive(Clone, Debug, Template)]
#[template(path = "login.html")]
pub struct LoginPage {
    pub shell: Shell,
    /// What was typed before; the password is never sent back.
    pub name: String,
    /// The page to go to afterwards; checked by the server.
    pub next: String,
    /// Matches the cookie of this form, as there is no session yet.
    pub token: String,
    pub error: Option<String>,
    /// Somebody else who signs people in.
    pub provider: Option<ProviderLink>,
    /// While the initial admin has not signed in: the file that holds its password.
    pub initial_file: Option<String>,
}

/// A provider that people sign in by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLink {
    pub label: String,
    /// Where the way to it begins.
    pub address: String,
    /// It could not be reached at the last look.
    pub down: bool,
}

/// After coming back from a provider; leads on.
#[derive(Clone, Debug, Template)]
#[template(path = "signed_in.html")]
pub struct SignedInPage {
    pub shell: Shell,
    pub name: String,
    pub next: String,
}

/// After signing out who came by a provider.
#[derive(Clone, Debug, Template)]
#[template(path = "signed_out.html")]
pub struct SignedOutPage {
    pub shell: Shell,
    pub label: String,
    /// Where the session at the provider is ended.
    pub provider: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> LoginPage {
        LoginPage {
            shell: Shell::default(),
            name: "ann\"<x>".into(),
            next: "/ui/audit".into(),
            token: "t0ken".into(),
            error: Some("Name or password is wrong.".into()),
            provider: None,
            initial_file: Some("/var/lib/fipd/initial-admin".into()),
        }
    }

    #[test]
    fn what_was_typed_is_kept_and_escaped() {
        let html = page().render().unwrap();
        assert!(html.contains("value=\"ann&#34;&#60;x&#62;\""), "{html}");
        assert!(!html.contains("<x>"));
        assert!(html.contains("role=\"alert\"") && html.contains("Name or password is wrong."));
        // As long as one may be, since what is pasted beyond is cut off unseen.
        assert!(html.contains("autocomplete=\"current-password\" maxlength=\"1024\""));
        assert!(
            html.contains("name=\"csrf\" value=\"t0ken\"") && html.contains("value=\"/ui/audit\"")
        );
    }

    #[test]
    fn the_first_sign_in_names_the_file() {
        let html = page().render().unwrap();
        assert!(html.contains("sudo cat /var/lib/fipd/initial-admin"));
        let html = LoginPage {
            initial_file: None,
            ..page()
        }
        .render()
        .unwrap();
        assert!(!html.contains("sudo cat"));
    }

    #[test]
    fn a_provider_that_is_down_is_told_beside_the_password() {
        let provider = ProviderLink {
            label: "Example <ID>".into(),
            address: "/ui/login/oidc?next=/ui/audit".into(),
            down: true,
        };
        let html = LoginPage {
            provider: Some(provider),
            ..page()
        }
        .render()
        .unwrap();
        assert!(html.contains("Sign in with Example &#60;ID&#62;"), "{html}");
        let down = html.contains("It cannot be reached at the moment");
        assert!(down && html.contains("name=\"password\""), "{html}");
    }

    #[test]
    fn nothing_of_the_inside_is_shown() {
        let html = page().render().unwrap();
        assert!(!html.contains("<nav") && !html.contains("/ui/logout"));
    }
}
