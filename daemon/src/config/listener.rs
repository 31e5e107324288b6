//! `[[listener]]`: further ports, each for some of what fipd serves without login.

use std::{borrow::Cow, collections::BTreeSet, net::SocketAddr, ops::Range};

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::Systems;

/// One further port, for whoever reaches it: there is no login of fipd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: SocketAddr,
    /// With the certificate of `[api]`.
    pub tls: bool,
    pub serve: BTreeSet<Serve>,
}

/// One further port, for whoever reaches it: there is no login of fipd.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RawListener {
    /// Where it listens.
    address: SocketAddr,
    /// With the certificate of `[api]`.
    #[serde(default = "on")]
    tls: bool,
    /// What it serves.
    #[schemars(with = "Vec<String>")]
    serve: Vec<Spanned<String>>,
}

/// What a further port serves. To everybody who reaches it: there is no login of fipd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Serve {
    /// `/metrics`.
    Metrics,
    /// `/metrics` with the series of the original of this system and nothing else.
    SystemMetrics(&'static str),
    /// `/healthz` and `/readyz`, and `/health` and `/ready` as the original agent has them.
    Health,
    /// What the stock LB controller asks, which has a login of its own.
    FipV1,
    /// `/ipam`, as the original manager had it: every address in use.
    Ipam,
    /// What API servers ask before they store an object.
    Admission,
    /// What other programs ask before they go on.
    Hooks,
    /// `/ping` and `/hostname`, as an original webhook has them.
    Ping,
}

fn on() -> bool {
    true
}

impl Serve {
    /// All of them.
    pub fn all(known: Systems) -> Vec<Self> {
        let metrics = known.0.iter().filter(|one| one.metrics);
        let metrics = metrics.map(|one| Self::SystemMetrics(one.name));
        let metrics = std::iter::once(Self::Metrics).chain(metrics);
        let rest = [
            Self::Health,
            Self::FipV1,
            Self::Ipam,
            Self::Admission,
            Self::Hooks,
            Self::Ping,
        ];
        metrics.chain(rest).collect()
    }

    /// As the file has it.
    pub fn word(self) -> Cow<'static, str> {
        match self {
            Self::Metrics => "metrics".into(),
            Self::SystemMetrics(system) => format!("metrics:{system}").into(),
            Self::Health => "health".into(),
            Self::FipV1 => "fip-v1".into(),
            Self::Ipam => "ipam".into(),
            Self::Admission => "admission".into(),
            Self::Hooks => "hooks".into(),
            Self::Ping => "ping".into(),
        }
    }

    fn is_metrics(self) -> bool {
        matches!(self, Self::Metrics | Self::SystemMetrics(_))
    }

    fn parse(known: Systems, text: &str) -> Result<Self, String> {
        let mut all = Self::all(known).into_iter();
        all.find(|one| one.word() == text).ok_or_else(|| {
            let why = match text {
                "ui" | "api" => "served at [api] listen only",
                _ => "not served by this version",
            };
            format!("serve: {text:?} is {why}; {}", allowed(known))
        })
    }
}

fn allowed(known: Systems) -> String {
    format!("allowed are {}", listed(Serve::all(known)))
}

/// Words in quotes, in alphabetical order.
pub(super) fn listed(serves: impl IntoIterator<Item = Serve>) -> String {
    let words = serves.into_iter();
    let mut words: Vec<String> = words.map(|one| format!("{:?}", one.word())).collect();
    words.sort();
    match words.pop() {
        Some(last) if !words.is_empty() => format!("{} and {last}", words.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// What `serve` says of itself in the reference.
pub(super) fn about_serve(known: Systems) -> String {
    let metrics = known.0.iter().filter(|one| one.metrics);
    let metrics: String = metrics
        .map(|one| format!("`metrics:{}`, ", one.name))
        .collect();
    format!(
        "What it serves: `metrics`, {metrics}`health`, `ipam`, `fip-v1`, `admission`, `hooks`, `ping`. `fip-v1` has a login of its own; \
         the others answer whoever reaches them, and `ipam` names every address in use: listen where only those come who may."
    )
}

/// The ports, or what is wrong with one of them or with all together, and where.
pub(super) fn read(
    known: Systems,
    written: Vec<Spanned<RawListener>>,
) -> Result<Vec<Listener>, (Range<usize>, String)> {
    let mut listeners = Vec::new();
    for spanned in written {
        let span = spanned.span();
        let fail = |what: String| Err((span.clone(), what));
        let raw = spanned.into_inner();
        let mut serve = BTreeSet::new();
        for word in &raw.serve {
            let parsed = Serve::parse(known, word.get_ref());
            serve.insert(parsed.map_err(|what| (word.span(), what))?);
        }
        if serve.is_empty() {
            return fail(format!("[[listener]] serve is empty; {}", allowed(known)));
        }
        if serve.iter().filter(|one| one.is_metrics()).count() > 1 {
            let all = Serve::all(known).into_iter().filter(|one| one.is_metrics());
            return fail(format!(
                "[[listener]] serve: {} are at one path, choose one; \"metrics\" has all series",
                listed(all)
            ));
        }
        listeners.push(Listener {
            address: raw.address,
            tls: raw.tls,
            serve,
        });
        check_distinct(&listeners).map_err(|what| (span.clone(), what))?;
    }
    Ok(listeners)
}

/// That each has an address of its own.
pub(super) fn check_distinct(listeners: &[Listener]) -> Result<(), String> {
    let mut taken = BTreeSet::new();
    // Port 0 is another free one each time.
    let fixed = listeners.iter().map(|one| one.address);
    let mut fixed = fixed.filter(|address| address.port() != 0);
    match fixed.find(|address| !taken.insert(*address)) {
        Some(address) => Err(format!(
            "[[listener]] address = \"{address}\" is taken by another [[listener]]; give each its own"
        )),
        None => Ok(()),
    }
}

/// That none of them takes the address of the API, which is not always the file's.
pub(super) fn check_apart(listeners: &[Listener], api: SocketAddr) -> Result<(), String> {
    let mut addresses = listeners.iter().map(|listener| listener.address);
    if api.port() != 0 && addresses.any(|address| address == api) {
        return Err(format!(
            "[[listener]] address = \"{api}\" is taken by the API ([api] listen or --listen); give each its own"
        ));
    }
    Ok(())
}
