//! Address of an object, and the identity of one of its versions.

use std::path::{Path, PathBuf};

use object_store::{GetOptions, ObjectMeta};
use paceline_formats::error::{Error, Result};

/// Kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    S3,
    Gs,
    Az,
    Http,
    Https,
}

const SCHEMES: [(&str, Scheme); 5] = [
    ("s3", Scheme::S3),
    ("gs", Scheme::Gs),
    ("az", Scheme::Az),
    ("http", Scheme::Http),
    ("https", Scheme::Https),
];

/// Prefixes of query parameters that contain a signature or a key.
const SECRETS: [&str; 8] = [
    "x-amz-",
    "x-goog-",
    "awsaccesskeyid",
    "signature",
    "sig=",
    "token",
    "access_token",
    "key=",
];

/// Address of an object: scheme, bucket or host, key, and version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    text: PathBuf,
    pub(crate) scheme: Scheme,
    /// Bucket or container; host and port for HTTP.
    pub(crate) bucket: String,
    /// Key of the object, in the form that the store uses; for HTTP the path, still encoded.
    pub(crate) key: String,
    /// Query of an HTTP address, without the question mark.
    pub(crate) query: Option<String>,
    /// Version that the address names.
    pub(crate) version: Option<String>,
}

impl Address {
    /// Parse an address; `None` if the path is that of a local file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an address that names no object or contains a secret.
    pub fn parse(path: &Path) -> Result<Option<Address>> {
        let Some(text) = path.to_str() else {
            return Ok(None);
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(None);
        };
        let Some(&(name, scheme)) = SCHEMES.iter().find(|(name, _)| *name == scheme) else {
            return Ok(None);
        };
        let refused = |what: &str| {
            let public = rest.split('?').next().unwrap_or_default();
            let public = public.rsplit('@').next().unwrap_or_default();
            Err(Error::Unsupported {
                path: PathBuf::from(format!("{name}://{public}")),
                what: what.into(),
            })
        };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains('@') {
            return refused(
                "an address must not contain a user's name or password: put them into .netrc, or into \
                 the environment",
            );
        }
        if bucket.is_empty() {
            return refused("the address names no bucket or host");
        }
        let (key, query) = split_query(scheme, key);
        if let Some(query) = query
            && query.to_ascii_lowercase().split('&').any(is_secret)
        {
            return refused(
                "the address contains a signature or a key, which would be written into results: give \
                 the address without it, and credentials in the environment",
            );
        }
        let is_usual = |one: char| one.is_ascii_alphanumeric() || "._-$".contains(one);
        if !scheme.is_http() && !bucket.chars().all(is_usual) {
            return refused(
                "names of buckets have letters, digits, dots, dashes and underscores only",
            );
        }
        if key.is_empty() {
            return refused("the address names no object: expected the name of a file behind it");
        }
        if key.ends_with('/') {
            return refused("the address ends with a slash, and names no object");
        }
        if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return refused("the address has an empty or relative part between two slashes");
        }
        let version = query
            .filter(|_| !scheme.is_http())
            .and_then(|query| query.split_once('=').map(|(_, version)| version.to_owned()));
        Ok(Some(Address {
            text: path.to_owned(),
            scheme,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            query: query.filter(|_| scheme.is_http()).map(str::to_owned),
            version,
        }))
    }

    /// Return the address in the form in which the user wrote it.
    pub fn path(&self) -> &Path {
        &self.text
    }

    /// Return the address of an object with another name in the same folder.
    pub fn beside(&self, name: impl FnOnce(&str) -> String) -> Address {
        let (folder, own) = self.key.rsplit_once('/').unwrap_or(("", &self.key));
        let key = match folder {
            "" => name(own),
            folder => format!("{folder}/{}", name(own)),
        };
        self.sibling(&key)
    }

    /// Return the address of another key in the same bucket.
    pub(crate) fn sibling(&self, key: &str) -> Address {
        let scheme = SCHEMES.iter().find(|(_, one)| *one == self.scheme);
        let scheme = scheme.map_or("", |(name, _)| name);
        Address {
            text: PathBuf::from(format!("{scheme}://{}/{key}", self.bucket)),
            key: key.to_owned(),
            version: None,
            ..self.clone()
        }
    }

    /// Return the text that identifies a client. Objects in one bucket or on one host share a
    /// client.
    pub(crate) fn client_key(&self) -> String {
        let query = self.query.as_deref().unwrap_or_default();
        format!("{:?} {} {query}", self.scheme, self.bucket)
    }
}

