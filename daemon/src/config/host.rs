//! `[host]`: the policy-routing rules of this host.

use std::{
    collections::BTreeSet,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use fipd_core::{Text, host};
use fipd_crds::names::is_object_name;
use schemars::JsonSchema;
use serde::Deserialize;

use super::checked;

/// The section. Where it is there, fipd programs the rules of this host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "RawHost")]
pub struct Host {
    /// The Kubernetes Node that this host is. `None`: it has rules from the address book only.
    pub node: Option<Text>,
    /// Namespace and name of the `Agent` whose pod this is: rules are wanted only as long as it counts and selects the node.
    /// `None`: no Agent's selector is about this host.
    pub agent: Option<(Text, Text)>,
    /// The tag of fipd's rules.
    pub rule_protocol: u8,
    /// Where rules go that name no priority.
    pub rule_priority_band: RangeInclusive<u32>,
    /// Whether the own rules go when fipd stops.
    pub cleanup_on_stop: bool,
    /// Where there are more rules than these, the largest sets are indexed by the packet filter.
    pub indexed_above: usize,
    /// The bits of the packet mark that are fipd's.
    pub mark_mask: u32,
    /// `None`: `nft` on PATH.
    pub nft: Option<PathBuf>,
    /// How often everything is read anew although nothing was told.
    pub resync: Duration,
    /// In their order: of two that want a source, the first has it. Names are distinct.
    #[schemars(skip)]
    pub rules: Vec<HostRule>,
}

/// `[[host.rules]]`: packets of the leased addresses of a pool go by this table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    pub name: Text,
    pub pool: Text,
    pub table: u32,
    /// `None`: the first of the band.
    pub priority: Option<u32>,
    pub fail_closed: bool,
    pub mode: host::Mode,
}

const RESYNC: Duration = Duration::from_secs(300);

impl Default for Host {
    fn default() -> Self {
        let settings = host::HostSettings::default();
        Self {
            node: None,
            agent: None,
            rule_protocol: settings.protocol,
            rule_priority_band: settings.band,
            cleanup_on_stop: false,
            indexed_above: settings.indexed_above,
            mark_mask: settings.mark_mask,
            nft: None,
            resync: RESYNC,
            rules: Vec::new(),
        }
    }
}

impl Host {
    pub(super) fn resolve_paths(&mut self, base: &Path) {
        self.nft = self.nft.take().map(|path| base.join(path));
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RawHost {
    node: Option<String>,
    /// NAMESPACE/NAME of the `Agent` that runs this pod; fipd writes it itself.
    agent: Option<String>,
    rule_protocol: Option<i64>,
    rule_priority_band: Option<[i64; 2]>,
    #[serde(default)]
    cleanup_on_stop: bool,
    indexed_above: Option<u64>,
    /// The bits of the packet mark for that, one run, as a number or as text; not those of kube-proxy (0xc000) or Cilium
    /// (0x0f00).
    mark_mask: Option<Mask>,
    nft: Option<PathBuf>,
    resync: Option<String>,
    #[serde(default)]
    #[schemars(with = "Vec<RawRule>")]
    rules: Vec<HostRule>,
}

/// As people write bits.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Mask {
    Number(i64),
    Text(String),
}

impl TryFrom<RawHost> for Host {
    type Error = String;

