//! Sets of addresses as sorted, disjoint spans.

use std::net::IpAddr;

use fipd_core::Span;

/// The same addresses, sorted, and joined where they overlap or touch.
pub fn merged(spans: &[Span]) -> Vec<Span> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(sorted.len());
    for span in sorted {
        match merged.last_mut() {
            Some(last) if joins(last, &span) => last.last = last.last.max(span.last),
            Some(_) | None => merged.push(span),
        }
    }
    merged
}

/// Whether a span that begins at or after another overlaps or touches it.
fn joins(before: &Span, after: &Span) -> bool {
    let touches = || before.last.checked_add(1) == Some(after.first);
    before.family == after.family && (after.first <= before.last || touches())
}

/// The addresses of `from` that are not in `cut`.
pub fn minus(from: &[Span], cut: &[Span]) -> Vec<Span> {
    let cut = merged(cut);
    let mut left = Vec::new();
    for span in merged(from) {
        let before = |one: &Span| (one.family, one.last) < (span.family, span.first);
        let near = cut.iter().skip(cut.partition_point(before));
        let mut rest = Some(span);
        for one in near.take_while(|one| one.overlaps(&span)) {
            let Some(open) = rest else { break };
            if one.first > open.first {
                left.push(Span {
                    last: one.first - 1,
                    ..open
                });
            }
            let next = one.last.checked_add(1);
            rest = next
                .filter(|next| *next <= open.last)
                .map(|first| Span { first, ..open });
        }
        left.extend(rest);
    }
    left
}

/// The lowest run of addresses that is in both.
pub fn intersection(mine: &[Span], theirs: &[Span]) -> Option<Span> {
    let (mine, theirs) = (merged(mine), merged(theirs));
    let (mut mine, mut theirs) = (mine.iter(), theirs.iter());
    let (mut one, mut other) = (mine.next()?, theirs.next()?);
    loop {
        if one.overlaps(other) {
            return Some(Span {
                first: one.first.max(other.first),
                last: one.last.min(other.last),
                ..*one
            });
        }
        if (one.family, one.last) < (other.family, other.last) {
            one = mine.next()?;
        } else {
            other = theirs.next()?;
        }
    }
}

/// Whether the address is in a set that is sorted and disjoint.
pub fn holds(set: &[Span], address: IpAddr) -> bool {
    let wanted = Span::single(address);
    let before = |one: &Span| (one.family, one.last) < (wanted.family, wanted.first);
    let at = set.partition_point(before);
    set.get(at).is_some_and(|span| span.contains(address))
}

/// `10.0.0.1-10.0.0.9`, or the address alone.
pub fn text(span: &Span) -> String {
    let (first, last) = (span.first_address(), span.last_address());
    match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::AddressSpec;
    use proptest::prelude::*;

    use super::*;

    fn spans(texts: &[&str]) -> Vec<Span> {
        let parse = |text: &&str| text.parse::<AddressSpec>().unwrap().span();
        texts.iter().map(parse).collect()
    }

    #[test]
    fn spans_that_touch_are_one_and_families_stay_apart() {
        let mixed = spans(&[
            "fd00::2",
            "10.0.0.5-10.0.0.9",
            "10.0.0.1-10.0.0.4",
            "fd00::1",
            "10.0.0.7",
        ]);
        assert_eq!(
            merged(&mixed),
            spans(&["10.0.0.1-10.0.0.9", "fd00::1-fd00::2"])
        );
        let ends = spans(&["255.255.255.255", "::"]);
        assert_eq!(merged(&ends), ends);
    }

    #[test]
    fn what_is_cut_out_is_gone() {
        let from = spans(&["10.0.0.0/24", "fd00::/64"]);
        let cut = spans(&["10.0.0.0", "10.0.0.10-10.0.0.20", "10.0.0.255", "10.0.0.15"]);
        let left = spans(&["10.0.0.1-10.0.0.9", "10.0.0.21-10.0.0.254", "fd00::/64"]);
        assert_eq!(minus(&from, &cut), left);
        assert_eq!(minus(&from, &from), []);
        let all = spans(&["::/0"]);
        assert_eq!(minus(&all, &all), []);
        assert_eq!(minus(&all, &spans(&["0.0.0.0/0"])), all);
    }

    #[test]
    fn the_lowest_run_in_both_is_found_in_unsorted_lists() {
        let mine = spans(&["10.0.0.100-10.0.0.200", "10.0.0.1-10.0.0.5"]);
        let found = |theirs: &[&str]| intersection(&mine, &spans(theirs)).map(|span| text(&span));
        assert_eq!(
            found(&["10.0.0.190-10.0.0.210", "10.0.0.5"]).as_deref(),
            Some("10.0.0.5")
        );
        assert_eq!(
            found(&["10.0.0.190-10.0.0.210"]).as_deref(),
            Some("10.0.0.190-10.0.0.200")
        );
        assert_eq!(found(&["10.0.0.6-10.0.0.99", "::/0"]), None);
        assert_eq!(found(&[]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn sets_are_what_their_members_are(
            one in prop::collection::vec((0_u8..=255, 0_u8..=255), 0..6),
            two in prop::collection::vec((0_u8..=255, 0_u8..=255), 0..6),
        ) {
            let set = |pairs: &[(u8, u8)]| -> Vec<Span> {
                let span = |(a, b): &(u8, u8)| Span {
                    first: u128::from(*a.min(b)),
                    last: u128::from(*a.max(b)),
                    ..Span::single(IpAddr::from([0, 0, 0, 0]))
                };
                pairs.iter().map(span).collect()
            };
            let (one, two) = (set(&one), set(&two));
            let (mine, theirs) = (merged(&one), merged(&two));
            let left = minus(&one, &two);
            let both = intersection(&one, &two);
            let mut lowest = None;
            for last in 0..=255_u8 {
                let address = IpAddr::from([0, 0, 0, last]);
                let is_in = |spans: &[Span]| spans.iter().any(|span| span.contains(address));
                prop_assert_eq!(holds(&mine, address), is_in(&one));
                prop_assert_eq!(holds(&left, address), is_in(&one) && !is_in(&two));
                if lowest.is_none() && holds(&mine, address) && holds(&theirs, address) {
                    lowest = Some(address);
                }
            }
            prop_assert_eq!(both.map(|span| span.first_address()), lowest);
        }
    }
}
