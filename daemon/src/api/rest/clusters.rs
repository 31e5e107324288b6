//! `/api/v1/clusters`.

use axum::{
    Json,
    extract::{FromRequestParts, State as Shared},
    response::Response,
};
use fipd_core::Actor;
use http::request::Parts;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};

use crate::{
    api::{
        Api,
        access::auth::Caller,
        etag::{IfMatch, IfNoneMatch, State},
        extract::{Body, Path, Query},
        page::Ask,
        problem::{Code, Problem},
        wire::{
            ClusterList, ClusterView, HeldBackView, Join, Outcome, PageQuery, SightedAddress,
            SightingsReport, SkipAdoption,
        },
    },
    clock,
    clusters::{self, CallError, ClusterSession, Clusters, ClustersError},
};

/// All clusters with their health.
#[utoipa::path(get, path = "/api/v1/clusters", tag = "clusters", params(PageQuery),
    responses((status = 200, body = ClusterList)))]
pub async fn list(
    Shared(clusters): Shared<Clusters>,
    Query(query): Query<PageQuery>,
) -> Result<Json<ClusterList>, Problem> {
    let ask = Ask::<String>::new(query.limit, query.cursor.as_deref())?;
    let all = clusters.views();
    let (clusters, next) = ask.walk(|after, limit| {
        let after = after.as_deref();
        let rest = all
            .iter()
            .filter(|one| after.is_none_or(|after| &*one.name > after));
        let page = Ask::<String> { limit, after: None };
        page.of(rest, |one| one.name.to_string(), |one| Some(view(one)))
    });
    Ok(Json(ClusterList { clusters, next }))
}

/// One cluster, by any of its names.
#[utoipa::path(get, path = "/api/v1/clusters/{name}", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = ClusterView, headers(("ETag" = String))), (status = 304)))]
pub async fn show(
    Shared(clusters): Shared<Clusters>,
    Path(name): Path<String>,
    known: IfNoneMatch,
) -> Result<Response, Problem> {
    let found = clusters.view(&name);
    let view = view(&found.ok_or_else(|| Problem::not_found("cluster", name))?);
    Ok(known.answer(&State::of(&view), &view))
}

/// A cluster of which an admin asks something.
pub struct NamedCluster {
    pub clusters: Clusters,
    pub actor: Actor,
    pub name: String,
    /// How the admin has read it.
    pub if_match: IfMatch,
}

impl NamedCluster {
    /// Its parts, unless the cluster is another than the admin has read. Asked directly before the work begins: a cluster
    /// changes by itself at any time. What does not exist is told by who looks for it.
    fn unchanged(self) -> Result<(Clusters, Actor, String), Problem> {
        let Self {
            clusters,
            actor,
            name,
            if_match,
        } = self;
        if let Some(found) = clusters.view(&name) {
            let state = State::of(&view(&found));
            if_match.check(&format!("cluster {name}"), Some(&state))?;
        }
        Ok((clusters, actor, name))
    }
}

impl FromRequestParts<Api> for NamedCluster {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, api).await?;
        let Path(name) = Path::<String>::from_request_parts(parts, api).await?;
        Ok(Self {
            clusters: api.clusters.clone(),
            actor: caller.actor,
            name,
            if_match: IfMatch::from_request_parts(parts, api).await?,
        })
    }
}

/// Frees the leases of a cluster that is gone for good.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/forget", tag = "clusters",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = Outcome), (status = 409, body = Problem)))]
pub async fn forget(named: NamedCluster) -> Result<Json<Outcome>, Problem> {
    let (clusters, actor, name) = named.unchanged()?;
    let leases = clusters.forget(&name, actor).await?;
    Ok(done(format!(
        "cluster {name} is forgotten, {leases} leases were released"
    )))
}

/// Lets a network give addresses although the cluster was never listed.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/skip-adoption", tag = "clusters",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)), request_body = SkipAdoption,
    responses((status = 200, body = Outcome)))]
