//! `fipd user`.

use clap::Subcommand;
use fipd_core::Role;
use http::Method;

use super::{Session, client::segment, exit::Failure, output::Table, password, token::role};
use crate::api::wire::{Password, UserCreate, UserList, UserPatch, UserView};

#[derive(Debug, Subcommand)]
pub enum User {
    /// Make a user; the password is asked for, or the first line of stdin
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
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let users = "/api/v1/users";
        let of = |name: &str| format!("{users}/{}", segment(name));
        match self {
            Self::Create { name, role } => {
                let password = Password(password::ask(&name)?);
                let body = UserCreate {
                    name,
                    role,
                    password,
                };
                let made: UserView = session.client.post(users, &body).await?;
                session.output.show(&made, facts)
            }
            Self::List => {
                let list: UserList = session.client.all(users, "users").await?;
                session.output.show(&list, |list| table(&list.users))
            }
            Self::SetRole { name, role } => {
                let patch = UserPatch {
                    role: Some(role),
                    ..UserPatch::default()
                };
                change(session, &of(&name), &patch).await
            }
            Self::SetPassword { name } => {
                let password = Some(Password(password::ask(&name)?));
                let patch = UserPatch {
                    password,
                    ..UserPatch::default()
                };
                change(session, &of(&name), &patch).await
            }
            Self::Disable { name } => disable(session, &of(&name), true).await,
            Self::Enable { name } => disable(session, &of(&name), false).await,
            Self::SignOut { name } => {
                let sessions = format!("{}/sessions", of(&name));
                session.client.delete(&sessions).await.map(drop)
            }
            Self::Delete { name } => session.client.delete(&of(&name)).await.map(drop),
        }
    }
}

async fn disable(session: &Session, path: &str, disabled: bool) -> Result<(), Failure> {
    let patch = UserPatch {
        disabled: Some(disabled),
        ..UserPatch::default()
    };
    change(session, path, &patch).await
}

async fn change(session: &Session, path: &str, patch: &UserPatch) -> Result<(), Failure> {
    let body = serde_json::to_vec(patch).map_err(Failure::failed)?;
    let reply = session.client.send(Method::PATCH, path, Some(body)).await?;
    session.output.show(&reply.json::<UserView>()?, facts)
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

fn table(users: &[UserView]) -> Table {
    let mut table = Table::new(["NAME", "ROLE", "SIGNS IN", "CREATED"]);
    for user in users {
        table.row([
            user.name.clone(),
            user.role.to_string(),
            signs_in(user).to_owned(),
            user.created.clone(),
        ]);
    }
    table
}
