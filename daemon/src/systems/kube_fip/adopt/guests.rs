//! What the original left in the guests: releases, and the DaemonSet of Harvester whose selector it replaced.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::Text;
use fipd_crds::kube_fip::{KUBE_SYSTEM, KUBE_VIP};
use futures::StreamExt as _;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::ConfigMap};
use serde_json::Value;

use crate::{
    adopt::{FindingKind, TakeoverReport},
    clusters::ClusterSession,
    controller::{
        client::{CallError, Remote},
        kind::{CONFIG_MAP, DAEMON_SET, SECRET},
        store::Key,
    },
    guests::{
        GuestBoard,
        access::GuestAccess,
        charts::{
            ChartRelease, InstalledReleases, ReleaseMark, ReleaseOwner, newest_revision,
            release_owner,
        },
        names::ClusterNames,
        objects::Texts,
    },
    helm,
    systems::kube_fip::{
        floating_ip::FipView,
        guest::{
            LOOK, SYSTEM,
            config::{self, GuestConfig},
            harvester_kube_vip,
            observe::{CONFIG, is_guest},
        },
        settings::KubeFipSettings,
    },
};

/// Guests that are looked into at once.
const AT_ONCE: usize = 16;

/// What was found in one guest.
#[derive(Debug, Default, PartialEq, Eq)]
struct GuestLeftovers {
    releases: FoundReleases,
    /// The selectors of Harvester's kube-vip were replaced; what they were by its chart, where that says it.
    replaced: Option<Option<Texts>>,
    /// What could not be looked at.
    unseen: Vec<String>,
}

/// Releases of kube-vip and its cloud provider that fipd did not install: namespace and name, and whether the settings name it so.
type FoundReleases = BTreeMap<String, bool>;

/// Looks into every guest that a FloatingIP is for.
pub async fn report(
    session: &ClusterSession,
    board: &GuestBoard,
    fips: &[(Key, FipView)],
    report: &mut TakeoverReport,
) {
    let named = fips
        .iter()
        .filter_map(|(key, fip)| Some((Text::clone(&key.namespace), fip.cluster.clone()?)));
    let guests: BTreeMap<Text, String> = named.filter(|(id, _)| is_guest(id)).collect();
    report.count("Guest clusters", guests.len());
    let settings = session.settings.of::<KubeFipSettings>();
    let names = ClusterNames::default();
    guests
        .iter()
        .for_each(|(id, name)| names.note(id, Some(name)));
    let insecure = settings.insecure_skip_tls_verify;
    let access = GuestAccess::new(session, board, Arc::new(names), insecure);
    let (access, wanted) = (&access, &wanted(session).await.releases);
    let looks = guests.into_iter().map(|(id, name)| async move {
        let look = async {
            match access.client(&id, &name).await {
                Ok(remote) => leftovers(&remote, wanted)
                    .await
                    .map_err(|error| error.to_string()),
                Err(stop) => Err(stop.text()),
            }
        };
        let found = in_time(look).await;
        access.rest(&id);
        (name, found)
    });
    let looks = futures::stream::iter(looks);
    let mut found: Vec<_> = looks.buffer_unordered(AT_ONCE).collect().await;
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (name, found) in found {
        match found {
            Ok(found) => found.tell(&name, report),
            Err(why) => report.unseen.push(format!("guest cluster {name}: {why}")),
        }
    }
}

/// Ends a look that takes too long: each of its requests has a deadline of its own, and there may be hundreds.
async fn in_time(
    look: impl Future<Output = Result<GuestLeftovers, String>>,
) -> Result<GuestLeftovers, String> {
    let looked = tokio::time::timeout(LOOK, look).await;
    looked.unwrap_or_else(|_| Err(format!("a look takes longer than {} s", LOOK.as_secs())))
}

