//! Helpers of tests.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// What was decoded is what is written again, to the last key.
#[track_caller]
pub fn same_again<T: DeserializeOwned + Serialize>(value: &Value) -> T {
    let typed: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), value);
    typed
}
