//! Codes E06xx: entry points, their arguments, and what is bound on the command line.

use super::codes;

codes! {}