pub async fn skip_adoption(
    named: NamedCluster,
    Body(body): Body<SkipAdoption>,
) -> Result<Json<Outcome>, Problem> {
    let (clusters, actor, name) = named.unchanged()?;
    clusters.skip_adoption(&name, &body.network, actor).await?;
    Ok(done(format!(
        "network {} no longer waits for cluster {name}",
        body.network
    )))
}

/// Takes an admin's word that the name leads to a cluster that is known by another name: for one in state `identity-conflict`.
/// Where fipd may write there, it renews the Secret `fipd-identity` over this way.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/join", tag = "clusters",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)), request_body = Join,
    responses((status = 200, body = Outcome)))]
pub async fn join(named: NamedCluster, Body(body): Body<Join>) -> Result<Json<Outcome>, Problem> {
    let (clusters, actor, name) = named.unchanged()?;
    let other = body.other;
    clusters.join(&name, &other, actor).await?;
    Ok(done(format!(
        "{name} counts as cluster {other}; `fipd clusters show {name}` says when it runs"
    )))
}

/// Sets a clone apart from the cluster with the same UID: it becomes a cluster of its own, with leases of its own.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/new-identity", tag = "clusters",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = Outcome), (status = 409, body = Problem)))]
pub async fn new_identity(named: NamedCluster) -> Result<Json<Outcome>, Problem> {
    let (clusters, actor, name) = named.unchanged()?;
    clusters.new_identity(&name, actor).await?;
    Ok(done(format!(
        "{name} is a cluster of its own from now on; it is adopted as a new one"
    )))
}

/// Confirms that most of the cluster's addresses really went away at once. They are released once a fresh list does
/// not have their owners either; a restart of fipd before that forgets the word.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/confirm-release", tag = "clusters",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = Outcome), (status = 409, body = Problem)))]
pub async fn confirm_release(named: NamedCluster) -> Result<Json<Outcome>, Problem> {
    let (clusters, actor, name) = named.unchanged()?;
    let leases = clusters.confirm_release(&name, &actor)?;
    Ok(done(format!(
        "{leases} leases of cluster {name} are released once a fresh list shows their owners absent as well; if fipd \
         restarts before that, confirm again"
    )))
}

/// Keeps the addresses that foreign Services of the cluster show and that are only reported: free ones are held for them, held
/// ones make them contenders, as far as the next list shows them too. Ends the preview after an upgrade. A restart of fipd
/// before that list forgets it.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/confirm-sightings", tag = "clusters",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = Outcome), (status = 409, body = Problem)))]
pub async fn confirm_sightings(named: NamedCluster) -> Result<Json<Outcome>, Problem> {
    let (clusters, actor, name) = named.unchanged()?;
    let addresses = clusters.confirm_sightings(&name, actor).await?;
    Ok(done(format!(
        "{addresses} addresses that foreign Services of cluster {name} show are kept for them once the next list, which \
         begins now, shows them too; if fipd restarts before that, confirm again"
    )))
}

/// Installs fipd's CustomResourceDefinitions in the cluster.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/crds", tag = "clusters",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = Outcome), (status = 502, body = Problem)))]
pub async fn install_crds(named: NamedCluster) -> Result<Json<Outcome>, Problem> {
    let (clusters, actor, name) = named.unchanged()?;
    let session = reached(&clusters, &name)?;
    let target: kube::Api<CustomResourceDefinition> = kube::Api::all(session.client.clone());
    // Forced: a definition that another tool installed becomes ours, as the admin asks.
    let params = PatchParams::apply("fipd").force();
    let mut names = Vec::new();
    for definition in fipd_crds::all() {
        let kind = definition.name_any();
        let what = format!("install {kind}");
        let patch = Patch::Apply(&definition);
        let installed = session.call(&what, target.patch(&kind, &params, &patch));
        let installed = installed.await;
        installed.map_err(|error| not_installed(&name, &error))?;
        names.push(kind);
    }
    tracing::info!(cluster = name, actor = %actor, "installed CustomResourceDefinitions");
    Ok(done(format!(
        "installed in cluster {name}: {}",
        names.join(", ")
    )))
}

