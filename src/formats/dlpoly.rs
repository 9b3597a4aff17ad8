//! DL_POLY's CONFIG, REVCON and HISTORY.

pub mod encode;
