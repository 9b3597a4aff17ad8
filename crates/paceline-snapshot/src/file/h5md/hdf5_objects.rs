//! Objects of an HDF5 file, and the functions of HDF5 that snapshots call for them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null;

use super::crash_safe::{SharedFile, opening};
use super::library::{Hdf5, Id, Refusal};

pub type Result<T> = std::result::Result<T, Refusal>;

/// Default property list, whole dataspace, and size of a string of any length.
const DEFAULT: Id = 0;
const ALL: Id = 0;
const VARIABLE: usize = usize::MAX;
/// Size of a dimension without limit, and undefined address.
pub const UNLIMITED: u64 = u64::MAX;
const UNDEFINED: u64 = u64::MAX;
const TRUNCATE: u32 = 2;
const READ_ONLY: u32 = 0;
const READ_AND_WRITE: u32 = 1;
/// Level of gzip that h5py uses by default.
const GZIP_LEVEL: u32 = 4;
const CHUNKED: c_int = 2;
const EARLY: c_int = 1;
const NEVER: c_int = 1;
const UTF8: c_int = 1;
const PADDED_WITH_ZEROS: c_int = 1;
const SELECT: c_int = 0;

/// Object of HDF5. It is closed when its last reference is dropped.
pub struct Object<'h> {
    hdf5: &'h Hdf5,
    id: Id,
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        // SAFETY: the identifier is open, and this is its only reference.
        unsafe { (self.hdf5.functions().H5Idec_ref)(self.id) };
    }
}

/// Type of numbers or texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Float32,
    Float64,
    Int32,
    Int64,
    /// Text of 8 bytes, padded with zeros.
    Name,
    /// UTF-8 text of any length.
    Text,
}

