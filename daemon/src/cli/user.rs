//! `fipd user`.

use clap::Subcommand;
use fipd_core::Role;
use http::Method;

use super::{CliSession, client::segment, exit::Failure, output::Table, password, token::role};
use crate::api::wire::{Password, UserCreate, UserList, UserPatch, UserView};

#[derive(Debug, Subcommand)]
pub enum User {
    /// Create a user; the password is asked for, or the first line of stdin
    Create {
        name: String,
        /// What the user may do
        #[arg(long, value_parser = role, value_name = "viewer|operator|admin")]
        role: Role,
    },
    /// All users
    List,
    /// Let a user do more or less; the user has to sign in again
    SetRole {
        name: String,
        #[arg(value_parser = role, value_name = "viewer|operator|admin")]
        role: Role,
    },
    /// Give a user another password, asked for or the first line of stdin; the user has to sign in again
    SetPassword { name: String },
    /// End a user's sessions and let nobody sign in as the user; tokens the user knows are to be revoked as well
    Disable { name: String },
    /// Let a disabled user sign in again
    Enable { name: String },
    /// End a user's sessions, also of one who signs in by a provider; the user may sign in again
    SignOut { name: String },
    /// Delete a user and end the user's sessions
    Delete { name: String },
}

impl User {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let users = "/api/v1/users";
        let of = |name: &str| format!("{users}/{}", segment(name));
        let mut patch = UserPatch::default();
        let name = match self {
            Self::Create { name, role } => {
                let password = Password(password::ask(&name)?);
                let body = UserCreate {
                    name,
                    role,
                    password,
                };
                return session.post_and_show(users, &body, facts).await;
            }
            Self::List => return session.show_list(users, "users", table).await,
            Self::SetRole { name, role } => {
                patch.role = Some(role);
                name
            }
            Self::SetPassword { name } => {
                patch.password = Some(Password(password::ask(&name)?));
                name
            }
            Self::Disable { name } => {
                patch.disabled = Some(true);
                name
            }
            Self::Enable { name } => {
                patch.disabled = Some(false);
                name
            }
            Self::SignOut { name } => {
                let sessions = format!("{}/sessions", of(&name));
                return session.client.delete(&sessions).await;
            }
            Self::Delete { name } => return session.client.delete(&of(&name)).await,
        };
        session
            .write_and_show(Method::PATCH, &of(&name), &patch, facts)
            .await
    }
}

fn facts(user: &UserView) -> Table {
    Table::facts([
        ("Name", user.name.clone()),
        ("Role", user.role.to_string()),
        ("Signs in", signs_in(user).to_owned()),
        ("Created", user.created.clone()),
    ])
}

fn signs_in(user: &UserView) -> &'static str {
    if user.disabled { "disabled" } else { "yes" }
}

fn table(list: &UserList) -> Table {
    let row = |user: &UserView| {
        [
            user.name.clone(),
            user.role.to_string(),
            signs_in(user).to_owned(),
            user.created.clone(),
        ]
    };
    let heads = ["NAME", "ROLE", "SIGNS IN", "CREATED"];
    Table::of(heads, list.users.iter().map(row))
}
