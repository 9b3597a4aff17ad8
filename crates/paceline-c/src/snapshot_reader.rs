//! C functions that read snapshots.

use std::ffi::{c_char, c_int};

use paceline_snapshot::reading::frames::{Options, Reader, Snapshot};
use paceline_snapshot::reading::{
    AtomTable, CHARGES, FORCES, IDS, MASSES, NAMES, POSITIONS, VELOCITIES,
};
use paceline_snapshot::{Failure, Result};

use crate::comm::{CComm, Comm};
use crate::conversions::{argument, array, guard, object, path};
use crate::snapshot_writer::communicator;
use crate::{buffer_of, node, number_of};

/// `paceline_reader_options` in `include/paceline.h`.
#[repr(C)]
pub struct CReaderOptions {
    buffer: i64,
    n_readers: c_int,
    reserved: c_int,
}

/// `paceline_snapshot` in `include/paceline.h`.
#[repr(C)]
pub struct CSnapshot {
    n: i64,
    ids: *const i64,
    positions: *const f64,
    velocities: *const f64,
    forces: *const f64,
    names: *const c_char,
    masses: *const f64,
    charges: *const f64,
    step: i64,
    time: f64,
    cell: [f64; 9],
    has_cell: c_int,
    reserved: c_int,
}

/// `paceline_reader` in `include/paceline.h`.
pub struct ReaderHandle {
    comm: Comm,
    reader: Reader,
    columns: Columns,
}

/// Atoms of the last frame read; data that the file lacks are `None`.
#[derive(Default)]
struct Columns {
    ids: Vec<i64>,
    vectors: [Option<Vec<f64>>; 3],
    names: Option<Vec<u8>>,
    masses: Option<Vec<f64>>,
    charges: Option<Vec<f64>>,
}

impl Columns {
    fn of(atoms: &AtomTable) -> Self {
        let there = |column: usize| atoms.widths()[column] > 0;
        let doubles = |column: usize| there(column).then(|| pods(atoms.column(column)));
        let vectors = |column: usize| match atoms.widths()[column] {
            12 => Some(
                pods(atoms.column(column))
                    .into_iter()
                    .map(f32::into)
                    .collect(),
            ),
            _ => doubles(column),
        };
        Columns {
            ids: pods(atoms.column(IDS)),
            vectors: [POSITIONS, VELOCITIES, FORCES].map(vectors),
            names: there(NAMES).then(|| atoms.column(NAMES).to_vec()),
            masses: doubles(MASSES),
            charges: doubles(CHARGES),
        }
    }
}

/// Convert bytes to numbers in native byte order. The bytes need not be aligned.
fn pods<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Vec<T> {
    let numbers = bytes.chunks_exact(size_of::<T>());
    numbers.map(bytemuck::pod_read_unaligned).collect()
}

/// Open a file; see `include/paceline.h`.
///
/// # Safety
/// Pointers that are not NULL point to what `include/paceline.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_reader_open(
    comm: *const CComm,
    name: *const c_char,
    options: *const CReaderOptions,
    reader: *mut *mut ReaderHandle,
) -> c_int {
    // SAFETY: this function's condition.
    let comm = match unsafe { communicator(comm) } {
        Ok(comm) => comm,
        Err(failure) => return guard(None, || Err(failure)),
    };
    let mut opened = None;
    let code = guard(Some(&comm), || {
        let target = match reader.is_null() || !reader.is_aligned() {
            true => Err(argument("expected a pointer for the reader, found NULL")),
            false => Ok(()),
        };
        // SAFETY: this function's condition.
        let options = target.and_then(|()| unsafe { options_of(name, options) });
        opened = Some(Reader::open(&comm, options, node())?);
        Ok(None)
    });
    if !reader.is_null() && reader.is_aligned() {
        let handle = opened.map_or(std::ptr::null_mut(), |reader| {
            Box::into_raw(Box::new(ReaderHandle {
                comm,
                reader,
                columns: Columns::default(),
            }))
        });
        // SAFETY: `reader` is neither NULL nor unaligned, and points to a pointer of the caller.
        unsafe { reader.write(handle) };
    }
    code
}

/// # Safety
/// As [`paceline_reader_open`].
unsafe fn options_of(name: *const c_char, options: *const CReaderOptions) -> Result<Options> {
    // SAFETY: this function's condition, which also holds for the pointers below.
    let path = unsafe { path(name) }?;
    let default = CReaderOptions {
        buffer: 0,
        n_readers: 0,
        reserved: 0,
    };
    let options = unsafe { object(options, "options") }?.unwrap_or(&default);
    Ok(Options {
        path,
        n_readers: number_of("readers", options.n_readers)?,
        buffer: buffer_of(options.buffer)?,
    })
}

/// Return the number of atoms, or -1 for NULL.
///
/// # Safety
/// `reader` is NULL or a reader that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_reader_atoms(reader: *const ReaderHandle) -> i64 {
    // SAFETY: this function's condition.
    unsafe { reader.as_ref() }.map_or(-1, |handle| handle.reader.n_atoms() as i64)
}

