use fipd_core::Text;

use super::*;

const NONCE: &str = "n1";

/// A way of the site by its only kubeconfig; nothing is known of it.
fn way(site: &str) -> Facts {
    Facts {
        key: (site.into(), SiteWay::Config),
        same_as: None,
        strict: true,
        answers: None,
        shown: None,
        proved: false,
    }
}

impl Facts {
    fn shows(self, secret: Seen) -> Self {
        let shown = Shown {
            secret,
            reached: None,
            ca: "ca".into(),
            read_only: false,
            begun: Instant::now(),
        };
        Self {
            answers: Some(true),
            shown: Some(shown),
            ..self
        }
    }

    fn value(self, value: &str) -> Self {
        self.shows(seen(NONCE, value))
    }

    fn down(self) -> Self {
        Self {
            answers: Some(false),
            ..self
        }
    }

    fn proved(self) -> Self {
        Self {
            proved: true,
            ..self
        }
    }

    fn same_as(self, other: &str) -> Self {
        Self {
            same_as: Some(other.into()),
            ..self
        }
    }

    fn read_only(mut self) -> Self {
        if let Some(shown) = &mut self.shown {
            shown.read_only = true;
        }
        self
    }

    fn trusts(mut self, ca: &str) -> Self {
        if let Some(shown) = &mut self.shown {
            shown.ca = ca.into();
        }
        self
    }
}

fn seen(nonce: &str, value: &str) -> Seen {
    Seen::Value {
        nonce: nonce.into(),
        value: value.into(),
    }
}

fn proof(lead: &str, value: &str) -> ClusterProof {
    ClusterProof {
        nonce: Some(NONCE.into()),
        value: value.into(),
        next: None,
        ca: "ca".into(),
        lead: lead.into(),
        way: Text::default(),
    }
}

/// One that fipd may not write to: known by its UID and its CA.
fn by_ca(lead: &str) -> ClusterProof {
    ClusterProof {
        nonce: None,
        value: Text::default(),
        ..proof(lead, "")
    }
}

struct Case {
    proof: Option<ClusterProof>,
    names: Vec<Text>,
    round: Option<Round>,
    written: Option<Instant>,
    since: Instant,
}

impl Case {
    fn new(proof: Option<ClusterProof>, names: &[&str]) -> Self {
        Self {
            proof,
            names: names.iter().map(|name| (*name).into()).collect(),
            round: None,
            written: None,
            since: Instant::now(),
        }
    }

    fn decide(&self, ways: &[Facts]) -> (Vec<Verdict>, Vec<Act>) {
        let known = Known {
            proof: self.proof.as_ref(),
            names: &self.names,
            round: self.round.as_ref(),
            written: self.written,
            since: self.since,
            now: Instant::now(),
        };
        decide(&known, ways)
    }
}

fn conflict(verdict: &Verdict) -> &str {
    let Verdict::Conflict(why) = verdict else {
        panic!("no conflict: {verdict:?}");
    };
    why
}

fn waits(verdict: &Verdict) -> &str {
    let Verdict::Waits(why) = verdict else {
        panic!("does not wait: {verdict:?}");
    };
    why
}

#[test]
fn nothing_runs_on_a_new_cluster_before_its_secret_is_there() {
    let case = Case::new(None, &[]);
    let (verdicts, acts) = case.decide(&[way("a").shows(Seen::Absent)]);
    waits(&verdicts[0]);
    assert_eq!(acts, [Act::Create(("a".into(), SiteWay::Config))]);
    let (verdicts, acts) = case.decide(&[way("a").value("1-x")]);
    waits(&verdicts[0]);
    assert_eq!(acts, [Act::Record(proof("a", "1-x"))]);
}

#[test]
fn the_way_that_led_last_proves_itself_by_the_last_value() {
    let case = Case::new(Some(proof("a", "4-x")), &["a"]);
    let (verdicts, acts) = case.decide(&[way("a").value("4-x")]);
    assert_eq!(verdicts, [Verdict::Proven]);
    assert_eq!(acts, [Act::Proved(("a".into(), SiteWay::Config))]);
}

#[test]
fn a_value_that_was_being_written_when_fipd_died_counts() {
    let half = ClusterProof {
        next: Some("5-y".into()),
        ..proof("a", "4-x")
    };
    for shown in ["4-x", "5-y"] {
        let case = Case::new(Some(half.clone()), &["a"]);
        let (verdicts, _) = case.decide(&[way("a").value(shown)]);
        assert_eq!(verdicts, [Verdict::Proven], "{shown}");
    }
}

