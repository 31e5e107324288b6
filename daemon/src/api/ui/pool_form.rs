//! The form of a pool: its fields, and the way from what was typed to a specification and back.

use fipd_core::{Ends, Family, Ledger, PoolSpec, Sticky};
use fipd_web_ui::{Form, Input, InputKind};

use super::{
    forms::{entries, lines, optional, parsed},
    views::{text, whole},
};
use crate::api::{
    rest::wants::scope_view,
    wire::{PoolCreate, PoolPatch, PoolScope},
};

/// Networks to choose from.
const NETWORKS: usize = 1_000;

/// Which free address is given next.
const ORDERS: [(&str, &str); 3] = [
    ("lowest", "the lowest"),
    ("random", "one by chance"),
    (
        "least-recently-used",
        "the one released longest ago, unused ones first",
    ),
];

/// The fields as `spec` has them; those of a new pool without one.
pub fn form(ledger: &Ledger, spec: Option<&PoolSpec>) -> Form {
    let networks = ledger.networks().take(NETWORKS);
    let networks = networks.map(|network| (&*network.name, &*network.name));
    let ends = [
        ("prefix", "each network, by prefix length"),
        ("each-cidr", "each CIDR of the pool"),
    ];
    let units = [
        ("lease", "leases: an address or a prefix is one"),
        ("address", "addresses"),
    ];
    let line = |name, label| Input::new(name, label).note("optional");
    let lines = |name, label| Input::new(name, label).kind(InputKind::Lines);
    let mut inputs = vec![
        Input::new("name", "Name").required(),
        Input::new("network", "Network")
            .kind(InputKind::of(networks))
            .hint("Inside one network an address is given once. A pool that has leases goes to another one, with all of them, \
                   from its page."),
        lines("addresses", "Addresses")
            .required()
            .hint("One a line: a CIDR such as 192.0.2.0/24, a range such as 192.0.2.10-192.0.2.20, or an address."),
        lines("exclusions", "Excluded")
            .note("optional")
            .hint("What is never given of them, one a line."),
        line("gateway", "Gateway")
            .hint("Handed out with each lease. A pool of addresses never gives it; one of prefixes only passes it on."),
        line("prefix", "Prefix length").hint("Empty: that of the CIDR around each address."),
        line("subnet", "Subnet of the link").hint("Where it is wider than the pool, such as 192.0.2.0/23."),
        line("reserve_first", "Reserved at the start")
            .hint("How many addresses at the start are never given. Empty: 1, the network's own; none in a pool of prefixes."),
        line("reserve_last", "Reserved at the end")
            .hint("How many at the end. Empty: 1 for IPv4 (broadcast), 0 for IPv6; none in a pool of prefixes."),
        Input::new("reserve_of", "Start and end of").kind(InputKind::of(ends)),
        Input::new("order", "Order")
            .kind(InputKind::of(ORDERS))
            .hint("Which free address is given next."),
        line("quarantine", "Quarantine")
            .hint("How long an address is quarantined after a release, such as 10m, 2h or 7d. Empty: not at all."),
    ];
    let priority = line("priority", "Priority");
    inputs.push(priority.hint(
        "Of the pools that are there for an asker who names none, the one with the highest is asked first. Empty: 0.",
    ));
    inputs.push(lines("scopes", "Automatic selection for").note("optional").hint(
        "One a line: any, or parts that must all fit of cluster=C, project=P, namespace=N (several: one of them) and \
         label=KEY=VALUE, with commas in between. Empty: it is given only by its name.",
    ));
    let sticky = line("sticky_for", "Sticky for");
    inputs.push(sticky.hint(
        "How long who had an address gets the same one again, such as 7d. Empty: not at all.",
    ));
    let most = line("sticky_most", "Addresses remembered");
    inputs.push(most.hint("How many of them, the latest releases. Empty: 1000."));
    let required = Input::new("quota_required", "Only who has a quota gets addresses");
    inputs.push(required.kind(InputKind::Tick));
    inputs.push(Input::new("quota_unit", "Quotas count").kind(InputKind::of(units)));
    if spec.is_none() {
        let length = line("allocation_length", "Allocate prefixes of");
        inputs.push(length.hint(
            "Bits, such as 64: the pool gives prefixes of this length, and each of its addresses is a CIDR at least as large. \
             It stays as it is. Empty: single addresses.",
        ));
    }
    if spec.is_some() {
        let closed = Input::new("closed", "Closed: gives nothing new, its leases stay");
        inputs.push(closed.kind(InputKind::Tick));
        inputs.push(Input::new("generation", "").kind(InputKind::Hidden));
    }
    let mut form = Form::new("", "Preview", inputs);
    match spec {
        Some(spec) => fill(ledger, &mut form, spec),
        None => {
            form.set("network", "default");
            form.set("sticky_for", duration(Sticky::OWN_DEFAULT.lasts));
            form.set("sticky_most", Sticky::OWN_DEFAULT.most.to_string());
        }
    }
    form
}

