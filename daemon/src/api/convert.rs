//! Between the wire's text and the core's types.
//!
//! Reading names every bad value by field; writing needs the ledger for names of networks, pools and clusters.

use std::{net::IpAddr, str::FromStr};

use fipd_core::{
    AddressSpec, ClusterId, Contender, Identity, Lease, Ledger, Network, NetworkId, Origin, Pool,
    PoolId, Span, System, Text, Timestamp,
};

use super::{
    access::visible::VisibleLedger,
    problem::{Code, Problem},
    wire::{
        ContenderView, Count, HoldView, LeaseSummary, LeaseView, MemberView, NetworkView,
        OriginView, PoolView, Reserve, Share, Usage,
    },
};
use crate::api::rest::wants;
use crate::clock;

/// The longest free text (reason, tenant, instance) that is taken, in bytes.
const MAX_TEXT: usize = 1024;

/// Parses a value; the problem names the field and says what the type says.
pub fn parse<T>(field: &str, text: &str) -> Result<T, Problem>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|error: T::Err| Problem::invalid(field, text, error.to_string()))
}

/// Reads a text that may be left out.
pub fn given<T>(
    text: &Option<String>,
    read: impl FnOnce(&str) -> Result<T, Problem>,
) -> Result<Option<T>, Problem> {
    text.as_deref().map(read).transpose()
}

/// Parses an IP address; an IPv4-mapped one is the IPv4 address that it stands for.
pub fn address(field: &str, text: &str) -> Result<IpAddr, Problem> {
    text.parse()
        .map(|address: IpAddr| address.to_canonical())
        .map_err(|_| Problem::invalid(field, text, "an IPv4 or IPv6 address such as 192.0.2.7"))
}

/// Parses an address, or a prefix such as `2001:db8::/64` with its length.
pub fn prefix(field: &str, text: &str) -> Result<(IpAddr, Option<u8>), Problem> {
    if !text.contains('/') {
        return Ok((address(field, text)?, None));
    }
    match parse(field, text)? {
        AddressSpec::Cidr(net) => Ok((net.addr(), Some(net.prefix_len()))),
        AddressSpec::Single(_) | AddressSpec::Range(..) => {
            let allowed = "an address, or a prefix such as 2001:db8::/64";
            Err(Problem::invalid(field, text, allowed))
        }
    }
}

/// Parses an address, a CIDR or a range; its addresses.
pub fn span(field: &str, text: &str) -> Result<Span, Problem> {
    parse::<AddressSpec>(field, text).map(|spec| spec.span())
}

/// Parses the entries of a pool.
pub fn specs(field: &str, texts: &[String]) -> Result<Vec<AddressSpec>, Problem> {
    texts.iter().map(|text| parse(field, text)).collect()
}

/// Free text: at most 1,024 bytes, no control characters.
pub fn text(field: &str, text: &str) -> Result<Text, Problem> {
    if text.len() > MAX_TEXT || text.chars().any(char::is_control) {
        return Err(Problem::invalid(
            field,
            text,
            "up to 1024 bytes without control characters",
        ));
    }
    Ok(text.into())
}

/// When something ends: at a time, or so many seconds from now; `None` where neither is said.
pub fn end(
    field: &str,
    at: Option<&str>,
    lasts: Option<u32>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    match (at, lasts) {
        (None, None) => Ok(None),
        (Some(text), None) => {
            let end = clock::parse_rfc3339(text).filter(|end| *end > now);
            let allowed = "a time in the future such as 2030-01-01T00:00:00Z";
            end.map(Some)
                .ok_or_else(|| Problem::invalid(field, text, allowed))
        }
        (None, Some(seconds)) if seconds > 0 => {
            let end = now.0.saturating_add(u64::from(seconds) * 1_000);
            Ok(Some(Timestamp(end)))
        }
        (None | Some(_), Some(seconds)) => {
            let allowed = format!("one second or more, and only without `{field}`");
            Err(Problem::invalid("lasts", seconds.to_string(), allowed))
        }
    }
}

/// Parses a wish to share.
pub fn share(share: &Share) -> Result<fipd_core::Share, Problem> {
    let port = |text: &String| {
        let allowed = "PROTOCOL/NUMBER such as TCP/80, with TCP, UDP or SCTP";
        let parsed = text.parse();
        parsed.map_err(|_| Problem::invalid("share.ports", text.as_str(), allowed))
    };
    Ok(fipd_core::Share {
        key: text("share.key", &share.key)?,
        ports: share.ports.iter().map(port).collect::<Result<_, _>>()?,
    })
}

/// Parses an owner. Its cluster may be given by name.
pub fn owner(ledger: &Ledger, text: &str) -> Result<Identity, Problem> {
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let allowed = "SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME without spaces and control characters";
        return Err(Problem::invalid("owner", text, allowed));
    }
    let mut identity: Identity = parse("owner", text)?;
    identity.cluster = identity.cluster.map(|name| cluster_id(ledger, &name.0));
    Ok(identity)
}

