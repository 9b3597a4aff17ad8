//! Names, masses and charges, which a file stores once for all frames.

use std::path::Path;

use crate::agreement_and_communicator::{agree, mixed};
use crate::atom_encoding::is_word;
use crate::file::{Container, Property};
use crate::{Atoms, Communicator, Failure, Reduce, Result};

/// Number of atoms whose properties are sent or compared together.
const BATCH: u64 = 1 << 16;

/// Value of a property: the bytes of a number, or a name.
type Value = [u8; 8];

/// Return a property of all atoms of a rank, if it was given.
fn values<'a>(atoms: &Atoms<'a>, property: Property) -> Option<&'a [Value]> {
    let bytes = |numbers: &'a [f64]| bytemuck::cast_slice(numbers);
    match property {
        Property::Masses => atoms.masses.map(bytes),
        Property::Charges => atoms.charges.map(bytes),
        Property::Names => atoms.names,
    }
}

/// Return a value in its stored form: names are padded with zeros.
fn stored_form(property: Property, value: &Value) -> Value {
    let mut stored = *value;
    if property == Property::Names {
        let len = trimmed(value).len();
        stored[len..].fill(0);
    }
    stored
}

/// Refuse names that are not words, and numbers that are not finite.
pub fn check_values(atoms: &Atoms<'_>) -> std::result::Result<(), String> {
    if let Some(names) = atoms.names
        && let Some(wrong) = names.iter().position(|name| !is_word(name))
    {
        return Err(format!(
            "atom {}: expected a name of 1 to 8 printable ASCII characters without blanks, found \
             '{}'",
            atoms.ids[wrong],
            names[wrong].escape_ascii()
        ));
    }
    for (one, numbers) in [("mass", atoms.masses), ("charge", atoms.charges)] {
        let numbers = numbers.unwrap_or_default();
        if let Some(wrong) = numbers.iter().position(|number| !number.is_finite()) {
            return Err(format!(
                "atom {}: expected a finite {one}, found {}",
                atoms.ids[wrong], numbers[wrong]
            ));
        }
    }
    Ok(())
}

/// Check that properties do not change from frame to frame.
///
/// Digests are compared. They do not depend on the order of atoms or on their distribution over
/// ranks.
#[derive(Debug, Default)]
pub struct StaticProperties {
    kept: [Option<u64>; 3],
    found: [Option<u64>; 3],
}

impl StaticProperties {
    /// Refuse properties that differ from those of earlier frames. The call is collective; a rank
    /// without atoms may lack properties.
    pub fn check_unchanged(
        &mut self,
        comm: &dyn Communicator,
        path: &Path,
        atoms: &Atoms<'_>,
    ) -> Result<()> {
        let given = Property::ALL.map(|property| values(atoms, property));
        let mut present = given.map(|values| u64::from(values.is_some() && !atoms.is_empty()));
        comm.all_reduce(&mut present, Reduce::Max)?;
        let mut sums = [0_u64; 3];
        for ((sum, values), property) in sums.iter_mut().zip(given).zip(Property::ALL) {
            let pairs = atoms.ids.iter().zip(values.unwrap_or_default());
            *sum = pairs.fold(0, |sum: u64, (&id, value)| {
                let bits = u64::from_ne_bytes(stored_form(property, value));
                sum.wrapping_add(mixed(mixed(id as u64).wrapping_add(bits)))
            });
        }
        comm.all_reduce(&mut sums, Reduce::Sum)?;
        self.found = std::array::from_fn(|k| (present[k] != 0).then_some(sums[k]));
        for (k, property) in Property::ALL.into_iter().enumerate() {
            if let (Some(kept), Some(found)) = (self.kept[k], self.found[k])
                && kept != found
            {
                return Err(Failure::Unwritable(format!(
                    "{}: expected the {} of earlier frames, which the file stores only once, found \
                     others",
                    path.display(),
                    property.name()
                )));
            }
        }
        Ok(())
    }

    /// Properties that any rank had in the last check.
    pub fn found(&self) -> impl Iterator<Item = Property> {
        let all = Property::ALL.into_iter().zip(self.found);
        all.filter_map(|(property, found)| found.map(|_| property))
    }

    /// Store the digests of the last check for later checks. Call this after the frame was written.
    pub fn keep(&mut self) {
        for (kept, found) in self.kept.iter_mut().zip(self.found) {
            *kept = found.or(*kept);
        }
    }
}

