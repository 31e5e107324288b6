//! kill -9 in the middle of work, over and over: what was answered is there afterwards, what was not is whole or absent,
//! and no address has two owners.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fipd_tests::testbed::{Fipd, FipdOptions, Method, Reply, UnixConnection, wait_until};
use serde_json::{Value, json};

#[path = "kill/management.rs"]
mod management;
#[path = "kill/management_load.rs"]
mod management_load;
#[path = "kill/management_reader.rs"]
mod management_reader;
#[path = "kill/moves.rs"]
mod moves;

const WORKERS: u32 = 8;
/// More owners than addresses, so that the pool runs full and freed addresses go to others.
const OWNERS_PER_WORKER: u32 = 40;
const ALLOCATE: &str = "/api/v1/leases";
const RESERVE: &str = "/api/v1/leases/reserve";
const ADDRESSES: &str = "10.20.0.1-10.20.0.200";

/// What is known about one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    /// Holds nothing: never asked, refused, or the release was answered.
    Nothing,
    /// The allocation was answered.
    Holds(String),
    /// Asked, and killed before the answer.
    MayHold,
    /// Asked for release of this address, and killed before the answer.
    MayStillHold(String),
    /// Asked to give this address to the other owner or by it, and killed before the answer: exactly one of them has it.
    Either(String, String),
}

/// A deterministic sequence of numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(sides)).unwrap()
    }
}

type Book = BTreeMap<String, Known>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_is_lost_and_nothing_is_given_twice() {
    let rounds: u32 = std::env::var("FIPD_KILL_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    let mut fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    let pool = ["pool", "create", "kill", "--range", ADDRESSES];
    fipd.cli(pool).await.unwrap().success().unwrap();
    moves::prepare(&mut UnixConnection::open(&fipd.socket()).await.unwrap()).await;

    let mut place = moves::Place::START;
    let mut books = vec![Book::new(); WORKERS as usize];
    let (mut answers, mut open) = (0, 0);
    for round in 0..rounds {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ u64::from(round + 1));
        let answered = Arc::new(AtomicU32::new(0));
        let work = books.into_iter().zip(0..).map(|(book, number)| {
            let dice = Dice((u64::from(round) << 32) | u64::from(number + 1));
            tokio::spawn(worker(
                fipd.socket(),
                number,
                book,
                dice,
                Arc::clone(&answered),
            ))
        });
        let work = work.collect::<Vec<_>>();
        let wandering = tokio::spawn(place.wander(fipd.socket()));

        let enough = 20 + dice.roll(400);
        wait_until(
            "enough answers to kill it among them",
            Duration::from_secs(60),
            || {
                let so_far = answered.load(Ordering::Relaxed);
                std::future::ready(if so_far >= enough {
                    Ok(())
                } else {
                    Err(format!("{so_far} of {enough}"))
                })
            },
        )
        .await
        .unwrap_or_else(|missed| panic!("{missed}\n{}", fipd.log_tail()));
        fipd.kill9().unwrap();

        books = Vec::new();
        for worker in work {
            books.push(worker.await.unwrap());
        }
        place = wandering.await.unwrap();
        answers += answered.load(Ordering::Relaxed);
        if round % 2 == 1 {
            check_offline(&fipd).await;
        }
        fipd.restart().await.unwrap();
        let mut connection = UnixConnection::open(&fipd.socket()).await.unwrap();
        let page = get(&mut connection, "/api/v1/leases?limit=1000").await;
        assert!(page["next"].is_null(), "one page holds them all");
        let rows = page["leases"].as_array().expect("a list of leases");
        let pool = get(&mut connection, "/api/v1/pools/kill").await;
        open += place.settle(&pool, rows);
        let leases = owners(rows);
        open += books
            .iter_mut()
            .map(|book| compare(round, book, &leases))
            .sum::<usize>();
        let known = books.iter().flat_map(Book::keys).collect::<BTreeSet<_>>();
        assert!(
            leases.keys().all(|owner| known.contains(owner)),
            "round {round}: somebody who never asked holds an address"
        );
    }
    fipd.terminate(Duration::from_secs(10)).await.unwrap();
    check_offline(&fipd).await;
    println!("{rounds} kills, {answers} answers, {open} requests were open when it was killed");
    assert!(
        open > 0,
        "no kill ever hit a request: the test proves nothing"
    );
}

