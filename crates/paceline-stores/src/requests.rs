//! HTTP requests. They are repeated after temporary errors.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use chrono::DateTime;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, RETRY_AFTER,
};
use http::{StatusCode, Uri};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::redirect::Policy;

use crate::credentials::RETRY_SECONDS;
use crate::redirects::{Hosts, REFUSED};

const DEFAULT_RETRY: Duration = Duration::from_secs(60);
/// First and longest pause before a request is repeated.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Maximum number of attempts to reach a server that does not respond at all.
const CONNECTIONS: u32 = 4;
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum times to connect to the server of a machine's credentials (the time that `object_store`
/// sets), and to wait for its responses. On a machine without this server, requests to it may get
/// no response.
const METADATA_CONNECT: Duration = Duration::from_secs(1);
const METADATA_LIMIT: Duration = Duration::from_secs(5);
/// Maximum time without another byte of a response.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// Beginning of the message about a certificate that is not trusted.
pub(crate) const UNTRUSTED: &str = "invalid peer certificate";

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
    pub(crate) container: Option<Container>,
}

/// Server of the credentials of a container. Requests to [`CONTAINER`] are sent there instead.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) uri: Uri,
    pub(crate) authorization: Option<HeaderValue>,
}

/// Host from which `object_store` requests the credentials of a container.
const CONTAINER: &str = "169.254.170.2";

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let timeout =
            |options: &ClientOptions| options.get_config_value(&ClientConfigKey::ConnectTimeout);
        let of_metadata = ClientOptions::new().with_connect_timeout(METADATA_CONNECT);
        let client = match timeout(options) == timeout(&of_metadata) {
            true => Repeating::new(METADATA_CONNECT, METADATA_LIMIT, METADATA_LIMIT),
            false => Repeating::new(CONNECT_TIMEOUT, SILENCE, retry_limit()),
        };
        client
            .map(|client| {
                HttpClient::new(Repeating {
                    authorization: self.authorization.clone(),
                    container: self.container.clone(),
                    ..client
                })
            })
            .map_err(|error| object_store::Error::Generic {
                store: "HTTP",
                source: Box::new(error),
            })
    }
}

#[derive(Debug)]
struct Repeating {
    client: reqwest::Client,
    hosts: Hosts,
    authorization: Option<HeaderValue>,
    container: Option<Container>,
    limit: Duration,
}

impl Repeating {
    /// Create a client with times to connect, to wait for another byte of a response, and to repeat
    /// a request.
    fn new(connect: Duration, silence: Duration, limit: Duration) -> reqwest::Result<Self> {
        // Another library of the process may already have installed a provider, which can also be
        // used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let hosts = Hosts::new();
        let of_redirects = hosts.clone();
        let client = reqwest::Client::builder()
            .user_agent(concat!("paceline/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .connect_timeout(connect)
            .read_timeout(silence)
            .redirect(Policy::custom(move |one| of_redirects.redirect(one)))
            .dns_resolver(Arc::new(hosts.clone()))
            .build()?;
        Ok(Repeating {
            client,
            hosts,
            authorization: None,
            container: None,
            limit,
        })
    }
}

#[async_trait]
impl HttpService for Repeating {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        if let Some(container) = &self.container
            && request.uri().host() == Some(CONTAINER)
        {
            *request.uri_mut() = container.uri.clone();
            if let Some(value) = &container.authorization {
                request.headers_mut().insert(AUTHORIZATION, value.clone());
            }
        }
        self.hosts.add(request.uri().host().unwrap_or_default());
        let tries = request.extensions().get::<Tries>().cloned();
        let tries = tries.unwrap_or_default();
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let n_tries = tries.add();
            let answer = self.client.call(request.clone()).await;
            let mut busy = None;
            let asked = match &answer {
                Ok(response) if !is_temporary(response.status()) => {
                    return check_region(answer?).map(with_length);
                }
                Ok(response) => {
                    let asked = retry_after(response.headers());
                    let is_long = |pause: &Duration| *pause > self.limit;
                    busy = asked
                        .filter(is_long)
                        .map(|pause| Busy(response.status(), pause));
                    asked
                }
                Err(error) if !may_pass(error, n_tries) => return answer,
                Err(_) => None,
            };
            // A pause of 0 s, or until a date that is past, would repeat the request without end.
            let asked = asked.filter(|pause| !pause.is_zero());
            let wait = asked.unwrap_or_else(|| shortened(pause));
            if started.elapsed().saturating_add(wait) > self.limit {
                return match busy {
                    Some(busy) => Err(HttpError::new(HttpErrorKind::Unknown, busy)),
                    None => answer,
                };
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Response of a server that asks for a longer pause than the user allows.
#[derive(Debug)]
struct Busy(StatusCode, Duration);

impl std::error::Error for Busy {}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Busy(status, pause) = self;
        let seconds = pause.as_secs();
        write!(
            f,
            "status code: {status}, and asks for a pause of {seconds} s, longer than {RETRY_SECONDS} \
             allows: "
        )
    }
}

/// Bucket of another region, which the server names.
#[derive(Debug)]
struct OtherRegion(String);

impl std::error::Error for OtherRegion {}

impl fmt::Display for OtherRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<Region>{}</Region>", self.0)
    }
}

