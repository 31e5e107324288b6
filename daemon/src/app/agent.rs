//! The daemon of a host that decides nothing: it brings the rules that objects of clusters ask for into its kernel.
//!
//! It has no address book on a disk: only a journal of rules, a socket for what an admin does with them, and ports for probes
//! and metrics.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, middleware::map_response, response::Response, routing::get};
use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{AppError, Signals, Tasks, drain, host, start_clusters, tell};
use crate::{
    api::{
        self, AgentApi, health,
        listen::{self, Port},
    },
    app::{config_reloader::ConfigReloader, listeners::open_sockets},
    clock,
    config::{Listener, Serve},
    controller::endpoint::OwnEndpoint,
    descriptors,
    guests::GuestBoard,
    host::probe::Prober,
    ipam::{Ipam, Writer},
    metrics::AgentMetrics,
    nodes::NodeBoard,
    reload,
    rules::RuleBoard,
    settings::Settings,
    sockets::Passed,
    store::{Nowhere, Store, StoreOptions},
    system::{Means, Shared},
    systems::Runner,
};

use fipd_core::Text;

/// How long the pod of an Agent goes on after it was told to stop.
const LINGER: Duration = Duration::from_secs(1);

/// Runs it until it is told to stop.
pub async fn run(settings: Settings, passed: Passed) -> Result<(), AppError> {
    let (ipam, writer) = nothing_to_keep()?;
    let stop = CancellationToken::new();
    let result = serve(&settings, passed, &ipam, &stop).await;
    stop.cancel();
    super::shut_down(ipam, writer).await;
    result
}

/// What clusters are known by needs a place; it is gone with the process.
fn nothing_to_keep() -> Result<(Ipam, Writer), AppError> {
    let (store, loaded) = Store::open_medium(Arc::new(Nowhere), StoreOptions::default())?;
    let started = Ipam::with_store(store, loaded, Arc::new(clock::now));
    started.map_err(|source| AppError::File {
        path: "(memory)".into(),
        source,
    })
}

async fn serve(
    settings: &Settings,
    passed: Passed,
    ipam: &Ipam,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let (mut signals, hangup) = Signals::new()?;
    let (reload, desk) = reload::pair();
    let mut tasks: Tasks = JoinSet::new();
    let board = RuleBoard::default();
    let told = settings.config.host.clone().unwrap_or_default();
    make_directory(settings)?;
    let node = told.node.clone().unwrap_or_default();
    let shared = Shared::default();
    let runner = Runner::new(&Means {
        me: Text::default(),
        endpoint: OwnEndpoint::default(),
        ipam: ipam.clone(),
        metrics_ports: settings.config.metrics_ports(),
        guests: GuestBoard::default(),
        helm: None,
        nodes: NodeBoard::default(),
        rules: board.clone(),
        host: host::means(Some(&told), stop),
        prober: Prober::beside(&settings.socket),
        only_host: true,
        shared: shared.clone(),
    });
    let plugins = host::plugins(settings, None, &shared);
    let socket = open_sockets(&mut tasks, settings, (passed, plugins), stop)?;
    let (takeovers, systems) = (runner.takeovers(), runner.running());
    let metrics = AgentMetrics::new(&runner.originals(), board.clone());
    let (clusters, registry) = start_clusters(settings, ipam, runner, stop).await?;
    tasks.spawn(async { registry.await.map_err(|error| error.to_string()) });
    let expected = host::of_clusters(&settings.config, &told);
    let options = host::options(&told, &settings.data_dir, expected);
    let engine = host::engine(&mut tasks, options, &board, stop);
    listen_at(
        &mut tasks,
        &settings.config.listeners,
        (&board, &metrics),
        stop,
    )?;
    let keeper = ConfigReloader::new(settings, clusters.clone(), None, "an agent".to_owned());
    tasks.spawn(keeper.run(hangup, desk, stop.clone()).map(Ok));
    let api = AgentApi {
        ipam: ipam.clone(),
        clusters,
        takeovers,
        rules: board,
        reload,
        systems,
    };
    let router = api::agent_router(api, settings.config.known, socket.policy);
    let serving = socket.serve(router, stop.clone());
    tasks.spawn(async { serving.await.map_err(|error| error.to_string()) });
    tracing::info!(%node, data_dir = %settings.data_dir.display(), "fipd is ready as an agent");
    tell(&[sd_notify::NotifyState::Ready]);
    tasks.spawn(super::watchdog(ipam.clone(), stop.clone()));
    let result = tokio::select! {
        _ = signals.terminate.recv() => Ok(()),
        _ = signals.interrupt.recv() => Ok(()),
        Some(ended) = tasks.join_next() => Err(AppError::Ended(super::why(ended))),
    };
    tell(&[sd_notify::NotifyState::Stopping]);
    tracing::info!("fipd is stopping");
    if told.agent.is_some() {
        // Where the pod goes because its Agent went, that is heard by then, and its rules go.
        tokio::time::sleep(LINGER).await;
    }
    stop.cancel();
    drain(tasks, &engine).await;
    result
}

