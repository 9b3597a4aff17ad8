//! C functions that write snapshots.

use std::ffi::{c_char, c_int};

use paceline_formats::error::Error;
use paceline_snapshot::collective_writer::{Options, Writer};
use paceline_snapshot::file::{Heading, Kind, Settings};
use paceline_snapshot::{Atoms, Failure, Method, Result, Vectors};

use crate::comm::{CComm, Comm};
use crate::conversions::{argument, array, guard, object, path, text};
use crate::{buffer_of, node, number_of};

/// `paceline_options` in `include/paceline.h`.
#[repr(C)]
pub struct CWriterOptions {
    format: *const c_char,
    title: *const c_char,
    dt: f64,
    buffer: i64,
    append: c_int,
    overwrite: c_int,
    sync: c_int,
    method: c_int,
    n_writers: c_int,
    double_precision: c_int,
    n_frames: i64,
}

/// `paceline_atoms` in `include/paceline.h`.
#[repr(C)]
pub struct CAtoms {
    n: i64,
    ids: *const i64,
    positions: *const f64,
    velocities: *const f64,
    forces: *const f64,
    names: *const c_char,
    masses: *const f64,
    charges: *const f64,
}

/// `paceline_writer` in `include/paceline.h`.
pub struct WriterHandle {
    comm: Comm,
    writer: Writer,
}

/// Create a communicator from the caller's structure, and check it; NULL means a single rank.
///
/// # Safety
/// Unless `comm` is NULL or unaligned, it points to a valid structure.
pub unsafe fn communicator(comm: *const CComm) -> Result<Comm> {
    // SAFETY: this function's condition; the structure is copied at once.
    match unsafe { object(comm, "the communicator") }? {
        None => Ok(Comm::single()),
        Some(comm) => Comm::of(comm).map_err(argument),
    }
}

/// Open a file to which frames are written; see `include/paceline.h`.
///
/// # Safety
/// Pointers that are not NULL point to what `include/paceline.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_writer_open(
    comm: *const CComm,
    name: *const c_char,
    n_atoms: i64,
    options: *const CWriterOptions,
    writer: *mut *mut WriterHandle,
) -> c_int {
    // SAFETY: this function's condition.
    let comm = match unsafe { communicator(comm) } {
        Ok(comm) => comm,
        Err(failure) => return guard(None, || Err(failure)),
    };
    let mut opened = None;
    let code = guard(Some(&comm), || {
        let target = match writer.is_null() || !writer.is_aligned() {
            true => Err(argument("expected a pointer for the writer, found NULL")),
            false => Ok(()),
        };
        // SAFETY: this function's condition.
        let options = target.and_then(|()| unsafe { options_of(name, n_atoms, options) });
        opened = Some(Writer::open(&comm, options, node())?);
        Ok(None)
    });
    if !writer.is_null() && writer.is_aligned() {
        let handle = opened.map_or(std::ptr::null_mut(), |writer| {
            Box::into_raw(Box::new(WriterHandle { comm, writer }))
        });
        // SAFETY: `writer` is neither NULL nor unaligned, and points to a pointer of the caller.
        unsafe { writer.write(handle) };
    }
    code
}

