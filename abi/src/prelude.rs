//! Names that the functions of the C interface share.

pub(crate) use std::ffi::{c_char, c_int, c_uint, c_void};

pub(crate) use crate::{
    call::{self, CallId, calls, operations, waiting_calls},
    errno::{Errno, Result, refuse_if},
    export::export,
    layout::{consts::*, *},
    objects::object::Object,
    rule::Rule,
};
