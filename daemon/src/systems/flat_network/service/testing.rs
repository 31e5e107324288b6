//! Controllers of Services over a server of canned answers.

use std::sync::Arc;

use fipd_core::System;
use parking_lot::Mutex;
use serde_json::json;

use super::{observe::FlatServiceView, watches::ServiceWatches};
use crate::{
    clock,
    clusters::testing,
    controller::{
        client::testing::{Asked, canned, serving},
        context::Context,
        events::Events,
        kind::SERVICE,
        site::Site,
    },
    ipam::Ipam,
};

/// What the server was asked.
pub type AllAsked = Arc<Mutex<Vec<Asked>>>;

/// What a controller is made of; it works for as long as the last of them lives.
pub async fn parts(
    answers: &[(&'static str, u16, &'static str)],
) -> (
    Context<FlatServiceView>,
    Arc<ServiceWatches>,
    AllAsked,
    impl Sized,
) {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
    let (remote, asked) = canned(answers);
    let (unused, _) = serving(|_| (200, json!({})));
    let session = testing::session(unused.client(), &ipam).await;
    let site = Arc::new(Site::new(session, System::claims()));
    let quiet = || std::future::ready(());
    let recorder = site.session.recorder.clone();
    let events = Arc::new(Events::start(recorder, site.cancel(), quiet));
    let watches = Arc::<ServiceWatches>::default();
    let services = Arc::clone(&watches.services);
    let context = Context::new(SERVICE, site, remote, events, services);
    (context, watches, asked, (dir, writer))
}