/// # Safety
/// As [`paceline_writer_open`].
unsafe fn options_of(
    name: *const c_char,
    n_atoms: i64,
    options: *const CWriterOptions,
) -> Result<Options> {
    // SAFETY: this function's condition, which also holds for the pointers below.
    let path = unsafe { path(name) }?;
    let n_atoms = match u64::try_from(n_atoms) {
        Ok(n_atoms @ 1..) => n_atoms,
        _ => {
            return Err(argument(format!(
                "expected at least 1 atom, found {n_atoms}"
            )));
        }
    };
    let default = CWriterOptions {
        format: std::ptr::null(),
        title: std::ptr::null(),
        dt: 0.0,
        buffer: 0,
        append: 0,
        overwrite: 0,
        sync: 0,
        method: 0,
        n_writers: 0,
        double_precision: 0,
        n_frames: 0,
    };
    let options = unsafe { object(options, "options") }?.unwrap_or(&default);
    let format = unsafe { text(options.format, "a format") }?;
    let title = unsafe { text(options.title, "a title") }?.unwrap_or_default();
    let names = Kind::ALL.map(|(name, _)| name).join(", ");
    let kind = match &format {
        Some(name) => Kind::from_name(name).ok_or_else(|| {
            unsupported(
                &path,
                format!("expected a format out of {names}, found {name}"),
            )
        })?,
        None => Kind::from_path(&path).ok_or_else(|| {
            let what = "expected a name that ends in .h5md, .h5, .hdf5, .nc, .ncdf or .dcd, or is \
                        CONFIG, REVCON or HISTORY; or give the format";
            unsupported(&path, what.into())
        })?,
    };
    let is_text = matches!(kind, Kind::Config | Kind::History);
    let dt = match options.dt {
        0.0 => None,
        dt if dt > 0.0 && dt.is_finite() => Some(dt),
        dt => {
            return Err(argument(format!(
                "expected a dt of more than 0 ps, found {dt}"
            )));
        }
    };
    let n_frames = match u64::try_from(options.n_frames) {
        Ok(0) => None,
        Ok(n_frames) => Some(n_frames),
        Err(_) => {
            return Err(argument(format!(
                "expected a number of frames, found {}",
                options.n_frames
            )));
        }
    };
    let is_h5md = kind == Kind::H5md;
    for (what, is_given, has) in [
        ("title", !title.is_empty(), is_text || is_h5md),
        ("dt", dt.is_some(), is_text),
        ("n_frames", n_frames.is_some(), is_h5md),
        ("double_precision", options.double_precision != 0, is_h5md),
    ] {
        if is_given && !has {
            let name = kind.name();
            return Err(argument(format!("{name} has no {what} to choose")));
        }
    }
    if options.append != 0 && options.overwrite != 0 {
        return Err(argument(
            "an existing file is continued or replaced: append or overwrite",
        ));
    }
    Ok(Options {
        kind,
        settings: Settings {
            path,
            n_atoms,
            title,
            append: options.append != 0,
            overwrite: options.overwrite != 0,
            dt,
            sync: options.sync != 0,
            n_frames,
            double: options.double_precision != 0,
        },
        method: match options.method {
            0 => Method::Sorted,
            1 => Method::Direct,
            other => {
                return Err(argument(format!(
                    "expected a method, 0 or 1, found {other}"
                )));
            }
        },
        n_writers: number_of("writers", options.n_writers)?,
        buffer: buffer_of(options.buffer)?,
    })
}

fn unsupported(path: &std::path::Path, what: String) -> Failure {
    Failure::Error(Error::Unsupported {
        path: path.to_owned(),
        what,
    })
}

/// Write a frame; see `include/paceline.h`.
///
/// # Safety
/// `writer` is NULL or a writer that is open; other pointers that are not NULL point to what
/// `include/paceline.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_write(
    writer: *mut WriterHandle,
    atoms: *const CAtoms,
    step: i64,
    time: f64,
    cell: *const f64,
) -> c_int {
    // SAFETY: this function's condition: a writer of `paceline_writer_open`, which only one thread
    // uses at a time.
    let Some(WriterHandle { comm, writer }) = (unsafe { writer.as_mut() }) else {
        return guard(None, || Err(argument("expected a writer, found NULL")));
    };
    guard(Some(comm), || {
        // SAFETY: this function's condition.
        let given = unsafe { frame_of(atoms, step, time, cell) };
        let (_, warning) = writer.write(comm, given)?;
        Ok(warning)
    })
}

