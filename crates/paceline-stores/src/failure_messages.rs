//! Errors of requests, as sentences with the address, the bytes, and the number of tries.

use std::error::Error as _;
use std::io;
use std::ops::Range;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};

use crate::address::{Address, Scheme};
use crate::build_client::{has_credentials, skipping};
use crate::credentials::{is_anonymous, proxy_variable};
use crate::http_requests::{CONNECT_TIMEOUT, SILENCE, UNTRUSTED};
use paceline_formats::error::Error;

/// Request that failed.
pub(crate) struct Request<'a> {
    pub(crate) address: &'a Address,
    pub(crate) bytes: Option<Range<u64>>,
    /// Number of times that the request was sent, and the total time.
    pub(crate) tries: u32,
    pub(crate) elapsed: Duration,
}

impl Request<'_> {
    /// Return the error for the response to this request.
    pub(crate) fn failed(&self, error: object_store::Error) -> Error {
        let text = text_of(&error);
        let connection = connection_of(&error);
        let is_timeout = connection.is_some_and(|one| one.kind() == HttpErrorKind::Timeout);
        // Unlike `text`, these messages contain neither an address nor a response of the server.
        let below = connection.map_or_else(String::new, |one| text_of(one));
        // Address of the failed request, which may be a request for credentials.
        let action = between(&text, "Error performing ", " in ").unwrap_or_default();
        let url = action.rsplit(' ').next().unwrap_or_default();
        let is_http = self.address.scheme.is_http();
        let is_bucket = |code: &&str| *code != "NoSuchBucket" || !is_http;
        let code = between(&text, "<Code>", "</Code>").filter(is_bucket);
        match &error {
            object_store::Error::Precondition { .. } => self.changed(),
            object_store::Error::NotFound { .. } => {
                let is_pattern = self.address.key.contains(['*', '[']);
                let what = match code {
                    Some("NoSuchBucket") => format!("the bucket {} does not exist", self.bucket()),
                    _ if is_pattern && is_http => {
                        "there is no such object, and servers of plain HTTP cannot be listed: name each \
                         file"
                            .to_owned()
                    }
                    _ => "there is no such object".to_owned(),
                };
                self.io(io::ErrorKind::NotFound, &what)
            }
            // For an object in cold storage, Azure responds with status 409.
            _ if matches!(code, Some("InvalidObjectState" | "BlobArchived")) => {
                let what = "it is in cold storage: restore it first";
                self.io(io::ErrorKind::PermissionDenied, what)
            }
            _ if code == Some("ExpiredToken") => {
                let what = "the credentials have expired (ExpiredToken): get new ones, with your \
                            program for logging in";
                self.io(io::ErrorKind::PermissionDenied, what)
            }
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => {
                let reason = code.map_or_else(String::new, |code| format!(" ({code})"));
                let what = format!("the server refuses access{reason}; {}", self.advice());
                self.io(io::ErrorKind::PermissionDenied, &what)
            }
            _ if code == Some("NoSuchBucket") => {
                let what = format!("the bucket {} does not exist", self.bucket());
                self.io(io::ErrorKind::NotFound, &what)
            }
            _ if is_whole(&text) => Error::Unsupported {
                path: self.address.path().to_owned(),
                what: "the server does not send parts of a file: download the file first".into(),
            },
            _ if is_of_machine(url, self.address) => {
                let what = format!(
                    "the credentials of this machine cannot be read ({}); {}",
                    reason_of(&text, None),
                    self.advice()
                );
                self.io(io::ErrorKind::PermissionDenied, &what)
            }
            _ if self.address.scheme == Scheme::S3
                && (text.contains("<Region>") || is_bare_redirect(&text)) =>
            {
                let region = between(&text, "<Region>", "</Region>");
                let region = region.map_or_else(String::new, |region| format!("={region}"));
                let what = format!(
                    "the bucket {} is in another region: set AWS_REGION{region}",
                    self.bucket()
                );
                self.io(io::ErrorKind::Other, &what)
            }
            _ if below.contains("<Region>") || is_bare_redirect(&text) => {
                let region = between(&below, "<Region>", "</Region>");
                let region = region.map_or_else(String::new, |region| {
                    format!(
                        ": the bucket is in the region {region}, whose servers have other addresses"
                    )
                });
                let what = format!("the server redirects the request, but to no address{region}");
                self.io(io::ErrorKind::Other, &what)
            }
            _ if below.contains(UNTRUSTED) => {
                let what = format!(
                    "the certificate of the server is not trusted ({}): if it should be, name a file \
                     with the certificate of its authority in SSL_CERT_FILE",
                    reason_of(&below, None)
                );
                self.io(io::ErrorKind::Other, &what)
            }
            _ if below.contains("(Connect)") => {
                let (scheme, rest) = url.split_once("://").unwrap_or_default();
                let host = rest.split(['/', '?']).next().unwrap_or_default();
                // The message only says that a proxy is set, because no_proxy may exclude this host
                // from it.
                let proxy = proxy_variable(scheme).map(|name| format!(" ({name} is set)"));
                let proxy = proxy.unwrap_or_default();
                let (kind, what) = match is_timeout {
                    true => (
                        io::ErrorKind::TimedOut,
                        format!(
                            "cannot connect to {host} within {} s{proxy}: check the address, the \
                             network and the proxy",
                            CONNECT_TIMEOUT.as_secs()
                        ),
                    ),
                    false => (
                        io::ErrorKind::Other,
                        format!(
                            "cannot connect to {host}{proxy}: {}",
                            reason_of(&below, None)
                        ),
                    ),
                };
                self.io(kind, &what)
            }
            _ if is_timeout => {
                let what = format!(
                    "the server did not answer within {} s: check the address, the network and the proxy",
                    SILENCE.as_secs()
                );
                self.io(io::ErrorKind::TimedOut, &what)
            }
            _ if below.contains("before message length") => {
                self.io(io::ErrorKind::UnexpectedEof, "the connection was cut")
            }
            _ => self.io(io::ErrorKind::Other, &reason_of(&text, code)),
        }
    }

    pub(crate) fn changed(&self) -> Error {
        Error::Changed {
            path: self.address.path().to_owned(),
            what: "the store has another version".into(),
        }
    }

    /// Return the error for a response that has too few bytes.
    pub(crate) fn cut(&self, found: u64) -> Error {
        let what = format!("the connection was cut after {found} bytes");
        self.io(io::ErrorKind::UnexpectedEof, &what)
    }

    fn io(&self, kind: io::ErrorKind, what: &str) -> Error {
        let action = match &self.bytes {
            Some(bytes) if self.tries > 0 => {
                format!("cannot read bytes {} to {}", bytes.start, bytes.end)
            }
            _ => "cannot open".to_owned(),
        };
        let tried = match self.tries {
            0 | 1 => String::new(),
            n => format!(" ({n} requests in {:.1} s)", self.elapsed.as_secs_f64()),
        };
        let reason = io::Error::new(kind, format!("{what}{tried}"));
        Error::io(self.address.path(), action, reason)
    }

    fn bucket(&self) -> &str {
        &self.address.bucket
    }

    /// Return the advice for a request that was refused.
    fn advice(&self) -> String {
        let sources = match self.address.scheme {
            Scheme::S3 => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from AWS_PROFILE",
            Scheme::Gs => "GOOGLE_APPLICATION_CREDENTIALS",
            Scheme::Az => "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
            Scheme::Http | Scheme::Https => ".netrc, and tokens of Hugging Face from HF_TOKEN",
        };
        let asking = match is_anonymous() {
            true => Some("--anonymous or PACELINE_ANONYMOUS"),
            false => skipping(self.address.scheme),
        };
        if let Some(asking) = asking {
            return format!(
                "the request was anonymous, as {asking} asks: without it, credentials are used"
            );
        }
        if has_credentials(self.address) {
            return format!(
                "check the credentials, which are read from {sources}; public data are read \
                 with --anonymous or PACELINE_ANONYMOUS=1"
            );
        }
        format!(
            "no credentials were found, so that the request was anonymous, which is enough for public \
             data only: they are read from {sources}"
        )
    }
}

