//! Identity of one version of an object.

use object_store::{GetOptions, ObjectMeta};

/// Version of an object, as the store states it. The store's text is not interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Version {
    /// Entity tag (ETag), which each request names.
    Tag(String),
    /// Time of the last change.
    Modified(String),
    /// The store states neither: only the size is compared.
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
