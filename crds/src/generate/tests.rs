use std::path::Path;

use super::*;

/// `FIPD_UPDATE_CRDS=1 cargo test -p fipd-crds` writes the files anew.
#[test]
fn files_are_current() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("yaml");
    let update = std::env::var_os("FIPD_UPDATE_CRDS").is_some();
    let crds = all();
    assert_eq!(crds.len(), MANIFESTS.len());
    for (crd, (name, _)) in crds.iter().zip(MANIFESTS) {
        assert_eq!(file_name(crd), name);
        let wanted = yaml(crd).unwrap();
        let path = directory.join(name);
        if update {
            std::fs::write(&path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert!(
            found == wanted,
            "{name} is stale; run FIPD_UPDATE_CRDS=1 cargo test -p fipd-crds"
        );
    }
}

fn of_group(group: &str) -> Vec<CustomResourceDefinition> {
    let all = all().into_iter();
    let found: Vec<_> = all.filter(|crd| crd.spec.group == group).collect();
    assert_eq!(found.len(), 3, "{group}");
    found
}

#[test]
fn versions_are_as_the_family_has_them() {
    for crd in of_group(floating_ip::GROUP) {
        let kind = &crd.spec.names.kind;
        assert_eq!(
            crd.spec.scope,
            if kind == "FloatingIP" {
                "Namespaced"
            } else {
                "Cluster"
            }
        );
        let versions = &crd.spec.versions;
        let names: Vec<&str> = versions
            .iter()
            .map(|version| version.name.as_str())
            .collect();
        assert_eq!(names, ["v1beta2", "v1beta1"], "{kind}");
        assert_eq!(
            versions
                .iter()
                .map(|version| version.storage)
                .collect::<Vec<_>>(),
            [true, false]
        );
        assert!(versions.iter().all(|version| version.served));
        assert_eq!(versions[0].deprecated, None);
        assert_eq!(versions[1].deprecated, Some(true));
        assert!(
            versions[1]
                .deprecation_warning
                .as_ref()
                .unwrap()
                .contains(kind.as_str())
        );
        assert!(
            versions
                .iter()
                .all(|version| version.subresources.as_ref().unwrap().status.is_some())
        );
    }
}

/// Clients of v1beta1 read one Service, and know no groups.
#[test]
fn a_floating_ip_of_v1beta1_names_one_service() {
    let mut all = of_group(floating_ip::GROUP).into_iter();
    let crd = all.find(|crd| crd.spec.names.kind == "FloatingIP").unwrap();
    let fields = |version: usize| {
        let schema = crd.spec.versions[version].schema.as_ref().unwrap();
        let root = schema.open_api_v3_schema.as_ref().unwrap();
        let status = root.properties.as_ref().unwrap()["status"]
            .properties
            .as_ref();
        let assigned = status.unwrap()["assigned"].properties.as_ref().unwrap();
        let names =
            |fields: &BTreeMap<String, JSONSchemaProps>| fields.keys().cloned().collect::<Vec<_>>();
        (names(status.unwrap()), names(assigned))
    };
    let columns = |version: usize| {
        let columns = crd.spec.versions[version]
            .additional_printer_columns
            .as_ref();
        let names = columns.unwrap().iter().map(|column| column.name.clone());
        names.collect::<Vec<_>>()
    };
    let (status, assigned) = fields(1);
    assert_eq!(
        assigned,
        [
            "clusterName",
            "projectName",
            "serviceName",
            "serviceNamespace"
        ]
    );
    assert_eq!(status, ["assigned", "conditions", "ipAddr", "state"]);
    assert!(columns(1).contains(&"Service".to_owned()));
    let (status, assigned) = fields(0);
    assert!(assigned.contains(&"services".to_owned()));
    assert!(status.contains(&"sharedKey".to_owned()));
    assert!(columns(0).contains(&"Group".to_owned()));
}

/// An own kind is nothing without its spec, and only fipd writes its status.
#[test]
fn own_kinds_have_one_version_a_spec_and_a_status() {
    let own = of_group(fipd_io::GROUP).into_iter();
    for crd in own.chain(of_group(ip_rule::GROUP)) {
        let [version] = crd.spec.versions.as_slice() else {
            panic!("{} has several versions", crd.spec.names.kind);
        };
        assert_eq!((version.name.as_str(), version.storage), ("v1alpha1", true));
        assert!(version.subresources.as_ref().unwrap().status.is_some());
        let schema = version.schema.as_ref().unwrap();
        let root = schema.open_api_v3_schema.as_ref().unwrap();
        assert_eq!(root.required.as_deref(), Some(&["spec".to_owned()][..]));
    }
}

#[test]
fn short_names_mean_one_kind_each() {
    let mut seen = Vec::new();
    for crd in all() {
        for name in crd.spec.names.short_names.unwrap_or_default() {
            assert!(!seen.contains(&name), "{name} is taken");
            seen.push(name);
        }
    }
}

/// A default would be written into users' objects, a null refused by the originals' clients, but for those of one. The original
/// has the one default too.
#[test]
fn schemas_have_one_default_and_nulls_of_one_group() {
    for (name, text) in MANIFESTS {
        let defaults: Vec<_> = text.matches("default:").collect();
        let one = name.ends_with("prefixpools.yaml");
        assert_eq!(defaults.len(), usize::from(one), "{name}");
        let nulls = name.starts_with(flat_network::GROUP);
        assert_eq!(text.contains("nullable:"), nulls, "{name}");
    }
}
