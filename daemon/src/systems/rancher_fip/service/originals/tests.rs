use super::*;

fn key() -> Key {
    Key::new("shop", "web")
}

fn at(address: &str) -> IpAddr {
    address.parse().expect("an address")
}

fn pool(name: &str, address: &str, selector: &Value) -> Value {
    json!({
        "metadata": { "namespace": "app", "name": name, "uid": name },
        "spec": {
            "addresses": [format!("{address}/32")], "autoAssign": true, "avoidBuggyIPs": false,
            "serviceAllocation": {
                "namespaces": ["shop"], "serviceSelectors": [{ "matchLabels": selector }],
            },
        },
    })
}

fn of(name: &str) -> Value {
    json!({ SERVICE_LABEL: name, SERVICE_NAMESPACE_LABEL: "shop" })
}

fn advertisement(name: &str) -> Value {
    json!({
        "metadata": { "namespace": "app", "name": name, "uid": name },
        "spec": { "ipAddressPools": [name], "interfaces": ["eth1"] },
    })
}

fn group(name: &str, address: &str) -> Value {
    json!({
        "metadata": { "namespace": "app", "name": name, "uid": name },
        "spec": { "local": { "v4pools": [
            { "subnet": "10.0.0.0/24", "pool": format!("{address}/32"), "aggregation": "default" },
        ] } },
    })
}

fn labelled(mut object: Value, manager: &str) -> Value {
    object["metadata"]["labels"] = json!({ MANAGED_BY: manager });
    object
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    *object.pointer_mut(path).expect("it is there") = value;
    object
}

fn whose(kind: Kind, object: &Value) -> Whose {
    let (service, address) = (&key(), at("10.0.0.5"));
    Place { service, address }.whose(kind, Some(object))
}

#[test]
fn what_the_original_made_for_the_service_is_known_under_both_names() {
    for name in ["ip4-10.0.0.5", "rancher-fip-shop-web"] {
        assert_eq!(
            whose(POOL, &pool(name, "10.0.0.5", &of("web"))),
            Whose::Originals
        );
        assert_eq!(whose(ADVERTISEMENT, &advertisement(name)), Whose::Originals);
        assert_eq!(whose(GROUP, &group(name, "10.0.0.5")), Whose::Originals);
    }
    let shared = json!({ SERVICE_GROUP: "g" });
    assert_eq!(
        whose(POOL, &pool("ip4-10.0.0.5", "10.0.0.5", &shared)),
        Whose::Originals
    );
    // Left by a Service that had the address before.
    let left = pool("ip4-10.0.0.5", "10.0.0.5", &of("old"));
    assert_eq!(whose(POOL, &left), Whose::Originals);
}

#[test]
fn what_somebody_else_made_under_such_a_name_is_not() {
    let legacy = "rancher-fip-shop-web";
    let mine = pool(legacy, "10.0.0.5", &of("web"));
    let others = [
        labelled(mine.clone(), "Helm"),
        with(
            mine.clone(),
            "/spec/addresses",
            json!(["10.0.0.5/32", "10.0.0.6/32"]),
        ),
        with(mine.clone(), "/spec/addresses", json!(["10.0.0.0/24"])),
        with(mine.clone(), "/spec/serviceAllocation", Value::Null),
        with(
            mine.clone(),
            "/spec/serviceAllocation/namespaces",
            json!(["other"]),
        ),
        pool(legacy, "10.0.0.5", &of("other")),
        pool(legacy, "10.0.0.6", &of("web")),
        pool("ip4-10.0.0.5", "10.0.0.6", &of("web")),
        pool(legacy, "10.0.0.5", &json!({ "app": "web" })),
    ];
    for object in others {
        assert_eq!(whose(POOL, &object), Whose::Others, "{object}");
    }
    let of_all = with(advertisement(legacy), "/spec/ipAddressPools", json!([]));
    assert_eq!(whose(ADVERTISEMENT, &of_all), Whose::Others);
    let mut narrow = advertisement(legacy);
    narrow["spec"]["nodeSelectors"] = json!([{ "matchLabels": { "rack": "a" } }]);
    assert_eq!(whose(ADVERTISEMENT, &narrow), Whose::Others);
    let wide = with(
        group(legacy, "10.0.0.5"),
        "/spec/local/v4pools/0/pool",
        json!("10.0.0.0/24"),
    );
    assert_eq!(whose(GROUP, &wide), Whose::Others);
}

