//! Types of arguments and results, as `paceline-stubs` writes them in the stub: NumPy arrays, named
//! protocols, and aliases.

use std::ops::{Deref, DerefMut};

use numpy::ndarray::{Dimension, Ix1, Ix2, Ix3, IxDyn};
use numpy::{
    AsSliceError, Element, IntoPyArray, PyArrayMethods, PyReadonlyArray, PyReadwriteArray,
    PyUntypedArrayMethods,
};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::inspect::{PyStaticConstant, PyStaticExpr};
use pyo3::prelude::*;
use pyo3::types::{PyNone, PyString};
use pyo3::{PyTypeInfo, type_hint_identifier, type_hint_subscript, type_hint_union};

/// Type of the numbers in an array.
pub(super) trait Number: Element + Copy {
    /// Name of the type in NumPy.
    const NAME: &'static str;

    /// Type of an array of these numbers.
    const ARRAY: PyStaticExpr = type_hint_subscript!(
        type_hint_identifier!("numpy.typing", "NDArray"),
        type_hint_identifier!("numpy", Self::NAME)
    );
}

macro_rules! numbers {
    ($($Number:ty: $name:literal),* $(,)?) => {
        $(impl Number for $Number {
            const NAME: &'static str = $name;
        })*
    };
}

numbers! {
    bool: "bool_", u8: "uint8", i16: "int16", i32: "int32", u32: "uint32", i64: "int64",
    u64: "uint64", f32: "float32", f64: "float64",
}

/// Declare an argument type: a C-contiguous array.
macro_rules! argument {
    ($(#[doc = $doc:literal])* $Array:ident, $Borrowed:ident, $as_slice:ident) => {
        $(#[doc = $doc])*
        pub(super) struct $Array<'py, T: Number, D: Dimension>($Borrowed<'py, T, D>);

        impl<'a, 'py, T: Number + 'a, D: Dimension + 'a> FromPyObject<'a, 'py> for $Array<'py, T, D> {
            type Error = PyErr;

            const INPUT_TYPE: PyStaticExpr = T::ARRAY;

            #[allow(unused_mut, reason = "only slices that change need it")]
            fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
                let mut array: $Borrowed<'py, T, D> = object.extract()?;
                if !array.is_c_contiguous() {
                    return Err(AsSliceError.into());
                }
                array.$as_slice()?;
                Ok(Self(array))
            }
        }

        impl<T: Number, D: Dimension> $Array<'_, T, D> {
            /// Return the lengths of the axes.
            pub(super) fn shape(&self) -> &[usize] {
                self.0.shape()
            }
        }

        impl<T: Number, D: Dimension> Deref for $Array<'_, T, D> {
            type Target = [T];

            fn deref(&self) -> &[T] {
                self.0.as_slice().expect("arrays are contiguous when they are extracted")
            }
        }
    };
}

argument! {
    /// Array that is only read.
    Array, PyReadonlyArray, as_slice
}

argument! {
    /// Array that is changed.
    ArrayMut, PyReadwriteArray, as_slice_mut
}

impl<T: Number, D: Dimension> DerefMut for ArrayMut<'_, T, D> {
    fn deref_mut(&mut self) -> &mut [T] {
        let numbers = self.0.as_slice_mut();
        numbers.expect("arrays are contiguous when they are extracted")
    }
}

pub(super) type Array1<'py, T> = Array<'py, T, Ix1>;
pub(super) type Array2<'py, T> = Array<'py, T, Ix2>;
pub(super) type Array3<'py, T> = Array<'py, T, Ix3>;
pub(super) type ArrayMut1<'py, T> = ArrayMut<'py, T, Ix1>;
pub(super) type ArrayMut2<'py, T> = ArrayMut<'py, T, Ix2>;
pub(super) type ArrayMut3<'py, T> = ArrayMut<'py, T, Ix3>;
pub(super) type ArrayMutDyn<'py, T> = ArrayMut<'py, T, IxDyn>;

/// Indices or counts: an int64 array without negative numbers.
pub(super) struct Indices(pub(super) Vec<usize>);

