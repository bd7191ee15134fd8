//! What the language means and how its errors read: syntax, types, programs that are wrong.

mod broken_programs;
mod broken_syntax;
mod explain;
mod facts;
mod fixing;
#[path = "../common/fixtures.rs"]
mod fixtures;
mod foreign;
mod formatting;
#[path = "../common/front.rs"]
mod front;
#[path = "../common/gen_source/mod.rs"]
mod gen_source;
mod habits;
mod mutations;
mod newcomer;
mod reference;
mod semantics;
mod syntax;
mod type_errors;
