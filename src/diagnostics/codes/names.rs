//! Codes E02xx: names that are not known, known twice, or used as what they are not.

use super::codes;

codes! {}
