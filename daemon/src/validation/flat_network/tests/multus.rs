use super::super::multus::{NetworkRef, NetworkStatus};

#[test]
fn networks_are_a_json_list_or_separated_by_commas() {
    let names = |text: &str| -> Vec<String> {
        let all = NetworkRef::parse_all(text).into_iter();
        all.map(|one| {
            let interface = one.interface.unwrap_or_default();
            let namespace = one.namespace.unwrap_or_default();
            let name = one.name.unwrap_or_default();
            format!("{namespace}/{name}@{interface}")
        })
        .collect()
    };
    assert_eq!(names("rancher-flat-network"), ["/rancher-flat-network@"]);
    assert_eq!(names("shop/a@eth1, b,"), ["shop/a@eth1", "/b@"]);
    assert_eq!(
        names(r#"[{"name":"a","interface":"eth1"},{"name":"b","namespace":"shop"}]"#),
        ["/a@eth1", "shop/b@"]
    );
    assert!(names("").is_empty() && names("[1]").is_empty());
}

#[test]
fn an_interface_is_found_with_and_without_namespace() {
    let status = |name: &str| NetworkStatus {
        name: Some(name.to_owned()),
        interface: Some("eth1".to_owned()),
        ips: Some(vec!["10.2.3.100".to_owned(), "nonsense".to_owned()]),
    };
    let wanted = |text: &str| NetworkRef::parse_all(text).remove(0);
    assert!(wanted("flat").is(&status("shop/flat"), "shop"));
    assert!(wanted("flat").is(&status("flat"), "shop"));
    assert!(wanted("lab/flat").is(&status("lab/flat"), "shop"));
    assert!(!wanted("flat").is(&status("lab/flat"), "shop"));
    assert!(!wanted("flat@eth2").is(&status("shop/flat"), "shop"));
    assert_eq!(status("flat").addresses().count(), 1);
}