#[test]
fn an_object_keeps_the_name_that_it_has() {
    let (service, address) = (&key(), at("10.0.0.5"));
    let place = Place { service, address };
    let chosen = |named, legacy| choose(&place, named, legacy);
    let (own, old) = (Some(place.name()), Some(place.legacy()));
    use Whose::{Nobodys, Originals, Others, Ours};
    assert_eq!(chosen(Nobodys, Nobodys), own);
    assert_eq!(chosen(Nobodys, Others), own);
    assert_eq!(chosen(Originals, Nobodys), own);
    assert_eq!(chosen(Ours, Nobodys), own);
    assert_eq!(chosen(Nobodys, Originals), old);
    assert_eq!(chosen(Nobodys, Ours), old);
    assert_eq!(chosen(Others, Originals), old);
    assert_eq!(chosen(Others, Nobodys), None);
}

#[test]
fn a_pool_taken_over_under_its_old_name_does_not_move_to_another_address() {
    let taken = labelled(
        pool("rancher-fip-shop-web", "10.0.0.5", &of("web")),
        MANAGER,
    );
    assert_eq!(whose(POOL, &taken), Whose::Ours);
    let service = &key();
    let next = Place {
        service,
        address: at("10.0.0.6"),
    };
    assert_eq!(next.whose(POOL, Some(&taken)), Whose::Others);
}

/// Services of a namespace, by name, addresses and whether they are ours.
fn seen(services: &[(&str, &str, bool)]) -> Users {
    let services: Vec<(Key, Svc)> = services
        .iter()
        .map(|(name, address, ours)| {
            let mut svc = Svc {
                ingress: vec![(*address).into()],
                ..Svc::default()
            };
            if *ours {
                svc.finalizers
                    .push(crate::systems::rancher_fip::names::FINALIZER.into());
                svc.marks
                    .insert(crate::systems::rancher_fip::names::HOLDER, "x".into());
            }
            (Key::new("shop", name), svc)
        })
        .collect();
    users(services.iter().map(|(key, svc)| (key, svc)))
}

fn names_of(left: &[(Key, String)]) -> Vec<&str> {
    left.iter().map(|(key, _)| &*key.name).collect()
}

#[test]
fn what_the_original_left_for_an_address_of_ours_goes() {
    let users = seen(&[("web", "10.0.0.5", true), ("api", "10.0.0.6", false)]);
    let objects = [
        // Of a Service that had the address before.
        pool("rancher-fip-shop-old", "10.0.0.5", &of("old")),
        // To be taken over.
        pool("rancher-fip-shop-web", "10.0.0.5", &of("web")),
        // Of a Service that the original serves.
        pool("rancher-fip-shop-api", "10.0.0.6", &of("api")),
        // Nobody's address, or an admin's object.
        pool("rancher-fip-shop-gone", "10.0.0.7", &of("gone")),
        pool("lab", "10.0.0.5", &of("web")),
        labelled(pool("rancher-fip-shop-x", "10.0.0.5", &of("x")), "Helm"),
    ];
    assert_eq!(
        names_of(&in_the_way(POOL, &objects, &users)),
        ["rancher-fip-shop-old"]
    );
    let mut replaced = objects.to_vec();
    replaced.push(labelled(
        pool("ip4-10.0.0.5", "10.0.0.5", &of("web")),
        MANAGER,
    ));
    assert_eq!(
        names_of(&in_the_way(POOL, &replaced, &users)),
        ["rancher-fip-shop-old", "rancher-fip-shop-web"]
    );
    let groups = [group("rancher-fip-shop-old", "10.0.0.5")];
    assert_eq!(
        names_of(&in_the_way(GROUP, &groups, &users)),
        ["rancher-fip-shop-old"]
    );
}

#[test]
fn what_another_service_uses_stays() {
    let users = seen(&[("web", "10.0.0.5", true), ("old", "10.0.0.5", false)]);
    let objects = [pool("rancher-fip-shop-old", "10.0.0.5", &of("old"))];
    assert!(in_the_way(POOL, &objects, &users).is_empty());
}

#[test]
fn six_is_read_as_the_original_writes_it() {
    let name = "ip6-2001.db8.0.1.1.1.1.1";
    let six = pool(name, "2001:db8:0:1:1:1:1:1", &of("web"));
    let (service, address) = (&key(), at("2001:db8:0:1:1:1:1:1"));
    let place = Place { service, address };
    assert_eq!(place.name(), name);
    assert_eq!(place.whose(POOL, Some(&six)), Whose::Originals);
}
