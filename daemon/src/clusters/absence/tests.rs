use super::*;

const MINUTE: u64 = RECHECK_MS;

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

/// What goes now, for a cluster of 100 leases.
fn released(absences: &Absences) -> Vec<Identity> {
    let release = absences.verdict(100, Some(0), |_| true).release;
    release.into_iter().map(|(identity, _)| identity).collect()
}

#[test]
fn two_lists_a_minute_apart_and_a_read_between_release() {
    let mut absences = Absences::default();
    assert_eq!(
        absences.listed(at(0), &held([1, 2]), &present([2])),
        [owner(1)]
    );
    absences.read(at(10), &owner(1), Presence::Gone);
    assert_eq!(released(&absences), [], "one list");
    assert_eq!(absences.next_list(), Some(at(MINUTE)));
    absences.listed(at(MINUTE), &held([1, 2]), &present([2]));
    assert_eq!(released(&absences), [owner(1)]);
    absences.released(&owner(1));
    assert_eq!(absences.next_list(), None);
    assert!(absences.missing.is_empty());
}

#[test]
fn two_lists_less_than_a_minute_apart_are_not_enough() {
    let mut absences = Absences::default();
    list_and_read(&mut absences, 0, &held([1]), &present([]));
    for ms in [1_000, 30_000, MINUTE - 1] {
        list_and_read(&mut absences, ms, &held([1]), &present([]));
        assert_eq!(released(&absences), [], "{ms}");
    }
    // Time alone is not a list.
    assert_eq!(released(&absences), []);
    list_and_read(&mut absences, MINUTE, &held([1]), &present([]));
    assert_eq!(released(&absences), [owner(1)]);
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
    assert_eq!(released(&absences), []);
    // A read after the second list lies between it and a third.
    absences.read(at(MINUTE + 5), &owner(1), Presence::Gone);
    assert_eq!(released(&absences), []);
    absences.listed(at(MINUTE + 10), &held([1]), &present([]));
    assert_eq!(released(&absences), [owner(1)]);
}

#[test]
fn a_read_begun_before_the_first_list_does_not_count() {
    let mut absences = Absences::default();
    absences.listed(at(100), &held([1]), &present([]));
    absences.read(at(99), &owner(1), Presence::Gone);
    absences.listed(at(100 + MINUTE), &held([1]), &present([]));
    assert_eq!(released(&absences), []);
}

#[test]
fn whoever_is_seen_again_starts_over() {
    let mut absences = Absences::default();
    list_and_read(&mut absences, 0, &held([1]), &present([]));
    list_and_read(&mut absences, MINUTE / 2, &held([1]), &present([1]));
    list_and_read(&mut absences, MINUTE, &held([1]), &present([]));
    assert_eq!(released(&absences), [], "it was there half a minute ago");
    list_and_read(&mut absences, 2 * MINUTE, &held([1]), &present([]));
    assert_eq!(released(&absences), [owner(1)]);
}

#[test]
fn a_read_that_finds_the_object_starts_over() {
    let mut absences = Absences::default();
    absences.listed(at(0), &held([1]), &present([]));
    absences.read(at(1), &owner(1), Presence::Present);
    assert!(absences.missing.is_empty());
    absences.listed(at(MINUTE), &held([1]), &present([]));
    assert_eq!(released(&absences), []);
}

#[test]
fn a_lease_released_meanwhile_is_no_business_of_ours() {
    let mut absences = Absences::default();
    list_and_read(&mut absences, 0, &held([1]), &present([]));
    list_and_read(&mut absences, MINUTE, &held([]), &present([]));
    assert_eq!(released(&absences), []);
    // It comes back under the same name and vanishes: all begins anew.
    list_and_read(&mut absences, MINUTE + 1, &held([1]), &present([]));
    assert_eq!(released(&absences), []);
}

/// (leases, limit) of what is held back.
fn held_back(verdict: &AbsenceVerdict) -> Option<(usize, usize)> {
    let withheld = verdict.held_back.as_ref()?;
    Some((withheld.leases(), withheld.limit))
}

/// The word of an admin on what this verdict holds back.
fn word(verdict: &AbsenceVerdict) -> Confirmation {
    Confirmation {
        actor: "user:ada".into(),
        owners: verdict.held_back.clone().unwrap().owners,
    }
}

fn gone(count: usize) -> Absences {
    let mut absences = Absences::default();
    list_and_read(&mut absences, 0, &held(0..count), &present([]));
    list_and_read(&mut absences, MINUTE, &held(0..count), &present([]));
    absences
}

