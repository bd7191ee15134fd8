//! attnc, an educational ahead-of-time compiler for attention graphs.
//!
//! # The way through
//!
//! ```text
//! model.attn
//!   tokens        syntax/           logos
//!   AST           syntax/           LALRPOP, grammar/attn.lalrpop; every error of the file at once
//!   typed AST     types/            names resolved, shapes inferred with symbolic dimensions (shape/)
//!   graph IR      ir/               SSA in CFG form, tensors as values (made by lowering/graph/)
//!     passes      passes/           simplify, CSE, DCE, LICM, canonical forms, fusion
//!   tile IR       tile/             kernels and plans (made by lowering/tile/), unscheduled: one text for every target
//!     simplify    tile/simplify.rs  merges repeated operations on indices and scalars, folds constants
//!     schedule    tile/schedule.rs  which kernels compute an attention, what products read (panels, packed before all calls or
//!                                   just before) and in which tiles, which operations share a loop nest, where each tile lives
//!   vector IR     vector/           what a `run` does, vector by vector (made by lowering/vector/), and the elementary
//!                                   functions (exp, sin, pow), each written once for all widths and back ends
//!   code          codegen/cpu/      Cranelift, 128-bit vectors; wide/: leaf functions of 256 and 512 bits, our own
//!                 wide/machine/     code of the leaves of runs over virtual registers, which `--emit mir` shows
//!                 codegen/ptx/      PTX for GPUs (ptx/), from kernels that are scheduled for one
//!                 codegen/llvm/     the kernels through LLVM instead (cargo feature `llvm`, `--backend llvm`)
//!   object        runtime/          linked with the support library -> model.so, model.h, model.py
//! ```
//!
//! [`driver`] is that list as one straight-line function; [`cli`] turns a command line into its
//! options. All input and output happens there, in [`files`] and in [`runtime`]; everything between
//! is a function from values to values.
//!
//! # The map
//!
//! | folder | what lives there | what it imports | what it must not know |
//! |---|---|---|---|
//! | `driver` | the commands of `attnc`, each one straight-line function; sessions and dumps | `bench`, `cli`, `codegen`, `diagnostics`, `files`, `format`, `import`, `interface`, `ir`, `irtext`, `lowering::graph`, `lowering::tile`, `lsp`, `observe`, `passes`, `play`, `ptx`, `random`, `record`, `reference`, `report`, `runtime`, `shape`, `simulated`, `source`, `ssa`, `stack`, `svg`, `syntax`, `table`, `tensor`, `threads`, `tile`, `tokenizer`, `types`, `vector` | how a stage works |
//! | `cli` | the command line: options, their values and help | `diagnostics`, `shape::Elem` | any stage |
//! | `syntax` | tokens, layout of lines, grammar, AST, their dumps | `diagnostics`, `shape::Elem`, `source` | types, shapes |
//! | `format` | the formatter: a program in, the same program in the style of the examples out | `diagnostics`, `source`, `syntax` | types |
//! | `lsp` | the language server: requests of an editor to answers | `diagnostics`, `files`, `format`, `reference`, `source`, `stack`, `syntax`, `types` | IR |
//! | `types` | the type checker: AST in, typed AST out; `std.nn`, written in attn | `diagnostics`, `scalar`, `shape`, `source`, `stack`, `syntax`, `table` | IR |
//! | `lowering::graph` | typed AST and bindings of dimensions to graph IR; everything is inlined | `diagnostics`, `interface`, `ir`, `scalar`, `shape`, `source`, `stack`, `types` | passes, instruction sets |
//! | `passes` | rewrites of graph IR, the pipeline, remarks | `diagnostics`, `ir`, `observe`, `scalar`, `shape`, `source`, `ssa` | files, back ends |
//! | `lowering::tile` | regions to kernels, functions to plans, movement to views | `ir`, `scalar`, `shape`, `tile` | vectors, machine code |
//! | `lowering::vector` | runs of scheduled kernels to routines of vector IR: loops, tails, reductions | `scalar`, `shape`, `ssa`, `tile`, `vector` | instructions, back ends |
//! | `ir` | graph IR: table of operations, shape rules, text, verifier, interpreter | `cfg`, `diagnostics`, `interface`, `interp`, `irtext`, `scalar`, `shape`, `source`, `ssa`, `table`, `tensor` | back ends |
//! | `tile` | tile IR: table of operations, text, verifier, interpreter, schedule | `cfg`, `diagnostics`, `interface`, `interp`, `irtext`, `observe`, `scalar`, `shape`, `source`, `ssa`, `table`, `tensor` | graph IR, Cranelift |
//! | `vector` | vector IR: routines with control flow and memory, the elementary functions (`functions/*.vec`); text, verifier, interpreter | `diagnostics`, `irtext`, `scalar`, `shape`, `source`, `ssa`, `table` | tiles, instructions |
//! | `ptx` | PTX for GPUs: kernels of typed instructions, a table of all legal opcodes; text, verifier | `diagnostics` | tiles, launches |
//! | `ptx::sim` | a simulator of GPUs: executes the text of kernels, and reports races, missing fences and the like | `ptx`, `random` | tiles, plans, who made the text |
//! | `codegen` | scheduled tile IR to an object; the interface of a module to a descriptor | `cfg`, `interface`, `irtext`, `lowering::vector`, `panics`, `ptx`, `runtime`, `scalar`, `shape`, `source`, `ssa`, `threads`, `tile`, `vector` | how anything was decided |
//! | `simulated` | launches of plans on the simulator of GPUs; pictures of what a block does over time | `codegen::ptx`, `ptx`, `shape`, `svg`, `tile` | how anything was scheduled, how PTX is made |
//! | `runtime` | descriptor, support library, linking, header, Python, loading | `files`, `shape`, `tensor` | IR, Cranelift's functions |
//! | `bench` | what `attnc bench` shows, and the measured ceilings of the machine and its GPU | `ptx`, `random`, `runtime`, `shape`, `svg`, `tensor` | compiling, calling |
//! | `import` | configurations of the Hugging Face hub to programs; a template for each kind of model |  | files, stages |
//! | `record` | the record of a compilation (`--emit record`): all stages as data, and the relation between their lines |  | any stage |
//! | `reference` | the language reference: entries as text (`language.txt`), the standard library by signature | `diagnostics`, `shape`, `source`, `syntax`, `types` | bodies, IR |
//! | `report` | the page that shows a record (`--emit html`) |  | any stage |
//! | `play` | a local page to write and run programs: its server, its scripts, the editor | `files`, `runtime`, `tensor` | any stage: it runs attnc as a child |
//! | `diagnostics` | messages as data, suggested fixes, codes with explanations, rendering | `source` | any stage |
//! | `source` | source texts, spans, and the locations that instructions carry |  | tokens, trees, IR |
//! | `shape` | element types, dimensions in canonical form, facts about them |  | source, IR, machines |
//! | `scalar` | literal elements; what `exp`, `add`, `lt` mean for one element | `shape::Elem`, `table` | tensors |
//! | `tensor` | host tensors: an element type, extents, bytes | `shape` | where they come from |
//! | `interface` | declarations of a module: parameters, entry points, taps | `diagnostics`, `shape`, `source` | bodies, operations |
//! | `interp` | what both interpreters share: parameters, limits, errors | `source`, `tensor` | either IR |
//! | `ssa` | the SSA body of the IRs: blocks, values, edits, structure and dominance; CSE and DCE | `cfg`, `source` | any operation or type |
//! | `cfg` | the control flow of a body: orders of blocks, dominators, loops |  | what is in a block |
//! | `table` | what a row of an IR's table of operations says, and what is made of it: attributes as text, the reference | `diagnostics`, `irtext`, `shape`, `ssa` | any operation |
//! | `irtext` | the syntax that the IR texts share | `diagnostics`, `shape`, `source` | any IR |
//! | `observe` | dumps, bisection and timing of the steps of a pipeline |  | any step, any IR |
//! | `files` | reading sources, writing outputs whole and together, temporary files that are removed |  | what is in a file |
//! | `threads` | the same work for each of several items, on several threads |  | what the work is |
//! | `random` | a random number generator that gives the same numbers everywhere |  | who draws |
//! | `stack` | room on the stack for deep recursion |  | what recurses |
//! | `svg` | what pictures share: text, colours |  | what a picture shows |
//! | `tokenizer` | text to tokens and back, shown piece by piece |  | models |
//! | `panics` | turning a panic of a dependency into an error |  | whose it is |
//!
//! A folder imports only entries of the third column; `tests/project/tidy.rs` checks that, and that
//! imports have no circle.
//!
//! # Ten files to read, in this order
//!
//! 1. `examples/02_self_attention.attn`: a program.
//! 2. `src/driver.rs`: `compile` calls the stages one after another, from source text to a library.
//! 3. `src/ir/op.rs`: the table of operations of graph IR, and what each means.
//! 4. `src/passes/pipeline.rs`: the passes in their order.
//! 5. `src/passes/fuse_attention.rs`: a pass; its head has the IR before and after.
//! 6. `src/tile/mod.rs`: tile IR on one page.
//! 7. `src/lowering/tile/matmul.rs`: how a matmul becomes a kernel.
//! 8. `src/tile/schedule/pipeline.rs`: what is decided for a machine, step by step.
//! 9. `src/vector/functions/exp.vec`: an elementary function in vector IR.
//! 10. `src/codegen/cpu/wide/mod.rs`: leaf functions, from vector IR to machine code.
//!
//! `docs/design/README.md` explains the parts and their decisions, page by page;
//! `docs/extending.md` adds to them.
//!
//! # Invariants
//!
//! 1. Each IR has one table of operations, a verifier, an interpreter and a text form that reads
//!    back. A `match` over operations lists them all.
//! 2. The interpreter of graph IR defines the semantics; passes, kernels and machine code are
//!    tested against it.
//! 3. A pass rewrites only what it can prove, and leaves a remark where it could not. A pass that
//!    changes rounding states its bound and asks `--float`.
//! 4. The pipeline runs to a fixed point: the dumped IR of a program compiles to the same library
//!    as the program.
//! 5. Lowering takes no target; all that depends on a machine is decided by the schedule, in tile
//!    IR. Back ends print tile and vector IR, and decide nothing that these could carry.
//! 6. Verified tile IR is memory-safe for all run-time dimensions; the verifier rejects accesses
//!    that it cannot prove.
//! 7. Each call checks the conditions on dimensions that operations require and `where` clauses do
//!    not imply. An index out of range ends the call at once, and nothing is read.
//! 8. Compilation is deterministic, and a call gives the same bits with any number of threads.
//! 9. No input makes the compiler panic.
//! 10. Weights never enter an IR: they are referred to by name.

pub mod bench;
pub mod cfg;
pub mod cli;
pub mod codegen;
pub mod diagnostics;
pub mod driver;
pub mod files;
pub mod format;
pub mod import;
pub mod interface;
pub mod interp;
pub mod ir;
pub mod irtext;
pub mod lowering;
pub mod lsp;
pub mod observe;
pub mod panics;
pub mod passes;
pub mod play;
pub mod ptx;
pub mod random;
pub mod record;
pub mod reference;
pub mod report;
pub mod runtime;
pub mod scalar;
pub mod shape;
pub mod simulated;
pub mod source;
pub mod ssa;
pub mod stack;
pub mod svg;
pub mod syntax;
pub mod table;
pub mod tensor;
pub mod threads;
pub mod tile;
pub mod tokenizer;
pub mod types;
pub mod vector;
