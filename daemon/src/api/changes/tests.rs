//! How streams end that their clients do not end.

use fipd_core::{Allocate, Holder, PoolId, Request, Role, Scope, Timestamp, Token, TokenId, Want};

use super::*;
use crate::api::ui::tests::Site;

const TOKEN: TokenId = TokenId(7);

async fn ask(site: &Site, request: Request) {
    site.api.ipam.submit(request).await.unwrap();
}

/// A change of the pool that the site has.
async fn change(site: &Site, number: usize) {
    let request = Request::Allocate(Allocate {
        holder: Holder {
            identity: format!("fipd/Host/lab/h{number}").parse().unwrap(),
            instance: "".into(),
        },
        tenant: None,
        wants: vec![Want {
            pool: PoolId(1).into(),
            address: None,
            count: 1,
        }],
        waiting_since: None,
        by_admin: false,
        share: None,
        probe: false,
        actor: "test".into(),
    });
    ask(site, request).await;
}

/// A stream from here on of a caller with the token, and what its client would take.
async fn stream(site: &Site) -> (Teller, mpsc::Receiver<Event>) {
    let token = Token {
        id: TOKEN,
        name: "watcher".into(),
        role: Role::Viewer,
        hash: [0; 32],
        created: Timestamp(1),
        expires: None,
        scope: Scope::default(),
        from: Vec::new(),
    };
    let actor = "test".into();
    ask(site, Request::PutToken { token, actor }).await;
    let api = Arc::clone(&site.api);
    let (queue, events) = mpsc::channel(QUEUE);
    let teller = Teller {
        caller: Caller {
            actor: "token:watcher".into(),
            role: Role::Viewer,
            via: Via::Token(TOKEN),
            scope: Arc::default(),
        },
        headers: HeaderMap::new(),
        queue,
        since: api.ipam.read(Ledger::revision),
        _place: Arc::clone(&api.streams).try_acquire_owned().unwrap(),
        api,
    };
    (teller, events)
}

#[tokio::test]
async fn a_client_that_takes_nothing_loses_the_stream_and_its_place() {
    let site = Site::new().await;
    let (teller, mut events) = stream(&site).await;
    for number in 0..QUEUE + 2 {
        change(&site, number).await;
    }
    let free = site.api.streams.available_permits();
    tokio::time::pause();
    let before = tokio::time::Instant::now();
    let why = teller.run().await;
    assert_eq!(why, "the client is too slow; go on from the last event");
    assert!(before.elapsed() >= PATIENCE);
    assert_eq!(site.api.streams.available_permits(), free + 1);
    let mut taken = 0;
    while events.recv().await.is_some() {
        taken += 1;
    }
    assert_eq!(taken, QUEUE, "what was told before is there to be read");
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let site = Site::new().await;
    let (teller, mut events) = stream(&site).await;
    let told = tokio::spawn(teller.run());
    change(&site, 0).await;
    assert!(events.recv().await.is_some());
    let actor = "test".into();
    ask(&site, Request::DeleteToken { id: TOKEN, actor }).await;
    let why = timeout(Duration::from_secs(5), told).await.unwrap();
    assert_eq!(why.unwrap(), "the token or session has ended");
    assert!(events.recv().await.is_none(), "and the connection with it");
}