#[test]
fn a_clone_that_is_up_alone_after_a_restart_runs_nothing() {
    let case = Case::new(Some(proof("victim", "4-x")), &["victim"]);
    for victim in [way("victim"), way("victim").down()] {
        let thief = way("athief").shows(Seen::Absent);
        let (verdicts, acts) = case.decide(&[thief, victim]);
        let why = conflict(&verdicts[0]);
        for step in [
            "fipd clusters join athief --as victim",
            "new-identity athief",
        ] {
            assert!(why.contains(step), "{why}");
        }
        assert_eq!(acts, []);
    }
}

#[test]
fn an_endpoint_that_was_replaced_runs_nothing() {
    let case = Case::new(Some(proof("a", "4-x")), &["a"]);
    for stranger in [Seen::Absent, seen("n2", "4-x"), seen("", "")] {
        let (verdicts, acts) = case.decide(&[way("a").shows(stranger)]);
        conflict(&verdicts[0]);
        assert_eq!(acts, []);
    }
}

#[test]
fn an_etcd_restored_to_an_older_value_runs_nothing() {
    let case = Case::new(Some(proof("a", "4-x")), &["a"]);
    let (verdicts, acts) = case.decide(&[way("a").value("3-w")]);
    let why = conflict(&verdicts[0]);
    assert!(why.contains("restored"), "{why}");
    assert_eq!(acts, []);
}

#[test]
fn a_newer_value_is_taken_from_who_led_and_from_nobody_else() {
    let case = Case::new(Some(proof("a", "4-x")), &["a", "b"]);
    let newer = |site| way(site).value("9-z");
    let (verdicts, acts) = case.decide(&[newer("a")]);
    waits(&verdicts[0]);
    assert_eq!(acts, [Act::Record(proof("a", "9-z"))]);
    // Another fipd wrote it at the same time as this one.
    let racing = ClusterProof {
        next: Some("5-y".into()),
        ..proof("a", "4-x")
    };
    let race = Case::new(Some(racing), &["a"]);
    let (_, acts) = race.decide(&[way("a").value("5-q").proved()]);
    assert_eq!(acts, [Act::Record(proof("a", "5-q"))]);
    let (verdicts, acts) = case.decide(&[way("a").down(), newer("b")]);
    conflict(&verdicts[1]);
    assert_eq!(acts, []);
}

#[test]
fn without_a_leading_way_the_one_with_the_last_value_leads() {
    let case = Case::new(Some(proof("a", "4-x")), &["a", "b"]);
    let other = || way("b").value("4-x");
    let (verdicts, acts) = case.decide(&[way("a"), other()]);
    waits(&verdicts[1]);
    assert_eq!(acts, [], "the first was not asked yet");
    let (verdicts, acts) = case.decide(&[way("a").down(), other()]);
    assert_eq!(verdicts[1], Verdict::Proven);
    assert_eq!(acts, [Act::Proved(("b".into(), SiteWay::Config))]);
}

#[test]
fn a_second_way_has_to_show_what_is_written_over_the_first() {
    let (a, b) = (("a".into(), SiteWay::Config), ("b".into(), SiteWay::Config));
    let leading = || way("a").value("4-x").proved();
    let mut case = Case::new(Some(proof("a", "4-x")), &["a"]);
    let (verdicts, acts) = case.decide(&[leading(), way("b").value("4-x")]);
    assert_eq!(verdicts[0], Verdict::Proven);
    waits(&verdicts[1]);
    let challenge = Act::Challenge {
        over: a,
        target: b.clone(),
    };
    assert_eq!(acts, std::slice::from_ref(&challenge));

    let stale = way("b").value("4-x");
    case.proof = Some(proof("a", "5-y"));
    case.written = Some(Instant::now());
    case.round = Some(Round {
        value: "5-y".into(),
        target: Some(b.clone()),
        written: true,
        begun: Instant::now(),
    });
    let leading = || way("a").value("5-y").proved();
    let (verdicts, acts) = case.decide(&[leading(), stale]);
    waits(&verdicts[1]);
    assert_eq!(acts, [Act::Look(b.clone())], "it was read before the write");
    let (verdicts, acts) = case.decide(&[leading(), way("b").value("5-y")]);
    assert_eq!(verdicts[1], Verdict::Proven);
    assert_eq!(acts, [Act::Proved(b)]);
    // The Secret was copied before.
    let (verdicts, acts) = case.decide(&[leading(), way("b").value("4-x")]);
    conflict(&verdicts[1]);
    assert_eq!(acts, []);

    case.round = case.round.map(|round| Round {
        begun: Instant::now() - VALID,
        ..round
    });
    let (verdicts, acts) = case.decide(&[leading(), way("b").value("5-y")]);
    waits(&verdicts[1]);
    assert_eq!(acts, [challenge], "a value proves nothing after 30 s");
}

