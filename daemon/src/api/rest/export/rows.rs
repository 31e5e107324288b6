//! Rows of an export as text.

use axum::body::Bytes;
use csv::{Terminator, WriterBuilder};
use serde::Serialize;
use serde_json::Value;

use crate::api::{
    cell::guarded,
    problem::{Code, Problem},
    wire::{AuditView, LeaseView, NetworkView, PoolView, QuotaView, SeparationView},
};

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One object a line.
    JsonLines,
    /// RFC 4180 with a header line. Lists of words are joined with spaces, labels are
    /// `key=value` with semicolons between them, other lists are JSON. What a spreadsheet would
    /// take for a formula is behind an apostrophe, which an import takes off.
    Csv,
    /// The same with the ends of lines that RFC 4180 has, for files that browsers keep.
    BrowserCsv,
}

/// Rows of one page.
pub enum Rows {
    Leases(Vec<LeaseView>),
    Pools(Vec<PoolView>),
    Networks(Vec<NetworkView>),
    Separations(Vec<SeparationView>),
    Quotas(Vec<QuotaView>),
    Audit(Vec<AuditView>),
}

/// The header lines of CSV: fields of the wire types, those of a nested object behind a dot.
const LEASES: &str = "\
    address,length,prefix,gateway,network,pool,state,owner,marks,members,contenders,tenant,group,labels,\
    since,until";
const POOLS: &str = "\
    id,name,network,network_by_default,family,addresses,exclusions,allocation_length,gateway,prefix,subnet,\
    reserve.first,reserve.last,reserve.of,order,origin.kind,origin.system,origin.cluster,origin.object,origin.uid,\
    closed,quarantine,sticky_for,sticky_most,priority,scopes,share_across_clusters,quota_required,quota_unit,\
    generation,created,usage.size,usage.used,usage.free,usage.quarantined,usage.excluded,usage.reserved,\
    usage.out_of_range,usage.withheld,usage.withheld_in_use";
const NETWORKS: &str = "id,name,pools,waiting_for,held_until";
const SEPARATIONS: &str = "kind,networks";
const QUOTAS: &str = "tenant,pool,used,limit";
const AUDIT: &str = "number,at,actor,action,network,address,length,pool,owner,detail";

impl Format {
    pub fn parse(text: Option<&str>) -> Result<Self, Problem> {
        match text {
            None | Some("jsonl") => Ok(Self::JsonLines),
            Some("csv") => Ok(Self::Csv),
            Some(other) => Err(Problem::invalid("format", other, "jsonl or csv")),
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::JsonLines => "application/jsonl",
            Self::Csv | Self::BrowserCsv => "text/csv; charset=utf-8; header=present",
        }
    }
}

impl Rows {
    /// The rows, after the header if they are the first.
    pub fn text(&self, format: Format, first: bool) -> Result<Bytes, Problem> {
        match self {
            Self::Leases(rows) => write(rows, LEASES, format, first),
            Self::Pools(rows) => write(rows, POOLS, format, first),
            Self::Networks(rows) => write(rows, NETWORKS, format, first),
            Self::Separations(rows) => write(rows, SEPARATIONS, format, first),
            Self::Quotas(rows) => write(rows, QUOTAS, format, first),
            Self::Audit(rows) => write(rows, AUDIT, format, first),
        }
        .map_err(|what| Problem::new(Code::Internal, what))
    }
}

fn write<T: Serialize>(
    rows: &[T],
    columns: &str,
    format: Format,
    first: bool,
) -> Result<Bytes, String> {
    match format {
        Format::JsonLines => json_lines(rows).map_err(|error| error.to_string()),
        Format::Csv => csv_rows(rows, columns, first, Terminator::default()),
        Format::BrowserCsv => csv_rows(rows, columns, first, Terminator::CRLF),
    }
}

fn json_lines<T: Serialize>(rows: &[T]) -> serde_json::Result<Bytes> {
    let mut text = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut text, row)?;
        text.push(b'\n');
    }
    Ok(text.into())
}

