//! The packet filter's table of sources that are indexed, as the JSON of `nft`. Pure.
//!
//! ```text
//!  output, prerouting --saddr--> map v4, v6 --jump--> mark-0x10000: sets these bits of the mark, leaves the others
//!   |
//!   `-- a mark of Cilium's: return
//! ```
//!
//! Written by hand: the `nftables` crate has no maps of verdicts, and a map of marks would set all bits of the mark. The
//! owner is the name of a chain, since `nft` 1.0.6 keeps comments of tables out of its JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display},
    net::IpAddr,
};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use fipd_core::{Family, host::CILIUM_MARKS};

/// Of family `inet`, which is both.
pub(super) const TABLE: &str = "fipd";

/// Before what routes a packet looks at the mark.
const BASE_CHAINS: [(&str, &str); 2] = [("output", "route"), ("prerouting", "filter")];
const PRIORITY_MANGLE: i32 = -150;
/// Sources; with less a map is hardly smaller.
const LEAST_ROOM: usize = 1_024;
const OWNER: &str = "made-by-fipd-with-protocol-";

/// The mark of each source.
pub(super) type Index = BTreeMap<IpAddr, u32>;

/// What `nft` does as a whole or not at all.
#[derive(Debug, Serialize)]
pub(super) struct Transaction {
    nftables: Vec<FilterCommand>,
}

/// Elements are typed, since a set may have a hundred thousand of them.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum FilterCommand {
    Object(Value),
    Elements(BTreeMap<&'static str, ElementCommand>),
}

#[derive(Debug, Serialize)]
struct ElementCommand {
    element: MapElements,
}

#[derive(Debug, Serialize)]
struct MapElements {
    family: &'static str,
    table: &'static str,
    name: &'static str,
    elem: Vec<Element>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Element {
    Source(IpAddr),
    ChainVerdict(IpAddr, ChainVerdict),
}

#[derive(Debug, Serialize)]
struct ChainVerdict {
    jump: Jump,
}

#[derive(Debug, Serialize)]
struct Jump {
    /// The mark whose chain it is.
    #[serde(serialize_with = "as_mark_name")]
    target: u32,
}

/// What `nft` found.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// No table of this name.
    Absent,
    /// Somebody else's.
    Foreign,
    Own(Table),
}

/// Our table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    pub index: Index,
    /// All but the sources, to be compared with itself only: `nft` shows it in another way than it was told.
    pub shape: Vec<Value>,
}

/// One transaction that puts everything in the place of whatever there is.
///
/// `room` is for how many sources each map has space: the kernel takes many at once three times as fast where it knows.
pub(super) fn rebuild(protocol: u8, mask: u32, index: &Index, room: usize) -> Transaction {
    let table = json!({"family": "inet", "name": TABLE});
    // Only what is there can be deleted.
    let mut commands = vec![
        json!({"add": {"table": table}}),
        json!({"delete": {"table": table}}),
        json!({"add": {"table": table}}),
        chain(&owner(protocol)),
    ];
    commands.extend([Family::V4, Family::V6].map(|family| {
        let (map, kind) = match family {
            Family::V4 => ("v4", "ipv4_addr"),
            Family::V6 => ("v6", "ipv6_addr"),
        };
        json!({"add": {"map": {
            "family": "inet", "table": TABLE, "name": map, "type": kind, "map": "verdict",
            "size": room,
        }}})
    }));
    commands.extend(marks(index).flat_map(|mark| mark_chain(mark, mask)));
    for (name, kind) in BASE_CHAINS {
        commands.push(json!({"add": {"chain": {
            "family": "inet", "table": TABLE, "name": name, "type": kind, "hook": name,
            "prio": PRIORITY_MANGLE, "policy": "accept",
        }}}));
        commands.push(rule(name, &spare_cilium()));
        for (protocol, map) in [("ip", "@v4"), ("ip6", "@v6")] {
            let source = json!({"payload": {"protocol": protocol, "field": "saddr"}});
            let find = json!([{"vmap": {"key": source, "data": map}}]);
            commands.push(rule(name, &find));
        }
    }
    let all = index.iter().map(|(source, mark)| (*source, Some(*mark)));
    let commands = commands.into_iter().map(FilterCommand::Object);
    Transaction {
        nftables: commands.chain(elements("add", all)).collect(),
    }
}

