//! URLs by which fipd is reached.

use std::net::IpAddr;

/// The host of an `https://host[:port][/path]` URL.
pub fn host_of(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    if uri.scheme_str() != Some("https") {
        return None;
    }
    let host = uri
        .host()?
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_ascii_lowercase();
    (host.parse::<IpAddr>().is_ok() || is_dns_name(&host)).then_some(host)
}

/// Whether certificates can be of this name.
pub fn is_dns_name(host: &str) -> bool {
    !host.is_empty()
        && host.len() <= 253
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_from_urls() {
        assert_eq!(
            host_of("https://[2001:db8::1]:8443").as_deref(),
            Some("2001:db8::1")
        );
        assert_eq!(host_of("https://a.example/x").as_deref(), Some("a.example"));
        assert_eq!(host_of("not a url"), None);
        assert_eq!(host_of("http://a.example/"), None);
    }
}