fn fill(ledger: &Ledger, form: &mut Form, spec: &PoolSpec) {
    let joined = |list: &[fipd_core::AddressSpec]| {
        let texts: Vec<_> = list.iter().map(ToString::to_string).collect();
        texts.join("\n")
    };
    let tick = |on| if on { "yes".to_owned() } else { String::new() };
    let network = ledger.network(spec.network).map(|network| &network.name);
    let scopes = spec.scopes.iter().map(scope_view);
    let scopes: Vec<_> = scopes.map(|scope| scope.to_string()).collect();
    let most = Some(spec.sticky.most).filter(|_| spec.sticky.is_on());
    let priority = Some(spec.priority).filter(|priority| *priority > 0);
    for (name, value) in [
        ("name", spec.name.to_string()),
        ("network", text(network)),
        ("addresses", joined(&spec.addresses)),
        ("exclusions", joined(&spec.exclusions)),
        ("gateway", text(spec.gateway)),
        ("prefix", text(spec.prefix_len)),
        ("subnet", text(spec.subnet)),
        ("reserve_first", spec.ends.first.to_string()),
        ("reserve_last", spec.ends.last.to_string()),
        ("reserve_of", spec.ends.of.to_string()),
        ("order", spec.order.to_string()),
        ("quarantine", duration(spec.quarantine)),
        ("sticky_for", duration(spec.sticky.lasts)),
        ("sticky_most", text(most)),
        ("scopes", scopes.join("\n")),
        ("priority", text(priority)),
        ("quota_required", tick(spec.quota_required)),
        ("quota_unit", spec.quota_unit.to_string()),
        ("closed", tick(spec.closed)),
    ] {
        form.set(name, value);
    }
}

/// The body that asks for a pool like the form; `None` with the mistakes noted beside the fields. The form of a pool that
/// there is has no allocation length: that stays as `before` has it.
pub fn body(form: &mut Form, before: Option<&PoolSpec>) -> Option<PoolCreate> {
    let prefix = number(form, "prefix", "a prefix length such as 24");
    let length = number(form, "allocation_length", "a whole number such as 64")?;
    let length = before.map_or(length, |before| before.allocation_length);
    let first = number(form, "reserve_first", "a whole number");
    let last = number(form, "reserve_last", "a whole number");
    let priority = number(form, "priority", "a whole number up to 65535");
    let quarantine = lasting(form, "quarantine");
    let sticky = lasting(form, "sticky_for");
    let most = number(form, "sticky_most", "a whole number");
    let scopes = scopes(form);
    let optional = |name| optional(form.value(name));
    let addresses = entries(form.value("addresses"));
    let family = addresses.first().and_then(|text| text.parse().ok());
    let family = family.map_or(Family::V4, |spec: fipd_core::AddressSpec| spec.family());
    let ends = Ends::own_default_of(family, length);
    Some(PoolCreate {
        name: form.value("name").to_owned(),
        network: optional("network"),
        addresses,
        exclusions: entries(form.value("exclusions")),
        allocation_length: length,
        gateway: optional("gateway"),
        prefix: prefix?,
        subnet: optional("subnet"),
        reserve_first: Some(first?.unwrap_or(ends.first)),
        reserve_last: Some(last?.unwrap_or(ends.last)),
        reserve_of: optional("reserve_of"),
        order: optional("order"),
        quarantine: Some(quarantine?),
        sticky_for: Some(sticky?),
        sticky_most: Some(most?.unwrap_or(Sticky::OWN_DEFAULT.most)),
        priority: Some(priority?.unwrap_or(0)),
        scopes: scopes?,
        quota_required: Some(form.value("quota_required") == "yes"),
        quota_unit: optional("quota_unit"),
        ..PoolCreate::default()
    })
}

