//! What plugins are answered, by the whole service over a real address book and journal.

use std::{path::Path, time::Duration};

use fipd_cni::{
    Answer, AskStep, Code, Reply,
    attachment::{Attachment, Made, ProbeResult},
};
use fipd_core::{Allocate, LeaseState, Ledger, PoolSpec, Request, testing::create_pool};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use super::*;
use crate::{
    clock,
    ipam::{DATABASE, Writer},
    store::Create,
};

/// Two pools: `lan` with two addresses, `lan6` with many.
struct Site {
    service: Arc<CniService>,
    ipam: Ipam,
    dir: tempfile::TempDir,
    _writer: Writer,
}

fn options(ipam: Option<Ipam>, dir: &Path) -> CniOptions {
    CniOptions {
        ipam,
        sites: PodSites::default(),
        data_dir: dir.to_owned(),
        host: None,
        spool: dir.join("spool"),
        protocol: 200,
        pods_use_pools: false,
        board: CniBoard::default(),
    }
}

impl Site {
    async fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap()).await
    }

    /// With an address book that has an epoch, as after a restore; free addresses are given.
    async fn restored() -> Self {
        let site = Self::new_epoch(tempfile::tempdir().unwrap()).await;
        let lift = Request::LiftHold {
            reason: "of the test".into(),
            actor: "test".into(),
        };
        site.ipam.submit(lift).await.unwrap();
        site
    }

    /// With an empty address book that begins an epoch, and is held.
    async fn new_epoch(dir: tempfile::TempDir) -> Self {
        let store = dir.path().join(DATABASE);
        let create = Create {
            store: &store,
            reason: "of the test".into(),
            actor: "test".into(),
            now: clock::now(),
            host: None,
        };
        create.run().unwrap();
        Self::on(dir).await
    }

    async fn on(dir: tempfile::TempDir) -> Self {
        let (ipam, writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
        for (name, addresses, gateway) in [
            ("lan", "10.0.0.0/24", Some("10.0.0.254")),
            ("lan6", "fd00::/64", None),
        ] {
            let mut spec = PoolSpec::own(name, vec![addresses.parse().unwrap()]);
            spec.gateway = gateway.map(|gateway| gateway.parse().unwrap());
            let kept: &[&str] = match name {
                "lan" => &["10.0.0.0", "10.0.0.3-10.0.0.253", "10.0.0.255"],
                _ => &["fd00::"],
            };
            spec.exclusions = kept.iter().map(|one| one.parse().unwrap()).collect();
            ipam.submit(create_pool(spec)).await.unwrap();
        }
        let mut journal = journal::CniJournal::open(&dir.path().join(JOURNAL)).unwrap();
        journal.note_made("boot/earlier", Some("earlier")).unwrap();
        drop(journal);
        let options = options(Some(ipam.clone()), dir.path());
        let service = start(&options).await.unwrap();
        Self {
            service,
            ipam,
            dir,
            _writer: writer,
        }
    }

    async fn ask(&self, verb: &str, container: &str, step: AskStep, more: Value) -> Reply {
        ask(&self.service, verb, container, step, more).await.reply
    }

    async fn add(&self, container: &str, pools: &[&str]) -> Result<Attachment, (u32, String)> {
        self.add_with(container, json!({ "ipam": { "pools": pools } }))
            .await
    }

    async fn add_with(&self, container: &str, more: Value) -> Result<Attachment, (u32, String)> {
        match self.ask("ADD", container, AskStep::Begin, more).await {
            Reply::Attachment(attachment) => Ok(*attachment),
            Reply::Error(error) => Err((error.code, error.details)),
            Reply::Output(text) => panic!("{text}"),
        }
    }

    async fn done(&self, verb: &str, container: &str, more: Value) -> Result<(), (u32, String)> {
        match self.ask(verb, container, AskStep::Begin, more).await {
            Reply::Output(_) => Ok(()),
            Reply::Error(error) => Err((error.code, error.details)),
            Reply::Attachment(_) => panic!("an attachment"),
        }
    }

    /// Gives containers addresses in an earlier boot of the host.
    async fn add_earlier(&self, containers: &[&str]) {
        self.add_of_boot("earlier", containers).await;
    }

    async fn add_of_boot(&self, boot: &str, containers: &[&str]) {
        let earlier = ContainerLeases {
            ipam: self.ipam.clone(),
            boot: boot.into(),
            for_pods: false,
        };
        let conf = fipd_cni::NetConf::parse(
            r#"{"cniVersion":"1.1.0","name":"lan","master":"eth0","ipam":{"pools":["lan"]}}"#,
            fipd_cni::Verb::Add,
        );
        let conf = conf.unwrap();
        for container in containers {
            let key = testing::key(container);
            earlier.allocate(&key, &conf, &[]).await.unwrap();
        }
    }

    /// As after an entry of the spool that could not be done for long.
    async fn defer(&self, number: u64, container: &str) {
        let deferred = (testing::key(container), testing::deletion(container));
        let mut host = self.service.host.lock().await;
        host.note_replayed(number, Some(deferred)).unwrap();
    }

    fn leases(&self) -> Vec<String> {
        leased(&self.ipam)
    }
}