fn make_directory(settings: &Settings) -> Result<(), AppError> {
    let path = &settings.data_dir;
    std::fs::create_dir_all(path).map_err(|source| AppError::File {
        path: path.clone(),
        source,
    })
}

fn listen_at(
    tasks: &mut Tasks,
    listeners: &[Listener],
    (board, metrics): (&RuleBoard, &AgentMetrics),
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let most = listen::MOST_OPEN.within(descriptors::limit() / listeners.len().max(1) as u64);
    for listener in listeners {
        let port = Port::bind(listener.address)?;
        tracing::info!(address = %port.address, serve = ?listener.serve, "listens here, without login");
        let router = router(listener, board, metrics).layer(map_response(api::common_headers));
        let serving = port.serve(None, router, most, stop.clone());
        tasks.spawn(async { serving.await.map_err(|error| error.to_string()) });
    }
    Ok(())
}

/// What a port serves.
fn router(listener: &Listener, board: &RuleBoard, metrics: &AgentMetrics) -> Router {
    let mut router = Router::new();
    if listener.serve.contains(&Serve::Health) {
        for path in ["/health", "/healthz"] {
            router = router.route(path, get(async || "ok\n"));
        }
        for path in ["/ready", "/readyz"] {
            router = router.route(path, get(health::ready).with_state(board.clone()));
        }
    }
    if listener.serve.iter().any(|one| *one != Serve::Health) {
        router = router.route("/metrics", get(series).with_state(metrics.clone()));
    }
    router
}

async fn series(State(metrics): State<AgentMetrics>) -> Response {
    health::series(&metrics.text().await)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{rules::rows::tests::view, system::testing::means};

    #[tokio::test]
    async fn probes_and_metrics_are_as_the_original_agents() {
        let board = RuleBoard::default();
        let listener = Listener {
            address: "127.0.0.1:9090".parse().unwrap(),
            tls: false,
            serve: BTreeSet::from([Serve::SystemMetrics("ip-rule"), Serve::Health]),
        };
        let (ipam, _writer) = nothing_to_keep().unwrap();
        let runner = Runner::new(&Means {
            rules: board.clone(),
            only_host: true,
            ..means(&ipam)
        });
        let metrics = AgentMetrics::new(&runner.originals(), board.clone());
        let router = router(&listener, &board, &metrics);
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        assert_eq!(ask("/health").await, (200, "ok\n".to_owned()));
        assert_eq!(ask("/ready").await.0, 503);
        board.show(view());
        assert_eq!(ask("/ready").await, (200, "ready\n".to_owned()));
        let (status, text) = ask("/metrics").await;
        assert_eq!(status, 200);
        let series = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let series = series.filter_map(|line| line.split(' ').next());
        let originals: Vec<&str> = series.take_while(|one| !one.starts_with("fipd_")).collect();
        assert_eq!(
            originals,
            [
                "iprule_agent_rules_added",
                "iprule_agent_rules_deleted",
                "iprule_agent_rule_errors",
                "iprule_agent_ipruleconfigs_processed",
                "iprule_agent_reconcile_duration_seconds",
                "iprule_agent_desired_rules",
                "iprule_agent_present_rules",
                "iprule_agent_absent_rules",
            ],
            "the systems that have a part here, and the agents' of those"
        );
        assert!(text.contains("fipd_rules_engine_state"), "{text}");
        let open = ["/health", "/healthz", "/ready", "/readyz", "/metrics"];
        for right in api::rights::all(*crate::systems::SYSTEMS) {
            let status = ask(&right.path).await.0;
            assert_eq!(
                status == 404,
                !open.contains(&&*right.path),
                "{}",
                right.path
            );
        }
    }

    #[tokio::test]
    async fn there_is_nothing_on_the_disk_of_a_host_that_decides_nothing() {
        let (ipam, writer) = nothing_to_keep().unwrap();
        let create = fipd_core::Request::CreateNetwork {
            name: "a".into(),
            actor: "test".into(),
        };
        ipam.submit(create).await.unwrap();
        assert!(ipam.read(|ledger| ledger.network_by_name("a").is_some()));
        super::super::shut_down(ipam, writer).await;
    }
}
