//! Sources of bytes, opened by name, and their caches. Only this module chooses the kind of a
//! source.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::Result;
use super::types::attributes;
use paceline_formats::disk_cache::{CacheUse, CachedSource, DiskCache};
use paceline_formats::error::{self, Error};
use paceline_formats::fingerprint::{Samples, VerifiedSource};
use paceline_formats::format_list::STANDARD;
use paceline_formats::index;
use paceline_formats::source::{FileSource, Requests, Source};

#[cfg(feature = "stores")]
pub(super) use stores::{
    ObjectBytes, download_object, list_objects, object_version, open, open_version, open_with_index,
};

/// Open a local file as a source of bytes.
fn open_file(path: &Path) -> error::Result<Arc<dyn Source>> {
    Ok(Arc::new(FileSource::open(path)?))
}

/// Parse the samples of a file: its fingerprint and hashes, with which later reads are compared.
pub(super) fn samples_from(samples: &[u8]) -> error::Result<Samples> {
    Samples::from_bytes(samples)
        .ok_or_else(|| Error::Argument("these bytes are not samples of a file".into()))
}

/// Open the version of a file that its samples identify, and compare later reads with the samples.
pub(super) fn open_verified(
    path: &Path,
    samples: &[u8],
) -> error::Result<VerifiedSource<Arc<dyn Source>>> {
    let samples = samples_from(samples)?;
    STANDARD.verified(open_version(path, &samples)?, samples)
}

attributes! {
    #[name = "_Cache"]
    /// Settings of the disk cache: the folder for blocks of files, its maximum size (bytes; None
    /// for half of the free space), and a time (seconds since 1970). Files used after this time are
    /// not removed.
    pub(super) struct CacheSettings {
        folder: PathBuf,
        size: Option<u64>,
        since: f64,
    }
}

impl CacheSettings {
    pub(super) fn cache(self) -> DiskCache {
        let since = Duration::try_from_secs_f64(self.since).unwrap_or_default();
        DiskCache {
            folder: self.folder,
            limit: self.size,
            since: SystemTime::UNIX_EPOCH + since,
        }
    }
}

/// Source from which a worker reads, and its disk cache. The bytes read are compared with hashes.
pub(super) struct WorkerSource {
    pub source: Arc<dyn Source>,
    cached: Option<Arc<CachedSource<Arc<dyn Source>>>>,
}

impl WorkerSource {
    /// Open the version of a file that its samples identify, with or without a disk cache.
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

    /// Return two values since the last call: the number of bytes that came from the cache; and, if
    /// the cache no longer stores blocks, the reason.
    pub fn take_cache_use(&self) -> (u64, Option<String>) {
        let cached = self.cached.as_ref().map(|cached| cached.take_use());
        let CacheUse { bytes, notice } = cached.unwrap_or_default();
        (bytes, notice)
    }

    /// Return the counts of the requests sent to a store since the last call.
    pub fn take_requests(&self) -> RequestCounts {
        counts_of(&self.source.take_requests())
    }
}

/// Number that identifies a store, its measured latency (s), and its bandwidth (bytes per second).
type StoreEstimate = (u64, f64, f64);

/// Set the number of processes of this machine that share its limit of requests to stores.
/// `estimates` contains the latency and bandwidth of stores that another process has measured.
#[pyfunction]
#[pyo3(signature = (n_processes, estimates=Vec::new()))]
pub(crate) fn share_requests(n_processes: usize, estimates: Vec<StoreEstimate>) {
    #[cfg(feature = "stores")]
    {
        let estimates = estimates.into_iter().map(|(number, latency, bandwidth)| {
            let estimate = paceline_stores::Estimate { latency, bandwidth };
            (number, estimate)
        });
        paceline_stores::share_requests(n_processes, estimates.collect());
    }
    #[cfg(not(feature = "stores"))]
    let _ = (n_processes, estimates);
}

/// Return the latency and bandwidth of each store that this process has measured. Another process
/// passes them to [`share_requests`].
#[pyfunction]
pub(crate) fn store_estimates() -> Vec<StoreEstimate> {
    #[cfg(feature = "stores")]
    let found = paceline_stores::estimates().into_iter();
    #[cfg(feature = "stores")]
    let found = found.map(|(number, one)| (number, one.latency, one.bandwidth));
    #[cfg(not(feature = "stores"))]
    let found = std::iter::empty();
    found.collect()
}

/// Numbers of requests, repeated requests and bytes; latency and waiting time, ns.
pub(super) type RequestCounts = (u64, u64, u64, u64, u64);

/// Return counts of the requests that this process has sent to stores: numbers of requests,
/// repeated requests and bytes; latency and waiting time, ns.
#[pyfunction]
pub(crate) fn requests_sent() -> RequestCounts {
    #[cfg(feature = "stores")]
    let requests = paceline_stores::requests_sent();
    #[cfg(not(feature = "stores"))]
    let requests = Requests::default();
    counts_of(&requests)
}