/// One transaction from one to the other.
pub(super) fn change(from: &Index, to: &Index, mask: u32) -> Transaction {
    let added = to
        .iter()
        .filter(|(source, mark)| from.get(source) != Some(mark));
    let gone = from
        .iter()
        .filter(|(source, mark)| to.get(source) != Some(mark));
    let new = marks(to).filter(|mark| !marks(from).any(|old| old == *mark));
    let chains = new.flat_map(|mark| mark_chain(mark, mask));
    let old = marks(from).filter(|mark| !marks(to).any(|new| new == *mark));
    let emptied = old.map(|mark| {
        let name = mark_name(mark).to_string();
        json!({"delete": {"chain": {"family": "inet", "table": TABLE, "name": name}}})
    });
    let deleted = elements("delete", gone.map(|(source, _)| (*source, None)));
    let added = added.map(|(source, mark)| (*source, Some(*mark)));
    let commands = chains.map(FilterCommand::Object).chain(deleted);
    let commands = commands.chain(elements("add", added));
    Transaction {
        nftables: commands.chain(emptied.map(FilterCommand::Object)).collect(),
    }
}

/// Whether the change is one of sources only.
pub(super) fn same_marks(one: &Index, other: &Index) -> bool {
    marks(one).eq(marks(other))
}

/// The space of a map for so many sources, with some to spare.
pub(super) fn room(sources: usize) -> usize {
    sources
        .saturating_mul(2)
        .next_power_of_two()
        .max(LEAST_ROOM)
}

impl Table {
    /// Whether its maps have space for all of these.
    pub fn has_room(&self, index: &Index) -> bool {
        let sizes = self.shape.iter();
        let sizes = sizes.filter_map(|object| object.pointer("/map/size")?.as_u64());
        let least = sizes.min().and_then(|size| usize::try_from(size).ok());
        least.is_some_and(|least| index.len() <= least)
    }
}

/// The least that has the same marks.
pub(super) fn one_of_each(index: &Index) -> Index {
    let by_mark: BTreeMap<u32, IpAddr> = index
        .iter()
        .map(|(source, mark)| (*mark, *source))
        .collect();
    by_mark
        .into_iter()
        .map(|(mark, source)| (source, mark))
        .collect()
}

pub(super) fn remove() -> Transaction {
    let table = json!({"family": "inet", "name": TABLE});
    let commands = [
        json!({"add": {"table": table}}),
        json!({"delete": {"table": table}}),
    ];
    Transaction {
        nftables: commands.map(FilterCommand::Object).into(),
    }
}

/// What `nft -j list table` says of a table that is there. Ours is that of any of these tags.
pub(super) fn read(listed: &Value, tags: &BTreeSet<u8>) -> Option<Found> {
    let objects = listed.get("nftables")?.as_array()?;
    let owners: Vec<String> = tags.iter().map(|tag| owner(*tag)).collect();
    let is_owner = |object: &Value| {
        let name = object.pointer("/chain/name").and_then(Value::as_str);
        name.is_some_and(|name| owners.iter().any(|owner| owner == name))
    };
    if !objects.iter().any(is_owner) {
        return Some(Found::Foreign);
    }
    let mut index = Index::new();
    let mut shape = Vec::new();
    for object in objects {
        if object.get("metainfo").is_some() {
            continue;
        }
        let mut object = object.clone();
        for element in take_elements(&mut object) {
            index.extend(read_element(&element));
        }
        shape.push(object);
    }
    Some(Found::Own(Table { index, shape }))
}

