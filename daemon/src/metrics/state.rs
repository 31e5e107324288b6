//! What is read from the ledger, the store and the cluster registry at the moment it is asked for.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use fipd_core::{LeaseFilter, LeaseState, Ledger, Timestamp};
use parking_lot::Mutex;
use prometheus_client::encoding::DescriptorEncoder;

use super::{pools, series::Series};
use crate::{
    backups::Backups,
    clock::Synchronised,
    clusters::{ClusterState, Clusters},
    guests::{GuestBoard, GuestPhase, GuestView, ReleaseView, releases::Releases},
    helm::Helm,
    ipam::Ipam,
    store::Condition,
    webhooks::{HookView, Webhooks},
};

/// How old the count of leases by state may be: it is the one figure that takes a walk over all leases.
const COUNT_AGE: Duration = Duration::from_secs(15);

/// Reads the daemon's state when it is asked for.
pub(super) struct LiveState {
    pub ipam: Ipam,
    pub clusters: Clusters,
    pub backups: Backups,
    pub guests: GuestBoard,
    pub helm: Option<Helm>,
    pub webhooks: Webhooks,
    pub counted: Mutex<Option<(Instant, BTreeMap<LeaseState, u64>)>>,
}

impl LiveState {
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for series in pools::series(&self.ipam)
            .into_iter()
            .chain(self.store())
            .chain(self.backups())
            .chain(self.clusters())
            .chain(self.webhooks())
            .chain([
                self.guests(),
                releases(&self.guests.all(), &Releases::of(self.helm.as_ref())),
            ])
        {
            series.encode(encoder)?;
        }
        self.leases().encode(encoder)
    }

    fn leases(&self) -> Series<'static> {
        let mut counted = self.counted.lock();
        let counts = match counted.as_ref() {
            Some((at, counts)) if at.elapsed() < COUNT_AGE => counts.clone(),
            Some(_) | None => {
                let fresh = count_states(&self.ipam);
                *counted = Some((Instant::now(), fresh.clone()));
                fresh
            }
        };
        let value =
            |(state, count): (LeaseState, u64)| (vec![("state", state.to_string())], count as f64);
        Series::new(
            "leases",
            "Leases by state",
            counts.into_iter().map(value).collect(),
        )
    }

    fn store(&self) -> Vec<Series<'static>> {
        let stats = self.ipam.reader().stats();
        let time = self.ipam.time();
        let epoch = self.ipam.read(|ledger| ledger.epoch().copied());
        let hold = epoch.and_then(|epoch| epoch.hold);
        let hold = hold.map_or(0, |hold| hold.left);
        let serving = one_if(stats.condition == Condition::Serving);
        let mut all = Vec::new();
        let mut add = |name, help, value| all.push(Series::single(name, help, value));
        add("store_up", "1 while decisions are taken", serving);
        add(
            "store_commits",
            "Commits since the start",
            stats.commits as f64,
        );
        add(
            "store_commit_seconds",
            "Time spent in commits since the start",
            Duration::from_nanos(stats.commit_nanos).as_secs_f64(),
        );
        add(
            "store_decisions",
            "Decisions made durable since the start",
            stats.decisions as f64,
        );
        add(
            "store_failed_commits",
            "Commits that failed and were looked up in the reopened file",
            stats.failed_commits as f64,
        );
        add(
            "store_epoch",
            "How often the store was restored from a backup",
            epoch.map_or(0, |epoch| epoch.number) as f64,
        );
        add(
            "restore_hold_seconds",
            "Time left in which free addresses are held after a restore",
            hold as f64 / 1_000.0,
        );
        add(
            "clock_ahead_seconds",
            "How far the time of the address book is ahead of the clock",
            time.ahead.as_secs_f64(),
        );
        add(
            "clock_held_back_seconds",
            "How far the clock is ahead of the time of the address book without being confirmed",
            time.held_back.as_secs_f64(),
        );
        add(
            "clock_synchronised",
            "Whether the kernel says that its clock is synchronised",
            one_if(time.kernel == Synchronised::Yes),
        );
        add(
            "requests_waiting",
            "Requests to the address book without an answer yet",
            self.ipam.waiting() as f64,
        );
        if let Ok((used, free)) = self.ipam.reader().disk() {
            add("store_bytes", "Bytes the store uses", used as f64);
            add(
                "store_disk_free_bytes",
                "Bytes free on the store's disk",
                free as f64,
            );
        }
        all
    }

    fn backups(&self) -> Vec<Series<'static>> {
        let standing = self.backups.standing();
        let failed = one_if(standing.failure.is_some());
        let seconds = |at: Timestamp| (Vec::new(), at.0 as f64 / 1_000.0);
        let every = self.backups.schedule().every;
        let interval = every.map(|every| (Vec::new(), every.as_secs_f64()));
        vec![
            Series::new(
                "backup_last_success_timestamp_seconds",
                "When the newest backup that the daemon keeps was made",
                standing.last.map(seconds).into_iter().collect(),
            ),
            Series::new(
                "backup_interval_seconds",
                "How often a backup is to be made; missing where that is off",
                interval.into_iter().collect(),
            ),
            Series::new(
                "backup_failed",
                "1 while the last attempt to make a backup has failed",
                vec![(Vec::new(), failed)],
            ),
        ]
    }

    fn guests(&self) -> Series<'static> {
        let phases = self.guests.phases().into_iter();
        let value = |((system, phase), count): ((Option<&str>, GuestPhase), usize)| {
            let mut labels = vec![("phase", phase.as_str().to_owned())];
            labels.extend(system.map(|system| ("system", system.to_owned())));
            (labels, count as f64)
        };
        Series::new(
            "guest_clusters",
            "Clusters of Rancher that are looked after, by how they are doing",
            phases.map(value).collect(),
        )
    }

    fn clusters(&self) -> Vec<Series<'static>> {
        let now = crate::clock::now().0;
        let mut up = Vec::new();
        let mut since = Vec::new();
        let mut leases = Vec::new();
        let mut troubles = Vec::new();
        let mut sightings = Vec::new();
        for view in self.clusters.views() {
            let labels = vec![("cluster", view.name.to_string())];
            let parts = view.troubles.keys();
            let part = |part: &&str| [labels.clone(), vec![("part", (*part).to_owned())]].concat();
            troubles.extend(parts.map(|one| (part(one), 1.0)));
            up.extend(served(view.state).map(|served| (labels.clone(), served)));
            let age = Duration::from_millis(now.saturating_sub(view.since.0)).as_secs_f64();
            let sighted = |state: &str, count: usize| {
                let state = vec![("state", state.to_owned())];
                ([labels.clone(), state].concat(), count as f64)
            };
            sightings.extend(view.sightings.iter().flat_map(|shown| {
                let reported = shown.waiting.len();
                [
                    sighted("held", shown.held),
                    sighted("contended", shown.contended),
                    sighted("reported", reported),
                ]
            }));
            let state = ("state", view.state.as_str().to_owned());
            since.push(([labels.clone(), vec![state]].concat(), age));
            leases.push((labels, view.leases as f64));
        }
        vec![
            Series::new(
                "cluster_up",
                "1 while the cluster is reached and served; missing where only its leases are left, and under a second name",
                up,
            ),
            Series::new(
                "cluster_state_age_seconds",
                "For how long the cluster is in its state",
                since,
            ),
            Series::new("cluster_leases", "Leases of the cluster", leases),
            Series::new(
                "cluster_sightings",
                "Addresses of pools that Services of other load balancers show in the cluster: held for them, held by another, or only reported",
                sightings,
            ),
            Series::new(
                "cluster_trouble",
                "1 while a part of what fipd keeps in the cluster is not as it is to be; `fipd clusters show` says why",
                troubles,
            ),
        ]
    }

    fn webhooks(&self) -> Vec<Series<'static>> {
        let views = self.webhooks.views(&self.ipam);
        let of = |figure: &dyn Fn(&HookView) -> Option<f64>| {
            let labelled = |view: &HookView| {
                let labels = vec![("webhook", view.name.clone())];
                figure(view).map(|value| (labels, value))
            };
            views.iter().filter_map(labelled).collect::<Vec<_>>()
        };
        let up = |view: &HookView| Some(one_if(view.failing.is_none()));
        let seconds = |at: Timestamp| at.0 as f64 / 1_000.0;
        vec![
            Series::new(
                "webhook_up",
                "1 while the receiver takes what is sent",
                of(&up),
            ),
            Series::new(
                "webhook_delivered",
                "Events received since the start",
                of(&|view| Some(view.delivered as f64)),
            ),
            Series::new(
                "webhook_failed_attempts",
                "Attempts to send an event that failed since the start",
                of(&|view| Some(view.failed as f64)),
            ),
            Series::new(
                "webhook_missed",
                "Entries of the audit log that were trimmed before they were sent, since the start",
                of(&|view| Some(view.missed as f64)),
            ),
            Series::new(
                "webhook_pending",
                "Entries of the audit log that were not looked at for the receiver yet",
                of(&|view| Some(view.pending as f64)),
            ),
            Series::new(
                "webhook_last_success_timestamp_seconds",
                "When the receiver last took an event",
                of(&|view| view.last_success.map(seconds)),
            ),
        ]
    }
}

