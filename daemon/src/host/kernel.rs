//! The kernel's rules: both sockets together.

use std::{io, time::Duration};

use fipd_core::{Family, host::KernelRule};

use super::{
    events::{News, RuleEvents},
    socket::{NetlinkError, Requests},
};
use crate::backoff::Backoff;

/// Times that a list is read again at once when others change rules meanwhile.
const AGAIN: usize = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Kernel {
    pub requests: Requests,
    pub events: RuleEvents,
    /// Heard, and not acted upon yet.
    pub news: News,
}

/// All rules of both families.
pub(super) struct Listing {
    /// In the kernel's order.
    pub rules: Vec<KernelRule>,
    /// Nobody changed any meanwhile. Otherwise one may be told twice, or not at all, and nothing may be deleted by it.
    pub quiet: bool,
    /// Others changed rules of this tag just before.
    pub touched: bool,
}

impl Kernel {
    /// Hears from now on.
    pub fn open(protocol: u8) -> io::Result<Self> {
        let requests = Requests::open()?;
        let events = RuleEvents::open(&requests, protocol)?;
        Ok(Self {
            requests,
            events,
            news: News::default(),
        })
    }

    pub async fn list(&mut self) -> Result<Listing, NetlinkError> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut tried = 0;
        let mut touched = false;
        loop {
            // What happened before is in the list.
            let mut before = self.events.drain()?;
            touched |= before.tagged || before.overrun;
            before.foreign = false;
            before.tagged = false;
            self.news.add(before);
            let (mut rules, mut interrupted) = self.requests.rules(Family::V4).await?;
            let (more, also) = self.requests.rules(Family::V6).await?;
            rules.extend(more);
            interrupted |= also;
            let meanwhile = self.events.drain()?;
            self.news.links |= meanwhile.links;
            tried += 1;
            let quiet = !interrupted && !meanwhile.of_rules();
            if quiet || tried == AGAIN {
                self.news.add(meanwhile);
                return Ok(Listing {
                    rules,
                    quiet,
                    touched,
                });
            }
            tokio::time::sleep(backoff.pause()).await;
        }
    }
}
