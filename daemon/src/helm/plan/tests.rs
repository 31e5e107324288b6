use super::*;
use crate::helm::{release::testing::written, values::Values};

const NOW: Timestamp = Timestamp(1_000_000_000);
const PATIENCE: Patience = Patience {
    own: Duration::from_secs(300),
    others: Duration::from_secs(600),
    interrupted: false,
};

fn desired() -> Release {
    let (reference, namespace) = ("https://example.com/charts", "rancher-fip-manager");
    let written = written("purelb", reference, "v0.14.1", namespace, "a: 1");
    written.parse().unwrap()
}

fn seen(phase: Phase) -> Observed {
    Observed {
        revision: 1,
        phase,
        chart: "purelb".into(),
        version: "0.14.1".into(),
        values: Values::parse("a: 1").unwrap().digest(),
        ours: true,
    }
}

fn planned(seen: Observed) -> Plan {
    plan(&desired(), Some(&seen), NOW, PATIENCE)
}

fn pending(seconds_ago: u64) -> Phase {
    Phase::Pending {
        since: Timestamp(NOW.0 - seconds_ago * 1_000),
    }
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    assert_eq!(planned(seen(Phase::Deployed)), Plan::Nothing);
    assert_eq!(plan(&desired(), None, NOW, PATIENCE), Plan::Install);
}

#[test]
fn a_release_without_a_version_is_never_behind() {
    let mut newest = desired();
    newest.chart.version = ChartVersion::newest();
    let planned =
        |seen: &Observed| plan(&newest.kept_at(Some(seen), None), Some(seen), NOW, PATIENCE);
    let older = Observed {
        version: "0.13.0".into(),
        ..seen(Phase::Deployed)
    };
    assert_eq!(planned(&older), Plan::Nothing);
    let kept = newest.kept_at(Some(&older), None);
    assert_eq!(
        kept.chart.version.as_str(),
        "0.13.0",
        "also with new values"
    );
    let busy = Observed {
        phase: pending(1),
        ..older
    };
    assert!(newest.kept_at(Some(&busy), None).chart.version.is_newest());
    assert!(newest.kept_at(None, None).chart.version.is_newest());
    let noted = newest.kept_at(Some(&busy), Some("0.14.1"));
    assert_eq!(noted.chart.version.as_str(), "0.14.1");
    let exact = desired();
    assert_eq!(*exact.kept_at(Some(&seen(Phase::Failed)), None), exact);
}

#[test]
fn defect_23_values_count_as_much_as_the_version() {
    let other = Observed {
        version: "0.13.0".into(),
        ..seen(Phase::Deployed)
    };
    assert_eq!(planned(other), Plan::Upgrade(Why::Version));
    let other = Observed {
        values: Values::parse("a: 2").unwrap().digest(),
        ..seen(Phase::Deployed)
    };
    assert_eq!(planned(other), Plan::Upgrade(Why::Values));
}

#[test]
fn defect_23_a_stuck_pending_release_is_restored_and_a_busy_one_waited_for() {
    assert_eq!(planned(seen(pending(301))), Plan::Restore);
    let until = Timestamp(NOW.0 + 1_000);
    assert_eq!(planned(seen(pending(299))), Plan::Wait { until });
    let ahead = Phase::Pending {
        since: Timestamp(NOW.0 + 99_000_000),
    };
    let until = Timestamp(NOW.0 + 300_000);
    assert_eq!(planned(seen(ahead)), Plan::Wait { until });
    let interrupted = Patience {
        interrupted: true,
        ..PATIENCE
    };
    let state = seen(pending(1));
    assert_eq!(
        plan(&desired(), Some(&state), NOW, interrupted),
        Plan::Restore
    );
}

#[test]
fn a_failed_release_is_upgraded() {
    assert_eq!(planned(seen(Phase::Failed)), Plan::Upgrade(Why::Failed));
    assert_eq!(planned(seen(Phase::Uninstalled)), Plan::Reinstall);
}