/// What the settings of the original say. Where they cannot be read the defaults count.
async fn wanted(session: &ClusterSession) -> GuestConfig {
    let settings = session.settings.of::<KubeFipSettings>();
    let target = CONFIG_MAP.named(&settings.namespace, CONFIG);
    let remote = Remote::new(session.client.clone());
    let map: Option<ConfigMap> = remote.get(&target).await.unwrap_or_default();
    let data = map.and_then(|map| map.data).unwrap_or_default();
    let (good, _) = config::usable(&data, &Texts::new(), settings);
    GuestConfig::new(&good, settings)
}

async fn leftovers(remote: &Remote, wanted: &[ChartRelease]) -> Result<GuestLeftovers, CallError> {
    let (releases, unseen) = match InstalledReleases::read(remote, SYSTEM).await {
        Ok(installed) => releases(remote, &installed, wanted).await,
        // The rights may be for the namespaces of the settings alone.
        Err(error @ CallError::Rejected(..)) => {
            let why = format!("releases under other names than the settings': {error}");
            (named_releases(remote, wanted).await?, vec![why])
        }
        Err(error) => return Err(error),
    };
    let target = DAEMON_SET.named(KUBE_SYSTEM, KUBE_VIP);
    let found: Option<DaemonSet> = remote.get(&target).await?;
    let replaced = match found.is_some_and(|found| harvester_kube_vip::is_alone(&found)) {
        true => Some(by_chart(remote).await?),
        false => None,
    };
    Ok(GuestLeftovers {
        releases,
        replaced,
        unseen,
    })
}

/// Releases by the names of the settings or of the original, and others by their charts; and why those are not known.
async fn releases(
    remote: &Remote,
    installed: &InstalledReleases,
    wanted: &[ChartRelease],
) -> (FoundReleases, Vec<String>) {
    let is_wanted = |mark: &ReleaseMark| {
        let mut wanted = wanted.iter();
        wanted.any(|one| (&one.namespace, &one.name) == (&mark.namespace, &mark.name))
    };
    let is_named = |mark: &ReleaseMark| {
        let mut wanted = wanted.iter();
        is_wanted(mark) || wanted.any(|one| one.chart == mark.name)
    };
    let own_names = wanted.iter().filter_map(|one| {
        let release = one.parse().ok()?;
        release.chart.own_name().map(str::to_owned)
    });
    let charts = wanted.iter().map(|one| one.chart.clone());
    let charts: Vec<String> = charts.chain(own_names).collect();
    let (found, unseen) = installed.all_unmarked_of(remote, is_named, &charts).await;
    let adopted = installed.marks.iter();
    let adopted = adopted.filter(|mark| mark.owner != ReleaseOwner::Fipd);
    let all = found.iter().chain(adopted);
    let all = all.map(|mark| {
        let place = format!("{}/{}", mark.namespace, mark.name);
        (place, is_wanted(mark))
    });
    (all.collect(), unseen)
}

/// Releases by the names of the settings.
async fn named_releases(
    remote: &Remote,
    wanted: &[ChartRelease],
) -> Result<FoundReleases, CallError> {
    let mut releases = FoundReleases::new();
    for ChartRelease {
        namespace, name, ..
    } in wanted
    {
        match release_owner(remote, namespace, name, SYSTEM).await? {
            Some(ReleaseOwner::Other | ReleaseOwner::Adopted) => {
                releases.insert(format!("{namespace}/{name}"), true);
            }
            Some(ReleaseOwner::Fipd) | None => {}
        }
    }
    Ok(releases)
}

/// The selectors by the release of Harvester's cloud provider, which brought the DaemonSet.
async fn by_chart(remote: &Remote) -> Result<Option<Texts>, CallError> {
    let newest = newest_revision(remote, KUBE_SYSTEM, harvester_kube_vip::HARVESTER).await?;
    let Some(newest) = newest else {
        return Ok(None);
    };
    let secret: Option<Value> = remote.get(&SECRET.named(KUBE_SYSTEM, &newest)).await?;
    let manifest = secret.and_then(|secret| helm::manifest(&secret).ok());
    Ok(manifest.and_then(|manifest| harvester_kube_vip::by_chart(&manifest)))
}

