//! The file of a backup: YAML documents, one object each.

use fipd_crds::names::is_object_name;
use serde_json::{Value, json};

use super::kinds::{FLAT_NETWORK_SUBNET, MACVLAN_SUBNET};
use crate::controller::{
    kind::{CUSTOM_RESOURCE_DEFINITION, Kind, NAMESPACE, SERVICE},
    store::Key,
};

/// The longest file that is read, in bytes.
pub const LONGEST: u64 = 64 << 20;
/// Kinds that are restored, in the order in which they are made.
const RESTORED: [Kind; 5] = [
    NAMESPACE,
    CUSTOM_RESOURCE_DEFINITION,
    MACVLAN_SUBNET,
    FLAT_NETWORK_SUBNET,
    SERVICE,
];
/// What the API server sets, and sets again.
const SET_BY_SERVER: [&str; 5] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
];
/// What the objects and controllers of another cluster would have to be there for.
const OF_CLUSTER: [&str; 5] = [
    "ownerReferences",
    "finalizers",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

/// An object of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum FileObject {
    /// It is restored.
    Restored(RestoredObject),
    /// Its kind is not restored: kind, and `[namespace/]name`.
    Other(String, String),
}

/// An object to make.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoredObject {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: Key,
    /// The object.
    pub body: Value,
    /// What it is made without.
    pub notes: Vec<String>,
}

/// The object as it is, without what the API server sets.
pub fn saved(kind: Kind, mut object: Value) -> Value {
    remove(&mut object, &SET_BY_SERVER);
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    object
}

/// Takes fields of the metadata away; names those that were there.
fn remove(object: &mut Value, fields: &[&'static str]) -> Vec<&'static str> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else {
        return Vec::new();
    };
    let fields = fields.iter().copied();
    fields
        .filter(|field| metadata.remove(*field).is_some())
        .collect()
}

/// The file with these objects.
///
/// # Errors
/// They cannot be written so that they are read the same.
pub fn write(objects: &[Value]) -> Result<String, String> {
    // Folded text is not for every reader the same.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_multiple_with_options(objects, options)
        .map_err(|error| error.to_string())?;
    match parse(&text) {
        Ok(read) if read == objects => Ok(text),
        Ok(_) | Err(_) => Err("the objects cannot be written as YAML without loss".to_owned()),
    }
}

/// What is in a file, in the order in which it is to be made.
///
/// # Errors
/// It is no YAML, or a document is no object. Names the place, never what is there.
pub fn read(text: &str) -> Result<Vec<FileObject>, String> {
    let documents = parse(text)?;
    let mut objects = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        let object = classify(document);
        objects.push(object.map_err(|why| format!("document {}: {why}", index + 1))?);
    }
    objects.sort_by_key(|object| match object {
        FileObject::Restored(object) => RESTORED.iter().position(|kind| *kind == object.kind),
        FileObject::Other(..) => None,
    });
    Ok(objects)
}

fn parse(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! {
        // As Kubernetes reads YAML since kubectl quotes such words: `y` and `on` are texts.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_events: 20_000_000,
            max_nodes: 10_000_000,
            max_documents: 1_000_000,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let place = error.location();
        let place = place.map(|at| format!(" in line {}, column {}", at.line(), at.column()));
        format!("it cannot be read as YAML{}", place.unwrap_or_default())
    })
}

