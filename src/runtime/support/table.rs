//! The exported interface: one function, which returns the table of all others.
//!
//! In: nothing. Out: [`Functions`], in the order of [`FUNCTIONS`]. If functions were exported by
//! name, a program linked with several models would bind them all to the first library. So a
//! program gets the table of this library through a symbol that the linker made from the model's
//! name (`link.rs`), or by `dlsym` in this library alone.

use crate::abi::{ABI_VERSION, FUNCTIONS, Functions};
use crate::api::*;
use crate::entry::*;
use crate::introspect::*;
use crate::python::{attnc_python_call, attnc_python_capsule};
use crate::states::*;

/// Defines the table and the names of its functions.
macro_rules! table {
    ($($function:ident)*) => {
        static TABLE: Functions =
            Functions { abi_version: ABI_VERSION, functions: [$($function as *const ()),*] };
        const NAMES: [&str; FUNCTIONS.len()] = [$(stringify!($function)),*];
    };
}

table! {
    attnc_status_text
    attnc_info
    attnc_model_name
    attnc_target
    attnc_variant_count
    attnc_variant_name
    attnc_entry_count
    attnc_entry_index
    attnc_entry_name
    attnc_entry_signature
    attnc_entry_doc
    attnc_dimension_count
    attnc_dimension_name
    attnc_argument_count
    attnc_argument_name
    attnc_argument_type
    attnc_result_count
    attnc_result_type
    attnc_tap_count
    attnc_tap_name
    attnc_tap_cost
    attnc_parameter_count
    attnc_parameter_name
    attnc_model_open
    attnc_model_close
    attnc_model_error
    attnc_model_copy_error
    attnc_model_variant
    attnc_unused_weight_count
    attnc_unused_weight
    attnc_converted_weight_count
    attnc_converted_weight
    attnc_session_open
    attnc_session_close
    attnc_session_reset
    attnc_session_error
    attnc_session_copy_error
    attnc_session_poll
    attnc_session_profile
    attnc_launch_count
    attnc_launch_nanoseconds
    attnc_launch_points
    attnc_result_shape
    attnc_call
    attnc_call_owned
    attnc_call_taps
    attnc_taps_count
    attnc_taps_name
    attnc_taps_tensor
    attnc_taps_written
    attnc_taps_close
    attnc_result_shape_raw
    attnc_call_raw
    attnc_python_call
    attnc_model_open_on
    attnc_model_device
    attnc_model_device_note
    attnc_session_stream
    attnc_session_use_stream
    attnc_call_on_device
    attnc_copy_to_host
    attnc_python_capsule
    attnc_state_count
    attnc_state_index
    attnc_state_name
    attnc_state_type
    attnc_state_shape
    attnc_session_state
    attnc_session_set_state
}

// Each function is at the index of its name.
const _: () = {
    let mut i = 0;
    while i < NAMES.len() {
        let (own, told) = (NAMES[i].as_bytes(), FUNCTIONS[i].as_bytes());
        let prefix = b"attnc_";
        assert!(own.len() == prefix.len() + told.len());
        let mut j = 0;
        while j < told.len() {
            assert!(own[prefix.len() + j] == told[j]);
            j += 1;
        }
        i += 1;
    }
};

/// The function table of this library.
#[unsafe(no_mangle)]
pub extern "C" fn attnc_library() -> *const Functions {
    &raw const TABLE
}