fn one_if(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Whether a cluster in that state is served, where it is to be.
fn served(state: ClusterState) -> Option<f64> {
    match state {
        ClusterState::Ready => Some(1.0),
        ClusterState::Connecting
        | ClusterState::Degraded
        | ClusterState::Refused
        | ClusterState::IdentityConflict => Some(0.0),
        // Counted by its leading name, or no more.
        ClusterState::Joined | ClusterState::Stopped => None,
    }
}

/// Walks over all leases, a page at a time.
fn count_states(ipam: &Ipam) -> BTreeMap<LeaseState, u64> {
    let mut counts: BTreeMap<_, _> = LeaseState::ALL.map(|state| (state, 0)).into();
    let mut after = None;
    loop {
        let page = ipam.read(|ledger| ledger.leases(&LeaseFilter::default(), after, Ledger::SCAN));
        for lease in &page.leases {
            *counts.entry(lease.state).or_default() += 1;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return counts,
        }
    }
}

fn releases(guests: &[GuestView], all: &Releases) -> Series<'static> {
    let releases = guests.iter().flat_map(|guest| {
        let releases = guest.releases.iter();
        releases.map(move |release| (guest, release))
    });
    let value = |(guest, release): (&GuestView, &ReleaseView)| {
        let release_state = all.state_of(guest, release);
        // One that failed has failed until it is well, also while it is tried again: alerts count on it.
        let state = match release_state.error {
            Some(_) => "failed",
            None => release_state.state,
        };
        let mut labels = vec![
            ("rancher", guest.rancher.to_string()),
            ("guest", guest.id.clone()),
            ("release", format!("{}/{}", release.namespace, release.name)),
            ("state", state.to_owned()),
        ];
        let system = guest.system.mark();
        labels.extend(system.map(|system| ("system", system.to_owned())));
        (labels, 1.0)
    };
    Series::new(
        "guest_releases",
        "Charts that clusters of Rancher are to have, by how they stand",
        releases.map(value).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        guests::{
            releases::tests::{failed, guest},
            system::testing::SECOND,
        },
        helm::Activity,
    };

    #[test]
    fn a_second_name_of_a_cluster_is_served_and_one_that_is_remembered_need_not_be() {
        let of = [
            (ClusterState::Ready, Some(1.0)),
            (ClusterState::Joined, None),
            (ClusterState::Connecting, Some(0.0)),
            (ClusterState::Degraded, Some(0.0)),
            (ClusterState::Refused, Some(0.0)),
            (ClusterState::IdentityConflict, Some(0.0)),
            (ClusterState::Stopped, None),
        ];
        for (state, expected) in of {
            assert_eq!(served(state), expected, "{state:?}");
        }
    }

    #[test]
    fn each_release_of_a_guest_has_its_state() {
        let labels = [
            ("rancher", "rancher"),
            ("guest", "c-1"),
            ("release", "lb/purelb"),
            ("state", "failed"),
        ];
        let labels = labels.map(|(key, value)| (key, value.to_owned())).to_vec();
        let since = Timestamp(7);
        let operation = "upgrade";
        for activity in [
            Activity::Idle,
            Activity::Waiting { since },
            Activity::Running { operation, since },
        ] {
            let series = releases(&[guest()], &failed(activity));
            assert_eq!(series.values, [(labels.clone(), 1.0)], "{activity:?}");
        }
        let second = GuestView {
            system: SECOND,
            ..guest()
        };
        let series = releases(&[second], &Releases::default());
        let last = series.values[0].0.last().cloned();
        assert_eq!(last, Some(("system", "second".to_owned())));
    }
}
