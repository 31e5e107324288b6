use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use fipd_core::Timestamp;
use futures::future::BoxFuture;

use super::*;
use crate::fip_v1::{Claim, FipRelease, Given, PoolFigures, Row, Wish};

/// Takes its time for each step.
struct Slow {
    step: Duration,
    asked: Arc<AtomicUsize>,
}

impl FloatingIps for Slow {
    fn authorize<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Asker, Denied>> {
        Box::pin(async {
            tokio::time::sleep(self.step).await;
            Ok(Asker {
                management: "rancher".into(),
                project: claim.project.clone(),
                namespace: "c-m-a".to_owned(),
                cluster: "c-m-a".to_owned(),
            })
        })
    }

    fn request(&self, _: Asker, _: Wish) -> BoxFuture<'_, Result<Given, Denied>> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.step).await;
            Err(Denied::unauthorized())
        })
    }

    fn release(&self, _: Asker, _: FipRelease) -> BoxFuture<'_, Result<(), Denied>> {
        Box::pin(async { Ok(()) })
    }

    fn delete(&self, _: Asker, _: IpAddr) -> BoxFuture<'_, Result<(), Denied>> {
        Box::pin(async { Ok(()) })
    }

    fn list(&self, _: Asker) -> BoxFuture<'_, Result<Vec<Row>, Denied>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn figures(&self) -> Result<BTreeMap<String, PoolFigures>, Denied> {
        Err(Denied::elsewhere())
    }

    fn not_leading(&self) -> usize {
        1
    }
}

fn posted(token: &str, body: &Value) -> Request {
    Request::builder()
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(axum::body::Body::from(body.to_string()))
        .unwrap()
}

#[tokio::test]
async fn defect_29_many_services_behind_one_address_pass_and_strangers_there_are_slowed() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = Ipam::start(dir.path(), Arc::new(|| Timestamp(1))).unwrap();
    let at_once = Slow {
        step: Duration::ZERO,
        asked: Arc::default(),
    };
    let api = FipV1::new(
        Some(Box::new(at_once)),
        ipam.clone(),
        config::FipV1::default(),
    );
    let peer: Option<IpAddr> = "192.0.2.1".parse().ok();
    let call = async |call, token: &str, body: &Value| {
        let request = posted(token, body);
        let mut trail = Trail::default();
        api.in_time(call, peer, request, &mut trail).await
    };
    for service in 0..500 {
        let answer = call(Call::Token, "", &json!({ "clientID": "client-c-m-a" })).await;
        let answer = answer.unwrap();
        let body =
            json!({ "clientsecret": "s", "project": format!("p-{service}"), "cluster": "c-m-a" });
        let said = call(Call::List, answer["token"].as_str().unwrap(), &body).await;
        assert!(said.is_ok(), "{service}: {said:?}");
    }
    let mut slowed = false;
    for _ in 0..3_000 {
        let said = call(Call::List, "a.b.c", &json!({})).await.unwrap_err();
        slowed |= said == too_many();
    }
    assert!(slowed);
    ipam.shutdown().await;
    writer.join();
}

#[tokio::test]
async fn one_deadline_is_for_the_whole_call() {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = Ipam::start(dir.path(), Arc::new(|| Timestamp(1))).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let slow = Slow {
        step: Duration::from_secs(6),
        asked: Arc::clone(&asked),
    };
    let api = FipV1::new(Some(Box::new(slow)), ipam.clone(), config::FipV1::default());
    let (token, _) = api.tokens.issue("client-c-m-a").await.unwrap();
    let body = json!({
        "clientsecret": "s", "project": "p-a", "cluster": "c-m-a", "floatingippool": "net",
        "servicenamespace": "shop", "servicename": "web",
    });
    let request = posted(&token, &body);
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let said = api
        .in_time(Call::Request, None, request, &mut Trail::default())
        .await;
    assert_eq!(said.unwrap_err(), Denied::late());
    assert_eq!(
        asked.load(Ordering::Relaxed),
        1,
        "it was at the second step"
    );
    assert_eq!(began.elapsed().as_secs(), 8, "the client waits for 10 s");
    tokio::time::resume();
    ipam.shutdown().await;
    writer.join();
}
