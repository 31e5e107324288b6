//! `fipd token`.

use clap::Subcommand;
use fipd_core::Role;

use super::{
    CliSession,
    exit::Failure,
    output::{Table, or_dash},
};
use crate::{
    api::wire::{TokenCreate, TokenList, TokenMade, TokenView},
    clock,
};

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token; its text is shown once and kept nowhere
    Create {
        /// What it is for, as the audit log shall name it
        name: String,
        /// What it may do
        #[arg(long, value_parser = role, value_name = "viewer|operator|admin")]
        role: Role,
        /// Only for this pool; may be repeated
        #[arg(long, value_name = "NAME")]
        pool: Vec<String>,
        /// Only for this network; may be repeated
        #[arg(long, value_name = "NAME")]
        network: Vec<String>,
        /// Only for what this tenant is charged for; may be repeated
        #[arg(long, value_name = "NAME")]
        tenant: Vec<String>,
        /// When it ends, such as 12h or 90d; never when left out
        #[arg(long, value_parser = clock::seconds, value_name = "TIME")]
        expires: Option<u32>,
        /// Where it may be used from; may be repeated; anywhere when left out
        #[arg(long, value_name = "CIDR")]
        from: Vec<String>,
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
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        match self {
            Self::Create {
                name,
                role,
                pool,
                network,
                tenant,
                expires,
                from,
            } => {
                let body = TokenCreate {
                    name,
                    role,
                    expires: None,
                    lasts: expires,
                    pools: pool,
                    networks: network,
                    tenants: tenant,
                    from,
                };
                session.post_and_show("/api/v1/tokens", &body, facts).await
            }
            Self::List => session.show_list("/api/v1/tokens", "tokens", table).await,
            Self::Revoke { id } => session.client.delete(&format!("/api/v1/tokens/{id}")).await,
        }
    }
}

fn facts(made: &TokenMade) -> Table {
    let token = &made.view;
    Table::facts([
        ("Token", made.token.clone()),
        ("Id", token.id.to_string()),
        ("Name", token.name.clone()),
        ("Role", token.role.to_string()),
        ("Scope", scope(token)),
        ("From", from(token)),
        ("Expires", or_dash(token.expires.as_ref())),
    ])
}

fn table(list: &TokenList) -> Table {
    let heads = [
        "ID",
        "NAME",
        "ROLE",
        "SCOPE",
        "FROM",
        "CREATED",
        "EXPIRES",
        "LAST USED",
    ];
    let row = |token: &TokenView| {
        [
            token.id.to_string(),
            token.name.clone(),
            token.role.to_string(),
            scope(token),
            from(token),
            token.created.clone(),
            or_dash(token.expires.as_ref()),
            or_dash(token.last_used.as_ref()),
        ]
    };
    Table::of(heads, list.tokens.iter().map(row))
}

fn scope(token: &TokenView) -> String {
    let parts = [
        ("pool", &token.pools),
        ("network", &token.networks),
        ("tenant", &token.tenants),
    ];
    let parts = parts.iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<_> = parts
        .map(|(what, names)| format!("{what} {}", names.join(",")))
        .collect();
    match parts.is_empty() {
        true => "all".to_owned(),
        false => parts.join(" "),
    }
}

fn from(token: &TokenView) -> String {
    match token.from.is_empty() {
        true => "anywhere".to_owned(),
        false => token.from.join(","),
    }
}

pub(super) fn role(text: &str) -> Result<Role, String> {
    let role = text.parse::<Role>();
    role.map_err(|allowed| format!("{allowed} is allowed"))
}
