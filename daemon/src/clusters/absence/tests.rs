use super::*;

const MINUTE: u64 = APART;

fn owner(n: usize) -> Identity {
    format!("rancher-fip/X/FloatingIP/ns/f{n}").parse().unwrap()
}

fn at(ms: u64) -> Timestamp {
    Timestamp(ms)
}

fn held(numbers: impl IntoIterator<Item = usize>) -> BTreeMap<Identity, usize> {
    numbers.into_iter().map(|n| (owner(n), 1)).collect()
}

fn present(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<Identity> {
    numbers.into_iter().map(owner).collect()
}

/// A list, and every read it asks for finds nothing.
fn list_and_read(
    absences: &mut Absences,
    ms: u64,
    held: &BTreeMap<Identity, usize>,
    present: &BTreeSet<Identity>,
) {
    for identity in absences.listed(at(ms), held, present) {
        absences.read(at(ms + 1), &identity, Presence::Gone);
    }
}

/// What goes at `ms`, for a cluster of 100 leases.
fn released(absences: &mut Absences, ms: u64) -> Vec<Identity> {
    absences.verdict(at(ms), 100).release
}

#[test]
fn two_lists_a_minute_apart_and_a_read_between_release() {
    let mut absences = Absences::default();
    assert_eq!(
        absences.listed(at(0), &held([1, 2]), &present([2])),
        [owner(1)]
    );
    absences.read(at(10), &owner(1), Presence::Gone);
    assert_eq!(released(&mut absences, 20), [], "one list");
    assert_eq!(absences.next_list(), Some(at(MINUTE)));
    absences.listed(at(MINUTE), &held([1, 2]), &present([2]));
    assert_eq!(released(&mut absences, MINUTE), [owner(1)]);
    absences.released(at(MINUTE), &owner(1), 1);
    assert_eq!(absences.next_list(), None);
    assert_eq!(absences.missing(), 0);
}

#[test]
fn two_lists_less_than_a_minute_apart_are_not_enough() {
    let mut absences = Absences::default();
    list_and_read(&mut absences, 0, &held([1]), &present([]));
    for ms in [1_000, 30_000, MINUTE - 1] {
        list_and_read(&mut absences, ms, &held([1]), &present([]));
        assert_eq!(released(&mut absences, ms), [], "{ms}");
    }
    // Time alone is not a list.
    assert_eq!(released(&mut absences, 10 * MINUTE), []);
    list_and_read(&mut absences, MINUTE, &held([1]), &present([]));
    assert_eq!(released(&mut absences, MINUTE), [owner(1)]);
}

#[test]
fn without_a_read_between_the_lists_nothing_goes() {
    let mut absences = Absences::default();
    absences.listed(at(0), &held([1]), &present([]));
    absences.read(at(5), &owner(1), Presence::Unknown);
    assert_eq!(
        absences.listed(at(MINUTE), &held([1]), &present([])),
        [owner(1)],
        "asked again"
    );
    assert_eq!(released(&mut absences, MINUTE), []);
    // A read after the second list lies between it and a third.
    absences.read(at(MINUTE + 5), &owner(1), Presence::Gone);
    assert_eq!(released(&mut absences, MINUTE + 6), []);
    absences.listed(at(MINUTE + 10), &held([1]), &present([]));
    assert_eq!(released(&mut absences, MINUTE + 11), [owner(1)]);
}

#[test]
fn a_read_begun_before_the_first_list_does_not_count() {
    let mut absences = Absences::default();
    absences.listed(at(100), &held([1]), &present([]));
    absences.read(at(99), &owner(1), Presence::Gone);
    absences.listed(at(100 + MINUTE), &held([1]), &present([]));
    assert_eq!(released(&mut absences, 100 + MINUTE), []);
}

#[test]
fn whoever_is_seen_again_starts_over() {
    let mut absences = Absences::default();
    list_and_read(&mut absences, 0, &held([1]), &present([]));
    list_and_read(&mut absences, MINUTE / 2, &held([1]), &present([1]));
    list_and_read(&mut absences, MINUTE, &held([1]), &present([]));
    assert_eq!(
        released(&mut absences, MINUTE),
        [],
        "it was there half a minute ago"
    );
    list_and_read(&mut absences, 2 * MINUTE, &held([1]), &present([]));
    assert_eq!(released(&mut absences, 2 * MINUTE), [owner(1)]);
}

#[test]
fn a_read_that_finds_the_object_starts_over() {
    let mut absences = Absences::default();
    absences.listed(at(0), &held([1]), &present([]));
    absences.read(at(1), &owner(1), Presence::Present);
    assert_eq!(absences.missing(), 0);
    absences.listed(at(MINUTE), &held([1]), &present([]));
    assert_eq!(released(&mut absences, MINUTE), []);
}

#[test]
fn a_lease_released_meanwhile_is_no_business_of_ours() {
    let mut absences = Absences::default();
    list_and_read(&mut absences, 0, &held([1]), &present([]));
    list_and_read(&mut absences, MINUTE, &held([]), &present([]));
    assert_eq!(released(&mut absences, MINUTE), []);
    // It comes back under the same name and vanishes: all begins anew.
    list_and_read(&mut absences, MINUTE + 1, &held([1]), &present([]));
    assert_eq!(released(&mut absences, MINUTE + 1), []);
}

fn gone(count: usize) -> Absences {
    let mut absences = Absences::default();
    list_and_read(&mut absences, 0, &held(0..count), &present([]));
    list_and_read(&mut absences, MINUTE, &held(0..count), &present([]));
    absences
}

#[test]
fn five_may_always_go_and_a_sixth_of_few_holds_all_back() {
    assert_eq!(gone(5).verdict(at(MINUTE), 5).release.len(), 5);
    let verdict = gone(6).verdict(at(MINUTE), 6);
    assert_eq!(
        verdict,
        Verdict {
            release: vec![],
            held_back: Some((6, 5))
        }
    );
}

#[test]
fn of_many_one_in_twenty_may_go() {
    assert_eq!(gone(50).verdict(at(MINUTE), 1_000).release.len(), 50);
    assert_eq!(
        gone(51).verdict(at(MINUTE), 1_000).held_back,
        Some((51, 50))
    );
}

#[test]
fn an_emptied_cluster_releases_nothing_however_long_it_stays_empty() {
    let mut absences = gone(100);
    for n in 1..100 {
        let ms = MINUTE + n * 300_000;
        list_and_read(&mut absences, ms, &held(0..100), &present([]));
        assert_eq!(
            absences.verdict(at(ms), 100),
            Verdict {
                release: vec![],
                held_back: Some((100, 5))
            }
        );
    }
}

#[test]
fn the_limit_counts_what_went_within_the_hour() {
    let mut absences = gone(4);
    for identity in released(&mut absences, MINUTE) {
        absences.released(at(MINUTE), &identity, 1);
    }
    for ms in [2 * MINUTE, 3 * MINUTE] {
        list_and_read(&mut absences, ms, &held(10..13), &present([]));
    }
    assert_eq!(
        absences.verdict(at(3 * MINUTE), 96).held_back,
        Some((3, 5)),
        "4 went, 3 more would be 7"
    );
    let later = MINUTE + WINDOW;
    assert_eq!(
        released(&mut absences, later).len(),
        3,
        "the four are an hour ago"
    );
}

#[test]
fn an_owner_counts_with_all_its_leases() {
    let mut absences = Absences::default();
    let held = BTreeMap::from([(owner(1), 6)]);
    list_and_read(&mut absences, 0, &held, &present([]));
    list_and_read(&mut absences, MINUTE, &held, &present([]));
    assert_eq!(absences.verdict(at(MINUTE), 6).held_back, Some((6, 5)));
}

#[test]
fn a_confirmation_releases_just_what_was_shown() {
    let mut absences = gone(10);
    assert_eq!(absences.confirm(), 0, "nothing was shown yet");
    assert_eq!(absences.verdict(at(MINUTE), 10).held_back, Some((10, 5)));
    // Owner 3 turns up again before the admin has decided; owners 20 to 29 vanish after.
    list_and_read(
        &mut absences,
        2 * MINUTE,
        &held(0..30),
        &present((3..4).chain(10..30)),
    );
    assert_eq!(absences.confirm(), 9);
    for ms in [3 * MINUTE, 4 * MINUTE] {
        list_and_read(
            &mut absences,
            ms,
            &held(0..30),
            &present((3..4).chain(10..20)),
        );
    }
    let verdict = absences.verdict(at(4 * MINUTE), 30);
    assert_eq!(
        verdict.release,
        present((0..3).chain(4..10)).into_iter().collect::<Vec<_>>()
    );
    assert_eq!(
        verdict.held_back,
        Some((10, 5)),
        "what was not shown needs a word of its own"
    );
}

#[test]
fn confirmed_releases_do_not_use_up_the_limit() {
    let mut absences = gone(10);
    absences.verdict(at(MINUTE), 10);
    absences.confirm();
    for identity in released(&mut absences, MINUTE) {
        absences.released(at(MINUTE), &identity, 1);
    }
    for ms in [2 * MINUTE, 3 * MINUTE] {
        list_and_read(&mut absences, ms, &held(20..25), &present([]));
    }
    assert_eq!(absences.verdict(at(3 * MINUTE), 5).release.len(), 5);
}