/// Any JSON as what `nft` lists: what is ours is compared and changed.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz(listed: &Value) {
    let Some(Found::Own(table)) = read(listed, &[200].into()) else {
        return;
    };
    let least = one_of_each(&table.index);
    assert!(same_marks(&least, &table.index));
    let sources = table.index.len();
    let _ = (
        table.has_room(&least),
        change(&table.index, &least, 0xff),
        rebuild(200, 0xff, &table.index, room(sources)),
    );
}

/// Takes the elements out of a map, and the numbers that change with each rebuild.
fn take_elements(object: &mut Value) -> Vec<Value> {
    let inner = object.as_object_mut();
    let inner = inner.and_then(|object| object.values_mut().next()?.as_object_mut());
    let Some(inner) = inner else {
        return Vec::new();
    };
    inner.remove("handle");
    match inner.remove("elem") {
        Some(Value::Array(elements)) => elements,
        _ => Vec::new(),
    }
}

fn read_element(element: &Value) -> Option<(IpAddr, u32)> {
    let source = element.get(0)?.as_str()?.parse().ok()?;
    let chain = element.get(1)?.pointer("/jump/target")?.as_str()?;
    let mark = u32::from_str_radix(chain.strip_prefix("mark-0x")?, 16).ok()?;
    Some((source, mark))
}

fn marks(index: &Index) -> impl Iterator<Item = u32> + use<> {
    let marks: BTreeSet<u32> = index.values().copied().collect();
    marks.into_iter()
}

fn owner(protocol: u8) -> String {
    format!("{OWNER}{protocol}")
}

fn mark_name(mark: u32) -> impl Display {
    fmt::from_fn(move |f| write!(f, "mark-{mark:#x}"))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn as_mark_name<S: Serializer>(mark: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&mark_name(*mark))
}

fn chain(name: &str) -> Value {
    json!({"add": {"chain": {"family": "inet", "table": TABLE, "name": name}}})
}

fn rule(chain: &str, statements: &Value) -> Value {
    json!({"add": {"rule": {
        "family": "inet", "table": TABLE, "chain": chain, "expr": statements,
    }}})
}

/// Packets whose mark is Cilium's go on as they are.
fn spare_cilium() -> Value {
    let bits = json!({"&": [{"meta": {"key": "mark"}}, CILIUM_MARKS]});
    json!([{"match": {"op": "!=", "left": bits, "right": 0}}, {"return": null}])
}

/// A chain that sets the bits under the mask to these.
fn mark_chain(mark: u32, mask: u32) -> [Value; 2] {
    let name = mark_name(mark).to_string();
    let key = json!({"meta": {"key": "mark"}});
    let value = json!({"|": [{"&": [key, !mask]}, mark]});
    let set = json!([{"mangle": {"key": key, "value": value}}]);
    [chain(&name), rule(&name, &set)]
}

