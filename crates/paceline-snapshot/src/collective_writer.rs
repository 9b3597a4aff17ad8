//! Collective writing of one file: choice of the ranks that write and read, agreement of ranks, and
//! the order of their calls.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use paceline_formats::Fields;
use paceline_formats::error::Error;
use paceline_formats::os_calls::path_of_bytes;
use xxhash_rust::xxh3::xxh3_64;

use crate::agreement_and_communicator::agree;
use crate::file::{self, Container, Contents, Heading, Kind, Place, Property, Settings};
use crate::static_properties::{
    StaticProperties, check_values, compare_property, write_properties,
};
use crate::{
    Atoms, Communicator, Cost, Failure, Job, Method, Records, Reduce, Result, check, write,
};

/// Options of a writer. They are the same on all ranks, except that only rank 0's path is used.
#[derive(Debug, Clone)]
pub struct Options {
    /// Format of the file.
    pub kind: Kind,
    /// Options of the file.
    pub settings: Settings,
    /// Method of writing atoms.
    pub method: Method,
    /// Number of writing ranks for the sorted method; by default, see [`choose_writers`].
    pub n_writers: Option<usize>,
    /// Maximum memory of a rank in addition to its atoms, bytes.
    pub buffer: usize,
}

impl Options {
    fn agreed(&self) -> Vec<(&'static str, String)> {
        let settings = &self.settings;
        vec![
            ("format", self.kind.name().into()),
            ("n_atoms", settings.n_atoms.to_string()),
            ("append", settings.append.to_string()),
            ("overwrite", settings.overwrite.to_string()),
            ("sync", settings.sync.to_string()),
            ("n_frames", format!("{:?}", settings.n_frames)),
            ("double", settings.double.to_string()),
            ("title", settings.title.clone()),
            ("dt", format!("{:?}", settings.dt)),
            ("method", format!("{:?}", self.method)),
            ("n_writers", format!("{:?}", self.n_writers)),
            ("buffer", self.buffer.to_string()),
        ]
    }
}

/// Call that ranks make together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    OpenWriter,
    OpenReader,
    Write,
    Close,
    Read,
}

/// Number of files that this process has opened.
static N_OPENED: AtomicU64 = AtomicU64::new(0);

/// Return a number for the next opened file. The number of rank 0 identifies the file on all ranks.
pub(crate) fn next_number() -> u64 {
    N_OPENED.fetch_add(1, Ordering::Relaxed) + 1
}

/// Refuse a call or a file that differs from that of other ranks. `file` is 0 before a file is
/// opened.
pub(crate) fn check_call(comm: &dyn Communicator, call: Call, file: u64) -> Result<()> {
    let mark = (call as u64) | file << 8;
    let mut most = [mark, !mark];
    comm.all_reduce(&mut most, Reduce::Max)?;
    match most[0] == !most[1] {
        true => Ok(()),
        false => Err(Error::Argument(
            "ranks call in another order: expected the same call, for the same file, on all ranks"
                .into(),
        )
        .into()),
    }
}

/// Writer of one file. All ranks call its methods together; each method fails on all ranks or on
/// none.
pub struct Writer {
    options: Options,
    /// Open file; `None` on all ranks except rank 0.
    file: Option<Box<dyn Container>>,
    /// Node of each rank.
    nodes: Vec<u64>,
    writers: Vec<usize>,
    n_frames: u64,
    static_properties: StaticProperties,
    /// Properties that must be compared with those of an existing file.
    to_compare: Vec<Property>,
    /// Identifying number of the file, the same on all ranks.
    number: u64,
    is_open: bool,
}

impl Writer {
    /// Open a file. `options` may be an error of this rank, and `node` identifies the node of this
    /// rank.
    ///
    /// # Errors
    /// The same on all ranks: an error of any rank's options, ranks that disagree, or an error of
    /// [`file::open`].
    pub fn open(comm: &dyn Communicator, options: Result<Options>, node: u64) -> Result<Self> {
        check_call(comm, Call::OpenWriter, 0)?;
        let options = options.and_then(|mut options| {
            let path = &mut options.settings.path;
            *path = absolute(path)?;
            Ok(options)
        });
        let mut options = agree(comm, Path::new(""), options)?;
        check_same(comm, &options.agreed())?;
        let nodes = comm.all_to_all(&vec![node; comm.size()])?;
        let writers = match options.n_writers {
            Some(n) if !(1..=comm.size()).contains(&n) => {
                return Err(Error::Argument(format!(
                    "expected from 1 to {} writers, found {n}",
                    comm.size()
                ))
                .into());
            }
            Some(n) => spread(&nodes, n),
            None => Vec::new(),
        };
        let opened = match comm.rank() {
            0 => file::open(options.kind, options.settings.clone()).map(Some),
            _ => Ok(None),
        };
        let file = agree(comm, &options.settings.path, opened)?;
        let found =
            |file: &dyn Container| [file.n_frames(), file.is_double().into(), next_number()];
        let mut found = file.as_deref().map_or([0; 3], found);
        comm.all_reduce(&mut found, Reduce::Sum)?;
        let [n_frames, is_double, number] = found;
        options.settings.double = is_double != 0;
        let compared = match options.kind {
            _ if n_frames == 0 => &[],
            Kind::History => &[Property::Names][..],
            kind if kind.has_static_properties() => &Property::ALL,
            _ => &[],
        };
        Ok(Writer {
            to_compare: compared.to_vec(),
            static_properties: StaticProperties::default(),
            options,
            file,
            nodes,
            writers,
            n_frames,
            number,
            is_open: true,
        })
    }