fn leased(ipam: &Ipam) -> Vec<String> {
    let page = ipam.read(|ledger| ledger.leases(&Default::default(), None, 100));
    page.leases
        .iter()
        .map(|lease| lease.key.address.to_string())
        .collect()
}

fn question(verb: &str, container: &str, step: AskStep, more: Value) -> Vec<u8> {
    let mut config =
        json!({ "cniVersion": "1.1.0", "name": "lan", "type": "fipd-cni", "master": "eth0" });
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    let question = json!({ "command": verb, "step": step, "containerId": container, "ifname": "eth0",
        "netns": "/proc/0/ns/net", "config": config });
    serde_json::to_vec(&question).unwrap()
}

async fn ask(
    service: &CniService,
    verb: &str,
    container: &str,
    step: AskStep,
    more: Value,
) -> Answer {
    service.answer(&question(verb, container, step, more)).await
}

fn address(attachment: &Attachment) -> String {
    attachment.addresses[0].address.to_string()
}

#[tokio::test]
async fn rows_88_94_and_97_each_container_has_an_address_until_the_pool_is_full() {
    let site = Site::new().await;
    let first = site.add("a", &["lan", "lan6"]).await.unwrap();
    assert_eq!(address(&first), "10.0.0.1/24");
    assert_eq!(
        first.addresses[0].gateway.unwrap().to_string(),
        "10.0.0.254"
    );
    assert_eq!(first.addresses[1].address.to_string(), "fd00::1/64");
    let again = site.add("a", &["lan", "lan6"]).await.unwrap();
    assert_eq!(again, first, "asking again is free");
    assert_eq!(
        site.done("STATUS", "", json!({ "ipam": { "pools": ["lan"] } }))
            .await,
        Ok(())
    );
    assert_eq!(
        address(&site.add("b", &["lan"]).await.unwrap()),
        "10.0.0.2/24"
    );
    let (code, why) = site.add("c", &["lan"]).await.unwrap_err();
    assert_eq!(code, Code::TryAgain as u32);
    assert!(why.contains("pool lan has no address available"), "{why}");
    let (code, why) = site
        .done("STATUS", "", json!({ "ipam": { "pools": ["lan"] } }))
        .await
        .unwrap_err();
    assert_eq!(code, Code::NotAvailable as u32);
    assert!(why.contains("lan"), "{why}");
}

#[tokio::test]
async fn row_78_a_deletion_succeeds_as_often_as_it_is_asked_for() {
    let site = Site::new().await;
    site.add("a", &["lan"]).await.unwrap();
    for container in ["a", "a", "unknown"] {
        let more = json!({ "ipam": { "pools": ["lan"] } });
        assert_eq!(site.done("DEL", container, more).await, Ok(()));
    }
    assert_eq!(site.leases(), [""; 0]);
}

