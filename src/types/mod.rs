//! Names resolved, generics over dimensions bound, shapes inferred: from the AST to the typed AST.
