//! How streams end that their clients do not end.

use fipd_core::{PoolId, Request, Role, Scope, Timestamp, Token, TokenId, testing};

use super::*;
use crate::api::ui::tests::Site;

const TOKEN: TokenId = TokenId(7);

async fn ask(site: &Site, request: Request) {
    site.api.ipam.submit(request).await.unwrap();
}

/// A change of the pool that the site has.
async fn change(site: &Site, number: usize) {
    let request = Request::Allocate(testing::allocate(
        testing::holder(format!("fipd/Host/lab/h{number}"), ""),
        [testing::want(PoolId(1), None)],
    ));
    ask(site, request).await;
}

/// A stream from here on of a caller with the token, and what its client would take.
async fn stream(site: &Site) -> (ChangeStream, mpsc::Receiver<Event>) {
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
    let api = site.api.clone();
    let (queue, events) = mpsc::channel(QUEUE);
    let stream = ChangeStream {
        caller: Caller {
            actor: "token:watcher".into(),
            role: Role::Viewer,
            via: Via::Token(TOKEN),
            scope: Arc::default(),
        },
        headers: HeaderMap::new(),
        queue,
        since: api.ipam.read(Ledger::revision),
        _place: api.streams.take(&"token:watcher".into()).unwrap(),
        followed: Followed::from_ref(&api),
    };
    (stream, events)
}

#[tokio::test]
async fn a_client_that_takes_nothing_loses_the_stream_and_its_place() {
    let site = Site::new().await;
    let (stream, mut events) = stream(&site).await;
    for number in 0..QUEUE + 2 {
        change(&site, number).await;
    }
    let open = || site.api.streams.0.lock().values().sum::<usize>();
    assert_eq!(open(), 1);
    tokio::time::pause();
    let before = tokio::time::Instant::now();
    let why = stream.run().await;
    assert_eq!(why, "the client is too slow; go on from the last event");
    assert!(before.elapsed() >= PATIENCE);
    assert_eq!(open(), 0);
    let mut taken = 0;
    while events.recv().await.is_some() {
        taken += 1;
    }
    assert_eq!(taken, QUEUE, "what was told before is there to be read");
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let site = Site::new().await;
    let (stream, mut events) = stream(&site).await;
    let told = tokio::spawn(stream.run());
    change(&site, 0).await;
    assert!(events.recv().await.is_some());
    let actor = "test".into();
    ask(&site, Request::DeleteToken { id: TOKEN, actor }).await;
    let why = timeout(Duration::from_secs(5), told).await.unwrap();
    assert_eq!(why.unwrap(), "the token or session has ended");
    assert!(events.recv().await.is_none(), "and the connection with it");
}

#[tokio::test]
async fn one_caller_leaves_streams_to_others() {
    let site = Site::new().await;
    let open = |name: &str| {
        let caller = Caller {
            actor: name.into(),
            role: Role::Viewer,
            via: Via::Socket,
            scope: Arc::default(),
        };
        let followed = Followed::from_ref(&site.api);
        events(followed, &site.api.streams, caller, HeaderMap::new(), 0)
    };
    let mut held = Vec::new();
    for _ in 0..STREAMS_OF_ONE {
        held.push(open("token:greedy").unwrap());
    }
    let problem = open("token:greedy").unwrap_err();
    assert_eq!((problem.code, problem.status), (Code::Busy, 429));
    assert!(
        problem.detail.contains("token:greedy has 32"),
        "{problem:?}"
    );
    for _ in 0..STREAMS_OF_ONE {
        held.push(open("token:other").unwrap());
    }
}

#[test]
fn a_stream_that_ends_makes_room_for_its_caller_and_for_all() {
    let streams = Streams::default();
    let take = |of: &str| streams.take(&of.into());
    let mut held = Vec::new();
    for caller in ["a", "b", "c", "d"] {
        for _ in 0..STREAMS_OF_ONE {
            held.push(take(caller).unwrap());
        }
    }
    let problem = take("e").err().unwrap();
    assert!(problem.detail.starts_with("128 streams"), "{problem:?}");
    held.pop();
    held.push(take("e").unwrap());
    held.remove(0);
    held.push(take("a").unwrap());
    assert!(take("a").is_err());
    held.clear();
    assert!(streams.0.lock().is_empty());
}
