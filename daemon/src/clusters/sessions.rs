//! Starting and ending what runs on clusters, so that each identity has one session over the best way to it.

use std::{sync::Arc, time::Duration};

use fipd_core::{ClusterId, NetworkId, System};
use futures::FutureExt;
use kube::runtime::events::Reporter;
use tokio::{sync::watch, task::JoinSet};

use super::{
    SystemRunner, discovery,
    event_recorder::EventRecorder,
    identity::{Verdict, WayKey},
    link::Up,
    registry::{Event, Events, GRACE, Looking, Registry, Running},
    session::{ClusterSession, SessionShared, Shows},
    sites::SiteSpec,
};
use crate::config::{Awaited, SightingMode};
use crate::{
    backoff::Backoff,
    clusters::converge::{Leads, networks_of},
};

impl Registry {
    /// Ends sessions that no longer are what they should be. What runs in their place starts when they have ended.
    pub(super) fn end_sessions(&mut self, leads: &Leads) {
        let mut over = Vec::new();
        for (id, running) in self.sessions.iter().filter(|(_, running)| !running.ending) {
            let keep = leads.get(id).is_some_and(|lead| {
                let way = lead.choose(Some(&running.over));
                way.as_ref() == Some(&running.over)
                    && self.client_of(&running.over) == Some(running.client)
                    && self.shows(id, &running.over) == running.session.shows
                    && self
                        .sites
                        .get(&lead.site)
                        .is_some_and(|site| same(&running.session, &site.spec))
            });
            if !keep {
                over.push(id.clone());
            }
        }
        for id in over {
            if let Some(running) = self.sessions.get_mut(&id) {
                running.ending = true;
                running.session.cancel.cancel();
            }
        }
    }

    /// What the cluster has to show over this way.
    fn shows(&self, id: &ClusterId, over: &WayKey) -> Shows {
        let site = self.sites.get(&over.0);
        let link = site.and_then(|site| site.spec.links.get(&over.1));
        let verdict = self.proofs.verdicts.get(over).map(|(_, verdict)| verdict);
        Shows {
            nonce: self.proof(id).and_then(|proof| proof.nonce),
            namespace: link.map(|link| link.namespace.clone()).unwrap_or_default(),
            hidden: verdict != Some(&Verdict::Proven),
            vouched: verdict == Some(&Verdict::Vouched),
        }
    }

    /// Which client a way has now: (serial of the link, generation).
    pub(super) fn client_of(&self, way: &WayKey) -> Option<(u64, u64)> {
        let link = self.link(way)?;
        Some((link.serial, link.up.as_ref()?.generation))
    }

    pub(super) fn start_sessions(&mut self, leads: &Leads, awaited: &[(NetworkId, Awaited)]) {
        for (id, lead) in leads {
            let Some(over) = lead.choose(self.sessions.get(id).map(|running| &running.over)) else {
                continue;
            };
            let link = self
                .sites
                .get(&over.0)
                .and_then(|site| site.links.get(&over.1));
            let Some(link) = link else { continue };
            if let Some(running) = self.sessions.get_mut(id) {
                if link.answers && !running.answers && !running.ending {
                    running.session.reconnected();
                }
                running.answers = link.answers;
                continue;
            }
            let (Some(up), Some(site)) = (&link.up, self.sites.get(&lead.site)) else {
                continue;
            };
            if !link.answers {
                continue;
            }
            let client = (link.serial, up.generation);
            let shows = self.shows(id, &over);
            let session = self.session(id, &site.spec, (up, shows), awaited);
            self.orphaned.retain(|(orphan, _)| orphan != id);
            self.start(session, over, client);
        }
    }

    pub(super) fn session(
        &self,
        id: &ClusterId,
        spec: &SiteSpec,
        (up, shows): (&Up, Shows),
        awaited: &[(NetworkId, Awaited)],
    ) -> ClusterSession {
        let names = self.record(id).map(|record| record.names);
        let reporter = Reporter {
            controller: "fipd".to_owned(),
            instance: None,
        };
        let shared = SessionShared {
            networks: watch::Sender::new(networks_of(&spec.name, awaited)),
            windows: Arc::clone(&self.windows),
            ..SessionShared::default()
        };
        ClusterSession {
            name: spec.name.clone(),
            names: names.unwrap_or_else(|| spec.names.clone()),
            id: id.clone(),
            shows,
            discovered: spec.discovered,
            recorder: EventRecorder::new(up.client.clone(), reporter),
            client: up.client.clone(),
            memory: up.memory.clone(),
            systems: spec.systems.clone(),
            settings: spec.settings.clone(),
            pools_in: spec.pools_in.clone(),
            cancel: self.cancel.child_token(),
            ipam: self.ipam.clone(),
            clusters: self.clusters.clone(),
            shared: Arc::new(shared),
        }
    }