fn csv_rows<T: Serialize>(
    rows: &[T],
    columns: &str,
    first: bool,
    ends: Terminator,
) -> Result<Bytes, String> {
    let mut out = WriterBuilder::new()
        .terminator(ends)
        .from_writer(Vec::new());
    if first {
        out.write_record(columns.split(','))
            .map_err(|error| error.to_string())?;
    }
    for row in rows {
        let row = serde_json::to_value(row).map_err(|error| error.to_string())?;
        let cells = columns.split(',').map(|column| cell(field(&row, column)));
        let cells = cells.map(|cell| guarded(&cell).into_owned());
        out.write_record(cells).map_err(|error| error.to_string())?;
    }
    let text = out.into_inner().map_err(|error| error.to_string())?;
    Ok(text.into())
}

fn field<'a>(row: &'a Value, column: &str) -> &'a Value {
    let mut parts = column.split('.');
    parts
        .try_fold(row, |value, part| value.get(part))
        .unwrap_or(&Value::Null)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let words: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            words.map_or_else(|| value.to_string(), |words| words.join(" "))
        }
        Value::Object(labels) => {
            let pairs = labels.iter().filter_map(|(key, value)| {
                let value = value.as_str()?;
                Some(format!("{key}={value}"))
            });
            pairs.collect::<Vec<_>>().join(";")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::{Ledger, NetworkId};
    use serde_json::json;

    use super::*;
    use crate::api::{convert, wire::HoldView};

    #[test]
    fn cells_keep_what_they_hold() {
        let row = json!({
            "a": null, "b": "x", "c": ["10.0.0.0/24", "10.1.0.0/24"], "d": [{ "owner": "o" }],
            "e": { "f": 3 }, "g": [], "h": true,
        });
        for (column, text) in [
            ("a", ""),
            ("b", "x"),
            ("c", "10.0.0.0/24 10.1.0.0/24"),
            ("d", r#"[{"owner":"o"}]"#),
            ("e.f", "3"),
            ("e.none", ""),
            ("g", ""),
            ("h", "true"),
            ("none", ""),
        ] {
            assert_eq!(cell(field(&row, column)), text, "{column}");
        }
    }

    /// A field that is added to a wire type must not be missing in CSV.
    fn complete(row: &impl Serialize, columns: &str) {
        let columns: Vec<&str> = columns.split(',').collect();
        let row = serde_json::to_value(row).unwrap();
        for (name, value) in row.as_object().unwrap() {
            let names: Vec<String> = match value.as_object() {
                Some(fields) => fields
                    .keys()
                    .map(|field| format!("{name}.{field}"))
                    .collect(),
                None => vec![name.clone()],
            };
            for name in names {
                assert!(columns.contains(&&*name), "{name} has no column");
            }
        }
    }

    #[test]
    fn every_field_has_a_column() {
        let ledger = Ledger::new();
        let network = ledger.network(NetworkId::DEFAULT).unwrap();
        let (ledger, scope) = (&ledger, &fipd_core::Scope::default());
        let mut network = convert::network_view(
            crate::api::access::visible::VisibleLedger { ledger, scope },
            network,
        );
        network.waiting_for.push(HoldView {
            cluster: "c".into(),
            id: None,
            system: "s".into(),
        });
        complete(&network, NETWORKS);
        let audit = AuditView {
            number: 1,
            at: String::new(),
            actor: String::new(),
            action: String::new(),
            network: None,
            address: None,
            length: Some(64),
            pool: None,
            owner: None,
            detail: String::new(),
        };
        complete(&audit, AUDIT);
        let separation = SeparationView {
            kind: String::new(),
            networks: [String::new(), String::new()],
        };
        complete(&separation, SEPARATIONS);
        let quota = QuotaView {
            tenant: String::new(),
            pool: String::new(),
            used: 0,
            limit: 0,
        };
        complete(&quota, QUOTAS);
        let (pool, lease) = super::super::tests::samples();
        complete(&pool, POOLS);
        complete(&lease, LEASES);
    }

    fn line(row: Value, columns: &str) -> String {
        let text = csv_rows(&[row], columns, false, Terminator::CRLF).unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[test]
    fn cells_are_text_for_every_spreadsheet() {
        for (cell, written) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-2", "'-2"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("\tx", "'\tx"),
            ("=a,\"b\"", "\"'=a,\"\"b\"\"\""),
        ] {
            assert_eq!(line(json!({ "a": cell }), "a"), format!("{written}\r\n"));
        }
        assert_eq!(line(json!({ "a": "a", "b": null }), "a,b"), "a,\r\n");
    }
}
