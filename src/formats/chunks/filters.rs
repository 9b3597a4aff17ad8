//! Stages through which a chunk's bytes went, and the way back.

/// One stage: HDF5's number of it, what the file calls it, and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub number: u32,
    pub name: String,
    pub values: Vec<u64>,
}
