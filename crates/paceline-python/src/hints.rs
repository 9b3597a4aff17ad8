//! Types that the stub gives names: protocols and aliases, which `paceline-stubs` writes out.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::inspect::{PyStaticConstant, PyStaticExpr};
use pyo3::prelude::*;
use pyo3::type_hint_identifier;
use pyo3::types::PyString;

/// A text in a type.
pub(super) const fn text(value: &'static str) -> PyStaticExpr {
    PyStaticExpr::Constant {
        value: PyStaticConstant::Str(value),
    }
}

/// Any object.
pub(super) const OBJECT: PyStaticExpr = type_hint_identifier!("builtins", "object");

/// A whole number that Python is called with.
pub(super) const INT: PyStaticExpr = type_hint_identifier!("builtins", "int");

/// The type of a function that Python gives.
macro_rules! callable {
    ([$($argument:expr),* $(,)?] -> $result:expr) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("collections.abc", "Callable"),
            pyo3::inspect::PyStaticExpr::List { elts: &[$($argument),*] },
            $result
        )
    };
}

/// The type of one of some texts.
macro_rules! literal {
    ($($text:literal),* $(,)?) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("typing", "Literal"),
            $($crate::hints::text($text)),*
        )
    };
}

/// The type of objects with such attributes, and with those of another type.
macro_rules! protocol {
    ($name:literal $(($base:expr))?, $doc:expr, $($field:ident: $hint:expr),* $(,)?) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("paceline_stubs", "Protocol"),
            $crate::hints::text($name),
            $crate::hints::text($doc),
            pyo3::inspect::PyStaticExpr::Tuple { elts: &[$($base)?] },
            $(pyo3::inspect::PyStaticExpr::Tuple {
                elts: &[$crate::hints::text(stringify!($field)), $hint],
            }),*
        )
    };
}

/// A type that the stub gives a name.
macro_rules! alias {
    ($name:literal, $hint:expr) => {
        pyo3::type_hint_subscript!(
            pyo3::type_hint_identifier!("paceline_stubs", "Alias"),
            $crate::hints::text($name),
            $hint
        )
    };
}

/// Declares an argument that is converted as another type, and has a narrower type in the stub.
macro_rules! narrowed {
    ($(#[doc = $doc:literal])* $vis:vis struct $Name:ident $(<$lifetime:lifetime>)? ($Inner:ty): $hint:expr) => {
        $(#[doc = $doc])*
        $vis struct $Name $(<$lifetime>)? ($Inner);

        $crate::hints::from_python! {
            [$($lifetime)?] $Name $(<$lifetime>)?, $hint, |object| {
                object.extract().map(Self).map_err(Into::into)
            }
        }
    };
}

/// Declares a struct that is made of an object's attributes, and the protocol of such objects.
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

        $crate::hints::from_python! {
            [$($lifetime)?] $Name $(<$lifetime>)?,
            $crate::hints::protocol!(
                $name,
                concat!($($doc, "\n"),*),
                $($field: <$Field as FromPyObject<'_, '_>>::INPUT_TYPE),*
            ),
            |object| {
                Ok(Self {
                    $($field: $crate::hints::attribute(
                        object,
                        pyo3::intern!(object.py(), stringify!($field)),
                        stringify!($Name),
                    )?),*
                })
            }
        }
    };
}

/// Implements the conversion from Python, with the type that the stub shows.
macro_rules! from_python {
    ([] $Name:ty, $hint:expr, |$object:ident| $body:expr) => {
        $crate::hints::from_python! { ['py] $Name, $hint, |$object| $body }
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

/// Convert an attribute of an object.
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
