//! `/api/v1/tokens`, and who is behind a bearer token.
//!
//! Its text is `fipd_<id>_<secret>`: the id finds the row, the secret (32 random bytes as hex) is compared with the
//! stored SHA-256 in constant time.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use axum::{Json, extract::State as Shared, response::Response};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use fipd_core::{Ledger, Request, Role, Scope, Tenant, Timestamp, Token, TokenId};
use http::StatusCode;
use ipnet::IpNet;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::admin::plain_name;
use crate::api::{
    access::{
        auth::{Caller, Via},
        permit::Requester,
    },
    convert,
    etag::{IfMatch, IfNoneMatch, State},
    extract::{Body, Path, Query},
    page::Ask,
    problem::{Code, Problem},
    wire::{PageQuery, TokenCreate, TokenList, TokenMade, TokenView},
};
use crate::{clock, ipam::Ipam};

const PREFIX: &str = "fipd_";
const SECRET_BYTES: usize = 32;
/// The longest list of a token's scope.
const MOST_LISTED: usize = 100;

/// A fresh token and the text that is shown once.
pub struct Minted {
    pub token: Token,
    pub text: String,
}

/// What a token is made for.
pub struct Grant {
    pub name: String,
    pub role: Role,
    pub expires: Option<Timestamp>,
    pub scope: Scope,
    pub from: Vec<IpNet>,
}

/// When tokens were used last, as far as this process knows: a write per request would cost more than it tells.
#[derive(Debug, Default)]
pub struct LastUsed(Mutex<BTreeMap<TokenId, Timestamp>>);

/// Makes a token. Fails only where the system has no randomness.
pub fn mint(grant: Grant, created: Timestamp) -> Result<Minted, getrandom::Error> {
    let mut secret = [0_u8; SECRET_BYTES];
    getrandom::fill(&mut secret)?;
    // 48 bits: exact in every JSON reader, and never given twice in practice.
    let id = TokenId(getrandom::u64()? >> 16);
    let hash = Sha256::digest(secret).into();
    let text = format!("{PREFIX}{}_{}", id.0, HEXLOWER.encode(&secret));
    let token = Token {
        id,
        name: grant.name.into(),
        role: grant.role,
        hash,
        created,
        expires: grant.expires,
        scope: grant.scope,
        from: grant.from,
    };
    Ok(Minted { token, text })
}

/// Who is behind a token's text. Only who has the secret hears that the token has expired, or what it is used from.
pub fn caller(
    ipam: &Ipam,
    tokens_used: &LastUsed,
    text: &str,
    peer: Option<IpAddr>,
) -> Result<Caller, Problem> {
    let unknown = || {
        let detail = "the bearer token is unknown or revoked";
        Problem::new(Code::Unauthenticated, detail)
    };
    let (id, secret) = parse(text).ok_or_else(unknown)?;
    let hash: [u8; 32] = Sha256::digest(secret).into();
    let token = ipam.read(|ledger| ledger.token(id).cloned());
    let known = token.filter(|token| bool::from(token.hash.ct_eq(&hash)));
    let token = known.ok_or_else(unknown)?;
    let now = ipam.wall();
    if let Some(end) = token.expires.filter(|end| *end <= now) {
        let (name, end) = (&token.name, clock::rfc3339(end));
        let detail = format!("the token {name} expired at {end}; ask an admin for another one");
        return Err(Problem::new(Code::Unauthenticated, detail));
    }
    let here = |peer: &IpAddr| token.from.iter().any(|net| net.contains(peer));
    if !token.from.is_empty() && !peer.as_ref().is_some_and(here) {
        let peer = peer.map_or_else(|| "here".to_owned(), |peer| peer.to_string());
        let detail = format!("the token {} may not be used from {peer}", token.name);
        return Err(Problem::new(Code::Forbidden, detail));
    }
    tokens_used.0.lock().insert(id, now);
    Ok(Caller {
        actor: format!("token:{}", token.name).into(),
        role: token.role,
        via: Via::Token(id),
        scope: Arc::new(token.scope),
    })
}

/// All tokens, without their text.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens", params(PageQuery), responses((status = 200, body = TokenList)))]
pub async fn list(
    Shared(ipam): Shared<Ipam>,
    Shared(tokens_used): Shared<Arc<LastUsed>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<TokenList>, Problem> {
    let ask = Ask::new(query.limit, query.cursor.as_deref())?;
    let used = tokens_used.0.lock().clone();
    let (tokens, next) = ask.walk(|after, limit| {
        ipam.read(|ledger| {
            let tokens = ledger.tokens_after(after);
            let view = |token: &&Token| {
                let used = used.get(&token.id).copied();
                Some(token_view(ledger, token, used))
            };
            Ask { limit, after }.of(tokens, |token| token.id, view)
        })
    });
    Ok(Json(TokenList { tokens, next }))
}

/// One token, without its text.
#[utoipa::path(get, path = "/api/v1/tokens/{id}", tag = "tokens", params(("id" = u64, Path)),
    responses((status = 200, body = TokenView, headers(("ETag" = String))), (status = 304)))]