    fn try_from(raw: RawHost) -> Result<Self, String> {
        let default = Self::default();
        let mut names = BTreeSet::new();
        if let Some(twice) = raw.rules.iter().find(|rule| !names.insert(&rule.name)) {
            let name = &twice.name;
            return Err(format!(
                "[[host.rules]] name = {name:?} is there twice; each needs a name of its own"
            ));
        }
        Ok(Self {
            node: raw.node.map(node).transpose()?,
            agent: raw.agent.map(agent).transpose()?,
            rule_protocol: given(raw.rule_protocol, default.rule_protocol, protocol)?,
            rule_priority_band: given(raw.rule_priority_band, default.rule_priority_band, band)?,
            cleanup_on_stop: raw.cleanup_on_stop,
            indexed_above: given(raw.indexed_above, default.indexed_above, flat)?,
            mark_mask: given(raw.mark_mask, default.mark_mask, mask)?,
            nft: raw.nft,
            resync: given(raw.resync, default.resync, resync)?,
            rules: raw.rules,
        })
    }
}

fn given<R, T>(raw: Option<R>, default: T, read: fn(R) -> Result<T, String>) -> Result<T, String> {
    raw.map_or(Ok(default), read)
}

fn node(name: String) -> Result<Text, String> {
    if is_object_name(&name) {
        Ok(name.into())
    } else {
        Err(format!(
            "[host] node = {name:?}: allowed is the name of a Node: up to 253 of a-z, 0-9, '-' and '.'"
        ))
    }
}

fn agent(text: String) -> Result<(Text, Text), String> {
    match text.split_once('/') {
        Some((namespace, name)) if is_object_name(namespace) && is_object_name(name) => {
            Ok((namespace.into(), name.into()))
        }
        Some(_) | None => Err(format!(
            "[host] agent = {text:?}: allowed is NAMESPACE/NAME of an Agent; fipd writes it where it runs a pod for one"
        )),
    }
}

fn protocol(number: i64) -> Result<u8, String> {
    let allowed = |why: String| format!("[host] rule-protocol = {number}: {why}");
    let tag = u8::try_from(number).map_err(|_| allowed("allowed is 1 to 255".to_owned()))?;
    host::check_protocol(tag).map_err(|error| allowed(error.to_string()))?;
    Ok(tag)
}

fn band([first, last]: [i64; 2]) -> Result<RangeInclusive<u32>, String> {
    let place = format!("[host] rule-priority-band = [{first}, {last}]");
    let number = |number: i64| u32::try_from(number);
    match (number(first), number(last)) {
        (Ok(first), Ok(last)) => {
            host::check_band(first, last).map_err(|error| format!("{place}: {error}"))
        }
        (Err(_), _) | (_, Err(_)) => {
            Err(format!("{place}: allowed are priorities from 1 to 32764"))
        }
    }
}

fn flat(number: u64) -> Result<usize, String> {
    checked::number("[host] indexed-above", number, 0..=1_000_000, " rules")
}

fn mask(mask: Mask) -> Result<u32, String> {
    let (shown, bits) = match mask {
        Mask::Number(number) => (number.to_string(), u32::try_from(number).ok()),
        Mask::Text(text) => {
            let bits = match text.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            };
            (format!("{text:?}"), bits)
        }
    };
    let place = format!("[host] mark-mask = {shown}");
    let bits = bits.ok_or_else(|| {
        format!("{place}: allowed are bits of a packet mark, such as \"0xff\" or 255")
    })?;
    host::check_mark_mask(bits).map_err(|error| format!("{place}: {error}"))
}

fn resync(text: String) -> Result<Duration, String> {
    let words = "1s to 1d, as a number and s, m, h or d, such as \"5m\"";
    checked::time("[host] resync", &text, 1..=86_400, words)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RawRule {
    /// Names the rule in messages and in the audit log.
    name: String,
    /// The pool whose leased addresses it is for.
    pool: String,
    /// The table of routes that their packets go by.
    table: i64,
    #[serde(default)]
    priority: i64,
    #[serde(default)]
    fail_closed: bool,
    /// `flat`: a rule for each address; `indexed`: the map that `indexed-above` is about; `auto`: by their number.
    #[serde(default)]
    mode: Mode,
}

/// [`host::Mode`], as people write it.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    #[default]
    Auto,
    Flat,
    Indexed,
}

