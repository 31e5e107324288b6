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
    clock,
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

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let allowed = || "a number and s, m, h or d is allowed, such as 90d".to_owned();
    let unit = text.chars().next_back().ok_or_else(allowed)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(allowed()),
    };
    let number = text
        .strip_suffix(unit)
        .and_then(|number| number.parse::<u64>().ok());
    let number = number.filter(|number| *number > 0).ok_or_else(allowed)?;
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("90d"), Ok(Duration::from_secs(90 * 86_400)));
        for bad in ["", "90", "d", "-1h", "0m", "1€", "99999999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
