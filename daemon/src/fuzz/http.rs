//! Requests through the whole router, as an admin on the socket or one who is signed in.

use std::sync::{Mutex, PoisonError};

use http::{Method, Request, StatusCode, header};

use crate::{api::sample::Site, oidc::Oidc};

/// The daemon that is asked, and what it runs on: one for all requests, as in life.
struct AskedDaemon {
    runtime: tokio::runtime::Runtime,
    site: Site,
}

static ASKED: Mutex<Option<AskedDaemon>> = Mutex::new(None);

/// First line: method and path; second: media type and, each behind a tab, further headers; the rest: the body. `CSRF` in it
/// is the token of the session.
pub fn request(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == b'\n');
    let mut line = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (head, fields) = (line(), line());
    let Some((method, path)) = head.split_once(' ') else {
        return;
    };
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let AskedDaemon { runtime, site } = asked.get_or_insert_with(AskedDaemon::new);
    let body = parts.next().unwrap_or_default();
    let body = replaced(body, b"CSRF", site.csrf().as_bytes());
    let Ok(method) = method.parse::<Method>() else {
        return;
    };
    let mut fields = fields.split('\t');
    let media = fields.next().unwrap_or_default();
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, media);
    for (name, value) in fields.filter_map(|field| field.split_once(": ")) {
        request = request.header(name, value);
    }
    let request = request.body(body.into());
    // What is no HTTP does not get as far as here.
    let Ok(request) = request else {
        return;
    };
    let rest = path.starts_with("/api/");
    let (status, media) = runtime.block_on(site.ask(request));
    assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "{head}");
    let refused = status.is_client_error() || status.is_server_error();
    let problem = media == crate::api::problem::MEDIA_TYPE;
    assert!(!(rest && refused) || problem, "{head}: {status} {media}");
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let place = text.windows(from.len()).position(|window| window == from);
    match place {
        Some(at) => [&text[..at], to, &text[at + from.len()..]].concat(),
        None => text.to_vec(),
    }
}

impl AskedDaemon {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let oidc = Oidc::new(Some(&super::provider()), Some("https://fipd.example")).unwrap();
        let site = runtime.block_on(Site::with(oidc));
        runtime.block_on(site.sign_in());
        Self { runtime, site }
    }
}