/// Return true if a machine or container requests its credentials from this address, and if it is
/// not the address of the object.
fn is_of_machine(url: &str, object: &Address) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or_default();
    let is_host = host.starts_with("169.254.") || host == "metadata.google.internal";
    let is_path = [
        "latest/api/token",
        "latest/meta-data/iam/security-credentials",
        "metadata/identity",
        "computeMetadata/",
    ]
    .iter()
    .any(|begin| path.starts_with(begin));
    (is_host || is_path) && !object.scheme.is_http() && !url.ends_with(&object.key)
}

/// Return true for a redirect without an address.
fn is_bare_redirect(text: &str) -> bool {
    text.contains("redirect without LOCATION")
}

/// Return true if the server responded to a request for a range with the whole file.
fn is_whole(text: &str) -> bool {
    text.contains("Received non-partial response") || text.contains("Range request not supported")
}

/// Return the reason of an unexpected error: the server's status and code, or the last cause.
fn reason_of(text: &str, code: Option<&str>) -> String {
    if let Some(status) = between(text, "status code: ", ":") {
        let code = code.map_or_else(String::new, |code| format!(" ({code})"));
        let redirects = match status.starts_with('3') {
            true => ", a redirect that is not followed",
            false => "",
        };
        return format!("the server answered {status}{code}{redirects}");
    }
    let last = text.rsplit('\n').next().unwrap_or_default();
    let words: Vec<_> = last.split([' ', ',']).collect();
    if let ["Requested", asked, "", "got", sent] = words[..] {
        let bytes = |range: &str| match range.split_once("..") {
            Some((first, end)) => {
                let last = end.parse().map_or(0, |end: u64| end.saturating_sub(1));
                format!("{first} to {last}")
            }
            None => range.to_owned(),
        };
        return format!(
            "the server sent bytes {} of the file instead of {}",
            bytes(sent),
            bytes(asked)
        );
    }
    without_queries(last)
}