impl GuestLeftovers {
    fn tell(self, guest: &str, report: &mut TakeoverReport) {
        let unseen = self.unseen.into_iter();
        let unseen = unseen.map(|why| format!("guest cluster {guest}: {why}"));
        report.unseen.extend(unseen);
        for (release, is_wanted) in self.releases {
            let name = format!("{guest}: release {release}");
            let says = match is_wanted {
                true => {
                    "fipd did not install it: it is changed only with kubevipUpdate, and never uninstalled"
                }
                false => {
                    "fipd did not install it, and the settings name the release of this chart otherwise: it is never changed or uninstalled, and fipd installs none beside it"
                }
            };
            report.fine(FindingKind::Program, name, says);
        }
        let Some(by_chart) = self.replaced else {
            return;
        };
        let pairs = |all: Texts| {
            let pairs = all.iter().map(|(key, value)| format!("{key}={value}"));
            pairs.collect::<Vec<_>>().join(", ")
        };
        let was = match by_chart {
            // It has none, and only the one that switches it off was added.
            Some(none) if none.is_empty() => return,
            Some(all) => format!("by its chart it was {}", pairs(all)),
            None => "its chart does not say what it was".to_owned(),
        };
        let name = format!("{guest}: DaemonSet {KUBE_SYSTEM}/{KUBE_VIP}");
        let says = format!(
            "kube-fip-operator replaced the nodeSelector of Harvester's kube-vip; {was}: write it again beside the one that is there, or upgrade release {}",
            harvester_kube_vip::HARVESTER
        );
        report.wrong(FindingKind::Leftover, name, says);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::client::testing::canned;

    const REPLACED: &str = r#"{"metadata":{"annotations":{"meta.helm.sh/release-name":"harvester-cloud-provider"}},
        "spec":{"selector":{},"template":{"spec":{"containers":[],
        "nodeSelector":{"node-role.kubernetes.io/harvester-kube-vip-disabled":"true"}}}}}"#;
    const MANIFEST: &str = "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: kube-vip}\nspec: {selector: {}, template: {spec: {containers: [], nodeSelector: {role: master}}}}\n";

    fn defaults() -> GuestConfig {
        GuestConfig::new(&Texts::new(), &KubeFipSettings::default())
    }

