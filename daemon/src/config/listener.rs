//! `[[listener]]`: further ports, each for some of what fipd serves without login.

use std::{collections::BTreeSet, net::SocketAddr, ops::Range};

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

/// One further port, for whoever reaches it: there is no login of fipd.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Listener {
    /// Where it listens.
    pub address: SocketAddr,
    /// With the certificate of `[api]`.
    #[serde(default = "on")]
    pub tls: bool,
    /// What it serves: `metrics`, `metrics:rancher-fip`, `metrics:ip-rule`, `health`, `ipam`, `fip-v1`, `admission`. The first
    /// five are read without a login or token, `ipam` names every address in use: listen where only those come who may.
    pub serve: BTreeSet<Serve>,
}

/// What a further port serves. To everybody who reaches it: there is no login of fipd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub enum Serve {
    /// `/metrics`.
    Metrics,
    /// `/metrics` with the series of the original rancher-fip-manager and nothing else.
    RancherFipMetrics,
    /// `/metrics` with the series of the original ip-rule-operator and nothing else.
    IpRuleMetrics,
    /// `/healthz` and `/readyz`, and `/health` and `/ready` as the original ip-rule agent has them.
    Health,
    /// What the stock LB controller asks, which has a login of its own.
    FipV1,
    /// `/ipam`, as the original manager had it: every address in use.
    Ipam,
    /// What API servers ask before they store an object.
    Admission,
}

const ALLOWED: &str = "allowed are \"admission\", \"fip-v1\", \"health\", \"ipam\", \"metrics\", \"metrics:ip-rule\" and \"metrics:rancher-fip\"";

fn on() -> bool {
    true
}

impl Serve {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Metrics,
        Self::RancherFipMetrics,
        Self::IpRuleMetrics,
        Self::Health,
        Self::FipV1,
        Self::Ipam,
        Self::Admission,
    ];

    /// As the file has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::RancherFipMetrics => "metrics:rancher-fip",
            Self::IpRuleMetrics => "metrics:ip-rule",
            Self::Health => "health",
            Self::FipV1 => "fip-v1",
            Self::Ipam => "ipam",
            Self::Admission => "admission",
        }
    }
}

impl TryFrom<String> for Serve {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.as_str() {
            "metrics" => Ok(Self::Metrics),
            "metrics:rancher-fip" => Ok(Self::RancherFipMetrics),
            "metrics:ip-rule" => Ok(Self::IpRuleMetrics),
            "health" => Ok(Self::Health),
            "fip-v1" => Ok(Self::FipV1),
            "ipam" => Ok(Self::Ipam),
            "admission" => Ok(Self::Admission),
            "ui" | "api" => Err(format!(
                "serve: {text:?} is served at [api] listen only; {ALLOWED}"
            )),
            _ => Err(format!(
                "serve: {text:?} is not served by this version; {ALLOWED}"
            )),
        }
    }
}

/// What is wrong with all of them together, and where.
pub(super) fn check(listeners: &[Spanned<Listener>]) -> Result<(), (Range<usize>, String)> {
    let mut taken = BTreeSet::new();
    for spanned in listeners {
        let listener = spanned.get_ref();
        let fail = |what: String| Err((spanned.span(), what));
        if listener.serve.is_empty() {
            return fail(format!("[[listener]] serve is empty; {ALLOWED}"));
        }
        let metrics = [
            Serve::Metrics,
            Serve::RancherFipMetrics,
            Serve::IpRuleMetrics,
        ];
        if metrics
            .iter()
            .filter(|one| listener.serve.contains(one))
            .count()
            > 1
        {
            return fail("[[listener]] serve: \"metrics\", \"metrics:rancher-fip\" and \"metrics:ip-rule\" are at one path, choose one; \"metrics\" has all series".into());
        }
        // Port 0 is another free one each time.
        if listener.address.port() != 0 && !taken.insert(listener.address) {
            return fail(format!(
                "[[listener]] address = \"{}\" is taken by another [[listener]]; give each its own",
                listener.address
            ));
        }
    }
    Ok(())
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
