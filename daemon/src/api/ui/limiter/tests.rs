use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_sixth_try_waits_and_each_failure_doubles_it() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    let from = ip("192.0.2.1");
    for _ in 0..TRIES {
        limiter.attempt("ann", from, start).unwrap();
    }
    assert_eq!(limiter.attempt("ann", from, start), Err(FIRST));
    // Waiting attempts are not counted: the lockout ends.
    let later = start + FIRST;
    limiter.attempt("ann", from, later).unwrap();
    assert_eq!(limiter.attempt("ann", from, later), Err(FIRST * 2));
    // Others are not locked out, nor is the name from elsewhere.
    limiter.attempt("bob", from, later).unwrap();
    limiter.attempt("ann", ip("192.0.2.2"), later).unwrap();
}

#[test]
fn success_forgets_and_so_does_time() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    let from = ip("2001:db8::1");
    for _ in 0..3 {
        for _ in 0..TRIES {
            limiter.attempt("ann", from, start).unwrap();
        }
        limiter.succeeded("ann", from, start);
    }
    let (limiter, from) = (Limiter::default(), ip("192.0.2.7"));
    for _ in 0..TRIES {
        limiter.attempt("ann", from, start).unwrap();
    }
    for _ in 0..TRIES {
        limiter.attempt("ann", from, start + FORGET).unwrap();
    }
}

#[test]
fn many_names_from_one_place_are_stopped_too() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    for number in 0..TRIES_OF_ADDRESS {
        let from = ip(&format!("2001:db8::{number:x}"));
        limiter
            .attempt(&format!("name-{number}"), from, start)
            .unwrap();
    }
    assert_eq!(
        limiter.attempt("another", ip("2001:db8::ffff"), start),
        Err(FIRST)
    );
    limiter
        .attempt("another", ip("2001:db8:0:1::1"), start)
        .unwrap();
}

#[test]
fn who_signs_in_prolongs_no_lockout_of_the_address() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    let from = ip("192.0.2.1");
    for number in 0..TRIES_OF_ADDRESS {
        let name = format!("name-{number}");
        limiter.attempt(&name, from, start).unwrap();
    }
    let later = start + FIRST;
    limiter.attempt("ann", from, later).unwrap();
    limiter.succeeded("ann", from, later);
    limiter.attempt("bob", from, later).unwrap();
}

#[test]
fn who_signs_in_keeps_no_failures_of_others_alive() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    let from = ip("192.0.2.1");
    for number in 1..TRIES_OF_ADDRESS {
        let name = format!("name-{number}");
        limiter.attempt(&name, from, start).unwrap();
    }
    let between = start + FORGET / 2;
    limiter.attempt("ann", from, between).unwrap();
    limiter.succeeded("ann", from, between);
    // One of before and these would be too many.
    let later = start + FORGET;
    for number in 0..TRIES_OF_ADDRESS {
        let name = format!("name-{number}");
        limiter.attempt(&name, from, later).unwrap();
    }
    assert_eq!(limiter.attempt("bob", from, later), Err(FIRST));
}

#[test]
fn no_lockout_is_longer_than_the_longest_and_what_is_kept_suffices_for_it() {
    let (limiter, mut now) = (Limiter::default(), Instant::now());
    let from = ip("192.0.2.1");
    for number in 0..2 * KEPT {
        let name = format!("name-{number}");
        limiter.attempt(&name, from, now).unwrap();
        now += LONGEST;
    }
    let locked = limiter.attempt("ann", from, now - Duration::from_secs(1));
    assert_eq!(locked, Err(Duration::from_secs(1)));
    let inner = limiter.0.lock();
    assert_eq!(inner.failures[&AttemptKey::Address(from)].0.len(), KEPT);
}

#[test]
fn the_table_does_not_grow_without_end() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    for number in 0..MOST as u32 {
        let from = IpAddr::V4(number.into());
        let name = format!("name-{number}");
        let now = start + Duration::from_millis(u64::from(number));
        limiter.attempt(&name, from, now).unwrap();
    }
    for number in 0..=KNOWN as u32 {
        let from = IpAddr::V4(number.into());
        limiter.signed_in(&format!("name-{number}"), from, start);
    }
    let inner = limiter.0.lock();
    assert!(inner.failures.len() <= MOST);
    assert_eq!(inner.known.len(), KNOWN);
}

#[test]
fn one_name_is_guessed_from_many_places_no_more_often_than_from_few() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    let from = |number: usize| ip(&format!("2001:db8:{number:x}::1"));
    // One that there is not is counted alike.
    for name in ["ann", "nobody"] {
        for number in 0..TRIES_OF_NAME {
            limiter.attempt(name, from(number), start).unwrap();
        }
        let elsewhere = from(TRIES_OF_NAME);
        assert_eq!(limiter.attempt(name, elsewhere, start), Err(FIRST));
        let later = start + FIRST;
        limiter.attempt(name, elsewhere, later).unwrap();
        assert_eq!(limiter.attempt(name, from(1), later), Err(FIRST * 2));
    }
    limiter.attempt("bob", from(1), start).unwrap();
}

#[test]
fn guessing_elsewhere_keeps_nobody_out_where_they_signed_in_before() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    let home = ip("192.0.2.1");
    limiter.attempt("ann", home, start).unwrap();
    limiter.signed_in("ann", home, start);
    for number in 0..TRIES_OF_NAME {
        let from = ip(&format!("2001:db8:{number:x}::1"));
        limiter.attempt("ann", from, start).unwrap();
    }
    assert!(limiter.attempt("ann", ip("192.0.2.2"), start).is_err());
    // Her own mistakes count there as ever, and for nobody else.
    for _ in 0..TRIES {
        limiter.attempt("ann", home, start).unwrap();
    }
    assert_eq!(limiter.attempt("ann", home, start), Err(FIRST));
    limiter.attempt("bob", home, start).unwrap();
    let locked = limiter.attempt("ann", ip("192.0.2.2"), start);
    assert_eq!(locked, Err(FIRST));
}

#[test]
fn of_each_name_the_last_places_are_known() {
    let (limiter, now) = (Limiter::default(), Instant::now());
    let from = |number: usize| ip(&format!("2001:db8:{number:x}::1"));
    limiter.signed_in("bob", from(0), now);
    for number in 0..=KNOWN_OF_ONE {
        limiter.signed_in("ann", from(number), now);
    }
    limiter.signed_in("ann", from(1), now);
    limiter.signed_in("ann", from(KNOWN_OF_ONE + 1), now);
    let inner = limiter.0.lock();
    let knows = |name: &str, number| {
        let both = (network(from(number)), name.to_owned());
        inner.known.contains(&both)
    };
    assert!(knows("bob", 0) && knows("ann", 1) && knows("ann", KNOWN_OF_ONE + 1));
    assert!(!knows("ann", 0) && !knows("ann", 2));
    assert_eq!(inner.known.len(), KNOWN_OF_ONE + 1);
}

#[test]
fn a_name_that_is_guessed_is_not_forgotten_for_trying_others() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    for number in 0..TRIES_OF_NAME {
        let from = ip(&format!("2001:db8:{number:x}::1"));
        limiter.attempt("ann", from, start).unwrap();
    }
    for number in 0..MOST as u32 {
        let from = IpAddr::V4(number.into());
        let now = start + Duration::from_millis(u64::from(number) / 1_000);
        limiter
            .attempt(&format!("name-{number}"), from, now)
            .unwrap();
    }
    let locked = limiter.attempt("ann", ip("192.0.2.1"), start + Duration::from_secs(1));
    assert!(locked.is_err());
}
