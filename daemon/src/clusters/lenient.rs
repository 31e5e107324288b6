//! An object of a list or watch that may not fit its type: it must not spoil the whole list.
//!
//! kube's `DeserializeGuard` does the same through two trees of values of the whole object, ten times its text. Here each
//! object is parsed from its text, one after the other, and `metadata.managedFields` is let go at once: it is most of a
//! parsed object and of no use to anybody here.

use std::borrow::Cow;

use kube::{
    Resource,
    core::{ObjectMeta, PartialObjectMeta, error_boundary::InvalidObject},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

/// An object, or its metadata and why it could not be understood. Can only be parsed from JSON text.
#[derive(Clone, Debug)]
pub struct Lenient<K>(pub Result<K, InvalidObject>);

/// The API version in which a cluster serves a kind, `VERSION` or `GROUP/VERSION`; `None`: that of the type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServedVersion(pub Option<&'static str>);

impl ServedVersion {
    fn parts(self) -> Option<(&'static str, &'static str)> {
        self.0
            .map(|version| version.split_once('/').unwrap_or(("", version)))
    }
}

impl<'de, K: Resource<DynamicType = ()> + DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let object = match serde_json::from_str::<K>(text.get()) {
            Ok(object) => Ok(object),
            Err(error) => Err(InvalidObject {
                error: error.to_string(),
                metadata: serde_json::from_str::<PartialObjectMeta<K>>(text.get())
                    .map_err(D::Error::custom)?
                    .metadata,
            }),
        };
        let mut lenient = Self(object);
        lenient.meta_mut().managed_fields = None;
        Ok(lenient)
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Lenient<K> {
    type DynamicType = ServedVersion;
    type Scope = K::Scope;

    fn kind(_: &ServedVersion) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group(of: &ServedVersion) -> Cow<'_, str> {
        of.parts()
            .map_or_else(|| K::group(&()), |(group, _)| group.into())
    }

    fn version(of: &ServedVersion) -> Cow<'_, str> {
        of.parts()
            .map_or_else(|| K::version(&()), |(_, version)| version.into())
    }

    fn plural(_: &ServedVersion) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(invalid) => &mut invalid.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const GOOD: &str = r#"{"metadata":{"name":"good","managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]},
        "spec":{"type":"LoadBalancer"}}"#;
    const BAD: &str =
        r#"{"metadata":{"name":"bad","uid":"u","managedFields":[{"manager":"m"}]},"spec":"text"}"#;

    #[test]
    fn one_bad_object_does_not_spoil_a_list() {
        let text = format!(
            r#"{{"kind":"ServiceList","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{GOOD},{BAD}]}}"#
        );
        let list: ObjectList<Lenient<Service>> = serde_json::from_str(&text).unwrap();
        let names: Vec<_> = list
            .items
            .iter()
            .map(|one| one.meta().name.as_deref())
            .collect();
        assert_eq!(names, [Some("good"), Some("bad")]);
        assert!(
            list.items
                .iter()
                .all(|one| one.meta().managed_fields.is_none())
        );
        let service = list.items[0].0.as_ref().unwrap();
        assert_eq!(
            service.spec.as_ref().unwrap().type_.as_deref(),
            Some("LoadBalancer")
        );
        let invalid = list.items[1].0.as_ref().unwrap_err();
        assert!(invalid.error.contains("invalid type"), "{}", invalid.error);
        assert_eq!(invalid.metadata.uid.as_deref(), Some("u"));
    }

    #[test]
    fn a_watch_has_them_too() {
        let text = format!(r#"{{"type":"MODIFIED","object":{BAD}}}"#);
        let event: WatchEvent<Lenient<Service>> = serde_json::from_str(&text).unwrap();
        let WatchEvent::Modified(one) = event else {
            panic!("{event:?}")
        };
        assert_eq!(one.meta().name.as_deref(), Some("bad"));
        assert!(one.0.is_err());
    }

    #[test]
    fn without_metadata_it_is_no_object() {
        assert!(serde_json::from_str::<Lenient<Service>>(r#""text""#).is_err());
    }
}
