//! Places of a message's fields; numbers are big-endian.

use super::{about::About, private_data::PrivateData};
use crate::{
    addr::{Gid, PKey, QKey},
    cm::service::ServiceId,
    ids::Qpn,
    psn::Psn,
};

/// First byte.
#[derive(Clone, Copy)]
pub(super) struct At(pub(super) usize);

/// First byte of a 32-bit word; highest and lowest bit.
#[derive(Clone, Copy)]
pub(super) struct Bits(pub(super) usize, pub(super) u32, pub(super) u32);

/// Three bytes of a number.
#[derive(Clone, Copy)]
pub(super) struct Split(pub(super) [usize; 3]);

/// A field; `put` needs zeroed bytes.
pub(super) trait Field<P>: Sized {
    fn get(b: &[u8], place: P) -> Self;
    fn put(&self, b: &mut [u8], place: P);
}

/// A message of fields, each with its place.
macro_rules! layout {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = $place:expr;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }

        impl Field<At> for $name {
            fn get(b: &[u8], At(at): At) -> Self {
                let b = &b[at..];
                Self { $($field: Field::get(b, $place),)* }
            }

            fn put(&self, b: &mut [u8], At(at): At) {
                let b = &mut b[at..];
                $(self.$field.put(b, $place);)*
            }
        }
    };
}

/// A field that holds another.
macro_rules! newtype {
    ($($type:ident)*) => {$(
        impl Field<At> for $type {
            fn get(b: &[u8], at: At) -> Self {
                Self(Field::get(b, at))
            }

            fn put(&self, b: &mut [u8], at: At) {
                self.0.put(b, at);
            }
        }
    )*};
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Field<At> for $number {
            fn get(b: &[u8], at: At) -> Self {
                Self::from_be_bytes(Field::get(b, at))
            }

            fn put(&self, b: &mut [u8], at: At) {
                self.to_be_bytes().put(b, at);
            }
        }
    )*};
}

macro_rules! in_bits {
    ($($type:ident: $bits:ident => $of:expr, $value:ident => $to:expr;)*) => {$(
        impl Field<Bits> for $type {
            fn get(b: &[u8], Bits(at, high, low): Bits) -> Self {
                let $bits = u32::get(b, At(at)) << (31 - high) >> (31 - high + low);
                $of
            }

            fn put(&self, b: &mut [u8], Bits(at, high, low): Bits) {
                let $value = *self;
                let bits: u32 = $to;
                let bits = bits << (31 - high + low) >> (31 - high);
                (u32::get(b, At(at)) | bits).put(b, At(at));
            }
        }
    )*};
}

pub(super) use layout;
pub(super) use newtype;

numbers!(u8 u16 u32 u64);
newtype!(Gid PKey QKey ServiceId);

in_bits! {
    u8: bits => bits as Self, value => value.into();
    u32: bits => bits, value => value;
    bool: bits => bits != 0, value => value.into();
    About: bits => Self::of(bits), value => value as u32;
    Psn: bits => Self::new(bits), value => value.get();
    Qpn: bits => Self::new(bits), value => value.get();
}

impl<const N: usize> Field<At> for [u8; N] {
    fn get(b: &[u8], At(at): At) -> Self {
        core::array::from_fn(|i| b[at + i])
    }

    fn put(&self, b: &mut [u8], At(at): At) {
        b[at..at + N].copy_from_slice(self);
    }
}

impl<const N: usize> Field<At> for PrivateData<N> {
    fn get(b: &[u8], at: At) -> Self {
        Self(Field::get(b, at))
    }

    fn put(&self, b: &mut [u8], at: At) {
        self.0.put(b, at);
    }
}

impl Field<Split> for u32 {
    fn get(b: &[u8], Split(places): Split) -> Self {
        let [high, middle, low] = places.map(|at| b[at]);
        Self::from_be_bytes([0, high, middle, low])
    }

    fn put(&self, b: &mut [u8], Split(places): Split) {
        let [_, bytes @ ..] = self.to_be_bytes();
        for (at, byte) in places.into_iter().zip(bytes) {
            b[at] = byte;
        }
    }
}
