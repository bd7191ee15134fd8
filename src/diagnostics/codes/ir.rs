//! Codes E07xx: texts of the graph IR and of the tile IR.

use super::codes;

codes! {}
