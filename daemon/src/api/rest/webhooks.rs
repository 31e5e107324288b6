//! `/api/v1/webhooks`: how the receivers of events are doing.

use axum::{Json, extract::State};

use crate::{
    api::{
        extract::Path,
        problem::{Code, Problem},
        wire::{WebhookList, WebhookTested, WebhookView},
    },
    ipam::Ipam,
    webhooks::Webhooks,
};
use crate::{clock, webhooks::HookView};

/// All receivers of the configuration.
#[utoipa::path(get, path = "/api/v1/webhooks", tag = "admin", responses((status = 200, body = WebhookList)))]
pub async fn list(State(ipam): State<Ipam>, State(webhooks): State<Webhooks>) -> Json<WebhookList> {
    let views = webhooks.views(&ipam);
    let webhooks = views.into_iter().map(view).collect();
    Json(WebhookList { webhooks })
}

/// Sends a receiver the event `fipd.test`, once.
#[utoipa::path(post, path = "/api/v1/webhooks/{name}/test", tag = "admin", params(("name" = String, Path)),
    responses((status = 200, body = WebhookTested)))]
pub async fn test(
    State(webhooks): State<Webhooks>,
    Path(name): Path<String>,
) -> Result<Json<WebhookTested>, Problem> {
    match webhooks.test(&name).await {
        None => Err(Problem::not_found("webhook", &name)),
        Some(Ok(status)) => Ok(Json(WebhookTested { name, status })),
        Some(Err(why)) => {
            let why = format!("webhook {name}: {why}");
            Err(Problem::new(Code::Unavailable, why))
        }
    }
}

fn view(view: HookView) -> WebhookView {
    let (error, since, again) = match view.failing {
        Some((why, since, again)) => (Some(why), Some(since), Some(again)),
        None => (None, None, None),
    };
    WebhookView {
        name: view.name,
        url: view.url,
        events: view.events,
        delivered: view.delivered,
        failed: view.failed,
        missed: view.missed,
        pending: view.pending,
        last_success: view.last_success.map(clock::rfc3339),
        error,
        failing_since: since.map(clock::rfc3339),
        next_attempt: again.map(clock::rfc3339),
    }
}
