//! Layout of H5MD files: creation of a file's tree, and check and reading of an existing file.
//!
//! The tree consists of units, time axis, cell and provenance, as the Python package creates it.
//! The order of the calls of HDF5 determines the bytes of the file. This order is the same as in
//! `paceline/hdf5/create_h5md_groups.py` and in h5py. A layout of another writer is refused.

use std::ops::Range;
use std::path::{Path, PathBuf};

use paceline_formats::Fields;
use paceline_formats::os_calls::user_name;

use super::super::{Contents, Heading, Property, Settings};
use super::hdf5_objects::{Object, Result as Hdf5Result, Storage, Type, UNLIMITED};
use super::library::{Hdf5, Id};
use super::{damaged, enter, read_property, unlike, unsupported};
use crate::Result;

/// Versions of H5MD, and of its units module.
const H5MD_VERSION: [i32; 2] = [1, 1];
const UNITS_VERSION: [i32; 2] = [1, 0];
/// Group of the particles, as in MDAnalysis.
pub const GROUP: &str = "particles/trajectory";
pub const EDGES: &str = "particles/trajectory/box/edges/value";
/// Elements of positions, velocities and forces, with their units.
pub const ELEMENTS: [(&str, &str); 3] = [
    ("position", "Angstrom"),
    ("velocity", "Angstrom ps-1"),
    ("force", "kJ mol-1 Angstrom-1"),
];
/// Number of rows in a chunk of steps, times and cells; number of atoms in a chunk of properties.
const ROWS: u64 = 512;
const ATOMS: u64 = 1 << 16;

/// Path, type and unit of a property of atoms.
pub fn property_of(property: Property) -> (&'static str, Type, Option<&'static str>) {
    match property {
        Property::Masses => ("particles/trajectory/mass", Type::Float64, Some("u")),
        Property::Charges => ("particles/trajectory/charge", Type::Float64, Some("e")),
        Property::Names => ("parameters/atoms/name", Type::Name, None),
    }
}

/// Elements that contain these fields, with their units.
pub fn elements(fields: Fields) -> impl DoubleEndedIterator<Item = (&'static str, &'static str)> {
    let there = [fields.positions, fields.velocities, fields.forces];
    let all = ELEMENTS.into_iter().zip(there);
    all.filter(|(_, there)| *there).map(|(element, _)| element)
}

/// Path of an element's values.
pub fn values_path(element: &str) -> String {
    format!("{GROUP}/{element}/value")
}

/// Create all objects that precede the first frame.
pub fn create(hdf5: &Hdf5, file: Id, settings: &Settings, contents: &Contents) -> Hdf5Result<()> {
    let kind = match settings.double {
        true => Type::Float64,
        false => Type::Float32,
    };
    for (element, _) in elements(contents.fields) {
        drop(hdf5.create_group(file, &format!("{GROUP}/{element}"))?);
        let path = values_path(element);
        let shape = [settings.n_frames.unwrap_or(0), settings.n_atoms, 3];
        drop(match settings.n_frames {
            Some(_) => hdf5.create_dataset(file, &path, kind, &shape, None, Storage::Allocated)?,
            None => hdf5.create_dataset(
                file,
                &path,
                kind,
                &shape,
                Some(&[UNLIMITED, settings.n_atoms, 3]),
                Storage::AllocatedChunks(&[1, settings.n_atoms, 3]),
            )?,
        });
    }
    for (element, unit) in elements(contents.fields) {
        hdf5.object(file, &values_path(element))?
            .set_text("unit", unit)?;
    }
    create_axes(hdf5, file, contents)?;
    describe(hdf5, file, settings)
}

