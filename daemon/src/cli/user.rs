//! `fipd user`.

use clap::Subcommand;
use fipd_core::Role;
use http::Method;

use super::{Session, client::segment, exit::Failure, output::Table, password, token::role};
use crate::api::wire::{Password, UserCreate, UserList, UserPatch, UserView, text_of};

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
                    password: None,
                };
                change(session, &of(&name), &patch).await
            }
            Self::SetPassword { name } => {
                let password = Some(Password(password::ask(&name)?));
                let patch = UserPatch {
                    role: None,
                    password,
                };
                change(session, &of(&name), &patch).await
            }
            Self::Delete { name } => session.client.delete(&of(&name)).await.map(drop),
        }
    }
}

async fn change(session: &Session, path: &str, patch: &UserPatch) -> Result<(), Failure> {
    let body = serde_json::to_vec(patch).map_err(Failure::failed)?;
    let reply = session.client.send(Method::PATCH, path, Some(body)).await?;
    session.output.show(&reply.json::<UserView>()?, facts)
}

fn facts(user: &UserView) -> Table {
    Table::facts([
        ("Name", user.name.clone()),
        ("Role", text_of(&user.role)),
        ("Created", user.created.clone()),
    ])
}

fn table(users: &[UserView]) -> Table {
    let mut table = Table::new(["NAME", "ROLE", "CREATED"]);
    for user in users {
        table.row([user.name.clone(), text_of(&user.role), user.created.clone()]);
    }
    table
}
