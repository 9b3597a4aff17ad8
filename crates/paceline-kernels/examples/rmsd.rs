//! RMSD of each frame from the first, after superposition: `cargo run --example rmsd -- md.xtc`.

use paceline_formats::Fields;
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Result;
use paceline_formats::trajectory::Trajectory;
use paceline_kernels::rmsd::{Group, Rmsd};
use paceline_kernels::row_kernel::compute_in_cells;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).expect("the name of a trajectory");
    let trajectory = Trajectory::open(path)?;
    let n_atoms = trajectory.n_atoms();
    let mut reader = trajectory.reader(Atoms::all(n_atoms), Fields::POSITIONS)?;
    let first = reader.read(0..1)?.positions;
    let group = Group {
        columns: &(0..n_atoms).collect::<Vec<_>>(),
        reference: &first.iter().map(|&x| x.into()).collect::<Vec<f64>>(),
        weights: None,
    };
    let task = Rmsd::new(&[group], true)?;
    for frame in 0..trajectory.n_frames() {
        let block = reader.read(frame..frame + 1)?;
        let mut rmsd = [0.0];
        let cells = block.cells.as_flattened();
        compute_in_cells(&task, &block.positions, n_atoms, cells, &mut rmsd)?;
        println!("{:.3} ps  {:.4} Å", block.times[0], rmsd[0]);
    }
    Ok(())
}
