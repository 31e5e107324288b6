//! Programs run for real, in real time.

use std::path::Path;

use kube::config::ExecConfig;
use serde_json::json;

use super::*;

fn program(home: &Path, script: &str) -> CredentialSource {
    let exec: ExecConfig = serde_json::from_value(json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
    }))
    .unwrap();
    CredentialSource::Program(Program::of_exec(exec, home).unwrap())
}

/// Prints a token that has expired, and does `later` at each renewal.
fn expiring(home: &Path, later: &str) -> CredentialSource {
    let expired = r#"{"status": {"token": "old", "expirationTimestamp": "2020-01-01T00:00:00Z"}}"#;
    let script = format!("if test -e built; then {later}; exit; fi; touch built; echo '{expired}'");
    program(home, &script)
}

fn header(credential: &Credential) -> &str {
    credential.header.as_ref().unwrap().to_str().unwrap()
}

#[tokio::test]
async fn an_expired_token_is_renewed_before_it_is_shown() {
    let home = tempfile::tempdir().unwrap();
    let later =
        r#"echo '{"status": {"token": "new", "expirationTimestamp": "2100-01-01T00:00:00Z"}}'"#;
    let credentials = Credentials::start(expiring(home.path(), later))
        .await
        .unwrap();
    assert_eq!(header(&credentials.current().await.unwrap()), "Bearer new");
}

#[test]
fn a_hundred_programs_that_hang_at_renewal_leave_the_blocking_pool_free_and_are_killed() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let home = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let mut all = Vec::new();
        for number in 0..100 {
            let home = home.path().join(number.to_string());
            let source = expiring(&home, "sleep 600 & echo $! > new; mv new child; wait");
            all.push(Credentials::start(source).await.unwrap());
        }
        let child = |number: usize| home.path().join(number.to_string()).join("child");
        while !(0..100).all(|number| child(number).exists()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let free = tokio::task::spawn_blocking(|| ());
        tokio::time::timeout(Duration::from_secs(5), free)
            .await
            .expect("the pool is free")
            .unwrap();
        for credentials in &all {
            let error = credentials.current().await.err().unwrap().to_string();
            assert!(error.contains("was killed"), "{error}");
        }
        let pids = (0..100).map(|number| std::fs::read_to_string(child(number)).unwrap());
        let pids: Vec<String> = pids.collect();
        drop(all);
        for pid in pids {
            let stat = format!("/proc/{}/stat", pid.trim());
            while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
}

#[tokio::test]
async fn what_failed_once_is_not_started_by_each_call() {
    let home = tempfile::tempdir().unwrap();
    let later = "echo run >> runs; false";
    let credentials = Credentials::start(expiring(home.path(), later))
        .await
        .unwrap();
    for _ in 0..50 {
        let error = credentials.current().await.err().unwrap().to_string();
        assert!(error.contains("has failed, exit status: 1"), "{error}");
    }
    let runs = std::fs::read_to_string(home.path().join("runs")).unwrap();
    assert!(runs.lines().count() <= 3, "{runs}");
}

#[tokio::test]
async fn credentials_that_are_good_outlive_a_failed_renewal() {
    let good = Credential {
        expires: Some(Timestamp::now() + Duration::from_secs(300)),
        ..Credential::bearer("good").unwrap()
    };
    let (_sender, now) = watch::channel(LatestCredential {
        credential: Arc::new(good),
        failure: Some(CredentialError::Expired),
    });
    let credentials = Credentials {
        now,
        refused: Arc::default(),
        _renewing: None,
    };
    assert_eq!(header(&credentials.current().await.unwrap()), "Bearer good");
}

#[tokio::test]
async fn a_token_file_is_read_again_and_its_last_token_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "one\n").unwrap();
    let source = CredentialSource::File(path.clone());
    let credentials = Credentials::start(source).await.unwrap();
    assert_eq!(header(&credentials.current().await.unwrap()), "Bearer one");
    std::fs::write(&path, "two").unwrap();
    tokio::time::pause();
    let mut now = credentials.now.clone();
    now.changed().await.unwrap();
    assert_eq!(header(&credentials.current().await.unwrap()), "Bearer two");
    std::fs::remove_file(&path).unwrap();
    now.borrow_and_update();
    now.changed().await.unwrap();
    assert!(now.borrow().failure.is_some());
    assert_eq!(header(&credentials.current().await.unwrap()), "Bearer two");
}

#[test]
fn the_order_is_that_of_kube() {
    let home = Path::new("/");
    let user = |value| serde_json::from_value::<AuthInfo>(value).unwrap();
    let fixed = |value| {
        let mut user = user(value);
        let source = CredentialSource::take(&mut user, home).unwrap();
        assert!(user.exec.is_none() && user.token.is_none() && user.token_file.is_none());
        match source {
            CredentialSource::Fixed(credential) => credential.header,
            CredentialSource::File(_) | CredentialSource::Program(_) => panic!("it is fixed"),
        }
    };
    let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "x" });
    let both = json!({ "username": "a", "password": "b", "token": "t", "exec": exec });
    assert_eq!(fixed(both).unwrap(), "Basic YTpi");
    let token = json!({ "token": "t", "tokenFile": "/x", "exec": exec });
    assert_eq!(fixed(token).unwrap(), "Bearer t");
    assert_eq!(fixed(json!({})), None);
    let file = CredentialSource::take(&mut user(json!({ "tokenFile": "/x", "exec": exec })), home);
    assert!(matches!(file, Ok(CredentialSource::File(_))));
    let program = CredentialSource::take(&mut user(json!({ "exec": exec })), home);
    assert!(matches!(program, Ok(CredentialSource::Program(_))));
}
