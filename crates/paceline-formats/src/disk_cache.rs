//! Cache for blocks of sources, in a folder on a local disk.
//!
//! Each version of a source has one sparse file: a table with the hash of each block, then the
//! blocks at their positions. A hash is written after its block, and is compared whenever the block
//! is read. A block that is incomplete, damaged or from another source is therefore read from its
//! source again, and the processes of a node share the folder without locks.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::{File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::error::{Error, Result};
use crate::fingerprint::{Fingerprint, VerifiedSource};
use crate::os_calls;
use crate::source::{Access, Requests, Source, Traffic};

/// Size of a block, bytes. Smaller blocks would need more calls to a remote file system. Only the
/// tests of this crate use smaller blocks, to be fast.
pub const BLOCK: u64 = if cfg!(test) { 64 * 1024 } else { 1024 * 1024 };
/// Size of an entry of the table, bytes. An entry of zero means that the block is absent.
const ENTRY: u64 = 8;
/// The blocks in a cache file begin after the table, at a multiple of this number of bytes.
const PAGE: u64 = 4096;
/// Number of recently used blocks that each source stores in memory, too.
const RECENT: usize = 4;
/// Number of stored blocks after which the sizes of the other files of the folder are read again.
const RECOUNT: u64 = 16;
/// A list of the files in the folder is reused for sources that are opened within `LISTED_FOR`, or
/// within `LISTINGS` times the time that listing took if that is longer. Only lists of at least
/// `MANY` files are reused. Without reuse, the time to open many sources would grow as the square
/// of their number.
const LISTED_FOR: Duration = Duration::from_secs(1);
const LISTINGS: u32 = 50;
const MANY: usize = 128;
/// If fewer bytes than this remain up to the limit of the cache, the sizes of the other files are
/// read again before each block is stored, because other processes of the node store blocks, too.
const NEARLY_FULL: u64 = 1024 * BLOCK;
/// Beginning of the names of cache folders. The number in it is the version of the layout of cache
/// files.
const FOLDER: &str = "paceline-blocks-1";

/// Folder of cached blocks, and its limits.
#[derive(Debug, Clone)]
pub struct DiskCache {
    /// Folder on a local disk. The cache is a subfolder, which only this user can open.
    pub folder: PathBuf,
    /// Maximum size of all files of the cache, bytes. `None` for half of the space that is free or
    /// used by the cache.
    pub limit: Option<u64>,
    /// Files whose last use is later than this time are not removed.
    pub since: SystemTime,
}

/// File of the cache: its path, its size on the disk in bytes, and the time of its last use.
struct Used {
    path: PathBuf,
    bytes: u64,
    at: SystemTime,
}

impl DiskCache {
    /// Create the subfolder of this user, unless it exists, and return its path.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be created, belongs to another user, or is a link.
    pub fn prepare(&self) -> Result<PathBuf> {
        let fail = |path: &Path, why| Error::io(path, "cannot keep a cache there", why);
        let own = self.folder.join(format!("{FOLDER}-{}", os_calls::user()));
        std::fs::create_dir_all(&self.folder).map_err(|why| fail(&self.folder, why))?;
        match os_calls::create_private_folder(&own) {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(fail(&own, why)),
            _ => {}
        }
        let metadata = own.symlink_metadata().map_err(|why| fail(&own, why))?;
        let refused = match (metadata.is_dir(), os_calls::is_own(&metadata)) {
            (false, _) => "expected a folder, found a link or file",
            (true, false) => "the folder belongs to another user",
            (true, true) => return Ok(own),
        };
        let why = io::Error::new(io::ErrorKind::PermissionDenied, refused);
        Err(fail(&own, why))
    }

    /// Return the name of the cache file of this version of a source.
    fn name(source: &dyn Source, fingerprint: &Fingerprint) -> Result<String> {
        let (path, version) = (path_hash(source.path()), source.version()?);
        Ok(format!("{path}-{fingerprint}-{version:016x}"))
    }

    /// Return, for each of `files` and each of its blocks, whether the cache of this node contains
    /// the block.
    ///
    /// The files themselves are not opened, so that a modified file may count as cached.
    ///
    /// # Errors
    /// Errors of [`DiskCache::prepare`], and of reading the folder.
    pub fn held(&self, files: &[(PathBuf, Fingerprint)]) -> Result<Vec<Vec<bool>>> {
        let folder = self.prepare()?;
        let found = others(&folder, "");
        let found = found.map_err(|why| Error::io(&folder, "cannot keep a cache there", why))?;
        let held = files.iter().map(|(path, fingerprint)| {
            let prefix = format!("{}-{fingerprint}-", path_hash(path));
            let named = |used: &&Used| file_name(&used.path).starts_with(&prefix);
            let latest = found.iter().filter(named).max_by_key(|used| used.at);
            read_table(latest.map(|used| &*used.path), fingerprint.size())
        });
        Ok(held.collect())
    }
}