/// Return the number of frames, or -1 for NULL.
///
/// # Safety
/// `reader` is NULL or a reader that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_reader_frames(reader: *const ReaderHandle) -> i64 {
    // SAFETY: this function's condition.
    unsafe { reader.as_ref() }.map_or(-1, |handle| handle.reader.n_frames() as i64)
}

/// Read a frame; see `include/paceline.h`.
///
/// # Safety
/// `reader` is NULL or a reader that is open; other pointers that are not NULL point to what
/// `include/paceline.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_read(
    reader: *mut ReaderHandle,
    frame: i64,
    grid: *const i32,
    snapshot: *mut CSnapshot,
) -> c_int {
    // SAFETY: this function's condition: a reader of `paceline_reader_open`, which only one thread
    // uses at a time.
    let Some(handle) = (unsafe { reader.as_mut() }) else {
        return guard(None, || Err(argument("expected a reader, found NULL")));
    };
    let ReaderHandle {
        comm,
        reader,
        columns,
    } = handle;
    let usable = !snapshot.is_null() && snapshot.is_aligned();
    let mut read = None;
    let code = guard(Some(comm), || {
        let target = match usable {
            true => Ok(()),
            false => Err(argument("expected a pointer for the snapshot, found NULL")),
        };
        // SAFETY: this function's condition: a grid has 3 numbers.
        let arguments = target.and_then(|()| unsafe { arguments_of(frame, grid) });
        let found = reader.read(comm, arguments)?;
        *columns = Columns::of(&found.atoms);
        read = Some(found);
        Ok(None)
    });
    if usable {
        let view = read.map_or_else(CSnapshot::empty, |read| CSnapshot::of(columns, &read));
        // SAFETY: `snapshot` is neither NULL nor unaligned, and points to the caller's structure.
        unsafe { snapshot.write(view) };
    }
    code
}

/// # Safety
/// As [`paceline_read`].
unsafe fn arguments_of(
    frame: i64,
    grid: *const i32,
) -> std::result::Result<(u64, Option<[u32; 3]>), Failure> {
    let number = u64::try_from(frame)
        .map_err(|_| argument(format!("expected a frame from 0 on, found {frame}")))?;
    // SAFETY: this function's condition.
    let Some(grid) = unsafe { array(grid, 3, "numbers of the grid") }? else {
        return Ok((number, None));
    };
    let mut shape = [0; 3];
    for (n, &given) in shape.iter_mut().zip(grid) {
        *n = match u32::try_from(given) {
            Ok(given @ 1..) => given,
            _ => {
                let reason = format!("expected a grid of positive numbers, found {grid:?}");
                return Err(argument(reason));
            }
        };
    }
    Ok((number, Some(shape)))
}

fn pointer<T>(column: &Option<Vec<T>>) -> *const T {
    column
        .as_ref()
        .map_or(std::ptr::null(), |column| column.as_ptr())
}

impl CSnapshot {
    fn empty() -> Self {
        CSnapshot {
            n: 0,
            ids: std::ptr::null(),
            positions: std::ptr::null(),
            velocities: std::ptr::null(),
            forces: std::ptr::null(),
            names: std::ptr::null(),
            masses: std::ptr::null(),
            charges: std::ptr::null(),
            step: 0,
            time: 0.0,
            cell: [0.0; 9],
            has_cell: 0,
            reserved: 0,
        }
    }

    fn of(columns: &Columns, read: &Snapshot) -> Self {
        let [positions, velocities, forces] = &columns.vectors;
        let mut cell = [0.0; 9];
        if let Some(vectors) = &read.heading.cell {
            cell.copy_from_slice(vectors.as_flattened());
        }
        CSnapshot {
            n: columns.ids.len() as i64,
            ids: columns.ids.as_ptr(),
            positions: pointer(positions),
            velocities: pointer(velocities),
            forces: pointer(forces),
            names: pointer(&columns.names).cast(),
            masses: pointer(&columns.masses),
            charges: pointer(&columns.charges),
            step: read.heading.step,
            time: read.heading.time,
            cell,
            has_cell: read.heading.cell.is_some().into(),
            reserved: 0,
        }
    }
}

/// Close the file; see `include/paceline.h`.
///
/// # Safety
/// `reader` is NULL, or points to NULL or to a reader that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_reader_close(reader: *mut *mut ReaderHandle) -> c_int {
    guard(None, || {
        if reader.is_null() || !reader.is_aligned() {
            return Err(argument("expected a pointer to a reader, found NULL"));
        }
        // SAFETY: neither NULL nor unaligned, and the rest is this function's condition.
        let handle = unsafe { reader.replace(std::ptr::null_mut()) };
        if handle.is_null() {
            return Err(argument("the reader is closed, or was never open"));
        }
        // SAFETY: the handle came from `Box::into_raw`. The caller's pointer is NULL now, so that
        // the handle is freed only once.
        drop(unsafe { Box::from_raw(handle) });
        Ok(None)
    })
}
