//! Sources of bytes by their names, and their caches. Only this module chooses the kind of a source.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::Result;
use super::hints::attributes;
use paceline_formats::disk_cache::{CacheUse, CachedSource, DiskCache};
use paceline_formats::error::{self, Error};
use paceline_formats::fingerprint::{Samples, VerifiedSource};
use paceline_formats::registry::STANDARD;
use paceline_formats::source::{FileSource, Source};

/// Open the source of the bytes of a trajectory.
pub(super) fn open(path: &Path) -> error::Result<Arc<dyn Source>> {
    Ok(Arc::new(FileSource::open(path)?))
}

/// Parse samples, which only a file that did not change since it was opened has.
pub(super) fn samples_from(samples: &[u8]) -> error::Result<Samples> {
    Samples::from_bytes(samples)
        .ok_or_else(|| Error::Argument("these bytes are not samples of a file".into()))
}

/// Open the file of some samples. Later reads are compared with the samples.
pub(super) fn open_verified(
    path: &Path,
    samples: &[u8],
) -> error::Result<VerifiedSource<Arc<dyn Source>>> {
    STANDARD.verified(open(path)?, samples_from(samples)?)
}

attributes! {
    #[name = "_Cache"]
    /// Folder for the blocks of files, its maximum size (bytes; None for half of the free space),
    /// and the time (seconds since 1970) of the latest use of files that may be removed.
    pub(super) struct CacheSettings {
        folder: PathBuf,
        size: Option<u64>,
        since: f64,
    }
}

impl CacheSettings {
    fn cache(self) -> DiskCache {
        let since = Duration::try_from_secs_f64(self.since).unwrap_or_default();
        DiskCache {
            folder: self.folder,
            limit: self.size,
            since: SystemTime::UNIX_EPOCH + since,
        }
    }
}

/// Source of a worker, whose bytes are compared with samples, and its cache.
pub(super) struct WorkerSource {
    pub source: Arc<dyn Source>,
    cached: Option<Arc<CachedSource<Arc<dyn Source>>>>,
}

impl WorkerSource {
    /// Open the file of some samples.
    pub fn open(path: &Path, samples: &[u8], cache: Option<CacheSettings>) -> error::Result<Self> {
        let source = open_verified(path, samples)?;
        Ok(match cache {
            None => WorkerSource {
                source: Arc::new(source),
                cached: None,
            },
            Some(settings) => {
                let cached = Arc::new(CachedSource::open(source, &settings.cache())?);
                WorkerSource {
                    source: cached.clone(),
                    cached: Some(cached),
                }
            }
        })
    }

    /// Return the number of bytes that came from the cache since the last call, and the reason why
    /// blocks are no longer stored.
    pub fn take_cache_use(&self) -> (u64, Option<String>) {
        let cached = self.cached.as_ref().map(|cached| cached.take_use());
        let CacheUse { bytes, notice } = cached.unwrap_or_default();
        (bytes, notice)
    }
}

/// Return one byte for each block of files with these paths and fingerprints: 1 if the cache of this
/// node contains the block. The files themselves are not opened.
#[pyfunction]
pub(super) fn cached_blocks(
    py: Python<'_>,
    files: Vec<(PathBuf, String)>,
    cache: CacheSettings,
) -> Result<Vec<Bound<'_, PyBytes>>> {
    let held = py.detach(|| {
        let parse = |(path, text): (PathBuf, String)| Ok((path, text.parse()?));
        let files: error::Result<Vec<_>> = files.into_iter().map(parse).collect();
        cache.cache().held(&files?)
    })?;
    let as_bytes = |blocks: Vec<bool>| -> Vec<u8> { blocks.into_iter().map(u8::from).collect() };
    Ok(held
        .into_iter()
        .map(|blocks| PyBytes::new(py, &as_bytes(blocks)))
        .collect())
}