/// Return the error of a connection among the causes of an error.
fn connection_of(error: &object_store::Error) -> Option<&HttpError> {
    let mut source = error.source();
    while let Some(one) = source {
        if let Some(found) = one.downcast_ref() {
            return Some(found);
        }
        source = one.source();
    }
    None
}

/// Return the messages of an error and of its causes, one per line.
fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(one) = source {
        text.push('\n');
        text.push_str(&one.to_string());
        source = one.source();
    }
    text
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0.trim())
}

/// Remove queries of addresses, which may contain signatures.
fn without_queries(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.split_once("://") {
        Some(_) => word.split('?').next().unwrap_or_default(),
        None => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    type Source = Box<dyn std::error::Error + Send + Sync>;

    fn message(address: &str, source: Source) -> String {
        let address = Address::parse(Path::new(address)).unwrap().unwrap();
        let request = Request {
            address: &address,
            bytes: Some(0..10),
            tries: 2,
            elapsed: Duration::from_secs(3),
        };
        let error = object_store::Error::Generic {
            store: "S3",
            source,
        };
        request.failed(error).to_string()
    }

    /// Return the error of a connection.
    fn broken(kind: HttpErrorKind, text: &str) -> Source {
        HttpError::new(kind, io::Error::other(text.to_owned())).into()
    }

    #[test]
    fn reasons_of_failures() {
        for (source, words) in [
            (
                "<Code>AuthorizationHeaderMalformed</Code><Region>eu-north-1</Region>".into(),
                "the bucket b is in another region: set AWS_REGION=eu-north-1",
            ),
            (
                "received redirect without LOCATION".into(),
                "the bucket b is in another region: set AWS_REGION (2",
            ),
            (
                broken(
                    HttpErrorKind::Connect,
                    "client error (Connect)\ninvalid peer certificate: UnknownIssuer",
                ),
                "the certificate of the server is not trusted (invalid peer certificate: UnknownIssuer): \
                 if it should be, name a file with the certificate of its authority in SSL_CERT_FILE",
            ),
            (
                broken(
                    HttpErrorKind::Timeout,
                    "error sending request\noperation timed out",
                ),
                "the server did not answer within 30 s",
            ),
            (
                broken(
                    HttpErrorKind::Timeout,
                    "client error (Connect)\noperation timed out",
                ),
                " within 10 s: check the address, the network and the proxy",
            ),
            (
                broken(
                    HttpErrorKind::Interrupted,
                    "end of file before message length reached",
                ),
                "the connection was cut",
            ),
            (
                "Error performing PUT http://169.254.169.254/latest/api/token in 1ms - status code: 404 \
                 Not Found: none"
                    .into(),
                "the credentials of this machine cannot be read (the server answered 404 Not Found)",
            ),
            (
                "Error performing GET http://h/metadata/identity/md.xtc in 1ms - status code: 500 \
                 Internal Server Error: /latest/api/token"
                    .into(),
                "the server answered 500 Internal Server Error (2",
            ),
            (
                "Requested 0..10, got 5..15".into(),
                "the server sent bytes 5 to 14 of the file instead of 0 to 9 (2",
            ),
            (
                "status code: 409 Conflict: <Code>BlobArchived</Code>".into(),
                "it is in cold storage: restore it first (2",
            ),
            (
                "status code: 400 Bad Request: <Code>ExpiredToken</Code>".into(),
                "the credentials have expired (ExpiredToken): get new ones",
            ),
            (
                "status code: 504 Gateway Timeout: upstream request timed out".into(),
                "the server answered 504 Gateway Timeout (2",
            ),
            (
                "status code: 500 Internal Server Error: invalid peer certificate (Connect)".into(),
                "the server answered 500 Internal Server Error (2",
            ),
        ] {
            let message = message("s3://b/md.xtc", source);
            let begin = "s3://b/md.xtc: cannot read bytes 0 to 10: ";
            assert!(message.starts_with(begin), "{message}");
            assert!(message.contains(words), "{message}");
            assert!(message.contains("(2 requests in 3.0 s)"), "{message}");
        }
    }

    #[test]
    fn redirects_of_servers_name_no_variable() {
        for (source, words) in [
            (
                broken(HttpErrorKind::Unknown, "<Region>eu-north-1</Region>"),
                "the server redirects the request, but to no address: the bucket is in the region \
                 eu-north-1",
            ),
            (
                "received redirect without LOCATION".into(),
                "the server redirects the request, but to no address (2",
            ),
        ] {
            let message = message("https://h/md.xtc", source);
            assert!(message.contains(words), "{message}");
        }
    }
}
