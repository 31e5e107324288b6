//! `fipd token`.

use std::time::Duration;

use clap::Subcommand;
use fipd_core::{Role, Timestamp};

use super::{
    Session,
    exit::Failure,
    output::{Table, or_dash},
};
use crate::{
    api::wire::{TokenCreate, TokenList, TokenMade, TokenView, text_of},
    clock::{self, duration},
};

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token; its text is shown once and kept nowhere
    Create {
        /// What it is for, as the audit log shall name it
        name: String,
        /// What it may do
        #[arg(long, value_parser = role, value_name = "viewer|operator|admin")]
        role: Role,
        /// When it ends, such as 12h or 90d; never when left out
        #[arg(long, value_parser = duration, value_name = "TIME")]
        expires_in: Option<Duration>,
    },
    /// All tokens, without their text
    List,
    /// End a token at once
    Revoke {
        /// Number of the token
        id: u64,
    },
}

impl Token {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Create {
                name,
                role,
                expires_in,
            } => {
                let end = expires_in.map(|time| {
                    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                    clock::rfc3339(Timestamp(clock::now().0.saturating_add(millis)))
                });
                let body = TokenCreate {
                    name,
                    role,
                    expires: end,
                };
                let made: TokenMade = session.client.post("/api/v1/tokens", &body).await?;
                session.output.show(&made, |made| {
                    Table::facts([
                        ("Token", made.token.clone()),
                        ("Id", made.view.id.to_string()),
                        ("Name", made.view.name.clone()),
                        ("Role", text_of(&made.view.role)),
                        ("Expires", or_dash(made.view.expires.as_ref())),
                    ])
                })
            }
            Self::List => {
                let list: TokenList = session.client.get("/api/v1/tokens").await?;
                session.output.show(&list, |list| table(&list.tokens))
            }
            Self::Revoke { id } => session
                .client
                .delete(&format!("/api/v1/tokens/{id}"))
                .await
                .map(drop),
        }
    }
}

fn table(tokens: &[TokenView]) -> Table {
    let mut table = Table::new(["ID", "NAME", "ROLE", "CREATED", "EXPIRES"]);
    for token in tokens {
        table.row([
            token.id.to_string(),
            token.name.clone(),
            text_of(&token.role),
            token.created.clone(),
            or_dash(token.expires.as_ref()),
        ]);
    }
    table
}

pub(super) fn role(text: &str) -> Result<Role, String> {
    match text {
        "viewer" => Ok(Role::Viewer),
        "operator" => Ok(Role::Operator),
        "admin" => Ok(Role::Admin),
        _ => Err("viewer, operator or admin is allowed".to_owned()),
    }
}
