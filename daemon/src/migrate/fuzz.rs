//! Objects and files of macvlan as anybody has them.
#![allow(clippy::unwrap_used, reason = "what fails here is a finding")]

use serde_json::Value;

use super::{
    file::{self, FileObject},
    service, subnet,
    workload::{self, WorkloadKind, WorkloadPlan},
};
use crate::controller::merge_patch::testing::merged;

const WORKLOADS: [WorkloadKind; 5] = [
    WorkloadKind::Deployment,
    WorkloadKind::DaemonSet,
    WorkloadKind::StatefulSet,
    WorkloadKind::CronJob,
    WorkloadKind::Job,
];

/// Reads the file of a backup, and converts an object: what is refused has a reason, and nothing has to be converted twice.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match file::read(&text) {
        Ok(objects) => objects.iter().for_each(|object| match object {
            FileObject::Restored(object) => {
                assert!(!object.key.name.is_empty());
                assert!(object.body["metadata"]["uid"].is_null());
            }
            FileObject::Other(kind, _) => assert!(!kind.is_empty()),
        }),
        Err(why) => assert!(!why.is_empty(), "refused without a word"),
    }
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    match subnet::convert(&object) {
        Ok(converted) => {
            let made = serde_json::to_value(&converted.subnet).unwrap();
            let read = serde_json::from_value(made).unwrap();
            assert_eq!(converted.subnet, read);
        }
        Err(why) => assert!(!why.is_empty(), "refused without a word"),
    }
    if service::is_companion(&object) {
        match service::convert(&object) {
            Ok(made) => assert!(!service::is_companion(&made), "{made}"),
            Err(why) => assert!(!why.is_empty(), "refused without a word"),
        }
    }
    for kind in WORKLOADS {
        if let WorkloadPlan::Change(change) = workload::plan(kind, &object) {
            let after = merged(&object, &change.patch);
            let again = workload::plan(kind, &after);
            assert!(!matches!(again, WorkloadPlan::Change(_)), "{after}");
        }
    }
}
