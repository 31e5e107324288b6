//! `/api/v1/guests`, and the secrets of projects.

use axum::{Json, extract::State as Shared};
use fipd_core::Action;

use crate::{
    api::{
        access::auth::Caller,
        extract::{Path, Query},
        page::Ask,
        problem::{Code, Problem},
        wire::{GuestList, GuestReleaseView, GuestView, Outcome, PageQuery},
    },
    clock,
    guests::{
        self, GuestBoard, ReleaseView, RotateError, Rotated,
        releases::{ReleaseState, Releases},
    },
    helm::Helm,
    ipam::Ipam,
};

/// The clusters of Rancher that are looked after, and how they are doing.
#[utoipa::path(get, path = "/api/v1/guests", tag = "clusters", params(PageQuery),
    responses((status = 200, body = GuestList), (status = 400, body = Problem), (status = 422, body = Problem)))]
pub async fn list(
    Shared(guests): Shared<GuestBoard>,
    Shared(helm): Shared<Option<Helm>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<GuestList>, Problem> {
    let ask = Ask::<(String, String)>::new(query.limit, query.cursor.as_deref())?;
    let all = guests.all();
    let charts = Releases::of(helm.as_ref());
    // As they come: one text of both would have `lab-2` before `lab`.
    let place = |one: &guests::GuestView| (one.rancher.to_string(), one.id.clone());
    let (guests, next) = ask.walk(|after, limit| {
        let rest = all
            .iter()
            .filter(|one| after.as_ref().is_none_or(|after| place(one) > *after));
        let page = Ask::<(String, String)> { limit, after: None };
        page.of(rest, |one| place(one), |one| Some(view(one, &charts)))
    });
    Ok(Json(GuestList { guests, next }))
}

/// Gives a project a new secret. Its guests get it at once; the secret before is accepted for an hour more.
#[utoipa::path(post, path = "/api/v1/projects/{project}/rotate-secret", tag = "clusters", params(("project" = String, Path)),
    responses((status = 200, body = Outcome), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn rotate_secret(
    Shared(ipam): Shared<Ipam>,
    Shared(guests): Shared<GuestBoard>,
    caller: Caller,
    Path(project): Path<String>,
) -> Result<Json<Outcome>, Problem> {
    let Rotated { rancher, until } = guests.rotate(&project).await?;
    tracing::info!(project, %rancher, until, actor = %caller.actor, "the project has a new secret");
    let what = format!("project {project} of {rancher}: the one before is accepted until {until}");
    let noted = (ipam).note(Action::SecretRotated, what, caller.actor);
    if let Err(error) = noted.await {
        tracing::warn!(%error, project, "its new secret is not in the audit log");
    }
    let message = format!(
        "project {project} of {rancher} has a new secret, which its guests get at once; the one before is accepted \
         until {until}"
    );
    Ok(Json(Outcome { message }))
}

impl From<RotateError> for Problem {
    fn from(error: RotateError) -> Self {
        let detail = error.to_string();
        let code = match error {
            RotateError::UnknownProject(_) | RotateError::NoSecret(_) => Code::NotFound,
            RotateError::Several { .. } | RotateError::Conflict(_) => Code::Conflict,
            RotateError::Failed(_) => Code::Unavailable,
        };
        Self::new(code, detail)
    }
}

fn view(guest: &guests::GuestView, charts: &Releases) -> GuestView {
    GuestView {
        rancher: guest.rancher.to_string(),
        id: guest.id.clone(),
        display_name: guest.display_name.clone(),
        phase: guest.says.phase.as_str().to_owned(),
        reason: guest.says.reason.to_owned(),
        message: guest.says.message.clone(),
        since: clock::rfc3339(guest.since),
        last_error: guest.last_error.clone(),
        load_balancer: guest.load_balancer.to_string(),
        projects: guest.has.projects.clone(),
        releases: guest
            .has
            .releases
            .iter()
            .map(|one| release(one, charts.state_of(guest, one)))
            .collect(),
    }
}

fn release(release: &ReleaseView, state: ReleaseState) -> GuestReleaseView {
    GuestReleaseView {
        state: state.state.to_owned(),
        error: state.error_text(),
        since: state.since.map(clock::rfc3339),
        name: release.name.clone(),
        namespace: release.namespace.clone(),
        chart: release.chart.clone(),
        version: release.version.clone(),
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::Timestamp;

    use super::*;
    use crate::{
        api::sample::Site,
        guests::{GuestPhase, GuestStatus, GuestUpdate},
    };

    #[tokio::test]
    async fn pages_have_each_guest_once_whatever_the_ranchers_are_called() {
        let site = Site::new().await;
        for rancher in ["lab", "lab-2"] {
            for id in ["c-1", "c-2"] {
                let news = GuestUpdate {
                    rancher: &rancher.into(),
                    id,
                    display_name: id,
                    load_balancer: "purelb",
                    says: GuestStatus::new(GuestPhase::Ready, "Reason", "told"),
                    has: None,
                };
                site.api.guests.say(news, Timestamp(1));
            }
        }
        let (mut shown, mut cursor) = (Vec::new(), None);
        loop {
            let limit = Some(1);
            let query = PageQuery { cursor, limit };
            let page = list(Shared(site.api.guests.clone()), Shared(None), Query(query)).await;
            let Json(page) = page.unwrap();
            let named = |one: &GuestView| format!("{} {}", one.rancher, one.id);
            shown.extend(page.guests.iter().map(named));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(shown, ["lab c-1", "lab c-2", "lab-2 c-1", "lab-2 c-2"]);
    }
}
