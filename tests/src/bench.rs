//! The benches: each measures us and, in the same run, the peer or the physical floor, and compares with the budget.
//!
//! A new bench is a file here with a function giving [`Figure`]s, and a line in [`BENCHES`].

mod adoption;
mod appliance;
mod cluster_api;
mod clusters;
mod cni;
mod cni_node;
mod cni_pods;
mod decision;
mod durable;
mod figure;
mod fill;
mod flat_network;
mod floor;
mod import;
mod kube_fip;
mod load;
mod page;
mod pools;
mod program;
mod rest;
mod rules;
mod series;
mod service;
mod subject;
mod tables;
mod writes;

use anyhow::Result;
use futures::future::LocalBoxFuture;

pub use figure::{Figure, percentile};

/// A bench by its name.
pub struct Bench {
    pub name: &'static str,
    /// Runs it in this process, which is a release build.
    pub run: fn() -> LocalBoxFuture<'static, Result<Vec<Figure>>>,
}

/// All benches in the order in which they are run.
pub const BENCHES: &[Bench] = &[
    Bench {
        name: "decision",
        run: || Box::pin(async { decision::run() }),
    },
    Bench {
        name: "appliance",
        run: || Box::pin(appliance::run()),
    },
    Bench {
        name: "durable",
        run: || Box::pin(durable::run()),
    },
    Bench {
        name: "import",
        run: || Box::pin(import::run()),
    },
    Bench {
        name: "page",
        run: || Box::pin(page::run()),
    },
    Bench {
        name: "load",
        run: || Box::pin(load::run()),
    },
    Bench {
        name: "clusters",
        run: || Box::pin(clusters::run()),
    },
    Bench {
        name: "pools-100k",
        run: || Box::pin(pools::run()),
    },
    Bench {
        name: "adoption",
        run: || Box::pin(adoption::run()),
    },
    Bench {
        name: "service",
        run: || Box::pin(service::run()),
    },
    Bench {
        name: "kube-fip",
        run: || Box::pin(kube_fip::run()),
    },
    Bench {
        name: "cluster-api",
        run: || Box::pin(cluster_api::run()),
    },
    Bench {
        name: "flat-network",
        run: || Box::pin(flat_network::run()),
    },
    Bench {
        name: "cni",
        run: || Box::pin(cni::run()),
    },
    Bench {
        name: "rules",
        run: || Box::pin(rules::run()),
    },
    Bench {
        name: "rest",
        run: || Box::pin(rest::run()),
    },
];
