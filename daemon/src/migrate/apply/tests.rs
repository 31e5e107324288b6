use super::*;
use crate::{
    controller::client::testing::{Asked, canned},
    migrate::session::{Consent, MigrationOptions},
};

type Answer = (&'static str, u16, &'static str);

macro_rules! template {
    () => {
        r#""template":{"metadata":{"annotations":{"macvlan.pandaria.cattle.io/ip":"auto","macvlan.pandaria.cattle.io/subnet":"lab"}}}"#
    };
}
macro_rules! web {
    () => {
        concat!(
            r#"{"metadata":{"namespace":"shop","name":"web","uid":"u","resourceVersion":"7"},"spec":{"suspend":true,"#,
            template!(),
            "}}"
        )
    };
}
const WEB: &str = web!();
const WORKLOADS: &str = concat!(
    r#"{"items":[{"metadata":{"namespace":"shop","name":"other"}},"#,
    web!(),
    "]}"
);
const NONE: &str = r#"{"items":[]}"#;
const NEW_LAB: &str = r#"{"items":[{"metadata":{"name":"lab"},"spec":{"flatMode":"macvlan","master":"eth0","cidr":"10.0.0.0/24"}}]}"#;
const OLD_LAB: &str = r#"{"items":[{"metadata":{"namespace":"kube-system","name":"lab","uid":"u"},"spec":{"master":"eth0","cidr":"10.0.0.0/24"}}]}"#;

/// The answers until workloads are listed.
fn site(new: &'static str, old: &'static str) -> Vec<Answer> {
    vec![
        ("GET", 200, "{}"),
        (
            "GET",
            200,
            r#"{"resources":[{"name":"flatnetworksubnets"}]}"#,
        ),
        ("GET", 200, "{}"),
        ("GET", 200, new),
        ("GET", 200, old),
        ("GET", 404, "no MacvlanIPs"),
    ]
}

async fn run(
    consent: Consent,
    kind: WorkloadKind,
    answers: Vec<Answer>,
) -> (MigrationSession, Vec<Asked>) {
    let (remote, asked) = canned(&answers);
    let options = MigrationOptions::at_once(consent);
    let mut session = MigrationSession::new("migrate", remote, options);
    let parts = MigratedParts {
        workloads: vec![kind],
        services: false,
    };
    migrate(&mut session, &parts).await.unwrap();
    let asked = std::mem::take(&mut *asked.lock());
    assert_eq!(asked.len(), answers.len(), "all answers are used");
    (session, asked)
}

fn outcomes(session: &MigrationSession) -> Vec<ObjectOutcome> {
    let objects = session.report.objects.iter();
    objects.map(|object| object.outcome).collect()
}

#[tokio::test]
async fn subnets_come_before_workloads() {
    let mut answers = site(NONE, OLD_LAB);
    answers.extend([
        ("POST", 200, "{}"),
        ("GET", 200, WORKLOADS),
        ("GET", 200, WEB),
        ("PATCH", 200, "{}"),
    ]);
    let (session, asked) = run(Consent::Given, WorkloadKind::Deployment, answers).await;
    assert_eq!(
        outcomes(&session),
        [ObjectOutcome::Migrated, ObjectOutcome::Migrated]
    );
    let subnet = asked[6].body["metadata"].clone();
    assert_eq!(
        subnet,
        json!({ "name": "lab", "namespace": "cattle-flat-network" })
    );
    let patch = &asked[9].body;
    assert_eq!(
        patch["metadata"],
        json!({ "uid": "u", "resourceVersion": "7" })
    );
}

#[tokio::test]
async fn a_workload_that_somebody_changes_is_read_again() {
    let mut answers = site(NEW_LAB, NONE);
    answers.extend([
        ("GET", 200, WORKLOADS),
        ("GET", 200, WEB),
        ("PATCH", 409, "changed"),
        ("GET", 200, WEB),
        ("PATCH", 200, "{}"),
    ]);
    let (session, _) = run(Consent::Given, WorkloadKind::StatefulSet, answers).await;
    assert_eq!(outcomes(&session), [ObjectOutcome::Migrated]);
}

#[tokio::test]
async fn a_workload_without_its_subnet_is_not_changed() {
    let mut answers = site(NONE, NONE);
    answers.extend([("GET", 200, WORKLOADS), ("GET", 200, WEB)]);
    let (session, _) = run(Consent::Given, WorkloadKind::DaemonSet, answers).await;
    assert_eq!(outcomes(&session), [ObjectOutcome::Failed]);
    assert!(
        session.report.objects[0]
            .detail
            .contains("cattle-flat-network/lab")
    );
}