pub async fn show(
    Shared(ipam): Shared<Ipam>,
    Shared(tokens_used): Shared<Arc<LastUsed>>,
    Path(id): Path<String>,
    known: IfNoneMatch,
) -> Result<Response, Problem> {
    let token = find(&ipam, &id)?;
    let used = tokens_used.0.lock().get(&token.id).copied();
    let view = ipam.read(|ledger| token_view(ledger, &token, used));
    Ok(known.answer(&State::of(&token), &view))
}

/// Makes a token; its text is in this answer and nowhere else.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", request_body = TokenCreate,
    responses((status = 201, body = TokenMade)))]
pub async fn create(
    requester: Requester,
    Body(body): Body<TokenCreate>,
) -> Result<(StatusCode, Json<TokenMade>), Problem> {
    let name = plain_name(&body.name)?;
    let now = requester.ipam.wall();
    let expires = convert::end("expires", body.expires.as_deref(), body.lasts, now)?;
    let grant = Grant {
        name: name.to_owned(),
        role: body.role,
        expires,
        scope: requester.read(|visible| scope_of(visible.ledger, &body))?,
        from: sources(&body)?,
    };
    let minted = mint(grant, now)
        .map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
    let view = requester.read(|visible| token_view(visible.ledger, &minted.token, None));
    let request = Request::PutToken {
        token: minted.token,
        actor: requester.actor(),
    };
    requester.submit(request).await?;
    let made = TokenMade {
        view,
        token: minted.text,
    };
    Ok((StatusCode::CREATED, Json(made)))
}

/// Ends a token at once.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "tokens",
    params(("id" = u64, Path), ("If-Match" = Option<String>, Header)), responses((status = 204)))]
pub async fn revoke(
    Shared(tokens_used): Shared<Arc<LastUsed>>,
    requester: Requester,
    Path(id): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let id = find(&requester.ipam, &id)?.id;
    let request = Request::DeleteToken {
        id,
        actor: requester.actor(),
    };
    let guard = if_match.guard(format!("token {}", id.0), move |ledger| {
        ledger.token(id).map(State::of)
    });
    requester.submit_if(request, guard).await?;
    tokens_used.0.lock().remove(&id);
    Ok(StatusCode::NO_CONTENT)
}

fn find(ipam: &Ipam, id: &str) -> Result<Token, Problem> {
    let number = id.parse().map(TokenId);
    let id = number.map_err(|_| Problem::invalid("id", id, "the number of a token"))?;
    let token = ipam.read(|ledger| ledger.token(id).cloned());
    token.ok_or_else(|| Problem::not_found("token", id.0))
}

/// The names of a scope as the numbers they have now.
fn scope_of(ledger: &Ledger, body: &TokenCreate) -> Result<Scope, Problem> {
    for (field, list) in [
        ("pools", &body.pools),
        ("networks", &body.networks),
        ("tenants", &body.tenants),
        ("from", &body.from),
    ] {
        if list.len() > MOST_LISTED {
            let allowed = format!("up to {MOST_LISTED} entries");
            return Err(Problem::invalid(field, list.len().to_string(), allowed));
        }
    }
    let pools = body.pools.iter().map(|name| {
        let pool = ledger.find_pool(name).map_err(Problem::from);
        pool.map(|pool| pool.id)
            .map_err(|problem| problem.about("pools", name))
    });
    let networks = body.networks.iter().map(|name| {
        let network = convert::network(ledger, name).map(|network| network.id);
        network.map_err(|problem| problem.about("networks", name))
    });
    let tenants = body.tenants.iter().map(|name| match &**name {
        "" => Err(Problem::invalid("tenants", "", "names of tenants")),
        name => convert::text("tenants", name).map(Tenant),
    });
    Ok(Scope {
        pools: pools.collect::<Result<_, Problem>>()?,
        networks: networks.collect::<Result<_, Problem>>()?,
        tenants: tenants.collect::<Result<_, _>>()?,
    })
}

/// From where the token may be used.
fn sources(body: &TokenCreate) -> Result<Vec<IpNet>, Problem> {
    body.from.iter().map(|text| source(text)).collect()
}