#[tokio::test]
async fn row_82_a_collection_keeps_what_it_is_told_and_nothing_else() {
    let site = Site::new().await;
    site.add("a", &["lan"]).await.unwrap();
    site.add("b", &["lan"]).await.unwrap();
    let other = json!({ "name": "other", "ipam": { "pools": ["lan6"] } });
    site.add_with("a", other).await.unwrap();
    let more =
        |valid: Value| json!({ "ipam": { "pools": ["lan"] }, "cni.dev/valid-attachments": valid });
    let valid = json!([{ "containerID": "a", "ifname": "eth0" }]);
    assert_eq!(site.done("GC", "", more(valid)).await, Ok(()));
    assert_eq!(site.leases(), ["10.0.0.1", "fd00::1"]);
    assert_eq!(site.done("GC", "", more(json!([]))).await, Ok(()));
    assert_eq!(site.leases(), ["fd00::1"], "of another network");
    let unlisted = json!({ "name": "other", "ipam": { "pools": ["lan6"] } });
    assert_eq!(site.done("GC", "", unlisted).await, Ok(()));
    assert_eq!(site.leases(), [""; 0], "libcni leaves an empty list out");
}

#[tokio::test]
async fn row_80_a_check_wants_the_reservation() {
    let site = Site::new().await;
    site.add("a", &["lan"]).await.unwrap();
    let made = |address: &str| {
        json!({
            "ipam": { "pools": ["lan"] },
            "prevResult": {
                "cniVersion": "1.1.0",
                "interfaces": [{ "name": "eth0", "sandbox": "/run/netns/a" }],
                "ips": [{ "address": address, "interface": 0 }],
            },
        })
    };
    assert_eq!(site.done("CHECK", "a", made("10.0.0.1/24")).await, Ok(()));
    let other = site.done("CHECK", "a", made("10.0.0.2/24")).await;
    let (code, why) = other.unwrap_err();
    assert_eq!(code, Code::NotAsMade as u32);
    assert!(why.contains("does not have 10.0.0.1"), "{why}");
    let mut more = made("10.0.0.1/24");
    more["ipam"]["pools"] = json!(["lan", "lan6"]);
    let (_, why) = site.done("CHECK", "a", more).await.unwrap_err();
    assert!(why.contains("1 of 2 addresses"), "{why}");
    site.done("DEL", "a", made("10.0.0.1/24")).await.unwrap();
    let gone = site.done("CHECK", "a", made("10.0.0.1/24")).await;
    assert_eq!(gone.unwrap_err().0, Code::NotAsMade as u32);
}

#[tokio::test]
async fn row_96_an_address_that_is_asked_for_is_given_or_refused_by_name() {
    let site = Site::new().await;
    let asking =
        |ip: &str| json!({ "ipam": { "pools": ["lan"] }, "runtimeConfig": { "ips": [ip] } });
    let given = site.add_with("a", asking("10.0.0.2/24")).await.unwrap();
    assert_eq!(address(&given), "10.0.0.2/24");
    for (ip, code) in [
        ("10.0.0.2", Code::AddressConflict),
        ("10.0.0.254", Code::InvalidConfig),
        ("10.0.0.9", Code::InvalidConfig),
        ("192.168.0.1", Code::InvalidConfig),
    ] {
        let (found, why) = site.add_with("b", asking(ip)).await.unwrap_err();
        assert_eq!(found, code as u32, "{ip}: {why}");
        assert!(why.contains(ip), "{why}");
    }
    let (code, why) = site.add("b", &["unknown"]).await.unwrap_err();
    assert_eq!(code, Code::InvalidConfig as u32);
    assert!(why.contains("no pool is named unknown"), "{why}");
}

