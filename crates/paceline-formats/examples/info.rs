//! Print the content of a trajectory: `cargo run --example info -- md.xtc`.

use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Result;
use paceline_formats::trajectory::Trajectory;
use paceline_formats::{Fields, UnitCell};

fn main() -> Result<()> {
    for path in std::env::args().skip(1) {
        let trajectory = Trajectory::open(&path)?;
        let (n_frames, n_atoms) = (trajectory.n_frames(), trajectory.n_atoms());
        println!(
            "{path}: {}, {n_frames} frames of {n_atoms} atoms",
            trajectory.format().name()
        );
        for note in trajectory.index().notes() {
            println!("  {note}");
        }
        let mut reader = trajectory.reader(Atoms::all(n_atoms), Fields::POSITIONS)?;
        let first = reader.read(0..n_frames.min(1))?;
        for (time, cell) in first.times.iter().zip(&first.cells) {
            let cell = UnitCell::of_row(cell).dimensions;
            println!("  begins at {time} ps with the cell {cell:?} (Å, degrees)");
        }
    }
    Ok(())
}