    /// Number of frames in the file; for a CONFIG, number of frames written.
    pub fn n_frames(&self) -> u64 {
        self.n_frames
    }

    /// Write a frame, to which this rank contributes some atoms, or an error. Return the cost on
    /// this rank, and a warning on rank 0.
    ///
    /// # Errors
    /// The same on all ranks. The file keeps the earlier frames, and the next frame may follow.
    pub fn write(
        &mut self,
        comm: &dyn Communicator,
        atoms: Result<(Atoms<'_>, Heading)>,
    ) -> Result<(Cost, Option<String>)> {
        let path = self.options.settings.path.clone();
        self.check_call(comm, Call::Write)?;
        let (atoms, heading) = agree(comm, &path, atoms)?;
        let contents = agree_on_frame(comm, &path, &atoms, &heading)?;
        let is_double = self.options.settings.double;
        let records = self.options.kind.records(contents.fields, is_double);
        let records = records.map_err(|reason| refused(&path, &reason))?;
        check(comm, &*records, self.options.settings.n_atoms, &atoms)
            .map_err(|failure| naming(&path, failure))?;
        if self.options.kind.has_static_properties() {
            let own = check_values(&atoms).map_err(|reason| refused(&path, &reason));
            agree(comm, &path, own)?;
            self.static_properties
                .check_unchanged(comm, &path, &atoms)?;
        }
        let written = self.write_checked(comm, &atoms, &contents, &heading, &*records);
        if written.is_err()
            && let Some(file) = &mut self.file
        {
            // If truncating fails too, the file's header still contains the number of complete
            // frames.
            let _ = file.cut_back();
        }
        written
    }

    fn write_checked(
        &mut self,
        comm: &dyn Communicator,
        atoms: &Atoms<'_>,
        contents: &Contents,
        heading: &Heading,
        records: &dyn Records,
    ) -> Result<(Cost, Option<String>)> {
        let path = self.options.settings.path.clone();
        let placed = self
            .file
            .as_mut()
            .map(|file| file.place(*contents, heading));
        let placed = agree(comm, &path, placed.transpose())?;
        let warning = placed.as_ref().and_then(|place| place.warning.clone());
        let (name, starts) = broadcast(comm, placed, records.sections().len())?;
        let given: Vec<_> = match self.options.kind.has_static_properties() {
            true => self.static_properties.found().collect(),
            false => vec![Property::Names],
        };
        self.handle_static_properties(comm, atoms, &given)?;
        if self.writers.is_empty() {
            let size: usize = records.sections().iter().sum();
            let n_bytes = self.options.settings.n_atoms.saturating_mul(size as u64);
            self.writers = choose_writers(&self.nodes, n_bytes);
        }
        let job = Job {
            path: &name,
            records,
            starts: &starts,
            n_atoms: self.options.settings.n_atoms,
            atoms,
            method: self.options.method,
            writers: &self.writers,
            buffer: self.options.buffer,
            sync: self.options.settings.sync,
        };
        let cost = write(comm, &job)?;
        let committed = self.file.as_mut().map_or(Ok(()), |file| file.commit());
        agree(comm, &path, committed)?;
        self.static_properties.keep();
        self.to_compare.retain(|one| !given.contains(one));
        self.n_frames += 1;
        Ok((cost, warning))
    }

    /// Write properties that a new file stores once, or compare them with those of an existing
    /// file.
    fn handle_static_properties(
        &mut self,
        comm: &dyn Communicator,
        atoms: &Atoms<'_>,
        given: &[Property],
    ) -> Result<()> {
        let Settings { path, n_atoms, .. } = &self.options.settings;
        let is_new = self.n_frames == 0 && self.options.kind.has_static_properties();
        if is_new && !given.is_empty() {
            let file = self.file.as_deref_mut();
            write_properties(comm, path, file, *n_atoms, atoms, given)?;
        }
        for &property in self.to_compare.iter().filter(|one| given.contains(one)) {
            let file = self.file.as_deref();
            compare_property(comm, path, file, *n_atoms, atoms, property)?;
        }
        Ok(())
    }

    /// Close the file, together with all other ranks.
    ///
    /// # Errors
    /// The same on all ranks: [`Error::Io`] if the system could not write; the file is closed
    /// nevertheless.
    pub fn close(&mut self, comm: &dyn Communicator) -> Result<()> {
        self.check_call(comm, Call::Close)?;
        self.is_open = false;
        let closed = self.file.take().map_or(Ok(()), |mut file| file.close());
        agree(comm, &self.options.settings.path, closed)
    }

    /// True until all ranks have closed the file together.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Refuse calls in an order that differs from that of other ranks, and calls after closing.
    fn check_call(&self, comm: &dyn Communicator, call: Call) -> Result<()> {
        check_call(comm, call, self.number)?;
        match self.is_open {
            true => Ok(()),
            false => Err(Error::Argument("the writer is closed".into()).into()),
        }
    }
}

/// Make a path absolute, because other ranks may have another working directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    let found = std::path::absolute(path);
    Ok(found.map_err(|source| Error::io(path, "cannot find", source))?)
}