/// Return, for each block of a source, whether the table of the cache file `path` has an entry for
/// it.
fn read_table(path: Option<&Path>, size: u64) -> Vec<bool> {
    let mut table = vec![0; (size.div_ceil(BLOCK) * ENTRY) as usize];
    if let Some(Ok(file)) = path.map(File::open) {
        let mut done = 0;
        while let Ok(n @ 1..) = os_calls::read_at(&file, &mut table[done..], done as u64) {
            done += n;
        }
    }
    let entries = table.chunks_exact(ENTRY as usize);
    entries.map(|entry| entry != [0; ENTRY as usize]).collect()
}

fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn path_hash(path: &Path) -> String {
    format!("{:016x}", xxh3_64(path.as_os_str().as_encoded_bytes()))
}

/// List of the files of a cache, sorted by name, and their total size in bytes.
struct Listed {
    folder: PathBuf,
    /// Time until which the list is used.
    until: Instant,
    files: Vec<Used>,
    bytes: u64,
}

/// Last list of a folder with at least [`MANY`] files.
static LISTED: Mutex<Option<Arc<Listed>>> = Mutex::new(None);

impl Listed {
    /// List a folder, or return its last list if that is recent enough. Other threads that call
    /// this function wait meanwhile.
    fn of(folder: &Path) -> io::Result<Arc<Listed>> {
        let mut last = LISTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*last
            && known.folder == folder
            && Instant::now() < known.until
        {
            return Ok(Arc::clone(known));
        }
        let begun = Instant::now();
        let mut files = others(folder, "")?;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let listed = Arc::new(Listed {
            folder: folder.to_owned(),
            until: Instant::now() + LISTED_FOR.max(LISTINGS * begun.elapsed()),
            bytes: files.iter().map(|file| file.bytes).sum(),
            files,
        });
        if listed.files.len() >= MANY {
            *last = Some(Arc::clone(&listed));
        }
        Ok(listed)
    }

    /// Return the files whose names begin with `prefix`.
    fn beginning_with(&self, prefix: &str) -> impl Iterator<Item = &Used> {
        let path = self.folder.join(prefix);
        let first = self.files.partition_point(|used| used.path < path);
        let begins = move |used: &&Used| file_name(&used.path).starts_with(prefix);
        self.files[first..].iter().take_while(begins)
    }
}

/// Return the files of the cache in `folder`, except the file named `own`.
fn others(folder: &Path, own: &str) -> io::Result<Vec<Used>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // Another process may have removed the file.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if entry.file_name() != own {
            found.push(Used {
                path: entry.path(),
                bytes: os_calls::allocated(&metadata),
                at: metadata.modified()?,
            });
        }
    }
    Ok(found)
}

/// Use of a cache: number of bytes read from the cache, and the reason why it no longer stores
/// blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Number of bytes of all blocks that were read from the cache.
    pub bytes: u64,
    /// Sentence that says why blocks are no longer stored; `None` if they are stored.
    pub notice: Option<String>,
}

/// Source that stores the blocks of another source in a cache, and reads them there if the cache
/// contains them.
///
/// Reads that end beyond the size in the fingerprint bypass the cache.
pub struct CachedSource<S> {
    inner: VerifiedSource<S>,
    size: u64,
    folder: PathBuf,
    name: String,
    seed: u64,
    file: Option<File>,
    limit: u64,
    since: SystemTime,
    /// Size of the other files of the cache, bytes.
    others: AtomicU64,
    n_stored: AtomicU64,
    /// True once blocks are no longer stored.
    stopped: AtomicBool,
    used: Mutex<CacheUse>,
    /// The blocks that were used last, with their numbers, in the order of their use.
    recent: Mutex<VecDeque<(u64, Arc<Vec<u8>>)>>,
}

