//! Python bindings, the only crate that uses Python. Each call checks its arguments, borrows
//! slices, releases the interpreter, calls plain Rust, and converts the error.

mod arrays;
mod chunk_encoder;
mod chunks;
mod communicator;
mod encoder;
mod errors;
mod file_format;
mod headers;
mod kernels;
mod part_kernels;
mod reader;
mod record_kernels;
mod row_kernels;
mod snapshot;
mod snapshot_file;
mod snapshot_reading;
mod sources;
mod stub_types;
mod sum_kernels;
mod trajectory;
mod transforms;
mod whole;

use pyo3::pymodule;

#[pymodule]
mod _core {
    use paceline_formats::{disk_cache, reader::chunks, source};

    #[pymodule_export]
    use super::chunk_encoder::{
        ChunkEncoder, cells_of_dimensions, cells_of_vectors, cells_without_noise, lattices,
        pack_chunk, upright_cells,
    };
    #[pymodule_export]
    use super::chunks::{ChunkReader, read_integers};
    #[pymodule_export]
    use super::encoder::Encoder;
    #[pymodule_export]
    use super::file_format::{FileFormat, formats};
    #[pymodule_export]
    use super::headers::{
        amber_factor, dlpoly_config_head, dlpoly_frame_head, dlpoly_history_head, dlpoly_imcon,
        lammps_factors,
    };
    #[pymodule_export]
    use super::part_kernels::{Correlation, PairRmsd, copy_atoms, put_tile};
    #[pymodule_export]
    use super::reader::Reader;
    #[pymodule_export]
    use super::record_kernels::{HydrogenBonds, NearPairs, SelectedAtoms};
    #[pymodule_export]
    use super::row_kernels::{RowKernel, allow_threads, allow_wide, instruction_set, used_threads};
    #[pymodule_export]
    use super::snapshot::{SnapshotCost, SnapshotFormat, check_snapshot, write_snapshot};
    #[pymodule_export]
    use super::snapshot_file::{
        SnapshotFile, cell_dimensions, choose_readers, choose_writers, spread_ranks,
    };
    #[pymodule_export]
    use super::snapshot_reading::{read_snapshot, read_text_head};
    #[cfg(feature = "stores")]
    #[pymodule_export]
    use super::sources::{ObjectBytes, download_object, list_objects, object_version};
    #[pymodule_export]
    use super::sources::{cached_blocks, requests_sent, share_requests, store_estimates};
    #[pymodule_export]
    use super::sum_kernels::{
        ContactMap, Rdf, SitePairs, Superposed, Voxels, accumulate_rows, centered, count_indices,
        merge_covariance, merge_moments,
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
    use super::whole::{Whole, links};

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    /// Size of a block of a cache, bytes.
    #[pymodule_export]
    const CACHE_BLOCK: u64 = disk_cache::BLOCK;
    /// Maximum gap between wanted bytes that is read together with them, bytes.
    #[pymodule_export]
    const GAP_BYTES: u64 = source::GAP;
    /// Maximum size of decompressed chunks that a reader keeps, bytes.
    #[pymodule_export]
    const KEPT_BYTES: usize = chunks::KEPT_BYTES;
    /// Maximum fraction of a deflate-only chunk that is decompressed without the rest.
    #[pymodule_export]
    const BEGINNING_SHARE: f64 = chunks::BEGINNING_SHARE;
    /// Number of bytes that are read beyond the estimated size of a chunk's beginning.
    #[pymodule_export]
    const BEGINNING_SPARE: u64 = chunks::BEGINNING_SPARE;
}