/// Create the time axis and the cell, and link the time axis to all elements.
fn create_axes(hdf5: &Hdf5, file: Id, contents: &Contents) -> Hdf5Result<()> {
    let position = format!("{GROUP}/position");
    let (step, time) = (format!("{position}/step"), format!("{position}/time"));
    drop(create_series(hdf5, file, &step, Type::Int64, &[])?);
    create_series(hdf5, file, &time, Type::Float64, &[])?.set_text("unit", "ps")?;
    let cell = hdf5.create_group(file, &format!("{GROUP}/box"))?;
    cell.set_number("dimension", 3)?;
    let boundary = if contents.has_cell {
        "periodic"
    } else {
        "none"
    };
    cell.set_three("boundary", boundary)?;
    let mut others: Vec<String> = elements(contents.fields)
        .skip(1)
        .map(|(element, _)| format!("{GROUP}/{element}"))
        .collect();
    if contents.has_cell {
        let edges = format!("{GROUP}/box/edges");
        drop(hdf5.create_group(file, &edges)?);
        create_series(hdf5, file, EDGES, Type::Float64, &[3, 3])?.set_text("unit", "Angstrom")?;
        others.push(edges);
    }
    for other in others {
        hdf5.object(file, &step)?
            .link(file, &format!("{other}/step"))?;
        hdf5.object(file, &time)?
            .link(file, &format!("{other}/time"))?;
    }
    Ok(())
}

/// Create an empty dataset that will have one row per frame.
fn create_series<'h>(
    hdf5: &'h Hdf5,
    file: Id,
    path: &str,
    kind: Type,
    row: &[u64],
) -> Hdf5Result<Object<'h>> {
    let shape = |first| [&[first], row].concat();
    let limits = shape(UNLIMITED);
    let chunk = shape(ROWS);
    hdf5.create_dataset(
        file,
        path,
        kind,
        &shape(0),
        Some(&limits),
        Storage::Chunks(&chunk),
    )
}

/// Write the author, the program, and the origin of the data.
fn describe(hdf5: &Hdf5, file: Id, settings: &Settings) -> Hdf5Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let group = hdf5.create_group(file, "h5md")?;
    group.set_version("version", H5MD_VERSION)?;
    hdf5.create_group(file, "h5md/author")?
        .set_text("name", &user_name())?;
    let creator = hdf5.create_group(file, "h5md/creator")?;
    creator.set_text("name", "paceline")?;
    creator.set_text("version", version)?;
    hdf5.create_group(file, "h5md/modules/units")?
        .set_version("version", UNITS_VERSION)?;
    drop(hdf5.create_group(file, "parameters/atoms")?);
    drop(hdf5.create_group(file, "parameters/origin")?);
    let program = format!("paceline {version}");
    let command = command_line();
    let origin = [
        ("program", program.as_str()),
        ("command", &command),
        ("call", "paceline_writer_open"),
        ("title", &settings.title),
    ];
    for (name, text) in origin {
        if name != "title" || !text.is_empty() {
            hdf5.create_text(file, &format!("parameters/origin/{name}"), text)?;
        }
    }
    Ok(())
}

/// Command line of this process, quoted for a shell. The path of the program is left out.
fn command_line() -> String {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let program = std::path::Path::new(&program)
        .file_name()
        .unwrap_or_default()
        .to_owned();
    let quoted = |word: std::ffi::OsString| {
        let word = word.to_string_lossy().into_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word,
            false => format!("'{}'", word.replace('\'', "'\"'\"'")),
        }
    };
    let all: Vec<String> = std::iter::once(program).chain(words).map(quoted).collect();
    all.join(" ").trim().to_owned()
}