    fn listed(names: &[&str]) -> &'static str {
        let items = names.iter().map(|name| {
            serde_json::json!({
                "metadata": {
                    "name": format!("sh.helm.release.v1.{name}.v1"), "namespace": KUBE_SYSTEM,
                    "resourceVersion": "7",
                    "labels": { "owner": "helm", "name": name, "version": "1", "status": "deployed" },
                },
            })
        });
        let items: Vec<Value> = items.collect();
        serde_json::json!({ "items": items }).to_string().leak()
    }

    #[tokio::test]
    async fn a_selector_that_was_replaced_is_told_with_what_the_chart_says() {
        let secret = helm::with_manifest(MANIFEST).to_string();
        let (remote, _) = canned(&[
            ("GET", 404, "no HelmCharts"),
            ("GET", 200, listed(&["kube-vip"])),
            ("GET", 200, REPLACED),
            ("GET", 200, listed(&["harvester-cloud-provider"])),
            ("GET", 200, secret.leak()),
        ]);
        let found = leftovers(&remote, &defaults().releases).await.unwrap();
        let named = ("kube-system/kube-vip".to_owned(), true);
        assert_eq!(found.releases, FoundReleases::from([named]));
        let mut report = TakeoverReport::default();
        found.tell("prod", &mut report);
        let [release, selector] = report.findings.as_slice() else {
            panic!("{:?}", report.findings);
        };
        assert!(release.fine && release.name == "prod: release kube-system/kube-vip");
        assert!(!selector.fine && selector.says.contains("by its chart it was role=master"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_takes_too_long_is_told_as_unseen() {
        let begun = tokio::time::Instant::now();
        let found = in_time(std::future::pending()).await;
        assert_eq!(begun.elapsed().as_secs(), LOOK.as_secs());
        assert_eq!(found, Err("a look takes longer than 120 s".to_owned()));
        let quick = in_time(std::future::ready(Ok(GuestLeftovers::default())));
        assert_eq!(quick.await, Ok(GuestLeftovers::default()));
    }

    #[tokio::test]
    async fn a_guest_as_its_chart_has_it_is_fine() {
        let none = ("GET", 200, listed(&[]));
        let (remote, _) = canned(&[("GET", 404, "no"), none, ("GET", 404, "no")]);
        let found = leftovers(&remote, &defaults().releases).await.unwrap();
        assert_eq!(found, GuestLeftovers::default());
        let mut report = TakeoverReport::default();
        let none = GuestLeftovers {
            replaced: Some(Some(Texts::new())),
            ..GuestLeftovers::default()
        };
        none.tell("prod", &mut report);
        assert!(report.findings.is_empty());
        let unknown = GuestLeftovers {
            replaced: Some(None),
            ..GuestLeftovers::default()
        };
        unknown.tell("prod", &mut report);
        assert!(report.findings[0].says.contains("does not say"));
    }

    /// The Secrets say of which chart a release is, and so does a HelmChart that helm-controller has not installed yet.
    #[tokio::test]
    async fn releases_of_the_charts_are_named_under_any_name() {
        let object = r#"{"items":[{"apiVersion":"helm.cattle.io/v1","kind":"HelmChart",
            "metadata":{"name":"provider","namespace":"kube-system"},
            "spec":{"chart":"kube-vip-cloud-provider","targetNamespace":"vips"}}]}"#;
        let secret = |chart: &str| {
            let secret = helm::secret(1, "deployed", (chart, "0.6.4"), &serde_json::json!({}));
            &*secret.to_string().leak()
        };
        let (remote, _) = canned(&[
            ("GET", 200, object),
            ("GET", 200, listed(&["db", "our-vip"])),
            ("GET", 200, secret("postgres")),
            ("GET", 200, secret("kube-vip")),
            ("GET", 404, "no DaemonSet"),
        ]);
        let found = leftovers(&remote, &defaults().releases).await.unwrap();
        let named = ["kube-system/our-vip", "vips/provider"].map(|one| (one.to_owned(), false));
        assert_eq!(found.releases, FoundReleases::from(named));
        let mut report = TakeoverReport::default();
        found.tell("prod", &mut report);
        let names: Vec<&str> = report.findings.iter().map(|one| &*one.name).collect();
        let expected = [
            "prod: release kube-system/our-vip",
            "prod: release vips/provider",
        ];
        assert_eq!(names, expected);
        assert!(report.findings[0].says.contains("none beside it"));
    }

    #[tokio::test]
    async fn without_the_right_to_list_them_all_those_of_the_settings_are_named() {
        let (remote, _) = canned(&[
            ("GET", 403, "helmcharts is forbidden"),
            ("GET", 200, listed(&["kube-vip"])),
            ("GET", 200, listed(&[])),
            ("GET", 404, "no DaemonSet"),
        ]);
        let found = leftovers(&remote, &defaults().releases).await.unwrap();
        let named = ("kube-system/kube-vip".to_owned(), true);
        assert_eq!(found.releases, FoundReleases::from([named]));
        let mut report = TakeoverReport::default();
        found.tell("prod", &mut report);
        let [unseen] = report.unseen.as_slice() else {
            panic!("{:?}", report.unseen);
        };
        assert!(unseen.contains("forbidden") && unseen.starts_with("guest cluster prod"));
    }
}