/// Storage of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage<'a> {
    /// Storage that HDF5 chooses.
    Default,
    /// Chunks of this shape.
    Chunks(&'a [u64]),
    /// Chunks of this shape, shuffled and compressed.
    Packed(&'a [u64]),
    /// Chunks of this shape, for which space is allocated when they are created.
    AllocatedChunks(&'a [u64]),
    /// Contiguous space, which is allocated when the dataset is created.
    Allocated,
}

/// Shape of a dataset, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub now: Vec<u64>,
    pub limits: Vec<u64>,
}

/// Create a name for HDF5; paths of this crate contain no zero bytes.
fn name_of(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}

impl Hdf5 {
    fn made(&self, function: &str, id: Id) -> Result<Object<'_>> {
        match id < 0 {
            true => Err(self.refusal(function)),
            false => Ok(Object { hdf5: self, id }),
        }
    }

    fn done(&self, function: &str, status: c_int) -> Result<c_int> {
        match status < 0 {
            true => Err(self.refusal(function)),
            false => Ok(status),
        }
    }

    fn properties(&self, class: Id) -> Result<Object<'_>> {
        // SAFETY: the class is one of HDF5's.
        self.made("H5Pcreate", unsafe { (self.functions().H5Pcreate)(class) })
    }

    /// Create the access properties of a file. They select paceline's driver, align objects, and
    /// allow only old formats, which all versions of HDF5 read.
    fn access(&self, alignment: u64) -> Result<Object<'_>> {
        let functions = self.functions();
        let access = self.properties(self.constants().file_access)?;
        let (mut low, mut high) = (0, 0);
        // SAFETY: the list is open; HDF5 writes two numbers.
        unsafe {
            self.done(
                "H5Pset_driver",
                (functions.H5Pset_driver)(access.id, self.loaded.driver, null()),
            )?;
            self.done(
                "H5Pset_alignment",
                (functions.H5Pset_alignment)(access.id, 1, alignment),
            )?;
            self.done(
                "H5Pget_libver_bounds",
                (functions.H5Pget_libver_bounds)(access.id, &raw mut low, &raw mut high),
            )?;
            self.done(
                "H5Pset_libver_bounds",
                (functions.H5Pset_libver_bounds)(access.id, 0, high),
            )?;
        }
        Ok(access)
    }

    /// Create or open the file, and return its identifier, which the caller must close.
    pub fn open_file(&self, file: &SharedFile, alignment: u64, is_new: bool) -> Result<Id> {
        let functions = self.functions();
        let access = self.access(alignment)?;
        let creation = self.properties(self.constants().file_create)?;
        let name = c"paceline".as_ptr();
        // SAFETY: the lists are open, and the name ends with a zero byte.
        let (function, id) = opening(file, || unsafe {
            (functions.H5Pset_obj_track_times)(creation.id, 0);
            match is_new {
                true => (
                    "H5Fcreate",
                    (functions.H5Fcreate)(name, TRUNCATE, creation.id, access.id),
                ),
                false => (
                    "H5Fopen",
                    (functions.H5Fopen)(name, READ_AND_WRITE, access.id),
                ),
            }
        });
        match id < 0 {
            true => Err(self.refusal(function)),
            false => Ok(id),
        }
    }

    /// Open a file for reading, with HDF5's default driver.
    pub fn open_to_read(&self, path: &Path) -> Result<Id> {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap_or_default();
        // SAFETY: the name ends with a zero byte.
        let id = unsafe { (self.functions().H5Fopen)(name.as_ptr(), READ_ONLY, DEFAULT) };
        match id < 0 {
            true => Err(self.refusal("H5Fopen")),
            false => Ok(id),
        }
    }

    /// Pass all changes of a file to its driver.
    pub fn flush(&self, file: Id) -> Result<()> {
        // SAFETY: the file is open.
        let status = unsafe { (self.functions().H5Fflush)(file, 0) };
        self.done("H5Fflush", status).map(drop)
    }

    /// Close a file. An error is ignored, because nothing is written at that time: the driver
    /// ignores writes, or the file is open only for reading.
    pub fn close_file(&self, file: Id) {
        // SAFETY: the file is open, and its identifier is not used again.
        unsafe { (self.functions().H5Fclose)(file) };
    }

    /// Open an object by its path in a file.
    pub fn object(&self, file: Id, path: &str) -> Result<Object<'_>> {
        let name = name_of(path);
        // SAFETY: the file is open, and the name ends with a zero byte, like all names below.
        let id = unsafe { (self.functions().H5Oopen)(file, name.as_ptr(), DEFAULT) };
        self.made("H5Oopen", id)
    }

    /// Number of the file that contains an object, and address of the object's header in it, bytes.
    fn location(&self, id: Id) -> Result<[u64; 2]> {
        // `H5O_info1_t` is smaller than this buffer. Its first two words are the number of the file
        // and the address.
        let mut info = [0_u64; 64];
        // SAFETY: the object is open, and the buffer is large enough.
        let status = unsafe { (self.functions().H5Oget_info1)(id, info.as_mut_ptr().cast()) };
        self.done("H5Oget_info1", status)?;
        Ok([info[0], info[1]])
    }

    /// True if a file has an object of this path.
    pub fn contains(&self, file: Id, path: &str) -> Result<bool> {
        let ends = path
            .match_indices('/')
            .map(|(end, _)| end)
            .chain([path.len()]);
        for end in ends {
            let name = name_of(&path[..end]);
            // SAFETY: as above.
            let there = unsafe { (self.functions().H5Lexists)(file, name.as_ptr(), DEFAULT) };
            if self.done("H5Lexists", there)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Create a group, and any missing groups above it.
    pub fn create_group(&self, file: Id, path: &str) -> Result<Object<'_>> {
        let functions = self.functions();
        let links = self.properties(self.constants().link_create)?;
        let creation = self.properties(self.constants().group_create)?;
        let name = name_of(path);
        // SAFETY: the file and the lists are open.
        let id = unsafe {
            (functions.H5Pset_create_intermediate_group)(links.id, 1);
            (functions.H5Pset_obj_track_times)(creation.id, 0);
            (functions.H5Gcreate2)(file, name.as_ptr(), links.id, creation.id, DEFAULT)
        };
        self.made("H5Gcreate2", id)
    }

    fn kind(&self, kind: Type) -> Result<Object<'_>> {
        let (functions, constants) = (self.functions(), self.constants());
        let from = match kind {
            Type::Float32 => constants.float32,
            Type::Float64 => constants.float64,
            Type::Int32 => constants.int32,
            Type::Int64 => constants.int64,
            Type::Name | Type::Text => constants.string,
        };
        // SAFETY: the types are HDF5's own, and the copy is open.
        unsafe {
            let made = self.made("H5Tcopy", (functions.H5Tcopy)(from))?;
            match kind {
                Type::Name => {
                    (functions.H5Tset_size)(made.id, 8);
                    (functions.H5Tset_strpad)(made.id, PADDED_WITH_ZEROS);
                }
                Type::Text => {
                    (functions.H5Tset_size)(made.id, VARIABLE);
                    (functions.H5Tset_cset)(made.id, UTF8);
                }
                _ => {}
            }
            Ok(made)
        }
    }

    fn space(&self, shape: &[u64], limits: Option<&[u64]>) -> Result<Object<'_>> {
        let most = limits.map_or(null(), <[u64]>::as_ptr);
        let rank = shape.len() as c_int;
        // SAFETY: both arrays have as many numbers as there are dimensions, or the second is NULL.
        let id = unsafe { (self.functions().H5Screate_simple)(rank, shape.as_ptr(), most) };
        self.made("H5Screate_simple", id)
    }

    fn storage(&self, storage: Storage<'_>) -> Result<Object<'_>> {
        let functions = self.functions();
        let creation = self.properties(self.constants().dataset_create)?;
        // SAFETY: the list is open, and a chunk has as many numbers as are given.
        unsafe {
            (functions.H5Pset_obj_track_times)(creation.id, 0);
            if let Storage::Chunks(chunk)
            | Storage::Packed(chunk)
            | Storage::AllocatedChunks(chunk) = storage
            {
                let rank = chunk.len() as c_int;
                let status = (functions.H5Pset_chunk)(creation.id, rank, chunk.as_ptr());
                self.done("H5Pset_chunk", status)?;
            }
            match storage {
                Storage::Packed(_) => {
                    (functions.H5Pset_shuffle)(creation.id);
                    let status = (functions.H5Pset_deflate)(creation.id, GZIP_LEVEL);
                    self.done("H5Pset_deflate", status)?;
                }
                Storage::AllocatedChunks(_) | Storage::Allocated => {
                    (functions.H5Pset_alloc_time)(creation.id, EARLY);
                    (functions.H5Pset_fill_time)(creation.id, NEVER);
                }
                _ => {}
            }
        }
        Ok(creation)
    }

    /// Create a dataset in a group that exists.
    pub fn create_dataset(
        &self,
        file: Id,
        path: &str,
        kind: Type,
        shape: &[u64],
        limits: Option<&[u64]>,
        storage: Storage<'_>,
    ) -> Result<Object<'_>> {
        let kind = self.kind(kind)?;
        let space = self.space(shape, limits)?;
        let creation = self.storage(storage)?;
        let name = name_of(path);
        // SAFETY: all objects are open.
        let id = unsafe {
            (self.functions().H5Dcreate2)(
                file,
                name.as_ptr(),
                kind.id,
                space.id,
                DEFAULT,
                creation.id,
                DEFAULT,
            )
        };
        self.made("H5Dcreate2", id)
    }

    /// Create a dataset of one string.
    pub fn create_text(&self, file: Id, path: &str, text: &str) -> Result<()> {
        let dataset = self.create_dataset(file, path, Type::Text, &[], None, Storage::Default)?;
        let text = name_of(text);
        let pointer = text.as_ptr();
        let kind = self.kind(Type::Text)?;
        // SAFETY: the dataset has one element, a pointer to a text that ends with a zero byte.
        let status = unsafe {
            (self.functions().H5Dwrite)(
                dataset.id,
                kind.id,
                ALL,
                ALL,
                DEFAULT,
                (&raw const pointer).cast(),
            )
        };
        self.done("H5Dwrite", status).map(drop)
    }
}

