//! Codes E08xx: weights files, and calls of a compiled model.

use super::codes;

codes! {}
