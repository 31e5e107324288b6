use super::*;
use crate::{Ends, EndsOf};

fn spec(addresses: &[&str]) -> PoolSpec {
    let addresses: Vec<AddressSpec> = addresses
        .iter()
        .map(|text| text.parse().expect(text))
        .collect();
    let family = addresses.first().map_or(Family::V4, AddressSpec::family);
    PoolSpec {
        ends: Ends::own_default(family),
        ..PoolSpec::own("p", addresses)
    }
}

fn assignable(spec: &PoolSpec) -> Vec<String> {
    let layout = Layout::new(spec).expect("valid");
    layout
        .assignable
        .iter()
        .map(|span| format!("{}-{}", span.first_address(), span.last_address()))
        .collect()
}

fn refused(spec: &PoolSpec) -> &'static str {
    Layout::new(spec).expect_err("not valid").field
}

#[test]
fn own_pools_reserve_the_ends_of_their_links() {
    assert_eq!(assignable(&spec(&["10.0.0.0/24"])), ["10.0.0.1-10.0.0.254"]);
    assert_eq!(
        assignable(&spec(&["2001:db8::/64"])),
        ["2001:db8::1-2001:db8::ffff:ffff:ffff:ffff"]
    );
}

#[test]
fn links_of_one_or_two_addresses_are_fully_usable() {
    for text in [
        "10.0.0.0/31",
        "10.0.0.4/32",
        "10.0.0.9",
        "2001:db8::/127",
        "2001:db8::/128",
    ] {
        let spec = spec(&[text]);
        let size = spec.size().expect("valid");
        assert_eq!(size.assignable, size.listed, "{text}");
    }
    assert_eq!(assignable(&spec(&["10.0.0.0/30"])), ["10.0.0.1-10.0.0.2"]);
}

#[test]
fn ranges_have_ends_only_where_the_link_is_known() {
    let mut pool = spec(&["10.0.0.0-10.0.0.255"]);
    assert_eq!(assignable(&pool), ["10.0.0.0-10.0.0.255"]);
    pool.prefix_len = Some(25);
    assert_eq!(
        assignable(&pool),
        ["10.0.0.1-10.0.0.126", "10.0.0.129-10.0.0.254"]
    );
    pool.prefix_len = None;
    pool.subnet = Some("10.0.0.0/16".parse().expect("a net"));
    assert_eq!(assignable(&pool), ["10.0.0.1-10.0.0.255"]);
}

#[test]
fn each_cidr_may_have_its_own_ends() {
    let mut pool = spec(&["10.0.0.0/30", "10.0.0.8/30"]);
    pool.prefix_len = Some(24);
    assert_eq!(
        assignable(&pool),
        ["10.0.0.1-10.0.0.3", "10.0.0.8-10.0.0.11"]
    );
    pool.ends.of = EndsOf::EachCidr;
    assert_eq!(
        assignable(&pool),
        ["10.0.0.1-10.0.0.2", "10.0.0.9-10.0.0.10"]
    );
}

#[test]
fn floating_ip_pools_lose_only_the_broadcast_address_of_the_subnet() {
    let mut pool = spec(&["10.0.0.0-10.0.0.255"]);
    pool.subnet = Some("10.0.0.0/24".parse().expect("a net"));
    (pool.ends.first, pool.ends.last) = (0, 1);
    assert_eq!(assignable(&pool), ["10.0.0.0-10.0.0.254"]);
}

#[test]
fn exclusions_and_gateway_are_taken_out() {
    let mut pool = spec(&["10.0.0.0/28"]);
    pool.exclusions = ["10.0.0.4", "10.0.0.8-10.0.0.9", "10.0.0.12/30", "192.0.2.1"]
        .iter()
        .map(|t| t.parse().expect(t))
        .collect();
    pool.gateway = Some("10.0.0.1".parse().expect("an address"));
    assert_eq!(
        assignable(&pool),
        [
            "10.0.0.2-10.0.0.3",
            "10.0.0.5-10.0.0.7",
            "10.0.0.10-10.0.0.11"
        ]
    );
    let size = pool.size().expect("valid");
    assert_eq!(
        (size.listed, size.excluded, size.reserved, size.assignable),
        (16, 7, 2, 7)
    );
}

#[test]
fn large_and_wide_pools_are_laid_out_at_once() {
    assert_eq!(
        spec(&["0.0.0.0/0"]).size().expect("valid").assignable,
        (1 << 32) - 2
    );
    let all = spec(&["::/0"]).size().expect("valid");
    assert_eq!(all.listed, u128::MAX);
    assert_eq!(all.assignable, u128::MAX - (1 << 32));
    let mut pool = spec(&["10.0.0.0/8"]);
    pool.prefix_len = Some(24);
    assert_eq!(pool.size().expect("valid").reserved, 2 * 65_536);
}

#[test]
fn entries_may_overlap() {
    let pool = spec(&["10.0.0.0/24", "10.0.0.128/25", "10.0.0.250-10.0.1.10"]);
    assert_eq!(
        assignable(&pool),
        ["10.0.0.1-10.0.0.254", "10.0.1.0-10.0.1.10"]
    );
    let layout = Layout::new(&pool).expect("valid");
    let prefix = |text: &str| prefix_len(&pool, &layout, text.parse().expect(text));
    assert_eq!((prefix("10.0.0.200"), prefix("10.0.1.3")), (24, 32));
}

#[test]
fn what_fits_no_pool_is_refused_by_field() {
    assert_eq!(refused(&spec(&[])), "addresses");
    assert_eq!(
        refused(&spec(&["10.0.0.0/24", "2001:db8::/64"])),
        "addresses"
    );
    let with = |change: &dyn Fn(&mut PoolSpec)| {
        let mut spec = spec(&["10.0.0.0/24"]);
        change(&mut spec);
        refused(&spec)
    };
    assert_eq!(
        with(&|spec| spec.exclusions = vec!["::1".parse().expect("::1")]),
        "exclusions"
    );
    assert_eq!(with(&|spec| spec.gateway = "::1".parse().ok()), "gateway");
    assert_eq!(
        with(&|spec| spec.gateway = "10.0.1.1".parse().ok()),
        "gateway"
    );
    assert_eq!(with(&|spec| spec.prefix_len = Some(33)), "prefix");
    assert_eq!(with(&|spec| spec.prefix_len = Some(0)), "prefix");
    assert_eq!(
        with(&|spec| spec.subnet = "10.0.0.0/25".parse().ok()),
        "addresses"
    );
    assert_eq!(
        with(&|spec| spec.subnet = "fd00::/64".parse().ok()),
        "subnet"
    );
    assert_eq!(with(&|spec| spec.ends.first = 255), "ends");
    assert_eq!(with(&|spec| spec.name = "a/b".into()), "name");
    assert_eq!(
        with(&|spec| spec.addresses = vec![spec.addresses[0]; PoolSpec::MAX_SPECS + 1]),
        "addresses"
    );
    let mut wide = spec(&["2001:db8::/32"]);
    wide.prefix_len = Some(64);
    assert_eq!(refused(&wide), "prefix");
    wide.ends = Ends::NONE;
    assert_eq!(
        Layout::new(&wide).map(|layout| layout.size.assignable),
        Ok(1 << 96)
    );
}

#[test]
fn a_gateway_beside_the_pool_needs_the_link() {
    let mut pool = spec(&["10.0.0.64/26"]);
    pool.gateway = "10.0.0.1".parse().ok();
    assert_eq!(refused(&pool), "gateway");
    pool.prefix_len = Some(24);
    assert_eq!(assignable(&pool), ["10.0.0.64-10.0.0.127"]);
}