impl Scheme {
    pub(crate) fn is_http(self) -> bool {
        matches!(self, Scheme::Http | Scheme::Https)
    }
}

/// Split the query off a key. In buckets, a question mark may be part of a key, unless a version
/// follows.
fn split_query(scheme: Scheme, key: &str) -> (&str, Option<&str>) {
    if scheme.is_http() {
        let key = key.split('#').next().unwrap_or_default();
        return match key.split_once('?') {
            Some((key, query)) => (key, Some(query)),
            None => (key, None),
        };
    }
    for name in ["?versionId=", "?generation="] {
        if let Some(at) = key.rfind(name) {
            return (&key[..at], Some(&key[at + 1..]));
        }
    }
    (key, None)
}

fn is_secret(parameter: &str) -> bool {
    SECRETS.iter().any(|secret| parameter.starts_with(secret))
}

/// Version of an object, as the store states it. The store's text is not interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Version {
    /// Entity tag (ETag). Each request requires it, unless it is a weak tag.
    Tag(String),
    /// Time of the last change.
    Modified(String),
    /// The store states neither a tag nor a time, so that only the size is compared.
    Unknown,
}

impl Version {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        if let Some(tag) = &meta.e_tag {
            return Version::Tag(tag.clone());
        }
        match meta.last_modified.timestamp_millis() {
            ..=0 => Version::Unknown,
            _ => Version::Modified(meta.last_modified.to_rfc3339()),
        }
    }

    /// Return the text that is saved in indexes; `None` if the store does not identify versions.
    pub(crate) fn to_text(&self) -> Option<String> {
        match self {
            Version::Tag(tag) => Some(format!("etag {tag}")),
            Version::Modified(time) => Some(format!("modified {time}")),
            Version::Unknown => None,
        }
    }

    /// Parse the result of [`Version::to_text`].
    pub(crate) fn from_text(text: &str) -> Self {
        match text.split_once(' ') {
            Some(("etag", tag)) => Version::Tag(tag.into()),
            Some(("modified", time)) => Version::Modified(time.into()),
            _ => Version::Unknown,
        }
    }

    /// Require this version in a request. A weak tag or a time is only compared with the response.
    pub(crate) fn require(&self, options: &mut GetOptions) {
        if let Version::Tag(tag) = self
            && !tag.starts_with("W/")
        {
            options.if_match = Some(tag.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Address>> {
        Address::parse(Path::new(text))
    }

    #[test]
    fn parts_of_addresses() {
        let parts = |text| {
            let one = parse(text).unwrap().unwrap();
            (one.bucket, one.key, one.query, one.version)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            parts("s3://b/a b/md%20.xtc?versionId=x=1"),
            ("b".into(), "a b/md%20.xtc".into(), None, some("x=1"))
        );
        assert_eq!(
            parts("s3://b/what?.xtc"),
            ("b".into(), "what?.xtc".into(), None, None)
        );
        assert_eq!(
            parts("https://h:8080/a/md.xtc?download=1#top"),
            ("h:8080".into(), "a/md.xtc".into(), some("download=1"), None)
        );
        for local in [
            "md.xtc",
            "/a/md.xtc",
            "C:\\md.xtc",
            "ftp://h/md.xtc",
            "imd://h:1",
        ] {
            assert_eq!(parse(local).unwrap(), None);
        }
    }

    #[test]
    fn addresses_that_name_no_object_or_hold_a_secret_are_refused() {
        for (text, why) in [
            ("s3://b", "names no object"),
            ("s3://b/", "names no object"),
            ("s3://my bucket/md.xtc", "letters, digits"),
            ("s3://b\n/md.xtc", "letters, digits"),
            ("s3://b/folder/", "names no object"),
            ("s3:///md.xtc", "no bucket"),
            ("s3://b/a//md.xtc", "empty or relative part"),
            ("https://h/../md.xtc", "empty or relative part"),
            ("https://me:secret@h/md.xtc", "password"),
            (
                "https://h/md.xtc?X-Amz-Signature=secret",
                "signature or a key",
            ),
            ("https://h/md.xtc?sv=1&sig=secret", "signature or a key"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn object_in_the_same_folder() {
        let one = parse("s3://b/a/md.xtc?versionId=1").unwrap().unwrap();
        let index = one.beside(|name| format!(".{name}.index"));
        assert_eq!(index.path(), Path::new("s3://b/a/.md.xtc.index"));
        assert_eq!(index.version, None);
    }
}
