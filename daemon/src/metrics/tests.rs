use fipd_core::System;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clusters::{ClusterSession, ClustersOptions, SystemRunner};

struct NoRunner;

impl SystemRunner for NoRunner {
    fn run(&self, _: ClusterSession, _: System) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn while_a_text_is_made_everybody_else_gets_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(crate::clock::now)).unwrap();
    let stop = CancellationToken::new();
    let started = Clusters::start(
        ClustersOptions::default(),
        ipam.clone(),
        Arc::new(NoRunner),
        stop.clone(),
    );
    let (clusters, _registry) = started.await.unwrap();
    let schedule = crate::backups::Schedule::new(&crate::config::Backup::default(), dir.path());
    let backups = Backups::new(ipam.clone(), schedule);
    let metrics = Metrics::new(
        ipam,
        clusters,
        (backups, Default::default()),
        GuestBoard::default(),
        &[],
        None,
        RuleBoard::default(),
    );
    let first = metrics.text().await;
    assert!(first.contains("fipd_store_up 1"), "{first}");
    assert!(first.contains("fipd_log_dropped_total "), "{first}");
    metrics.request(&Method::GET, "/x", StatusCode::OK, Duration::ZERO);
    let rendering = metrics.0.all.rendering.try_acquire().unwrap();
    assert_eq!(metrics.text().await, first);
    drop(rendering);
    assert!(metrics.text().await.contains("/x"));
    stop.cancel();
}
