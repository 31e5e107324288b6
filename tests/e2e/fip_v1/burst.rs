//! A burst of requests amid which fipd is killed.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;

use super::{Client, Rancher, text};

/// What each Service heard.
pub type Heard = Vec<Result<(u16, Value), String>>;

impl Rancher {
    /// That many Services ask at once, and fipd is killed before it is done with them; their names, and what they heard.
    pub async fn killed_amid_burst(
        &mut self,
        web: &Client,
        prefix: &str,
        count: usize,
    ) -> (Vec<String>, Heard) {
        let names: Vec<String> = (0..count)
            .map(|number| format!("{prefix}-{number}"))
            .collect();
        let burst = {
            let (web, names) = (web.clone(), names.clone());
            tokio::spawn(async move {
                join_all(names.iter().map(|name| web.request(name, "net", ""))).await
            })
        };
        tokio::time::sleep(Duration::from_millis(250)).await;
        self.scenario.fipd.kill9().unwrap();
        (names, burst.await.unwrap())
    }

    /// Whoever heard an address hears it again, and no two hear the same; all of them.
    pub async fn ask_again(
        &self,
        web: &Client,
        names: &[String],
        before: Heard,
    ) -> BTreeSet<String> {
        let mut addresses = BTreeSet::new();
        for (name, before) in names.iter().zip(before) {
            let after = self.given(web, name, "net").await;
            if let Ok((200, before)) = before {
                assert_eq!(before["ipaddr"], after["ipaddr"], "{name}");
            }
            let address = text(&after, "ipaddr").to_owned();
            assert!(addresses.insert(address), "{after}");
        }
        addresses
    }
}
