//! What Prometheus reads: `fipd_*`, and the series of the originals under their own names.
//!
//! Counters of requests and of reconciles are kept; everything else is read from the ledger, the store, the cluster
//! registry and what the controllers have seen at the moment it is asked for. There is no `fipd_` series per lease.

pub mod cni;
mod page;
pub mod pools;
pub mod process;
pub mod rules;
pub mod series;
mod state;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{Method, StatusCode};
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use self::{
    page::Page,
    series::{Labels, live},
    state::LiveState,
};
use crate::{
    backups::Backups, clusters::Clusters, controller::reconcile_counts, guests::GuestBoard,
    helm::Helm, ipam::Ipam, rules::RuleBoard, webhooks::Webhooks,
};

/// All series; cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Registries>);

struct Registries {
    all: Arc<Page>,
    /// The series of each system's original alone, by its name.
    systems: BTreeMap<&'static str, Arc<Page>>,
    requests: Calls,
    /// Of LB controllers.
    fip_v1: Calls,
    /// Questions of API servers.
    admission: Calls,
}

/// How many calls there were, and how long they took.
struct Calls {
    count: Family<Labels<'static>, Counter>,
    seconds: Family<Labels<'static>, Histogram>,
}

/// The series of a system's original, and fipd's own of that system.
pub struct Original {
    pub system: &'static str,
    pub register: Box<dyn Fn(&mut Registry) + Send + Sync>,
    pub register_own: Box<dyn Fn(&mut Registry) + Send + Sync>,
}

impl Calls {
    /// Adds the series `{name}s` and `{name}_duration`.
    fn register(registry: &mut Registry, name: &str, count_help: &str, took_help: &str) -> Self {
        let calls = Self {
            count: Family::default(),
            seconds: Family::new_with_constructor(request_buckets as fn() -> Histogram),
        };
        registry.register(format!("{name}s"), count_help, calls.count.clone());
        let seconds = calls.seconds.clone();
        registry.register_with_unit(
            format!("{name}_duration"),
            took_help,
            Unit::Seconds,
            seconds,
        );
        calls
    }

    /// The time is that of all calls with the label `of`.
    fn note(&self, labels: Labels<'static>, of: &str, took: Duration) {
        self.count.get_or_create(&labels).inc();
        let labels = labels.into_iter().filter(|(name, _)| *name == of);
        let seconds = self.seconds.get_or_create(&labels.collect());
        seconds.observe(took.as_secs_f64());
    }
}

/// Bounds in seconds: from an answer out of memory to one that waits for a slow disk.
fn request_buckets() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0,
    ])
}

impl Metrics {
    /// Series over this address book and these clusters.
    pub fn new(
        ipam: Ipam,
        clusters: Clusters,
        (backups, webhooks): (Backups, Webhooks),
        guests: GuestBoard,
        originals: &[Original],
        helm: Option<&Helm>,
        board: RuleBoard,
    ) -> Self {
        let mut all = Registry::default();
        let systems = originals.iter().map(|one| {
            let mut alone = Registry::default();
            (one.register)(&mut alone);
            (one.register)(&mut all);
            (one.system, Page::new(alone))
        });
        let systems = systems.collect();
        let own = all.sub_registry_with_prefix("fipd");
        originals.iter().for_each(|one| (one.register_own)(own));
        if let Some(helm) = helm {
            helm.register(own);
        }
        let requests = Calls::register(
            own,
            "http_request",
            "HTTP requests answered",
            "Time until the answer of a request begins",
        );
        let fip_v1 = Calls::register(
            own,
            "fip_v1_request",
            "Calls of LB controllers answered",
            "Time until a call of an LB controller is decided",
        );
        let admission = Calls::register(
            own,
            "admission_request",
            "Questions of API servers answered, whether an object may be stored",
            "Time until a question of an API server is answered",
        );
        process::register_server(own);
        reconcile_counts::register(own);
        process::register_config(own);
        rules::register(own, board);
        cni::register(own);
        let state = LiveState {
            ipam,
            clusters,
            backups,
            guests,
            helm: helm.cloned(),
            webhooks,
            counted: Mutex::default(),
        };
        own.register_collector(live(move |encoder| state.encode(encoder)));
        Self(Arc::new(Registries {
            all: Page::new(all),
            systems,
            requests,
            fip_v1,
            admission,
        }))
    }

    /// Notes an answered request. `route` is the pattern, never the path.
    pub fn request(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        // Methods are free text on the wire; series are not.
        let method = match method.as_str() {
            known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE") => known,
            _ => "other",
        };
        let labels = vec![
            ("method", method.to_owned()),
            ("route", route.to_owned()),
            ("status", status.as_u16().to_string()),
        ];
        self.0.requests.note(labels, "route", took);
    }

    /// Notes a call of an LB controller; `path` is without its prefix.
    pub fn fip_v1(&self, path: &'static str, code: StatusCode, took: Duration) {
        let code = code.as_u16().to_string();
        let labels = vec![("path", path.to_owned()), ("code", code)];
        self.0.fip_v1.note(labels, "path", took);
    }

    /// Notes an answer to an API server.
    pub fn admission(&self, resource: &'static str, result: &'static str, took: Duration) {
        let labels = vec![
            ("resource", resource.to_owned()),
            ("result", result.to_owned()),
        ];
        self.0.admission.note(labels, "resource", took);
    }

    /// The text of all series.
    pub async fn text(&self) -> Arc<str> {
        self.0.all.text().await
    }

    /// The text of the series of a system's original.
    pub async fn of_system(&self, system: &str) -> Arc<str> {
        match self.0.systems.get(system) {
            Some(page) => page.text().await,
            None => "# EOF\n".into(),
        }
    }
}

/// The series of a host that decides nothing; cheap to clone.
#[derive(Clone)]
pub struct AgentMetrics(Arc<Page>);

impl AgentMetrics {
    pub fn new(originals: &[Original], board: RuleBoard) -> Self {
        let mut all = Registry::default();
        originals.iter().for_each(|one| (one.register)(&mut all));
        let own = all.sub_registry_with_prefix("fipd");
        reconcile_counts::register(own);
        process::register_config(own);
        rules::register(own, board);
        cni::register(own);
        Self(Page::new(all))
    }

    /// The text of all series.
    pub async fn text(&self) -> Arc<str> {
        self.0.text().await
    }
}

#[cfg(test)]
mod tests;
