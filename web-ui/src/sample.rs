//! Filled-in pages for the tests.

use std::net::Ipv4Addr;

use fipd_core::{Family, LeaseState, PoolSpans, PoolUsage, Span};

use crate::{
    AddressMap, AddressPage, AllocateForm, AuditRow, Bar, Chart, ClusterRow, Dashboard, Doubt,
    Field, Flow, Form, Health, Input, LeaseRow, Moment, Nav, Pager, Party, Point, PoolPage,
    PoolRow, RulesCard, Shell, StoreCard, Usage, Viewer, Waiter, Warning, map,
};

pub const NOW: Moment = Moment(1_795_240_640_000);
const OWNER: &str = "rancher-fip/c-1/Service/shop/web<1>";

pub fn shell(may_write: bool) -> Shell {
    let viewer = Viewer {
        name: "ann".into(),
        role: if may_write { "operator" } else { "viewer" }.into(),
        may_write,
        csrf: "c5rf".into(),
    };
    Shell {
        nav: Nav::Pools,
        viewer: Some(viewer),
        notice: None,
        store: None,
    }
}

/// Name, value and what is wrong of each field; empty: nothing.
pub fn form(fields: &[(&'static str, &str, &str)]) -> Form {
    let mut form = Form::default();
    for &(name, value, wrong) in fields {
        form.inputs.push(Input::new(name, "").value(value));
        if !wrong.is_empty() {
            form.wrong(name, wrong);
        }
    }
    form
}

pub fn lease(address: &str, state: LeaseState) -> LeaseRow {
    LeaseRow {
        network: 0,
        address: address.parse().unwrap(),
        length: None,
        state,
        contended: false,
        out_of_range: false,
        owner: OWNER.into(),
        others: 0,
        since: NOW,
        until: None,
    }
}

pub fn pool_row(id: u32, name: &str, size: u128, used: u128) -> PoolRow {
    let usage = Usage(PoolUsage {
        size,
        used,
        free: size - used,
        excluded: 2,
        ..PoolUsage::default()
    });
    let (name, network) = (name.into(), "default".into());
    PoolRow {
        id,
        name,
        network,
        family: "IPv4",
        usage,
        closed: false,
        waiting: 0,
        mirrors: String::new(),
        full_in: Some(50),
        forecast: "full in about 2 days".into(),
    }
}

pub fn history() -> Vec<AuditRow> {
    let row = |action: &str, detail: &str| AuditRow {
        at: NOW,
        actor: "user:ann".into(),
        action: action.into(),
        address: Some((
            "10.20.0.7".into(),
            "/ui/networks/0/addresses/10.20.0.7".into(),
        )),
        pool: Some(("dmz".into(), "/ui/pools/1".into())),
        owner: OWNER.into(),
        detail: detail.into(),
    };
    vec![row("handed-over", "a <reason>"), row("allocated", "")]
}

pub fn lease_page(may_write: bool) -> AddressPage {
    let party = |owner: &str| Party {
        owner: owner.into(),
        listed: None,
        instance: "6b1f".into(),
        cluster: "edge-1".into(),
        guest: Some(("/ui/guests?filter=c-m-1".into(), "shop".into())),
        ports: vec!["TCP 443".into()],
        uses: Vec::new(),
        since: Some(NOW),
    };
    AddressPage {
        shell: shell(may_write),
        network_name: "default".into(),
        address: "10.20.0.7".parse().unwrap(),
        pool: Some((1, "dmz".into())),
        prefix_len: Some(24),
        gateway: Some("10.20.0.1".parse().unwrap()),
        tenant: "p-abc".into(),
        labels: vec![("app".into(), "we<b".into())],
        lease: Some(LeaseRow {
            contended: true,
            ..lease("10.20.0.7", LeaseState::Allocated)
        }),
        free: None,
        holders: vec![party(OWNER)],
        contenders: vec![party("kube-fip/c-2/FloatingIP/old/web")],
        listed: vec![("/ui/pools/1".into(), "dmz".into(), "")],
        history: history(),
        pager: Pager::default(),
    }
}

pub fn pool_page(may_write: bool) -> PoolPage {
    PoolPage {
        shell: shell(may_write),
        pool: PoolRow {
            usage: Usage(PoolUsage {
                excluded: 14,
                withheld: 12,
                ..pool_row(1, "dmz", 242, 3).usage.0
            }),
            ..pool_row(1, "dmz", 242, 3)
        },
        addresses: vec!["10.20.0.0/24".into()],
        exclusions: vec!["10.20.0.200-10.20.0.210".into()],
        allocation_length: None,
        quota_of_addresses: false,
        gateway: "10.20.0.1".into(),
        prefix_len: "24".into(),
        origin: "own pool".into(),
        follows: None,
        created: NOW,
        generation: 3,
        quota_required: true,
        quarantine: "1 h".into(),
        remembered: "1000 addresses for 7 d".into(),
        priority: 5,
        scopes: vec!["cluster=east,namespace=shop".into()],
        forecast: "At the pace of the last seven days it is full in about 3 days.".into(),
        chart: Some(Chart {
            from: Moment(NOW.0 - 1_000),
            to: NOW,
            points: vec![Point {
                at: NOW,
                used: 3,
                size: 242,
            }],
        }),
        held_by: vec![],
        doubts: vec![Doubt {
            network: "vlan-20".into(),
            pool: "flat-network/lab/prod/web".into(),
        }],
        shared: vec![
            "10.20.0.32-10.20.0.47 with IPAddressPool metallb-system/public of cluster east".into(),
        ],
        waiting: vec![Waiter {
            owner: "rancher-fip/c-1/Service/shop/api".into(),
            since: NOW,
        }],
        map: Some(address_map()),
        blocks: None,
        leases: vec![
            lease("10.20.0.7", LeaseState::Allocated),
            lease("10.20.0.8", LeaseState::Reserved),
        ],
        pager: Pager::default(),
        form: may_write.then(|| AllocateForm {
            pool: 1,
            example: "10.20.0.9".into(),
            ..AllocateForm::default()
        }),
    }
}

fn address_map() -> AddressMap {
    let span = |first: u8, last: u8| {
        let number = |octet| Ipv4Addr::new(10, 20, 0, octet).to_bits().into();
        Span {
            family: Family::V4,
            first: number(first),
            last: number(last),
        }
    };
    let held = |octet, state| map::Held {
        address: Ipv4Addr::new(10, 20, 0, octet),
        state,
        contended: false,
        owner: OWNER.into(),
    };
    let plan = map::MapPlan {
        network: 0,
        at: Ipv4Addr::new(10, 20, 0, 0),
        spans: &PoolSpans {
            listed: vec![span(0, 255)],
            assignable: vec![span(2, 199), span(211, 254)],
            withheld: Vec::new(),
        },
        excluded: &[span(200, 210)],
        gateway: Some(Ipv4Addr::new(10, 20, 0, 1).into()),
        leases: &[
            held(7, LeaseState::Allocated),
            held(8, LeaseState::Reserved),
            held(9, LeaseState::Orphaned),
        ],
    };
    AddressMap {
        cells: map::cells(&plan),
        block: 1,
        blocks: 4,
        first: None,
        previous: None,
        next: Some("/ui/pools/1?at=10.20.1.0".into()),
        last: Some("/ui/pools/1?at=10.20.3.0".into()),
        goto: Field::default(),
        target: "/ui/pools/1".into(),
    }
}

pub fn clusters() -> Vec<ClusterRow> {
    let row = |name: &str, health, state: &str, last_error: &str| ClusterRow {
        name: name.into(),
        id: "2f1c0f3e-0000-4000-8000-000000000001".into(),
        health,
        state: state.into(),
        since: Some(NOW),
        last_error: last_error.into(),
        server: "https://10.0.0.9:6443".into(),
        found: "in the configuration".into(),
        detached: false,
        systems: vec!["rancher-fip".into()],
        leases: 1_204,
        held_back: if health == Health::Bad {
            vec![
                "12 leases of rancher-fip".into(),
                "7 leases of claims".into(),
            ]
        } else {
            Vec::new()
        },
        sightings: "2 held, 0 contended, 7 only reported".into(),
        sightings_wait: true,
    };
    vec![
        row("edge-1", Health::Good, "connected", ""),
        row(
            "edge-2",
            Health::Bad,
            "unreachable",
            "connection refused <10.0.0.9>",
        ),
    ]
}

pub fn dashboard() -> Dashboard {
    Dashboard {
        shell: Shell {
            nav: Nav::Dashboard,
            ..shell(true)
        },
        warnings: vec![
            Warning {
                urgent: true,
                what: "Pool dmz is full".into(),
                next: "Add addresses to it.".into(),
                commands: vec!["fipd pool update dmz --add-cidr CIDR".into()],
                link: Some(("/ui/pools/1".into(), "Open the pool".into())),
                ..Warning::default()
            },
            Warning {
                what: "The backup failed at".into(),
                at: Some(NOW),
                why: "no <room>".into(),
                next: "Make room.".into(),
                ..Warning::default()
            },
            Warning {
                what: "Network default waits".into(),
                commands: vec!["fipd clusters skip-adoption edge-2 --network default".into()],
                ..Warning::default()
            },
        ],
        columns: crate::list::of_pools(),
        order: "the next to run out first",
        all_pools: "/ui/pools?sort=-use".into(),
        flow: Some(Flow {
            step: "hour",
            from: Moment(NOW.0 - 3_600_000),
            to: NOW,
            bars: vec![Bar {
                at: NOW,
                given: 12,
                freed: 3,
            }],
            spans: vec![("/ui/?span=month".into(), "30 days", false)],
        }),
        rules: Some(RulesCard {
            health: Health::Good,
            state: "active".into(),
            repaired: 2,
            facts: vec![("To be", "12".into())],
            at: Some(NOW),
        }),
        pools: vec![pool_row(1, "dmz", 254, 254), pool_row(2, "lab", 254, 20)],
        pools_total: 2,
        leases: 274,
        contended: 1,
        networks: 1,
        clusters: clusters(),
        clusters_total: 2,
        clusters_well: 1,
        store: StoreCard {
            healthy: true,
            state: "writing".into(),
            facts: vec![("Revision".into(), "1,204".into())],
        },
    }
}