#[tokio::test]
async fn an_add_with_other_pools_or_addresses_gives_back_what_the_one_before_had() {
    let site = Site::new().await;
    site.add("a", &["lan", "lan6"]).await.unwrap();
    site.add("a", &["lan6"]).await.unwrap();
    assert_eq!(site.leases(), ["fd00::1"]);
    for ip in ["10.0.0.1", "10.0.0.2"] {
        let mut more = json!({ "ipam": { "pools": ["lan"] }, "runtimeConfig": { "ips": [ip] } });
        site.add_with("a", more.clone()).await.unwrap();
        assert_eq!(site.leases(), [ip]);
        more["prevResult"] = json!({
            "cniVersion": "1.1.0",
            "interfaces": [{ "name": "eth0", "sandbox": "/run/netns/a" }],
            "ips": [{ "address": format!("{ip}/24"), "interface": 0 }],
        });
        assert_eq!(site.done("CHECK", "a", more).await, Ok(()));
    }
}

#[tokio::test]
async fn an_address_that_somebody_else_uses_is_quarantined_and_another_given() {
    let site = Site::new().await;
    let more = || json!({ "probe": true, "ipam": { "pools": ["lan"] } });
    let first = site.add_with("a", more()).await.unwrap();
    assert!(first.probe);
    let taken = ProbeResult {
        address: first.addresses[0].address.addr(),
        user: Some("02:00:00:00:00:01".into()),
    };
    let Reply::Attachment(second) = site
        .ask("ADD", "a", AskStep::Probed(vec![taken]), more())
        .await
    else {
        panic!("no other address")
    };
    assert_eq!(address(&second), "10.0.0.2/24");
    let free = ProbeResult {
        address: second.addresses[0].address.addr(),
        user: None,
    };
    let Reply::Attachment(third) = site
        .ask("ADD", "a", AskStep::Probed(vec![free]), more())
        .await
    else {
        panic!("the address is gone")
    };
    assert_eq!(
        (address(&third), third.probe),
        ("10.0.0.2/24".to_owned(), false)
    );
    let states = site
        .ipam
        .read(|ledger| ledger.leases(&Default::default(), None, 10));
    let states: Vec<_> = states.leases.iter().map(|lease| lease.state).collect();
    assert_eq!(states, [LeaseState::Quarantined, LeaseState::Allocated]);
}

#[tokio::test]
async fn what_an_earlier_boot_left_is_freed_and_what_was_started_again_is_not() {
    let site = Site::new().await;
    site.add_earlier(&["a", "b"]).await;
    site.add("b", &["lan"]).await.unwrap();
    assert!(site.service.forget_earlier_boots().await);
    assert_eq!(site.leases(), ["10.0.0.2"]);
}

/// The address book may have come from there, where they run.
#[tokio::test]
async fn what_containers_of_another_host_have_stays() {
    let site = Site::new().await;
    site.add_of_boot("elsewhere", &["a"]).await;
    site.add_earlier(&["b"]).await;
    assert!(site.service.forget_earlier_boots().await);
    assert_eq!(site.leases(), ["10.0.0.1"]);
}

/// The file may know another boot although the container runs.
#[tokio::test]
async fn what_an_earlier_boot_left_stays_in_the_boot_in_which_the_address_book_was_restored() {
    let site = Site::restored().await;
    site.add_earlier(&["a"]).await;
    assert!(site.service.forget_earlier_boots().await);
    assert_eq!(site.leases(), ["10.0.0.1"]);
    let more = json!({ "ipam": { "pools": ["lan"] } });
    assert_eq!(site.done("DEL", "a", more).await, Ok(()));
    assert_eq!(site.leases(), [""; 0]);
}

/// Otherwise its address would be somebody else's once the hold ends.
#[tokio::test]
async fn what_a_container_has_that_runs_is_known_to_a_restored_address_book() {
    let site = Site::new().await;
    for container in ["a", "b"] {
        site.add(container, &["lan", "lan6"]).await.unwrap();
    }
    let more = json!({ "ipam": { "pools": ["lan"] } });
    assert_eq!(site.done("DEL", "a", more).await, Ok(()));
    let Site {
        service,
        ipam,
        dir,
        _writer: writer,
    } = site;
    drop(service);
    ipam.shutdown().await;
    tokio::task::spawn_blocking(move || writer.join())
        .await
        .unwrap();
    drop(ipam);
    std::fs::remove_file(dir.path().join(DATABASE)).unwrap();
    let site = Site::new_epoch(dir).await;
    assert_eq!(site.leases(), ["10.0.0.2", "fd00::2"]);
    let holders = site.ipam.read(|ledger| {
        let page = ledger.leases(&Default::default(), None, 10);
        let owners = page.leases.iter().filter_map(|lease| lease.owner());
        owners
            .map(|owner| owner.identity.name.to_string())
            .collect::<Vec<_>>()
    });
    assert_eq!(holders, ["b", "b"]);
}