/// Turn the redirect of a bucket in another region, which names no address, into an error.
fn check_region(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let region = response.headers().get("x-amz-bucket-region");
    match region.and_then(|region| region.to_str().ok()) {
        Some(region) if response.status() == StatusCode::MOVED_PERMANENTLY => Err(HttpError::new(
            HttpErrorKind::Unknown,
            OtherRegion(region.to_owned()),
        )),
        _ => Ok(response),
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
        _ if text_within(error, REFUSED) => false,
        HttpErrorKind::Connect => n_tries < CONNECTIONS && !text_within(error, UNTRUSTED),
        HttpErrorKind::Request | HttpErrorKind::Timeout | HttpErrorKind::Interrupted => true,
        _ => false,
    }
}

/// Return true if the message of an error or of one of its causes contains a text.
fn text_within(error: &HttpError, text: &str) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(one) = source {
        if one.to_string().contains(text) {
            return true;
        }
        source = one.source();
    }
    false
}

/// Return the pause that a server requests, in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = match text.parse() {
        Ok(seconds) => seconds,
        Err(_) => {
            let until = DateTime::parse_from_rfc2822(text).ok()?.timestamp();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
            u64::try_from(until).ok()?.saturating_sub(now)
        }
    };
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_in_seconds_or_until_a_date() {
        let pause = |text| {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(text))];
            retry_after(&HeaderMap::from_iter(headers))
        };
        assert_eq!(pause("7"), Some(Duration::from_secs(7)));
        let most = pause("18446744073709551615").unwrap();
        assert_eq!(Duration::from_secs(1).saturating_add(most), Duration::MAX);
        assert_eq!(pause("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let long = pause("Fri, 21 Oct 2185 07:28:00 GMT").unwrap();
        assert!(long > Duration::from_secs(100 * 365 * 86400));
        assert_eq!(pause("soon"), None);
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

    #[test]
    fn errors_that_may_pass() {
        let connect = |text: &str| {
            HttpError::new(
                HttpErrorKind::Connect,
                std::io::Error::other(text.to_owned()),
            )
        };
        let refused = connect("cannot connect for certificate.xtc");
        assert!(may_pass(&refused, 1));
        assert!(!may_pass(&refused, CONNECTIONS));
        assert!(!may_pass(
            &connect("invalid peer certificate: UnknownIssuer"),
            1
        ));
    }

    #[test]
    fn a_server_that_does_not_answer() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let short = Duration::from_millis(50);
        // An encrypted connection needs an answer of the server.
        for (scheme, connect, silence) in
            [("http", CONNECT_TIMEOUT, short), ("https", short, SILENCE)]
        {
            let address = format!("{scheme}://{}/md.xtc", silent.local_addr().unwrap());
            let client = Repeating::new(connect, silence, Duration::ZERO).unwrap();
            let mut request = HttpRequest::new(object_store::client::HttpRequestBody::empty());
            *request.uri_mut() = address.parse().unwrap();
            let error = runtime.block_on(client.call(request)).unwrap_err();
            assert_eq!(error.kind(), HttpErrorKind::Timeout);
            assert_eq!(
                text_within(&error, "(Connect)"),
                scheme == "https",
                "{error:?}"
            );
        }
    }
}
