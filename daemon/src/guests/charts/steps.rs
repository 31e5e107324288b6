//! What is to be done so that a guest has the releases that are wanted, where they are wanted, and no others of fipd:
//! pure.
//!
//! Two releases of one chart cannot stand beside each other, since what they have for the whole cluster has one name:
//! the one that is not wanted goes before the wanted one comes. A release that another installed is never removed, and
//! keeps the wanted one out.

use super::{ChartRelease, ReleaseMark, ReleaseOwner};

/// What is to be done for one release, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseStep<'a> {
    /// What fipd installed, by other settings or for another label.
    pub removes: Vec<&'a ReleaseMark>,
    /// Where there are any, nothing is installed.
    pub kept_out_by: Vec<&'a ReleaseMark>,
    pub brings: &'a ChartRelease,
}

/// The steps, one for each release that is wanted. What nobody names any more stays, unless a wanted one `excludes` it:
/// that is no word on where it is to be.
pub fn steps<'a>(
    wanted: &'a [ChartRelease],
    marks: &'a [ReleaseMark],
    excludes: impl Fn(&ChartRelease, &ReleaseMark) -> bool,
) -> Vec<ReleaseStep<'a>> {
    let is_wanted = |mark: &&ReleaseMark| {
        let mut places = wanted.iter().map(|one| (&one.namespace, &one.name));
        places.any(|place| place == (&mark.namespace, &mark.name))
    };
    let others: Vec<&ReleaseMark> = marks.iter().filter(|mark| !is_wanted(mark)).collect();
    let step = |release: &'a ChartRelease| {
        let in_the_way = others.iter().filter(|mark| excludes(release, mark));
        let (removes, kept_out_by) = in_the_way
            .copied()
            .partition(|mark| mark.owner == ReleaseOwner::Fipd);
        ReleaseStep {
            removes,
            kept_out_by,
            brings: release,
        }
    };
    wanted.iter().map(step).collect()
}

#[cfg(test)]
pub mod testing {
    //! Releases for tests.

    use super::*;

    pub fn release(namespace: &str, name: &str) -> ChartRelease {
        ChartRelease {
            name: name.into(),
            namespace: namespace.into(),
            chart: name.into(),
            reference: "oci://r/x".into(),
            version: "1.0.0".into(),
            ..ChartRelease::default()
        }
    }

    pub fn mark(namespace: &str, name: &str, owner: ReleaseOwner) -> ReleaseMark {
        ReleaseMark {
            namespace: namespace.into(),
            name: name.into(),
            owner,
            chart: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        testing::{mark, release},
        *,
    };

    fn excludes(release: &ChartRelease, mark: &ReleaseMark) -> bool {
        let balances = |name: &str| ["purelb", "metallb"].contains(&name);
        balances(&release.name) == balances(&mark.name)
    }

    fn named(marks: &[&ReleaseMark]) -> Vec<String> {
        let place = |mark: &&ReleaseMark| format!("{}/{}", mark.namespace, mark.name);
        marks.iter().map(place).collect()
    }

    #[test]
    fn what_is_where_it_is_wanted_stays_and_what_is_elsewhere_goes_first() {
        let wanted = [release("new", "lb"), release("new", "purelb")];
        let marks = [
            mark("new", "purelb", ReleaseOwner::Fipd),
            mark("old", "lb", ReleaseOwner::Fipd),
            mark("old", "lb-before", ReleaseOwner::Fipd),
            mark("old", "metallb", ReleaseOwner::Fipd),
        ];
        let steps = steps(&wanted, &marks, excludes);
        assert_eq!(named(&steps[0].removes), ["old/lb", "old/lb-before"]);
        assert_eq!(named(&steps[1].removes), ["old/metallb"]);
        assert!(steps.iter().all(|step| step.kept_out_by.is_empty()));
    }

    #[test]
    fn what_another_installed_is_not_removed_and_keeps_only_its_like_out() {
        let wanted = [release("new", "lb"), release("new", "purelb")];
        for owner in [ReleaseOwner::Adopted, ReleaseOwner::Other] {
            let marks = [mark("old", "lb", owner)];
            let steps = steps(&wanted, &marks, excludes);
            assert_eq!(named(&steps[0].kept_out_by), ["old/lb"]);
            assert!(steps[1].kept_out_by.is_empty());
            assert!(steps.iter().all(|step| step.removes.is_empty()));
        }
        let here = [mark("new", "lb", ReleaseOwner::Adopted)];
        assert!(steps(&wanted, &here, excludes)[0].kept_out_by.is_empty());
    }

    #[test]
    fn a_chart_that_nobody_names_any_more_stays() {
        let marks = [
            mark("old", "lb", ReleaseOwner::Fipd),
            mark("old", "purelb", ReleaseOwner::Fipd),
        ];
        assert!(steps(&[], &marks, excludes).is_empty());
        let wanted = [release("new", "lb")];
        let steps = steps(&wanted, &marks, excludes);
        assert_eq!(named(&steps[0].removes), ["old/lb"]);
    }
}
