//! What is exported is imported, and what is wrong is named.

use axum::extract::State;
use fipd_core::{
    Adopt, Allocate, Label, LeaseKey, PoolId, PoolSpec, Quota, Reserve, Tenant, Timestamp, Want,
    testing,
};
use http_body_util::BodyExt as _;

use super::*;
use crate::api::{
    rest::export::{self, tests::root},
    ui::tests::Site,
    wire::ExportQuery,
};

/// A site without any pool.
async fn empty() -> Site {
    let site = Site::new().await;
    let request = Request::DeletePool {
        pool: PoolId(1),
        actor: "test".into(),
    };
    site.api.ipam.submit(request).await.unwrap();
    site
}

async fn ask(site: &Site, request: Request) {
    site.api.ipam.submit(request).await.unwrap();
}

fn allocate(owner: &str, pool: u32, count: u32) -> Allocate {
    Allocate {
        tenant: Some(Tenant("'@research, \"blue\" 7".into())),
        ..testing::allocate(
            testing::holder(owner, "uid-1"),
            [Want {
                pool: PoolId(pool).into(),
                address: None,
                count,
            }],
        )
    }
}

/// Networks, separations, pools of both families, quotas, leases, a contender and a reservation.
async fn full() -> Site {
    let site = empty().await;
    let actor = || "test".into();
    for name in ["blue", "green"] {
        let create = Request::CreateNetwork {
            name: name.into(),
            actor: actor(),
        };
        ask(&site, create).await;
    }
    let separate = Request::Separate {
        networks: (fipd_core::NetworkId(2), fipd_core::NetworkId(0)),
        apart: true,
        actor: actor(),
    };
    ask(&site, separate).await;
    for (name, cidr, network) in [("7", "10.1.0.0/24", 0), ("six", "2001:db8::/64", 1)] {
        let spec = PoolSpec {
            network: fipd_core::NetworkId(network),
            exclusions: vec![cidr.split('/').next().unwrap().parse().unwrap()],
            quarantine: 60,
            ..testing::pool_spec(name, &[cidr])
        };
        let actor = actor();
        ask(&site, Request::CreatePool { spec, actor }).await;
    }
    let quota = Quota {
        pool: PoolId(2),
        tenant: Tenant("=cmd|' /C calc'!A0".into()),
        limit: 3,
    };
    let set = Request::SetQuota {
        quota,
        actor: actor(),
    };
    ask(&site, set).await;
    for (name, network) in [("doubt", 0), ("doubt-blue", 1), ("green", 2)] {
        let spec = PoolSpec {
            network: fipd_core::NetworkId(network),
            network_by_default: true,
            quota_required: name == "green",
            ..testing::pool_spec(name, &["10.8.0.0/24"])
        };
        let actor = actor();
        ask(&site, Request::CreatePool { spec, actor }).await;
    }
    ask(&site, Request::Allocate(allocate("fipd/Host/lab/a", 2, 20))).await;
    let found = Adopt {
        length: None,
        key: LeaseKey {
            network: fipd_core::NetworkId(0),
            address: [10, 1, 0, 3].into(),
        },
        holder: allocate("fipd/Host/lab/other", 2, 1).holder,
        tenant: Some(Tenant("who contends".into())),
        since: Timestamp(7),
        actor: actor(),
    };
    ask(&site, Request::Adopt(found)).await;
    ask(&site, Request::Allocate(allocate("fipd/Host/lab/b", 3, 20))).await;
    let later = Reserve {
        ask: allocate("fipd/Host/lab/later", 2, 1),
        until: Some(Timestamp(4_000_000_000_000)),
    };
    ask(&site, Request::Reserve(later)).await;
    let labels = [("app", "a=b,\"c"), ("-n", ""), ("7", "8")];
    let label = Label {
        key: LeaseKey {
            network: fipd_core::NetworkId(0),
            address: [10, 1, 0, 2].into(),
        },
        set: labels.map(|(key, value)| (key.into(), value.into())).into(),
        remove: Vec::new(),
        actor: "test".into(),
    };
    ask(&site, Request::Label(label)).await;
    site
}

const KINDS: [&str; 5] = ["networks", "separations", "pools", "quotas", "leases"];