impl<S: Source> CachedSource<S> {
    /// Open the cache file of this version of a source. Cache files of its other versions are
    /// removed, unless they were used later than [`DiskCache::since`].
    ///
    /// If the disk is full, the source is read without a cache.
    ///
    /// # Errors
    /// Errors of [`DiskCache::prepare`] and of the source.
    pub fn open(inner: VerifiedSource<S>, cache: &DiskCache) -> Result<Self> {
        let fingerprint = inner.fingerprint();
        let name = DiskCache::name(&inner, &fingerprint)?;
        let mut opened = CachedSource {
            size: fingerprint.size(),
            seed: xxh3_64(name.as_bytes()),
            file: None,
            limit: 0,
            since: cache.since,
            others: AtomicU64::new(0),
            n_stored: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            used: Mutex::default(),
            recent: Mutex::default(),
            folder: cache.folder.clone(),
            inner,
            name,
        };
        let ready = cache.prepare().and_then(|folder| {
            opened.folder = folder;
            let path = opened.folder.join(&opened.name);
            let ready = opened.open_file(&path, cache.limit);
            ready.map_err(|why| Error::io(&path, "cannot keep a cache there", why))
        });
        match ready {
            Err(Error::Io { source, .. }) if is_full(&source) => opened.stop(&source.to_string()),
            ready => ready?,
        }
        Ok(opened)
    }

    fn open_file(&mut self, path: &Path, limit: Option<u64>) -> io::Result<()> {
        let file = os_calls::open_private(path)?;
        file.set_times(FileTimes::new().set_modified(SystemTime::now()))?;
        let own = os_calls::allocated(&file.metadata()?);
        self.file = Some(file);
        let listed = Listed::of(&self.folder)?;
        let mut others = listed.bytes;
        for other in listed.beginning_with(&path_hash(self.inner.path())) {
            let is_own = file_name(&other.path) == self.name;
            let is_stale = !is_own && other.at < self.since;
            if is_own || is_stale && std::fs::remove_file(&other.path).is_ok() {
                others -= other.bytes;
            }
        }
        self.others.store(others, Ordering::Relaxed);
        self.limit = match limit {
            Some(limit) => limit,
            None => (os_calls::available(&self.folder)?.saturating_add(own + others)) / 2,
        };
        Ok(())
    }