impl Object<'_> {
    /// Link the object under another path, so that it has two names.
    pub fn link(&self, file: Id, path: &str) -> Result<()> {
        let name = name_of(path);
        // SAFETY: both objects are open.
        let status = unsafe {
            (self.hdf5.functions().H5Olink)(self.id, file, name.as_ptr(), DEFAULT, DEFAULT)
        };
        self.hdf5.done("H5Olink", status).map(drop)
    }

    /// Address of the object's header in its file, bytes.
    pub fn address(&self) -> Result<u64> {
        Ok(self.hdf5.location(self.id)?[1])
    }

    /// True if the object is in this file, and not behind a link to another file.
    pub fn is_in(&self, file: Id) -> Result<bool> {
        Ok(self.hdf5.location(self.id)?[0] == self.hdf5.location(file)?[0])
    }

    fn set_attribute(
        &self,
        name: &str,
        kind: Type,
        shape: &[u64],
        values: *const c_void,
    ) -> Result<()> {
        let (hdf5, name) = (self.hdf5, name_of(name));
        let (kind, space) = (hdf5.kind(kind)?, hdf5.space(shape, None)?);
        // SAFETY: all objects are open; the callers below give as many values as the shape has.
        unsafe {
            let made = hdf5.made(
                "H5Acreate2",
                (hdf5.functions().H5Acreate2)(
                    self.id,
                    name.as_ptr(),
                    kind.id,
                    space.id,
                    DEFAULT,
                    DEFAULT,
                ),
            )?;
            let status = (hdf5.functions().H5Awrite)(made.id, kind.id, values);
            hdf5.done("H5Awrite", status).map(drop)
        }
    }

    /// Create an attribute of one string.
    pub fn set_text(&self, name: &str, text: &str) -> Result<()> {
        let text = name_of(text);
        let pointer = text.as_ptr();
        self.set_attribute(name, Type::Text, &[], (&raw const pointer).cast())
    }

    /// Create an attribute of three equal strings.
    pub fn set_three(&self, name: &str, text: &str) -> Result<()> {
        let text = name_of(text);
        let pointers = [text.as_ptr(); 3];
        self.set_attribute(name, Type::Text, &[3], pointers.as_ptr().cast())
    }

    /// Create an attribute of one number.
    pub fn set_number(&self, name: &str, number: i64) -> Result<()> {
        self.set_attribute(name, Type::Int64, &[], (&raw const number).cast())
    }

    /// Create an attribute of a version number.
    pub fn set_version(&self, name: &str, version: [i32; 2]) -> Result<()> {
        self.set_attribute(name, Type::Int32, &[2], version.as_ptr().cast())
    }

    /// Read an attribute that is one string; `None` if it is missing or something else.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        let (hdf5, name) = (self.hdf5, name_of(name));
        let functions = hdf5.functions();
        let kind = hdf5.kind(Type::Text)?;
        let mut pointer: *mut c_char = std::ptr::null_mut();
        // SAFETY: all objects are open; HDF5 stores one pointer, to a text that it allocates.
        unsafe {
            if hdf5.done("H5Aexists", (functions.H5Aexists)(self.id, name.as_ptr()))? == 0 {
                return Ok(None);
            }
            let found = hdf5.made(
                "H5Aopen",
                (functions.H5Aopen)(self.id, name.as_ptr(), DEFAULT),
            )?;
            let space = hdf5.made("H5Aget_space", (functions.H5Aget_space)(found.id))?;
            if (functions.H5Sget_simple_extent_ndims)(space.id) != 0
                || (functions.H5Aread)(found.id, kind.id, (&raw mut pointer).cast()) < 0
                || pointer.is_null()
            {
                return Ok(None);
            }
            let text = CStr::from_ptr(pointer).to_string_lossy().into_owned();
            (functions.H5free_memory)(pointer.cast());
            Ok(Some(text))
        }
    }

    fn dataspace(&self) -> Result<Object<'_>> {
        // SAFETY: the dataset is open; for any other object, HDF5 returns an error.
        let id = unsafe { (self.hdf5.functions().H5Dget_space)(self.id) };
        self.hdf5.made("H5Dget_space", id)
    }

    /// Shape of a dataset.
    pub fn shape(&self) -> Result<Shape> {
        let functions = self.hdf5.functions();
        let space = self.dataspace()?;
        // SAFETY: the dataspace is open; HDF5 writes a number for each dimension to both arrays.
        unsafe {
            let rank = (functions.H5Sget_simple_extent_ndims)(space.id);
            let rank = self.hdf5.done("H5Sget_simple_extent_ndims", rank)? as usize;
            let (mut now, mut limits) = (vec![0; rank], vec![0; rank]);
            let status = (functions.H5Sget_simple_extent_dims)(
                space.id,
                now.as_mut_ptr(),
                limits.as_mut_ptr(),
            );
            self.hdf5.done("H5Sget_simple_extent_dims", status)?;
            Ok(Shape { now, limits })
        }
    }

    /// True if a dataset has this type.
    pub fn has_type(&self, kind: Type) -> Result<bool> {
        let (hdf5, kind) = (self.hdf5, self.hdf5.kind(kind)?);
        // SAFETY: the dataset is open; for any other object, HDF5 returns an error.
        unsafe {
            let found = (hdf5.functions().H5Dget_type)(self.id);
            let found = hdf5.made("H5Dget_type", found)?;
            let equal = (hdf5.functions().H5Tequal)(found.id, kind.id);
            Ok(hdf5.done("H5Tequal", equal)? > 0)
        }
    }

    /// Shape of a dataset's chunks; `None` without chunks.
    pub fn chunk(&self) -> Result<Option<Vec<u64>>> {
        let functions = self.hdf5.functions();
        let creation = self.creation()?;
        let mut chunk = [0; 32];
        // SAFETY: the list is open; HDF5 writes at most as many numbers as are given.
        unsafe {
            if (functions.H5Pget_layout)(creation.id) != CHUNKED {
                return Ok(None);
            }
            let rank =
                (functions.H5Pget_chunk)(creation.id, chunk.len() as c_int, chunk.as_mut_ptr());
            let rank = self.hdf5.done("H5Pget_chunk", rank)? as usize;
            Ok(Some(chunk[..rank.min(chunk.len())].to_vec()))
        }
    }

    fn creation(&self) -> Result<Object<'_>> {
        // SAFETY: the dataset is open; for any other object, HDF5 returns an error.
        let id = unsafe { (self.hdf5.functions().H5Dget_create_plist)(self.id) };
        self.hdf5.made("H5Dget_create_plist", id)
    }

    /// True if space for chunks is allocated when they are created.
    pub fn is_allocated_early(&self) -> Result<bool> {
        let creation = self.creation()?;
        let mut time = 0;
        // SAFETY: the list is open; HDF5 writes one number.
        let status =
            unsafe { (self.hdf5.functions().H5Pget_alloc_time)(creation.id, &raw mut time) };
        self.hdf5.done("H5Pget_alloc_time", status)?;
        Ok(time == EARLY)
    }

    /// True if values are encoded by filters, or stored in another file.
    pub fn is_encoded(&self) -> Result<bool> {
        let functions = self.hdf5.functions();
        let creation = self.creation()?;
        // SAFETY: the list is open.
        let counts = unsafe {
            [
                (functions.H5Pget_nfilters)(creation.id),
                (functions.H5Pget_external_count)(creation.id),
            ]
        };
        Ok(counts != [0, 0])
    }

    /// Offset of contiguous values in the file; `None` if no space is allocated for them.
    pub fn offset(&self) -> Option<u64> {
        // SAFETY: the dataset is open; for any other object, HDF5 returns an error.
        let offset = unsafe { (self.hdf5.functions().H5Dget_offset)(self.id) };
        (offset != UNDEFINED).then_some(offset)
    }

    /// Offset of the chunk at `corner`; `None` if no space is allocated for it.
    pub fn chunk_offset(&self, corner: &[u64]) -> Result<Option<u64>> {
        let (mut mask, mut offset, mut size) = (0, UNDEFINED, 0);
        // SAFETY: the dataset is open, and the callers give as many numbers as it has dimensions;
        // HDF5 writes three numbers.
        let status = unsafe {
            (self.hdf5.functions().H5Dget_chunk_info_by_coord)(
                self.id,
                corner.as_ptr(),
                &raw mut mask,
                &raw mut offset,
                &raw mut size,
            )
        };
        self.hdf5.done("H5Dget_chunk_info_by_coord", status)?;
        Ok((offset != UNDEFINED).then_some(offset))
    }

    /// Set the number of rows of a dataset.
    pub fn set_rows(&self, n_rows: u64) -> Result<()> {
        let mut shape = self.shape()?.now;
        if let Some(first) = shape.first_mut() {
            *first = n_rows;
        }
        // SAFETY: the dataset is open, and the shape has as many numbers as it has dimensions.
        let status = unsafe { (self.hdf5.functions().H5Dset_extent)(self.id, shape.as_ptr()) };
        self.hdf5.done("H5Dset_extent", status).map(drop)
    }

    /// Select rows. Return the dataspaces of memory and of the file, and the number of elements. An
    /// element has at most 8 bytes.
    fn select(&self, first: u64, n_rows: u64) -> Result<(Object<'_>, Object<'_>, u64)> {
        let mut block = self.shape()?.now;
        let mut start = vec![0; block.len()];
        if let (Some(rows), Some(from)) = (block.first_mut(), start.first_mut()) {
            (*rows, *from) = (n_rows, first);
        }
        let memory = self.hdf5.space(&block, None)?;
        let file = self.dataspace()?;
        // SAFETY: the dataspace is open, and both arrays have as many numbers as it has dimensions.
        let status = unsafe {
            (self.hdf5.functions().H5Sselect_hyperslab)(
                file.id,
                SELECT,
                start.as_ptr(),
                null(),
                block.as_ptr(),
                null(),
            )
        };
        self.hdf5.done("H5Sselect_hyperslab", status)?;
        let n = block.iter().try_fold(8_u64, |n, &size| n.checked_mul(size));
        let n = n.filter(|&n_bytes| n_bytes <= isize::MAX as u64);
        let n = n.ok_or_else(|| Refusal(format!("rows of shape {block:?} are too large")))?;
        Ok((memory, file, n / 8))
    }

    /// Write rows, whose bytes are of type `kind`.
    pub fn write_rows(&self, first: u64, n_rows: u64, kind: Type, bytes: &[u8]) -> Result<()> {
        let (memory, file, n) = self.select(first, n_rows)?;
        if bytes.len() as u64 != n * kind.size() {
            return Err(Refusal(format!("expected {n} values, found others")));
        }
        let kind = self.hdf5.kind(kind)?;
        // SAFETY: all objects are open, and the selection has as many bytes as are given.
        let status = unsafe {
            (self.hdf5.functions().H5Dwrite)(
                self.id,
                kind.id,
                memory.id,
                file.id,
                DEFAULT,
                bytes.as_ptr().cast(),
            )
        };
        self.hdf5.done("H5Dwrite", status).map(drop)
    }

    /// Read rows of a dataset as values of type `kind`.
    pub fn read_rows(&self, first: u64, n_rows: u64, kind: Type) -> Result<Vec<u8>> {
        let (memory, file, n) = self.select(first, n_rows)?;
        let mut bytes = vec![0; (n * kind.size()) as usize];
        let kind = self.hdf5.kind(kind)?;
        // SAFETY: all objects are open, and the selection has as many bytes as the buffer.
        let status = unsafe {
            (self.hdf5.functions().H5Dread)(
                self.id,
                kind.id,
                memory.id,
                file.id,
                DEFAULT,
                bytes.as_mut_ptr().cast(),
            )
        };
        self.hdf5.done("H5Dread", status)?;
        Ok(bytes)
    }
}

impl Type {
    /// Size of a value in memory, bytes.
    fn size(self) -> u64 {
        match self {
            Type::Float32 | Type::Int32 => 4,
            Type::Float64 | Type::Int64 | Type::Name | Type::Text => 8,
        }
    }
}