fn refused(path: &Path, reason: &str) -> Failure {
    Failure::Unwritable(format!("{}: {reason}", path.display()))
}

fn naming(path: &Path, failure: Failure) -> Failure {
    match failure {
        Failure::Unwritable(reason) => refused(path, &reason),
        failure => failure,
    }
}

/// Refuse options that differ between ranks.
pub(crate) fn check_same(comm: &dyn Communicator, own: &[(&str, String)]) -> Result<()> {
    let text: Vec<_> = own.iter().map(|(_, value)| value.as_str()).collect();
    let text = text.join("\0");
    let digest = xxh3_64(text.as_bytes());
    let mut most = [digest, !digest];
    comm.all_reduce(&mut most, Reduce::Max)?;
    if most[0] == !most[1] {
        return Ok(());
    }
    let all = comm.all_gather(text.as_bytes())?;
    let all: Vec<Vec<_>> = all
        .iter()
        .map(|one| one.split(|&byte| byte == 0).collect())
        .collect();
    for (k, (name, _)) in own.iter().enumerate() {
        let value = |rank: usize| all[rank].get(k).copied().unwrap_or_default();
        if let Some(rank) = (1..all.len()).find(|&rank| value(rank) != value(0)) {
            return Err(Error::Argument(format!(
                "ranks disagree about {name}: {} on rank 0, {} on rank {rank}",
                value(0).escape_ascii(),
                value(rank).escape_ascii()
            ))
            .into());
        }
    }
    Err(Error::Argument("ranks disagree about the options".into()).into())
}

/// Refuse frames that differ between ranks; return their content. Ranks without atoms may lack
/// fields.
fn agree_on_frame(
    comm: &dyn Communicator,
    path: &Path,
    atoms: &Atoms<'_>,
    heading: &Heading,
) -> Result<Contents> {
    let cell = heading.cell.as_ref().map_or(0, |cell| {
        // The lowest bit is set, so that the digest differs from the 0 of a missing cell.
        xxh3_64(bytemuck::cast_slice(cell.as_flattened())) | 1
    });
    let given = u64::from(atoms.fields().bits()) | u64::from(atoms.names.is_some()) << 8;
    let of_atoms = (!atoms.is_empty()).then_some(given);
    let marks = [
        Some(heading.step as u64),
        Some(heading.time.to_bits()),
        Some(cell),
        of_atoms,
    ];
    let mut most: Vec<u64> = marks
        .iter()
        .flat_map(|mark| mark.map_or([0, 0], |mark| [mark, !mark]))
        .collect();
    comm.all_reduce(&mut most, Reduce::Max)?;
    let (pairs, _) = most.as_chunks::<2>();
    for (what, &[most, left]) in ["step", "time", "cell", "fields or names"]
        .iter()
        .zip(pairs)
    {
        if most != !left && [most, left] != [0, 0] {
            return Err(Error::Argument(format!(
                "{}: ranks disagree about the {what} of a frame",
                path.display()
            ))
            .into());
        }
    }
    let fields = Fields::from_bits((pairs[3][0] & 0xff) as u8);
    Ok(Contents {
        fields: Fields {
            positions: true,
            ..fields
        },
        has_cell: heading.cell.is_some(),
    })
}

