//! Which pod a container is.

use fipd_cni::{Code, named_args};

use super::refusal::CallRefusal;

/// Of `CNI_ARGS`.
const UID: &str = "K8S_POD_UID";

/// A pod, as the runtime names it in `CNI_ARGS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl PodName {
    /// Reads it.
    ///
    /// # Errors
    /// What is missing: without the UID nobody could tell a pod from an earlier one of its name.
    pub fn read(args: &str) -> Result<Self, CallRefusal> {
        let wrong = |why: String| CallRefusal::new(Code::InvalidEnvironment, why);
        let named = named_args(args).map_err(wrong)?;
        let of = |key: &str| named.get(key).map(|value| (*value).to_owned());
        let read = (of("K8S_POD_NAMESPACE"), of("K8S_POD_NAME"), of(UID));
        let (Some(namespace), Some(name), Some(uid)) = read else {
            let needed = "CNI_ARGS needs K8S_POD_NAMESPACE, K8S_POD_NAME and K8S_POD_UID where the configuration has no ipam.pools";
            return Err(wrong(needed.to_owned()));
        };
        let allowed = |name: &str| fipd_crds::names::is_object_name(name);
        let read = [
            ("K8S_POD_NAMESPACE", &namespace, allowed(&namespace)),
            ("K8S_POD_NAME", &name, allowed(&name)),
            (UID, &uid, !uid.is_empty()),
        ];
        if let Some((key, value, _)) = read.into_iter().find(|(.., allowed)| !allowed) {
            return Err(wrong(format!(
                "{key} of CNI_ARGS is {value:?}, which no object of Kubernetes has"
            )));
        }
        Ok(Self {
            namespace,
            name,
            uid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_its_uid_is_refused() {
        let read = PodName::read("K8S_POD_NAMESPACE=n;K8S_POD_NAME=p;K8S_POD_UID=u").unwrap();
        assert_eq!((&*read.namespace, &*read.name, &*read.uid), ("n", "p", "u"));
        let error = PodName::read("K8S_POD_NAMESPACE=n;K8S_POD_NAME=p").unwrap_err();
        assert_eq!(error.code, Code::InvalidEnvironment);
        assert!(error.why.contains(UID));
        for (key, text) in [
            (UID, "K8S_POD_NAMESPACE=n;K8S_POD_NAME=p;K8S_POD_UID="),
            (
                "K8S_POD_NAME ",
                "K8S_POD_NAMESPACE=n;K8S_POD_NAME=../p;K8S_POD_UID=u",
            ),
            (
                "K8S_POD_NAMESPACE ",
                "K8S_POD_NAMESPACE=;K8S_POD_NAME=p;K8S_POD_UID=u",
            ),
        ] {
            let error = PodName::read(text).unwrap_err();
            assert_eq!(error.code, Code::InvalidEnvironment);
            assert!(error.why.contains(key), "{}", error.why);
        }
    }
}
