use super::*;
use crate::guests::system::testing::{FIRST, SECOND};

/// A cluster manager; without a name it does not know where it has put something.
struct ManagerOf(&'static str);

impl GuestManager for ManagerOf {
    fn put_into(&self, names: &[Text]) -> Option<bool> {
        let put = names.iter().any(|name| &**name == "prod");
        (!self.0.is_empty()).then_some(put)
    }
}

#[test]
fn what_a_manager_does_not_know_yet_is_not_taken_for_no() {
    let guests = GuestBoard::default();
    let both: [Arc<dyn GuestManager>; 2] = [Arc::new(ManagerOf("p-1")), Arc::new(ManagerOf(""))];
    guests.managed_by(&"a".into(), FIRST, Arc::downgrade(&both[0]));
    guests.managed_by(&"b".into(), FIRST, Arc::downgrade(&both[1]));
    let put = |name: &str| guests.put_into(&["c-1".into(), name.into()]);
    let of = |system: GuestSystem| ("a".into(), system.name);
    assert_eq!(put("prod"), BTreeMap::from([(of(FIRST), true)]));
    assert_eq!(put("test"), BTreeMap::from([(of(FIRST), false)]));
    guests.managed_by(&"a".into(), SECOND, Arc::downgrade(&both[1]));
    let said = BTreeMap::from([(of(FIRST), false)]);
    assert_eq!(put("test"), said, "the other system may have");
    guests.managed_by(&"a".into(), SECOND, Arc::downgrade(&both[0]));
    let said = BTreeMap::from([(of(FIRST), true), (of(SECOND), true)]);
    assert_eq!(put("prod"), said);
    drop(both);
    assert!(put("prod").is_empty(), "nobody is there to ask");
}

#[test]
fn a_view_keeps_its_time_while_the_reason_stays_and_its_last_error_afterwards() {
    let (views, rancher) = (GuestBoard::default(), Text::from("rancher"));
    let say = |phase, reason, at| {
        let news = GuestUpdate {
            rancher: &rancher,
            id: "c-1",
            system: FIRST,
            display_name: "prod",
            says: GuestStatus::new(phase, reason, "text"),
            details: vec![],
            releases: None,
        };
        views.say(news, Timestamp(at))
    };
    assert!(say(GuestPhase::Waiting, "NoProject", 1));
    assert!(!say(GuestPhase::Waiting, "NoProject", 2));
    assert_eq!(
        views.get(&rancher, "c-1", FIRST).unwrap().since,
        Timestamp(1)
    );
    assert!(say(GuestPhase::Waiting, "ChartsInstalling", 3));
    assert!(say(GuestPhase::Ready, "Ready", 3));
    let view = views.get(&rancher, "c-1", FIRST).unwrap();
    assert_eq!(view.since, Timestamp(3));
    assert_eq!(view.last_error.as_deref(), Some("NoProject: text"));
    assert_eq!(views.phases()[&(None, GuestPhase::Ready)], 1);
    views.forget(&rancher, FIRST);
    assert!(views.all().is_empty());
}

#[test]
fn each_system_says_its_own_of_a_guest_and_forgets_no_more() {
    let (views, rancher) = (GuestBoard::default(), Text::from("rancher"));
    let say = |system, phase, releases| {
        let news = GuestUpdate {
            rancher: &rancher,
            id: "c-1",
            system,
            display_name: "prod",
            says: GuestStatus::new(phase, "Reason", system.name),
            details: vec![],
            releases,
        };
        views.say(news, Timestamp(1))
    };
    let release = ReleaseView {
        name: "lb".into(),
        namespace: "fip".into(),
        chart: "lb".into(),
        version: "1.0.0".into(),
    };
    assert!(say(FIRST, GuestPhase::Ready, Some(vec![release])));
    assert!(say(SECOND, GuestPhase::Failed, None), "it said nothing yet");
    assert!(!say(FIRST, GuestPhase::Ready, None));
    assert_eq!(views.name(&rancher, "c-1").as_deref(), Some("prod"));
    assert_eq!(views.name(&rancher, "c-"), None);
    assert_eq!(views.name(&rancher, "c-10"), None);
    let failed = BTreeMap::from([((GuestPhase::Failed, "Reason"), 1)]);
    assert_eq!(views.reasons(&rancher, SECOND), failed);
    assert!(views.reasons(&"other".into(), SECOND).is_empty());
    let of = |system| views.get(&rancher, "c-1", system);
    assert_eq!(
        of(FIRST).unwrap().releases.len(),
        1,
        "not known is not none"
    );
    assert!(of(SECOND).unwrap().releases.is_empty());
    assert_eq!(of(SECOND).unwrap().says.message, "second");
    let phases = views.phases();
    let of_both = |phase| [None, Some("second")].map(|mark| phases[&(mark, phase)]);
    assert_eq!(of_both(GuestPhase::Ready), [1, 0]);
    assert_eq!(of_both(GuestPhase::Failed), [0, 1]);
    views.forget(&rancher, FIRST);
    assert_eq!((of(FIRST), views.all().len()), (None, 1));
    views.remove(&rancher, "c-1", SECOND);
    assert!(views.all().is_empty());
    let phases = views.phases().len();
    assert_eq!(
        phases,
        GuestPhase::ALL.len(),
        "of the first, though all are 0"
    );
}

#[test]
fn systems_share_the_way_to_the_guests_of_a_rancher_while_one_of_them_runs() {
    let board = GuestBoard::default();
    let one = board.links(&"a".into());
    assert!(Arc::ptr_eq(&one, &board.links(&"a".into())));
    assert!(!Arc::ptr_eq(&one, &board.links(&"b".into())));
    drop(one);
    assert_eq!(Arc::strong_count(&board.links(&"a".into())), 1);
    assert_eq!(board.links.lock().len(), 1);
}

#[test]
fn a_project_has_a_name_where_nobody_says_another() {
    let board = GuestBoard::default();
    let name = |rancher: &str, name: Option<&str>| {
        board.name_project(&rancher.into(), "p-1", name.map(str::to_owned));
        board.project_name("p-1")
    };
    assert_eq!(name("a", Some("Shop")).as_deref(), Some("Shop"));
    assert_eq!(name("b", Some("Store")), None);
    assert_eq!(name("b", Some("")).as_deref(), Some("Shop"));
    assert_eq!(name("a", None), None);
}

#[test]
fn a_system_that_is_kept_out_of_a_guest_is_named_where_the_other_is_shown() {
    let (views, rancher) = (GuestBoard::default(), Text::from("rancher"));
    let say = |id, system, reason| {
        let news = GuestUpdate {
            rancher: &rancher,
            id,
            system,
            display_name: "prod",
            says: GuestStatus::new(GuestPhase::Failed, reason, "purelb is there"),
            details: vec![],
            releases: None,
        };
        views.say(news, Timestamp(1));
    };
    say("c-1", FIRST, "Ready");
    say("c-1", SECOND, OTHER_LOAD_BALANCER);
    say("c-2", FIRST, "Ready");
    let told = views.all().into_iter().map(|view| {
        let details = view.details.into_iter();
        let said = details.map(|detail| (detail.field, detail.value));
        (view.id, view.system, said.collect::<Vec<_>>())
    });
    let why = DetailValue::Text("second: purelb is there".to_owned());
    let expected = [
        ("c-1".to_owned(), FIRST, vec![("kept_out", why)]),
        ("c-1".to_owned(), SECOND, vec![]),
        ("c-2".to_owned(), FIRST, vec![]),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}
