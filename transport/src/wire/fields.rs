//! Places of a header's or message's fields; numbers are big-endian.

use crate::{
    addr::{Gid, PKey, QKey},
    ids::{Qpn, RKey, SrqId},
    psn::{Msn, Psn},
};

/// First byte.
#[derive(Clone, Copy)]
pub(crate) struct At(pub(crate) usize);

/// First byte of a 32-bit word; highest and lowest bit.
#[derive(Clone, Copy)]
pub(crate) struct Bits(pub(crate) usize, pub(crate) u32, pub(crate) u32);

/// Three bytes of a number.
#[derive(Clone, Copy)]
pub(crate) struct Split(pub(crate) [usize; 3]);

/// A field; `put` needs zeroed bytes.
pub(crate) trait Field<P>: Sized {
    fn get(b: &[u8], place: P) -> Self;
    fn put(&self, b: &mut [u8], place: P);
}

/// A header or message of fields, each with its place.
macro_rules! layout {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = $place:expr;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }

        impl Field<At> for $name {
            #[inline]
            fn get(b: &[u8], At(at): At) -> Self {
                let b = &b[at..];
                Self { $($field: Field::get(b, $place),)* }
            }

            #[inline]
            fn put(&self, b: &mut [u8], At(at): At) {
                let b = &mut b[at..];
                $(self.$field.put(b, $place);)*
            }
        }
    };
}

/// Length, parser and encoder of headers.
macro_rules! encoding {
    ($($header:ident $length:literal;)*) => {$(
        impl $header {
            /// Wire length.
            pub const LEN: usize = $length;

            /// Parses the header.
            #[inline]
            #[must_use]
            pub fn parse(b: &[u8; Self::LEN]) -> Self {
                Field::get(b, At(0))
            }

            /// Encodes the header.
            #[inline]
            #[must_use]
            pub fn encode(&self) -> [u8; Self::LEN] {
                let mut b = [0; Self::LEN];
                self.put(&mut b, At(0));
                b
            }
        }
    )*};
}

/// A field that holds another.
macro_rules! newtype {
    ($($type:ident)*) => {$(
        impl Field<At> for $type {
            #[inline]
            fn get(b: &[u8], at: At) -> Self {
                Self(Field::get(b, at))
            }

            #[inline]
            fn put(&self, b: &mut [u8], at: At) {
                self.0.put(b, at);
            }
        }
    )*};
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Field<At> for $number {
            #[inline]
            fn get(b: &[u8], at: At) -> Self {
                Self::from_be_bytes(Field::get(b, at))
            }

            #[inline]
            fn put(&self, b: &mut [u8], at: At) {
                self.to_be_bytes().put(b, at);
            }
        }
    )*};
}

macro_rules! in_bits {
    ($($type:ident: $bits:ident => $of:expr, $value:ident => $to:expr;)*) => {$(
        impl Field<Bits> for $type {
            #[inline]
            fn get(b: &[u8], Bits(at, high, low): Bits) -> Self {
                let $bits = u32::get(b, At(at)) << (31 - high) >> (31 - high + low);
                $of
            }

            #[inline]
            fn put(&self, b: &mut [u8], Bits(at, high, low): Bits) {
                let $value = *self;
                let bits: u32 = $to;
                let bits = bits << (31 - high + low) >> (31 - high);
                (u32::get(b, At(at)) | bits).put(b, At(at));
            }
        }
    )*};
}

pub(crate) use encoding;
pub(crate) use in_bits;
pub(crate) use layout;
pub(crate) use newtype;

numbers!(u8 u16 u32 u64);
newtype!(Gid PKey QKey RKey);

in_bits! {
    u8: bits => bits as Self, value => value.into();
    u32: bits => bits, value => value;
    bool: bits => bits != 0, value => value.into();
    Msn: bits => Self::new(bits), value => value.get();
    Psn: bits => Self::new(bits), value => value.get();
    Qpn: bits => Self::new(bits), value => value.get();
    SrqId: bits => Self::new(bits), value => value.get();
}

impl<const N: usize> Field<At> for [u8; N] {
    #[inline]
    fn get(b: &[u8], At(at): At) -> Self {
        core::array::from_fn(|i| b[at + i])
    }

    #[inline]
    fn put(&self, b: &mut [u8], At(at): At) {
        b[at..at + N].copy_from_slice(self);
    }
}

impl Field<Split> for u32 {
    #[inline]
    fn get(b: &[u8], Split(places): Split) -> Self {
        let [high, middle, low] = places.map(|at| b[at]);
        Self::from_be_bytes([0, high, middle, low])
    }

    #[inline]
    fn put(&self, b: &mut [u8], Split(places): Split) {
        let [_, bytes @ ..] = self.to_be_bytes();
        for (at, byte) in places.into_iter().zip(bytes) {
            b[at] = byte;
        }
    }
}