fn counts_of(requests: &Requests) -> RequestCounts {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (latency, waited) = (ns(requests.latency), ns(requests.waited));
    (
        requests.sent,
        requests.repeated,
        requests.bytes,
        latency,
        waited,
    )
}

/// Return one byte for each block of files with these paths and fingerprints: 1 if the cache of
/// this node contains the block. The files themselves are not opened.
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

#[cfg(feature = "stores")]
mod stores {
    use std::path::PathBuf;

    use paceline_formats::Format;
    use paceline_stores::{Address, Download, StoreSource};
    use pyo3::prelude::*;

    use super::{Arc, Duration, Path, Samples, Source, error, index};
    use super::{PyBytes, STANDARD, open_file, samples_from};
    use crate::errors::{Failure, Result};

    /// Maximum size of an object that one request reads, bytes.
    const SMALL: u64 = 1 << 20;
    /// Maximum size of an object that is read as a whole when it is opened, bytes. Such an object
    /// needs no index: opening it again without an index sends no more requests.
    const SMALLEST: u64 = 64 << 10;

    /// Parse the address of an object; `None` if the path is that of a local file.
    fn address_of(path: &Path) -> error::Result<Option<Address>> {
        paceline_stores::on_wait(|| {
            Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                // The wait then ends with `Error::Interrupted`, which becomes KeyboardInterrupt.
                Err(_) => true,
            })
        });
        Ok(Address::parse(path)?.filter(|_| !path.exists()))
    }

    /// Open a trajectory, in a local file or in an object store, as a source of bytes.
    pub(crate) fn open(path: &Path) -> error::Result<Arc<dyn Source>> {
        match address_of(path)? {
            Some(address) => Ok(Arc::new(StoreSource::open(&address)?)),
            None => open_file(path),
        }
    }

    /// Open the version of a trajectory that samples identify. This sends no request to a store if
    /// the samples contain the store's identifier of the version.
    pub(crate) fn open_version(path: &Path, samples: &Samples) -> error::Result<Arc<dyn Source>> {
        let (Some(identity), Some(address)) = (samples.identity(), address_of(path)?) else {
            return open(path);
        };
        let size = samples.fingerprint.size();
        let source = StoreSource::open_version(&address, size, identity)?;
        Ok(Arc::new(source))
    }

    /// Open the source of the bytes of a trajectory, and return the paths at which its index may be
    /// saved. The index of an object in a store is saved in the cache folder. If this folder has no
    /// index of this version, the index beside the object is copied there. If `is_one_of_many`,
    /// requests are not sent together, because many other files are opened at the same time.
    pub(crate) fn open_with_index(
        path: &Path,
        cache: Option<&Path>,
        is_one_of_many: bool,
    ) -> error::Result<(Arc<dyn Source>, Vec<PathBuf>)> {
        let Some(address) = address_of(path)? else {
            return Ok((open_file(path)?, index::index_files(path, cache)));
        };
        let open = || Ok(Arc::new(StoreSource::open(&address)?));
        let Some(file) = cache.map(|folder| index::object_index_file(path, folder)) else {
            return Ok((open()?, Vec::new()));
        };
        // Looking for the index of a small object would take as long as scanning the object. If no
        // index is saved, the index beside the object is requested at the same time as the object.
        let early = !is_one_of_many && !file.exists() && !has_name_of_equal_frames(&address);
        let early = early.then(|| index_beside(&address));
        let source: Arc<dyn Source> = open()?;
        let needs_none = |format: &dyn Format| format.abilities().equal_frames;
        if source.size().is_ok_and(|size| size <= SMALLEST)
            || index::detect(&source, &STANDARD)?.is_some_and(needs_none)
        {
            return Ok((source, Vec::new()));
        }
        let is_small = source.size().is_ok_and(|size| size <= SMALL);
        if !is_small && !index::is_index_of(&file, &source) {
            let beside = early.unwrap_or_else(|| index_beside(&address));
            // Without an index beside the object, the object is scanned.
            let _ = beside.and_then(|beside| save_index(beside, &file));
        }
        Ok((source, vec![file]))
    }

    /// Return true if the file extension belongs to a format whose frames have equal sizes. Files
    /// of such a format need no index.
    fn has_name_of_equal_frames(address: &Address) -> bool {
        let extension = address.path().extension().unwrap_or_default();
        let extension = extension.to_string_lossy().to_lowercase();
        STANDARD.formats().any(|format| {
            format.abilities().equal_frames && format.extensions().contains(&&*extension)
        })
    }

    /// Request the index beside an object.
    fn index_beside(object: &Address) -> error::Result<Download> {
        Download::of(&object.beside(|name| {
            index::index_name(name.as_ref())
                .to_string_lossy()
                .into_owned()
        }))
    }

    fn save_index(beside: Download, to: &Path) -> error::Result<()> {
        let failed = |error| error::Error::io(to, "cannot write", error);
        let temporary = to.with_extension(format!("{}.part", std::process::id()));
        std::fs::create_dir_all(to.parent().unwrap_or(to)).map_err(failed)?;
        let copied = beside
            .save(&temporary)
            .and_then(|_| std::fs::rename(&temporary, to).map_err(failed));
        if copied.is_err() {
            // The temporary file may not exist.
            let _ = std::fs::remove_file(&temporary);
        }
        copied
    }

    fn required(path: &Path) -> Result<Address> {
        address_of(path)?.ok_or_else(|| Failure::argument("expected the address of an object"))
    }

    /// Bytes of one version of an object in a store, for code that reads ranges at any offset.
    #[pyclass(frozen, module = "paceline._core")]
    pub(crate) struct ObjectBytes(StoreSource);

    #[pymethods]
    impl ObjectBytes {
        /// Open the version that `samples` identify; without `samples`, the current version.
        #[new]
        #[pyo3(signature = (address, samples=None))]
        fn new(py: Python<'_>, address: PathBuf, samples: Option<&[u8]>) -> Result<Self> {
            let address = required(&address)?;
            let samples = samples.map(samples_from).transpose()?;
            Ok(py.detach(|| {
                let known = samples
                    .as_ref()
                    .and_then(|known| Some((known.fingerprint.size(), known.identity()?)));
                match known {
                    Some((size, identity)) => StoreSource::open_version(&address, size, identity),
                    None => StoreSource::open(&address),
                }
                .map(ObjectBytes)
            })?)
        }

        /// Size of the object, bytes.
        #[getter]
        fn size(&self) -> Result<u64> {
            Ok(self.0.size()?)
        }

        /// Return `n_bytes` bytes from `offset` on, and also request the bytes around them.
        fn read<'py>(
            &self,
            py: Python<'py>,
            offset: u64,
            n_bytes: usize,
        ) -> Result<Bound<'py, PyBytes>> {
            let mut bytes = vec![0; n_bytes];
            py.detach(|| self.0.follow(offset, &mut bytes))?;
            Ok(PyBytes::new(py, &bytes))
        }

        /// Measure the store for about `seconds`, reading at most `n_bytes`. Return the time to a
        /// response (s), the bytes per second of one connection, and those of several connections
        /// together.
        fn measure(&self, py: Python<'_>, n_bytes: u64, seconds: f64) -> Result<(f64, f64, f64)> {
            let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            let found = py.detach(|| self.0.measure(n_bytes, limit))?;
            Ok((found.latency.as_secs_f64(), found.one, found.several))
        }

        /// Request a range that will soon be read.
        fn will_need(&self, py: Python<'_>, offset: u64, n_bytes: u64) {
            py.detach(|| self.0.will_need(offset, n_bytes));
        }
    }

    /// Return the size of an object, bytes, and the text that identifies its version, if it has
    /// one.
    #[pyfunction]
    pub(crate) fn object_version(
        py: Python<'_>,
        address: PathBuf,
    ) -> Result<(u64, Option<String>)> {
        let address = required(&address)?;
        Ok(py.detach(|| {
            let source = StoreSource::open(&address)?;
            Ok::<_, error::Error>((source.size()?, source.identity().map(str::to_owned)))
        })?)
    }

    /// Write an object to a new file. Return the text that identifies its version, if it has one.
    #[pyfunction]
    pub(crate) fn download_object(
        py: Python<'_>,
        address: PathBuf,
        file: PathBuf,
    ) -> Result<Option<String>> {
        let address = required(&address)?;
        Ok(py.detach(|| Download::of(&address)?.save(&file))?)
    }

    /// Return all addresses of objects that begin with the given address without its last `*`.
    #[pyfunction]
    pub(crate) fn list_objects(py: Python<'_>, address: PathBuf) -> Result<Vec<String>> {
        let address = required(&address)?;
        Ok(py.detach(|| paceline_stores::list(&address))?)
    }
}

/// Open a trajectory file as a source of bytes.
#[cfg(not(feature = "stores"))]
pub(super) fn open(path: &Path) -> error::Result<Arc<dyn Source>> {
    open_file(path)
}

/// Open the version of a trajectory that the samples identify. In a build without object stores,
/// this is always the local file.
#[cfg(not(feature = "stores"))]
pub(super) fn open_version(path: &Path, _samples: &Samples) -> error::Result<Arc<dyn Source>> {
    open_file(path)
}

#[cfg(not(feature = "stores"))]
pub(super) fn open_with_index(
    path: &Path,
    cache: Option<&Path>,
    _is_one_of_many: bool,
) -> error::Result<(Arc<dyn Source>, Vec<PathBuf>)> {
    Ok((open_file(path)?, index::index_files(path, cache)))
}
