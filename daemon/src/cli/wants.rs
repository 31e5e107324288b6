//! What `fipd lease allocate` and `reserve` ask of which pool.

use std::collections::BTreeMap;

use clap::{ArgGroup, Args};
use fipd_core::{AddressError, AddressSpec, Family, PortClaim};

use super::{CliSession, exit::Failure, pool};
use crate::api::wire::{PoolView, Select, Share, Want};

/// Where addresses shall come from.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").required(true).multiple(true).args(["pool", "select"])))]
pub struct Source {
    /// Pool to take from; a second one of the other family for dual-stack, all or nothing
    #[arg(long, value_name = "POOL")]
    pool: Vec<String>,
    /// Take from the pool with the highest priority that is there for the asker and can give
    #[arg(long, conflicts_with = "pool")]
    select: bool,
    /// With --select: which family; both for dual-stack, all or nothing
    #[arg(long, requires = "select", conflicts_with = "pool", value_name = "FAMILY", value_parser = ["ipv4", "ipv6"])]
    family: Vec<String>,
    #[command(flatten)]
    asker: AskerArgs,
    /// With --select: a prefix of so many bits instead of an address
    #[arg(long, requires = "select", conflicts_with = "pool", value_name = "BITS", value_parser = clap::value_parser!(u8).range(1..=128))]
    length: Option<u8>,
    /// This address and no other, or this prefix of a pool of prefixes (repeatable)
    #[arg(long, value_name = "ADDRESS", value_parser = named)]
    address: Vec<AddressSpec>,
}

/// Who asks, where the pool is left open.
#[derive(Debug, Args)]
#[group(requires = "select", conflicts_with = "pool", multiple = true)]
struct AskerArgs {
    /// With --select: only pools of this network
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// With --select: name or id of the asker's cluster
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// With --select: Rancher project of the asker
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    /// With --select: namespace of the asker
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// With --select: label of the asker (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
}

impl Source {
    /// What is wanted, `count` of each pool where no address is named.
    pub(super) async fn wants(
        self,
        session: &CliSession,
        count: Option<u32>,
    ) -> Result<Vec<Want>, Failure> {
        if self.select {
            return self.selected(count);
        }
        match (self.pool.as_slice(), self.address.as_slice()) {
            (pools, []) => {
                let want = |pool: &String| Want {
                    pool: Some(pool.clone()),
                    count,
                    ..Want::default()
                };
                Ok(pools.iter().map(want).collect())
            }
            ([pool], addresses) => Ok(addresses
                .iter()
                .map(|address| this(pool, address))
                .collect()),
            (pools, addresses) => by_family(session, pools, addresses).await,
        }
    }