/// Send the destination of a frame from rank 0 to all ranks.
fn broadcast(
    comm: &dyn Communicator,
    place: Option<Place>,
    n_sections: usize,
) -> Result<(PathBuf, Vec<u64>)> {
    let mut words = vec![0; n_sections];
    let mut name = Vec::new();
    if let Some(place) = place {
        words.copy_from_slice(&place.starts);
        name = place.path.into_os_string().into_encoded_bytes();
    }
    comm.all_reduce(&mut words, Reduce::Sum)?;
    let names = comm.all_gather(&name)?;
    Ok((path_of_bytes(&names[0]), words))
}

// Choice of the ranks that write and read.

/// Minimum number of bytes per frame and writer. On two cores, 8 writers among 8 ranks took 0.56 of
/// the time of one writer for a CONFIG of 16 MiB. For 4 MiB, both 8 and 4 writers took 0.74 of this
/// time. For 1 MiB and less, the number of writers does not matter.
pub const WRITER_BYTES: u64 = 1 << 20;

/// Choose `n` ranks, spread evenly over the nodes and, on each node, over its ranks. `nodes`
/// identifies the node of each rank.
pub fn spread<T: Eq + Hash>(nodes: &[T], n: usize) -> Vec<usize> {
    let mut numbers: HashMap<&T, usize> = HashMap::new();
    let mut by_node: Vec<Vec<usize>> = Vec::new();
    for (rank, node) in nodes.iter().enumerate() {
        let number = *numbers.entry(node).or_insert_with(|| {
            by_node.push(Vec::new());
            by_node.len() - 1
        });
        by_node[number].push(rank);
    }
    let mut shares = vec![0; by_node.len()];
    let mut left = n.min(nodes.len());
    while left > 0 {
        for (share, ranks) in shares.iter_mut().zip(&by_node) {
            if left > 0 && *share < ranks.len() {
                *share += 1;
                left -= 1;
            }
        }
    }
    let chosen = by_node.iter().zip(shares).flat_map(|(ranks, share)| {
        (0..share).map(move |k| ranks[(k as u128 * ranks.len() as u128 / share as u128) as usize])
    });
    let mut chosen: Vec<usize> = chosen.collect();
    chosen.sort_unstable();
    chosen
}

/// Choose the writing ranks by default, for frames of `n_bytes` bytes.
///
/// For P ranks, their number is the largest power of two that does not exceed min(P, 8 √P). (In
/// DL_POLY_5, this number must also divide P, because all writers serve the same number of ranks.)
/// Small frames have fewer writers, since many small pieces take longer to send and to write than a
/// few large ones.
pub fn choose_writers<T: Eq + Hash>(nodes: &[T], n_bytes: u64) -> Vec<usize> {
    let n_ranks = nodes.len();
    let most = (8.0 * (n_ranks as f64).sqrt()) as usize;
    let by_size = usize::try_from(n_bytes / WRITER_BYTES).unwrap_or(usize::MAX);
    let most = most.min(n_ranks).min(by_size.max(1)).max(1);
    spread(nodes, 1 << most.ilog2())
}

/// Choose the reading ranks. By default, as in DL_POLY_5, their number is the largest power of two
/// that divides the number of ranks P and is at most 2 √P.
///
/// # Errors
/// Sentence about an impossible number of readers.
pub fn choose_readers<T: Eq + Hash>(
    nodes: &[T],
    n: Option<usize>,
) -> std::result::Result<Vec<usize>, String> {
    let n_ranks = nodes.len();
    let n = n.unwrap_or_else(|| {
        let mut n = 1;
        while n_ranks.is_multiple_of(2 * n) && n * n <= n_ranks {
            n *= 2;
        }
        n
    });
    match (1..=n_ranks).contains(&n) {
        true => Ok(spread(nodes, n)),
        false => Err(format!("expected from 1 to {n_ranks} readers, found {n}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_spread_over_nodes() {
        assert_eq!(spread(&["a", "a", "a", "b"], 3), [0, 1, 3]);
        assert_eq!(spread(&["a"; 6], 4), [0, 1, 3, 4]);
        let two = [["one"; 6].as_slice(), &["other"; 2]].concat();
        assert_eq!(spread(&two, 5), [0, 2, 4, 6, 7]);
    }

    #[test]
    fn few_write_small_frames() {
        assert_eq!(choose_writers(&["a"; 16], 3 * WRITER_BYTES), [0, 8]);
        assert_eq!(choose_writers(&["a"; 3], 100), [0]);
        assert_eq!(choose_writers(&["a"; 256], 10_000_000_000).len(), 128);
    }

    #[test]
    fn readers_divide_the_ranks() {
        let n_readers = |n| choose_readers(&vec![0; n], None).unwrap().len();
        assert_eq!([1, 2, 6, 16, 64, 1000].map(n_readers), [1, 2, 2, 8, 16, 8]);
        assert!(choose_readers(&[0; 4], Some(5)).is_err());
        assert!(choose_readers(&[0; 4], Some(0)).is_err());
    }
}