impl FromPyObject<'_, '_> for Indices {
    type Error = PyErr;

    const INPUT_TYPE: PyStaticExpr = i64::ARRAY;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let array: Array1<'_, i64> = object.extract()?;
        indices(&array).map(Self)
    }
}

impl Deref for Indices {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

pub(super) fn indices(values: &[i64]) -> PyResult<Vec<usize>> {
    let index = |&value: &i64| {
        usize::try_from(value).map_err(|_| {
            PyValueError::new_err(format!("expected an index of at least 0, found {value}"))
        })
    };
    values.iter().map(index).collect()
}

pub(super) fn numbers(values: &[i64]) -> PyResult<Vec<u32>> {
    let number = |&value: &i64| {
        u32::try_from(value).map_err(|_| {
            PyValueError::new_err(format!(
                "expected a number from 0 to 2³² − 1, found {value}"
            ))
        })
    };
    values.iter().map(number).collect()
}

/// Columns of the analysis's atoms in a block; None if the block contains exactly these atoms, in
/// order.
pub(super) struct Columns(Option<Vec<usize>>);

impl FromPyObject<'_, '_> for Columns {
    type Error = PyErr;

    const INPUT_TYPE: PyStaticExpr = type_hint_union!(i64::ARRAY, PyNone::TYPE_HINT);

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let columns: Option<Indices> = object.extract()?;
        Ok(Self(columns.map(|columns| columns.0)))
    }
}

impl Columns {
    /// Return all columns. Their number must be `n_atoms`.
    pub(super) fn all(self, n_atoms: usize) -> PyResult<Vec<usize>> {
        match self.0 {
            None => Ok((0..n_atoms).collect()),
            Some(columns) if columns.len() == n_atoms => Ok(columns),
            Some(columns) => Err(PyValueError::new_err(format!(
                "expected {n_atoms} columns, found {}",
                columns.len()
            ))),
        }
    }

    /// Return the columns of some atoms, given by their indices among the analysis's atoms.
    pub(super) fn of<T: TryFrom<usize>>(&self, atoms: &[usize]) -> PyResult<Vec<T>> {
        let column_of = |&atom: &usize| {
            let column = match &self.0 {
                None => Some(atom),
                Some(columns) => columns.get(atom).copied(),
            };
            column
                .and_then(|column| T::try_from(column).ok())
                .ok_or_else(|| PyValueError::new_err(format!("atom {atom} is out of range")))
        };
        atoms.iter().map(column_of).collect()
    }
}

/// Result: a C-contiguous array of numbers.
pub(super) struct NewArray<T, const N: usize> {
    values: Vec<T>,
    shape: [usize; N],
}

impl<T, const N: usize> NewArray<T, N> {
    pub(super) fn new(values: Vec<T>, shape: [usize; N]) -> Self {
        NewArray { values, shape }
    }
}

impl<T> From<Vec<T>> for NewArray<T, 1> {
    fn from(values: Vec<T>) -> Self {
        let shape = [values.len()];
        NewArray { values, shape }
    }
}

impl<'py, T: Number, const N: usize> IntoPyObject<'py> for NewArray<T, N> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    const OUTPUT_TYPE: PyStaticExpr = T::ARRAY;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let array = self.values.into_pyarray(py);
        match N {
            1 => Ok(array.into_any()),
            _ => Ok(array.reshape(&self.shape[..])?.into_any()),
        }
    }
}

/// Return a string literal for use in a type.
pub(super) const fn text(value: &'static str) -> PyStaticExpr {
    PyStaticExpr::Constant {
        value: PyStaticConstant::Str(value),
    }
}

/// Type of any object.
pub(super) const OBJECT: PyStaticExpr = type_hint_identifier!("builtins", "object");

/// Type of an integer that is passed to Python.
pub(super) const INT: PyStaticExpr = type_hint_identifier!("builtins", "int");

/// Return the type of a callable.
macro_rules! callable {
    ([$($argument:expr),* $(,)?] -> $result:expr) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("collections.abc", "Callable"),
            pyo3::inspect::PyStaticExpr::List { elts: &[$($argument),*] },
            $result
        )
    };
}

