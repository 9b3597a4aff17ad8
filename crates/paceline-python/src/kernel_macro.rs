//! Macro that declares kernels for Python: each kernel is declared once, by its arguments and
//! result.

use pyo3::prelude::*;

use super::errors::Result;
use super::types::{Array, Array2, Array3, ArrayMut, Number};
use numpy::ndarray::Dimension;
use paceline_formats::error;
use paceline_kernels::cells_in_standard_form::{Basis, PlacedFrames};
use paceline_kernels::row_kernel::Frames;

/// Arguments that a kernel reads or writes while the interpreter is released.
pub(super) trait Lend {
    type Lent<'a>
    where
        Self: 'a;

    fn lend(&mut self) -> Self::Lent<'_>;
}

impl<T: Number, D: Dimension> Lend for Array<'_, T, D> {
    type Lent<'a>
        = &'a [T]
    where
        Self: 'a;

    fn lend(&mut self) -> &[T] {
        self
    }
}

impl<T: Number, D: Dimension> Lend for ArrayMut<'_, T, D> {
    type Lent<'a>
        = &'a mut [T]
    where
        Self: 'a;

    fn lend(&mut self) -> &mut [T] {
        self
    }
}

/// Call a kernel with the frames of a block, while the interpreter is released.
pub(super) fn in_frames<T: Send>(
    py: Python<'_>,
    positions: &Array3<'_, f32>,
    cells: &Array2<'_, f64>,
    kernel: impl FnOnce(&Frames<'_>, &PlacedFrames<'_>) -> error::Result<T> + Send,
) -> Result<T> {
    let n_atoms = positions.shape()[1];
    let (positions, cells) = (&**positions, &**cells);
    let computed = py.detach(|| {
        let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Compact)?;
        kernel(&Frames::placed(&placed, positions, n_atoms)?, &placed)
    });
    Ok(computed?)
}

/// Declare a class of kernels.
///
/// The code in `new` and `static` creates the kernel from the arguments of `__new__` or of a static
/// method. The code in `frames` computes the frames of a block while the interpreter is released;
/// it gets the kernel, the converted frames, and their placements. `methods` are copied unchanged.
macro_rules! kernels {
    (
        $(#[$about:meta])*
        $vis:vis struct $Kernel:ident($Task:ty);
        $(new {
            $(#[$new_about:meta])*
            ($($new_argument:ident: $NewArgument:ty),* $(,)?) $new:block
        })?
        $(static {$(
            $(#[$static_about:meta])*
            $static:ident($($static_argument:ident: $StaticArgument:ty),* $(,)?) $make:block
        )*})?
        $(frames {$(
            $(#[$frames_about:meta])*
            $method:ident(
                |$task:ident, $frames:ident, $placed:pat_param|
                $(, $argument:ident: $Argument:ty)*
            ) -> $Answer:ty $compute:block
        )*})?
        $(methods { $($methods:tt)* })?
    ) => {
        $(#[$about])*
        #[pyclass(frozen, module = "paceline._core")]
        $vis struct $Kernel($Task);

        #[pymethods]
        impl $Kernel {
            $(
                $(#[$new_about])*
                #[new]
                #[allow(clippy::too_many_arguments, reason = "named in Python")]
                fn new($($new_argument: $NewArgument),*) -> $crate::errors::Result<Self> {
                    let task = $new;
                    Ok(Self(task?))
                }
            )?
            $($(
                $(#[$static_about])*
                #[staticmethod]
                #[allow(clippy::too_many_arguments, reason = "named in Python")]
                fn $static(
                    $($static_argument: $StaticArgument),*
                ) -> $crate::errors::Result<Self> {
                    let task = $make;
                    Ok(Self(Box::new(task?)))
                }
            )*)?
            $($(
                $(#[$frames_about])*
                fn $method(
                    &self,
                    py: pyo3::Python<'_>,
                    positions: $crate::types::Array3<'_, f32>,
                    cells: $crate::types::Array2<'_, f64>,
                    $(mut $argument: $Argument),*
                ) -> $crate::errors::Result<$Answer> {
                    let $task = &self.0;
                    $(let $argument = $crate::kernel_macro::Lend::lend(&mut $argument);)*
                    $crate::kernel_macro::in_frames(py, &positions, &cells, |$frames, $placed| $compute)
                }
            )*)?
            $($($methods)*)?
        }
    };
}

pub(super) use kernels;
