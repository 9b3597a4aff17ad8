//! H5MD files. HDF5 writes the metadata; ranks write the data of atoms at offsets that HDF5
//! reports.
//!
//! With the same HDF5, the files have the same bytes as those of the Python package
//! (`paceline/snapshot/write_h5md.py`).

mod crash_safe;
mod hdf5_objects;
mod layout;
mod library;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use paceline_formats::error::Error;

use self::crash_safe::{ALIGNMENT, CrashSafeFile, SIGNATURE, SharedFile, locked, superblock_end};
use self::layout::{
    append_frame, create, create_property, elements, frame_datasets, inspect, property_of,
    values_path,
};
use self::library::{Hdf5, Id, Refusal};
use super::output_file_and_container::{Output, check_output};
use super::{
    Container, Contents, Heading, Place, Property, Settings, check_atom_count, check_contents,
    unsupported,
};
use crate::{Failure, Result};

pub(crate) use self::layout::{FrameArrays, H5mdReader};

/// Maximum size of a chunk, bytes: HDF5 stores it in 32 bits.
const LARGEST_CHUNK: u64 = u32::MAX as u64;
/// Offset of a dataset's shape in its header, bytes: 16 for the prefix of the header, 8 for the
/// prefix of the first message, and 8 in this message (version, rank, flag of limits). The shape is
/// followed by its limits.
const ROWS: u64 = 32;
const WORD: u64 = 8;
/// Number of bytes of the superblock that are read.
const HEAD: usize = 48;

/// Offsets of the 8 bytes of a dataset's number of rows, and of the limit of this number, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowCount {
    offset: u64,
    limit: Option<u64>,
}

/// H5MD file with one chunk per frame, or with contiguous storage for a maximum number of frames.
///
/// The file grows in place. If a program is killed, the file keeps all complete frames.
pub struct H5md {
    settings: Settings,
    file: Option<SharedFile>,
    /// HDF5's identifier of the file, while HDF5 has it open.
    id: Option<Id>,
    contents: Option<Contents>,
    heading: Option<Heading>,
    last_step: Option<i64>,
    rows: Vec<RowCount>,
    n_frames: u64,
}

impl H5md {
    /// Open a file for writing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without an HDF5 library, or for a file that is not of this writer;
    /// [`Error::Damaged`] and [`Error::Io`].
    pub fn open(settings: Settings) -> Result<Self> {
        let path = settings.path.clone();
        // A missing library is reported here, before hours of work.
        let hdf5 = enter(&path)?;
        let mut file = H5md {
            settings,
            file: None,
            id: None,
            contents: None,
            heading: None,
            last_step: None,
            rows: Vec::new(),
            n_frames: 0,
        };
        if !file.settings.append || !path.exists() {
            check_output(&path, file.settings.overwrite)?;
            return Ok(file);
        }
        if path.is_dir() {
            check_output(&path, true)?;
        }
        let output = Output::existing(&path)?;
        let size = output.size()?;
        file.file = Some(Arc::new(Mutex::new(CrashSafeFile::new(output, size))));
        file.reopen(&hdf5)?;
        let inspected = file.inspect(&hdf5);
        if let Err(failure) = inspected {
            file.forget(&hdf5);
            return Err(failure);
        }
        Ok(file)
    }

    /// Open the file as it is on the disk, and ignore bytes after its end.
    fn reopen(&mut self, hdf5: &Hdf5) -> Result<()> {
        let path = &self.settings.path;
        let Some(file) = &self.file else {
            return Ok(());
        };
        {
            let mut file = locked(file);
            let head = file.output.read(0, HEAD)?;
            match superblock_end(&head) {
                Some(end) => file.restart(end),
                None if head.starts_with(SIGNATURE) => {
                    return Err(unlike(path, "has a newer superblock"));
                }
                None => {
                    let size = file.output.size()?;
                    file.restart(size);
                }
            }
        }
        let opened = hdf5.open_file(file, ALIGNMENT, false);
        self.id = Some(opened.map_err(|refusal| damaged(path, &refusal))?);
        Ok(())
    }