/// The same for a pool that there is: an empty field takes its value away.
pub fn patch(create: PoolCreate, form: &Form) -> PoolPatch {
    PoolPatch {
        name: Some(create.name),
        network: create.network,
        addresses: Some(create.addresses),
        exclusions: Some(create.exclusions),
        gateway: Some(create.gateway),
        prefix: Some(create.prefix),
        subnet: Some(create.subnet),
        reserve_first: create.reserve_first,
        reserve_last: create.reserve_last,
        reserve_of: create.reserve_of,
        closed: Some(form.value("closed") == "yes"),
        order: create.order,
        quarantine: create.quarantine,
        sticky_for: create.sticky_for,
        sticky_most: create.sticky_most,
        priority: create.priority,
        scopes: Some(create.scopes),
        quota_required: create.quota_required,
        quota_unit: create.quota_unit,
        ..PoolPatch::default()
    }
}

/// One a line; `None` with the mistake noted.
fn scopes(form: &mut Form) -> Option<Vec<PoolScope>> {
    let read = |line: &String| line.parse().map_err(|error| format!("{line}: {error}."));
    let scopes = parsed(form, "scopes", |text| {
        lines(text).iter().map(read).collect::<Result<_, String>>()
    });
    scopes.map(Option::unwrap_or_default)
}

fn number<T: std::str::FromStr>(form: &mut Form, name: &str, allowed: &str) -> Option<Option<T>> {
    parsed(form, name, |text| {
        text.parse()
            .map_err(|_| format!("Write {allowed}, or nothing."))
    })
}

/// Seconds as they were typed; `None` with the mistake noted.
fn lasting(form: &mut Form, name: &str) -> Option<u32> {
    let allowed = "Write a number and s, m, h or d, such as 2h.";
    let seconds = parsed(form, name, |text| seconds(text).ok_or(allowed));
    seconds.map(Option::unwrap_or_default)
}

/// `2h` in seconds; 0 for nothing.
fn seconds(text: &str) -> Option<u32> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, text.chars().next_back()),
        None => (text, None),
    };
    let unit = match unit {
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        Some(_) | None => 1,
    };
    match number {
        "" if text.is_empty() => Some(0),
        number => number.parse::<u32>().ok()?.checked_mul(unit),
    }
}

/// Seconds as they may be typed.
fn duration(seconds: u32) -> String {
    whole(seconds, ["d", "h", "m", "s"])
}

#[cfg(test)]
mod tests {
    use fipd_core::{EndsOf, Order, testing};

    use super::*;
    use crate::api::{
        rest::pools::{new_spec, patched},
        ui::{
            fields::Fields,
            forms::{AS_REST, blame, typed},
        },
    };

    /// What REST makes of the form.
    fn spec(ledger: &Ledger, form: &mut Form, before: Option<&PoolSpec>) -> Option<PoolSpec> {
        let create = body(form, before)?;
        let made = match before {
            None => new_spec(ledger, create),
            Some(before) => patched(ledger, before.clone(), patch(create, form)),
        };
        made.map_err(|problem| blame(form, &problem, AS_REST)).ok()
    }

    fn filled(ledger: &Ledger, pairs: &str) -> Form {
        let mut form = form(ledger, None);
        typed(&mut form, &Fields::parse(pairs.as_bytes()));
        form
    }