/// Allocates, reserves, transfers and releases until the daemon is gone. Each step is written down before it is sent.
async fn worker(
    socket: PathBuf,
    number: u32,
    mut book: Book,
    mut dice: Dice,
    answered: Arc<AtomicU32>,
) -> Book {
    let Ok(mut connection) = UnixConnection::open(&socket).await else {
        return book;
    };
    loop {
        let mut anybody = || format!("fipd/Host/kill/w{number}-{}", dice.roll(OWNERS_PER_WORKER));
        let (owner, other) = (anybody(), anybody());
        let way = dice.roll(8);
        let heir = book
            .get(&other)
            .is_none_or(|known| *known == Known::Nothing);
        if let Some(Known::Holds(address)) = book.get(&owner).cloned()
            && heir
            && way == 1
        {
            book.insert(owner.clone(), Known::Either(address.clone(), other.clone()));
            book.insert(other.clone(), Known::Either(address.clone(), owner.clone()));
            let Some(moved) = transfer(&mut connection, (&owner, &other), &address).await else {
                return book;
            };
            let (from, to) = match moved {
                true => (Known::Nothing, Known::Holds(address)),
                false => (Known::Holds(address), Known::Nothing),
            };
            book.insert(owner, from);
            book.insert(other, to);
            answered.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let known = book.entry(owner.clone()).or_insert(Known::Nothing);
        let done = match known.clone() {
            Known::Holds(address) if way != 0 => {
                *known = Known::MayStillHold(address);
                release(&mut connection, &owner)
                    .await
                    .map(|()| Known::Nothing)
            }
            Known::Holds(address) => ask(&mut connection, ALLOCATE, &owner).await.map(|same| {
                assert_eq!(same.as_ref(), Some(&address), "{owner} asked again");
                Known::Holds(address)
            }),
            Known::Nothing => {
                *known = Known::MayHold;
                let path = if way == 2 { RESERVE } else { ALLOCATE };
                let given = ask(&mut connection, path, &owner).await;
                given.map(|given| given.map_or(Known::Nothing, Known::Holds))
            }
            Known::MayHold | Known::MayStillHold(_) | Known::Either(..) => {
                unreachable!("settled after each restart")
            }
        };
        let Some(done) = done else { return book };
        *known = done;
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// The address given, `Some(None)` when the pool is full, `None` when the daemon is gone.
async fn ask(connection: &mut UnixConnection, path: &str, owner: &str) -> Option<Option<String>> {
    let body = json!({ "owner": owner, "wants": [{ "pool": "kill" }] });
    let reply = connection
        .call(Method::POST, path, Some(&body))
        .await
        .ok()?;
    let answer = parsed(&reply);
    if reply.status == 200 || reply.status == 201 {
        return Some(Some(
            answer["leases"][0]["address"]
                .as_str()
                .expect("an address")
                .to_string(),
        ));
    }
    assert_eq!(answer["code"], "exhausted", "{owner}: {reply:?}");
    Some(None)
}

/// Whether the other has it: not where the pool went to another network since its place was read. `None` when the daemon is
/// gone.
async fn transfer(
    connection: &mut UnixConnection,
    (owner, other): (&str, &str),
    address: &str,
) -> Option<bool> {
    let pool = connection.call(Method::GET, "/api/v1/pools/kill", None);
    let pool = parsed(&pool.await.ok()?);
    let network = pool["network"].as_str().expect("a network");
    let path = format!("/api/v1/leases/{network}/{address}/transfer");
    let body = json!({ "to": other, "from": owner, "reason": "handed on" });
    let reply = connection.call(Method::POST, &path, Some(&body));
    let reply = reply.await.ok()?;
    assert!(matches!(reply.status, 200 | 404), "{owner}: {reply:?}");
    Some(reply.status == 200)
}

/// `None` when the daemon is gone.
async fn release(connection: &mut UnixConnection, owner: &str) -> Option<()> {
    let body = json!({ "owner": owner });
    let reply = connection
        .call(Method::POST, "/api/v1/leases/release", Some(&body))
        .await
        .ok()?;
    assert_eq!(reply.status, 200, "{owner}: {reply:?}");
    assert_eq!(
        parsed(&reply)["released"].as_array().map(Vec::len),
        Some(1),
        "{owner}: {reply:?}"
    );
    Some(())
}

async fn get(connection: &mut UnixConnection, path: &str) -> Value {
    let reply = connection.call(Method::GET, path, None).await.unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
    parsed(&reply)
}

/// Owners and their addresses, after looking that no address has two of them.
fn owners(leases: &[Value]) -> BTreeMap<String, String> {
    let (mut owners, mut addresses) = (BTreeMap::new(), BTreeSet::new());
    for lease in leases {
        let text = |key: &str| lease[key].as_str().expect("text").to_string();
        assert!(addresses.insert(text("address")), "{lease} is there twice");
        assert!(
            owners.insert(text("owner"), text("address")).is_none(),
            "{lease}: its owner holds two"
        );
    }
    owners
}

/// Compares one worker's book with the leases, and settles what was open. Gives the number of open requests.
fn compare(round: u32, book: &mut Book, leases: &BTreeMap<String, String>) -> usize {
    let mut open = 0;
    for (owner, known) in book {
        let found = leases.get(owner);
        let place = format!("round {round}: {owner} was {known:?}, the daemon says {found:?}");
        match known {
            Known::Nothing => assert_eq!(found, None, "{place}"),
            Known::Holds(address) => assert_eq!(found, Some(&*address), "{place}"),
            Known::MayHold => open += 1,
            Known::MayStillHold(address) => {
                open += 1;
                assert!(found.is_none_or(|found| found == address), "{place}");
            }
            Known::Either(address, other) => {
                open += 1;
                let has = |owner: &String| leases.get(owner) == Some(address);
                assert!(has(owner) != has(other), "{place}");
            }
        }
        *known = found.cloned().map_or(Known::Nothing, Known::Holds);
    }
    open
}

async fn check_offline(fipd: &Fipd) {
    let data_dir = fipd.data_dir();
    let arguments = ["check", "--data-dir", data_dir.to_str().unwrap()];
    fipd.run(arguments).await.unwrap().success().unwrap();
}

fn parsed(reply: &Reply) -> Value {
    serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}
