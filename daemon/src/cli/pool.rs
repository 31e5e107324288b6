//! `fipd pool`.

mod changes;
mod parse;
mod show;

use std::net::IpAddr;

use clap::{Args, Subcommand};
use fipd_core::{EndsOf, Order, QuotaUnit};
use http::Method;
use ipnet::IpNet;
use serde::Serialize;

use super::{
    CliSession,
    client::{segment, with_query},
    exit::Failure,
};
use crate::api::wire::{PoolCreate, PoolPatch, PoolScope};

use parse::{any, cidr, quarantine, range, sticky_for};
use show::{History, facts, table};

#[derive(Debug, Subcommand)]
pub enum Pool {
    /// Create a pool
    Create(Create),
    /// Pools with their use
    List(List),
    /// One pool
    Show {
        /// Full name, or the last part of it where that is unique
        name: String,
    },
    /// How full a pool was, by the hour or by the day
    History(History),
    /// Change a pool; what is not named stays
    #[command(
        after_help = "--cidr and --range together replace all addresses of the pool; --add-cidr and --add-range add to them. --exclude replaces all its exclusions and --scope all its scopes: name those that are to stay as well."
    )]
    Update(Update),
    /// Move a pool to another network with all of its leases, or say what is in the way
    MoveNetwork(changes::MoveNetwork),
    /// Remove a pool that has no leases
    Delete { name: String },
}

// Its fields are the query of the request: their names are those of the API.
#[derive(Debug, Args, Serialize)]
pub struct List {
    /// Only pools of this network
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Only pools that list all of these addresses in one entry: a CIDR, a range or one address
    #[arg(long, value_name = "ADDRESSES", value_parser = any)]
    containing: Option<String>,
    /// Only pools all of whose entries are on these addresses: a CIDR or a range
    #[arg(long, value_name = "ADDRESSES", value_parser = any)]
    within: Option<String>,
}

/// Addresses of a pool.
#[derive(Debug, Args)]
pub struct Addresses {
    /// Addresses by CIDR, such as 192.0.2.0/24 (repeatable)
    #[arg(long, value_name = "CIDR", value_parser = cidr)]
    cidr: Vec<String>,
    /// Addresses by range, such as 192.0.2.10-192.0.2.20, or a single one (repeatable)
    #[arg(long, value_name = "FIRST-LAST", value_parser = range)]
    range: Vec<String>,
    /// Addresses never given: CIDR, range or single (repeatable)
    #[arg(long, value_name = "ADDRESSES", value_parser = any)]
    exclude: Vec<String>,
}

/// What `create` and `update` have in common.
#[derive(Debug, Args)]
pub struct Details {
    /// Network of the pool
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// What quotas of the pool count: leases, or addresses
    #[arg(long, value_name = "UNIT", value_parser = QuotaUnit::WORDS)]
    quota_unit: Option<String>,
    /// Gateway, handed out with each lease; a pool of addresses never gives it, one of prefixes only passes it on
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<IpAddr>,
    /// Prefix length handed out with each address
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(0..=128))]
    prefix: Option<u8>,
    /// Subnet of the link, where it is wider than the pool
    #[arg(long, value_name = "CIDR")]
    subnet: Option<IpNet>,
    /// Addresses at the low end that are never given
    #[arg(long, value_name = "COUNT")]
    reserve_first: Option<u32>,
    /// Addresses at the high end that are never given
    #[arg(long, value_name = "COUNT")]
    reserve_last: Option<u32>,
    /// What the ends are counted from: the link's prefix, or each CIDR
    #[arg(long, value_name = "WHAT", value_parser = EndsOf::WORDS)]
    reserve_of: Option<String>,
    /// Which free address is given next
    #[arg(long, value_name = "ORDER", value_parser = Order::WORDS)]
    order: Option<String>,
    /// How long an address is quarantined after a release before it is free, such as 90s, 2h or 7d; 0 for not at all
    #[arg(long, value_name = "TIME", value_parser = quarantine)]
    quarantine: Option<u32>,
    /// How long who had an address gets the same one again, such as 90s, 2h or 7d; 0 for not at all (new pools: 7d)
    #[arg(long, value_name = "TIME", value_parser = sticky_for)]
    sticky_for: Option<u32>,
    /// How many addresses are remembered for that, the latest releases (new pools: 1000)
    #[arg(long, value_name = "COUNT")]
    sticky_most: Option<u32>,
    /// Whether owners in several clusters may share an address
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set)]
    share_across_clusters: Option<bool>,
    /// Whether a tenant without a quota gets nothing, instead of any number
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set)]
    quota_required: Option<bool>,
}