/// Append step, time and cell of frame `row` to their datasets.
pub fn append_frame(hdf5: &Hdf5, file: Id, row: u64, heading: &Heading) -> Hdf5Result<()> {
    let open = |path: &str| hdf5.object(file, path);
    let put = |dataset: &Object<'_>, kind, bytes: &[u8]| {
        dataset.set_rows(row + 1)?;
        dataset.write_rows(row, 1, kind, bytes)
    };
    let step = open(&format!("{GROUP}/position/step"))?;
    let time = open(&format!("{GROUP}/position/time"))?;
    let edges = heading.cell.is_some().then(|| open(EDGES)).transpose()?;
    put(&step, Type::Int64, &heading.step.to_le_bytes())?;
    put(&time, Type::Float64, &heading.time.to_le_bytes())?;
    // HDF5 allocates the space of a dataset when the dataset is closed, and h5py closes datasets in
    // this order.
    match (edges, heading.cell) {
        (Some(edges), Some(cell)) => {
            let bytes = cell.as_flattened().iter().flat_map(|x| x.to_le_bytes());
            put(&edges, Type::Float64, &bytes.collect::<Vec<_>>())?;
            drop(time);
            drop(step);
        }
        _ => {
            drop(step);
            drop(time);
        }
    }
    Ok(())
}

/// Paths of the datasets with one row per frame, in the order in which rows must be added.
pub fn frame_datasets(contents: &Contents) -> Vec<String> {
    let position = format!("{GROUP}/position");
    let mut paths = vec![format!("{position}/time"), format!("{position}/step")];
    paths.extend(contents.has_cell.then(|| EDGES.to_owned()));
    paths.extend(
        elements(contents.fields)
            .rev()
            .map(|(element, _)| values_path(element)),
    );
    paths
}

/// Create the dataset of a property of atoms.
pub fn create_property(hdf5: &Hdf5, file: Id, property: Property, n_atoms: u64) -> Hdf5Result<()> {
    let (path, kind, unit) = property_of(property);
    let chunk = [n_atoms.min(ATOMS)];
    let storage = Storage::Packed(&chunk);
    let dataset = hdf5.create_dataset(file, path, kind, &[n_atoms], None, storage)?;
    match unit {
        Some(unit) => dataset.set_text("unit", unit),
        None => Ok(()),
    }
}

/// Contents, sizes and last step of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Inspected {
    pub contents: Contents,
    pub n_atoms: u64,
    pub n_frames: u64,
    pub last_step: Option<i64>,
    /// True if positions, velocities and forces have 64 bits.
    pub is_double: bool,
}

/// Find the contents and sizes of an open file, and check its layout.
///
/// # Errors
/// [`Error::Unsupported`](crate::Error::Unsupported) for the layout of another writer, and
/// [`Error::Damaged`](crate::Error::Damaged).
pub fn inspect(hdf5: &Hdf5, id: Id, path: &Path) -> Result<Inspected> {
    match found(hdf5, id) {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(what)) => Err(unlike(path, &what)),
        Err(refusal) => Err(damaged(path, &refusal)),
    }
}

/// Return the layout, or a description of how it differs from paceline's.
fn found(hdf5: &Hdf5, id: Id) -> Hdf5Result<std::result::Result<Inspected, String>> {
    let contains = |name: &str| hdf5.contains(id, &format!("{GROUP}/{name}"));
    if !hdf5.contains(id, GROUP)? || !contains("position/value")? {
        return Ok(Err(format!("has no {GROUP}/position/value")));
    }
    let [positions, velocities, forces] = ELEMENTS.map(|(element, _)| contains(element));
    let contents = Contents {
        fields: Fields {
            positions: positions?,
            velocities: velocities?,
            forces: forces?,
        },
        has_cell: contains("box/edges")?,
    };
    let positions = hdf5.object(id, &values_path("position"))?;
    let mut inspected = Inspected {
        contents,
        n_atoms: positions.shape()?.now.get(1).copied().unwrap_or(0),
        n_frames: 0,
        last_step: None,
        is_double: positions.has_type(Type::Float64)?,
    };
    let step = hdf5.object(id, &format!("{GROUP}/position/step"))?;
    for (element, unit) in elements(contents.fields) {
        if let Some(what) = other_layout(hdf5, id, &inspected, element, unit, &step)? {
            return Ok(Err(format!("has {what}")));
        }
    }
    let mut counts = Vec::new();
    for name in frame_datasets(&contents) {
        let dataset = hdf5.object(id, &name)?;
        let shape = dataset.shape()?.now;
        let row: &[u64] = match name.as_str() {
            EDGES => &[3, 3],
            _ if name.ends_with("/value") => &[inspected.n_atoms, 3],
            _ => &[],
        };
        match shape.split_first() {
            _ if !dataset.is_in(id)? => return Ok(Err(format!("has {name} in another file"))),
            Some((&n_rows, of_a_row)) if of_a_row == row => {
                counts.push((name, n_rows, dataset.chunk()?.is_some()));
            }
            _ => return Ok(Err(format!("has {name} of shape {shape:?}"))),
        }
    }
    let n_frames = counts.iter().map(|&(_, n, _)| n).min().unwrap_or(0);
    for (name, n_rows, has_chunks) in &counts {
        // A killed program may have counted a frame in one dataset and not in another.
        if *has_chunks && *n_rows > n_frames + 1 {
            return Ok(Err(format!(
                "has {n_rows} rows in {name}, and {n_frames} elsewhere"
            )));
        }
    }
    inspected.n_frames = n_frames;
    if let Some(last) = n_frames.checked_sub(1) {
        let bytes = step.read_rows(last, 1, Type::Int64)?;
        inspected.last_step = bytes.first_chunk().map(|&bytes| i64::from_le_bytes(bytes));
    }
    Ok(Ok(inspected))
}