#[tokio::test]
async fn a_workload_on_a_subnet_that_serves_nobody_is_not_changed() {
    const FAILED: &str = r#"{"items":[{"metadata":{"name":"lab"},"spec":{"flatMode":"macvlan","master":"eth0","cidr":"10.0.0.0/24"},
        "status":{"phase":"Failed","failureMessage":"CIDR conflict with \"other\""}}]}"#;
    const UNREAD: &str = r#"{"items":[{"metadata":{"name":"lab"},"spec":{"flatMode":"macvlan","master":"eth0","cidr":"ten"}}]}"#;
    for (new, says) in [(FAILED, "CIDR conflict with"), (UNREAD, "spec.cidr")] {
        let mut answers = site(new, NONE);
        answers.extend([("GET", 200, WORKLOADS), ("GET", 200, WEB)]);
        let (session, _) = run(Consent::Given, WorkloadKind::Deployment, answers).await;
        assert_eq!(outcomes(&session), [ObjectOutcome::Failed]);
        let said = &session.report.objects[0].detail;
        assert!(
            said.contains(says) && said.contains("correct that"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_subnet_whose_edit_is_refused_serves_by_what_is_accepted() {
    const EDITED: &str = r#"{"items":[{"metadata":{"name":"lab"},"spec":{"flatMode":"macvlan","master":"eth0","cidr":"ten"},
        "status":{"phase":"Failed","failureMessage":"spec.cidr","accepted":{"flatMode":"macvlan","master":"eth0","cidr":"10.0.0.0/24"},
            "conditions":[{"type":"Ready","status":"False","reason":"Refused"}]}}]}"#;
    const UNSERVED: &str = r#"{"items":[{"metadata":{"name":"lab"},"spec":{"flatMode":"macvlan","master":"eth0","cidr":"10.0.0.0/24"},
        "status":{"phase":"Failed","failureMessage":"no network","accepted":{"flatMode":"macvlan","master":"eth0","cidr":"10.0.0.0/24"},
            "conditions":[{"type":"Ready","status":"False","reason":"NetworkAmbiguous"}]}}]}"#;
    for (new, outcome) in [
        (EDITED, ObjectOutcome::WouldChange),
        (UNSERVED, ObjectOutcome::Failed),
    ] {
        let mut answers = site(new, NONE);
        answers.extend([("GET", 200, WORKLOADS), ("GET", 200, WEB)]);
        let (session, _) = run(Consent::DryRun, WorkloadKind::Deployment, answers).await;
        assert_eq!(outcomes(&session), [outcome]);
    }
}

#[tokio::test]
async fn a_subnet_that_fipd_would_refuse_is_not_made() {
    const ODD: &str = r#"{"items":[{"metadata":{"namespace":"kube-system","name":"lab","uid":"u"},"spec":{"master":"eth0","vlan":5000,"cidr":"10.0.0.0/24"}}]}"#;
    let mut answers = site(NONE, ODD);
    answers.extend([("GET", 200, WORKLOADS), ("GET", 200, WEB)]);
    let (session, _) = run(Consent::Given, WorkloadKind::Deployment, answers).await;
    assert_eq!(
        outcomes(&session),
        [ObjectOutcome::Failed, ObjectOutcome::Failed]
    );
    for object in &session.report.objects {
        assert!(object.detail.contains("spec.vlan"), "{object:?}");
    }
}