fn classify(mut document: Value) -> Result<FileObject, String> {
    let text = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
    let (api, kind) = (text("apiVersion"), text("kind"));
    if api.is_empty() || kind.is_empty() {
        return Err("it has no apiVersion and kind".to_owned());
    }
    let meta = &document["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let namespace = meta["namespace"].as_str().unwrap_or_default();
    let key = Key::new(namespace, name);
    let restored = RESTORED.into_iter();
    let mut restored = restored.filter(|one| one.kind == kind && one.api_version() == api);
    let Some(kind) = restored.next() else {
        return Ok(FileObject::Other(
            format!("{kind} of {api}"),
            key.to_string(),
        ));
    };
    if !is_object_name(name) {
        return Err("its metadata.name is no name of an object".to_owned());
    }
    if is_object_name(namespace) != kind.namespaced || namespace.is_empty() == kind.namespaced {
        return Err("its metadata.namespace is no namespace, or does not belong there".to_owned());
    }
    let without = remove(&mut document, &OF_CLUSTER);
    remove(&mut document, &SET_BY_SERVER);
    let notes = without
        .into_iter()
        .map(|field| format!("made without metadata.{field}"));
    Ok(FileObject::Restored(RestoredObject {
        kind,
        key,
        notes: notes.collect(),
        body: document,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(text: &str) -> Vec<(String, String)> {
        let objects = read(text).unwrap().into_iter();
        objects
            .map(|object| match object {
                FileObject::Restored(object) => {
                    (object.kind.kind.to_owned(), object.key.to_string())
                }
                FileObject::Other(kind, name) => (format!("other {kind}"), name),
            })
            .collect()
    }

    #[test]
    fn only_what_the_server_sets_is_not_saved() {
        let object = json!({
            "metadata": {
                "name": "lab", "namespace": "kube-system", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-02T03:04:05Z", "managedFields": [], "labels": { "a": "b" },
                "finalizers": ["x/y"], "annotations": { "on": "yes" },
            },
            "spec": { "vlan": 10, "unknown": { "deep": [1, null, "1"] } },
        });
        let saved = saved(MACVLAN_SUBNET, object);
        assert_eq!(
            saved,
            json!({
                "apiVersion": "macvlan.cluster.cattle.io/v1", "kind": "MacvlanSubnet",
                "metadata": {
                    "name": "lab", "namespace": "kube-system", "labels": { "a": "b" },
                    "finalizers": ["x/y"], "annotations": { "on": "yes" },
                },
                "spec": { "vlan": 10, "unknown": { "deep": [1, null, "1"] } },
            })
        );
    }

    #[test]
    fn texts_that_look_like_something_else_survive() {
        let tricky = [
            "yes",
            "on",
            "null",
            "~",
            "1e3",
            "0x1f",
            "1:30",
            "2026-01-02",
            "",
            " a",
            "a: b",
            "#",
            "line\nbreak\n",
            "- a",
            "{",
            "\u{e9}\t\"'\\",
            "10.0.0.1-10.0.0.2",
        ];
        let long = "word ".repeat(100);
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a", "namespace": "b" },
            "texts": tricky, "long": long, "number": 1.5, "flag": true, "none": null, "empty": [{}, []],
        });
        let objects = [object.clone(), object];
        let text = write(&objects).unwrap();
        assert_eq!(parse(&text).unwrap(), objects);
        assert_eq!(restored(&text).len(), 2);
    }

    #[test]
    fn namespaces_and_definitions_come_first() {
        let text = "\
apiVersion: v1
kind: Service
metadata: {name: web-macvlan, namespace: shop}
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanSubnet
metadata: {name: lab, namespace: kube-system}
---
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: macvlansubnets.macvlan.cluster.cattle.io}
---
apiVersion: v1
kind: Namespace
metadata: {name: cattle-flat-network}
";
        let kinds: Vec<String> = restored(text).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(
            kinds,
            [
                "Namespace",
                "CustomResourceDefinition",
                "MacvlanSubnet",
                "Service"
            ]
        );
    }

    #[test]
    fn other_kinds_and_versions_are_named() {
        let text = "\
apiVersion: v1
kind: Secret
metadata: {name: a, namespace: b}
---
apiVersion: apiextensions.k8s.io/v1beta1
kind: CustomResourceDefinition
metadata: {name: c.d}
";
        let expected = [
            ("other Secret of v1", "b/a"),
            (
                "other CustomResourceDefinition of apiextensions.k8s.io/v1beta1",
                "c.d",
            ),
        ];
        let expected = expected.map(|(kind, name)| (kind.to_owned(), name.to_owned()));
        assert_eq!(restored(text), expected);
    }

    #[test]
    fn what_belongs_to_the_other_cluster_is_left_out_and_said() {
        let text = "\
apiVersion: v1
kind: Service
metadata:
  name: web-macvlan
  namespace: shop
  uid: u
  finalizers: [x/y]
  ownerReferences: [{kind: Service, name: web, uid: w}]
";
        let objects = read(text).unwrap();
        let [FileObject::Restored(object)] = objects.as_slice() else {
            panic!("{objects:?}");
        };
        let metadata = json!({ "name": "web-macvlan", "namespace": "shop" });
        assert_eq!(object.body["metadata"], metadata);
        assert_eq!(object.notes.len(), 2, "{:?}", object.notes);
    }

    #[test]
    fn files_that_make_no_sense_are_refused_with_the_place() {
        let subnet = "apiVersion: macvlan.cluster.cattle.io/v1\nkind: MacvlanSubnet\n";
        for (text, says) in [
            ("a: [", "as YAML"),
            ("a: b\na: c\n", "as YAML"),
            ("just text", "document 1: it has no apiVersion and kind"),
            (
                "apiVersion: v1\nkind: Namespace\n",
                "document 1: its metadata.name",
            ),
            (
                format!("{subnet}metadata: {{name: ../../x, namespace: a}}").as_str(),
                "metadata.name",
            ),
            (
                format!("{subnet}metadata: {{name: x, namespace: a/b}}").as_str(),
                "metadata.namespace",
            ),
            (
                format!("{subnet}metadata: {{name: x}}").as_str(),
                "metadata.namespace",
            ),
            (
                "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, namespace: y}",
                "metadata.namespace",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_of_nested_references_ends() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let before = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        assert!(read(&text).is_err());
    }
}
