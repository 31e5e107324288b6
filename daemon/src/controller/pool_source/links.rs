//! The links of pools that name networks of Harvester clusters.

use std::{net::IpAddr, sync::Arc, time::Duration};

use fipd_core::{Pool, PoolSpec};

use super::{PoolController, PoolSource, SourceFacts};
use crate::{
    clusters::short,
    config::{PoolFacts, PoolLink},
    controller::{
        attachments::{AttachmentFault, AttachmentLookup, Attachments, HarvesterNetwork},
        site::Site,
        store::Key,
    },
};

/// A start waits so long at most for the links of new pools: longer than it takes to give up on a Harvester cluster.
const READ_WITHIN: Duration = Duration::from_secs(35);
/// Pools look at their links again after a change, but no more often than this.
const PAUSE: Duration = Duration::from_secs(1);

impl<S: PoolSource> PoolController<S> {
    /// Whether the network of a new pool may depend on what is being read.
    pub(super) fn awaits_link(&self, key: &Key, object: &S::View) -> bool {
        self.lookup(object) == AttachmentLookup::Pending && self.existing(key).is_none()
    }

    /// What decides the network of a pool. An existing one stays where it is while its link is not known; a new one is made as
    /// if it had none, so that its addresses have a network before anything is adopted.
    pub(super) fn link(&self, object: &S::View, is_new: bool) -> PoolLink {
        if let Some(own) = self.source.own_link(object) {
            return own;
        }
        placed_link(&self.lookup(object), is_new)
    }

    /// Reason and text of why the link is not known, where that is to be shown.
    pub(super) fn unread(&self, key: &Key, object: &S::View) -> Option<(&'static str, String)> {
        let (facts, lookup) = (self.source.facts(object), self.lookup(object));
        // Most clusters without such definitions need none.
        let unserved = AttachmentLookup::Unread(AttachmentFault::Unserved);
        if lookup == unserved {
            let site = &self.context.site;
            let facts = pool_facts(site, key, &facts, &PoolLink::NONE);
            site.session.rules_ask_for_vlan(&facts).then_some(())?;
        }
        unread(&facts, &lookup)
    }

    /// The gateway that the network of the object has, where it is in the subnet of the pool; the one before, while that is not
    /// known.
    pub(super) fn gateway(
        &self,
        object: &S::View,
        spec: &PoolSpec,
        existing: Option<&Pool>,
    ) -> Option<IpAddr> {
        let subnet = spec.subnet.filter(|_| self.source.asks_for_gateway())?;
        let known = match self.lookup(object) {
            AttachmentLookup::Known(known) => known.gateway,
            AttachmentLookup::Foreign if self.source.facts(object).harvester.is_none() => None,
            // The cluster may be called otherwise now.
            AttachmentLookup::Foreign | AttachmentLookup::Unread(_) | AttachmentLookup::Pending => {
                existing.and_then(|pool| pool.spec.gateway)
            }
        };
        known.filter(|gateway| subnet.contains(gateway))
    }

    fn lookup(&self, object: &S::View) -> AttachmentLookup {
        let of = self.source.facts(object).harvester;
        let attachments = self.source.attachments().zip(of);
        attachments.map_or(AttachmentLookup::Foreign, |(all, of)| {
            all.want(of);
            all.lookup(of)
        })
    }

