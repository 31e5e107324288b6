//! What the daemon costs as a process: start to ready after kill -9, and resident memory.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fipd::store::{Options, Store};
use fipd_core::{
    Action, Allocate, Answer, AuditEntry, Authority, Decision, Holder, Ledger, NetworkId, Op,
    Outcome, Planned, Pool, PoolId, Request, Text, Timestamp, Want,
};

use super::Figure;
use crate::testbed::{Fipd, FipdOptions};

/// The audit log's default limit.
const AUDIT_LIMIT: usize = 1_000_000;
/// Decisions a commit while a store is filled, and audit entries a decision.
const CHUNK: usize = 1_000;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Start and memory of an empty daemon, with 100,000 and with 1,000,000 leases.
pub async fn run() -> Result<Vec<Figure>> {
    let idle = Fipd::start(FipdOptions::default()).await?;
    idle.wait_ready(READY_WITHIN).await?;
    let idle = megabytes(&idle)?;
    let mut figures = vec![Figure::at_most("memory-idle", "MB", idle, "-", 40.0)];
    for (leases, name, start_limit, memory_limit) in
        [(100_000, "100k", 1.0, 110.0), (1_000_000, "1M", 4.0, 700.0)]
    {
        let (start, memory) = with_leases(leases).await?;
        let start = start.as_secs_f64();
        figures.push(Figure::at_most(
            &format!("start-{name}-after-kill"),
            "s",
            start,
            "-",
            start_limit,
        ));
        figures.push(Figure::at_most(
            &format!("memory-{name}"),
            "MB",
            memory,
            "-",
            memory_limit,
        ));
    }
    Ok(figures)
}

fn megabytes(fipd: &Fipd) -> Result<f64> {
    Ok(fipd.resident_kib()? as f64 / 1024.0)
}

/// The second start, after a write and a kill -9, to ready; and the memory then.
async fn with_leases(leases: usize) -> Result<(Duration, f64)> {
    let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
    let store = fipd.data_dir().join("fipd.redb");
    std::fs::create_dir_all(fipd.data_dir())?;
    tokio::task::spawn_blocking(move || fill(&store, leases)).await??;
    fipd.restart().await?;
    fipd.wait_ready(READY_WITHIN).await?;
    let owner = [
        "lease",
        "allocate",
        "--pool",
        "bench",
        "--owner",
        "fipd/vm/bench/last",
    ];
    fipd.cli(owner).await?.success()?;
    fipd.kill9()?;
    let start = Instant::now();
    fipd.restart().await?;
    fipd.wait_ready(READY_WITHIN).await?;
    Ok((start.elapsed(), megabytes(&fipd)?))
}

/// Fills a new store through the ledger, then its audit log to the limit.
fn fill(path: &Path, leases: usize) -> Result<()> {
    let (mut store, loaded) = Store::open(path, Options::default())?;
    let mut ledger = loaded.ledger;
    let pool = add_pool(&mut store, &mut ledger)?;
    let mut last = None;
    for chunk in (0..leases).collect::<Vec<_>>().chunks(CHUNK) {
        let requests = chunk
            .iter()
            .map(|n| allocate(pool, *n))
            .collect::<Result<Vec<_>>>()?;
        last = commit(&mut store, &mut ledger, &requests)?.pop();
    }
    let Some(Answer::Granted {
        leases: granted, ..
    }) = last
    else {
        bail!("no lease was granted");
    };
    let lease = granted.first().context("a grant has a lease")?;
    let entry = AuditEntry {
        at: Timestamp(2),
        actor: "bench".into(),
        action: Action::InstanceChanged,
        network: Some(lease.key.network),
        address: Some(lease.key.address),
        pool: lease.pool,
        identity: lease.owner().map(|holder| holder.identity.clone()),
        detail: Text::default(),
    };
    let decision = Decision {
        ops: vec![Op::PutLease(Arc::clone(lease))],
        audit: vec![entry; CHUNK],
    };
    for _ in 0..AUDIT_LIMIT.saturating_sub(leases) / CHUNK {
        certain(&store.commit(std::slice::from_ref(&decision)))?;
    }
    Ok(())
}

fn add_pool(store: &mut Store, ledger: &mut Ledger) -> Result<PoolId> {
    let spec = fipd_core::PoolSpec {
        name: "bench".into(),
        network: NetworkId::DEFAULT,
        addresses: vec!["10.0.0.0/11".parse()?],
        exclusions: Vec::new(),
        gateway: None,
        prefix_len: None,
        subnet: None,
        ends: fipd_core::Ends {
            first: 1,
            last: 1,
            of: fipd_core::EndsOf::Prefix,
        },
        order: fipd_core::Order::Lowest,
        origin: fipd_core::Origin::Own,
        closed: false,
    };
    let request = Request::CreatePool {
        spec,
        actor: "bench".into(),
    };
    let made: Option<Arc<Pool>> = match commit(store, ledger, &[request])?.pop() {
        Some(Answer::Pool(pool)) => Some(pool),
        _ => None,
    };
    Ok(made.context("the pool was not made")?.id)
}

fn allocate(pool: PoolId, n: usize) -> Result<Request> {
    let owner = format!(
        "rancher-fip/6d1f-cluster/Service/namespace-{}/service-{n}",
        n % 500
    );
    let identity = owner.parse()?;
    Ok(Request::Allocate(Allocate {
        holder: Holder {
            identity,
            instance: format!("{n:08x}-uid-of-the-service").into(),
        },
        tenant: None,
        wants: vec![Want {
            pool,
            address: None,
            count: 1,
        }],
        waiting_since: None,
        actor: "bench".into(),
    }))
}

fn commit(store: &mut Store, ledger: &mut Ledger, requests: &[Request]) -> Result<Vec<Answer>> {
    let (mut tickets, mut decisions, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for request in requests {
        let planned = ledger.plan(request, Timestamp(1));
        let Planned::Tentative {
            ticket,
            decision,
            answer,
        } = planned
        else {
            bail!("not planned: {planned:?}");
        };
        tickets.push(ticket);
        decisions.push(decision);
        answers.push(answer);
    }
    certain(&store.commit(&decisions))?;
    for ticket in tickets {
        ledger.confirm(ticket);
    }
    Ok(answers)
}

fn certain(outcomes: &[Outcome]) -> Result<()> {
    match outcomes
        .iter()
        .find(|outcome| **outcome != Outcome::Committed)
    {
        None => Ok(()),
        Some(outcome) => bail!("not committed: {outcome:?}"),
    }
}
