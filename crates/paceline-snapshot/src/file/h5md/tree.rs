//! Tree of an H5MD file: units, time axis, cell and provenance, as the Python package creates it.
//!
//! The order of the calls of HDF5 determines the bytes of the file. This order is the same as in
//! `paceline/hdf5/h5md_groups.py` and in h5py.

use paceline_formats::Fields;
use paceline_formats::os_calls::user_name;

use super::super::{Contents, Heading, Property, Settings};
use super::library::{Hdf5, Id};
use super::objects::{Object, Result, Storage, Type, UNLIMITED};

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
pub fn create(hdf5: &Hdf5, file: Id, settings: &Settings, contents: &Contents) -> Result<()> {
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
fn create_axes(hdf5: &Hdf5, file: Id, contents: &Contents) -> Result<()> {
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
) -> Result<Object<'h>> {
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

/// Write author, program and origin.
fn describe(hdf5: &Hdf5, file: Id, settings: &Settings) -> Result<()> {
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
pub fn append_frame(hdf5: &Hdf5, file: Id, row: u64, heading: &Heading) -> Result<()> {
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
    // HDF5 allocates the space of a dataset when it is closed, and h5py closes datasets in this
    // order.
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
pub fn create_property(hdf5: &Hdf5, file: Id, property: Property, n_atoms: u64) -> Result<()> {
    let (path, kind, unit) = property_of(property);
    let chunk = [n_atoms.min(ATOMS)];
    let storage = Storage::Packed(&chunk);
    let dataset = hdf5.create_dataset(file, path, kind, &[n_atoms], None, storage)?;
    match unit {
        Some(unit) => dataset.set_text("unit", unit),
        None => Ok(()),
    }
}
