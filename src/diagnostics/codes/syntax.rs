//! Codes E01xx: texts that cannot be read as tokens or as a program.

use super::codes;

codes! {}