    pub(super) fn tell_networks(&self, awaited: &[(NetworkId, Awaited)]) {
        for running in self.sessions.values() {
            let networks = networks_of(&running.session.name, awaited);
            let told = &running.session.shared.networks;
            told.send_if_modified(|told| std::mem::replace(told, networks) != *told);
        }
    }

    /// Keeps the discovery running on the session of its cluster.
    pub(super) fn arrange_discovery(&mut self) {
        let source = self.config.discovery.as_ref().and_then(|spec| {
            let running = self.sessions.values().find(|running| {
                !running.ending
                    && (running.session.name == spec.cluster
                        || running.session.names.contains(&spec.cluster))
            })?;
            Some((spec.clone(), running.serial, running.session.clone()))
        });
        let fits = |looking: &Looking| {
            source.as_ref().is_some_and(|(spec, session, _)| {
                looking.session == *session && looking.spec == *spec
            })
        };
        if let Some(looking) = self.looking.take_if(|looking| !fits(looking)) {
            // What another source or another template finds is another list.
            if self.config.discovery.as_ref() != Some(&looking.spec) {
                self.found = None;
            }
        }
        if self.looking.is_some() {
            return;
        }
        let Some((spec, session_serial, session)) = source else {
            return;
        };
        self.serial += 1;
        let (serial, events, cancel) = (
            self.serial,
            self.events.clone(),
            session.cancel.child_token(),
        );
        let tell = move |result| drop(events.send(Event::Discovered { serial, result }));
        let looking = discovery::run(session, spec.clone(), tell);
        let looking = cancel.clone().run_until_cancelled_owned(looking);
        self.tasks.spawn(looking.map(drop));
        self.looking = Some(Looking {
            serial,
            session: session_serial,
            spec,
            _end: cancel.drop_guard(),
        });
    }

    /// Starts the systems of a session.
    pub fn start(&mut self, session: ClusterSession, over: WayKey, client: (u64, u64)) {
        self.serial += 1;
        let serial = self.serial;
        let (id, runner, events) = (
            session.id.clone(),
            Arc::clone(&self.runner),
            self.events.clone(),
        );
        tracing::info!(cluster = %session.name, id = %id, "connected");
        self.tasks
            .spawn(run_session(session.clone(), runner, events, serial));
        self.sessions.insert(
            id,
            Running {
                session,
                serial,
                over,
                client,
                answers: true,
                ending: false,
            },
        );
    }
}

fn same(session: &ClusterSession, spec: &SiteSpec) -> bool {
    session.name == spec.name
        && session.systems == spec.systems
        && session.settings == spec.settings
        && session.pools_in == spec.pools_in
        && spec
            .names
            .iter()
            .all(|name| session.names.contains(name) || *name != spec.name)
}

async fn run_session(
    session: ClusterSession,
    runner: Arc<dyn SystemRunner>,
    events: Events,
    serial: u64,
) {
    let mut systems = JoinSet::new();
    let sights = session.sightings() != SightingMode::Off;
    let foreign = sights.then(System::foreign);
    for system in session.systems.iter().chain(&foreign) {
        systems.spawn(run_system(
            Arc::clone(&runner),
            session.clone(),
            system.clone(),
        ));
    }
    session.cancel.cancelled().await;
    let ended = async { while systems.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::warn!(cluster = %session.name, "its controllers did not end in time and are aborted");
        systems.shutdown().await;
    }
    tracing::info!(cluster = %session.name, id = %session.id, "its session has ended");
    drop(events.send(Event::SessionEnded {
        id: session.id.clone(),
        serial,
    }));
}

/// Runs a system again and again until its session ends.
async fn run_system(runner: Arc<dyn SystemRunner>, session: ClusterSession, system: System) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    loop {
        // Who still waits asks again, and has its place by its age; who went meanwhile must not hold up others.
        session.ipam.forget_waiters_of(&session.id, Some(&system));
        let begun = tokio::time::Instant::now();
        let run = std::panic::AssertUnwindSafe(runner.run(session.clone(), system.clone()))
            .catch_unwind();
        let how = if run.await.is_err() {
            "panicked"
        } else {
            "ended"
        };
        if session.cancel.is_cancelled() {
            return;
        }
        if begun.elapsed() > Duration::from_secs(300) {
            backoff.reset();
        }
        tracing::error!(cluster = %session.name, %system, "the system's controllers {how}; started again soon");
        tokio::select! {
            () = session.cancel.cancelled() => return,
            () = tokio::time::sleep(backoff.pause()) => {}
        }
    }
}