    /// Find contents, number of frames and last step of a file. Refuse a file with another layout
    /// or another number of atoms.
    fn inspect(&mut self, hdf5: &Hdf5) -> Result<()> {
        let Some(id) = self.id else {
            return Ok(());
        };
        let found = inspect(hdf5, id, &self.settings.path)?;
        check_atom_count(&self.settings, found.n_atoms)?;
        self.settings.double = found.is_double;
        self.contents = Some(found.contents);
        (self.n_frames, self.last_step) = (found.n_frames, found.last_step);
        self.find_rows(hdf5)
    }

    /// Find the offsets of the row counts, which `commit` writes last.
    fn find_rows(&mut self, hdf5: &Hdf5) -> Result<()> {
        let path = self.settings.path.clone();
        let (Some(file), Some(id), Some(contents)) = (&self.file, self.id, &self.contents) else {
            return Ok(());
        };
        let locate = |name: &str| {
            let dataset = hdf5.object(id, name)?;
            let head = dataset.address()?;
            Ok((head, dataset.shape()?.now.len(), dataset.chunk()?.is_some()))
        };
        let mut rows = Vec::new();
        for name in frame_datasets(contents) {
            let located = locate(&name).map_err(|refusal| damaged(&path, &refusal))?;
            let (head, rank, has_chunks) = located;
            let found = locked(file).read(head, ROWS as usize)?;
            let shape = [1, rank as u8, 1];
            if found[0] != 1 || found[16..18] != [1, 0] || found[24..27] != shape {
                let what = format!("has a header of {name} in another format");
                return Err(unlike(&path, &what));
            }
            rows.push(RowCount {
                offset: head + ROWS,
                limit: (!has_chunks).then_some(head + ROWS + rank as u64 * WORD),
            });
        }
        self.rows = rows;
        Ok(())
    }

    /// Create a file without frames.
    fn create_file(&mut self, hdf5: &Hdf5, contents: &Contents) -> Result<()> {
        let settings = &self.settings;
        let path = settings.path.clone();
        let width = if settings.double { 8 } else { 4 };
        let frame = settings.n_atoms.saturating_mul(3 * width);
        if settings.n_frames.is_none() && frame > LARGEST_CHUNK {
            return Err(unwritable(
                &path,
                format!(
                    "an HDF5 chunk cannot contain {} atoms; give n_frames, which avoids chunks",
                    settings.n_atoms
                ),
            ));
        }
        let output = Output::new(&path)?;
        let file: SharedFile = Arc::new(Mutex::new(CrashSafeFile::new(output, 0)));
        self.file = Some(file.clone());
        let opened = hdf5.open_file(&file, ALIGNMENT, true);
        let id = opened.map_err(|refusal| refused(&path, &refusal))?;
        self.id = Some(id);
        create(hdf5, id, settings, contents)
            .and_then(|()| hdf5.flush(id))
            .map_err(|refusal| refused(&path, &refusal))?;
        locked(&file).check()?;
        self.contents = Some(*contents);
        self.find_rows(hdf5)
    }

    /// Allocate the next frame of an element; return its offset.
    fn allocate(&self, hdf5: &Hdf5, id: Id, element: &str) -> Result<u64> {
        let path = &self.settings.path;
        let made = || {
            let dataset = hdf5.object(id, &values_path(element))?;
            if dataset.chunk()?.is_none() {
                return Ok((dataset.offset(), Some(dataset.shape()?.limits[0])));
            }
            dataset.set_rows(self.n_frames + 1)?;
            Ok((dataset.chunk_offset(&[self.n_frames, 0, 0])?, None))
        };
        let (offset, limit) = made().map_err(|refusal: Refusal| refused(path, &refusal))?;
        if limit == Some(self.n_frames) {
            return Err(unwritable(
                path,
                format!(
                    "it has space for {} frames, all of which are written: see n_frames",
                    self.n_frames
                ),
            ));
        }
        let width = if self.settings.double { 24 } else { 12 };
        let frame = self.settings.n_atoms.saturating_mul(width);
        let row = limit.map_or(0, |_| self.n_frames);
        let found = offset.and_then(|offset| offset.checked_add(row.checked_mul(frame)?));
        found.ok_or_else(|| {
            unwritable(
                path,
                format!("HDF5 finds no space for frames of {frame} bytes: see n_frames"),
            )
        })
    }

