//! Errors of requests, as sentences with the address, the bytes, and the number of tries.

use std::error::Error as _;
use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::address::{Address, Scheme};
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
        let code = between(&text, "<Code>", "</Code>");
        match &error {
            object_store::Error::Precondition { .. } => self.changed(),
            object_store::Error::NotFound { .. } => {
                let what = match code {
                    Some("NoSuchBucket") => format!("the bucket {} does not exist", self.bucket()),
                    _ => "there is no such object".to_owned(),
                };
                self.io(io::ErrorKind::NotFound, &what)
            }
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => {
                let reason = code.map_or_else(String::new, |code| format!(" ({code})"));
                let advice = match code {
                    Some("InvalidObjectState") => "it is in cold storage: restore it first",
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
            _ if text.contains("redirect without LOCATION") => {
                let what = format!(
                    "the bucket {} is in another region: set AWS_REGION",
                    self.bucket()
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

    fn advice(&self) -> &'static str {
        match self.address.scheme {
            Scheme::S3 => {
                "credentials are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from \
                 AWS_PROFILE"
            }
            Scheme::Gs => "credentials are read from GOOGLE_APPLICATION_CREDENTIALS",
            Scheme::Az => {
                "credentials are read from AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN"
            }
            Scheme::Http | Scheme::Https => {
                "logins are read from .netrc, and tokens of Hugging Face from HF_TOKEN"
            }
        }
    }
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
