//! HTTP requests. They are repeated after temporary errors. Redirects of public servers are
//! followed to public addresses only, unless the user allows others.

use std::collections::HashSet;
use std::env;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
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
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};

use crate::credentials::{RETRY_SECONDS, is_proxy, is_set};

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

/// Connector that creates the HTTP clients of a store.
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
    /// Create a client with maximum times to connect, to wait for another byte of a response, and
    /// to repeat a request.
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

/// Error for a bucket in another region. The value is the region that the server names.
#[derive(Debug)]
struct OtherRegion(String);

impl std::error::Error for OtherRegion {}

impl fmt::Display for OtherRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<Region>{}</Region>", self.0)
    }
}

/// Return an error for a redirect that names another region of the bucket, and no address.
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

/// Return true if an error that occurred after `n_tries` tries may be temporary.
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

/// Return the pause that a server requests, as a number of seconds or until a date.
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

/// Environment variable with which redirects to private networks are followed.
const PRIVATE_REDIRECTS: &str = "PACELINE_PRIVATE_REDIRECTS";
const REDIRECTS: usize = 5;
/// Beginning of the message about a redirect that is not followed.
const REFUSED: &str = "the redirect was refused";

/// Names of the hosts to which a client sends requests. A request to any other host results from a
/// redirect.
#[derive(Debug, Clone)]
struct Hosts {
    known: Arc<Mutex<Known>>,
    /// Names of proxies. Redirects to them are refused like redirects to a private network.
    proxies: Arc<HashSet<String>>,
    allows_private: bool,
    look_up: fn(&str) -> io::Result<Vec<SocketAddr>>,
}

#[derive(Debug, Default)]
struct Known {
    names: HashSet<String>,
    /// True if one of the hosts is in a private network.
    has_private: bool,
}

impl Hosts {
    fn new() -> Self {
        let proxies = env::vars().filter(|(name, _)| is_proxy(name));
        let host_of = |(_, value): (String, String)| {
            let has_scheme = value.contains("://");
            let address = if has_scheme {
                value
            } else {
                format!("http://{value}")
            };
            // `Url` keeps the capitals in the hosts of SOCKS proxies.
            Some(Url::parse(&address).ok()?.host_str()?.to_ascii_lowercase())
        };
        Hosts {
            known: Arc::default(),
            proxies: Arc::new(proxies.filter_map(host_of).collect()),
            allows_private: is_set(PRIVATE_REDIRECTS),
            look_up: |name| (name, 0).to_socket_addrs().map(Iterator::collect),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|lock| lock.into_inner())
    }

    /// Add the host of a request, which may be in a private network.
    fn add(&self, host: &str) {
        // Names of hosts that are looked up later are in lower case, as in redirects. Only names of
        // proxies may have capitals.
        let host = host.to_ascii_lowercase();
        let mut known = self.lock();
        if !known.names.contains(&host) {
            known.has_private |= is_private(&host);
            known.names.insert(host);
        }
    }

    /// Return true if redirects to private networks are followed.
    fn may_be_private(&self) -> bool {
        self.allows_private || self.lock().has_private
    }

    /// Return the reason for which a redirect is not followed, if there is one.
    fn reason_against(&self, first: &Url, to: &Url, n_redirects: usize) -> Option<String> {
        let host = to.host_str().unwrap_or_default();
        if n_redirects > REDIRECTS {
            Some(format!("it redirects more than {REDIRECTS} times"))
        } else if !matches!(to.scheme(), "http" | "https") {
            Some(format!("it redirects to an address of {}://", to.scheme()))
        } else if first.scheme() == "https" && to.scheme() == "http" {
            Some("it redirects from https:// to http://".to_owned())
        } else if (is_private(host) || self.proxies.contains(host)) && !self.may_be_private() {
            Some(private(host))
        } else {
            None
        }
    }

    /// Follow a redirect, unless there is a reason against it. Reasons are, for example, a redirect
    /// from a public server to a private network, or from an encrypted connection to an unencrypted
    /// one.
    fn redirect(&self, attempt: Attempt<'_>) -> Action {
        let previous = attempt.previous();
        let against = previous
            .first()
            .and_then(|first| self.reason_against(first, attempt.url(), previous.len()));
        match against {
            Some(reason) => attempt.error(format!("{REFUSED}: {reason}")),
            None => attempt.follow(),
        }
    }

    /// Look up the addresses of a host. If the host is the target of a redirect, return only public
    /// addresses, unless private ones are allowed.
    fn addresses_of(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let name = &*name.to_ascii_lowercase();
        let mut found = (self.look_up)(name)?;
        let is_public = |one: &SocketAddr| !is_private_ip(one.ip());
        if self.lock().names.contains(name) {
            self.lock().has_private |= !found.iter().any(is_public);
        } else if !self.proxies.contains(name) && !self.may_be_private() {
            found.retain(is_public);
            if found.is_empty() {
                return Err(io::Error::other(format!("{REFUSED}: {}", private(name))));
            }
        }
        Ok(found)
    }
}

fn private(host: &str) -> String {
    format!(
        "it redirects to {host}, which is in a private network; {PRIVATE_REDIRECTS}=1 allows this"
    )
}

impl Resolve for Hosts {
    fn resolve(&self, name: Name) -> Resolving {
        let hosts = self.clone();
        let looked_up = tokio::task::spawn_blocking(move || hosts.addresses_of(name.as_str()));
        Box::pin(async move {
            let found: Addrs = Box::new(looked_up.await??.into_iter());
            Ok(found)
        })
    }
}

/// Return true for an address of a private network, and for names of this machine.
fn is_private(host: &str) -> bool {
    let name = host.trim_matches(['[', ']']).trim_end_matches('.');
    match name.parse() {
        Ok(ip) => is_private_ip(ip),
        Err(_) => name.is_empty() || name == "localhost" || name.ends_with(".localhost"),
    }
}

fn is_private_ip(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            // 100.64.0.0/10 are addresses within a provider's network.
            let is_shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || is_shared
                || ip.octets()[0] == 0
                || ip.is_broadcast()
        }
        IpAddr::V6(ip) => {
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || ipv4_within(ip).is_some_and(|ip| is_private_ip(ip.into()))
        }
    }
}

/// Return the IPv4 address that a mapped (`::ffff:`) or translated (`64:ff9b::`) address contains.
fn ipv4_within(ip: Ipv6Addr) -> Option<std::net::Ipv4Addr> {
    let translated = match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some((u32::from(high) << 16 | u32::from(low)).into())
        }
        _ => None,
    };
    ip.to_ipv4_mapped().or(translated)
}

#[cfg(test)]
mod tests;