    /// Named addresses say their family; each other family is wanted once.
    fn selected(self, count: Option<u32>) -> Result<Vec<Want>, Failure> {
        if self.family.is_empty() && self.address.is_empty() {
            let line =
                "--family: \"\" is not allowed: ipv4 or ipv6, or both, is needed with --select";
            return Err(Failure::Input(line.to_owned()));
        }
        let select = Select {
            network: self.asker.network,
            family: None,
            length: self.length,
            cluster: self.asker.cluster,
            project: self.asker.project,
            namespace: self.asker.namespace,
            labels: self.asker.label.into_iter().collect::<BTreeMap<_, _>>(),
        };
        let named = self.address.iter().map(|address| Want {
            select: Some(select.clone()),
            address: Some(address.to_string()),
            ..Want::default()
        });
        let has = |family: &String| {
            let mut addresses = self.address.iter();
            addresses.any(|address| (address.family() == Family::V4) == (family == "ipv4"))
        };
        let open = self.family.iter().filter(|family| !has(family));
        let open = open.map(|family| Want {
            select: Some(Select {
                family: Some(family.clone()),
                ..select.clone()
            }),
            count,
            ..Want::default()
        });
        Ok(named.chain(open).collect())
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or("KEY=VALUE is allowed, such as tier=web")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// An address, or a prefix with its length.
pub(super) fn named(text: &str) -> Result<AddressSpec, String> {
    match text
        .parse()
        .map_err(|error: AddressError| error.to_string())?
    {
        AddressSpec::Range(..) => {
            Err("an address, or a prefix such as 2001:db8:0:3::/64, is allowed".to_owned())
        }
        spec @ (AddressSpec::Cidr(_) | AddressSpec::Single(_)) => Ok(spec),
    }
}

fn this(pool: &str, address: &AddressSpec) -> Want {
    Want {
        pool: Some(pool.to_owned()),
        address: Some(address.to_string()),
        ..Want::default()
    }
}

/// Several pools and addresses: each address goes to the pool of its family; a pool without one gives its next.
async fn by_family(
    session: &CliSession,
    pools: &[String],
    addresses: &[AddressSpec],
) -> Result<Vec<Want>, Failure> {
    let mut wants = Vec::new();
    let mut left = addresses.to_vec();
    for pool in pools {
        let found: PoolView = session.client.get(&pool::path(pool)).await?;
        let family = found.family;
        let (mine, others): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|address| Some(address.family()) == family);
        left = others;
        if mine.is_empty() {
            wants.push(Want {
                pool: Some(pool.clone()),
                ..Want::default()
            });
        }
        wants.extend(mine.into_iter().map(|address| this(pool, &address)));
    }
    match left.first() {
        None => Ok(wants),
        Some(address) => Err(Failure::Input(format!(
            "--address: \"{address}\" is not allowed: none of the named pools has its family"
        ))),
    }
}

/// With whom an address may be shared.
#[derive(Debug, Args)]
pub(super) struct Sharing {
    /// Share the address with owners that are charged to the same tenant, name the same key and use other ports
    #[arg(long, value_name = "KEY", requires = "port", conflicts_with = "count")]
    share: Option<String>,
    /// Port that the owner has for itself, such as TCP/80 (repeatable)
    #[arg(long, value_name = "PORT", requires = "share", value_parser = port)]
    port: Vec<PortClaim>,
}

impl Sharing {
    pub(super) fn body(self) -> Option<Share> {
        let ports = self.port.iter().map(ToString::to_string).collect();
        self.share.map(|key| Share { key, ports })
    }
}

fn port(text: &str) -> Result<PortClaim, String> {
    text.parse::<PortClaim>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        source: Source,
    }

    fn selected(arguments: &[&str]) -> Result<Vec<Want>, String> {
        let line = std::iter::once(&"x").chain(arguments);
        let line = <Line as clap::Parser>::try_parse_from(line).map_err(|e| e.to_string())?;
        line.source.selected(None).map_err(|e| format!("{e:?}"))
    }

    #[test]
    fn a_selection_is_asked_per_family() {
        let wants = selected(&[
            "--select",
            "--family",
            "ipv4",
            "--family",
            "ipv6",
            "--cluster",
            "east",
            "--label",
            "tier=web",
            "--address",
            "10.0.0.7",
        ]);
        let wants = wants.unwrap();
        assert_eq!(wants.len(), 2);
        assert_eq!(wants[0].address.as_deref(), Some("10.0.0.7"));
        let six = wants[1].select.clone().unwrap();
        assert_eq!(six.family.as_deref(), Some("ipv6"));
        assert_eq!(six.labels["tier"], "web");
    }

    #[test]
    fn a_pool_or_a_selection_is_needed() {
        assert!(selected(&["--select"]).unwrap_err().contains("--family"));
        for bad in [
            &["--select", "--pool", "p", "--family", "ipv4"][..],
            &["--pool", "p", "--cluster", "east"],
            &["--family", "ipv4"],
            &["--select", "--family", "ipv4", "--label", "tier"],
        ] {
            assert!(
                <Line as clap::Parser>::try_parse_from(std::iter::once(&"x").chain(bad)).is_err()
            );
        }
    }
}