impl<'de> Deserialize<'de> for HostRule {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        rule(RawRule::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

fn rule(raw: RawRule) -> Result<HostRule, String> {
    if !(is_object_name(&raw.name) && raw.name.len() <= 63) {
        return Err(format!(
            "[[host.rules]] name = {:?}: allowed are 1 to 63 of a-z, 0-9, '-' and '.', starting and ending with a letter or digit",
            raw.name
        ));
    }
    let place = format!("[[host.rules]] {:?}", raw.name);
    if raw.pool.is_empty() {
        return Err(format!(
            "{place}: pool = {:?}: allowed is the name of a pool, such as \"vips\" or \"rancher-fip/CLUSTER/NAME\"",
            raw.pool
        ));
    }
    let field = |key: &str, error: host::LimitError| format!("{place}: {key} = {error}");
    let priority = host::check_priority(raw.priority, raw.fail_closed);
    Ok(HostRule {
        table: host::check_table(raw.table).map_err(|error| field("table", error))?,
        priority: priority.map_err(|error| field("priority", error))?,
        name: raw.name.into(),
        pool: raw.pool.into(),
        fail_closed: raw.fail_closed,
        mode: match raw.mode {
            Mode::Auto => host::Mode::Auto,
            Mode::Flat => host::Mode::Flat,
            Mode::Indexed => host::Mode::Indexed,
        },
    })
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    use super::*;

    fn parse(text: &str) -> Result<Host, String> {
        let config = Config::parse(text, Path::new("/etc/fipd"))?;
        Ok(config.host.expect("there is a section"))
    }

    fn host(lines: &str) -> Result<Host, String> {
        parse(&format!("[host]\n{lines}\n"))
    }

    const RULE: &str = "[[host.rules]]\nname = \"web\"\npool = \"vips\"\n";

    #[test]
    fn the_section_alone_is_enough() {
        assert_eq!(Config::default().host, None);
        assert_eq!(host("").unwrap(), Host::default());
        let band = Host::default().rule_priority_band;
        assert_eq!(band, host::BAND_FIRST..=host::BAND_LAST);
    }

    #[test]
    fn a_whole_section_is_read() {
        let lines = "node = \"harvester-1\"\nagent = \"rules/default\"\nrule-protocol = 201\nrule-priority-band = [2000, 2999]\n\
                     cleanup-on-stop = true\nindexed-above = 50\nmark-mask = \"0xff0000\"\nnft = \"nft\"\nresync = \"30s\"\n";
        let rule =
            format!("{RULE}table = 100\npriority = 1500\nfail-closed = true\nmode = \"indexed\"\n");
        let expected = Host {
            node: Some("harvester-1".into()),
            agent: Some(("rules".into(), "default".into())),
            rule_protocol: 201,
            rule_priority_band: 2_000..=2_999,
            cleanup_on_stop: true,
            indexed_above: 50,
            mark_mask: 0x00ff_0000,
            nft: Some("/etc/fipd/nft".into()),
            resync: Duration::from_secs(30),
            rules: vec![HostRule {
                name: "web".into(),
                pool: "vips".into(),
                table: 100,
                priority: Some(1_500),
                fail_closed: true,
                mode: host::Mode::Indexed,
            }],
        };
        assert_eq!(host(&format!("{lines}{rule}")).unwrap(), expected);
        assert_eq!(host("mark-mask = 15").unwrap().mark_mask, 15);
        assert_eq!(host("mark-mask = \"240\"").unwrap().mark_mask, 240);
    }

    #[test]
    fn what_is_not_allowed_is_refused_with_field_value_and_what_is() {
        for (line, words) in [
            (
                "node = \"My Node\"",
                ["node = \"My Node\"", "name of a Node"],
            ),
            (
                "rule-protocol = 2",
                ["rule-protocol = 2", "but those of others"],
            ),
            ("rule-protocol = 300", ["rule-protocol = 300", "1 to 255"]),
            (
                "rule-priority-band = [900, 1100]",
                ["[900, 1100]", "leave out 1000"],
            ),
            (
                "rule-priority-band = [-1, 7]",
                ["[-1, 7]", "from 1 to 32764"],
            ),
            (
                "indexed-above = 1000001",
                ["indexed-above = 1000001", "1000000"],
            ),
            ("mark-mask = \"0xc000\"", ["\"0xc000\"", "kube-proxy"]),
            ("mark-mask = 0", ["mark-mask = 0", "one run of bits"]),
            ("mark-mask = \"all\"", ["\"all\"", "such as \"0xff\""]),
            ("resync = \"0s\"", ["resync = \"0s\"", "1s to 1d"]),
            ("protocol = 200", ["unknown field", "`rule-protocol`"]),
        ] {
            let error = host(line).unwrap_err();
            assert!(
                words.iter().all(|word| error.contains(word)),
                "{line}: {error}"
            );
            assert!(error.contains("line "), "{line}: {error}");
        }
    }

    #[test]
    fn conformance_11_tables_and_priorities_of_the_kernel_are_refused() {
        for (lines, words) in [
            ("table = 0\n", "table = 0"),
            ("table = -1\n", "table = -1"),
            ("table = 4294967296\n", "table = 4294967296"),
            ("table = 1\npriority = 32766\n", "priority = 32766"),
            (
                "table = 1\npriority = 32765\nfail-closed = true\n",
                "priority = 32765",
            ),
            ("table = 1\nmode = \"tree\"\n", "`flat`"),
        ] {
            let error = host(&format!("{RULE}{lines}")).unwrap_err();
            assert!(error.contains(words), "{lines}: {error}");
        }
        let last = host(&format!("{RULE}table = 4294967295\n")).unwrap();
        assert_eq!(last.rules[0].table, u32::MAX);
        let twice = format!("{RULE}table = 1\n{RULE}table = 2\n");
        assert!(host(&twice).unwrap_err().contains("twice"));
    }
}
