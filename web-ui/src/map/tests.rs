use super::*;

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn span(first: &str, last: &str) -> Span {
    let number = |text: &str| ip(text).to_bits().into();
    Span {
        family: Family::V4,
        first: number(first),
        last: number(last),
    }
}

#[test]
fn every_address_gets_its_kind() {
    let held = |address: &str, state, contended| Held {
        address: ip(address),
        state,
        contended,
        owner: "o".into(),
    };
    let leases = [
        held("10.0.1.10", LeaseState::Allocated, false),
        held("10.0.1.11", LeaseState::Reserved, false),
        held("10.0.1.12", LeaseState::Quarantined, false),
        held("10.0.1.13", LeaseState::Allocated, true),
        // Adopted where the pool gives nothing: shown all the same.
        held("10.0.1.255", LeaseState::Orphaned, false),
    ];
    let plan = MapPlan {
        network: 4,
        at: ip("10.0.1.77"),
        spans: &PoolSpans {
            listed: vec![span("10.0.0.0", "10.0.1.127")],
            assignable: vec![span("10.0.0.2", "10.0.1.99")],
            withheld: vec![
                span("10.0.1.10", "10.0.1.10"),
                span("10.0.1.112", "10.0.1.115"),
            ],
        },
        excluded: &[
            span("10.0.1.100", "10.0.1.110"),
            span("10.0.1.130", "10.0.1.131"),
        ],
        gateway: Some(ip("10.0.1.5").into()),
        leases: &leases,
    };
    let cells = cells(&plan);
    assert_eq!(cells.len(), 256);
    assert_eq!(cells[0].address, ip("10.0.1.0"));
    assert_eq!(cells[255].address, ip("10.0.1.255"));
    for (offset, kind) in [
        (0, CellKind::Free),
        (5, CellKind::Gateway),
        (10, CellKind::Allocated),
        (11, CellKind::Reserved),
        (12, CellKind::Quarantined),
        (13, CellKind::Contended),
        (99, CellKind::Free),
        (100, CellKind::Excluded),
        (110, CellKind::Excluded),
        (111, CellKind::ReservedEnd),
        (112, CellKind::Withheld),
        (115, CellKind::Withheld),
        (116, CellKind::ReservedEnd),
        (127, CellKind::ReservedEnd),
        (130, CellKind::Outside),
        (128, CellKind::Outside),
        (255, CellKind::Orphaned),
    ] {
        assert_eq!(cells[offset].kind, kind, "cell {offset}");
    }
    assert_eq!(cells[10].title(), "10.0.1.10 allocated: o");
    assert_eq!(cells[0].title(), "10.0.1.0 free");
    assert_eq!(cells[10].link(), "/ui/networks/4/addresses/10.0.1.10");
}

#[test]
fn the_last_block_of_all_is_complete() {
    let plan = MapPlan {
        network: 0,
        at: Ipv4Addr::BROADCAST,
        spans: &PoolSpans {
            listed: vec![span("255.255.255.0", "255.255.255.255")],
            ..PoolSpans::default()
        },
        excluded: &[],
        gateway: None,
        leases: &[],
    };
    let cells = cells(&plan);
    assert_eq!(cells[255].address, Ipv4Addr::BROADCAST);
    assert!(cells.iter().all(|cell| cell.kind == CellKind::ReservedEnd));
}

#[test]
fn blocks_are_counted_over_gaps_and_shared_ones_once() {
    let runs = blocks([
        span("10.0.9.0", "10.0.9.3"),
        span("10.0.0.10", "10.0.1.20"),
        span("10.0.1.200", "10.0.1.210"),
        span("10.0.2.0", "10.0.2.0"),
    ]);
    assert_eq!(block_count(&runs), 4);
    for (index, base) in [
        (0, "10.0.0.0"),
        (1, "10.0.1.0"),
        (2, "10.0.2.0"),
        (3, "10.0.9.0"),
    ] {
        assert_eq!(block_at(&runs, index), Some(ip(base)));
        assert_eq!(block_of(&runs, ip(base)), Some(index));
    }
    assert_eq!(block_at(&runs, 4), None);
    assert_eq!(block_of(&runs, ip("10.0.3.0")), None);
}

#[test]
fn a_whole_family_is_no_trouble() {
    let runs = blocks([span("0.0.0.0", "255.255.255.255")]);
    assert_eq!(block_count(&runs), 1 << 24);
    assert_eq!(block_at(&runs, (1 << 24) - 1), Some(ip("255.255.255.0")));
    assert_eq!(block_of(&runs, Ipv4Addr::BROADCAST), Some((1 << 24) - 1));
    assert_eq!(block_count(&blocks([])), 0);
}

#[test]
fn the_legend_counts_what_is_on_the_page() {
    let plan = MapPlan {
        network: 0,
        at: ip("10.0.0.0"),
        spans: &PoolSpans {
            listed: vec![span("10.0.0.0", "10.0.0.15")],
            assignable: vec![span("10.0.0.1", "10.0.0.12")],
            withheld: vec![span("10.0.0.13", "10.0.0.14")],
        },
        excluded: &[],
        gateway: Some(ip("10.0.0.1").into()),
        leases: &[],
    };
    let map = AddressMap {
        cells: cells(&plan),
        block: 1,
        blocks: 1,
        first: None,
        previous: None,
        next: None,
        last: None,
        goto: crate::Field::default(),
        target: String::new(),
    };
    assert_eq!(map.name(), "10.0.0.0/24");
    assert_eq!(
        map.legend(),
        [
            (CellKind::Free, 11),
            (CellKind::Gateway, 1),
            (CellKind::Withheld, 2),
            (CellKind::ReservedEnd, 2),
            (CellKind::Outside, 240)
        ]
    );
}

#[test]
fn every_kind_has_a_class_a_word_and_a_look_of_its_own() {
    let style = include_str!("../../assets/fipd.css");
    for (at, kind) in CellKind::ALL.iter().enumerate() {
        let look = [
            format!(".key.{} {{", kind.class()),
            format!(".key.{},", kind.class()),
        ];
        assert!(look.iter().any(|look| style.contains(look)), "{kind:?}");
        for other in &CellKind::ALL[at + 1..] {
            assert!(kind.class() != other.class() && kind.word() != other.word());
        }
    }
}