/// A CIDR, or one address.
fn source(text: &str) -> Result<IpNet, Problem> {
    let one = text.parse::<IpAddr>().map(IpNet::from);
    let net = one.or_else(|_| text.parse::<IpNet>());
    net.map(|net| net.trunc())
        .map_err(|_| Problem::invalid("from", text, "a CIDR such as 10.0.0.0/8"))
}

pub fn token_view(ledger: &Ledger, token: &Token, used: Option<Timestamp>) -> TokenView {
    let scope = &token.scope;
    let pools = scope.pools.iter();
    let networks = scope.networks.iter();
    TokenView {
        id: token.id.0,
        name: token.name.to_string(),
        role: token.role,
        created: clock::rfc3339(token.created),
        expires: token.expires.map(clock::rfc3339),
        pools: pools.map(|id| convert::pool_name(ledger, *id)).collect(),
        networks: networks
            .map(|id| convert::network_name(ledger, *id))
            .collect(),
        tenants: scope.tenants.iter().map(|one| one.0.to_string()).collect(),
        from: token.from.iter().map(ToString::to_string).collect(),
        last_used: used.map(clock::rfc3339),
    }
}

fn parse(text: &str) -> Option<(TokenId, [u8; SECRET_BYTES])> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let id = id.parse().ok()?;
    let secret = HEXLOWER_PERMISSIVE.decode(secret.as_bytes()).ok()?;
    Some((TokenId(id), secret.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{api::ui::tests::Site, oidc::Oidc};

    #[tokio::test]
    async fn a_token_and_a_session_recover_with_the_wall_clock() {
        const DAY: u64 = 86_400_000;
        let wall = Arc::new(AtomicU64::new(20_000 * DAY));
        let read = Arc::clone(&wall);
        let clock = Arc::new(move || Timestamp(read.load(Ordering::Relaxed)));
        let site = Site::at(Oidc::default(), clock).await;
        site.sign_in().await;
        let page = || async {
            let request = http::Request::get("/ui/").body(axum::body::Body::empty());
            site.ask(request.unwrap()).await.0
        };
        let grant = Grant {
            name: "ci".to_owned(),
            role: Role::Operator,
            expires: Some(Timestamp(20_001 * DAY)),
            scope: Scope::default(),
            from: Vec::new(),
        };
        let minted = mint(grant, Timestamp(20_000 * DAY)).unwrap();
        let request = Request::PutToken {
            token: minted.token,
            actor: "test".into(),
        };
        site.api.ipam.submit(request).await.unwrap();
        assert!(caller(&site.api.ipam, &site.api.tokens_used, &minted.text, None).is_ok());
        wall.fetch_add(30_000 * DAY, Ordering::Relaxed);
        // Its time is in the book as well.
        let note = ("wrong", "test");
        let noted = site
            .api
            .ipam
            .note(fipd_core::Action::RulesChanged, note.0, note.1);
        noted.await.unwrap();
        assert!(caller(&site.api.ipam, &site.api.tokens_used, &minted.text, None).is_err());
        assert_eq!(page().await, StatusCode::OK, "sessions go by no wall clock");
        wall.fetch_sub(30_000 * DAY, Ordering::Relaxed);
        assert!(caller(&site.api.ipam, &site.api.tokens_used, &minted.text, None).is_ok());
        assert_eq!(page().await, StatusCode::OK);
        wall.fetch_add(DAY, Ordering::Relaxed);
        assert!(
            caller(&site.api.ipam, &site.api.tokens_used, &minted.text, None).is_err(),
            "it has ended"
        );
    }

    #[test]
    fn a_token_is_found_by_its_text() {
        let grant = Grant {
            name: "ci".to_owned(),
            role: Role::Operator,
            expires: None,
            scope: Scope::default(),
            from: Vec::new(),
        };
        let minted = mint(grant, Timestamp(1)).unwrap();
        let (id, secret) = parse(&minted.text).unwrap();
        assert_eq!(id, minted.token.id);
        assert_eq!(<[u8; 32]>::from(Sha256::digest(secret)), minted.token.hash);
        assert!(!format!("{:?}", minted.token).contains("hash"));
    }

    #[test]
    fn other_texts_are_no_tokens() {
        for text in [
            "",
            "fipd_",
            "fipd_1_",
            "fipd_x_00",
            "fipd_1_zz",
            "Fipd_1_00",
            "fipd_-1_00",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
        let euro = format!("fipd_1_{}", "€".repeat(SECRET_BYTES));
        assert!(parse(&euro).is_none());
        assert!(parse(&format!("fipd_1_{}+1", "0".repeat(62))).is_none());
    }
}