/// Return the type of a string with one of these values.
macro_rules! literal {
    ($($text:literal),* $(,)?) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("typing", "Literal"),
            $($crate::types::text($text)),*
        )
    };
}

/// Declare a protocol: objects with these attributes, and optionally those of another protocol.
macro_rules! protocol {
    ($name:literal $(($base:expr))?, $doc:expr, $($field:ident: $hint:expr),* $(,)?) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("paceline_stubs", "Protocol"),
            $crate::types::text($name),
            $crate::types::text($doc),
            pyo3::inspect::PyStaticExpr::Tuple { elts: &[$($base)?] },
            $(pyo3::inspect::PyStaticExpr::Tuple {
                elts: &[$crate::types::text(stringify!($field)), $hint],
            }),*
        )
    };
}

/// Declare a named type of the stub.
macro_rules! alias {
    ($name:literal, $hint:expr) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("paceline_stubs", "Alias"),
            $crate::types::text($name),
            $hint
        )
    };
}

/// Declare an argument that is converted like another type, and has a narrower type in the stub.
macro_rules! narrowed {
    ($(#[doc = $doc:literal])* $vis:vis struct $Name:ident $(<$lifetime:lifetime>)? ($Inner:ty): $hint:expr) => {
        $(#[doc = $doc])*
        $vis struct $Name $(<$lifetime>)? ($Inner);

        $crate::types::from_python! {
            [$($lifetime)?] $Name $(<$lifetime>)?, $hint, |object| {
                object.extract().map(Self).map_err(Into::into)
            }
        }
    };
}

/// Declare a struct that is read from the attributes of an object, and the protocol of such
/// objects.
macro_rules! attributes {
    (
        #[name = $name:literal]
        $(#[doc = $doc:literal])*
        $vis:vis struct $Name:ident $(<$lifetime:lifetime>)? {
            $($(#[doc = $about:literal])* $visible:vis $field:ident: $Field:ty),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        $vis struct $Name $(<$lifetime>)? {
            $($(#[doc = $about])* $visible $field: $Field),*
        }

        $crate::types::from_python! {
            [$($lifetime)?] $Name $(<$lifetime>)?,
            $crate::types::protocol!(
                $name,
                concat!($($doc, "\n"),*),
                $($field: <$Field as FromPyObject<'_, '_>>::INPUT_TYPE),*
            ),
            |object| {
                Ok(Self {
                    $($field: $crate::types::attribute(
                        object,
                        pyo3::intern!(object.py(), stringify!($field)),
                        stringify!($Name),
                    )?),*
                })
            }
        }
    };
}

/// Implement the conversion from Python, with the type in the stub.
macro_rules! from_python {
    ([] $Name:ty, $hint:expr, |$object:ident| $body:expr) => {
        $crate::types::from_python! { ['py] $Name, $hint, |$object| $body }
    };
    ([$lifetime:lifetime] $Name:ty, $hint:expr, |$object:ident| $body:expr) => {
        impl<'a, $lifetime> FromPyObject<'a, $lifetime> for $Name {
            type Error = PyErr;

            const INPUT_TYPE: pyo3::inspect::PyStaticExpr = $hint;

            fn extract($object: Borrowed<'a, $lifetime, PyAny>) -> PyResult<Self> {
                $body
            }
        }
    };
}

/// Read and convert an attribute of an object.
pub(super) fn attribute<'py, T>(
    object: Borrowed<'_, 'py, PyAny>,
    name: &Bound<'py, PyString>,
    of: &str,
) -> PyResult<T>
where
    T: FromPyObjectOwned<'py>,
{
    let value = object.getattr(name)?;
    value.extract().map_err(|error: T::Error| {
        let cause: PyErr = error.into();
        let error = PyTypeError::new_err(format!("failed to extract field {of}.{name}"));
        error.set_cause(object.py(), Some(cause));
        error
    })
}

pub(super) use {alias, attributes, callable, from_python, literal, narrowed, protocol};