/// The session of a cluster that answers.
pub(super) fn reached(clusters: &Clusters, name: &str) -> Result<ClusterSession, Problem> {
    let unreached = || match clusters.view(name) {
        Some(view) => {
            let state = view.state.as_str();
            let detail = format!("cluster {name} is not reached at the moment ({state})");
            Problem::new(Code::Unavailable, detail)
        }
        None => Problem::not_found("cluster", name),
    };
    clusters.session(name).ok_or_else(unreached)
}

fn not_installed(cluster: &str, error: &CallError) -> Problem {
    if error.status() == Some(403) {
        let detail = format!(
            "cluster {cluster}: fipd's account there may not do it; bind the ClusterRole fipd-crds to it, or apply \
             what `fipd crds` prints as an admin of the cluster: {error}"
        );
        return Problem::new(Code::ClusterForbidden, detail);
    }
    Problem::new(Code::Unavailable, format!("cluster {cluster}: {error}"))
}

fn done(message: String) -> Json<Outcome> {
    Json(Outcome { message })
}

fn view(view: &clusters::ClusterView) -> ClusterView {
    ClusterView {
        name: view.name.to_string(),
        names: view.names.iter().map(ToString::to_string).collect(),
        id: view.id.as_ref().map(ToString::to_string),
        state: view.state.as_str().to_owned(),
        last_error: view.last_error.as_ref().map(ToString::to_string),
        troubles: (view.troubles.iter())
            .map(|(part, why)| ((*part).to_owned(), why.to_string()))
            .collect(),
        since: clock::rfc3339(view.since),
        systems: view.systems.iter().map(ToString::to_string).collect(),
        server: view.server.as_ref().map(ToString::to_string),
        discovered: view.discovered,
        found: view.found.as_str().to_owned(),
        detached: view.detached,
        leases: view.leases,
        held_back: view.held_back.iter().map(held_back_view).collect(),
        sightings: view.sightings.as_ref().map(sightings_report),
    }
}

fn sightings_report(view: &clusters::SightingsView) -> SightingsReport {
    let example = |one: &clusters::SightingView| SightedAddress {
        address: one.address.to_string(),
        pool: one.pool.to_string(),
        service: one.service.to_string(),
    };
    SightingsReport {
        held: view.held,
        contended: view.contended,
        reported: view.waiting.len(),
        examples: view.examples.iter().map(example).collect(),
        preview_until: view.preview_until.map(clock::rfc3339),
    }
}

fn held_back_view(held: &clusters::HeldBack) -> HeldBackView {
    HeldBackView {
        system: held.system.to_string(),
        leases: held.leases,
        limit: held.limit,
        since: clock::rfc3339(held.since),
    }
}

impl From<ClustersError> for Problem {
    fn from(error: ClustersError) -> Self {
        let detail = error.to_string();
        match error {
            ClustersError::Unknown(_) | ClustersError::UnknownNetwork(_) => {
                Self::new(Code::NotFound, detail)
            }
            ClustersError::NotAwaited(_)
            | ClustersError::InUse { .. }
            | ClustersError::NothingHeldBack(_)
            | ClustersError::NothingSighted(_)
            | ClustersError::Busy(_)
            | ClustersError::Elsewhere { .. }
            | ClustersError::NoPlace => Self::new(Code::Conflict, detail),
            ClustersError::Invalid(field, why) => {
                Self::new(Code::Invalid, detail).about(field, why)
            }
            ClustersError::NotKept(_) => Self::new(Code::Unavailable, detail),
            ClustersError::Ipam(error) => error.into(),
            ClustersError::Stopping => Self::new(Code::Unavailable, detail),
        }
    }
}
