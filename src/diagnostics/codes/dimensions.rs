//! Codes E04xx: dimension expressions, generics and `where` clauses.

use super::codes;

codes! {}
