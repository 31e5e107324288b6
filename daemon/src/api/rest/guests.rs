//! `/api/v1/guests`, and the same for one system.

use axum::{Json, extract::State as Shared};
use fipd_core::Role;

use crate::{
    api::{
        access::{Access, Routes},
        extract::Query,
        page::Ask,
        problem::Problem,
        wire::{GuestDetailValue, GuestList, GuestQuery, GuestReleaseView, GuestView, PageQuery},
    },
    clock,
    config::{Systems, operation::Served},
    guests::{
        self, DetailValue, GuestBoard, GuestDetail, ReleaseView,
        releases::{ReleaseState, Releases},
    },
    helm::Helm,
};

/// Rancher, id and system.
type Place = (String, String, String);

/// Adds the lists of what one system says of its guests.
pub fn routes(routes: Routes, known: Systems) -> Routes {
    let lists = known.operations();
    let lists = lists.filter(|(_, operation)| operation.served == Served::Guests);
    lists.fold(routes, |routes, (system, operation)| {
        let of_system = move |guests, helm, Query(PageQuery { cursor, limit })| {
            let system = Some(system.to_owned());
            let query = GuestQuery {
                system,
                cursor,
                limit,
            };
            list(guests, helm, Query(query))
        };
        routes.get(operation.path, Access::Api(Role::Viewer), of_system)
    })
}

/// The clusters of Rancher that are looked after, and how they are doing.
#[utoipa::path(get, path = "/api/v1/guests", tag = "clusters", params(GuestQuery), responses((status = 200, body = GuestList)))]
pub async fn list(
    Shared(guests): Shared<GuestBoard>,
    Shared(helm): Shared<Option<Helm>>,
    Query(query): Query<GuestQuery>,
) -> Result<Json<GuestList>, Problem> {
    let ask = Ask::<Place>::new(query.limit, query.cursor.as_deref())?;
    let mut all = guests.all();
    if let Some(system) = &query.system {
        all.retain(|one| one.system.name == system);
    }
    let charts = Releases::of(helm.as_ref());
    // As they come: one text of all would have `lab-2` before `lab`.
    let place = |one: &guests::GuestView| -> Place {
        let system = one.system.name.to_owned();
        (one.rancher.to_string(), one.id.clone(), system)
    };
    let (guests, next) = ask.walk(|after, limit| {
        let rest = all
            .iter()
            .filter(|one| after.as_ref().is_none_or(|after| place(one) > *after));
        let page = Ask::<Place> { limit, after: None };
        page.of(rest, |one| place(one), |one| Some(view(one, &charts)))
    });
    Ok(Json(GuestList { guests, next }))
}

fn view(guest: &guests::GuestView, charts: &Releases) -> GuestView {
    GuestView {
        rancher: guest.rancher.to_string(),
        id: guest.id.clone(),
        system: guest.system.name.to_owned(),
        display_name: guest.display_name.clone(),
        phase: guest.says.phase.as_str().to_owned(),
        reason: guest.says.reason.to_owned(),
        message: guest.says.message.clone(),
        since: clock::rfc3339(guest.since),
        last_error: guest.last_error.clone(),
        details: guest.details.iter().map(detail).collect(),
        releases: guest
            .releases
            .iter()
            .map(|one| release(one, charts.state_of(guest, one)))
            .collect(),
    }
}

fn detail(detail: &GuestDetail) -> (String, GuestDetailValue) {
    let value = match &detail.value {
        DetailValue::Text(text) => GuestDetailValue::Text(text.clone()),
        DetailValue::Leases(leases) => {
            let addresses = leases.iter().map(|lease| lease.address.to_string());
            GuestDetailValue::Text(addresses.collect::<Vec<_>>().join(", "))
        }
        DetailValue::Pools(pools) => {
            let names = pools.iter().map(|(name, _)| name.clone());
            GuestDetailValue::Text(names.collect::<Vec<_>>().join(", "))
        }
        DetailValue::Projects(projects) => GuestDetailValue::Projects(projects.clone()),
    };
    (detail.field.to_owned(), value)
}

fn release(release: &ReleaseView, state: ReleaseState) -> GuestReleaseView {
    GuestReleaseView {
        state: state.state.to_owned(),
        error: state.error_text(),
        since: state.since.map(clock::rfc3339),
        name: release.name.clone(),
        namespace: release.namespace.clone(),
        chart: release.chart.clone(),
        version: state.version,
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::Timestamp;

    use super::*;
    use crate::{
        api::sample::Site,
        guests::{
            GuestPhase, GuestStatus, GuestUpdate,
            system::testing::{FIRST, SECOND},
        },
    };

    fn news<'a>(
        rancher: &'a fipd_core::Text,
        id: &'a str,
        system: guests::GuestSystem,
    ) -> GuestUpdate<'a> {
        GuestUpdate {
            rancher,
            id,
            system,
            display_name: id,
            says: GuestStatus::new(GuestPhase::Ready, "Reason", "told"),
            details: vec![],
            releases: None,
        }
    }

    #[tokio::test]
    async fn pages_have_each_guest_once_whatever_the_ranchers_are_called() {
        let site = Site::new().await;
        for rancher in ["lab", "lab-2"] {
            for id in ["c-1", "c-2"] {
                let rancher = rancher.into();
                let news = news(&rancher, id, FIRST);
                site.api.guests.say(news, Timestamp(1));
            }
        }
        let (mut shown, mut cursor) = (Vec::new(), None);
        loop {
            let limit = Some(1);
            let query = GuestQuery {
                cursor,
                limit,
                system: None,
            };
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

    #[tokio::test]
    async fn systems_say_their_own_of_a_guest_each_in_its_own_fields() {
        let board = GuestBoard::default();
        let rancher = "lab".into();
        let detail = |field, value| GuestDetail {
            field,
            label: "Shown elsewhere",
            value,
        };
        for (system, details) in [
            (
                SECOND,
                vec![detail("address", DetailValue::Text("10.0.0.9".into()))],
            ),
            (
                FIRST,
                vec![
                    detail("load_balancer", DetailValue::Text("purelb".into())),
                    detail(
                        "projects",
                        DetailValue::Projects([("p-1".to_owned(), "net".to_owned())].into()),
                    ),
                ],
            ),
        ] {
            let mut news = news(&rancher, "c-1", system);
            news.details = details;
            board.say(news, Timestamp(1));
        }
        let of = async |system: Option<&str>| {
            let query = GuestQuery {
                system: system.map(str::to_owned),
                ..GuestQuery::default()
            };
            let page = list(Shared(board.clone()), Shared(None), Query(query)).await;
            let Json(page) = page.unwrap();
            let texts = page.guests.iter().map(serde_json::to_string);
            texts.collect::<Result<Vec<_>, _>>().unwrap()
        };
        let first =
            r#""last_error":null,"load_balancer":"purelb","projects":{"p-1":"net"},"releases":[]}"#;
        let second = r#""last_error":null,"address":"10.0.0.9","releases":[]}"#;
        let all = of(None).await;
        assert!(all.len() == 2 && all[0].ends_with(first), "{all:?}");
        assert!(all[1].ends_with(second), "{all:?}");
        assert_eq!(of(Some("second")).await, all[1..]);
    }
}