#[test]
fn five_may_always_go_and_a_sixth_of_few_holds_all_back() {
    assert_eq!(gone(5).verdict(5, Some(0), |_| true).release.len(), 5);
    let verdict = gone(6).verdict(6, Some(0), |_| true);
    assert_eq!(verdict.release, []);
    assert_eq!(held_back(&verdict), Some((6, 5)));
}

#[test]
fn of_many_one_in_twenty_may_go() {
    assert_eq!(gone(50).verdict(1_000, Some(0), |_| true).release.len(), 50);
    let verdict = gone(51).verdict(1_000, Some(0), |_| true);
    assert_eq!(held_back(&verdict), Some((51, 50)));
}

#[test]
fn an_emptied_cluster_releases_nothing_however_long_it_stays_empty() {
    let mut absences = gone(100);
    for n in 1..100 {
        let ms = MINUTE + n * 300_000;
        list_and_read(&mut absences, ms, &held(0..100), &present([]));
        let verdict = absences.verdict(100, Some(0), |_| true);
        assert_eq!(verdict.release, []);
        assert_eq!(held_back(&verdict), Some((100, 5)));
    }
}

#[test]
fn the_limit_counts_what_went_within_the_window() {
    let absences = gone(3);
    let verdict = absences.verdict(96, Some(4), |_| true);
    assert_eq!(verdict.release, []);
    assert_eq!(
        held_back(&verdict),
        Some((3, 5)),
        "4 went, 3 more would be 7"
    );
    assert_eq!(absences.verdict(96, Some(2), |_| true).release.len(), 3);
    assert_eq!(absences.verdict(96, Some(0), |_| true).release.len(), 3);
}

#[test]
fn an_owner_counts_with_all_its_leases() {
    let mut absences = Absences::default();
    let held = BTreeMap::from([(owner(1), 6)]);
    list_and_read(&mut absences, 0, &held, &present([]));
    list_and_read(&mut absences, MINUTE, &held, &present([]));
    assert_eq!(
        held_back(&absences.verdict(6, Some(0), |_| true)),
        Some((6, 5))
    );
}

#[test]
fn a_confirmation_releases_just_what_it_is_about() {
    let mut absences = gone(10);
    let word = word(&absences.verdict(10, Some(0), |_| true));
    // Owner 3 turns up again before the word arrives; owners 20 to 29 vanish meanwhile, so that more is held back.
    for ms in [2 * MINUTE, 3 * MINUTE] {
        list_and_read(
            &mut absences,
            ms,
            &held(0..30),
            &present((3..4).chain(10..20)),
        );
    }
    assert_eq!(
        held_back(&absences.verdict(30, Some(0), |_| true)),
        Some((19, 5))
    );
    absences.confirm(&word);
    let verdict = absences.verdict(30, Some(0), |_| true);
    let confirmed = |identity| (identity, Some("user:ada".into()));
    assert_eq!(
        verdict.release,
        present((0..3).chain(4..10))
            .into_iter()
            .map(confirmed)
            .collect::<Vec<_>>()
    );
    let left = verdict.held_back.unwrap();
    assert_eq!(left.owners, held(20..30), "they need a word of their own");
    // Owner 3 vanishes again: the word was about the time before.
    for ms in [4 * MINUTE, 5 * MINUTE] {
        list_and_read(&mut absences, ms, &held(3..4), &present([]));
    }
    let again = absences.verdict(30, Some(0), |_| true).release;
    assert_eq!(again, [(owner(3), None)]);
}

#[test]
fn a_confirmation_is_no_word_about_more_leases() {
    let mut absences = gone(6);
    let word = word(&absences.verdict(6, Some(0), |_| true));
    let mut more = held(0..6);
    more.insert(owner(2), 7);
    list_and_read(&mut absences, 2 * MINUTE, &more, &present([]));
    absences.confirm(&word);
    let verdict = absences.verdict(12, Some(0), |_| true);
    assert_eq!(verdict.release.len(), 5);
    assert_eq!(
        verdict.held_back.unwrap().owners,
        BTreeMap::from([(owner(2), 7)])
    );
}

#[test]
fn while_nobody_knows_what_went_only_an_admin_lets_go() {
    let mut absences = Absences::default();
    list_and_read(&mut absences, 0, &held([1]), &present([]));
    absences.listed(at(MINUTE), &held([1]), &present([]));
    let verdict = absences.verdict(100, None, |_| true);
    let held_back = verdict.held_back.unwrap();
    assert_eq!((held_back.leases(), held_back.limit), (1, 0));
    assert_eq!(verdict.release, []);
    absences.confirm(&Confirmation {
        actor: "user:ada".into(),
        owners: held_back.owners,
    });
    assert_eq!(absences.verdict(100, None, |_| true).release.len(), 1);
}
