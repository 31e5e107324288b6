//! Many at once: pages, open pages that are told of changes, and allocations, with all of it asked for by one core.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Figure, fill, percentile};
use crate::testbed::{Fipd, FipdOptions, Login, UnixConnection, Visitor, get_unix};

const LEASES: u32 = 100_000;
/// Tenants, and pools beside that of the leases.
const OTHERS: u32 = 300;
const CLUSTERS: u32 = 30;
/// Nobody is there.
pub const KUBECONFIG: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
    "clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:9"}}],
    "users":[{"name":"c","user":{"token":"t"}}],
    "contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}"#;
const SESSIONS: u64 = 200;
/// fipd keeps no more sessions of one.
const OF_A_NAME: u64 = 20;
const STREAMS: u64 = 200;
/// Of all sessions, a second.
const PAGES: u64 = 100;
/// A second, over so many connections.
const ALLOCATIONS: u64 = 500;
const CONNECTIONS: u64 = 20;
/// From one look at the metrics to the next.
const SCRAPED: Duration = Duration::from_secs(5);
const LASTS: Duration = Duration::from_secs(60);
/// Milliseconds for 99 of 100 pages, counted from when each was to be asked for.
const LIMIT: f64 = 200.0;

/// What people look at.
const LOOKS: [&str; 13] = [
    "/ui/",
    "/ui/pools",
    "/ui/pools?sort=-use",
    "/ui/pools/1",
    "/ui/leases",
    "/ui/leases?sort=-since",
    "/ui/leases?q=service-99999",
    "/ui/search?q=service-9",
    "/ui/tenants",
    "/ui/clusters",
    "/ui/clusters/cluster-7",
    "/ui/rules",
    "/ui/audit",
];

/// 100 pages and 500 allocations a second for a minute, with 200 sessions and 200 streams of changes, on 100,000 leases, 300
/// pools and as many tenants, and 30 clusters.
pub async fn run() -> Result<Vec<Figure>> {
    let fipd = fill::daemon_on(FipdOptions::default(), site).await?;
    add_clusters(&fipd).await?;
    let all = cores()?;
    on_cores(&one_of(&all)?)?;
    let measured = measure(&fipd).await;
    on_cores(&all)?;
    measured
}

fn site(store: &Path) -> Result<()> {
    // Each writes a pool 1 of its own. That of the leases comes last, beside the others, and has the limits of the tenants.
    fill::tenants(store, OTHERS)?;
    fill::pools(store, OTHERS)?;
    let pool = fill::Pools::one("11.0.0.0/8")?;
    fill::fill(store, &pool, LEASES, u64::from(LEASES))
}

/// They do not answer, and addresses are given all the same.
async fn add_clusters(fipd: &Fipd) -> Result<()> {
    let mut connection = UnixConnection::open(&fipd.socket()).await?;
    let cluster = json!({ "kubeconfig": KUBECONFIG, "systems": ["claims"] });
    let network = json!({ "network": "default" });
    for number in 0..CLUSTERS {
        let path = format!("/api/v1/clusters/cluster-{number}");
        let skip = format!("{path}/skip-adoption");
        for (method, path, body) in [
            (Method::PUT, &path, &cluster),
            (Method::POST, &skip, &network),
        ] {
            let reply = connection.call(method, path, Some(body)).await?;
            if !(200..300).contains(&reply.status) {
                bail!("{path}: {}: {}", reply.status, reply.body);
            }
        }
    }
    Ok(())
}

