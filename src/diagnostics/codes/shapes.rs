//! Codes E03xx: shapes and element types that do not fit.

use super::codes;

codes! {}
