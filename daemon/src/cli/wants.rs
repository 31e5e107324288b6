//! What `fipd lease allocate` and `reserve` ask of which pool.

use std::net::IpAddr;

use fipd_core::Family;

use super::{Session, exit::Failure, pool};
use crate::api::wire::Want;

/// What is wanted of the named pools.
pub(super) async fn wants(
    session: &Session,
    pools: &[String],
    addresses: &[IpAddr],
    count: Option<u32>,
) -> Result<Vec<Want>, Failure> {
    match (pools, addresses) {
        (pools, []) => {
            let want = |pool: &String| Want {
                pool: pool.clone(),
                address: None,
                count,
            };
            Ok(pools.iter().map(want).collect())
        }
        ([pool], addresses) => Ok(addresses
            .iter()
            .map(|address| this(pool, *address))
            .collect()),
        (pools, addresses) => by_family(session, pools, addresses).await,
    }
}

fn this(pool: &str, address: IpAddr) -> Want {
    Want {
        pool: pool.to_owned(),
        address: Some(address.to_string()),
        count: None,
    }
}

/// Several pools and addresses: each address goes to the pool of its family; a pool without one gives its next.
async fn by_family(
    session: &Session,
    pools: &[String],
    addresses: &[IpAddr],
) -> Result<Vec<Want>, Failure> {
    let mut wants = Vec::new();
    let mut left = addresses.to_vec();
    for pool in pools {
        let family = pool::fetch(session, pool).await?.family;
        let (mine, others): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|address| Some(Family::of(*address)) == family);
        left = others;
        if mine.is_empty() {
            wants.push(Want {
                pool: pool.clone(),
                address: None,
                count: None,
            });
        }
        wants.extend(mine.into_iter().map(|address| this(pool, address)));
    }
    match left.first() {
        None => Ok(wants),
        Some(address) => Err(Failure::Input(format!(
            "--address: \"{address}\" is not allowed: none of the named pools has its family"
        ))),
    }
}
