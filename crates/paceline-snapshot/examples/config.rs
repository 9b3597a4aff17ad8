//! Write a CONFIG of two atoms in the order of their ids: `cargo run --example config`.

use paceline_formats::Fields;
use paceline_formats::dlpoly::encode::{Moment, config_head};
use paceline_snapshot::atom_encoding::Text;
use paceline_snapshot::{Atoms, Job, Method, SingleRank, Vectors, check, write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join("CONFIG");
    let moment = Moment {
        step: 0,
        dt: 0.001,
        time: 0.0,
        cell: None,
    };
    let head = config_head("Salt", 0, 2, &moment)?;
    std::fs::write(&path, &head)?;
    let atoms = Atoms {
        ids: &[2, 1],
        positions: Vectors::F64(&[2.8, 0.0, 0.0, 0.0, 0.0, 0.0]),
        velocities: None,
        forces: None,
        names: Some(&[*b"Cl      ", *b"Na      "]),
        masses: None,
        charges: None,
    };
    let records = Text::new(false, Fields::POSITIONS)?;
    check(&SingleRank, &records, 2, &atoms)?;
    let job = Job {
        path: &path,
        records: &records,
        starts: &[head.len() as u64],
        n_atoms: 2,
        atoms: &atoms,
        method: Method::Sorted,
        writers: &[0],
        buffer: 1 << 20,
        sync: false,
    };
    write(&SingleRank, &job)?;
    print!("{}", std::fs::read_to_string(&path)?);
    Ok(())
}