async fn exported(site: &Site, what: &str, format: &str) -> String {
    let query = ExportQuery {
        what: Some(what.into()),
        format: Some(format.into()),
    };
    let answer = export::export(State(site.api.stop.clone()), root(site), Query(query));
    let body = answer.await.unwrap().into_body();
    let bytes = body.collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn whole(site: &Site, format: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for what in KINDS {
        texts.push(exported(site, what, format).await);
    }
    texts
}

async fn give(site: &Site, text: String, csv: bool, dry_run: bool) -> ImportReport {
    let query = ImportQuery {
        dry_run,
        force: false,
        format: Some(if csv { "csv" } else { "jsonl" }.into()),
    };
    let report = import(root(site), Query(query), text.into());
    report.await.unwrap().0
}

#[tokio::test]
async fn an_export_imported_into_an_empty_store_is_exported_the_same() {
    let before = full().await;
    for csv in [false, true] {
        let format = if csv { "csv" } else { "jsonl" };
        let files = whole(&before, format).await;
        let after = empty().await;
        let files_at_once = if csv {
            files.clone()
        } else {
            vec![files.concat()]
        };
        for file in &files_at_once {
            let preview = give(&after, file.clone(), csv, true).await;
            assert_eq!(
                (preview.written, preview.refused),
                (false, 0),
                "{preview:?}"
            );
            let report = give(&after, file.clone(), csv, false).await;
            assert!(report.written, "{report:?}");
            assert_eq!(report.rows, preview.rows);
        }
        assert_eq!(whole(&after, "jsonl").await, whole(&before, "jsonl").await);
        let withheld = |pool: u32| {
            let used = after.api.ipam.read(|ledger| ledger.usage(PoolId(pool)));
            used.unwrap().withheld
        };
        assert_eq!([withheld(4), withheld(5), withheld(6)], [256, 256, 256]);
        let formula = |cell: &str| files.iter().any(|file| file.contains(cell));
        assert!(!csv || formula("\n'=cmd|") && !formula("\n=cmd|"));
        for file in files_at_once {
            let again = give(&after, file, csv, false).await;
            assert_eq!(again.same, again.rows.len(), "{again:?}");
        }
    }
}

#[tokio::test]
async fn a_bad_row_is_named_with_its_field_and_keeps_all_others_out() {
    let site = full().await;
    let before = whole(&site, "jsonl").await;
    let good = |at: usize| {
        format!("{{\"address\":\"10.1.0.{at}\",\"owner\":\"fipd/Host/lab/n{at}\",\"pool\":\"7\"}}")
    };
    for (bad, field, words) in [
        (
            r#"{"address":"10.1.0.1","owner":"fipd/Host/lab/z"}"#,
            "address",
            "held by",
        ),
        (
            r#"{"address":"10.1.0.300","owner":"fipd/Host/lab/z"}"#,
            "address",
            "192.0.2.7",
        ),
        (
            r#"{"address":"10.1.0.99","owner":"nobody"}"#,
            "owner",
            "not allowed",
        ),
        (r#"{"address":"10.1.0.99"}"#, "members", "at least one"),
        (
            r#"{"address":"10.1.0.99","owner":"fipd/Host/lab/z","color":"red"}"#,
            "row",
            "color",
        ),
        (
            r#"{"address":"10.1.0.99","owner":"fipd/Host/lab/z","pool":"x"}"#,
            "pool",
            "row before",
        ),
        (r#"{"tenant":"t","pool":"7","limit":-1}"#, "row", "limit"),
        (
            r#"{"name":"p9","addresses":["10.9.0.0/99"]}"#,
            "addresses",
            "10.9.0.0/99",
        ),
        (r#"{"name":"Bad Name"}"#, "network", "a-z"),
        (r#"[1]"#, "row", "one JSON object"),
        (r#"{"address""#, "row", "JSON"),
    ] {
        let mut lines: Vec<String> = (100..150).map(good).collect();
        lines.insert(20, bad.to_owned());
        let report = give(&site, lines.join("\n"), false, false).await;
        assert!(!report.written, "{bad}");
        assert_eq!(
            (report.refused, report.created),
            (1, 50),
            "{bad}: {report:?}"
        );
        let row = &report.rows[20];
        assert_eq!(
            (row.row, &*row.fate, row.field.as_deref()),
            (21, "error", Some(field)),
            "{row:?}"
        );
        assert!(row.error.as_ref().unwrap().contains(words), "{row:?}");
        assert_eq!(whole(&site, "jsonl").await, before, "{bad}");
    }
}

#[tokio::test]
async fn cells_that_look_like_numbers_stay_the_text_they_are() {
    let site = empty().await;
    let pool = "name,addresses,prefix,closed,reserve.first\n7,10.1.0.0/28 10.1.1.0/28,24,true,3\n";
    let report = give(&site, pool.to_owned(), true, false).await;
    assert!(report.written, "{report:?}");
    let lease = "address,owner,pool,tenant\n10.1.0.5,fipd/Host/lab/a,7,12\n";
    let report = give(&site, lease.to_owned(), true, false).await;
    assert!(report.written, "{report:?}");
    let pools = exported(&site, "pools", "jsonl").await;
    let pool: Value = serde_json::from_str(&pools).unwrap();
    assert_eq!((&pool["name"], &pool["prefix"]), (&"7".into(), &24.into()));
    assert_eq!(
        (&pool["closed"], &pool["reserve"]["first"]),
        (&true.into(), &3.into())
    );
    let leases = exported(&site, "leases", "jsonl").await;
    let lease: Value = serde_json::from_str(&leases).unwrap();
    assert_eq!(
        (&lease["tenant"], &lease["pool"]),
        (&"12".into(), &"7".into())
    );
}

#[tokio::test]
async fn a_preview_that_takes_several_steps_says_what_the_import_does() {
    let site = empty().await;
    let mut lines = vec![
        r#"{"name":"wide","addresses":["10.0.0.0/16"]}"#.to_owned(),
        r#"{"tenant":"t","pool":"wide","limit":2400}"#.to_owned(),
    ];
    lines.extend((0..2_400).map(|at| {
        let (high, low) = (at / 250, at % 250 + 1);
        let owner = format!("fipd/Host/lab/h{at}");
        format!(r#"{{"address":"10.0.{high}.{low}","owner":"{owner}","tenant":"t"}}"#)
    }));
    let one_more = r#"{"address":"10.0.99.1","owner":"fipd/Host/lab/more","tenant":"t"}"#;
    let beyond = [lines.as_slice(), &[one_more.to_owned()]]
        .concat()
        .join("\n");
    for dry_run in [true, false] {
        let report = give(&site, beyond.clone(), false, dry_run).await;
        let counts = (report.written, report.created, report.refused);
        assert_eq!(counts, (false, 2_402, 1));
        let why = report.rows.last().unwrap().error.as_ref().unwrap();
        assert!(why.contains("holds 2400 of pool wide"), "{why}");
    }
    let preview = give(&site, lines.join("\n"), false, true).await;
    let report = give(&site, lines.join("\n"), false, false).await;
    assert_eq!((report.written, preview.rows), (true, report.rows));
    let query = ImportQuery {
        force: true,
        ..ImportQuery::default()
    };
    let forced = import(root(&site), Query(query), beyond.into());
    let forced = forced.await.unwrap().0;
    assert_eq!((forced.written, forced.same), (true, 2_402));
}

#[tokio::test]
async fn rows_are_told_by_their_line_and_their_owner() {
    let site = full().await;
    let several = r#"{"address":"10.1.0.101","pool":"7","members":[{"owner":"fipd/Host/lab/c"}]}"#;
    let lines = format!(
        "\n{{\"address\":\"10.1.0.100\",\"owner\":\"fipd/Host/lab/n\"}}\n\n{several}\n[1]\n"
    );
    let csv = "address,owner,labels\n10.1.0.100,fipd/Host/lab/n,\"a=\n\"\n10.1.0.101,fipd/Host/lab/c,\n1,2\n";
    // As browsers send it, and with an empty line.
    let browser =
        "address,owner\r\n10.1.0.100,fipd/Host/lab/n\r\n\r\n10.1.0.101,fipd/Host/lab/c\r\n1,\r\n";
    for (text, csv) in [
        (lines, false),
        (csv.to_owned(), true),
        (browser.to_owned(), true),
    ] {
        let report = give(&site, text, csv, true).await;
        let rows = report.rows.iter();
        let told: Vec<_> = rows.map(|row| (row.line, row.owner.as_deref())).collect();
        let (first, second) = ("fipd/Host/lab/n", "fipd/Host/lab/c");
        let expected = [(2, Some(first)), (4, Some(second)), (5, None)];
        assert_eq!(told, expected, "{report:?}");
        assert_eq!(report.rows[2].fate, "error", "{report:?}");
    }
}