/// Who may have addresses of a pool without naming it.
#[derive(Debug, Args)]
pub struct Scopes {
    /// Pools with a higher number are asked first where the asker names none
    #[arg(long, value_name = "NUMBER")]
    priority: Option<u16>,
    /// For whom the pool is there without being named: any, or parts that must all fit of cluster=C, project=P,
    /// namespace=N (several: one of them), label=KEY=VALUE, with commas in between (repeatable)
    #[arg(long, value_name = "WHOM")]
    scope: Vec<PoolScope>,
}

#[derive(Debug, Args)]
pub struct Create {
    /// Name, 1 to 63 of a-z, 0-9, '-' and '.'
    name: String,
    /// Give prefixes of so many bits, such as 64, instead of addresses: each --cidr is at least as large
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(1..=128))]
    allocation_length: Option<u8>,
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    details: Details,
    #[command(flatten)]
    scopes: Scopes,
}

#[derive(Debug, Args)]
pub struct Update {
    name: String,
    /// New name
    #[arg(long, value_name = "NAME")]
    rename: Option<String>,
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    details: Details,
    #[command(flatten)]
    scopes: Scopes,
    /// Addresses by CIDR beside those that the pool has (repeatable)
    #[arg(long, value_name = "CIDR", value_parser = cidr, conflicts_with_all = ["cidr", "range"])]
    add_cidr: Vec<String>,
    /// Addresses by range beside those that the pool has (repeatable)
    #[arg(long, value_name = "FIRST-LAST", value_parser = range, conflicts_with_all = ["cidr", "range"])]
    add_range: Vec<String>,
    /// Give the pool only where it is named
    #[arg(long, conflicts_with = "scope")]
    no_scope: bool,
    /// Take all exclusions away
    #[arg(long, conflicts_with = "exclude")]
    no_exclude: bool,
    /// Take the gateway away
    #[arg(long, conflicts_with = "gateway")]
    no_gateway: bool,
    /// Hand out the prefix length of the CIDR around each address
    #[arg(long, conflicts_with = "prefix")]
    no_prefix: bool,
    /// Take the subnet away
    #[arg(long, conflicts_with = "subnet")]
    no_subnet: bool,
    /// Give nothing more from the pool
    #[arg(long, conflicts_with = "open")]
    close: bool,
    /// Give addresses again
    #[arg(long)]
    open: bool,
    /// Keep leases that the change leaves out of range, instead of refusing it
    #[arg(long)]
    force: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only say what it would do, and which leases it would leave out of range
    #[arg(long)]
    dry_run: bool,
}

impl Pool {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        match self {
            Self::Create(create) => {
                session
                    .post_and_show("/api/v1/pools", &create.body(), facts)
                    .await
            }
            Self::List(list) => {
                let path = with_query("/api/v1/pools", &list)?;
                session.show_list(&path, "pools", table).await
            }
            Self::Show { name } => session.show(&path(&name), facts).await,
            Self::History(history) => history.run(session).await,
            Self::Update(update) => {
                let patch = update.patch()?;
                if update.dry_run {
                    return changes::preview(session, &update.name, &patch).await;
                }
                let path = path(&update.name);
                session
                    .write_and_show(Method::PATCH, &path, &patch, facts)
                    .await
            }
            Self::MoveNetwork(to) => to.run(session).await,
            Self::Delete { name } => session.client.delete(&path(&name)).await,
        }
    }
}

pub(super) fn path(name: &str) -> String {
    format!("/api/v1/pools/{}", segment(name))
}