/// The id of a cluster known by this name; else the text is taken for an id.
pub fn cluster_id(ledger: &Ledger, text: &str) -> ClusterId {
    ledger
        .cluster_by_name(text)
        .map_or_else(|| ClusterId(text.into()), |record| record.id.clone())
}

/// The owner's text, with the cluster by name where it has one.
pub fn owner_text(ledger: &Ledger, identity: &Identity) -> String {
    let cluster = identity.cluster.as_ref();
    let record = cluster.and_then(|id| ledger.cluster(id));
    let Some(name) = record.and_then(|record| record.names.first()) else {
        return identity.to_string();
    };
    let named = Identity {
        cluster: Some(ClusterId(name.clone())),
        ..identity.clone()
    };
    named.to_string()
}

/// The network of that name.
pub fn network<'a>(ledger: &'a Ledger, name: &str) -> Result<&'a Network, Problem> {
    ledger
        .network_by_name(name)
        .ok_or_else(|| Problem::not_found("network", name).about("network", name))
}

/// The name of a network.
pub fn network_name(ledger: &Ledger, id: NetworkId) -> String {
    ledger
        .network(id)
        .map_or_else(|| format!("#{}", id.0), |network| network.name.to_string())
}

/// The name of a pool.
pub fn pool_name(ledger: &Ledger, id: PoolId) -> String {
    let pool = ledger.pool(id);
    pool.map_or_else(|| format!("#{}", id.0), |pool| pool.spec.name.to_string())
}

/// The system of that name.
pub fn system(text: &str) -> Result<System, Problem> {
    parse("system", text)
}

/// A network as clients see it.
pub fn network_view(visible: VisibleLedger<'_>, network: &Network) -> NetworkView {
    let holds = visible
        .ledger
        .holds(network.id)
        .iter()
        .map(|hold| HoldView {
            cluster: hold.cluster.to_string(),
            id: hold.id.as_ref().map(|id| id.0.to_string()),
            system: hold.system.to_string(),
        });
    NetworkView {
        id: network.id.0,
        name: network.name.to_string(),
        pools: visible.pools_of(network),
        waiting_for: holds.collect(),
        held_until: visible
            .ledger
            .network_hold(network.id)
            .map(|hold| clock::rfc3339(hold.until)),
    }
}

/// A pool as clients see it.
pub fn pool_view(ledger: &Ledger, pool: &Pool) -> PoolView {
    with_addresses(pool_head(ledger, pool), pool)
}

/// Adds the addresses, which takes no ledger: there may be many.
pub fn with_addresses(head: PoolView, pool: &Pool) -> PoolView {
    let texts = |specs: &[AddressSpec]| specs.iter().map(ToString::to_string).collect();
    PoolView {
        addresses: texts(&pool.spec.addresses),
        exclusions: texts(&pool.spec.exclusions),
        ..head
    }
}

/// A pool without its addresses and exclusions.
pub fn pool_head(ledger: &Ledger, pool: &Pool) -> PoolView {
    let spec = &pool.spec;
    let usage = ledger.usage(pool.id).unwrap_or_default();
    PoolView {
        id: pool.id.0,
        name: spec.name.to_string(),
        network: network_name(ledger, spec.network),
        network_by_default: spec.network_by_default,
        family: spec.family(),
        addresses: Vec::new(),
        exclusions: Vec::new(),
        allocation_length: spec.allocation_length,
        gateway: spec.gateway,
        prefix: spec.prefix_len,
        subnet: spec.subnet.map(|net| net.to_string()),
        reserve: Reserve {
            first: spec.ends.first,
            last: spec.ends.last,
            of: spec.ends.of,
        },
        order: spec.order,
        origin: origin_view(ledger, &spec.origin),
        closed: spec.closed,
        quarantine: spec.quarantine,
        sticky_for: spec.sticky.lasts,
        sticky_most: spec.sticky.most,
        priority: spec.priority,
        scopes: spec.scopes.iter().map(wants::scope_view).collect(),
        share_across_clusters: spec.share_across_clusters,
        quota_required: spec.quota_required,
        quota_unit: spec.quota_unit,
        overlaps: Vec::new(),
        ambiguous: Vec::new(),
        shared: Vec::new(),
        forecast: None,
        generation: pool.generation,
        created: clock::rfc3339(pool.created),
        usage: Usage {
            size: Count(usage.size),
            used: Count(usage.used),
            free: Count(usage.free),
            quarantined: Count(usage.quarantined),
            excluded: Count(usage.excluded),
            reserved: Count(usage.reserved),
            out_of_range: Count(usage.out_of_range),
            withheld: Count(usage.withheld),
            withheld_in_use: Count(usage.withheld_in_use),
        },
    }
}

