//! Atoms spread over ranks and one ordered file: who sends what to whom, and what is written where.
//!
//! Atoms have ids from 1 to the number of atoms. A frame has sections; in each, every atom has a
//! place by its id: `start + (id - 1) * size`. What stands between the sections is the caller's.

pub mod atoms;
pub mod batch;
pub mod communicator;
pub mod records;

pub use atoms::{Atoms, Vectors};
pub use batch::Batch;
pub use communicator::{Communicator, Reduce};
pub use records::Records;