/// # Safety
/// As [`paceline_write`]; nobody changes the arrays during `'a`.
unsafe fn frame_of<'a>(
    atoms: *const CAtoms,
    step: i64,
    time: f64,
    cell: *const f64,
) -> Result<(Atoms<'a>, Heading)> {
    if !time.is_finite() {
        return Err(argument(format!("expected a finite time, found {time} ps")));
    }
    // SAFETY: this function's condition: a cell has 9 numbers.
    let cell = unsafe { array(cell, 9, "numbers of the cell") }?;
    let cell = cell.map(|cell| std::array::from_fn(|i| std::array::from_fn(|j| cell[3 * i + j])));
    if let Some(cell) = &cell {
        check_volume(cell)?;
    }
    let heading = Heading { step, time, cell };
    // SAFETY: this function's condition.
    let Some(atoms) = unsafe { object(atoms, "the structure of atoms") }? else {
        return Err(argument("expected atoms, found NULL"));
    };
    let n = usize::try_from(atoms.n).map_err(|_| {
        argument(format!(
            "expected a number of atoms, and arrays of as many, found {}",
            atoms.n
        ))
    })?;
    let n_numbers = n.saturating_mul(3);
    // SAFETY: the caller's arrays have the lengths that `paceline.h` states, which is this
    // function's condition.
    let (ids, positions, velocities, forces, names, masses, charges) = unsafe {
        (
            array(atoms.ids, n, "ids")?,
            array(atoms.positions, n_numbers, "positions")?,
            array(atoms.velocities, n_numbers, "velocities")?,
            array(atoms.forces, n_numbers, "forces")?,
            array(atoms.names.cast::<[u8; 8]>(), n, "names")?,
            array(atoms.masses, n, "masses")?,
            array(atoms.charges, n, "charges")?,
        )
    };
    let required = |what: &str| argument(format!("expected {what} of {n} atoms, found NULL"));
    let (ids, positions) = match n {
        0 => (ids.unwrap_or_default(), positions.unwrap_or_default()),
        _ => (
            ids.ok_or_else(|| required("ids"))?,
            positions.ok_or_else(|| required("positions"))?,
        ),
    };
    let atoms = Atoms {
        ids,
        positions: Vectors::F64(positions),
        velocities: velocities.map(Vectors::F64),
        forces: forces.map(Vectors::F64),
        names,
        masses,
        charges,
    };
    Ok((atoms, heading))
}

fn check_volume(cell: &[[f64; 3]; 3]) -> Result<()> {
    let [[ax, ay, az], [bx, by, bz], [cx, cy, cz]] = cell;
    let volume = ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx);
    match volume != 0.0 && volume.is_finite() {
        true => Ok(()),
        false => Err(Failure::Unwritable(format!(
            "expected a cell that has a volume, found {cell:?}"
        ))),
    }
}

/// Return the number of frames in the file, or -1 for NULL.
///
/// # Safety
/// `writer` is NULL or a writer that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_writer_frames(writer: *const WriterHandle) -> i64 {
    // SAFETY: this function's condition.
    match unsafe { writer.as_ref() } {
        Some(handle) => handle.writer.n_frames() as i64,
        None => -1,
    }
}

/// Finish the file; see `include/paceline.h`.
///
/// # Safety
/// `writer` is NULL, or points to NULL or to a writer that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_writer_close(writer: *mut *mut WriterHandle) -> c_int {
    if writer.is_null() || !writer.is_aligned() {
        return guard(None, || {
            Err(argument("expected a pointer to a writer, found NULL"))
        });
    }
    // SAFETY: neither NULL nor unaligned, and the rest is this function's condition.
    let handle = unsafe { writer.read() };
    if handle.is_null() {
        return guard(None, || {
            Err(argument("the writer is closed, or was never open"))
        });
    }
    // SAFETY: a writer of `paceline_writer_open` that is open, used by this thread alone.
    let WriterHandle { comm, writer: open } = unsafe { &mut *handle };
    let code = guard(Some(comm), || open.close(comm).map(|()| None));
    if !open.is_open() {
        // SAFETY: the handle came from `Box::into_raw`. The caller's pointer becomes NULL, so that
        // the handle is freed only once.
        unsafe {
            writer.write(std::ptr::null_mut());
            drop(Box::from_raw(handle));
        }
    }
    code
}