/// A tenant writes NetworkAttachmentDefinitions, and would have addresses beyond its quotas.
#[tokio::test]
async fn a_pod_of_kubernetes_gets_addresses_of_pools_only_where_the_host_allows_it() {
    let more = json!({ "ipam": { "pools": ["lan"] } });
    let text = question("ADD", "a", AskStep::Begin, more);
    let mut asked: Value = serde_json::from_slice(&text).unwrap();
    asked["args"] = json!("IgnoreUnknown=1;K8S_POD_NAMESPACE=n;K8S_POD_NAME=p");
    let asked = asked.to_string();
    let site = Site::new().await;
    let reply = site.service.answer(asked.as_bytes()).await.reply;
    let Reply::Error(error) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(error.code, Code::InvalidConfig as u32);
    assert!(error.details.contains("pods-use-pools"), "{error}");
    assert_eq!(site.leases(), [""; 0]);
    let Site {
        service, ipam, dir, ..
    } = site;
    drop(service);
    let options = CniOptions {
        pods_use_pools: true,
        ..options(Some(ipam), dir.path())
    };
    let service = start(&options).await.unwrap();
    let reply = service.answer(asked.as_bytes()).await.reply;
    assert!(matches!(reply, Reply::Attachment(_)), "{reply:?}");
}

#[tokio::test]
async fn an_agent_gives_no_addresses_of_pools_and_a_pod_needs_its_uid() {
    let dir = tempfile::tempdir().unwrap();
    let service = start(&options(None, dir.path())).await.unwrap();
    let code = async |verb: &str, more: Value| match ask(&service, verb, "a", AskStep::Begin, more)
        .await
        .reply
    {
        Reply::Error(error) => error.code,
        reply @ (Reply::Output(_) | Reply::Attachment(_)) => panic!("{reply:?}"),
    };
    let pools = || json!({ "ipam": { "pools": ["lan"] } });
    assert_eq!(code("ADD", pools()).await, Code::InvalidConfig as u32);
    assert_eq!(code("STATUS", pools()).await, Code::NotAvailable as u32);
    assert_eq!(code("STATUS", json!({})).await, Code::NotAvailable as u32);
    assert_eq!(
        code("ADD", json!({})).await,
        Code::InvalidEnvironment as u32
    );
    let made = AskStep::Made(Made::default());
    let reply = ask(&service, "ADD", "a", made, json!({})).await.reply;
    let Reply::Error(error) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(error.code, Code::TryAgain as u32);
}

#[tokio::test]
async fn what_the_spool_has_is_done_before_anything_else() {
    let site = Site::new().await;
    site.add("a", &["lan"]).await.unwrap();
    site.add("b", &["lan"]).await.unwrap();
    let spool = site.dir.path().join("spool");
    let gone = serde_json::from_slice(&question("DEL", "a", AskStep::Begin, json!({}))).unwrap();
    fipd_cni::spool::write(&spool, &gone).unwrap();
    std::fs::write(spool.join(format!("{:020}.json", u64::MAX - 1)), "{").unwrap();
    let more = json!({ "ipam": { "pools": ["lan"] } });
    let answer = ask(&site.service, "ADD", "c", AskStep::Begin, more).await;
    let Reply::Attachment(given) = answer.reply else {
        panic!("{:?}", answer.reply)
    };
    assert_eq!(
        address(&given),
        "10.0.0.1/24",
        "the address of the one that is gone"
    );
    assert_eq!(
        answer.replayed,
        u64::MAX - 1,
        "also what makes no sense is acknowledged"
    );
    assert_eq!(site.service.board.health().replayed, 1);
}

