//! Named types of the stub: protocols and aliases that `paceline-stubs` writes.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::inspect::{PyStaticConstant, PyStaticExpr};
use pyo3::prelude::*;
use pyo3::type_hint_identifier;
use pyo3::types::PyString;

/// Return a string literal for use in a type.
pub(super) const fn text(value: &'static str) -> PyStaticExpr {
    PyStaticExpr::Constant {
        value: PyStaticConstant::Str(value),
    }
}

/// Any object.
pub(super) const OBJECT: PyStaticExpr = type_hint_identifier!("builtins", "object");

/// Integer that is passed to Python.
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
            $($crate::stub_types::text($text)),*
        )
    };
}

/// Declare a protocol: objects with these attributes, and optionally those of another protocol.
macro_rules! protocol {
    ($name:literal $(($base:expr))?, $doc:expr, $($field:ident: $hint:expr),* $(,)?) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("paceline_stubs", "Protocol"),
            $crate::stub_types::text($name),
            $crate::stub_types::text($doc),
            pyo3::inspect::PyStaticExpr::Tuple { elts: &[$($base)?] },
            $(pyo3::inspect::PyStaticExpr::Tuple {
                elts: &[$crate::stub_types::text(stringify!($field)), $hint],
            }),*
        )
    };
}

/// Declare a named type of the stub.
macro_rules! alias {
    ($name:literal, $hint:expr) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("paceline_stubs", "Alias"),
            $crate::stub_types::text($name),
            $hint
        )
    };
}

/// Declare an argument that is converted like another type, and has a narrower type in the stub.
macro_rules! narrowed {
    ($(#[doc = $doc:literal])* $vis:vis struct $Name:ident $(<$lifetime:lifetime>)? ($Inner:ty): $hint:expr) => {
        $(#[doc = $doc])*
        $vis struct $Name $(<$lifetime>)? ($Inner);

        $crate::stub_types::from_python! {
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

        $crate::stub_types::from_python! {
            [$($lifetime)?] $Name $(<$lifetime>)?,
            $crate::stub_types::protocol!(
                $name,
                concat!($($doc, "\n"),*),
                $($field: <$Field as FromPyObject<'_, '_>>::INPUT_TYPE),*
            ),
            |object| {
                Ok(Self {
                    $($field: $crate::stub_types::attribute(
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
        $crate::stub_types::from_python! { ['py] $Name, $hint, |$object| $body }
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
