//! Files that appear under their final name only when their first frame is complete.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use paceline_formats::error::Error;
use paceline_formats::os_calls::{close, create_new, is_same_file, read_at, write_all_at};

use crate::{Failure, Result};

/// Length of a name that leaves no space for a suffix, bytes.
const LONG_NAME: usize = 200;
/// Maximum number of links in a chain of links.
const MOST_LINKS: usize = 40;

/// File in which one rank writes the headers, and other ranks write the atoms.
///
/// It has the name `temporary` until it is published as `path`.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: File,
    temporary: Temporary,
}

/// Name of a file until it is published. If this value is dropped before, the file is removed.
#[derive(Debug)]
struct Temporary(Option<PathBuf>);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            // If removing fails, a hidden file remains.
            let _ = fs::remove_file(name);
        }
    }
}

impl Output {
    /// Create a file that appears under its name when it is published. Until then, other users
    /// cannot read it, because the file that it replaces may be private.
    pub fn new(path: &Path) -> Result<Self> {
        let temporary = temporary_name(path);
        let file = create_new(&temporary, path.exists());
        Ok(Output {
            path: path.to_owned(),
            file: file.map_err(|source| Error::io(path, "cannot create", source))?,
            temporary: Temporary(Some(temporary)),
        })
    }

    /// Open a regular file that is to be extended.
    pub fn existing(path: &Path) -> Result<Self> {
        check_regular(path)?;
        let file = OpenOptions::new().read(true).write(true).open(path);
        Ok(Output {
            path: path.to_owned(),
            file: file.map_err(|source| Error::io(path, "cannot open", source))?,
            temporary: Temporary(None),
        })
    }

    /// Current name of the file.
    pub fn name(&self) -> &Path {
        self.temporary.0.as_deref().unwrap_or(&self.path)
    }

    /// True if the file has its final name.
    pub fn is_published(&self) -> bool {
        self.temporary.0.is_none()
    }

    /// Size of the file, bytes.
    pub fn size(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok(metadata
            .map_err(|source| self.error("cannot read", source))?
            .len())
    }

    /// Read bytes; fewer at the end of the file.
    pub fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        let mut filled = 0;
        while filled < size {
            match read_at(&self.file, &mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(self.error("cannot read", source)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Write all bytes at their offset.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = write_all_at(&self.file, bytes, offset);
        written.map_err(|source| self.error("cannot write", source))
    }

    /// Reserve disk space for bytes, if the system supports it.
    #[cfg(all(unix, target_pointer_width = "64"))]
    pub fn reserve(&self, offset: u64, size: usize) -> Result<()> {
        let reserved = paceline_formats::os_calls::reserve(&self.file, offset, size);
        reserved.map_err(|source| self.error("cannot write", source))
    }

    /// Set the size: truncate the file, or extend it with zeros.
    pub fn cut(&self, size: u64) -> Result<()> {
        let cut = self.file.set_len(size);
        cut.map_err(|source| self.error("cannot set the size", source))
    }

    /// Wait until all written bytes are on the disk.
    pub fn sync(&self) -> Result<()> {
        let synced = self.file.sync_all();
        synced.map_err(|source| self.error("cannot write to disk", source))
    }

    /// Raise [`Error::Changed`] if the name no longer belongs to this file.
    pub fn check_not_replaced(&self) -> Result<()> {
        let same = match (fs::metadata(self.name()), self.file.metadata()) {
            (Ok(named), Ok(open)) => is_same_file(&named, &open),
            _ => false,
        };
        match same {
            true => Ok(()),
            false => Err(Error::Changed {
                path: self.path.clone(),
                what: "expected the file to which frames were written, found another or none: \
                       leave it alone until the writer is closed"
                    .into(),
            }
            .into()),
        }
    }

    /// Give the file its final name, and the permissions of the file that it replaces.
    pub fn publish(&mut self, overwrite: bool) -> Result<()> {
        let Some(temporary) = &self.temporary.0 else {
            return Ok(());
        };
        check_output(&self.path, overwrite)?;
        let renamed = match fs::metadata(&self.path) {
            Ok(old) => self.file.set_permissions(old.permissions()),
            Err(_) => Ok(()),
        }
        .and_then(|()| fs::rename(temporary, target(&self.path)));
        renamed.map_err(|source| self.error("cannot rename", source))?;
        self.temporary.0 = None;
        Ok(())
    }

    /// Close the file: some file systems report errors of writing here.
    pub fn close(self) -> Result<()> {
        let closed = close(self.file);
        Ok(closed.map_err(|source| Error::io(&self.path, "cannot write to disk", source))?)
    }

    fn error(&self, action: &str, source: io::Error) -> Failure {
        Error::io(&self.path, action, source).into()
    }
}

/// Refuse a file that cannot be created. This happens before hours of work, not afterwards.
///
/// # Errors
/// [`Error::Io`]: the file exists and may not be replaced, is not a regular file, or has no folder.
pub fn check_output(path: &Path, overwrite: bool) -> Result<()> {
    let refuse = |kind, what: &str| {
        let source = io::Error::new(kind, what);
        Err(Error::io(path, "cannot create", source).into())
    };
    if path.is_dir() {
        return refuse(
            ErrorKind::IsADirectory,
            "it is a folder: give the name of a file",
        );
    }
    check_regular(path)?;
    if !overwrite && path.symlink_metadata().is_ok() {
        let what = "it exists, and is replaced only with overwrite";
        return refuse(ErrorKind::AlreadyExists, what);
    }
    let folder = target(path);
    match folder.parent() {
        Some(folder) if folder.as_os_str().is_empty() || folder.is_dir() => Ok(()),
        _ => refuse(ErrorKind::NotFound, "its folder does not exist"),
    }
}

/// Refuse a device, a pipe or a socket, which must not be replaced, and a folder.
fn check_regular(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => {
            let what = "it is a pipe or device, which is never replaced";
            let source = io::Error::new(ErrorKind::AlreadyExists, what);
            Err(Error::io(path, "cannot create", source).into())
        }
        _ => Ok(()),
    }
}

/// Resolve links. The links are kept, and their target is created or replaced.
fn target(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => break,
        }
    }
    path
}

/// Make a hidden, unpredictable name in the folder of a file to be created.
fn temporary_name(path: &Path) -> PathBuf {
    let target = target(path);
    let random = || RandomState::new().build_hasher().finish();
    let name = target.file_name().unwrap_or_default();
    let mut hidden = std::ffi::OsString::from(".");
    match name.len() > LONG_NAME {
        true => hidden.push(format!("paceline~{:08x}", random() as u32)),
        false => hidden.push(name),
    }
    hidden.push(format!(".{:016x}", random()));
    target.with_file_name(hidden)
}