    /// Close HDF5's file, and ignore its further writes.
    fn forget(&mut self, hdf5: &Hdf5) {
        if let (Some(file), Some(id)) = (&self.file, self.id.take()) {
            locked(file).give_up();
            hdf5.close_file(id);
        }
    }

    /// Close the output. An output without its final name is removed.
    fn let_go(&mut self, hdf5: &Hdf5) -> Result<()> {
        self.forget(hdf5);
        self.contents = None;
        match self.file.take().and_then(Arc::into_inner) {
            None => Ok(()),
            Some(file) => {
                let file = file.into_inner();
                let file = file.unwrap_or_else(std::sync::PoisonError::into_inner);
                file.output.close()
            }
        }
    }

    fn write_commit(&mut self, hdf5: &Hdf5) -> Result<()> {
        let path = &self.settings.path;
        let (Some(file), Some(id), Some(heading)) = (&self.file, self.id, self.heading) else {
            return Err(Error::Argument("no frame has a place in the file".into()).into());
        };
        append_frame(hdf5, id, self.n_frames, &heading)
            .and_then(|()| hdf5.flush(id))
            .map_err(|refusal| refused(path, &refusal))?;
        let mut file = locked(file);
        for one in &self.rows {
            // HDF5 cannot extend contiguous datasets, and counts all of their rows from the
            // beginning. The number of rows in the file is therefore set here.
            file.write(one.offset, &(self.n_frames + 1).to_le_bytes());
        }
        let offsets: Vec<u64> = self.rows.iter().map(|one| one.offset).collect();
        file.apply(&offsets)?;
        if self.settings.sync {
            file.output.sync()?;
        }
        let overwrite = self.settings.overwrite || self.n_frames > 0;
        file.output.publish(overwrite)?;
        self.n_frames += 1;
        self.last_step = Some(heading.step);
        Ok(())
    }

    fn is_published(&self) -> bool {
        let output = |file: &SharedFile| locked(file).output.is_published();
        self.file.as_ref().is_some_and(output)
    }
}

impl Container for H5md {
    fn n_frames(&self) -> u64 {
        self.n_frames
    }

    fn is_double(&self) -> bool {
        self.settings.double
    }

    fn place(&mut self, contents: Contents, heading: &Heading) -> Result<Place> {
        let path = self.settings.path.clone();
        if let Some(expected) = &self.contents {
            check_contents(&path, &contents, expected)?;
        }
        if let Some(last) = self.last_step.filter(|&last| heading.step <= last) {
            return Err(unwritable(
                &path,
                format!(
                    "expected a step after {last}, found {}: in H5MD, steps increase from frame to \
                     frame",
                    heading.step
                ),
            ));
        }
        let hdf5 = enter(&path)?;
        match &self.file {
            None => self.create_file(&hdf5, &contents)?,
            Some(file) => locked(file).output.check_not_replaced()?,
        }
        self.heading = Some(*heading);
        let (Some(file), Some(id)) = (&self.file, self.id) else {
            return Err(Error::Argument("the file is closed".into()).into());
        };
        let starts: Result<_> = elements(contents.fields)
            .map(|(element, _)| self.allocate(&hdf5, id, element))
            .collect();
        Ok(Place {
            path: locked(file).output.name().to_owned(),
            starts: starts?,
            warning: None,
        })
    }

    fn commit(&mut self) -> Result<()> {
        let hdf5 = enter(&self.settings.path)?;
        let written = self.write_commit(&hdf5);
        self.heading = None;
        written
    }

    fn cut_back(&mut self) -> Result<()> {
        let hdf5 = enter(&self.settings.path)?;
        self.heading = None;
        if !self.is_published() {
            return self.let_go(&hdf5);
        }
        self.forget(&hdf5);
        self.reopen(&hdf5)?;
        match &self.file {
            None => Ok(()),
            Some(file) => {
                let file = locked(file);
                file.output.cut(file.committed())
            }
        }
    }