#[test]
fn a_release_of_the_originals_is_adopted_and_never_uninstalled() {
    let theirs = Observed {
        ours: false,
        ..seen(Phase::Deployed)
    };
    assert_eq!(planned(theirs.clone()), Plan::Upgrade(Why::Adopted));
    assert_eq!(plan_removal(Some(&theirs), NOW, PATIENCE), Removal::Foreign);
    let stuck = Observed {
        ours: false,
        ..seen(pending(999))
    };
    assert_eq!(planned(stuck), Plan::Restore, "which deletes nothing");
    let busy = Observed {
        ours: false,
        ..seen(pending(599))
    };
    assert!(
        matches!(planned(busy), Plan::Wait { .. }),
        "the originals wait for ten minutes"
    );
}

#[test]
fn a_release_of_another_chart_is_left_alone_in_every_phase() {
    for phase in [
        Phase::Deployed,
        Phase::Failed,
        pending(999),
        Phase::Uninstalled,
    ] {
        let other = Observed {
            chart: "metallb".into(),
            ..seen(phase)
        };
        assert!(matches!(
            planned(other),
            Plan::Refuse(ReleaseRefusal::OtherChart { .. })
        ));
    }
}

#[test]
fn a_removal_that_died_is_ended_where_it_was_ours() {
    let died = Phase::Uninstalling {
        since: Timestamp(0),
    };
    assert_eq!(planned(seen(died)), Plan::UninstallFirst);
    let theirs = Observed {
        ours: false,
        ..seen(died)
    };
    assert_eq!(planned(theirs), Plan::Refuse(ReleaseRefusal::Removed));
}

#[test]
fn only_what_carries_the_label_is_uninstalled() {
    let removal = |seen: Observed| plan_removal(Some(&seen), NOW, PATIENCE);
    assert_eq!(plan_removal(None, NOW, PATIENCE), Removal::Nothing);
    for phase in [
        Phase::Deployed,
        Phase::Failed,
        Phase::Uninstalled,
        pending(999),
    ] {
        assert_eq!(removal(seen(phase)), Removal::Uninstall);
    }
    assert!(matches!(removal(seen(pending(1))), Removal::Wait { .. }));
    for phase in [Phase::Deployed, Phase::Failed, pending(999)] {
        let theirs = Observed {
            ours: false,
            ..seen(phase)
        };
        assert_eq!(removal(theirs), Removal::Foreign);
    }
}

/// Whatever is there, following the plan ends, at the wanted state or at a refusal.
#[test]
fn the_plan_converges_from_every_state() {
    let phases = [
        Phase::Deployed,
        Phase::Failed,
        pending(999),
        Phase::Uninstalling {
            since: Timestamp(0),
        },
        Phase::Uninstalled,
    ];
    let mut states = vec![None];
    for phase in phases {
        for ours in [true, false] {
            for version in ["0.14.1", "0.13.0"] {
                let one = Observed {
                    ours,
                    version: version.into(),
                    ..seen(phase)
                };
                states.push(Some(one));
            }
        }
    }
    for start in states {
        let mut state = start.clone();
        let mut steps = 0;
        loop {
            let next = plan(&desired(), state.as_ref(), NOW, PATIENCE);
            state = match next {
                Plan::Nothing | Plan::Refuse(_) => break,
                Plan::Wait { .. } => panic!("{start:?} waits"),
                Plan::UninstallFirst => None,
                Plan::Install | Plan::Reinstall | Plan::Upgrade(_) => Some(seen(Phase::Deployed)),
                Plan::Restore => match state {
                    Some(seen) => Some(Observed {
                        phase: Phase::Deployed,
                        ..seen
                    }),
                    None => panic!("nothing to restore"),
                },
            };
            steps += 1;
            assert!(steps <= 3, "{start:?} does not converge");
        }
    }
}
