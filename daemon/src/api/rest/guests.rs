//! `/api/v1/guests`.

use axum::{Json, extract::State as Shared};

use crate::{
    api::{
        extract::Query,
        page::Ask,
        problem::Problem,
        wire::{GuestList, GuestReleaseView, GuestView, PageQuery},
    },
    clock,
    guests::{
        self, GuestBoard, ReleaseView,
        releases::{ReleaseState, Releases},
    },
    helm::Helm,
};

/// The clusters of Rancher that are looked after, and how they are doing.
#[utoipa::path(get, path = "/api/v1/guests", tag = "clusters", params(PageQuery), responses((status = 200, body = GuestList)))]
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