#[tokio::test]
async fn status_refuses_what_add_refuses() {
    let site = Site::new().await;
    let mut spec = PoolSpec::own("shut", vec!["10.1.0.0/24".parse().unwrap()]);
    spec.closed = true;
    site.ipam.submit(create_pool(spec)).await.unwrap();
    let status = async |more: Value| site.done("STATUS", "", more).await.unwrap_err();
    let pools = |names: &[&str]| json!({ "ipam": { "pools": names } });
    let not_available = Code::NotAvailable as u32;
    let (code, why) = status(pools(&["lan", "shut"])).await;
    assert_eq!(code, not_available);
    assert!(why.contains("shut is closed"), "{why}");
    let (code, _) = status(pools(&["lan"; Allocate::MAX_WANTS + 1])).await;
    assert_eq!(code, Code::InvalidConfig as u32);
    for (field, value) in [("mode", "l4"), ("flatMode", "bridge")] {
        let mut more = pools(&["lan"]);
        more[field] = json!(value);
        let refused = status(more.clone()).await;
        assert_eq!(refused.0, Code::InvalidConfig as u32);
        assert!(refused.1.starts_with(field), "{refused:?}");
        assert_eq!(site.add_with("a", more).await.unwrap_err(), refused);
        assert_eq!(site.leases(), [""; 0], "an address is given first");
    }
    let narrow = json!({ "mtu": 1_279, "ipam": { "pools": ["lan6"] } });
    let refused = status(narrow.clone()).await;
    assert_eq!(refused.0, Code::InvalidConfig as u32);
    assert!(refused.1.starts_with("mtu: 1279"), "{refused:?}");
    assert_eq!(site.add_with("a", narrow).await.unwrap_err(), refused);
    let networks = |ledger: &Ledger| ledger.networks().map(|one| one.id).collect();
    let hold = Request::HoldNetworks {
        networks: site.ipam.read(networks),
        reason: "of the test".into(),
        actor: "test".into(),
    };
    site.ipam.submit(hold).await.unwrap();
    let (code, why) = status(pools(&["lan"])).await;
    assert_eq!(code, not_available);
    assert!(why.starts_with("pool lan: "), "{why}");
    let (code, _) = site.add("a", &["lan"]).await.unwrap_err();
    assert_eq!(code, Code::TryAgain as u32);
}

/// A refusal would say that nothing is kept.
#[tokio::test]
async fn what_takes_too_long_is_not_answered_and_goes_on() {
    let site = Site::new().await;
    let turn = site.service.turns.wait(&testing::key("a")).await;
    let more = json!({ "ipam": { "pools": ["lan"] } });
    let text = question("ADD", "a", AskStep::Begin, more);
    let service = Arc::clone(&site.service);
    let late = socket::answer(service, text, Duration::from_millis(20)).await;
    assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    assert_eq!(site.leases(), [""; 0]);
    drop(turn);
    let leased = async {
        while site.leases().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), leased)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_spool_that_cannot_be_read_refuses_every_call() {
    let site = Site::new().await;
    let spool = site.dir.path().join("spool");
    std::fs::write(&spool, "no folder").unwrap();
    let pools = || json!({ "ipam": { "pools": ["lan"] } });
    let (code, why) = site.add("a", &["lan"]).await.unwrap_err();
    assert_eq!(code, Code::TryAgain as u32);
    assert!(why.contains("spool"), "{why}");
    let (code, _) = site.done("STATUS", "", pools()).await.unwrap_err();
    assert_eq!(code, Code::NotAvailable as u32);
    std::fs::remove_file(&spool).unwrap();
    assert!(site.add("a", &["lan"]).await.is_ok());
}