/// Describe how an element differs from one that paceline writes; `None` if it does not differ.
fn other_layout(
    hdf5: &Hdf5,
    id: Id,
    inspected: &Inspected,
    element: &str,
    unit: &str,
    step: &Object<'_>,
) -> Hdf5Result<Option<String>> {
    let name = values_path(element);
    let values = hdf5.object(id, &name)?;
    let (shape, n_atoms) = (values.shape()?.now, inspected.n_atoms);
    let kind = match inspected.is_double {
        true => Type::Float64,
        false => Type::Float32,
    };
    let of_a_frame = shape.len() == 3 && shape[1..] == [n_atoms, 3];
    let in_frames = match values.chunk()? {
        Some(chunk) => chunk == [1, n_atoms, 3] && values.is_allocated_early()?,
        None => true,
    };
    let own = hdf5.object(id, &format!("{GROUP}/{element}/step"))?;
    Ok(if !of_a_frame {
        Some(format!("{name} of shape {shape:?}"))
    } else if !in_frames {
        Some(format!("{name} in chunks other than a frame"))
    } else if !values.has_type(kind)? {
        Some(format!("{name} of another type"))
    } else if values.is_encoded()? {
        Some(format!("{name} compressed, or in another file"))
    } else if values.text("unit")?.as_deref() != Some(unit) {
        Some(format!("{name} in another unit than {unit}"))
    } else if own.address()? != step.address()? {
        Some(format!("steps of its own for {element}"))
    } else {
        None
    })
}

/// H5MD file that is open for reading.
pub(crate) struct H5mdReader {
    path: PathBuf,
    id: Id,
    inspected: Inspected,
    properties: [bool; 3],
}

/// Location of the numbers of a frame: for each existing element, the offset of atom 1 in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FrameArrays {
    pub starts: [u64; 3],
    pub heading: Heading,
}

impl H5mdReader {
    /// Open a file for reading.
    pub fn open(path: &Path) -> Result<Self> {
        let hdf5 = enter(path)?;
        let refuse = |refusal| damaged(path, &refusal);
        let id = hdf5.open_to_read(path).map_err(refuse)?;
        let mut reader = H5mdReader {
            path: path.to_owned(),
            id,
            inspected: Inspected::default(),
            properties: [false; 3],
        };
        let found = inspect(&hdf5, id, path).and_then(|inspected| {
            let stored = |property| hdf5.contains(id, property_of(property).0);
            let mut properties = [false; 3];
            for (there, property) in properties.iter_mut().zip(Property::ALL) {
                *there = stored(property).map_err(|refusal| damaged(path, &refusal))?;
            }
            Ok((inspected, properties))
        });
        // The lock is released first, because after an error `reader` is dropped, and closing its
        // file needs the lock.
        drop(hdf5);
        (reader.inspected, reader.properties) = found?;
        Ok(reader)
    }

