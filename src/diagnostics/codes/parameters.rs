//! Codes E05xx: fields of layers: parameters, sub-layers, arrays of layers, state.

use super::codes;

codes! {}