    fn stored(&self, property: Property, atoms: Range<u64>) -> Result<Option<Vec<u8>>> {
        let path = &self.settings.path;
        let hdf5 = enter(path)?;
        let Some(id) = self.id else {
            return Ok(None);
        };
        let read = || read_property(&hdf5, id, property, self.settings.n_atoms, atoms);
        read().map_err(|refusal| damaged(path, &refusal))
    }

    fn put_property(&mut self, property: Property, first: u64, values: &[u8]) -> Result<()> {
        let path = &self.settings.path;
        let hdf5 = enter(path)?;
        let Some(id) = self.id else {
            return Ok(());
        };
        let write = || {
            let (name, kind, _) = property_of(property);
            if !hdf5.contains(id, name)? {
                create_property(&hdf5, id, property, self.settings.n_atoms)?;
            }
            let n = values.len() as u64 / WORD;
            hdf5.object(id, name)?.write_rows(first, n, kind, values)
        };
        write().map_err(|refusal| refused(path, &refusal))
    }

    fn close(&mut self) -> Result<()> {
        let hdf5 = enter(&self.settings.path)?;
        let mut limited = Ok(());
        if self.is_published() {
            self.forget(&hdf5);
            if let Some(file) = &self.file {
                // Limit contiguous datasets to the complete frames, as they cannot grow afterwards.
                let mut limits = self.rows.iter().filter_map(|one| one.limit);
                let count = self.n_frames.to_le_bytes();
                limited = limits.try_for_each(|at| locked(file).output.write(at, &count));
            }
        }
        let closed = self.let_go(&hdf5);
        limited.and(closed)
    }
}

impl Drop for H5md {
    /// Close HDF5's file; otherwise HDF5 would use the output until the end of the program.
    fn drop(&mut self) {
        // A panic may have left HDF5 locked by this thread.
        if self.id.is_some()
            && !std::thread::panicking()
            && let Ok(hdf5) = Hdf5::enter()
        {
            self.forget(&hdf5);
        }
    }
}

/// Read a property of some atoms, counted from 0; `None` if the file does not store it.
fn read_property(
    hdf5: &Hdf5,
    id: Id,
    property: Property,
    n_atoms: u64,
    atoms: Range<u64>,
) -> hdf5_objects::Result<Option<Vec<u8>>> {
    let (name, kind, _) = property_of(property);
    if !hdf5.contains(id, name)? {
        return Ok(None);
    }
    let values = hdf5.object(id, name)?;
    if values.shape()?.now != [n_atoms] {
        return Err(Refusal(format!("{name} has another shape")));
    }
    if !values.is_in(id)? {
        return Err(Refusal(format!("{name} is in another file")));
    }
    let n = atoms.end - atoms.start;
    values.read_rows(atoms.start, n, kind).map(Some)
}

/// Get exclusive access to HDF5, or refuse the file.
fn enter(path: &Path) -> Result<Hdf5> {
    Hdf5::enter().map_err(|what| unsupported(path, what))
}

fn unwritable(path: &Path, reason: String) -> Failure {
    Failure::Unwritable(format!("{}: {reason}", path.display()))
}

/// Make the error for a file that cannot be continued.
fn unlike(path: &Path, found: &str) -> Failure {
    let what = format!(
        "it {found}, unlike the files of paceline.snapshot: it can be neither continued nor read by \
         domains"
    );
    unsupported(path, what)
}

/// Make the error for an HDF5 call that failed to write.
fn refused(path: &Path, refusal: &Refusal) -> Failure {
    Error::io(path, "cannot write", io::Error::other(refusal.0.clone())).into()
}

/// Make the error for an HDF5 call that failed to read an existing file.
fn damaged(path: &Path, refusal: &Refusal) -> Failure {
    Error::Damaged {
        path: path.to_owned(),
        frame: None,
        offset: 0,
        expected: "an H5MD file".into(),
        found: format!("what HDF5 refuses: {}", refusal.0),
    }
    .into()
}