async fn measure(fipd: &Fipd) -> Result<Vec<Figure>> {
    let mut visitors = Vec::new();
    for name in 0..SESSIONS.div_ceil(OF_A_NAME) {
        let login = Login::new(fipd, name).await?;
        for _ in 0..OF_A_NAME {
            let mut visitor = Visitor::connect(fipd).await?;
            visitor.sign_in(&login).await?;
            visitors.push(visitor);
        }
    }
    let (events, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
    let mut streams = JoinSet::new();
    for number in 0..STREAMS {
        let visitor = visitors.get(usize::try_from(number % SESSIONS)?);
        let visitor = visitor.context("a session")?.again(fipd).await?;
        streams.spawn(listen(visitor, Arc::clone(&events), stop.clone()));
    }
    let start = Instant::now() + Duration::from_secs(1);
    streams.spawn(scrape(fipd.socket(), start));
    let mut pages = JoinSet::new();
    for (number, visitor) in (0..).zip(visitors) {
        pages.spawn(look(visitor, number, start));
    }
    let mut allocations = JoinSet::new();
    for number in 0..CONNECTIONS {
        let connection = UnixConnection::open(&fipd.socket()).await?;
        allocations.spawn(allocate(connection, number, start));
    }
    let mut given = 0;
    while let Some(done) = allocations.join_next().await {
        given += done??;
    }
    let took = start.elapsed();
    let mut times = Vec::new();
    while let Some(done) = pages.join_next().await {
        times.extend(done??);
    }
    stop.cancel();
    while let Some(ended) = streams.join_next().await {
        ended??;
    }
    if times.len() as u64 != PAGES * LASTS.as_secs() {
        bail!("{} pages were asked for", times.len());
    }
    let p99 = percentile(&times, 0.99).context("no page")?;
    let p50 = percentile(&times, 0.5).context("no page")?;
    let each = events.load(Ordering::Relaxed) as f64 / STREAMS as f64;
    let rate = given as f64 / took.as_secs_f64();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(vec![
        Figure::at_most("load-page-p99", "ms", millis(p99), "-", LIMIT),
        Figure::at_most("load-page-p50", "ms", millis(p50), "-", LIMIT),
        // A little is lost where the last ones wait for a place.
        Figure::at_least(
            "load-allocations",
            "/s",
            rate,
            "-",
            0.98 * ALLOCATIONS as f64,
        ),
        // One a second at most, as the page has it.
        Figure::at_least(
            "load-events",
            "a stream",
            each,
            "-",
            LASTS.as_secs() as f64 / 2.0,
        ),
    ])
}

/// This visitor's share of the pages. Each is timed from when it was to be asked for, so that a wait counts.
async fn look(mut visitor: Visitor, number: u64, start: Instant) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let all = PAGES * LASTS.as_secs();
    for page in (number..all).step_by(usize::try_from(SESSIONS)?) {
        let due = start + Duration::from_millis(page * 1_000 / PAGES);
        sleep_until(due).await;
        // Each sees all of them in turn.
        let path = LOOKS.get(usize::try_from(page / SESSIONS + number)? % LOOKS.len());
        let path = path.copied().unwrap_or("/ui/");
        let (page, status) = visitor.send(Method::GET, path, "").await?;
        times.push(due.elapsed());
        if status != StatusCode::OK || !page.contains("</html>") {
            bail!("{path}: {status}");
        }
    }
    Ok(times)
}

async fn allocate(mut connection: UnixConnection, number: u64, start: Instant) -> Result<u64> {
    let mut given = 0;
    let all = ALLOCATIONS * LASTS.as_secs();
    for one in (number..all).step_by(usize::try_from(CONNECTIONS)?) {
        sleep_until(start + Duration::from_millis(one * 1_000 / ALLOCATIONS)).await;
        let wish =
            json!({ "owner": format!("fipd/vm/load/{one}"), "wants": [{ "pool": "bench" }] });
        let reply = connection
            .call(Method::POST, "/api/v1/leases", Some(&wish))
            .await?;
        if !(200..300).contains(&reply.status) {
            bail!("{}: {}", reply.status, reply.body);
        }
        given += 1;
    }
    Ok(given)
}

/// Counts what a page is told until `stop`. A stream that ends by itself is an error.
async fn listen(
    mut visitor: Visitor,
    events: Arc<AtomicU64>,
    stop: CancellationToken,
) -> Result<()> {
    let mut answer = visitor.open(Method::GET, "/ui/events", "").await?;
    if answer.status() != StatusCode::OK {
        bail!("/ui/events: {}", answer.status());
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            frame = answer.frame() => {
                let frame = frame.context("a stream ended")??;
                let told = frame.data_ref().is_some_and(|data| data.starts_with(b"event"));
                events.fetch_add(u64::from(told), Ordering::Relaxed);
            }
        }
    }
}

/// Asks for the metrics, as Prometheus does.
async fn scrape(socket: PathBuf, start: Instant) -> Result<()> {
    let mut due = start;
    while due < start + LASTS {
        sleep_until(due).await;
        let reply = get_unix(&socket, "/metrics").await?;
        if reply.status != 200 || !reply.body.contains("fipd_pool_free{pool=\"pool-1\"") {
            bail!("/metrics: {}", reply.status);
        }
        due += SCRAPED;
    }
    Ok(())
}

/// The cores of this process.
fn cores() -> Result<CpuSet> {
    sched_getaffinity(Pid::from_raw(0)).context("the cores of this process")
}

fn one_of(all: &CpuSet) -> Result<CpuSet> {
    let mut one = CpuSet::new();
    let has = |core: &usize| all.is_set(*core).unwrap_or(false);
    let core = (0..CpuSet::count()).find(has).context("no core")?;
    one.set(core)?;
    Ok(one)
}

/// All threads of this process on these.
fn on_cores(cores: &CpuSet) -> Result<()> {
    for thread in std::fs::read_dir("/proc/self/task")? {
        let id = thread?.file_name().to_string_lossy().parse()?;
        sched_setaffinity(Pid::from_raw(id), cores).context("choose the cores of a thread")?;
    }
    Ok(())
}
