//! What Prometheus reads: `fipd_*`, and the series of the originals under their own names.
//!
//! Counters of requests and of reconciles are kept; everything else is read from the ledger, the store, the cluster
//! registry and what the controllers have seen at the moment it is asked for. There is no `fipd_` series per lease.

pub mod certificate;
mod log;
mod page;
pub mod pools;
pub mod reload;
pub mod rules;
pub mod series;
mod state;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{Method, StatusCode};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use self::{page::Page, state::LiveState};
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
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram>,
    fip_v1: Family<CallLabels, Counter>,
    fip_v1_seconds: Family<PathLabels, Histogram>,
    admission: Family<ReviewLabels, Counter>,
    admission_seconds: Family<ResourceLabels, Histogram>,
}

/// The series of a system's original.
pub struct Original {
    pub system: &'static str,
    pub register: Box<dyn Fn(&mut Registry) + Send + Sync>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

/// A call of an LB controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    path: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    path: &'static str,
}

/// A question of an API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    resource: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: &'static str,
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
        if let Some(helm) = helm {
            helm.register(own);
        }
        let requests = Family::default();
        own.register("http_requests", "HTTP requests answered", requests.clone());
        let seconds = Family::new_with_constructor(request_buckets as fn() -> Histogram);
        own.register_with_unit(
            "http_request_duration",
            "Time until the answer of a request begins",
            Unit::Seconds,
            seconds.clone(),
        );
        let fip_v1 = Family::default();
        own.register(
            "fip_v1_requests",
            "Calls of LB controllers answered",
            fip_v1.clone(),
        );
        let fip_v1_seconds = Family::new_with_constructor(request_buckets as fn() -> Histogram);
        own.register_with_unit(
            "fip_v1_request_duration",
            "Time until a call of an LB controller is decided",
            Unit::Seconds,
            fip_v1_seconds.clone(),
        );
        let admission = Family::default();
        own.register(
            "admission_requests",
            "Questions of API servers answered, whether an object may be stored",
            admission.clone(),
        );
        let admission_seconds = Family::new_with_constructor(request_buckets as fn() -> Histogram);
        own.register_with_unit(
            "admission_request_duration",
            "Time until a question of an API server is answered",
            Unit::Seconds,
            admission_seconds.clone(),
        );
        certificate::register(own);
        log::register(own);
        reconcile_counts::register(own);
        reload::register(own);
        rules::register(own, board);
        own.register_collector(Box::new(LiveState::new(
            ipam,
            clusters,
            backups,
            guests,
            helm.cloned(),
            webhooks,
        )));
        Self(Arc::new(Registries {
            all: Page::new(all),
            systems,
            requests,
            seconds,
            fip_v1,
            fip_v1_seconds,
            admission,
            admission_seconds,
        }))
    }

    /// Notes an answered request. `route` is the pattern, never the path.
    pub fn request(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        // Methods are free text on the wire; series are not.
        let method = match method.as_str() {
            known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE") => known,
            _ => "other",
        };
        let labels = RequestLabels {
            method: method.to_owned(),
            route: route.to_owned(),
            status: status.as_u16(),
        };
        self.0.requests.get_or_create(&labels).inc();
        let route = RouteLabels {
            route: route.to_owned(),
        };
        self.0
            .seconds
            .get_or_create(&route)
            .observe(took.as_secs_f64());
    }

    /// Notes a call of an LB controller; `path` is without its prefix.
    pub fn fip_v1(&self, path: &'static str, code: StatusCode, took: Duration) {
        let labels = CallLabels {
            path,
            code: code.as_u16(),
        };
        self.0.fip_v1.get_or_create(&labels).inc();
        let path = PathLabels { path };
        self.0
            .fip_v1_seconds
            .get_or_create(&path)
            .observe(took.as_secs_f64());
    }

    /// Notes an answer to an API server.
    pub fn admission(&self, resource: &'static str, result: &'static str, took: Duration) {
        let labels = ReviewLabels { resource, result };
        self.0.admission.get_or_create(&labels).inc();
        let resource = ResourceLabels { resource };
        self.0
            .admission_seconds
            .get_or_create(&resource)
            .observe(took.as_secs_f64());
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
    pub fn new(board: RuleBoard) -> Self {
        let mut all = Registry::default();
        rules::register_original(&mut all, board.clone());
        let own = all.sub_registry_with_prefix("fipd");
        reconcile_counts::register(own);
        reload::register(own);
        rules::register(own, board);
        Self(Page::new(all))
    }

    /// The text of all series.
    pub async fn text(&self) -> Arc<str> {
        self.0.text().await
    }
}

#[cfg(test)]
mod tests;
