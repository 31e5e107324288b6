//! What is to be done so that a guest has the releases that are wanted, where they are wanted, and no others of fipd:
//! pure.
//!
//! Two releases of one chart cannot stand beside each other, since what they have for the whole cluster has one name:
//! the one that is not wanted goes before the wanted one comes. A release that another installed is never removed, and
//! keeps the wanted one out.

use std::collections::BTreeSet;

use crate::systems::rancher_fip::clusters::LoadBalancer;

use super::settings::Release;
use crate::guests::charts::marks::{Mark, Owner};

/// What is to be done for one release, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// What fipd installed, by other settings or for another label.
    pub removes: Vec<&'a Mark>,
    /// Where there are any, nothing is installed.
    pub kept_out_by: Vec<&'a Mark>,
    pub brings: &'a Release,
}

/// What a release is: a load balancer, or with `None` the controller.
type Serves = Option<LoadBalancer>;

/// The steps, one for each release that is wanted. What nobody names any more stays: that is no word on where it is
/// to be.
pub fn steps<'a>(
    wanted: &'a [Release],
    marks: &'a [Mark],
    serves: impl Fn(&str) -> Serves,
) -> Vec<Step<'a>> {
    let is_wanted = |mark: &&Mark| {
        let mut places = wanted.iter().map(|one| (&one.namespace, &one.name));
        places.any(|place| place == (&mark.namespace, &mark.name))
    };
    let others: Vec<&Mark> = marks.iter().filter(|mark| !is_wanted(mark)).collect();
    let step = |release: &'a Release| {
        let balances = |serves: Serves| serves.is_some();
        let in_the_way = others
            .iter()
            .filter(|mark| balances(serves(&mark.name)) == balances(release.serves));
        let (removes, kept_out_by) = in_the_way
            .copied()
            .partition(|mark| mark.owner == Owner::Fipd);
        Step {
            removes,
            kept_out_by,
            brings: release,
        }
    };
    wanted.iter().map(step).collect()
}

/// The namespaces in which a controller is.
pub fn controllers(marks: &[Mark], serves: impl Fn(&str) -> Serves) -> BTreeSet<&str> {
    let controllers = marks.iter().filter(|mark| serves(&mark.name).is_none());
    controllers.map(|mark| &*mark.namespace).collect()
}

/// Whether fipd installed a load balancer of this type.
pub fn has_load_balancer(
    marks: &[Mark],
    of: LoadBalancer,
    serves: impl Fn(&str) -> Serves,
) -> bool {
    let installed = |mark: &Mark| mark.owner == Owner::Fipd && serves(&mark.name) == Some(of);
    marks.iter().any(installed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::systems::rancher_fip::guests::notes::Note;

    fn release(namespace: &str, name: &str) -> Release {
        Release {
            prefix: "",
            serves: serves(name),
            name: name.into(),
            namespace: namespace.into(),
            chart: name.into(),
            reference: "oci://r/x".into(),
            version: "1.0.0".into(),
            values: String::new(),
        }
    }

    fn mark(namespace: &str, name: &str, owner: Owner) -> Mark {
        Mark {
            namespace: namespace.into(),
            name: name.into(),
            owner,
        }
    }

    fn serves(name: &str) -> Serves {
        match name {
            "purelb" => Some(LoadBalancer::PureLb),
            "metallb" => Some(LoadBalancer::MetalLb),
            _ => None,
        }
    }

    fn named(marks: &[&Mark]) -> Vec<String> {
        let place = |mark: &&Mark| format!("{}/{}", mark.namespace, mark.name);
        marks.iter().map(place).collect()
    }

    #[test]
    fn what_is_where_it_is_wanted_stays_and_what_is_elsewhere_goes_first() {
        let wanted = [release("new", "lb"), release("new", "purelb")];
        let marks = [
            mark("new", "purelb", Owner::Fipd),
            mark("old", "lb", Owner::Fipd),
            mark("old", "lb-before", Owner::Fipd),
            mark("old", "metallb", Owner::Fipd),
        ];
        let steps = steps(&wanted, &marks, serves);
        assert_eq!(named(&steps[0].removes), ["old/lb", "old/lb-before"]);
        assert_eq!(named(&steps[1].removes), ["old/metallb"]);
        assert!(steps.iter().all(|step| step.kept_out_by.is_empty()));
    }

    #[test]
    fn what_another_installed_is_not_removed_and_keeps_only_its_like_out() {
        let wanted = [release("new", "lb"), release("new", "purelb")];
        for owner in [Owner::Adopted, Owner::Other] {
            let marks = [mark("old", "lb", owner)];
            let steps = steps(&wanted, &marks, serves);
            assert_eq!(named(&steps[0].kept_out_by), ["old/lb"]);
            assert!(steps[1].kept_out_by.is_empty());
            assert!(steps.iter().all(|step| step.removes.is_empty()));
        }
        let here = [mark("new", "lb", Owner::Adopted)];
        assert!(steps(&wanted, &here, serves)[0].kept_out_by.is_empty());
    }

    #[test]
    fn a_namespace_is_used_by_the_controller_in_it_and_by_no_load_balancer() {
        let marks = [
            mark("old", "lb", Owner::Fipd),
            mark("older", "lb", Owner::Adopted),
            mark("balancers", "purelb", Owner::Fipd),
        ];
        let used = controllers(&marks, serves);
        assert_eq!(used, BTreeSet::from(["old", "older"]));
    }

    #[test]
    fn a_chart_that_nobody_names_any_more_stays() {
        let marks = [
            mark("old", "lb", Owner::Fipd),
            mark("old", "purelb", Owner::Fipd),
        ];
        assert!(steps(&[], &marks, serves).is_empty());
        let wanted = [release("new", "lb")];
        let steps = steps(&wanted, &marks, serves);
        assert_eq!(named(&steps[0].removes), ["old/lb"]);
    }

    /// A guest and what is noted of it, as they are after a crash.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct World {
        note: Option<String>,
        written: BTreeSet<String>,
        releases: BTreeSet<(String, String)>,
    }

    impl World {
        fn marks(&self) -> Vec<Mark> {
            let all = self.releases.iter();
            all.map(|(namespace, name)| mark(namespace, name, Owner::Fipd))
                .collect()
        }

        /// Does the next thing towards `wanted`, the way the turns do it; whether there was anything to do.
        fn step(&mut self, namespace: &str, wanted: &[Release]) -> bool {
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
            for step in steps(wanted, &marks, serves) {
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

        fn settle(mut self, namespace: &str, wanted: &[Release]) -> Self {
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
        let settings: [(&str, [Release; 2]); 3] = [
            ("a", [release("a", "lb"), release("a", "purelb")]),
            ("b", [release("b", "lb-two"), release("b", "metallb")]),
            (
                "c",
                [release("c", "lb-two"), release("balancers", "metallb")],
            ),
        ];
        let settled =
            |(namespace, wanted): &(&str, [Release; 2])| World::default().settle(namespace, wanted);
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
}
