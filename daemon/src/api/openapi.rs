//! The OpenAPI document of `/api/v1`.

use axum::Json;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use super::{
    admin, backups, bulk, changes, clusters, export, health, leases, pools, quotas, restore_hold,
    tokens, transfer, users, wire,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "fipd", description = "The address book of a Rancher, Harvester or Cluster API site."),
    paths(
        pools::list_networks, pools::show_network, pools::create_network,
        pools::list, pools::show, pools::create, pools::update, pools::delete,
        leases::list, leases::show, leases::allocate, leases::reserve, leases::release_address, leases::release,
        transfer::transfer,
        quotas::list, quotas::show, quotas::put, quotas::delete,
        restore_hold::show, restore_hold::lift,
        bulk::bulk, changes::changes,
        clusters::list, clusters::show, clusters::forget, clusters::skip_adoption,
        clusters::confirm_release, clusters::install_crds,
        admin::audit, admin::check, admin::backup, backups::list, backups::make, backups::download,
        export::export,
        tokens::list, tokens::show, tokens::create, tokens::revoke,
        users::list, users::show, users::create, users::update, users::delete,
        document, health::healthz, health::readyz, health::metrics,
    ),
    components(schemas(super::problem::Problem, wire::LeaseSummary)),
    security(("bearer" = [])),
    modifiers(&Bearer),
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

/// This document.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "admin", responses((status = 200)))]
pub async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

/// Every path and method of the document, for comparison with the routes.
#[cfg(test)]
pub fn documented() -> std::collections::BTreeSet<(String, String)> {
    let json = serde_json::to_value(Document::openapi()).unwrap();
    let paths = json["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &serde_json::Value)| {
        let path = path.clone();
        item.as_object()
            .unwrap()
            .keys()
            .map(move |method| (method.to_uppercase(), path.clone()))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(methods).collect()
}
