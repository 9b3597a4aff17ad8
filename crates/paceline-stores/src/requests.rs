//! HTTP requests. They are repeated after temporary errors, and redirected only to public
//! addresses.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use http::StatusCode;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, RETRY_AFTER,
};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use reqwest::redirect::{Attempt, Policy};

/// Environment variable: time for which a failing request is repeated, s.
pub(crate) const RETRY_SECONDS: &str = "PACELINE_RETRY_SECONDS";
const DEFAULT_RETRY: Duration = Duration::from_secs(60);
/// Pauses between two requests.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Maximum number of attempts to reach a server that does not respond at all.
const CONNECTIONS: u32 = 4;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time without another byte of a response.
const SILENCE: Duration = Duration::from_secs(30);
const REDIRECTS: usize = 5;

/// Number of times that a request was sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tries(Arc<AtomicU32>);

impl Tries {
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Return the time for which a failing request is repeated.
pub(crate) fn retry_limit() -> Duration {
    let text = std::env::var(RETRY_SECONDS).unwrap_or_default();
    let seconds = text.parse().ok().map(Duration::try_from_secs_f64);
    seconds.and_then(Result::ok).unwrap_or(DEFAULT_RETRY)
}

/// Makes clients for a store.
#[derive(Debug, Default)]
pub(crate) struct Connector {
    /// Value of the header `Authorization`, for servers that use no signatures.
    pub(crate) authorization: Option<HeaderValue>,
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        // Another library of the process may already have installed a provider, which can also be
        // used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("paceline/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE)
            .redirect(Policy::custom(redirect))
            .build()
            .map_err(|error| object_store::Error::Generic {
                store: "HTTP",
                source: Box::new(error),
            })?;
        Ok(HttpClient::new(Repeating {
            client,
            authorization: self.authorization.clone(),
            limit: retry_limit(),
        }))
    }
}

#[derive(Debug)]
struct Repeating {
    client: reqwest::Client,
    authorization: Option<HeaderValue>,
    limit: Duration,
}

#[async_trait]
impl HttpService for Repeating {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        let tries = request.extensions().get::<Tries>().cloned();
        let tries = tries.unwrap_or_default();
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let n_tries = tries.add();
            let answer = self.client.call(request.clone()).await;
            let asked = match &answer {
                Ok(response) if !is_temporary(response.status()) => {
                    return answer.map(with_length);
                }
                Ok(response) => retry_after(response.headers()),
                Err(error) if !may_pass(error, n_tries) => return answer,
                Err(_) => None,
            };
            let wait = asked.unwrap_or_else(|| shortened(pause));
            if started.elapsed() + wait > self.limit {
                return answer;
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Return a random part of a pause, from half to all of it, so that workers do not repeat requests
/// at the same time.
pub(crate) fn shortened(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8) as f64 / u64::MAX as f64;
    pause.mul_f64(0.5 + 0.5 * random)
}

/// Add the length of a part to a response that states only the first and last byte of the part.
fn with_length(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    if !headers.contains_key(CONTENT_LENGTH)
        && let Some(len) = headers.get(CONTENT_RANGE).and_then(len_of_part)
    {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    response
}

/// Return the length of a part, such as 10 for `bytes 20-29/1000`.
fn len_of_part(range: &HeaderValue) -> Option<u64> {
    let (range, _) = range
        .to_str()
        .ok()?
        .strip_prefix("bytes ")?
        .split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
    last.checked_sub(first)?.checked_add(1)
}

fn is_temporary(status: StatusCode) -> bool {
    let code = status.as_u16();
    matches!(code, 408 | 425 | 429 | 500 | 502 | 503 | 504)
}

/// Return true if an error is temporary.
fn may_pass(error: &HttpError, n_tries: u32) -> bool {
    match error.kind() {
        HttpErrorKind::Connect => n_tries < CONNECTIONS && !is_certificate(error),
        HttpErrorKind::Request | HttpErrorKind::Timeout | HttpErrorKind::Interrupted => true,
        _ => false,
    }
}

fn is_certificate(error: &HttpError) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(one) = source {
        if one.to_string().contains("certificate") {
            return true;
        }
        source = one.source();
    }
    false
}

/// Return the pause that a server requests, in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    seconds.parse().ok().map(Duration::from_secs)
}

/// Follow a redirect, unless it leads from a public server to a private address, or from an
/// encrypted connection to an unencrypted one.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let (to, previous) = (attempt.url().clone(), attempt.previous());
    let Some(first) = previous.first() else {
        return attempt.follow();
    };
    let refused = if previous.len() > REDIRECTS {
        Some(format!("it redirects more than {REDIRECTS} times"))
    } else if !matches!(to.scheme(), "http" | "https") {
        Some(format!("it redirects to an address of {}://", to.scheme()))
    } else if first.scheme() == "https" && to.scheme() == "http" {
        Some("it redirects from https:// to http://".to_owned())
    } else if is_private(to.host_str()) && !is_private(first.host_str()) {
        Some("it redirects to an address of a private network".to_owned())
    } else {
        None
    };
    match refused {
        Some(reason) => attempt.error(format!("the redirect was refused: {reason}")),
        None => attempt.follow(),
    }
}

/// Return true for an address of a private network, and for this machine.
fn is_private(host: Option<&str>) -> bool {
    let Some(host) = host else {
        return true;
    };
    let host = host.trim_matches(['[', ']']);
    match host.parse() {
        Ok(IpAddr::V4(ip)) => {
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified()
        }
        Ok(IpAddr::V6(ip)) => {
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || ip.to_ipv4_mapped().is_some()
        }
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses() {
        for host in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "169.254.169.254",
            "localhost",
            "[::1]",
            "[fe80::1]",
            "[::ffff:10.0.0.1]",
            "0.0.0.0",
        ] {
            assert!(is_private(Some(host)), "{host}");
        }
        for host in ["8.8.8.8", "example.org", "[2001:db8::1]", "172.32.0.1"] {
            assert!(!is_private(Some(host)), "{host}");
        }
    }

    #[test]
    fn length_of_a_part() {
        let len = |text| len_of_part(&HeaderValue::from_static(text));
        assert_eq!(len("bytes 20-29/1000"), Some(10));
        assert_eq!(len("bytes 0-0/*"), Some(1));
        assert_eq!(len("bytes */1000"), None);
        assert_eq!(len("bytes 5-2/1000"), None);
    }

    #[test]
    fn pause_that_a_server_requests() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert(RETRY_AFTER, HeaderValue::from_static("3"));
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(3)));
    }
}