    /// Return the use of the cache since the last call of this function.
    pub fn take_use(&self) -> CacheUse {
        std::mem::take(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stop storing blocks, and record the reason `why`.
    fn stop(&self, why: &str) {
        if !self.stopped.swap(true, Ordering::Relaxed) {
            let notice = format!(
                "{}: {why}; blocks that are not in this cache are read from {}",
                self.folder.display(),
                self.inner.path().display(),
            );
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.notice = Some(notice);
        }
    }

    fn n_blocks(&self) -> u64 {
        self.size.div_ceil(BLOCK)
    }

    /// Offset of a block in the cache file.
    fn place(&self, number: u64) -> u64 {
        (self.n_blocks() * ENTRY).next_multiple_of(PAGE) + number * BLOCK
    }

    fn hash(&self, number: u64, block: &[u8]) -> u64 {
        xxh3_64_with_seed(block, self.seed.wrapping_add(number)).max(1)
    }

    /// Read the entry of a block; 0 if it is absent or cannot be read.
    fn entry(&self, file: &File, number: u64) -> u64 {
        let mut entry = [0; ENTRY as usize];
        match read_all(file, number * ENTRY, &mut entry) {
            true => u64::from_le_bytes(entry),
            false => 0,
        }
    }

    /// Fill `block` from the cache; return false if the cache lacks the block.
    fn load(&self, number: u64, block: &mut [u8]) -> bool {
        let Some(file) = &self.file else { return false };
        let entry = self.entry(file, number);
        let is_held = entry != 0
            && read_all(file, self.place(number), block)
            && self.hash(number, block) == entry;
        if is_held {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.bytes += block.len() as u64;
        }
        is_held
    }

    /// Store a block in the cache. If the cache is full, or writing fails, stop storing blocks.
    fn store(&self, number: u64, block: &[u8]) {
        let Some(file) = &self.file else { return };
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        match self.make_room(file, block.len() as u64) {
            Ok(true) => {}
            Ok(false) => return self.stop(&format!("the cache is full ({} bytes)", self.limit)),
            Err(why) => return self.stop(&why.to_string()),
        }
        let entry = self.hash(number, block).to_le_bytes();
        let written = os_calls::write_all_at(file, block, self.place(number))
            .and_then(|()| os_calls::write_all_at(file, &entry, number * ENTRY));
        if let Err(why) = written {
            self.stop(&why.to_string());
        }
    }

    /// Remove the least recently used files until `needed` more bytes are within the limit. Return
    /// false if that is impossible, because files used later than `since` are not removed. If
    /// `file`, the cache file of this source, was removed, no further blocks are stored.
    fn make_room(&self, file: &File, needed: u64) -> io::Result<bool> {
        let metadata = file.metadata()?;
        if os_calls::is_removed(&metadata) {
            self.stopped.store(true, Ordering::Relaxed);
        }
        let own = os_calls::allocated(&metadata);
        let fits = |others| own + others + needed <= self.limit;
        let n_stored = self.n_stored.fetch_add(1, Ordering::Relaxed);
        let counted = self.others.load(Ordering::Relaxed);
        if !(n_stored + 1).is_multiple_of(RECOUNT) && fits(counted + NEARLY_FULL) {
            return Ok(true);
        }
        let mut found = others(&self.folder, &self.name)?;
        found.sort_by_key(|other| other.at);
        let mut bytes = found.iter().map(|other| other.bytes).sum();
        for other in found.iter().filter(|other| other.at < self.since) {
            if fits(bytes) {
                break;
            }
            match std::fs::remove_file(&other.path) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                _ => {} // another process may have removed it
            }
            bytes -= other.bytes;
        }
        self.others.store(bytes, Ordering::Relaxed);
        Ok(fits(bytes))
    }

    /// Return the size of a block; the last one may be shorter.
    fn len(&self, number: u64) -> usize {
        BLOCK.min(self.size - number * BLOCK) as usize
    }

    /// Return a block from memory, from the cache, or else from the source. Other threads can read
    /// blocks at the same time.
    fn block(&self, number: u64) -> Result<Arc<Vec<u8>>> {
        let reused = {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            let known = recent.iter().position(|(other, _)| *other == number);
            if let Some(found) = known.and_then(|at| recent.remove(at)) {
                let block = Arc::clone(&found.1);
                recent.push_back(found);
                return Ok(block);
            }
            let oldest = match recent.len() >= RECENT {
                true => recent.pop_front(),
                false => None,
            };
            oldest.and_then(|(_, block)| Arc::into_inner(block))
        };
        let mut block = reused.unwrap_or_default();
        block.resize(self.len(number), 0);
        if !self.load(number, &mut block) {
            self.inner.read_at(number * BLOCK, &mut block)?;
            self.store(number, &block);
        }
        let block = Arc::new(block);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back((number, Arc::clone(&block)));
        Ok(block)
    }

    /// Return true if the cache has an entry for a block. Its hash is compared only when the block
    /// is read.
    fn holds(&self, number: u64) -> bool {
        let entry = |file| self.entry(file, number);
        self.file.as_ref().is_some_and(|file| entry(file) != 0)
    }
}

fn read_all(file: &File, offset: u64, buffer: &mut [u8]) -> bool {
    let mut done = 0;
    while done < buffer.len() {
        match os_calls::read_at(file, &mut buffer[done..], offset + done as u64) {
            Ok(n @ 1..) => done += n,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
    true
}

fn is_full(why: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(why.kind(), StorageFull | QuotaExceeded)
}

impl<S: Source> Source for CachedSource<S> {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn version(&self) -> Result<u64> {
        self.inner.version()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let Some(end) = offset.checked_add(buffer.len() as u64) else {
            return self.inner.read_at(offset, buffer);
        };
        if end > self.size {
            return self.inner.read_at(offset, buffer);
        }
        let mut at = offset;
        while at < end {
            let number = at / BLOCK;
            let block = self.block(number)?;
            let from = (at - number * BLOCK) as usize;
            let n = (block.len() - from).min((end - at) as usize);
            let to = (at - offset) as usize;
            buffer[to..to + n].copy_from_slice(&block[from..from + n]);
            at += n as u64;
        }
        Ok(())
    }

    fn will_need(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size);
        let blocks: Vec<u64> = (offset / BLOCK..end.div_ceil(BLOCK)).collect();
        // Adjacent blocks are announced with one call if all or none of them are in the cache.
        for run in blocks.chunk_by(|&one, &next| self.holds(one) == self.holds(next)) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let len = last * BLOCK + self.len(last) as u64 - first * BLOCK;
            match &self.file {
                Some(file) if self.holds(first) => {
                    os_calls::will_need(file, self.place(first), len);
                }
                _ => self.inner.will_need(first * BLOCK, len),
            }
        }
    }

    fn access(&self) -> Access {
        self.inner.access()
    }

    fn take_requests(&self) -> Requests {
        self.inner.take_requests()
    }

    /// Return the traffic of the source, without that of the cache.
    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

#[cfg(test)]
mod tests;
