//! Interface of all files that are being written.

use std::ops::Range;

use super::{Contents, Heading, Kind, Place, Settings, SnapshotFile};
use crate::Result;
#[cfg(doc)]
use crate::{Error, Failure};

/// Property of atoms that may be stored once, in 8 bytes for each atom.
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

    /// Usual name.
    pub fn name(self) -> &'static str {
        match self {
            Property::Masses => "masses",
            Property::Charges => "charges",
            Property::Names => "names",
        }
    }
}

/// File that is being written, as the first rank sees it.
///
/// For every frame, `place` is called, then ranks write their atoms, then `commit` is called. After
/// an error in between, `cut_back` is called. A frame counts from `commit` on: if the job is killed
/// before, the file has the previous `n_frames` frames.
pub trait Container: Send {
    /// Number of complete frames; for a CONFIG, number of frames written.
    fn n_frames(&self) -> u64;

    /// True for numbers of 64 bits, if the format allows both sizes.
    fn is_double(&self) -> bool {
        false
    }

    /// Allocate the next frame.
    ///
    /// # Errors
    /// [`Failure::Unwritable`] if the file cannot hold the frame, [`Error::Changed`] if the file was
    /// replaced, and [`Error::Io`].
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