impl Create {
    fn body(self) -> PoolCreate {
        let Self {
            name,
            allocation_length,
            addresses,
            details,
            scopes,
        } = self;
        PoolCreate {
            name,
            network: details.network,
            addresses: [addresses.cidr, addresses.range].concat(),
            exclusions: addresses.exclude,
            allocation_length,
            gateway: text(details.gateway),
            prefix: details.prefix,
            subnet: text(details.subnet),
            reserve_first: details.reserve_first,
            reserve_last: details.reserve_last,
            reserve_of: details.reserve_of,
            order: details.order,
            quarantine: details.quarantine,
            sticky_for: details.sticky_for,
            sticky_most: details.sticky_most,
            priority: scopes.priority,
            scopes: scopes.scope,
            share_across_clusters: details.share_across_clusters,
            quota_required: details.quota_required,
            quota_unit: details.quota_unit,
        }
    }
}

fn text(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// What a patch says of a value: nothing, that it goes, or another one.
fn set<T>(clear: bool, value: Option<T>) -> Option<Option<T>> {
    if clear { Some(None) } else { value.map(Some) }
}

impl Update {
    fn patch(&self) -> Result<PoolPatch, Failure> {
        let Self {
            addresses, details, ..
        } = self;
        let listed = [addresses.cidr.clone(), addresses.range.clone()].concat();
        let patch = PoolPatch {
            name: self.rename.clone(),
            network: details.network.clone(),
            addresses: (!listed.is_empty()).then_some(listed),
            add_addresses: [self.add_cidr.clone(), self.add_range.clone()].concat(),
            exclusions: (self.no_exclude || !addresses.exclude.is_empty())
                .then(|| addresses.exclude.clone()),
            gateway: set(self.no_gateway, text(details.gateway)),
            prefix: set(self.no_prefix, details.prefix),
            subnet: set(self.no_subnet, text(details.subnet)),
            reserve_first: details.reserve_first,
            reserve_last: details.reserve_last,
            reserve_of: details.reserve_of.clone(),
            closed: (self.close || self.open).then_some(self.close),
            order: details.order.clone(),
            quarantine: details.quarantine,
            sticky_for: details.sticky_for,
            sticky_most: details.sticky_most,
            priority: self.scopes.priority,
            scopes: (self.no_scope || !self.scopes.scope.is_empty())
                .then(|| self.scopes.scope.clone()),
            share_across_clusters: details.share_across_clusters,
            quota_required: details.quota_required,
            quota_unit: details.quota_unit.clone(),
            allocation_length: None,
            force: self.force,
            reason: self.reason.clone(),
        };
        let nothing = PoolPatch {
            force: self.force,
            reason: self.reason.clone(),
            ..PoolPatch::default()
        };
        if patch == nothing {
            let line = "pool update: nothing to change was named; see `fipd pool update --help`";
            return Err(Failure::Input(line.to_owned()));
        }
        Ok(patch)
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[test]
    fn the_help_of_update_says_that_lists_are_replaced() {
        let pool = Pool::augment_subcommands(clap::Command::new("pool"));
        let mut update = pool.find_subcommand("update").unwrap().clone();
        let help = update.render_help().to_string();
        assert!(help.contains("replace all addresses"), "{help}");
    }

    /// As it is typed behind `fipd pool`.
    fn typed(line: &str) -> Result<PoolPatch, String> {
        let pool = Pool::augment_subcommands(clap::Command::new("pool"));
        let matches = pool.try_get_matches_from(line.split_whitespace());
        let matches = matches.map_err(|error| error.to_string())?;
        let Pool::Update(update) = Pool::from_arg_matches(&matches).unwrap() else {
            panic!("{line} is no update");
        };
        Ok(update.patch().unwrap())
    }

    #[test]
    fn addresses_are_added_without_naming_those_that_the_pool_has() {
        let line = "pool update lab --add-cidr 10.1.0.0/24 --add-range 10.2.0.1-10.2.0.9";
        let patch = typed(line).unwrap();
        assert_eq!(patch.addresses, None);
        assert_eq!(patch.add_addresses, ["10.1.0.0/24", "10.2.0.1-10.2.0.9"]);
        for other in ["--cidr 10.3.0.0/24", "--range 10.3.0.1-10.3.0.2"] {
            let refused = typed(&format!("{line} {other}")).unwrap_err();
            assert!(refused.contains("cannot be used with"), "{refused}");
        }
    }
}