#[tokio::test]
async fn a_journal_that_cannot_be_read_refuses_every_call_and_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(JOURNAL), "no database").unwrap();
    let path = dir.path().join("cni.sock");
    let socket = Listening::open(None, &path, MODE).unwrap();
    let uid = nix::unistd::geteuid().as_raw();
    let stop = CancellationToken::new();
    let options = options(None, dir.path());
    let board = options.board.clone();
    let serving = tokio::spawn(serve(socket, uid, options, stop.clone()));
    for (verb, code) in [("STATUS", Code::NotAvailable), ("ADD", Code::TryAgain)] {
        let text = question(verb, "a", AskStep::Begin, json!({}));
        let answer = heard(&mut asked(&path, &text).await).await;
        assert!(answer.contains("journal of attachments"), "{answer}");
        let code = code as u32;
        assert!(answer.contains(&format!(r#""code":{code}"#)), "{answer}");
        let failure = board.health().last_error.unwrap();
        assert_eq!(
            (failure.verb.to_string(), failure.code),
            (verb.to_owned(), code)
        );
        assert!(failure.message.contains("journal of attachments"));
    }
    let health = board.health();
    assert_eq!((health.serves, health.refused), (true, 2));
    assert!(!serving.is_finished());
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_failure_in_the_container_is_seen_and_its_addresses_are_free() {
    let site = Site::new().await;
    site.add("a", &["lan"]).await.unwrap();
    let error = fipd_cni::CniError::new(
        "1.1.0",
        Code::IoFailure,
        "cannot create eth1",
        "no such device",
    );
    let more = json!({ "ipam": { "pools": ["lan"] } });
    let reply = site.ask("DEL", "a", AskStep::Failed(error), more).await;
    assert_eq!(reply, Reply::Output(String::new()));
    assert_eq!(site.leases(), [""; 0]);
    let failure = site.service.board.health().last_error.unwrap();
    assert_eq!((failure.verb, failure.code), (fipd_cni::Verb::Add, 5));
}

#[tokio::test]
async fn what_fails_in_the_plugin_is_seen_and_changes_nothing() {
    let site = Site::new().await;
    site.add("a", &["lan"]).await.unwrap();
    let leases = site.leases();
    let error = fipd_cni::CniError::new("1.1.0", Code::InvalidConfig, "mtu is wrong", "67");
    for verb in ["ADD", "DEL", "CHECK"] {
        let report = AskStep::Report(error.clone());
        // Also of a configuration that nobody could read.
        let reply = site.ask(verb, "a", report, json!({ "name": 7 })).await;
        assert_eq!(reply, Reply::Output(String::new()));
        let failure = site.service.board.health().last_error.unwrap();
        assert_eq!(
            (failure.verb.to_string(), failure.code),
            (verb.to_owned(), 7)
        );
    }
    assert_eq!(site.leases(), leases);
    assert_eq!(site.service.board.health().refused, 3);
}

#[tokio::test]
async fn nonsense_is_refused() {
    let site = Site::new().await;
    for text in ["", "{}", r#"{"command":"PUT","config":{}}"#, "\u{0}"] {
        let answer = site.service.answer(text.as_bytes()).await;
        assert!(matches!(answer.reply, Reply::Error(_)), "{text}");
    }
    let health = site.service.board.health();
    assert_eq!((health.answered, health.attachments), (0, 0));
}

/// Asks over the socket; the answer is still to come.
async fn asked(path: &Path, question: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(question).await.unwrap();
    stream.shutdown().await.unwrap();
    stream
}

/// What the daemon says until it hangs up.
async fn heard(stream: &mut UnixStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn only_one_user_may_ask() {
    let site = Site::new().await;
    let path = site.dir.path().join("cni.sock");
    let own = nix::unistd::geteuid().as_raw();
    for (uid, expected) in [(own, "output"), (own + 1, "only uid")] {
        let socket = Listening::open(None, &path, MODE).unwrap();
        let stop = CancellationToken::new();
        let (_served, service) = watch::channel(Ok(Arc::clone(&site.service)));
        let board = CniBoard::default();
        let serving = socket::serve(socket, uid, service, board, socket::LIMITS, stop.clone());
        let serving = tokio::spawn(serving);
        let more = json!({ "ipam": { "pools": ["lan"] } });
        let text = question("STATUS", "", AskStep::Begin, more);
        let answer = heard(&mut asked(&path, &text).await).await;
        assert!(answer.contains(expected), "{uid}: {answer}");
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(10), serving).await;
        ended.unwrap().unwrap();
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn the_socket_bounds_the_length_the_time_and_the_number_of_questions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cni.sock");
    let socket = Listening::open(None, &path, MODE).unwrap();
    let (_served, service) = watch::channel(Err("of the test".to_owned()));
    let (uid, board) = (nix::unistd::geteuid().as_raw(), CniBoard::default());
    let limits = socket::CallLimits {
        at_once: 2,
        deadline: Duration::from_secs(2),
    };
    let stop = CancellationToken::new();
    let serving = socket::serve(socket, uid, service, board, limits, stop.clone());
    let serving = tokio::spawn(serving);

    let long = vec![b' '; fipd_cni::MAX_MESSAGE as usize + 1];
    let answer = heard(&mut asked(&path, &long).await).await;
    assert!(answer.contains("longer than 1048576 bytes"), "{answer}");

    let mut silent = Vec::new();
    for _ in 0..limits.at_once {
        silent.push(UnixStream::connect(&path).await.unwrap());
    }
    let mut late = asked(&path, &question("STATUS", "", AskStep::Begin, json!({}))).await;
    let early = tokio::time::timeout(Duration::from_millis(100), heard(&mut late)).await;
    assert!(early.is_err(), "a call more than fit: {early:?}");
    for stream in &mut silent {
        assert_eq!(heard(stream).await, "", "nothing was asked");
    }
    let answer = heard(&mut late).await;
    assert!(answer.contains("of the test"), "{answer}");
    stop.cancel();
    serving.await.unwrap();
}

/// The journal is opened once it can be, without a restart.
#[tokio::test(start_paused = true)]
async fn a_journal_that_cannot_be_opened_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join(JOURNAL);
    std::fs::create_dir(&journal).unwrap();
    let options = options(None, dir.path());
    let (served, service) = watch::channel(start(&options).await);
    let mut waiting = std::pin::pin!(started(&options, &served));
    let within = SWEEP * 2;
    assert!(tokio::time::timeout(within, &mut waiting).await.is_err());
    assert!(service.borrow().is_err(), "plugins are refused meanwhile");
    std::fs::remove_dir(&journal).unwrap();
    assert!(tokio::time::timeout(within, &mut waiting).await.is_ok());
    assert!(service.borrow().is_ok());
}

/// One deletion that cannot be done keeps no other call waiting for longer than a minute, and is done in the end.
#[tokio::test]
async fn a_deletion_that_fails_for_long_is_left_to_the_sweeps() {
    let site = Site::new().await;
    site.add("a", &["lan"]).await.unwrap();
    site.defer(1, "a").await;
    site.add("a", &["lan"]).await.unwrap();
    site.service.delete_deferred().await;
    assert_eq!(site.leases(), ["10.0.0.1"], "the container was added again");
    site.defer(2, "a").await;
    site.service.delete_deferred().await;
    assert_eq!(site.leases(), [""; 0]);
    assert_eq!(site.service.board.health().replayed, 1);
    site.service.delete_deferred().await;
    assert_eq!(site.service.board.health().replayed, 1, "it is done once");
}

#[tokio::test]
async fn a_deletion_that_is_left_to_the_sweeps_is_done_after_a_restart() {
    let site = Site::new().await;
    site.add("a", &["lan"]).await.unwrap();
    site.defer(1, "a").await;
    let Site {
        service,
        ipam,
        dir,
        _writer,
    } = site;
    drop(service);
    let options = options(Some(ipam.clone()), dir.path());
    let service = start(&options).await.unwrap();
    service.sweep().await;
    assert_eq!(leased(&ipam), [""; 0]);
    assert_eq!(service.board.health().replayed, 1);
}
