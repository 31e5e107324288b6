//! The webhook for pools, which a real API server asks: rows 20, 51 to 57 and 65. Each refusal is that of the in-cluster
//! provider, with the field, the value and what is allowed.

use kube::api::PostParams;
use kube::core::DynamicObject;

use super::*;

const PREFIXES: &str = "InClusterPrefixPool";
const GLOBAL_PREFIXES: &str = "GlobalInClusterPrefixPool";
const SKIP: &str = "ipam.cluster.x-k8s.io/skip-validate-delete-webhook";

/// Whether a pool would be stored; else what `kubectl` prints.
async fn try_pool(bed: &Bed, kind: &str, namespace: &str, spec: Value) -> Result<(), String> {
    let namespace = (!kind.starts_with("Global")).then_some(namespace);
    let object = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind,
        "metadata": { "name": "tried" }, "spec": spec,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let tried = bed
        .objects
        .of(kind, namespace)
        .create(&params, &object)
        .await;
    tried.map(drop).map_err(|error| error.to_string())
}

/// Until the API server asks fipd: it hears of a new configuration in its own time.
async fn asked(bed: &Bed, namespace: &str) {
    let pools = json!({ "addresses": ["10.99.0.1", "10.99.1.1"], "prefix": 24 });
    let prefixes = json!({ "prefixes": ["10.0.0.0/8"] });
    for (kind, spec) in [
        (POOL, &pools),
        (GLOBAL, &pools),
        (PREFIXES, &prefixes),
        (GLOBAL_PREFIXES, &prefixes),
    ] {
        wait_until(&format!("fipd judges {kind}"), DEADLINE, || async {
            match try_pool(bed, kind, namespace, spec.clone()).await {
                Err(why) if why.contains("denied the request") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    }
}

/// The spec with this field replaced.
fn with(spec: &Value, field: &str, value: Value) -> Value {
    let mut spec = spec.clone();
    spec[field] = value;
    spec
}

#[tokio::test]
async fn row_20_what_is_no_ip_range_or_cidr_is_refused() {
    const NEITHER: &str = "is neither an address, a CIDR such as 10.0.0.0/24, nor a range";
    const REVERSED: &str = "the first address of a range must not be above the last";
    let bed = Bed::share(&["parsed"]).await.unwrap();
    asked(&bed, "parsed").await;
    let good = json!({ "addresses": ["10.31.1.0/24"], "prefix": 24 });
    for (text, why) in [
        ("1.2.3.4/33", NEITHER),
        ("192.168.2.2.4", NEITHER),
        ("10.31.1.9-10.31.1.1", REVERSED),
        ("10.31.1.1-10.31.1.2-", NEITHER),
        ("10.31.1.1-10.31.1.2-10.31.1.3", NEITHER),
        ("10.31.1.1/21-10.31.1.5", NEITHER),
        ("fe80::zzzz", NEITHER),
        ("fe80::/129", NEITHER),
    ] {
        for (kind, field) in [
            (POOL, "addresses"),
            (POOL, "excludedAddresses"),
            (GLOBAL, "addresses"),
            (GLOBAL, "excludedAddresses"),
        ] {
            let spec = with(&good, field, json!([text]));
            let seen = try_pool(&bed, kind, "parsed", spec).await.unwrap_err();
            let named = format!(
                "spec.{field}[0]: {text:?} is not allowed: it is not a valid IP, range or CIDR: {text:?}"
            );
            assert!(
                seen.contains(&named) && seen.contains(why),
                "{kind} {field} {text}: {seen}"
            );
        }
    }
}

#[tokio::test]
async fn rows_51_to_57_a_pool_of_addresses_that_breaks_a_rule_is_refused() {
    let bed = Bed::share(&["judged"]).await.unwrap();
    asked(&bed, "judged").await;
    let good = json!({ "addresses": ["10.31.1.0/24"], "prefix": 24, "gateway": "10.31.1.1" });
    let family = "mixed IP families: it must be";
    let refused = [
        // Row 51. The schema refuses the first and the prefixes.
        ("addresses", json!([]), "spec.addresses".to_owned()),
        (
            "addresses",
            json!(["garbage"]),
            "spec.addresses[0]: \"garbage\" is not allowed: it is not a valid IP, range or CIDR"
                .to_owned(),
        ),
        (
            "gateway",
            json!("invalid"),
            "spec.gateway: \"invalid\" is not allowed: it must be an IP address".to_owned(),
        ),
        ("prefix", json!(-1), "spec.prefix".to_owned()),
        ("prefix", json!(9999), "spec.prefix".to_owned()),
        (
            "prefix",
            json!(33),
            "spec.prefix: \"33\" is not allowed: it must be 0 to 32".to_owned(),
        ),
        // Row 53.
        (
            "gateway",
            json!("fd01::1"),
            format!("spec.gateway: \"fd01::1\" is not allowed: {family}"),
        ),
        (
            "addresses",
            json!(["fd01::10-fd01::20"]),
            format!("spec.gateway: \"10.31.1.1\" is not allowed: {family}"),
        ),
        (
            "addresses",
            json!(["10.31.1.5", "fd01::5"]),
            format!("spec.addresses[1]: \"fd01::5\" is not allowed: {family}"),
        ),
        (
            "excludedAddresses",
            json!(["10.31.1.5", "fd01::5"]),
            format!("spec.excludedAddresses[1]: \"fd01::5\" is not allowed: {family}"),
        ),
        (
            "excludedAddresses",
            json!(["fd01::5"]),
            format!("spec.excludedAddresses[0]: \"fd01::5\" is not allowed: {family}"),
        ),
        (
            "addresses",
            json!(["10.31.1.5", "10.31.2.5"]),
            "spec.addresses[1]: \"10.31.2.5\" is not allowed: it belongs to a different subnet"
                .to_owned(),
        ),
        // Row 57.
        (
            "addressReuseGracePeriodSeconds",
            json!(-1),
            "spec.addressReuseGracePeriodSeconds".to_owned(),
        ),
    ];
    for kind in [POOL, GLOBAL] {
        for (field, value, why) in &refused {
            let spec = with(&good, field, value.clone());
            let seen = try_pool(&bed, kind, "judged", spec).await.unwrap_err();
            assert!(seen.contains(why), "{kind} {field} {value}: {seen}");
        }
        for (field, value) in [
            ("prefix", json!(0)),
            ("addressReuseGracePeriodSeconds", json!(60)),
            ("gateway", json!("10.99.9.9")),
            ("excludedAddresses", json!(["10.98.0.0/16"])),
        ] {
            let spec = with(&good, field, value.clone());
            let seen = try_pool(&bed, kind, "judged", spec).await;
            assert_eq!(seen, Ok(()), "{kind} {field} {value}");
        }
    }
    // Row 56: what is not set is 0 to the webhook of the original, and its schema asks for it.
    let unset = json!({ "addresses": ["10.31.1.5"] });
    let seen = try_pool(&bed, POOL, "judged", unset).await.unwrap_err();
    assert!(seen.contains("spec.prefix: Required value"), "{seen}");
    // An overlap is accepted.
    let one = json!({ "addresses": ["10.31.1.5"], "prefix": 24 });
    bed.objects.pool("judged/a", one.clone()).await.unwrap();
    bed.objects.pool("judged/b", one).await.unwrap();
}

#[tokio::test]
async fn row_65_a_pool_of_prefixes_that_breaks_a_rule_is_refused() {
    let bed = Bed::share(&["judged-six"]).await.unwrap();
    asked(&bed, "judged-six").await;
    let good = json!({ "prefixes": ["fd31::/62"], "gateway": "fd10::1" });
    let host_bits =
        "spec.prefixes[0]: \"fd31::1/64\" is not allowed: it has host bits; write fd31::/64";
    for kind in [PREFIXES, GLOBAL_PREFIXES] {
        for (field, value, why) in [
            (
                "prefixes",
                json!(["fd31::1"]),
                "spec.prefixes[0]: \"fd31::1\" is not allowed: it must be an IPv6 CIDR",
            ),
            ("prefixes", json!(["fd31::1/64"]), host_bits),
            (
                "prefixes",
                json!(["fd31::/65"]),
                "it must be /64 or larger, as each claim gets a /64",
            ),
            (
                "prefixes",
                json!(["10.0.0.0/8"]),
                "spec.prefixes[0]: \"10.0.0.0/8\" is not allowed: it must be an IPv6 CIDR",
            ),
            (
                "gateway",
                json!("10.0.0.1"),
                "spec.gateway: \"10.0.0.1\" is not allowed: mixed IP families",
            ),
            (
                "excludedPrefixes",
                json!(["10.0.0.0/8"]),
                "spec.excludedPrefixes[0]: \"10.0.0.0/8\" is not allowed: mixed IP families",
            ),
            ("prefixes", json!([]), "spec.prefixes"),
            (
                "allocationPrefixLength",
                json!(0),
                "spec.allocationPrefixLength",
            ),
            (
                "allocationPrefixLength",
                json!(129),
                "spec.allocationPrefixLength",
            ),
        ] {
            let spec = with(&good, field, value.clone());
            let seen = try_pool(&bed, kind, "judged-six", spec).await.unwrap_err();
            assert!(seen.contains(why), "{kind} {field} {value}: {seen}");
        }
        let seen = try_pool(&bed, kind, "judged-six", good.clone()).await;
        assert_eq!(seen, Ok(()), "{kind}");
    }
}

/// What an edit of the spec, or a deletion, is refused with.
async fn refusal(done: impl Future<Output = anyhow::Result<()>>) -> String {
    format!("{:#}", done.await.unwrap_err())
}

/// Rows 54 and 55.
#[tokio::test]
async fn rows_54_and_55_a_pool_keeps_what_it_has_allocated() {
    const LOST: &str = "the pool has allocated addresses that it would not have any more";
    let bed = Bed::share(&["kept", "kept-two"]).await.unwrap();
    asked(&bed, "kept").await;
    let spec = json!({
        "addresses": ["10.32.0.0-10.32.0.3"], "prefix": 24, "allocateReservedIPAddresses": true,
    });
    for (kind, path) in [(POOL, "kept/net"), (GLOBAL, "kept-net")] {
        bed.objects.pool(path, spec.clone()).await.unwrap();
        let pool = path.rsplit(['/', '-']).next().unwrap();
        let pool = if kind == GLOBAL { "kept-net" } else { pool };
        let claims = [format!("kept/{pool}-a"), format!("kept-two/{pool}-b")];
        let claims = &claims[..if kind == GLOBAL { 2 } else { 1 }];
        let mut given = Vec::new();
        for claim in claims {
            bed.claim(claim, (kind, pool)).await.unwrap();
            given.push(bed.address(claim).await.unwrap());
        }
        let first = &given[0];
        for (field, value) in [
            ("addresses", json!(["10.32.0.3"])),
            ("excludedAddresses", json!([first])),
            ("gateway", json!(first)),
        ] {
            let edit = json!({ "spec": { field: value } });
            let seen = refusal(bed.objects.merge(kind, path, edit)).await;
            assert!(
                seen.contains("denied the request") && seen.contains(LOST) && seen.contains(first),
                "54: {field}: {seen}"
            );
        }
        if first == "10.32.0.0" {
            let edit = json!({ "spec": { "allocateReservedIPAddresses": false } });
            let seen = refusal(bed.objects.merge(kind, path, edit)).await;
            assert!(seen.contains(LOST), "54: it became reserved: {seen}");
        }
        let wider = json!({ "spec": { "addresses": ["10.32.0.0-10.32.0.9"] } });
        bed.objects.merge(kind, path, wider).await.unwrap();

        let seen = refusal(bed.objects.delete(kind, path)).await;
        assert!(
            seen.contains("the pool has allocated addresses; delete their claims first")
                && seen.contains(SKIP),
            "55: {seen}"
        );
        let annotate = bed.objects.annotate(kind, path, SKIP, json!(""));
        annotate.await.unwrap();
        bed.objects.delete(kind, path).await.unwrap();
        // Its finalizer still holds it.
        let dying = bed.objects.get(kind, path).await.unwrap().unwrap();
        assert!(
            dying["metadata"]["deletionTimestamp"].is_string(),
            "{dying}"
        );
        for claim in claims {
            bed.objects.delete(CLAIM, claim).await.unwrap();
        }
        bed.objects.wait_gone(kind, path).await.unwrap();
    }
    assert_eq!(bed.leases("10.32.0.").await.unwrap(), BTreeMap::new());
}

#[tokio::test]
async fn a_pool_of_prefixes_keeps_what_it_has_allocated_and_its_length() {
    let bed = Bed::share(&["kept-six"]).await.unwrap();
    asked(&bed, "kept-six").await;
    let path = "kept-six/net";
    let spec = json!({ "spec": { "prefixes": ["fd32::/62"] } });
    bed.objects.make(PREFIXES, path, spec).await.unwrap();
    bed.claim("kept-six/a", (PREFIXES, "net")).await.unwrap();
    assert_eq!(bed.address("kept-six/a").await.unwrap(), "fd32::");
    let edit = |spec: Value| bed.objects.merge(PREFIXES, path, json!({ "spec": spec }));
    for spec in [
        json!({ "prefixes": ["fd32:0:0:1::/64"] }),
        json!({ "excludedPrefixes": ["fd32::5"] }),
    ] {
        let seen = refusal(edit(spec)).await;
        assert!(
            seen.contains("it would not have any more") && seen.contains("fd32::"),
            "54: {seen}"
        );
    }
    let seen = refusal(edit(json!({ "allocationPrefixLength": 63 }))).await;
    assert!(seen.contains("immutable"), "{seen}");
    let seen = refusal(bed.objects.delete(PREFIXES, path)).await;
    assert!(seen.contains("delete their claims first"), "55: {seen}");
    edit(json!({ "prefixes": ["fd32::/60"] })).await.unwrap();
    bed.objects.delete(CLAIM, "kept-six/a").await.unwrap();
    bed.objects.wait_gone(CLAIM, "kept-six/a").await.unwrap();
    bed.objects.delete(PREFIXES, path).await.unwrap();
    bed.objects.wait_gone(PREFIXES, path).await.unwrap();
}