    #[test]
    fn a_specification_survives_its_form() {
        let ledger = Ledger::new();
        let mut before = testing::pool_spec("dmz", &["10.0.0.0/24"]);
        before.exclusions = vec!["10.0.0.9".parse().unwrap()];
        before.gateway = Some("10.0.0.1".parse().unwrap());
        before.prefix_len = Some(24);
        before.subnet = Some("10.0.0.0/23".parse().unwrap());
        before.ends.of = EndsOf::EachCidr;
        before.closed = true;
        before.quota_required = true;
        before.order = Order::Random;
        before.quarantine = 7_200;
        before.sticky = Sticky {
            lasts: 3_600,
            most: 25,
        };
        before.priority = 7;
        let scopes = ["any", "cluster=east,namespace=a,namespace=b,label=tier=web"];
        before.scopes = scopes
            .map(|text| crate::api::rest::wants::scope(text.parse().unwrap()))
            .to_vec();
        let mut form = form(&ledger, Some(&before));
        assert_eq!(form.value("quarantine"), "2h");
        let other = testing::pool_spec("other", &["10.9.0.0/24"]);
        let after = spec(&ledger, &mut form, Some(&other));
        assert_eq!(after, Some(before), "{form:?}");
    }

    #[test]
    fn a_new_pool_has_the_usual_ends() {
        let ledger = Ledger::new();
        let mut form = filled(&ledger, "name=six&addresses=2001:db8::/64");
        let made = spec(&ledger, &mut form, None).unwrap();
        assert_eq!(made.ends, Ends::own_default(Family::V6));
        let mut form = filled(
            &ledger,
            "name=x&addresses=10.0.0.0/24,+10.0.1.0/24%0D%0A10.0.2.7",
        );
        assert_eq!(spec(&ledger, &mut form, None).unwrap().addresses.len(), 3);
    }

    #[test]
    fn ends_that_are_cleared_are_the_usual_ones_of_the_pool() {
        let ledger = Ledger::new();
        let mut lab = testing::pool_spec("lab", &["10.0.0.0/24"]);
        lab.ends.first = 7;
        let mut delegated = testing::pool_spec("delegated", &["2001:db8::/48"]);
        delegated.allocation_length = Some(64);
        for (before, ends) in [
            (lab, Ends::own_default(Family::V4)),
            (delegated, Ends::NONE),
        ] {
            let mut form = form(&ledger, Some(&before));
            form.set("reserve_first", "");
            form.set("reserve_last", "");
            let after = spec(&ledger, &mut form, Some(&before)).unwrap();
            assert_eq!(after.ends, ends, "{form:?}");
            assert_eq!(after.allocation_length, before.allocation_length);
            assert_eq!(after.validate(), Ok(()));
        }
    }

    #[test]
    fn mistakes_stand_beside_their_field() {
        let ledger = Ledger::new();
        for (pairs, name) in [
            ("name=x&addresses=nonsense", "addresses"),
            ("name=x&addresses=10.0.0.0/24&exclusions=x", "exclusions"),
            ("name=x&addresses=10.0.0.0/24&gateway=x", "gateway"),
            ("name=x&addresses=10.0.0.0/24&prefix=x", "prefix"),
            ("name=x&addresses=10.0.0.0/24&subnet=x", "subnet"),
            (
                "name=x&addresses=10.0.0.0/24&reserve_last=-1",
                "reserve_last",
            ),
            ("name=x&addresses=10.0.0.0/24&quarantine=soon", "quarantine"),
            (
                "name=x&addresses=10.0.0.0/24&quarantine=99999d",
                "quarantine",
            ),
            ("name=x&addresses=10.0.0.0/24&network=nope", "network"),
            (
                "name=x&addresses=10.0.0.0/24&scopes=any%0Azone%3D1",
                "scopes",
            ),
            ("name=x&addresses=10.0.0.0/24&sticky_most=-1", "sticky_most"),
        ] {
            let mut form = filled(&ledger, pairs);
            assert_eq!(spec(&ledger, &mut form, None), None, "{pairs}");
            let wrong = form.inputs.iter().find(|input| input.field.error.is_some());
            assert_eq!(wrong.map(|input| input.name), Some(name), "{pairs}");
        }
    }

    #[test]
    fn durations_are_read_and_written() {
        for (text, value) in [
            ("", 0),
            ("90", 90),
            ("10m", 600),
            ("2h", 7_200),
            ("1d", 86_400),
        ] {
            assert_eq!(seconds(text), Some(value), "{text}");
        }
        for text in ["h", "2w", "-1h", "1.5h"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        assert_eq!(duration(5_400), "90m");
        assert_eq!(duration(0), "");
    }
}
