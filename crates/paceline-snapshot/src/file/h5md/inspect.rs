//! Check of the layout of an existing H5MD file. A layout of another writer is refused.

use std::path::Path;

use paceline_formats::Fields;

use super::super::Contents;
use super::library::{Hdf5, Id};
use super::objects::{self, Object, Type};
use super::tree::{EDGES, ELEMENTS, GROUP, elements, frame_datasets, values_path};
use super::{damaged, unlike};
use crate::Result;

/// Contents and sizes of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Inspected {
    pub contents: Contents,
    pub n_atoms: u64,
    pub n_frames: u64,
    pub last_step: Option<i64>,
    /// True for numbers of 64 bits.
    pub is_double: bool,
}

/// Inspect an open file.
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
fn found(hdf5: &Hdf5, id: Id) -> objects::Result<std::result::Result<Inspected, String>> {
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

/// Describe how an element differs from paceline's.
fn other_layout(
    hdf5: &Hdf5,
    id: Id,
    inspected: &Inspected,
    element: &str,
    unit: &str,
    step: &Object<'_>,
) -> objects::Result<Option<String>> {
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
