//! Errors of requests, as sentences with the address, the bytes, and the number of tries.

use std::error::Error as _;
use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::address::{Address, Scheme};
use crate::client::has_credentials;
use crate::credentials::{is_anonymous, proxy_variable};
use crate::requests::SILENCE;
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
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => {
                let reason = code.map_or_else(String::new, |code| format!(" ({code})"));
                let advice = match code {
                    Some("InvalidObjectState") => "it is in cold storage: restore it first".into(),
                    _ => self.advice(),
                };
                let what = format!("the server refuses access{reason}; {advice}");
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
            _ if is_of_machine(&text) => {
                let what = format!(
                    "the credentials of this machine cannot be read ({}); {}",
                    reason_of(&text, None),
                    self.advice()
                );
                self.io(io::ErrorKind::PermissionDenied, &what)
            }
            _ if between(&text, "<Region>", "</Region>").is_some()
                || text.contains("redirect without LOCATION") =>
            {
                let region = between(&text, "<Region>", "</Region>");
                let region = region.map_or_else(String::new, |region| format!("={region}"));
                let what = format!(
                    "the bucket {} is in another region: set AWS_REGION{region}",
                    self.bucket()
                );
                self.io(io::ErrorKind::Other, &what)
            }
            _ if text.contains("certificate") => {
                let what = format!(
                    "the certificate of the server is not trusted ({}): if it should be, name a file \
                     with the certificate of its authority in SSL_CERT_FILE",
                    reason_of(&text, None)
                );
                self.io(io::ErrorKind::Other, &what)
            }
            _ if text.contains("timed out") => {
                let what = format!(
                    "the server did not answer within {} s: check the address, the network and the proxy",
                    SILENCE.as_secs()
                );
                self.io(io::ErrorKind::TimedOut, &what)
            }
            _ if text.contains("(Connect)") => {
                let action = between(&text, "Error performing ", " in ").unwrap_or_default();
                let url = action.rsplit(' ').next().unwrap_or_default();
                let (scheme, rest) = url.split_once("://").unwrap_or_default();
                let host = rest.split(['/', '?']).next().unwrap_or_default();
                let proxy = proxy_variable(scheme).map(|name| format!(" by the proxy of {name}"));
                let what = format!(
                    "cannot connect to {host}{}: {}",
                    proxy.unwrap_or_default(),
                    reason_of(&text, None)
                );
                self.io(io::ErrorKind::Other, &what)
            }
            _ if text.contains("before message length") => {
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
        if is_anonymous() {
            return "the request was anonymous, as --anonymous or PACELINE_ANONYMOUS asks: without \
                    it, credentials are used"
                .into();
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

/// Return true for the error of a request for the credentials of a machine or container.
fn is_of_machine(text: &str) -> bool {
    [
        "/latest/api/token",
        "/iam/security-credentials",
        "//169.254.",
        "metadata.google.internal",
        "/metadata/identity",
        "/computeMetadata/",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// Return true if the server responded to a request for a range with the whole file.
fn is_whole(text: &str) -> bool {
    text.contains("non-partial") || text.contains("Range request not supported")
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
    without_queries(last)
}

/// Return the messages of an error and of its causes, a line each.
fn text_of(error: &object_store::Error) -> String {
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

    fn message(address: &str, text: &str) -> String {
        let address = Address::parse(Path::new(address)).unwrap().unwrap();
        let request = Request {
            address: &address,
            bytes: Some(0..10),
            tries: 2,
            elapsed: Duration::from_secs(3),
        };
        let source = text.to_owned().into();
        let error = object_store::Error::Generic {
            store: "S3",
            source,
        };
        request.failed(error).to_string()
    }

    #[test]
    fn reasons_of_failures() {
        for (text, words) in [
            (
                "<Code>AuthorizationHeaderMalformed</Code><Region>eu-north-1</Region>",
                "the bucket b is in another region: set AWS_REGION=eu-north-1",
            ),
            (
                "received redirect without LOCATION",
                "the bucket b is in another region: set AWS_REGION (2",
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                "the certificate of the server is not trusted (invalid peer certificate: UnknownIssuer): \
                 if it should be, name a file with the certificate of its authority in SSL_CERT_FILE",
            ),
            (
                "error sending request\noperation timed out",
                "the server did not answer within 30 s",
            ),
            (
                "PUT http://169.254.169.254/latest/api/token\nstatus code: 404 Not Found: none",
                "the credentials of this machine cannot be read (the server answered 404 Not Found)",
            ),
        ] {
            let message = message("s3://b/md.xtc", text);
            let begin = "s3://b/md.xtc: cannot read bytes 0 to 10: ";
            assert!(message.starts_with(begin), "{message}");
            assert!(message.contains(words), "{message}");
            assert!(message.contains("(2 requests in 3.0 s)"), "{message}");
        }
    }
}