/// Rules S8 to S10.
#[tokio::test]
async fn a_subnet_that_clashes_with_another_is_not_made() {
    const OTHER: &str = r#"{"items":[{"metadata":{"name":"other"},"spec":{"flatMode":"macvlan","master":"eth0","cidr":"10.0.0.0/16"}}]}"#;
    let mut answers = site(OTHER, OLD_LAB);
    answers.extend([("GET", 200, WORKLOADS), ("GET", 200, WEB)]);
    let (session, _) = run(Consent::Given, WorkloadKind::Deployment, answers).await;
    assert_eq!(
        outcomes(&session),
        [ObjectOutcome::Failed, ObjectOutcome::Failed]
    );
    for object in &session.report.objects {
        let said = &object.detail;
        assert!(
            said.contains("CIDR conflict") && said.contains("other"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn of_two_new_subnets_that_clash_only_the_first_is_made() {
    const TWO: &str = r#"{"items":[
        {"metadata":{"namespace":"kube-system","name":"a","uid":"a"},"spec":{"master":"eth0","cidr":"10.0.0.0/24"}},
        {"metadata":{"namespace":"kube-system","name":"b","uid":"b"},"spec":{"master":"eth0","cidr":"10.0.0.0/24"}},
        {"metadata":{"namespace":"kube-system","name":"c","uid":"c"},"spec":{"master":"eth0","vlan":7,"cidr":"10.0.0.0/24"}}]}"#;
    let mut answers = site(NONE, TWO);
    answers.push(("GET", 200, NONE));
    let (session, _) = run(Consent::DryRun, WorkloadKind::Deployment, answers).await;
    assert_eq!(
        outcomes(&session),
        [
            ObjectOutcome::WouldChange,
            ObjectOutcome::Failed,
            ObjectOutcome::WouldChange
        ]
    );
}

#[tokio::test]
async fn g1_23_a_job_that_the_api_server_refuses_stops_nothing() {
    let mut answers = site(NEW_LAB, OLD_LAB);
    answers.extend([
        ("GET", 200, WORKLOADS),
        ("GET", 200, WEB),
        ("PATCH", 422, "field is immutable"),
    ]);
    let (session, _) = run(Consent::Given, WorkloadKind::Job, answers).await;
    assert_eq!(
        outcomes(&session),
        [ObjectOutcome::Skipped, ObjectOutcome::Skipped]
    );
    assert!(session.report.objects[1].detail.contains("immutable"));
}

macro_rules! on_macvlan {
    ($name:literal, $ip:literal, $subnet:literal) => {
        concat!(
            r#"{"metadata":{"namespace":"shop","name":""#,
            $name,
            r#"","uid":"u"},"spec":{"template":{"metadata":{"annotations":{"macvlan.pandaria.cattle.io/ip":""#,
            $ip,
            r#"","macvlan.pandaria.cattle.io/subnet":""#,
            $subnet,
            r#""}}}}}"#
        )
    };
}

/// Its subnet does not exclude the addresses of a workload that the run was to migrate.
#[tokio::test]
async fn while_one_that_names_addresses_is_left_no_other_gets_any_of_its_subnet() {
    const LABS: &str = r#"{"items":[{"metadata":{"name":"lab"},"spec":{"flatMode":"macvlan","master":"eth0","cidr":"10.0.0.0/24"}},
        {"metadata":{"name":"far"},"spec":{"flatMode":"macvlan","master":"eth1","cidr":"10.9.0.0/24"}}]}"#;
    const AUTO: &str = on_macvlan!("auto", "auto", "lab");
    const FAR: &str = on_macvlan!("far", "auto", "far");
    const NAMED: &str = on_macvlan!("named", "10.0.0.5", "lab");
    const THREE: &str = concat!(
        r#"{"items":["#,
        on_macvlan!("auto", "auto", "lab"),
        ",",
        on_macvlan!("far", "auto", "far"),
        ",",
        on_macvlan!("named", "10.0.0.5", "lab"),
        "]}"
    );
    let (done, failed) = (ObjectOutcome::Migrated, ObjectOutcome::Failed);
    let named = |code| {
        [
            ("GET", 200, THREE),
            ("GET", 200, NAMED),
            ("PATCH", code, "{}"),
        ]
    };
    let auto = [("GET", 200, AUTO), ("PATCH", 200, "{}")];
    let far = [("GET", 200, FAR), ("PATCH", 200, "{}")];
    let cases: [(u16, &[Answer], [ObjectOutcome; 3]); 2] = [
        (200, &auto, [done, done, done]),
        (422, &[], [failed, failed, done]),
    ];
    for (code, auto, expected) in cases {
        let before = site(LABS, NONE);
        let answers = [&before[..], &named(code), auto, &far].concat();
        let (session, _) = run(Consent::Given, WorkloadKind::Deployment, answers).await;
        let names: Vec<&str> = session
            .report
            .objects
            .iter()
            .map(|one| &*one.name)
            .collect();
        assert_eq!(names, ["shop/named", "shop/auto", "shop/far"]);
        assert_eq!(outcomes(&session), expected, "{code}");
        let why = &session.report.objects[1].detail;
        assert_eq!(why.contains("Deployment shop/named"), code != 200, "{why}");
    }
}

#[tokio::test]
async fn a_list_that_fails_is_reported_and_the_rest_goes_on() {
    let mut answers = site(NEW_LAB, NONE);
    answers.push(("GET", 500, "out of luck"));
    let (session, _) = run(Consent::Given, WorkloadKind::CronJob, answers).await;
    assert_eq!(outcomes(&session), [ObjectOutcome::Failed]);
    assert_eq!(session.report.objects[0].name, "(all)");
}

#[tokio::test]
async fn a_dry_run_plans_workloads_on_subnets_that_it_would_make() {
    let mut answers = site(NONE, OLD_LAB);
    answers.extend([("GET", 200, WORKLOADS), ("GET", 200, WEB)]);
    let (session, _) = run(Consent::DryRun, WorkloadKind::Deployment, answers).await;
    assert_eq!(
        outcomes(&session),
        [ObjectOutcome::WouldChange, ObjectOutcome::WouldChange]
    );
    let changes = session.report.objects[1].changes.join("\n");
    assert!(
        changes.contains("becomes flatnetwork.pandaria.io/ip"),
        "{changes}"
    );
}

#[tokio::test]
async fn without_the_definition_of_subnets_nothing_is_begun() {
    let (remote, _) = canned(&[("GET", 200, "{}"), ("GET", 404, "no such group")]);
    let options = MigrationOptions::at_once(Consent::Given);
    let mut session = MigrationSession::new("migrate", remote, options);
    let parts = MigratedParts {
        workloads: Vec::new(),
        services: true,
    };
    let error = migrate(&mut session, &parts).await.unwrap_err();
    assert!(error.to_string().contains("fipd crds"), "{error}");
}
