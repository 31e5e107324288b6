//! What a system leaves in a cluster, and for what it wrote it. Pure but for what has to be looked up.

use std::collections::BTreeSet;

use fipd_core::{System, Text};
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::{Found, Step};
use crate::{
    config::{ClusterSettings, Webhook},
    controller::{
        client::Remote,
        kind::{Kind, VALIDATING_WEBHOOK_CONFIGURATION},
        store::Key,
    },
};

/// What fipd did in a cluster, as far as it is known.
#[derive(Clone)]
pub struct Past {
    /// Systems that were on there since it was last left cleanly.
    pub systems: BTreeSet<System>,
    pub settings: ClusterSettings,
    /// Whether a cluster manager may have put something there.
    pub guest: bool,
    /// Ranchers whose cluster manager has not said so either way.
    pub unheard: BTreeSet<Text>,
}

/// What a system leaves, and how it goes.
pub trait Leaving: Sync {
    /// In the order in which they are left: who waits for something comes before it.
    fn leftovers(&self) -> &'static [Leftover] {
        &[]
    }

    fn marks(&self) -> Marks {
        Marks::default()
    }

    /// The Leases that it takes, and whether it did.
    fn locks(&self, _past: &Past) -> Vec<(Key, bool)> {
        Vec::new()
    }

    /// What goes before anything else.
    fn first<'a>(&'a self, _remote: &'a Remote, _past: &'a Past) -> BoxFuture<'a, Found> {
        Box::pin(std::future::ready(Found::default()))
    }

    /// What goes after the leftovers of all systems.
    fn last<'a>(&'a self, _remote: &'a Remote, _past: &'a Past) -> BoxFuture<'a, Found> {
        Box::pin(std::future::ready(Found::default()))
    }

    /// What it has put into clusters that the one called `name` manages; asked for before anything goes.
    fn elsewhere<'a>(
        &'a self,
        _remote: &'a Remote,
        _past: &'a Past,
        _name: &'a str,
    ) -> BoxFuture<'a, Elsewhere> {
        Box::pin(std::future::ready(Elsewhere::default()))
    }
}

/// What is in other clusters.
#[derive(Default)]
pub struct Elsewhere {
    /// What stays there, and what to do about it.
    pub left: Vec<String>,
    /// Why it could not be read.
    pub unseen: Vec<String>,
    /// ConfigMaps that say so, which stay while anything does.
    pub needed: &'static [&'static str],
}

/// Marks that fipd alone puts on objects of others.
#[derive(Clone, Default)]
pub struct Marks {
    /// Those that nobody else takes off.
    pub finalizers: Vec<&'static str>,
    /// Whatever their value.
    pub labels: Vec<&'static str>,
    /// Those by which users ask for something stay.
    pub annotations: Vec<&'static str>,
    /// How annotations of that sort begin.
    pub prefixes: Vec<&'static str>,
}

/// Whether fipd may have written such a thing, so that not being allowed to look leaves something unseen.
type Wrote = fn(&Past) -> bool;

/// A kind in which fipd leaves something.
#[derive(Clone, Copy)]
pub struct Leftover {
    pub kind: Kind,
    /// Only there: elsewhere fipd writes none, and reads none.
    pub only_in: Option<&'static Places>,
    /// Those with fipd's label are its own, and go.
    pub own: bool,
    /// `None`: they are only asked for by name.
    pub listed: Option<Wrote>,
    /// Those that fipd knows by name, for roles that allow no list.
    pub named: Named,
    /// Whether fipd's marks on an object are its own, by the whole of it; `None`: nobody else writes such marks.
    pub is_ours: Option<fn(&Value, &Past) -> bool>,
    /// Whether an object goes that nobody but fipd would delete, by its metadata.
    pub goes: fn(&Value) -> bool,
    /// What else to write where marks go, by the annotations.
    pub restore: fn(&Map<String, Value>) -> Option<Value>,
}

/// Objects whose names are known.
#[derive(Clone, Copy)]
pub struct Named {
    pub names: &'static [&'static str],
    /// `None`: they are cluster-scoped.
    pub only_in: Option<&'static Places>,
    pub wrote: Wrote,
}

/// Namespaces of a system's programs.
pub struct Places {
    pub namespaces: fn(&Past) -> BTreeSet<String>,
    /// Those of them that fipd may have written in.
    pub written: fn(&Past, &str) -> bool,
}

impl Elsewhere {
    /// Whether the step would take away what is needed to clear other clusters.
    pub fn needs(&self, step: &Step) -> bool {
        let none = self.left.is_empty() && self.unseen.is_empty();
        let is_map = step.target.plural == "configmaps";
        !none && is_map && self.needed.contains(&step.target.name.as_str())
    }
}

impl Marks {
    /// Of all systems.
    pub fn of(systems: &[&dyn Leaving]) -> Self {
        let mut all = Self::default();
        for one in systems.iter().map(|one| one.marks()) {
            all.finalizers.extend(one.finalizers);
            all.labels.extend(one.labels);
            all.annotations.extend(one.annotations);
            all.prefixes.extend(one.prefixes);
        }
        all
    }
}

impl Past {
    /// Why what could not be seen may be nothing of fipd's.
    pub fn doubt(&self) -> Option<String> {
        let names: Vec<&str> = self.unheard.iter().map(|name| &**name).collect();
        (!names.is_empty()).then(|| {
            format!(
                "it is not known yet whether the cluster manager of {} has put that there: attach it, or wait until it is ready, \
                 and run it again",
                names.join(" or of ")
            )
        })
    }
}

/// Switched off, it is removed, and its right may be taken away then.
pub fn has_webhook(webhook: &Webhook) -> bool {
    webhook.enabled != Some(false)
}

impl Leftover {
    /// Objects of users that carry fipd's marks.
    pub const fn of(kind: Kind, listed: Wrote) -> Self {
        Self {
            kind,
            only_in: None,
            own: false,
            listed: Some(listed),
            named: Named {
                names: &[],
                only_in: None,
                wrote: |_| false,
            },
            is_ours: None,
            goes: |_| false,
            restore: |_| None,
        }
    }

    /// The configuration of an admission webhook.
    pub const fn validator(names: &'static [&'static str], wrote: Wrote) -> Self {
        Self {
            own: true,
            listed: None,
            named: Named {
                names,
                only_in: None,
                wrote,
            },
            ..Self::of(VALIDATING_WEBHOOK_CONFIGURATION, wrote)
        }
    }
}