fn origin_view(ledger: &Ledger, origin: &Origin) -> OriginView {
    match origin {
        Origin::Own => OriginView::Own,
        Origin::Mirror {
            system,
            cluster,
            object,
            uid,
        } => {
            let name = ledger
                .cluster(cluster)
                .and_then(|record| record.names.first());
            OriginView::Mirror {
                system: system.to_string(),
                cluster: name.unwrap_or(&cluster.0).to_string(),
                object: object.to_string(),
                uid: uid.to_string(),
            }
        }
    }
}

/// What an asker needs to know of a lease.
pub fn lease_summary(ledger: &Ledger, lease: &Lease) -> LeaseSummary {
    let pool = lease.pool.and_then(|id| ledger.pool(id));
    LeaseSummary {
        address: lease.key.address,
        length: lease.prefix().explicit_length(),
        prefix: ledger.prefix_len(lease),
        gateway: pool.and_then(|pool| pool.spec.gateway),
        network: network_name(ledger, lease.key.network),
        pool: pool.map(|pool| pool.spec.name.to_string()),
        state: lease.state,
        owner: lease
            .owner()
            .map(|holder| owner_text(ledger, &holder.identity)),
        until: lease.until.map(clock::rfc3339),
    }
}

/// What a contender uses of a lease, as it is shown; nothing: all of it.
pub fn used_texts(lease: &Lease, contender: &Contender) -> Vec<String> {
    let uses = contender
        .used_of(lease.prefix())
        .map(|used| used.to_string());
    uses.take(contender.uses.len()).collect()
}

/// All of a lease.
pub fn lease_view(ledger: &Ledger, lease: &Lease) -> LeaseView {
    let members = lease.members.iter().map(|member| MemberView {
        owner: owner_text(ledger, &member.holder.identity),
        instance: member.holder.instance.to_string(),
        ports: member.ports.iter().map(ToString::to_string).collect(),
    });
    let contenders = lease.contenders.iter().map(|contender| ContenderView {
        owner: owner_text(ledger, &contender.holder.identity),
        instance: contender.holder.instance.to_string(),
        tenant: (contender.tenant.as_ref()).map(|tenant| tenant.0.to_string()),
        since: clock::rfc3339(contender.since),
        uses: used_texts(lease, contender),
    });
    LeaseView {
        summary: lease_summary(ledger, lease),
        marks: ledger.marks(lease).to_vec(),
        members: members.collect(),
        contenders: contenders.collect(),
        tenant: lease.tenant.as_ref().map(|tenant| tenant.0.to_string()),
        group: lease.group.as_ref().map(ToString::to_string),
        labels: (lease.labels.iter())
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        since: clock::rfc3339(lease.since),
    }
}

/// A problem for an answer of the ledger that does not belong to the request.
pub fn unexpected(answer: &fipd_core::Answer) -> Problem {
    tracing::error!(
        ?answer,
        "the address book gave an answer of another kind than asked for"
    );
    Problem::new(
        Code::Internal,
        "the address book gave an unexpected answer; see the log",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_time_or_so_long_from_now() {
        let now = clock::parse_rfc3339("2080-01-01T00:00:00Z").unwrap();
        let later = Timestamp(now.0 + 60_000);
        let read = |at: Option<&str>, lasts| end("until", at, lasts, now);
        assert_eq!(read(None, None).unwrap(), None);
        assert_eq!(read(None, Some(60)).unwrap(), Some(later));
        assert_eq!(
            read(Some("2080-01-01T00:01:00Z"), None).unwrap(),
            Some(later)
        );
        for (at, lasts, field) in [
            (Some("2079-01-01T00:00:00Z"), None, "until"),
            (Some("soon"), None, "until"),
            (Some("2081-01-01T00:00:00Z"), Some(1), "lasts"),
            (None, Some(0), "lasts"),
        ] {
            let problem = read(at, lasts).unwrap_err();
            assert_eq!(
                (problem.status, problem.field.as_deref()),
                (422, Some(field))
            );
        }
    }

    #[test]
    fn owners_are_checked_and_named() {
        let ledger = Ledger::new();
        let good = owner(&ledger, "fipd/c1/Host/lab/printer").unwrap();
        assert_eq!(owner_text(&ledger, &good), "fipd/c1/Host/lab/printer");
        for bad in [
            "",
            "fipd",
            "fipd/Host/lab/a b",
            "fipd/Host/lab/a\u{7}",
            "FIPD/Host/lab/x",
            "a/b/c/d/e/f",
        ] {
            let problem = owner(&ledger, bad).unwrap_err();
            assert_eq!(
                (problem.status, problem.field.as_deref()),
                (422, Some("owner")),
                "{bad}"
            );
        }
    }
}
