//! What each format makes of an atom.

mod arrays;
mod finite;
mod text;

pub use arrays::{Arrays, Float};
pub use text::Text;