/// Write properties of all atoms to the first rank's new file, in batches of consecutive ids.
pub fn write_properties(
    comm: &dyn Communicator,
    path: &Path,
    mut file: Option<&mut (dyn Container + 'static)>,
    n_atoms: u64,
    atoms: &Atoms<'_>,
    properties: &[Property],
) -> Result<()> {
    let width = 8 * (1 + properties.len());
    for first in (0..n_atoms).step_by(BATCH as usize) {
        let last = n_atoms.min(first + BATCH);
        let mut sent = Vec::new();
        for (at, &id) in atoms.ids.iter().enumerate() {
            if (first..last).contains(&(id as u64).wrapping_sub(1)) {
                sent.extend((id as u64 - 1 - first).to_ne_bytes());
                for &property in properties {
                    let value = values(atoms, property).map_or([0; 8], |values| values[at]);
                    sent.extend(stored_form(property, &value));
                }
            }
        }
        let mut counts = vec![0; comm.size()];
        counts[0] = sent.len() as u64;
        let came = comm.all_to_all(&counts)?;
        let mut received = vec![0; came.iter().sum::<u64>() as usize];
        comm.exchange(&sent, &counts, &mut received, &came)?;
        let put = match &mut file {
            Some(file) => put_batch(&mut **file, first..last, properties, &received, width),
            None => Ok(()),
        };
        agree(comm, path, put)?;
    }
    Ok(())
}

/// Write a batch of records, each of which consists of an index and the values of an atom.
fn put_batch(
    file: &mut dyn Container,
    atoms: std::ops::Range<u64>,
    properties: &[Property],
    records: &[u8],
    width: usize,
) -> Result<()> {
    let n = (atoms.end - atoms.start) as usize;
    for (k, &property) in properties.iter().enumerate() {
        let mut column = vec![0; 8 * n];
        let (column_values, _) = column.as_chunks_mut::<8>();
        for record in records.chunks_exact(width) {
            let (words, _) = record.as_chunks::<8>();
            let at = u64::from_ne_bytes(words[0]) as usize;
            if let Some(value) = column_values.get_mut(at) {
                *value = words[1 + k];
            }
        }
        file.put_property(property, atoms.start, &column)?;
    }
    Ok(())
}

/// Refuse atoms if a property differs from that in an existing file.
pub fn compare_property(
    comm: &dyn Communicator,
    path: &Path,
    file: Option<&(dyn Container + 'static)>,
    n_atoms: u64,
    atoms: &Atoms<'_>,
    property: Property,
) -> Result<()> {
    for first in (0..n_atoms).step_by(BATCH as usize) {
        let range = first..n_atoms.min(first + BATCH);
        let stored = file.map(|file| file.stored(property, range.clone()));
        let stored = agree(comm, path, stored.transpose())?.flatten();
        // Only rank 0 has values, and a value has as many bytes as a number. The sum over ranks is
        // therefore the value of rank 0. The last number states whether there are values.
        let mut words = vec![0_u64; (range.end - range.start) as usize + 1];
        for (word, value) in words
            .iter_mut()
            .zip(stored.iter().flat_map(|s| s.as_chunks().0))
        {
            *word = u64::from_ne_bytes(*value);
        }
        if let Some(last) = words.last_mut() {
            *last = stored.is_some().into();
        }
        comm.all_reduce(&mut words, Reduce::Sum)?;
        if words.pop() == Some(0) {
            return Ok(());
        }
        let expected: Vec<Value> = words.into_iter().map(u64::to_ne_bytes).collect();
        let given = values(atoms, property).unwrap_or_default();
        let wrong = atoms.ids.iter().zip(given).find_map(|(id, value)| {
            let place = (*id as u64).wrapping_sub(1 + first) as usize;
            let expected = expected.get(place)?;
            (!are_equal(property, expected, value)).then_some((id, expected, value))
        });
        let own = wrong.map_or(Ok(()), |(id, expected, found)| {
            Err(Failure::Unwritable(format!(
                "{} belongs to another system: expected atom {id} to {} {}, found {}",
                path.display(),
                match property {
                    Property::Names => "be".to_owned(),
                    property => format!("have, as its {},", property.name()),
                },
                written(property, expected),
                written(property, found)
            )))
        });
        agree(comm, path, own)?;
    }
    Ok(())
}

fn are_equal(property: Property, one: &Value, other: &Value) -> bool {
    match property {
        Property::Names => trimmed(one) == trimmed(other),
        _ => f64::from_ne_bytes(*one) == f64::from_ne_bytes(*other),
    }
}

/// Format a value for a message.
fn written(property: Property, value: &Value) -> String {
    match property {
        Property::Names => format!("'{}'", trimmed(value).escape_ascii()),
        _ => f64::from_ne_bytes(*value).to_string(),
    }
}

fn trimmed(name: &Value) -> &[u8] {
    let end = name.iter().rposition(|&byte| byte != 0 && byte != b' ');
    &name[..end.map_or(0, |end| end + 1)]
}
