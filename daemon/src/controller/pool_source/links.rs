//! The links of pools that name networks of Harvester clusters.

use std::{sync::Arc, time::Duration};

use super::{PoolController, PoolSource, SourceFacts, not_ready, state::VLAN_UNKNOWN};
use crate::{
    clusters::short,
    config::{PoolFacts, PoolLink},
    controller::{
        attachments::{AttachmentFault, AttachmentLookup, Attachments, HarvesterNetwork},
        conditions::ConditionUpdate,
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

    /// What decides the network of a pool. An existing one stays where it is while its link is not known.
    pub(super) fn link(
        &self,
        key: &Key,
        object: &S::View,
        is_new: bool,
    ) -> Result<PoolLink, ConditionUpdate> {
        let facts = self.source.facts(object);
        let lookup = self.lookup(object);
        match placed_link(&self.context.site, key, &facts, &lookup, is_new) {
            Some(link) => Ok(link),
            None => {
                let (_, why) = unread(&facts, &lookup).unwrap_or_default();
                let message = format!(
                    "a [[network]] rule asks for the VLAN of the pool or its physical network: {why}"
                );
                Err(not_ready(VLAN_UNKNOWN, message))
            }
        }
    }

    /// Reason and text of why the link is not known, where that is to be shown.
    pub(super) fn unread(&self, key: &Key, object: &S::View) -> Option<(&'static str, String)> {
        let (facts, lookup) = (self.source.facts(object), self.lookup(object));
        // Most clusters without such definitions need none.
        let unserved = AttachmentLookup::Unread(AttachmentFault::Unserved);
        if lookup == unserved {
            placed_link(&self.context.site, key, &facts, &lookup, true)
                .is_none()
                .then_some(())?;
        }
        unread(&facts, &lookup)
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

/// What rules see of a link; `None`: one of them asks for that of a new pool, which is not known.
fn placed_link(
    site: &Site,
    key: &Key,
    facts: &SourceFacts<'_>,
    lookup: &AttachmentLookup,
    is_new: bool,
) -> Option<PoolLink> {
    match lookup {
        AttachmentLookup::Foreign => Some(PoolLink::NONE),
        AttachmentLookup::Known(known) => Some(PoolLink {
            vlan: known.vlan,
            physical: known.physical.clone(),
            unread: false,
        }),
        AttachmentLookup::Unread(_) | AttachmentLookup::Pending if is_new => {
            let facts = pool_facts(site, key, facts, &PoolLink::NONE);
            (!site.session.rules_ask_for_vlan(&facts)).then_some(PoolLink::NONE)
        }
        AttachmentLookup::Unread(_) | AttachmentLookup::Pending => Some(PoolLink {
            unread: true,
            ..PoolLink::NONE
        }),
    }
}

/// The same, as it is known now and for who has no controller.
pub fn link_of(
    site: &Site,
    key: &Key,
    facts: &SourceFacts<'_>,
    attachments: Option<&Attachments>,
    is_new: bool,
) -> Option<PoolLink> {
    let lookup = match attachments.zip(facts.harvester) {
        Some((all, of)) => all.lookup(of),
        None => AttachmentLookup::Foreign,
    };
    // What it is may be read within a moment.
    let decided = !is_new || lookup != AttachmentLookup::Pending;
    decided.then(|| placed_link(site, key, facts, &lookup, is_new))?
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
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, path::Path};

    use fipd_core::{System, Text};
    use futures::future::BoxFuture;
    use kube::{Client, client::Body};

    use super::*;
    use crate::{
        clock,
        clusters::testing,
        config::Config,
        controller::attachments::{Attachment, HarvesterAccess, HarvesterWay},
        ipam::Ipam,
    };

    const RULES: &str = "[[network]]\nname = \"lab\"\nmatch = [{ pool = \"lab-*\" }]\n\
        [[network]]\nname = \"blue\"\nmatch = [{ vlan = 7, pool = \"web-*\" }]\n";

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
    async fn a_new_pool_waits_for_its_vlan_where_a_rule_asks_for_it_and_others_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let client = Client::new(tower::service_fn(silent), "default");
        let config = Config::parse(RULES, Path::new("/")).expect("a configuration");
        let session = testing::session_under(client, &ipam, config).await;
        let site = Site::new(session, System::rancher_fip());
        let facts = SourceFacts {
            harvester: Some(HarvesterNetwork {
                cluster: "hv",
                network: "vlan7",
            }),
            ..SourceFacts::default()
        };
        let link = |pool: &str, lookup: &AttachmentLookup, is_new: bool| {
            placed_link(&site, &Key::new("", pool), &facts, lookup, is_new)
        };
        let fault = AttachmentLookup::Unread(AttachmentFault::Absent);
        let rules_are_known = async {
            while link("web-1", &fault, true).is_some() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let within = tokio::time::timeout(Duration::from_secs(5), rules_are_known).await;
        assert!(within.is_ok(), "a rule asks for the VLAN");
        for lookup in [&fault, &AttachmentLookup::Pending] {
            assert_eq!(link("web-1", lookup, true), None);
            for pool in ["lab-1", "other"] {
                assert_eq!(link(pool, lookup, true), Some(PoolLink::NONE), "{pool}");
            }
            let stays = link("web-1", lookup, false);
            assert!(stays.is_some_and(|link| link.unread));
        }
        let foreign = link("web-1", &AttachmentLookup::Foreign, false);
        assert_eq!(foreign, Some(PoolLink::NONE));
        let (vlan, physical) = (Some(7), Some("mgmt".into()));
        let known = AttachmentLookup::Known(Attachment { vlan, physical });
        let known = link("web-1", &known, true).expect("it is known");
        assert_eq!((known.vlan, known.unread), (Some(7), false));

        // What is being read is nothing to tell of a new pool.
        let attachments = Attachments::new(Box::new(Silent), site.memory());
        let link = |is_new| {
            let key = Key::new("", "other");
            link_of(&site, &key, &facts, Some(&attachments), is_new)
        };
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