#[test]
fn a_way_that_proved_itself_goes_on_until_it_shows_an_older_value() {
    let mut case = Case::new(Some(proof("a", "5-y")), &["a"]);
    let before = way("a").value("4-x").proved();
    case.written = Some(Instant::now());
    let (verdicts, _) = case.decide(&[before]);
    assert_eq!(verdicts, [Verdict::Proven], "read before the write");
    let (verdicts, _) = case.decide(&[way("a").value("4-x").proved()]);
    conflict(&verdicts[0]);
    let outage = way("a").value("5-y").proved().down();
    assert_eq!(case.decide(&[outage]).0, [Verdict::Proven]);
}

#[test]
fn without_rights_the_one_known_way_is_known_by_its_ca() {
    let hidden = |site| way(site).shows(Seen::Hidden);
    let case = Case::new(None, &[]);
    let (_, acts) = case.decide(&[hidden("a")]);
    assert_eq!(acts, [Act::Record(by_ca("a"))]);
    let case = Case::new(Some(by_ca("a")), &["a"]);
    assert_eq!(case.decide(&[hidden("a")]).0, [Verdict::Proven]);
    let read_only = way("a").shows(Seen::Absent).read_only();
    assert_eq!(case.decide(&[read_only]).0, [Verdict::Proven]);
    // A stranger with more rights, or with a Secret of its own, is no better known for that.
    for stranger in [Seen::Hidden, Seen::Absent, seen("n9", "1-x")] {
        let (verdicts, acts) = case.decide(&[way("a").shows(stranger).trusts("another")]);
        let why = conflict(&verdicts[0]);
        assert!(why.contains("packaging/rbac/identity.yaml"), "{why}");
        assert_eq!(acts, []);
    }
    // Once it may, it writes the Secret and goes on meanwhile.
    let (verdicts, acts) = case.decide(&[way("a").shows(Seen::Absent)]);
    assert_eq!(verdicts, [Verdict::Proven]);
    assert_eq!(acts, [Act::Create(("a".into(), SiteWay::Config))]);
}

#[test]
fn without_rights_two_secrets_of_one_rancher_cluster_serve_and_another_name_does_not() {
    let of = |site: &str, name: &str| Facts {
        key: (site.into(), SiteWay::Secret(name.into())),
        ..way(site).shows(Seen::Hidden)
    };
    let (by_id, by_name) = ("fleet/c-m-1-kubeconfig", "fleet/guest-kubeconfig");
    let known = ClusterProof {
        way: by_id.into(),
        ..by_ca("guest")
    };
    let case = Case::new(Some(known), &["guest"]);
    let (verdicts, _) = case.decide(&[of("guest", by_id), of("guest", by_name)]);
    assert_eq!(verdicts, [Verdict::Proven, Verdict::Vouched]);
    // The first is deleted.
    let (verdicts, _) = case.decide(&[of("guest", by_name)]);
    assert_eq!(verdicts, [Verdict::Proven]);
    // A clone that the same Rancher lists under another name has its CA too.
    let (verdicts, acts) = case.decide(&[of("athief", "fleet/athief-kubeconfig")]);
    conflict(&verdicts[0]);
    assert_eq!(acts, []);
}

#[test]
fn without_rights_another_way_needs_an_admins_word() {
    let case = Case::new(Some(by_ca("a")), &["a"]);
    let second = || way("b").shows(Seen::Hidden);
    for first in [way("a").shows(Seen::Hidden), way("a").down()] {
        let (verdicts, _) = case.decide(&[first.clone(), second()]);
        conflict(&verdicts[1]);
        let (verdicts, _) = case.decide(&[first, second().same_as("a")]);
        assert_eq!(verdicts[1], Verdict::Vouched);
    }
    let (verdicts, _) = case.decide(&[way("a").down(), second().same_as("c")]);
    conflict(&verdicts[1]);
}