    /// Waits for the links of new pools, for a while at most.
    pub(super) async fn links_read(&self) {
        let Some(attachments) = self.source.attachments() else {
            return;
        };
        let mut changes = attachments.changes();
        let awaits = |(key, object): &(Key, Arc<S::View>)| self.awaits_link(key, object);
        let read = async {
            loop {
                // Each of them has to be asked for.
                let all = self.context.objects.all().into_iter();
                if all.filter(awaits).count() == 0 || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(READ_WITHIN, read).await;
    }

    /// Queues the objects that name networks whenever what is known of those changes, until the session ends.
    pub async fn follow_links(self: Arc<Self>) {
        let Some(attachments) = self.source.attachments() else {
            return;
        };
        let mut changes = attachments.changes();
        // Something may have changed since the pools were defined.
        changes.mark_changed();
        let follow = async {
            while changes.changed().await.is_ok() {
                let touched = attachments.take_touched();
                for (key, object) in self.context.objects.all() {
                    let harvester = self.source.facts(&object).harvester;
                    if harvester.is_some_and(|of| attachments.is_touched(&touched, of)) {
                        self.context.queue_status(key);
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let _: Option<()> = self.context.site.cancel().run_until_cancelled(follow).await;
    }
}

/// What rules see of a link.
fn placed_link(lookup: &AttachmentLookup, is_new: bool) -> PoolLink {
    match lookup {
        AttachmentLookup::Foreign => PoolLink::NONE,
        AttachmentLookup::Known(known) => PoolLink {
            vlan: known.vlan,
            physical: known.physical.clone(),
            unread: false,
        },
        AttachmentLookup::Unread(_) | AttachmentLookup::Pending => PoolLink {
            unread: !is_new,
            ..PoolLink::NONE
        },
    }
}

/// The same, as it is known now and for who has no controller; `None`: it may be read within a moment.
pub fn link_of(
    facts: &SourceFacts<'_>,
    attachments: Option<&Attachments>,
    is_new: bool,
) -> Option<PoolLink> {
    let lookup = match attachments.zip(facts.harvester) {
        Some((all, of)) => all.lookup(of),
        None => AttachmentLookup::Foreign,
    };
    let decided = !is_new || lookup != AttachmentLookup::Pending;
    decided.then(|| placed_link(&lookup, is_new))
}

fn unread(facts: &SourceFacts<'_>, lookup: &AttachmentLookup) -> Option<(&'static str, String)> {
    let HarvesterNetwork { cluster, network } = facts.harvester?;
    let AttachmentLookup::Unread(fault) = lookup else {
        return None;
    };
    let (network, cluster) = (short(network), short(cluster));
    let text =
        format!("NetworkAttachmentDefinition {network} of Harvester cluster {cluster}: {fault}");
    Some((fault.reason(), text))
}

/// What decides the network of the pool of an object.
pub fn pool_facts<'a>(
    site: &'a Site,
    key: &'a Key,
    facts: &SourceFacts<'a>,
    link: &'a PoolLink,
) -> PoolFacts<'a> {
    PoolFacts {
        cluster: &site.session.names,
        system: &site.system,
        namespace: Some(&*key.namespace).filter(|namespace| !namespace.is_empty()),
        interface: facts.interface.filter(|name| !name.is_empty()),
        link,
        pool: &key.name,
        annotation: facts.network,
        own_network: None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use fipd_core::{System, Text};
    use futures::future::BoxFuture;
    use kube::{Client, client::Body};

    use super::*;
    use crate::{
        clock,
        clusters::testing,
        controller::attachments::{Attachment, HarvesterAccess, HarvesterWay},
        ipam::Ipam,
    };

    /// Every cluster is a Harvester cluster that does not answer.
    struct Silent;

    impl HarvesterAccess for Silent {
        fn find(&self, cluster: &str) -> Result<Option<Text>, String> {
            Ok(Some(cluster.into()))
        }

        fn way<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<HarvesterWay, String>> {
            Box::pin(std::future::pending())
        }
    }

    async fn silent(_: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_new_pool_does_not_wait_for_its_vlan_and_an_existing_one_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let client = Client::new(tower::service_fn(silent), "default");
        let session = testing::session(client, &ipam).await;
        let site = Site::new(session, System::rancher_fip());
        let facts = SourceFacts {
            harvester: Some(HarvesterNetwork {
                cluster: "hv",
                network: "vlan7",
            }),
            ..SourceFacts::default()
        };
        let fault = AttachmentLookup::Unread(AttachmentFault::Absent);
        for lookup in [&fault, &AttachmentLookup::Pending] {
            assert_eq!(placed_link(lookup, true), PoolLink::NONE);
            assert!(placed_link(lookup, false).unread);
        }
        let foreign = placed_link(&AttachmentLookup::Foreign, false);
        assert_eq!(foreign, PoolLink::NONE);
        let (vlan, physical) = (Some(7), Some("mgmt".into()));
        let known = AttachmentLookup::Known(Attachment {
            vlan,
            physical,
            gateway: None,
        });
        let known = placed_link(&known, true);
        assert_eq!((known.vlan, known.unread), (Some(7), false));

        // What is being read is nothing to tell of a new pool.
        let attachments = Attachments::new(Box::new(Silent), site.memory());
        let link = |is_new| link_of(&facts, Some(&attachments), is_new);
        assert_eq!(link(true), None);
        assert!(link(false).is_some_and(|link| link.unread));

        let long = "x".repeat(1 << 20);
        let facts = SourceFacts {
            harvester: Some(HarvesterNetwork {
                cluster: &long,
                network: &long,
            }),
            ..facts
        };
        let (reason, text) = unread(&facts, &fault).expect("a reason");
        assert_eq!(reason, "NotFound");
        assert!(text.len() < 16 << 10, "a condition has room for it");
    }
}
