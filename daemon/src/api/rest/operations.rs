//! What systems can be asked for: their [`SystemOperation`]s as routes, and in the OpenAPI document.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use axum::{
    Json,
    extract::{FromRef, State},
};
use fipd_core::Role;
use serde_json::{Value, json};
use utoipa::openapi::{
    Content, OpenApi, Ref, Required, ResponseBuilder,
    path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathItem},
    schema::{ArrayBuilder, Object, ObjectBuilder, SchemaType, Type},
};

use crate::{
    api::{
        access::{Access, Routes, auth::Caller},
        extract::{Path, Query},
        page::Ask,
        problem::{Code, MEDIA_TYPE, Problem},
        wire::{Outcome, PageQuery},
    },
    config::{
        Systems,
        operation::{Column, Does, Served, SystemOperation},
    },
    system::{OperationCall, OperationError, RunningSystems},
};

/// Adds the routes that systems serve, but for those about this host.
pub fn routes(routes: Routes, known: Systems) -> Routes {
    let decided = served(known).filter(|(_, one)| one.served == Served::BySystem);
    decided.fold(routes, |routes, (system, operation)| match operation.does {
        Does::List { field, .. } => list(routes, system, operation, field),
        Does::Change => routes.post(
            operation.path,
            Access::Api(Role::Admin),
            move |State(systems): State<RunningSystems>,
                  caller: Caller,
                  Path(values): Path<BTreeMap<String, String>>| async move {
                let name = operation.variable_name().unwrap_or_default();
                let value = values.get(name).map_or("", String::as_str);
                let asked = OperationCall {
                    operation,
                    value,
                    actor: caller.actor,
                };
                change(&systems, system, asked).await
            },
        ),
    })
}

/// Adds the lists about this host.
pub fn of_host<S>(routes: Routes<S>, known: Systems) -> Routes<S>
where
    S: Clone + Send + Sync + 'static,
    RunningSystems: FromRef<S>,
{
    let of_host = served(known).filter(|(_, one)| one.served == Served::OfHost);
    of_host.fold(routes, |routes, (system, operation)| match operation.does {
        Does::List { field, .. } => list(routes, system, operation, field),
        Does::Change => routes,
    })
}

fn list<S>(
    routes: Routes<S>,
    system: &'static str,
    operation: &'static SystemOperation,
    field: &'static str,
) -> Routes<S>
where
    S: Clone + Send + Sync + 'static,
    RunningSystems: FromRef<S>,
{
    routes.get(
        operation.path,
        Access::Api(Role::Viewer),
        move |State(systems): State<RunningSystems>, Query(query): Query<PageQuery>| async move {
            let rows = rows(&systems, system, operation);
            page(&rows, field, &query)
        },
    )
}

/// The rows of a list.
pub fn rows(
    systems: &RunningSystems,
    system: &str,
    operation: &'static SystemOperation,
) -> BTreeMap<String, Value> {
    let system = systems.of(system);
    system.map_or_else(BTreeMap::new, |system| system.rows(operation))
}

fn served(known: Systems) -> impl Iterator<Item = (&'static str, &'static SystemOperation)> {
    let all = known.operations();
    all.filter(|(_, operation)| operation.served != Served::ByFipd)
}

fn page(
    rows: &BTreeMap<String, Value>,
    field: &str,
    query: &PageQuery,
) -> Result<Json<Value>, Problem> {
    let ask = Ask::<String>::new(query.limit, query.cursor.as_deref())?;
    let (found, next) = ask.walk(|after, limit| {
        let from = after.map_or(Unbounded, Excluded);
        let rest = rows.range((from, Unbounded));
        let page = Ask::<String> { limit, after: None };
        page.of(
            rest,
            |(key, _)| (*key).clone(),
            |(_, row)| Some((*row).clone()),
        )
    });
    let mut page = json!({ field: found });
    if let Some(next) = next {
        page["next"] = json!(next);
    }
    Ok(Json(page))
}

async fn change(
    systems: &RunningSystems,
    system: &str,
    asked: OperationCall<'_>,
) -> Result<Json<Outcome>, Problem> {
    let Some(running) = systems.of(system) else {
        return Err(Problem::not_found("system", system));
    };
    let message = running.change(asked).await.map_err(|error| {
        let code = match error {
            OperationError::NotFound(_) => Code::NotFound,
            OperationError::Conflict(_) => Code::Conflict,
            OperationError::Failed(_) => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    })?;
    Ok(Json(Outcome { message }))
}

/// A row of a list: the fields that its columns show, each of any type, and whatever else it has.
fn row(columns: &[Column]) -> Object {
    let row = ObjectBuilder::new().schema_type(Type::Object);
    let fields = columns.iter();
    let row = fields.fold(row, |row, column| {
        let value = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
        row.property(column.field, value)
    });
    row.build()
}

/// Adds the operations that systems serve to the document; `complete` adds the errors that all have.
pub fn document(
    document: &mut OpenApi,
    known: Systems,
    complete: fn(&mut utoipa::openapi::path::Operation),
) {
    for (system, operation) in served(known) {
        let answer = match operation.does {
            Does::List { .. } if operation.served == Served::Guests => {
                Content::new(Some(Ref::from_schema_name("GuestList")))
            }
            Does::List { field, columns, .. } => Content::new(Some(
                ObjectBuilder::new()
                    .property(field, ArrayBuilder::new().items(row(columns)))
                    .property("next", ObjectBuilder::new().schema_type(Type::String)),
            )),
            Does::Change => Content::new(Some(Ref::from_schema_name("Outcome"))),
        };
        let answer = ResponseBuilder::new()
            .description("What it has, or did")
            .content("application/json", answer);
        let mut described = OperationBuilder::new()
            .tag(system)
            .summary(Some(operation.about))
            .operation_id(Some(
                format!("{system}_{}", operation.name).replace('-', "_"),
            ))
            .response("200", answer);
        if let Some(name) = operation.variable_name() {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let variable = ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some(operation.variable))
                .schema(Some(text));
            described = described.parameter(variable);
        }
        if let Does::Change = operation.does {
            for (status, why) in [
                ("404", "What is named does not exist"),
                ("409", "Something is in the way"),
            ] {
                let problem = Content::new(Some(Ref::from_schema_name("Problem")));
                let refused = ResponseBuilder::new()
                    .description(why)
                    .content(MEDIA_TYPE, problem);
                described = described.response(status, refused);
            }
        }
        let mut described = described.build();
        complete(&mut described);
        let method = match operation.does {
            Does::List { .. } => HttpMethod::Get,
            Does::Change => HttpMethod::Post,
        };
        let item = PathItem::new(method, described);
        document.paths.paths.insert(operation.path.to_owned(), item);
    }
}