    /// Number of atoms.
    pub fn n_atoms(&self) -> u64 {
        self.inspected.n_atoms
    }

    /// Number of complete frames.
    pub fn n_frames(&self) -> u64 {
        self.inspected.n_frames
    }

    /// Content of all frames.
    pub fn contents(&self) -> Contents {
        self.inspected.contents
    }

    /// True if positions, velocities and forces have 64 bits.
    pub fn is_double(&self) -> bool {
        self.inspected.is_double
    }

    /// True for each of [`Property::ALL`] that is stored.
    pub fn properties(&self) -> [bool; 3] {
        self.properties
    }

    /// Return the location and the heading of a frame.
    pub fn frame(&self, number: u64) -> Result<FrameArrays> {
        let hdf5 = enter(&self.path)?;
        let found = self.found(&hdf5, number);
        let found = found.map_err(|refusal| damaged(&self.path, &refusal))?;
        found.ok_or_else(|| unsupported(&self.path, format!("frame {number} has no values")))
    }

    fn found(&self, hdf5: &Hdf5, number: u64) -> Hdf5Result<Option<FrameArrays>> {
        let width = if self.is_double() { 24 } else { 12 };
        let mut starts = [0; 3];
        let fields = self.contents().fields;
        let there = [fields.positions, fields.velocities, fields.forces];
        let places = starts.iter_mut().zip(there).filter(|(_, there)| *there);
        for ((element, _), (start, _)) in elements(fields).zip(places) {
            let values = hdf5.object(self.id, &values_path(element))?;
            let found = match values.chunk()? {
                Some(_) => values.chunk_offset(&[number, 0, 0])?,
                None => values.offset().and_then(|first| {
                    let frame = self.n_atoms().checked_mul(width)?;
                    first.checked_add(number.checked_mul(frame)?)
                }),
            };
            match found {
                Some(offset) => *start = offset,
                None => return Ok(None),
            }
        }
        let word = |dataset: &Object<'_>, kind| {
            let bytes = dataset.read_rows(number, 1, kind)?;
            Ok(bytes.first_chunk().copied().unwrap_or_default())
        };
        let series = |name: &str| hdf5.object(self.id, &format!("{GROUP}/position/{name}"));
        let cell = match self.contents().has_cell {
            false => None,
            true => {
                let edges = hdf5.object(self.id, EDGES)?;
                let bytes = edges.read_rows(number, 1, Type::Float64)?;
                let (numbers, _) = bytes.as_chunks::<8>();
                let number = |k: usize| numbers.get(k).map_or(0.0, |x| f64::from_le_bytes(*x));
                Some(std::array::from_fn(|i| {
                    std::array::from_fn(|j| number(3 * i + j))
                }))
            }
        };
        let heading = Heading {
            step: i64::from_le_bytes(word(&series("step")?, Type::Int64)?),
            time: f64::from_le_bytes(word(&series("time")?, Type::Float64)?),
            cell,
        };
        Ok(Some(FrameArrays { starts, heading }))
    }

    /// Return a property of a range of atoms, 8 bytes per atom. Atoms are counted from 0.
    pub fn property(&self, property: Property, atoms: Range<u64>) -> Result<Vec<u8>> {
        let hdf5 = enter(&self.path)?;
        let read = read_property(&hdf5, self.id, property, self.n_atoms(), atoms);
        let read = read.map_err(|refusal| damaged(&self.path, &refusal))?;
        read.ok_or_else(|| unsupported(&self.path, "it changed while it was read"))
    }
}

impl Drop for H5mdReader {
    fn drop(&mut self) {
        if !std::thread::panicking()
            && let Ok(hdf5) = Hdf5::enter()
        {
            hdf5.close_file(self.id);
        }
    }
}
