//! Values in and out of columns: which type a column has decides how a value is written.

use std::error::Error;
use std::fmt;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::super::text::{Stored, Text};
use crate::copy::value::Value;
use crate::stored::measures;

/// A value on its way into a column.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a>(pub(crate) &'a Value);

/// A value that its column cannot hold.
#[derive(Debug)]
pub(crate) struct Unfit;

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value is not of the type of its column")
    }
}

impl Error for Unfit {}

/// Never shows what it holds: it may be a secret.
impl fmt::Debug for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cell")
    }
}

impl ToSql for Cell<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self.0, ty) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Whole(number), &Type::INT8) => number.to_sql(ty, out),
            // Numbers that only grow have the bits that they have in 32 of them.
            (Value::Whole(number), &Type::INT4) => {
                u32::try_from(*number).map_err(|_| Unfit)?.cast_signed().to_sql(ty, out)
            }
            (Value::Whole(number), &Type::INT2) => {
                i16::try_from(*number).map_err(|_| Unfit)?.to_sql(ty, out)
            }
            (Value::Whole(number @ (0 | 1)), &Type::BOOL) => (*number == 1).to_sql(ty, out),
            (Value::Real(number), &Type::FLOAT8) => number.to_sql(ty, out),
            (Value::Text(text), &Type::TEXT) => Text(text).to_sql(ty, out),
            // Where there are no lists, counts are kept as text.
            (Value::Text(text), &Type::INT8_ARRAY) => {
                measures::decode_text(text).map_err(|_| Unfit)?.to_sql(ty, out)
            }
            (Value::Bytes(bytes), &Type::BYTEA) => bytes.to_sql(ty, out),
            (Value::Whole(_) | Value::Real(_) | Value::Text(_) | Value::Bytes(_), _) => {
                Err(Box::new(Unfit))
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(match *ty {
            Type::INT8 => Self::Whole(i64::from_sql(ty, raw)?),
            Type::INT4 => Self::Whole(i32::from_sql(ty, raw)?.cast_unsigned().into()),
            Type::INT2 => Self::Whole(i16::from_sql(ty, raw)?.into()),
            Type::BOOL => Self::Whole(bool::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Self::Real(f64::from_sql(ty, raw)?),
            Type::TEXT => Self::Text(Stored::from_sql(ty, raw)?.0),
            Type::INT8_ARRAY => Self::Text(measures::text(&Vec::<i64>::from_sql(ty, raw)?)?),
            Type::BYTEA => Self::Bytes(raw.to_vec()),
            _ => return Err(Box::new(Unfit)),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(value: &Value, ty: &Type) -> Option<Value> {
        let mut out = BytesMut::new();
        match Cell(value).to_sql(ty, &mut out).ok()? {
            IsNull::Yes => Value::from_sql_null(ty).ok(),
            IsNull::No => Value::from_sql(ty, &out).ok(),
        }
    }

    #[test]
    fn what_fits_a_column_comes_back_from_it_and_nothing_else_goes_in() {
        let text = |text: &str| Value::Text(text.to_owned());
        let types = [
            Type::INT8,
            Type::INT4,
            Type::INT2,
            Type::BOOL,
            Type::FLOAT8,
            Type::TEXT,
            Type::INT8_ARRAY,
            Type::BYTEA,
            Type::JSON,
        ];
        let cases = [
            (Value::Whole(0), &types[..4]),
            (Value::Whole(2), &types[..3]),
            (Value::Whole(40_000), &types[..2]),
            (Value::Whole(u32::MAX.into()), &types[..2]),
            (Value::Whole(1 << 32), &types[..1]),
            (Value::Whole(i64::MIN), &types[..1]),
            (Value::Real(-0.0), &types[4..5]),
            (text(""), &types[5..6]),
            (text("a\0b\u{ffff}"), &types[5..6]),
            (text("[0,3]"), &types[5..7]),
            (text("[]"), &types[5..7]),
            (text("[0.5]"), &types[5..6]),
            (Value::Bytes(vec![0, 0xff]), &types[7..8]),
            (Value::Null, &types[..]),
        ];
        for (index, (value, fits)) in cases.iter().enumerate() {
            for ty in &types {
                let back = through(value, ty);
                let same = back.as_ref().is_some_and(|back| back == value);
                assert_eq!(same, fits.contains(ty), "case {index} as {ty}");
                assert_eq!(back.is_some(), same, "case {index} as {ty}");
            }
        }
    }
}