/// With their chains, or bare.
fn elements(
    verb: &'static str,
    all: impl Iterator<Item = (IpAddr, Option<u32>)>,
) -> impl Iterator<Item = FilterCommand> {
    let mut by_map: BTreeMap<&str, Vec<Element>> = BTreeMap::new();
    for (source, mark) in all {
        let map = match source {
            IpAddr::V4(_) => "v4",
            IpAddr::V6(_) => "v6",
        };
        let element = match mark {
            Some(target) => Element::ChainVerdict(
                source,
                ChainVerdict {
                    jump: Jump { target },
                },
            ),
            None => Element::Source(source),
        };
        by_map.entry(map).or_default().push(element);
    }
    by_map.into_iter().map(move |(name, elem)| {
        let element = MapElements {
            family: "inet",
            table: TABLE,
            name,
            elem,
        };
        FilterCommand::Elements(BTreeMap::from([(verb, ElementCommand { element })]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(all: &[(&str, u32)]) -> Index {
        let all = all
            .iter()
            .map(|(source, mark)| (source.parse().unwrap(), *mark));
        all.collect()
    }

    #[test]
    fn a_table_is_ours_by_a_chain_of_it_and_tells_its_sources() {
        let listed = json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"table": {"family": "inet", "name": "fipd", "handle": 1}},
            {"chain": {"family": "inet", "table": "fipd", "name": "made-by-fipd-with-protocol-200", "handle": 9}},
            {"map": {"family": "inet", "name": "v4", "table": "fipd", "type": "ipv4_addr", "handle": 1, "map": "verdict",
                "elem": [["10.0.0.1", {"jump": {"target": "mark-0x10000"}}]]}},
            {"map": {"family": "inet", "name": "v6", "table": "fipd", "type": "ipv6_addr", "handle": 2, "map": "verdict",
                "elem": [["2001:db8::1", {"jump": {"target": "mark-0x20000"}}]]}},
        ]});
        assert_eq!(read(&listed, &[201].into()), Some(Found::Foreign));
        let Some(Found::Own(table)) = read(&listed, &[201, 200].into()) else {
            panic!("it is ours");
        };
        let expected = index(&[("10.0.0.1", 0x10000), ("2001:db8::1", 0x20000)]);
        assert_eq!(table.index, expected);
        let shape = serde_json::to_string(&table.shape).unwrap();
        assert!(!shape.contains("handle") && !shape.contains("10.0.0.1"));
        assert_eq!(read(&json!({}), &[200].into()), None);
    }

    #[test]
    fn a_map_has_room_for_twice_its_sources_and_one_that_has_too_little_is_told() {
        assert_eq!(
            [room(0), room(512), room(513), room(100_000)],
            [1_024, 1_024, 2_048, 262_144]
        );
        let map = |size: Value| json!({"map": {"name": "v4", "size": size}});
        let table = |shape: Vec<Value>| Table {
            index: Index::new(),
            shape,
        };
        let two = index(&[("10.0.0.1", 1), ("10.0.0.2", 1)]);
        assert!(table(vec![json!({"table": {}}), map(json!(2)), map(json!(9))]).has_room(&two));
        assert!(!table(vec![map(json!(1)), map(json!(9))]).has_room(&two));
        assert!(
            !table(vec![map(Value::Null)]).has_room(&two),
            "of an earlier version"
        );
    }

    #[test]
    fn the_least_of_an_index_has_its_marks() {
        let all = index(&[("10.0.0.1", 1), ("10.0.0.2", 1), ("2001:db8::1", 3)]);
        let least = one_of_each(&all);
        assert!(least.len() == 2 && same_marks(&least, &all));
        assert!(
            least
                .iter()
                .all(|(source, mark)| all.get(source) == Some(mark))
        );
    }

    #[test]
    fn a_change_has_the_chain_before_its_first_source_and_deletes_it_after_the_last() {
        let from = index(&[("10.0.0.1", 1), ("10.0.0.2", 1), ("10.0.0.3", 3)]);
        let to = index(&[("10.0.0.1", 2), ("10.0.0.3", 3)]);
        let change = serde_json::to_value(change(&from, &to, 0xff)).unwrap();
        let commands = change["nftables"].as_array().unwrap();
        let told = commands.iter().map(|command| {
            let (verb, object) = command.as_object().unwrap().iter().next().unwrap();
            let (kind, object) = object.as_object().unwrap().iter().next().unwrap();
            format!(
                "{verb} {kind} {}",
                object
                    .get("elem")
                    .or(object.get("name"))
                    .unwrap_or(&Value::Null)
            )
        });
        let expected = [
            r#"add chain "mark-0x2""#,
            "add rule null",
            r#"delete element ["10.0.0.1","10.0.0.2"]"#,
            r#"add element [["10.0.0.1",{"jump":{"target":"mark-0x2"}}]]"#,
            r#"delete chain "mark-0x1""#,
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert!(!same_marks(&from, &to) && same_marks(&from, &from));
    }
}