#[test]
fn an_admins_word_in_the_configuration_counts_where_nothing_contradicts_it() {
    let case = Case::new(Some(proof("a", "4-x")), &["a"]);
    for restored in [Seen::Absent, seen(NONCE, "3-w")] {
        let second = || way("b").shows(restored.clone()).same_as("a");
        let (verdicts, acts) = case.decide(&[way("a").down(), second()]);
        assert_eq!(verdicts[1], Verdict::Vouched, "{restored:?}");
        assert_eq!(acts, []);
        let leading = way("a").value("4-x").proved();
        let (verdicts, _) = case.decide(&[leading, second()]);
        conflict(&verdicts[1]);
    }
    let clone = way("b").shows(seen("n2", "4-x")).same_as("a");
    let (verdicts, _) = case.decide(&[way("a").down(), clone]);
    conflict(&verdicts[1]);
}

#[test]
fn a_second_way_beside_one_that_may_not_write_needs_an_admins_word() {
    let case = Case::new(Some(proof("a", "4-x")), &["a"]);
    let leading = || way("a").value("4-x").proved().read_only();
    let second = || way("b").value("4-x");
    let (verdicts, acts) = case.decide(&[leading(), second()]);
    conflict(&verdicts[1]);
    assert_eq!(acts, []);
    let (verdicts, _) = case.decide(&[leading(), second().same_as("a")]);
    assert_eq!(verdicts[1], Verdict::Vouched);
}

#[test]
fn what_holds_no_lease_is_only_compared() {
    let rules = |secret| Facts {
        strict: false,
        ..way("a").shows(secret)
    };
    let case = Case::new(Some(proof("a", "4-x")), &["a"]);
    for secret in [Seen::Absent, Seen::Hidden, seen(NONCE, "1-old")] {
        let (verdicts, acts) = case.decide(&[rules(secret)]);
        assert_eq!(verdicts, [Verdict::Compared]);
        assert_eq!(acts, []);
    }
    conflict(&case.decide(&[rules(seen("n2", "4-x"))]).0[0]);
}

#[test]
fn after_an_upgrade_the_name_known_first_writes_and_others_are_challenged() {
    let case = Case::new(None, &["victim", "athief"]);
    let absent = |site| way(site).shows(Seen::Absent);
    let (verdicts, acts) = case.decide(&[absent("athief"), absent("victim")]);
    waits(&verdicts[0]);
    assert_eq!(acts, [Act::Create(("victim".into(), SiteWay::Config))]);
    for victim in [way("victim"), way("victim").down()] {
        let (verdicts, acts) = case.decide(&[absent("athief"), victim]);
        assert!(
            matches!(verdicts[0], Verdict::Waits(_) | Verdict::Conflict(_)),
            "{verdicts:?}"
        );
        assert_eq!(acts, [], "it does not lead meanwhile");
    }
}

#[test]
fn two_secrets_of_one_rancher_cluster_go_on_after_an_upgrade() {
    let secret = |name: &str| (Text::from("guest"), SiteWay::Secret(name.into()));
    let of = |name: &str, shown: Seen| Facts {
        key: secret(name),
        ..way("guest").shows(shown)
    };
    let mut case = Case::new(None, &["guest"]);
    let (by_id, by_name) = ("fleet/c-m-1-kubeconfig", "fleet/guest-kubeconfig");
    let (_, acts) = case.decide(&[of(by_id, Seen::Absent), of(by_name, Seen::Absent)]);
    assert_eq!(acts, [Act::Create(secret(by_id))]);
    let known = ClusterProof {
        way: by_id.into(),
        ..proof("guest", "1-x")
    };
    case.proof = Some(known);
    let ways = [
        of(by_id, seen(NONCE, "1-x")).proved(),
        of(by_name, seen(NONCE, "1-x")),
    ];
    let (verdicts, acts) = case.decide(&ways);
    assert_eq!(verdicts[0], Verdict::Proven);
    let (over, target) = (secret(by_id), secret(by_name));
    assert_eq!(acts, [Act::Challenge { over, target }]);
}

#[test]
fn a_secret_that_somebody_emptied_proves_nothing() {
    let case = Case::new(None, &[]);
    let (verdicts, acts) = case.decide(&[way("a").shows(seen("", ""))]);
    conflict(&verdicts[0]);
    assert_eq!(acts, []);
}

#[test]
fn a_serial_is_the_number_in_front() {
    assert_eq!(serial("17-ab"), 17);
    for text in ["", "ab", "-1", "99999999999999999999999-x"] {
        assert_eq!(serial(text), 0, "{text}");
    }
}
