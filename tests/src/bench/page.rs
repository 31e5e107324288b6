//! The page of a large pool: time from request to the last byte, and bytes, over TLS on one connection.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use http::{Method, StatusCode};

use super::{Figure, fill, percentile, tables};
use crate::testbed::{Fipd, Login, Visitor};

const LEASES: u32 = 30_000;
const WARM_UP: usize = 3;
const LOADS: usize = 30;
/// Milliseconds that a page may take.
const LIMIT: f64 = 50.0;

/// With so many leases every list is looked at to its end.
const WHOLE: u32 = 100_000;
/// What a page says that could not.
const CUT: [&str; 2] = ["There are too many leases", "the next page looks further"];

/// Lists and searches that are fast whatever there is, in every size. The last ones find little or nothing, so that all
/// that may be looked at is looked at.
const LISTS: [&str; 14] = [
    "/ui/",
    "/ui/pools",
    "/ui/leases",
    "/ui/leases?sort=-since",
    "/ui/leases?within=10.0.3.0/24",
    "/ui/leases?pool=bench&state=allocated",
    "/ui/leases?namespace=team-7",
    "/ui/leases?state=quarantined",
    "/ui/leases?tenant=nobody",
    "/ui/leases?q=service-99999",
    "/ui/leases?sort=owner",
    "/ui/leases?sort=-state",
    "/ui/search?q=service-9",
    "/ui/audit",
];

/// The page of a /16 with 30,000 leases, the slowest of the lists with 1,000, 100,000 and 1,000,000, and the other tables.
pub async fn run() -> Result<Vec<Figure>> {
    let mut figures = pool().await?;
    for (leases, name) in [(1_000, "1k"), (100_000, "100k"), (1_000_000, "1M")] {
        figures.push(lists(leases, name).await?);
    }
    figures.extend(tables::run().await?);
    Ok(figures)
}

async fn pool() -> Result<Vec<Figure>> {
    let fipd = fill::daemon("10.0.0.0/16", LEASES).await?;
    let mut visitor = signed_in(&fipd).await?;
    let (time, page) = load(&mut visitor, "/ui/pools/1", "10.0.0.1").await?;
    let bytes = page.len() as f64 / 1e3;
    Ok(vec![
        Figure::at_most("page-pool-30k", "ms", time, "-", LIMIT),
        Figure::at_most("page-pool-30k-size", "KB", bytes, "-", 150.0),
    ])
}

async fn lists(leases: u32, name: &str) -> Result<Figure> {
    let fipd = fill::daemon("10.0.0.0/8", leases).await?;
    let name = format!("pages-{name}");
    slowest(&name, &LISTS, &fipd, |path, page| match leases <= WHOLE {
        true => looked_at_all(path, page),
        false => Ok(()),
    })
    .await
}

/// A list that stops before its end says so.
fn looked_at_all(path: &str, page: &str) -> Result<()> {
    match CUT.iter().find(|words| page.contains(*words)) {
        Some(words) => bail!("{path}: {words:?}, with no more than {WHOLE} leases"),
        None => Ok(()),
    }
}

/// Of the pages, at each of which `check` has looked.
pub(super) async fn slowest(
    name: &str,
    paths: &[&'static str],
    fipd: &Fipd,
    check: impl Fn(&str, &str) -> Result<()>,
) -> Result<Figure> {
    let mut visitor = signed_in(fipd).await?;
    let mut slowest = (0.0, "");
    for &path in paths {
        let (time, page) = load(&mut visitor, path, "</html>").await?;
        check(path, &page)?;
        if time > slowest.0 {
            slowest = (time, path);
        }
    }
    let (time, path) = slowest;
    let name = format!("{name}, slowest");
    Ok(Figure::at_most(&name, "ms", time, path, LIMIT))
}

/// A browser that has signed in.
async fn signed_in(fipd: &Fipd) -> Result<Visitor> {
    let mut visitor = Visitor::connect(fipd).await?;
    visitor.sign_in(&Login::first(fipd)?).await?;
    Ok(visitor)
}

/// The median time of a page in milliseconds, and the page.
async fn load(visitor: &mut Visitor, path: &str, shows: &str) -> Result<(f64, String)> {
    let (mut times, mut shown) = (Vec::new(), String::new());
    for _ in 0..WARM_UP + LOADS {
        let began = Instant::now();
        let (page, status) = visitor.send(Method::GET, path, "").await?;
        times.push(began.elapsed());
        if status != StatusCode::OK || !page.contains(shows) {
            bail!("{path}: {status}, without {shows:?}");
        }
        shown = page;
    }
    let p50 = percentile(&times.split_off(WARM_UP), 0.5).context("no sample")?;
    Ok((p50.as_secs_f64() * 1_000.0, shown))
}
