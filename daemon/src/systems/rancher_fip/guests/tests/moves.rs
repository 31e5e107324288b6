//! Moves of a guest from one namespace to another.

use std::collections::BTreeSet;

use crate::{
    guests::charts::{
        ChartRelease, ReleaseMark, ReleaseOwner,
        steps::{
            steps,
            testing::{mark, release},
        },
    },
    systems::rancher_fip::{
        clusters::LoadBalancer,
        guests::{leave::controllers, notes::Note},
    },
};

fn serves(name: &str) -> Option<LoadBalancer> {
    match name {
        "purelb" => Some(LoadBalancer::PureLb),
        "metallb" => Some(LoadBalancer::MetalLb),
        _ => None,
    }
}

fn excludes(release: &ChartRelease, mark: &ReleaseMark) -> bool {
    serves(&release.name).is_some() == serves(&mark.name).is_some()
}

#[test]
fn a_namespace_is_used_by_the_controller_in_it_and_by_no_load_balancer() {
    let marks = [
        mark("old", "lb", ReleaseOwner::Fipd),
        mark("older", "lb", ReleaseOwner::Adopted),
        mark("balancers", "purelb", ReleaseOwner::Fipd),
    ];
    let used = controllers(&marks, serves);
    assert_eq!(used, BTreeSet::from(["old", "older"]));
}

/// A guest and what is noted of it, as they are after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct World {
    note: Option<String>,
    written: BTreeSet<String>,
    releases: BTreeSet<(String, String)>,
}

impl World {
    fn marks(&self) -> Vec<ReleaseMark> {
        let all = self.releases.iter();
        all.map(|(namespace, name)| mark(namespace, name, ReleaseOwner::Fipd))
            .collect()
    }

    /// Does the next thing towards `wanted`, the way the turns do it; whether there was anything to do.
    fn step(&mut self, namespace: &str, wanted: &[ChartRelease]) -> bool {
        let noted = self.note.as_deref().map(Note::parse);
        let note = noted.clone().unwrap_or_default().going_to(namespace);
        if noted.as_ref() != Some(&note) {
            self.note = Some(note.text());
            return true;
        }
        if self.written.insert(namespace.to_owned()) {
            return true;
        }
        let marks = self.marks();
        for step in steps(wanted, &marks, excludes) {
            if let Some(mark) = step.removes.first() {
                let place = (mark.namespace.clone(), mark.name.clone());
                return self.releases.remove(&place);
            }
            let release = step.brings;
            let place = (release.namespace.clone(), release.name.clone());
            if self.releases.insert(place) {
                return true;
            }
        }
        for place in &note.before {
            if self.written.remove(place) {
                return true;
            }
        }
        let left = note.clone().left(&note.before);
        let changes = left != note;
        self.note = Some(left.text());
        changes
    }

    fn settle(mut self, namespace: &str, wanted: &[ChartRelease]) -> Self {
        for _ in 0..50 {
            if !self.step(namespace, wanted) {
                return self;
            }
        }
        panic!("{self:?} does not come to an end");
    }

    /// One controller and one load balancer at most, and nothing that is not noted.
    fn check(&self) {
        let balancers = |yes: bool| {
            let of = |(_, name): &&(String, String)| serves(name).is_some() == yes;
            self.releases.iter().filter(of).count()
        };
        assert!(balancers(true) <= 1 && balancers(false) <= 1, "{self:?}");
        let note = Note::parse(self.note.as_deref().unwrap_or_default());
        assert!(self.written.is_subset(&note.places()), "{self:?}");
    }
}

#[test]
fn a_move_that_is_cut_off_anywhere_ends_in_one_place_with_nothing_left_behind() {
    let settings: [(&str, [ChartRelease; 2]); 3] = [
        ("a", [release("a", "lb"), release("a", "purelb")]),
        ("b", [release("b", "lb-two"), release("b", "metallb")]),
        (
            "c",
            [release("c", "lb-two"), release("balancers", "metallb")],
        ),
    ];
    let settled = |(namespace, wanted): &(&str, [ChartRelease; 2])| {
        World::default().settle(namespace, wanted)
    };
    for from in &settings {
        for to in &settings {
            let mut world = settled(from);
            loop {
                world.check();
                // Whatever was done by then: on to the end, on to a third place, or back.
                for end in &settings {
                    assert_eq!(world.clone().settle(end.0, &end.1), settled(end));
                }
                if !world.step(to.0, &to.1) {
                    break;
                }
            }
        }
    }
}
