//! That every defect of the originals which fipd mends has a test that is named after it: `defect_NN_...`, or several
//! numbers where one test is about several; and that every row of the conformance table of Cluster API has one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::runner::checkout;

/// Those of the rancher-fip family and, 13 and 25, of kube-fip-operator, by the numbers of their contract. 31 is about pages of
/// the stock LB controller, which stays what it is.
const DEFECTS: [u32; 36] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
    27, 28, 29, 30, 32, 33, 34, 35, 36, 37,
];

/// Those of Cluster API's in-cluster provider and of capi-vip-allocator, by the numbers of their contract; their tests are called
/// `e_N_...`.
const CLUSTER_API: [u32; 30] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
    27, 28, 29, 30,
];

/// The rows of the conformance table of that contract. Each has a test with a real API server that is named after it: `row_N_...`,
/// `rows_N_and_M_...` or `rows_N_to_M_...`, perhaps behind the number of a defect.
const CLUSTER_API_ROWS: [u32; 68] = [
    1, 2, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 18, 20, 21, 22, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 35, 36, 37, 38, 39, 40, 42, 43, 44, 46, 47, 48, 49, 51, 53, 54, 55, 56, 57, 58, 59, 60, 62,
    64, 65, 67, 68, 69, 70, 71, 72, 73, 74, 76, 77, 78, 79, 80, 81, 84, 85,
];

/// The suites of Cluster API with a real API server.
const CLUSTER_API_SUITES: [&str; 4] = ["capi_claims", "capi_core", "capi_pools", "capi_vip"];

/// Those of rancher-flat-network's operator, webhook, CNI plugin and migrator, by the numbers of g.1 of their contract; their tests are called
/// `g1_N_...`. 22 is a list of what it cannot do, and no defect.
const FLAT_NETWORK: [u32; 26] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27,
];

/// Inputs that kube-fip-operator panics on; each has a test `panic_...` of this name.
const PANICS: [&str; 3] = [
    "network_name_without_a_slash",
    "harvester_config_without_an_interface",
    "credential_reference_without_a_colon",
];

/// The parts of the defects 13 and 25 of kube-fip-operator, each with the test that is about it. 25 names as well that there is no
/// second host to take over: fipd has one too, and what was given stays in force while it is down.
const KUBE_FIP: [(&str, &str); 15] = [
    (
        "network address and gateway can be given",
        "defect_13_the_lowest_address_comes_next_and_neither_network_nor_gateway",
    ),
    (
        "the capacity is not that of the pool",
        "defect_13_the_arithmetic_of_the_original_and_a_capacity_that_is_true",
    ),
    (
        "at start one without an address may take what is recorded on a later one",
        "defect_13_addresses_of_the_original_are_kept_before_anything_new_is_given",
    ),
    (
        "an update releases before it allocates",
        "defect_13_an_edit_takes_the_new_address_before_it_gives_the_old_one_back",
    ),
    (
        "its own write back is taken for an edit",
        "defect_13_what_is_written_back_is_no_edit",
    ),
    (
        "deletes and adds of the first seconds are lost",
        "defect_13_deletes_while_it_is_down_and_adds_of_its_first_seconds_are_not_lost",
    ),
    (
        "an edit of a range needs a restart",
        "defect_13_a_range_is_edited_live_and_who_waited_first_is_served_first",
    ),
    (
        "a new guest is looked at once",
        "defect_13_a_guest_on_bare_metal_waits_for_its_range_for_as_long_as_it_takes",
    ),
    (
        "the whole ConfigMap is overwritten",
        "defect_25_keys_of_users_survive_and_several_addresses_are_told_apart",
    ),
    (
        "it is written in mode disabled too",
        "defect_25_the_map_is_written_in_mode_disabled_unless_a_setting_says_otherwise",
    ),
    (
        "a cluster has one address",
        "defect_25_keys_of_users_survive_and_several_addresses_are_told_apart",
    ),
    ("IPv4 only", "defect_25_a_range_may_be_of_ipv6"),
    (
        "nothing is uninstalled",
        "defect_25_charts_come_and_go_with_the_label_and_never_from_under_a_service",
    ),
    (
        "no status, conditions and events",
        "defect_25_what_is_wrong_is_said_on_the_object_and_served_once_it_is_right",
    ),
    (
        "a dead guest delays all",
        "defect_25_a_guest_behind_a_cut_link_holds_up_no_other_and_is_served_once_it_is_back",
    ),
];

