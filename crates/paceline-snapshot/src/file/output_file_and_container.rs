//! Files that are being written: their interface, and their names. A new file gets its final name
//! only when its first frame is complete.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

use paceline_formats::error::Error;
use paceline_formats::os_calls::{close, create_new, is_same_file, read_at, write_all_at};

use super::{Contents, Heading, Kind, Place, Settings, SnapshotFile};
use crate::{Failure, Result};

/// Maximum length of a name that leaves space for a suffix, bytes.
const LONG_NAME: usize = 200;
/// Maximum number of symbolic links that are followed to find a file.
const MOST_LINKS: usize = 40;

/// File in which one rank writes the headers, and the writing ranks write the atoms.
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
    /// Create a file that appears under its name when it is published. If it replaces a file, other
    /// users cannot read it until then, because the replaced file may be private.
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

    /// Read `size` bytes, or fewer if the file ends before.
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

    /// Close the file. Some file systems report write errors only when a file is closed.
    pub fn close(self) -> Result<()> {
        let closed = close(self.file);
        Ok(closed.map_err(|source| Error::io(&self.path, "cannot write to disk", source))?)
    }

    fn error(&self, action: &str, source: io::Error) -> Failure {
        Error::io(&self.path, action, source).into()
    }
}

/// Refuse a file that cannot be created. This check runs before hours of work, not afterwards.
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

/// Refuse a device, a pipe or a socket, which must not be replaced. A folder is not refused here.
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

/// Resolve symbolic links. The links themselves stay, and their target is created or replaced.
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

/// Property of atoms that a file may store once for all frames, in 8 bytes for each atom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// Masses, u.
    Masses,
    /// Charges, e.
    Charges,
    /// Names.
    Names,
}

impl Property {
    /// All properties, in the order in which they are written.
    pub const ALL: [Property; 3] = [Property::Masses, Property::Charges, Property::Names];

    /// Usual name of the property, in the plural.
    pub fn name(self) -> &'static str {
        match self {
            Property::Masses => "masses",
            Property::Charges => "charges",
            Property::Names => "names",
        }
    }
}

/// Interface of the first rank to a file that is being written.
///
/// For every frame, `place` is called, then ranks write their atoms, then `commit` is called. After
/// an error in between, `cut_back` is called. A frame is complete only after `commit`: if the job
/// is killed before, the file contains the previous `n_frames` frames.
pub trait Container: Send {
    /// Number of complete frames; for a CONFIG, number of frames written.
    fn n_frames(&self) -> u64;

    /// True for numbers of 64 bits, if the format allows 32 and 64 bits.
    fn is_double(&self) -> bool {
        false
    }

    /// Determine where the next frame is written. If no file is open, first create it with its
    /// header.
    ///
    /// # Errors
    /// [`Failure::Unwritable`] if the file cannot hold the frame, [`Error::Changed`] if the file
    /// was replaced, and [`Error::Io`].
    fn place(&mut self, contents: Contents, heading: &Heading) -> Result<Place>;

    /// Count the frame as complete, after its atoms were written.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn commit(&mut self) -> Result<()>;

    /// Truncate the file to the committed frames.
    ///
    /// # Errors
    /// [`Error::Io`]; the header then holds the number of complete frames.
    fn cut_back(&mut self) -> Result<()>;

    /// Return a property of some atoms, counted from 0, in an existing file; `None` if it is not
    /// stored.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Damaged`].
    fn stored(&self, property: Property, atoms: Range<u64>) -> Result<Option<Vec<u8>>>;

    /// Write a property of atoms from `first` on, counted from 0, to a new file.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn put_property(&mut self, _property: Property, _first: u64, _values: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Close the file. A file without a complete frame is removed.
    ///
    /// # Errors
    /// [`Error::Io`] if the system could not write.
    fn close(&mut self) -> Result<()>;
}

/// Open a file for writing.
///
/// # Errors
/// [`Error::Io`] if the file exists and may not be changed; [`Failure::AtomCount`],
/// [`Error::Unsupported`] or [`Error::Damaged`] if it cannot be extended.
pub fn open(kind: Kind, settings: Settings) -> Result<Box<dyn Container>> {
    match kind {
        #[cfg(all(unix, target_pointer_width = "64"))]
        Kind::H5md => Ok(Box::new(super::h5md::H5md::open(settings)?)),
        #[cfg(not(all(unix, target_pointer_width = "64")))]
        Kind::H5md => Err(super::unsupported(
            &settings.path,
            "H5MD is written on Linux and macOS",
        )),
        _ => Ok(Box::new(SnapshotFile::open(kind, settings)?)),
    }
}

impl Container for SnapshotFile {
    fn n_frames(&self) -> u64 {
        self.n_frames
    }

    fn place(&mut self, contents: Contents, heading: &Heading) -> Result<Place> {
        SnapshotFile::place(self, contents, heading)
    }

    fn commit(&mut self) -> Result<()> {
        SnapshotFile::commit(self)
    }

    fn cut_back(&mut self) -> Result<()> {
        SnapshotFile::cut_back(self)
    }

    fn stored(&self, property: Property, atoms: Range<u64>) -> Result<Option<Vec<u8>>> {
        match property {
            Property::Names => self.stored_names(atoms),
            _ => Ok(None),
        }
    }

    fn close(&mut self) -> Result<()> {
        SnapshotFile::close(self)
    }
}
