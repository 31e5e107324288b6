//! A pool that an admin takes from one network to another and back while others ask it for addresses.

use std::path::PathBuf;

use fipd_tests::testbed::{Method, UnixConnection};
use serde_json::{Value, json};

use crate::parsed;

const NETWORKS: [&str; 2] = ["default", "elsewhere"];

/// Where the pool is, as far as is known.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    at: usize,
    /// Asked to go to the other network, and killed before the answer.
    open: bool,
}

impl Place {
    pub const START: Self = Self { at: 0, open: false };

    /// Moves the pool until the daemon is gone.
    pub async fn wander(mut self, socket: PathBuf) -> Self {
        let Ok(mut connection) = UnixConnection::open(&socket).await else {
            return self;
        };
        loop {
            self.open = true;
            let to = json!({ "network": NETWORKS[1 - self.at] });
            let path = "/api/v1/pools/kill/move-network";
            let Ok(reply) = connection.call(Method::POST, path, Some(&to)).await else {
                return self;
            };
            assert_eq!(reply.status, 200, "{reply:?}");
            self = Self {
                at: 1 - self.at,
                open: false,
            };
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        }
    }

    /// The pool is in the one network or the other, and all of its leases with it. Answers how many requests were open.
    pub fn settle(&mut self, pool: &Value, leases: &[Value]) -> usize {
        let network = pool["network"].as_str().expect("a network");
        let now = NETWORKS.iter().position(|name| *name == network);
        let now = now.expect("one of the two");
        assert!(
            self.open || now == self.at,
            "{self:?}, but it is in {network}"
        );
        for lease in leases {
            assert_eq!(lease["network"], pool["network"], "{lease}");
        }
        let open = usize::from(self.open);
        *self = Self {
            at: now,
            open: false,
        };
        open
    }
}

/// Makes the other network.
pub async fn prepare(connection: &mut UnixConnection) {
    let name = json!({ "name": NETWORKS[1] });
    let made = connection
        .call(Method::POST, "/api/v1/networks", Some(&name))
        .await
        .expect("an answer");
    assert_eq!(made.status, 200, "{:?}", parsed(&made));
}