/// This file, whose examples are no tests.
const OWN: &str = "tests/src/defects.rs";

/// The numbers that the names of tests in a source have behind one of these words: some, or all of a range.
fn numbers(source: &str, words: &[&str]) -> BTreeSet<u32> {
    let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let names = source.split("fn ").skip(1);
    let names = names.filter_map(|rest| rest.split(|one| !is_name(one)).next());
    names.flat_map(|name| numbers_of(name, words)).collect()
}

/// The same of one name.
fn numbers_of(name: &str, words: &[&str]) -> Vec<u32> {
    let mut parts = name.split('_').skip_while(|part| !words.contains(part));
    let mut numbers: Vec<u32> = Vec::new();
    let mut is_range = false;
    for part in parts.by_ref().skip(1) {
        match (part.parse(), numbers.last().copied()) {
            (Ok(end), Some(first)) if is_range => numbers.extend(first + 1..=end),
            (Ok(number), _) => numbers.push(number),
            (Err(_), Some(_)) if part == "and" || part == "to" => {}
            (Err(_), _) => break,
        }
        is_range = part == "to";
    }
    numbers
}

/// Shows all sources below `folder`.
fn gather(folder: &Path, show: &mut impl FnMut(&str)) {
    for entry in fs::read_dir(folder).expect("a folder of the tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            gather(&path, show);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with(OWN) {
            show(&fs::read_to_string(path).expect("a source"));
        }
    }
}

#[test]
fn every_defect_of_the_originals_has_a_test_of_its_number() {
    let (mut found, mut panics) = (BTreeSet::new(), BTreeSet::<&str>::new());
    let (mut cluster_api, mut flat_network) = (BTreeSet::new(), BTreeSet::new());
    let mut show = |source: &str| {
        found.extend(numbers(source, &["defect"]));
        cluster_api.extend(numbers(source, &["e"]));
        flat_network.extend(numbers(source, &["g1"]));
        let tested = |name: &&&str| source.contains(&format!("fn panic_{name}("));
        panics.extend(PANICS.iter().filter(tested));
    };
    for folder in ["crds", "daemon", "tests/e2e", "tests/src"] {
        gather(&checkout().join(folder), &mut show);
    }
    let missing = DEFECTS.iter().filter(|number| !found.contains(number));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "no test is named after {missing:?}");
    let missing = CLUSTER_API
        .iter()
        .filter(|number| !cluster_api.contains(number));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "no test is named after E-{missing:?}");
    let missing = FLAT_NETWORK
        .iter()
        .filter(|number| !flat_network.contains(number));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "no test is named after g1-{missing:?}");
    assert_eq!(panics.len(), PANICS.len(), "only of {panics:?}");
}

#[test]
fn every_row_of_cluster_api_has_a_test_of_its_number_on_a_real_api_server() {
    let mut found = BTreeSet::new();
    for suite in CLUSTER_API_SUITES {
        gather(&checkout().join("tests/e2e").join(suite), &mut |source| {
            found.extend(numbers(source, &["row", "rows"]));
        });
    }
    let missing = CLUSTER_API_ROWS
        .iter()
        .filter(|number| !found.contains(number));
    let missing: Vec<_> = missing.collect();
    assert!(
        missing.is_empty(),
        "no test is named after rows {missing:?}"
    );
}

#[test]
fn those_of_kube_fip_operator_are_tested_over_its_kinds() {
    // Another original has a defect 13 too.
    let mut missing: Vec<&(&str, &str)> = KUBE_FIP.iter().collect();
    for folder in ["tests/e2e", "daemon/src/systems/kube_fip"] {
        gather(&checkout().join(folder), &mut |source| {
            missing.retain(|(_, test)| !source.contains(&format!("fn {test}(")));
        });
    }
    assert!(missing.is_empty(), "no test of these: {missing:?}");
}

#[test]
fn a_name_may_have_several_numbers() {
    let source = "fn defect_03_15_a_2_b() {}\nfn defect_20_x() {} // fn other_7";
    assert_eq!(numbers(source, &["defect"]), BTreeSet::from([3, 15, 20]));
    let source = "async fn e_5_rows_1_to_3_and_7_a_9() {}\nfn row_20_x() {}\nfn row_of_8() {}";
    let rows = BTreeSet::from([1, 2, 3, 7, 20]);
    assert_eq!(numbers(source, &["row", "rows"]), rows);
    assert_eq!(numbers(source, &["e"]), BTreeSet::from([5]));
}
