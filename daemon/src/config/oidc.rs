//! `[oidc]`: signing in at the pages by an OpenID Connect provider, beside the accounts of fipd.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use fipd_core::{Role, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{checked::checked, error::shown, place::place};

/// The section. It needs `[api] advertise`, where the provider sends browsers back to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Oidc {
    /// The provider, as it names itself: `https://HOST[:PORT][/PATH]`.
    pub issuer: Issuer,
    /// By which the provider knows fipd.
    pub client_id: Text,
    /// File with the secret that goes with it. Without: a public client, which has only PKCE.
    #[serde(default)]
    pub client_secret_file: Option<PathBuf>,
    /// What the provider is asked for beside `openid`.
    #[serde(default = "scopes")]
    pub scopes: BTreeSet<Text>,
    /// The claim of the ID token that people are named by. Who has none there is named by `sub`. A name that the provider
    /// gives to somebody else later is one and the same in the audit log, with the groups of who has it; `sub` is given once.
    #[serde(default = "name_claim")]
    pub name_claim: Text,
    /// The claim with the groups or roles, a name or a path such as `realm_access.roles`.
    #[serde(default = "role_claim")]
    pub role_claim: Text,
    /// Which of them make whom of somebody.
    pub roles: OidcRoles,
    /// What the button at the login says, after "Sign in with".
    #[serde(default = "label")]
    pub label: Text,
    /// PEM file of CAs that are trusted beside the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

/// Groups or roles of the provider by what they may here; the highest counts. Who is in none is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct OidcRoles {
    /// Who looks.
    pub viewer: BTreeSet<Text>,
    /// Who gives and takes addresses.
    pub operator: BTreeSet<Text>,
    /// Who does everything.
    pub admin: BTreeSet<Text>,
}

/// `https://HOST[:PORT][/PATH]`; `http://` only on this host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Issuer(pub Text);

fn scopes() -> BTreeSet<Text> {
    ["profile".into(), "groups".into()].into()
}

fn name_claim() -> Text {
    "preferred_username".into()
}

fn role_claim() -> Text {
    "groups".into()
}

fn label() -> Text {
    "single sign-on".into()
}

checked!(Issuer(String), |text| {
    let uri = text.parse::<http::Uri>().ok();
    let fine = |uri: &http::Uri| {
        let host = uri.host().unwrap_or_default();
        let here = ["127.0.0.1", "[::1]", "localhost"].contains(&host);
        let scheme = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => here,
            Some(_) | None => false,
        };
        let plain = uri.query().is_none() && !text.contains(['#', '@']);
        scheme && plain && !host.is_empty()
    };
    if uri.as_ref().is_some_and(fine) {
        return Ok(text.into());
    }
    Err(format!(
        "[oidc] issuer = {:?}: allowed is https://HOST[:PORT][/PATH] without query, as the provider names itself",
        shown(&text)
    ))
});

impl OidcRoles {
    /// The highest role that one of these names has.
    pub fn of(&self, names: &[&str]) -> Option<Role> {
        let role = |name: &str| {
            let among = |set: &BTreeSet<Text>| set.contains(name);
            let all = [
                (Role::Admin, among(&self.admin)),
                (Role::Operator, among(&self.operator)),
                (Role::Viewer, among(&self.viewer)),
            ];
            all.into_iter().find(|(_, has)| *has).map(|(role, _)| role)
        };
        names.iter().filter_map(|name| role(name)).max()
    }

    fn is_empty(&self) -> bool {
        self.viewer.is_empty() && self.operator.is_empty() && self.admin.is_empty()
    }
}

impl Oidc {
    pub(super) fn resolve_paths(&mut self, base: &Path) {
        for path in [&mut self.client_secret_file, &mut self.ca_file]
            .into_iter()
            .flatten()
        {
            *path = place(base, path);
        }
    }

    /// What is wrong with the section as a whole.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.roles.is_empty() {
            return Err("[oidc.roles] is empty, so that everybody would be refused; allowed are viewer, operator and admin with lists of the provider's groups".into());
        }
        if self.client_id.trim().is_empty() {
            return Err(
                "[oidc] client-id is empty; give the one that the provider has for fipd".into(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_role_counts_and_strangers_have_none() {
        let roles = OidcRoles {
            viewer: ["staff".into()].into(),
            operator: ["ops".into(), "net".into()].into(),
            admin: ["root".into()].into(),
        };
        let of = |names: &[&str]| roles.of(names);
        assert_eq!(of(&["staff", "net", "x"]), Some(Role::Operator));
        assert_eq!(of(&["root", "staff"]), Some(Role::Admin));
        assert_eq!(of(&["Staff", ""]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn an_issuer_is_reached_by_tls_unless_it_is_this_host() {
        for fine in ["https://idp.example/realms/a", "http://127.0.0.1:9000"] {
            assert!(Issuer::try_from(fine.to_owned()).is_ok(), "{fine}");
        }
        for wrong in [
            "http://idp.example",
            "idp.example",
            "https://idp.example?x=1",
            "https://me@idp.example",
            "",
        ] {
            assert!(Issuer::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
