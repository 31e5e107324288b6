//! The OpenAPI document of `/api/v1`.

use axum::{Json, extract::State};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, Ref, RefOr, ResponseBuilder,
        path::{Operation, ParameterIn},
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::{
    admin, adopt, attach, audit, backups, bulk, changes, clusters, export, guests, history, import,
    lease_changes, leases, move_network, operations, pool_preview, pools, quotas, rules, separate,
    tokens, upkeep, users, webhooks,
};
use crate::api::problem::MEDIA_TYPE;
use crate::api::{health, wire};
use crate::config::Systems;

#[derive(OpenApi)]
#[openapi(
    info(title = "fipd", description = "The address book of a Rancher, Harvester or Cluster API site."),
    paths(
        pools::list_networks, pools::show_network, pools::create_network, separate::separate, separate::withdraw,
        pools::list, pools::show, pools::create, pools::update, pools::delete,
        pool_preview::preview, move_network::preview, move_network::move_network, history::history,
        leases::list, leases::show, leases::allocate, leases::reserve, leases::release_address, leases::release,
        lease_changes::transfer, lease_changes::probed, lease_changes::label,
        quotas::list, quotas::show, quotas::put, quotas::delete,
        upkeep::reload_standing, upkeep::reload, backups::show_hold, backups::lift_hold, upkeep::show_clock, upkeep::accept_clock, upkeep::rotate_key,
        bulk::bulk, changes::changes,
        guests::list,
        clusters::list, clusters::show, clusters::forget, clusters::join, clusters::new_identity,
        clusters::skip_adoption,
        clusters::confirm_release, clusters::confirm_sightings, clusters::install_crds,
        attach::add, attach::remove, attach::preview, attach::detach, attach::attach,
        adopt::preview, adopt::adopt,
        rules::show, rules::foreign, rules::plan, rules::flush, rules::resume, rules::prune_foreign,
        audit::audit, admin::check, admin::backup, backups::list, backups::make, backups::download, backups::drill,
        export::export, import::import,
        tokens::list, tokens::show, tokens::create, tokens::revoke,
        users::list, users::show, users::create, users::update, users::delete, users::sign_out,
        webhooks::list, webhooks::test,
        document, health::healthz, health::readyz, health::metrics,
    ),
    components(schemas(crate::api::problem::Problem, wire::LeaseSummary)),
    security(("bearer" = [])),
    modifiers(&Bearer, &Errors),
)]
struct Document;

/// Declares how to authenticate.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("fipd_<id>_<secret>, made by `fipd token create`"))
            .build();
        let components = document.components.get_or_insert_default();
        components
            .security_schemes
            .insert("bearer".to_owned(), SecurityScheme::Http(scheme).into());
    }
}

/// Adds the errors that operations have by what they are asked with, and says of which media type errors are.
struct Errors;

impl Modify for Errors {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            let operations = [
                &mut item.get,
                &mut item.put,
                &mut item.post,
                &mut item.patch,
                &mut item.delete,
            ];
            operations.into_iter().flatten().for_each(complete);
        }
    }
}

fn complete(operation: &mut Operation) {
    let body = operation.request_body.is_some();
    let parameters = || {
        let all = operation.parameters.iter().flatten();
        all.filter_map(|one| match one {
            RefOr::T(one) => Some(one),
            RefOr::Ref(_) => None,
        })
    };
    let names = parameters().any(|one| one.parameter_in == ParameterIn::Path);
    let compares = parameters().any(|one| one.name == "If-Match");
    let errors = [
        (400, true, "The query, path or body cannot be read"),
        (401, true, "No or unknown credentials"),
        (403, true, "The caller may not do it"),
        (404, body || names, "Something that is named does not exist"),
        (409, body, "The address book is in the way"),
        (412, compares, "It has changed since the client has read it"),
        (413, body, "The body is too large"),
        (415, body, "The body is not JSON"),
        (422, true, "A value is not allowed"),
        (503, true, "fipd cannot do it at the moment; ask again"),
        (504, true, "It took too long"),
        (507, body, "The disk is full"),
    ];
    let health = operation.tags.iter().flatten().any(|tag| tag == "health");
    let responses = &mut operation.responses.responses;
    for (status, response) in responses.iter_mut() {
        if let RefOr::T(response) = response
            && status.starts_with(['4', '5'])
            && !health
            && let Some(content) = response.content.swap_remove("application/json")
        {
            response.content.insert(MEDIA_TYPE.to_owned(), content);
        }
    }
    for (status, _, why) in errors.iter().filter(|(_, fits, _)| *fits) {
        let schema = Ref::from_schema_name("Problem");
        let response = ResponseBuilder::new()
            .description(*why)
            .content(MEDIA_TYPE, Content::new(Some(schema)))
            .build();
        responses
            .entry(status.to_string())
            .or_insert_with(|| response.into());
    }
}

/// This document.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "admin", responses((status = 200)))]
pub async fn document(State(known): State<Systems>) -> Json<utoipa::openapi::OpenApi> {
    Json(of(known))
}

fn of(known: Systems) -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    operations::document(&mut document, known, complete);
    document
}

/// Path and method of each operation of the document that is wanted.
#[cfg(test)]
pub fn documented(
    known: Systems,
    wanted: impl Fn(&serde_json::Value) -> bool,
) -> std::collections::BTreeSet<(String, String)> {
    let json = serde_json::to_value(of(known)).unwrap();
    let paths = json["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &serde_json::Value)| {
        let operations = item.as_object().unwrap().iter();
        let found = operations.filter(|(_, operation)| wanted(operation));
        let named = found.map(|(method, _)| (method.to_uppercase(), path.clone()));
        named.collect::<Vec<_>>()
    };
    paths.iter().flat_map(methods).collect()
}
