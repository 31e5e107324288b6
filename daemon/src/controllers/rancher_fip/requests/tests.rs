use fipd_core::ClusterId;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::controllers::remote::Remote;

fn rejected(why: &str) -> CallError {
    CallError::Rejected("secrets c-m-a/rancher-fip-config-p-a".into(), why.into())
}

#[test]
fn a_caller_hears_of_denials_and_of_no_internals() {
    let webhook = "admission webhook \"floatingip\" denied the request: quota exceeded for p-a";
    let heard = failed(&rejected(webhook));
    assert_eq!((heard.code.as_u16(), &*heard.message), (500, webhook));
    let heard = failed(&rejected(
        "secrets is forbidden: User \"fipd\" cannot get resource",
    ));
    assert_eq!(heard.code.as_u16(), 500);
    for internal in ["secrets", "fipd\"", "forbidden", "c-m-a"] {
        assert!(!heard.message.contains(internal), "{heard}");
    }
    let gone = CallError::Unavailable("x".into(), "connection refused".into());
    assert_eq!(failed(&gone), Denied::late());
}

fn asker() -> Asker {
    Asker {
        management: "rancher".into(),
        project: "p-a".to_owned(),
        namespace: "c-m-a".to_owned(),
        cluster: "c-m-a".to_owned(),
    }
}

#[tokio::test]
async fn defect_34_what_a_former_leader_knows_is_not_served() {
    let ranchers = Ranchers::default();
    let over = CancellationToken::new();
    let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let remote = Remote::new(kube::Client::try_from(config).unwrap());
    let data = Data::new(ClusterId("m".into()), remote, over.clone());
    let rancher = ranchers.get("rancher");
    rancher.led_elsewhere(false);
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(|| fipd_core::Timestamp(1));
    let (ipam, writer) = Ipam::start(dir.path(), clock).unwrap();
    let requests = Requests::new(ranchers.clone(), ipam.clone());
    assert_eq!(requests.figures().unwrap_err(), Denied::elsewhere());
    assert_eq!(requests.not_leading(), 1);
    rancher.publish(Arc::clone(&data));
    assert_eq!(requests.not_leading(), 0);
    assert!(requests.figures().unwrap().is_empty());
    assert!(requests.data(&asker()).is_ok());

    // A call that is under way ends as well.
    let under_way = while_leading(&data, std::future::pending::<Result<(), Denied>>());
    // The lease could not be renewed: nobody else is known to hold it.
    over.cancel();
    assert_eq!(under_way.await, Err(Denied::elsewhere()));
    let asked = requests.list(&asker()).await;
    assert_eq!(asked.unwrap_err(), Denied::elsewhere());
    assert_eq!(requests.figures().unwrap_err(), Denied::elsewhere());
    let claim = Claim {
        client: "client-c-m-a".to_owned(),
        project: "p-a".to_owned(),
        secret: crate::fip_v1::Secret::new("s"),
        cluster: None,
    };
    let heard = requests.authorize(&claim).await.unwrap_err();
    assert_eq!(heard, Denied::elsewhere());
    assert_eq!(requests.not_leading(), 1);
    assert!(rancher.data().is_some(), "Services are served from it");
    ipam.shutdown().await;
    writer.join();
}
