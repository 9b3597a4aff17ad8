//! Python bindings, the only crate that uses Python. Each call checks its arguments, borrows
//! slices, releases the interpreter, calls plain Rust, and converts the error.

mod all_frames_kernels;
mod byte_sources;
mod communicator_from_python;
mod encoders_and_cell_vectors;
mod errors;
mod formats_and_units;
mod kernel_macro;
mod per_frame_kernels;
mod ragged_kernels;
mod readers;
mod snapshot_reading;
mod snapshot_writing;
mod trajectory;
mod transforms;
mod types;

use pyo3::pymodule;

#[pymodule]
mod _core {
    use paceline_formats::{block_reader::hdf5_datasets, disk_cache, source};

    #[pymodule_export]
    use super::all_frames_kernels::{
        ContactMap, Correlation, PairRmsd, Rdf, SitePairs, Superposed, Voxels, accumulate_rows,
        centered, copy_atoms, count_indices, merge_covariance, merge_moments, put_tile,
    };
    #[cfg(feature = "stores")]
    #[pymodule_export]
    use super::byte_sources::{ObjectBytes, download_object, list_objects, object_version};
    #[pymodule_export]
    use super::byte_sources::{cached_blocks, requests_sent, share_requests, store_estimates};
    #[pymodule_export]
    use super::encoders_and_cell_vectors::{
        ChunkEncoder, Encoder, cells_of_dimensions, cells_of_vectors, cells_without_noise,
        lattices, pack_chunk, upright_cells,
    };
    #[pymodule_export]
    use super::formats_and_units::{
        FileFormat, amber_factor, dlpoly_config_head, dlpoly_frame_head, dlpoly_history_head,
        dlpoly_imcon, formats, lammps_factors,
    };
    #[pymodule_export]
    use super::per_frame_kernels::{
        RowKernel, allow_threads, allow_wide, instruction_set, used_threads,
    };
    #[pymodule_export]
    use super::ragged_kernels::{HydrogenBonds, NearPairs, SelectedAtoms, Whole, links};
    #[pymodule_export]
    use super::readers::{ChunkReader, Reader, read_integers};
    #[pymodule_export]
    use super::snapshot_reading::{read_snapshot, read_text_head};
    #[pymodule_export]
    use super::snapshot_writing::{
        SnapshotCost, SnapshotFile, SnapshotFormat, cell_dimensions, check_snapshot,
        choose_readers, choose_writers, spread_ranks, write_snapshot,
    };
    #[pymodule_export]
    use super::trajectory::{
        Trajectory, detect_format, fingerprint_of, identity_of, samples_of, verify,
    };
    #[pymodule_export]
    use super::transforms::{
        NoJump, NoJumpFollower, Transform, centers, fragments, molecule_steps, move_molecules,
    };

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    /// Size of a block of the disk cache, bytes.
    #[pymodule_export]
    const CACHE_BLOCK: u64 = disk_cache::BLOCK;
    /// Maximum gap between wanted bytes that is read together with them, bytes.
    #[pymodule_export]
    const GAP_BYTES: u64 = source::GAP;
    /// Maximum total size of the decoded chunks that a reader stores for each dataset, bytes.
    #[pymodule_export]
    const KEPT_BYTES: usize = hdf5_datasets::KEPT_BYTES;
    /// Largest beginning of a deflate-only chunk that is decompressed without the rest, as a
    /// fraction of the chunk.
    #[pymodule_export]
    const BEGINNING_SHARE: f64 = hdf5_datasets::BEGINNING_SHARE;
    /// Number of bytes that are read beyond the estimated compressed size of a chunk's beginning.
    #[pymodule_export]
    const BEGINNING_SPARE: u64 = hdf5_datasets::BEGINNING_SPARE;
}
