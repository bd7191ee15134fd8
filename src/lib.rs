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
//! [`driver`] is that list as one straight-line function; [`cli`] turns a command line into its options. All input and
//! output happens there, in [`files`] and in [`runtime`]; everything between is a function from values to values.
//!
//! # The map
//!
//! | folder | what lives there | what it imports | what it must not know |
//! |---|---|---|---|
//! | `driver` | the commands of `attnc`, each one straight-line function; sessions and dumps | `bench`, `cli`, `codegen`, `diagnostics`, `files`, `import`, `interface`, `ir`, `irtext`, `lowering::graph`, `lowering::tile`, `passes`, `ptx`, `random`, `reference`, `runtime`, `shape`, `simulated`, `source`, `syntax`, `table`, `tensor`, `threads`, `tile`, `tokenizer`, `types`, `vector` | how a stage works |
//! | `cli` | the command line: options, their values and help | `diagnostics`, `shape::Elem` | any stage |
//! | `syntax` | tokens, layout of lines, grammar, AST, their dumps | `diagnostics`, `shape::Elem`, `source` | types, shapes |
//! | `types` | the type checker: AST in, typed AST out; `std.nn`, written in attn | `diagnostics`, `scalar`, `shape`, `source`, `stack`, `syntax`, `table` | IR |
//! | `lowering::graph` | typed AST and bindings of dimensions to graph IR; everything is inlined | `diagnostics`, `ir`, `scalar`, `shape`, `source`, `stack`, `types` | passes, instruction sets |
//! | `passes` | rewrites of graph IR, the pipeline, remarks | `diagnostics`, `ir`, `scalar`, `shape`, `source`, `ssa` | files, back ends |
//! | `lowering::tile` | regions to kernels, functions to plans, movement to views | `ir`, `scalar`, `shape`, `tile` | vectors, machine code |
//! | `lowering::vector` | runs of scheduled kernels to routines of vector IR: loops, tails, reductions | `scalar`, `shape`, `ssa`, `tile`, `vector` | instructions, back ends |
//! | `ir` | graph IR: table of operations, shape rules, text, verifier, interpreter | `cfg`, `diagnostics`, `interface`, `interp`, `irtext`, `scalar`, `shape`, `source`, `ssa`, `table`, `tensor` | back ends |
//! | `tile` | tile IR: table of operations, text, verifier, interpreter, schedule | `cfg`, `diagnostics`, `interface`, `interp`, `irtext`, `scalar`, `shape`, `source`, `ssa`, `table`, `tensor` | graph IR, Cranelift |
//! | `vector` | vector IR: routines with control flow and memory, the elementary functions (`functions/*.vec`); text, verifier, interpreter | `diagnostics`, `irtext`, `scalar`, `shape`, `source`, `ssa`, `table` | tiles, instructions |
//! | `ptx` | PTX for GPUs: kernels of typed instructions, a table of all legal opcodes; text, verifier | `diagnostics` | tiles, launches |
//! | `ptx::sim` | a simulator of GPUs: executes the text of kernels, and reports races, missing fences and the like | `ptx`, `random` | tiles, plans, who made the text |
//! | `codegen` | scheduled tile IR to an object; the interface of a module to a descriptor | `cfg`, `interface`, `irtext`, `lowering::vector`, `panics`, `ptx`, `runtime`, `scalar`, `shape`, `source`, `ssa`, `threads`, `tile`, `vector` | how anything was decided |
//! | `simulated` | launches of plans on the simulator of GPUs; pictures of what a block does over time | `codegen::ptx`, `ptx`, `shape`, `svg`, `tile` | how anything was scheduled, how PTX is made |
//! | `runtime` | descriptor, support library, linking, header, Python, loading | `files`, `shape`, `tensor` | IR, Cranelift's functions |
//! | `bench` | what `attnc bench` shows, and the measured ceilings of the machine and its GPU | `ptx`, `random`, `runtime`, `shape`, `svg`, `tensor` | compiling, calling |
//! | `import` | configurations of the Hugging Face hub to programs; a template for each family |  | files, stages |
//! | `reference` | the language reference: entries as text (`language.txt`), the standard library by signature | `diagnostics`, `shape`, `source`, `syntax`, `types` | bodies, IR |
//! | `diagnostics` | messages as data, suggested fixes, codes with explanations, rendering | `source` | any stage |
//! | `source` | source texts, spans, and the locations that instructions carry |  | tokens, trees, IR |
//! | `shape` | element types, dimensions in canonical form, facts about them |  | source, IR, machines |
//! | `scalar` | literal elements; what `exp`, `add`, `lt` mean for one element | `shape::Elem`, `table` | tensors |
//! | `tensor` | host tensors: an element type, extents, bytes | `shape` | where they come from |
//! | `interface` | declarations of a module: parameters, entry points, taps | `shape`, `source` | bodies, operations |
//! | `interp` | what both interpreters share: parameters, limits, errors | `source`, `tensor` | either IR |
//! | `ssa` | the SSA body of the IRs: blocks, values, edits, structure and dominance; CSE and DCE | `cfg`, `source` | any operation or type |
//! | `cfg` | the control flow of a body: orders of blocks, dominators, loops |  | what is in a block |
//! | `table` | what a row of an IR's table of operations says, and what is made of it: attributes as text, the reference | `diagnostics`, `irtext`, `shape`, `ssa` | any operation |
//! | `irtext` | the syntax that the IR texts share | `diagnostics`, `shape`, `source` | any IR |
//! | `files` | reading sources, writing outputs whole and together, temporary files that are removed |  | what is in a file |
//! | `threads` | the same work for each of several items, on several threads |  | what the work is |
//! | `random` | a random number generator that gives the same numbers everywhere |  | who draws |
//! | `stack` | room on the stack for deep recursion |  | what recurses |
//! | `svg` | what pictures share: text, colours |  | what a picture shows |
//! | `tokenizer` | text to tokens and back, shown piece by piece |  | models |
//! | `panics` | turning a panic of a dependency into an error |  | whose it is |
//!
//! A folder imports what the third column lists and nothing else; `tests/project/tidy.rs` checks that, and that there is no circle.
//!
//! # Decisions that are not obvious
//!
//! * **Three levels, one syntax.** The graph level is where a reader sees the formula and where fusion is a rewrite; the
//!   tile level is where everything is decided that back ends would otherwise decide again; vector IR is what remains inside a loop
//!   nest. Each has its own operations; all print and parse through `irtext`.
//! * **Monomorphic except for run-time dimensions.** Generics are checked once, symbolically, so that shapes never match only
//!   because two sizes happen to be equal; lowering then substitutes the bound values and inlines every layer. A loop over an
//!   array of layers stays a loop that indexes its parameters, so compile time hardly grows with depth.
//! * **`..` is one axis at run time.** An entry point collapses the leading axes of its arguments and restores them in its
//!   results.
//! * **Fused regions nest.** A `fused` instruction contains the operations that it replaced, so every dump shows what a
//!   kernel computes, and the interpreter needs no notion of kernels.
//! * **Data movement becomes views.** Transposes, slices and most reshapes become strides of a kernel's buffers; a producer
//!   stores its result in the order that its consumer's reshape needs.
//! * **Bounded extents instead of masks.** A tile at the end of an axis is smaller (`%r<=64`), so a row of one token costs
//!   one row, and an empty axis nothing. A schedule for hardware that computes full tiles could turn bounds into masks.
//! * **An assignment at an index is a new value.** `out[t] = h` is `update %out, %h, %t`, and a `state` is read and set by
//!   operations whose effects CSE, code motion and dead code obey: everything stays SSA. Where a value lies is decided when a plan
//!   is made (`lowering/tile/plan/storage.rs`): values that are never needed at the same time share a slot, so a loop that stacks its
//!   results, and a cache that is kept by a session, are written in place.
//! * **A step of an LSTM or GRU is two launches.** What is multiplied by inputs that are there before the loop is one product
//!   before it (`passes::hoist_products`). What remains is the product of the state with its gates side by side, and one kernel
//!   of elementwise work, though it gives a state and a cell and writes the stacked results besides (`lowering/tile/plan/together.rs`); what the
//!   next step needs is written where it is read (`storage.rs`). One row, or two, are multiplied by four panels side by side, whose sums do not wait for each other
//!   and which lie abreast, step by step (`tile/schedule/jam.rs`); each step goes through them in the other direction, since what a cache
//!   has kept is what was read last (`runtime/support/ahead.rs`). A launch of less than 8 KiB runs on the calling thread and touches nothing that
//!   threads share (`runtime/support/pool.rs`). The product and the elementwise work as one kernel, a panel of each gate at a time,
//!   was tried once, at batch 1 and 128 steps only, on a machine that was busy with other work: the difference was within the noise,
//!   on one thread and on two. Other sizes were not measured.
//! * **Calls pay only for the taps they request.** An entry point with taps is compiled twice; the plain variant has none. In the
//!   other, tapped values inside a kernel are recomputed outside of it (`passes::separate_taps`) and, like everything that only
//!   a tap needs, behind a branch that tests whether the call requests the tap, layer by layer; the kernels are shared with the
//!   plain variant. So attention stays fused whatever is requested, and its weights are computed separately (unless there is a
//!   sink: `passes::separate_taps`).
//! * **One way for all levels of processors.** Lowering and schedule are written once. Unscheduled products read buffers as
//!   they lie, in tiles that say nothing of a machine; panels, packing, pairs of `bf16` steps and the sizes of tiles are steps of the
//!   schedule (`tile/schedule/panels.rs`), which takes a machine's numbers (`tile::Target`), lanes, registers and features. So are
//!   the variants of attention (`tile/schedule/attention.rs`): an unscheduled kernel says the algorithm alone, one key after another with an
//!   online softmax (`tile/attention.rs`), and the schedule finds it by its structure. Lowering takes no target. A level is
//!   a machine with a name (`tile::Cpu`): the width of its vectors and a set of features. Levels are only partially ordered: code for one runs wherever all of its features are present. A library has kernels and
//!   plans for each level; which of them run is decided when a model is opened, by what the processor has.
//! * **Functions are compiled independently.** Code generation declares all functions, compiles each from its kernel or plan
//!   alone, and puts them into the object in order (`codegen::cpu::object`). So all cores are used, and the bytes do not depend
//!   on their number.
//! * **A run is lowered to vectors once, and printed.** Which loop an instruction stands in, how many vectors go at a time, masks
//!   at the end of a row, accumulators and the order in which lanes are added are decided in `lowering::vector`, for any number
//!   of lanes; `--emit vector` shows them, the interpreter of vector IR runs them on random kernels, and the leaves of 256 and
//!   512 bits, the kernels of 128 bits (as CLIF, `codegen/cpu/run.rs`) and LLVM (`codegen/llvm/run.rs`) print them. What a machine
//!   cannot do is replaced before, by passes (`vector::routine::legalise`): for AVX2 masked access to 8 and 16 bits, for SSE2 and
//!   NEON masked access as such; LLVM does so itself. What has no form for several lanes (`i64`, powers of integers) is a
//!   routine of one.
//! * **A GPU is a variant of the library.** Its plans are the same host code as for a processor, made from the same tile IR;
//!   its kernels are PTX in the descriptor, with cubins beside it where `ptxas` is found (`driver/nvidia.rs`), and a launch names one by its number (`runtime/abi_cuda.rs`). Only a launch and a
//!   read of data are other functions of the runtime (`runtime/support/cuda/`), which looks the driver up when a model is opened:
//!   nothing is linked with it, so a library for both loads anywhere. Launches are queued and the call waits once, at its end; a kernel that
//!   finds an index out of range writes that where the call reads it. Launches that come again in the same order are one CUDA
//!   graph, whose launches the plan updates (`support/cuda/graphs.rs`). What the plan reads of an argument that came from the host costs no
//!   wait. Without a GPU all of that is tested with a stand-in for the driver (`tests/standin/`), on the simulator of PTX.
//! * **On a GPU a loop of small launches is one launch.** A step of a recurrent network has less work than its launches take. A loop that counts,
//!   and whose launches work in runs on grids of at most two waves, is outlined into a kernel that launches the others
//!   (`tile/schedule/gpu/persistent.rs`): as many blocks as run at the same time walk through its steps, divide the points of each launch among
//!   themselves and meet at a barrier of the grid where one launch needs what another leaves. It is text as any kernel; the verifier
//!   proves its windows, the interpreters run it. A barrier is an arrival that releases and a wait that acquires, in global memory
//!   (`codegen/ptx/persistent.rs`); the launch is cooperative, so no block waits for one that never comes. The simulator reports a barrier
//!   that is missing as a race, and blocks that do not fit as a deadlock. Remarks tell which loops it was done with, and why not with
//!   others. What only such loops launch has no code of its own. It has not been measured on a GPU; a call cannot be interrupted
//!   within such a loop.
//! * **Generic kernels for a GPU have the machine's tiles.** The lowering's tiles are resized where the text shows that nothing else depends on
//!   them (`tile/schedule/gpu/tiles.rs`), by rules that stand in one file with the machine's numbers (`gpu/cost.rs`): a warp for each short row, so
//!   that no barrier of the block is left, large chunks of long ones. Parameters are `aligned` where every launch gives a multiple of 16 bytes;
//!   then neighbours are accessed four at a time wherever the indices are shown to be multiples of four (`codegen/ptx/multiples.rs`).
//!   Where operands and results of elementwise work lie along different axes, as in a transposition, square tiles are turned in shared memory, so that
//!   whole sectors are read and written along both (`tile/schedule/gpu/transposes.rs`).
//!   Few long rows that are reduced, as in a loss or a softmax over a vocabulary, are divided among blocks where that pays for more launches; a call
//!   chooses by what it alone knows (`tile/schedule/gpu/long_rows.rs`).
//!   Sorting is counting: of n^2 comparisons none waits for another (`tile/sort.rs`); the greatest few of many are
//!   looked for among those of chunks of 512 (`tile/schedule/gpu/candidates.rs`). Running sums are sums of chunks of 128, their offsets, and sums within
//!   chunks (`tile/scan.rs`).
//! * **Tensor cores are a schedule of their own.** Products and attention of `bf16` and `f16` (and products of `f32`, where `--matmul-precision tf32` allows
//!   it) become kernels whose tiles are fragments of
//!   registers and tiles of shared memory (`tile/schedule/tensor_cores`); what does not fit is scheduled in runs, like everything else. How
//!   a fragment lies in registers is known to code generation alone (`codegen/ptx/fragments`), where each operation is a template over
//!   whole tiles. Two forms of each: copies by all threads and `mma.sync` for every processor from `sm_80` on; for Hopper groups of
//!   warps with roles, rings of tiles and `wgmma`, and a product of more tiles than multiprocessors has as many blocks as run at a time, which
//!   fill their rings for the next tile while a result is stored. ptxas would move the softmax of a tile behind the product of values that it should
//!   run beside: a loop that waits for a barrier whose phase is over keeps it in place, and a test looks at the processor's own code.
//!   What the epilogue of a product reads of other tensors, neighbours together where they are aligned, it reads in chunks of columns that fit beside the
//!   sums in registers, since ptxas would read all at once and spill (`codegen/ptx/fragments/elements.rs`).
//!   Tiles of keys that masks hide are left out by the same bounds of formulas as on a CPU (`tile/schedule/attention/visible.rs`). Heads
//!   that share keys and values are rows of one tile in calls of few queries, so these are read once for a group (`tile/schedule/tensor_cores/split.rs`).
//!   A product of tiles cannot leave out a hidden key, so a result that is not finite is computed again, one key after another
//!   (`tile/schedule/tensor_cores/careful.rs`).
//! * **Few queries on a GPU**, as in writing token by token, would have a block for each head: 32 blocks for 132 multiprocessors, which read the
//!   cache at a fraction of what memory gives. So their attention has two kernels: one divides the keys among blocks, the other combines
//!   what these give (`tile/schedule/attention/parts.rs`). The first has a form of fragments and one that works in runs, for `f32` and for what does not
//!   fit tensor cores; the second is elementwise work for both. How many parts there are follows from bytes and multiprocessors; a remark
//!   tells it, or why there is one.
//! * **Few rows on a GPU** are bound by memory: such a product reads its right operand once, all threads 16 bytes at a time, several of
//!   these before the first is used, and the steps are divided among the threads (`DotMode::Split`; `tile/schedule/gpu/few_rows.rs` has the
//!   arithmetic), and, where few columns would leave most multiprocessors without a block, among blocks, if that pays for a second launch
//!   (`tile/schedule/gpu/divided.rs`). On a GPU weights are packed only to have fewer bytes; integers are multiplied by their scales on the way. For more
//!   rows of 16-bit activations they go to tensor cores as they are packed, and become floats in registers (`codegen/ptx/fragments/scaled.rs`), or, where `wgmma`
//!   pays for that, a matrix before (`tile/schedule/unpack.rs`). By a number of rows that a call has, its plan chooses (`tile/schedule/plans.rs`).
//! * **Leaf functions.** Cranelift stops at 128 bits on x86-64. At the wider levels it still makes a kernel's loops and
//!   addresses, and each operation on whole tiles (`run`, `dot`, `transpose`, `pair_rows`) is a call of a function that
//!   `codegen::cpu::wide` generates itself. For what it declines (`i64`, powers of integers) the kernel has the portable code, on
//!   the same scratch, and a remark says so. Leaves of runs are selected over virtual registers (`wide::machine`) and
//!   allocated (`wide::allocate`). All others name their registers themselves: which one holds what follows from the shape. The
//!   code of products is long, up to 14 heights of unrolled steps: written over virtual registers it ran as fast within 3 %, but
//!   compiling GPT-2 took 1.6 times as many instructions (1,150 million instead of 700 million), a third of them in the allocator.
//! * **`bf16` by `bf16` has levels of its own.** `avx512bf16` (`vdpbf16ps`) and `amx` (`tdpbf16ps`) are AVX-512 in everything but
//!   products of two `bf16` operands, whose right one lies in pairs of steps there: those of attention too, which rounds a
//!   block's weights to pairs of keys in scratch (`pair_rows`). A library has them only if its program
//!   has such a product or attention of `bf16` (even one that goes the common way: of heads of an odd width), and shares all
//!   other kernels with `avx512`; the system is asked for AMX tiles when a model is opened, and if it refuses, the next level
//!   runs. On Intel's processors `vdpbf16ps` is slower than FMA, so there `avx512bf16` runs only where `ATTNC_CPU` names it.
//! * **Integer weights have their own level.** `avx2vnni` is AVX2 in everything but products by quantised weights, which use byte
//!   dot products there, as at AVX-512 (`wide/dot_bytes.rs`). A library has it only if its weights are integers, and shares all
//!   other kernels with `avx2`.
//! * **An element of a product is a sum of partial sums**, each over 512 steps (1024 of integers summed in groups, 2048 in AMX
//!   tiles; one over all if they are known to be 1024 at most; `tile/schedule/steps.rs`), whatever tiles it went through. Its mode
//!   (next bullet) says in which order the steps of a partial sum are added. For one mode, its bits depend neither on how many
//!   rows there are nor on who computes them.
//! * **How a product is summed is written in tile IR.** `dot ... mode=chain`, `fma`, `pairs`, `tiles`, `groups`
//!   (`tile::DotMode`; on a GPU `split`, whose order the interpreter does not follow): the schedule chooses by what the CPU has and the operands fit, the verifier checks it, the tile interpreter
//!   executes it to the bit, back ends print it. Which mode it is may depend on the rows in one case: a right operand of `bf16` that
//!   is computed has no panels where fewer than 512 rows are known when it is compiled, and its mode is `fma`.
//! * **Attention has queries in the lanes of vectors**, so that its maxima and sums go from register to register, never
//!   across one. A call with few queries has them one by one instead, keys or columns in the lanes, and a query's bits are
//!   then others than among many. At the levels for `bf16` they also differ on either side of 64 queries: from there on attention of
//!   `bf16` multiplies pairs, below it computes in `f32`.
//! * **Weights are packed when a model is opened.** Products read parameters from panels, stored in the order of access; a
//!   separate plan (`prepare`) packs them, once for all sessions. The schedule chooses that, from the launches of a plan: a
//!   product's right operand is found to be a window of a parameter, or of parameters one after another. The projections to
//!   queries, keys and values become one product by concatenated parameters, though a program has three.
//! * **Idle threads prefetch the next weights.** Decoding a token is bound by memory bandwidth: a hundred launches in some
//!   milliseconds. With each launch, a plan passes which packed weights come next (`codegen::cpu::ahead` finds them), and threads
//!   that wait for others prefetch the beginning of their part. A thread enters and leaves a launch through one cache line,
//!   without locks.
//! * **The statistics of a norm are computed from whole rows**, which are read once, not in the epilogue of the product before.
//!   Its tiles are 32 columns wide: each would yield a partial mean and sum of squares per row by a horizontal reduction, which
//!   is more work than a pass over a row with independent lanes, and the partial results would have to be stored, read and
//!   merged. The most that could be saved, the time of a norm beyond scaling and shifting, is a tenth of a percent of an encoder
//!   layer (12 of 18,000 microseconds at 512 rows of 768).
//! * **An elementary function is written once, in vector IR.** `vector/functions/exp.vec` defines `e^x`; the back ends print its
//!   operations one by one (LLVM has its own `floor`). They are straight lines, for all floats: `sin` and `cos` reduce any
//!   argument with as many bits of 2/pi as its exponent requires, `pow` has its logarithm in two floats, `%` takes 14 exact
//!   steps, and nothing calls libm. Where a machine has better instructions, the file has another version that
//!   requires them. Tests compare what Cranelift's code and the leaves give with the interpreter of vector IR, to the bit. `attnc
//!   function exp --cpu avx512` shows what leaf functions compute there.
//! * **LLVM is a baseline for comparison.** The cargo feature `llvm` adds a second back end for the same scheduled kernels, to
//!   compare code and compile times; nothing else depends on it, and the tests of compiled code run with either.
//! * **Verified tile IR is memory-safe.** The verifier proves for all run-time dimensions that accesses are in bounds of their
//!   buffers, and buffers in bounds of their arguments, parameters and slots, and rejects what it cannot prove
//!   (`tile::verify::bounds`). The output of lowering is verified in the same way. Proofs are about numbers, and machines compute
//!   modulo 2^64: forms of dimensions that are not known to fit are evaluated by each call on entry, every step checked
//!   (`tile::fits`, derived from the module, whoever wrote it), and what is computed of them is proved to fit before it is compared.
//! * **Conditions on dimensions are checked on entry.** The facts that a function requires (slices and paddings within their
//!   axes, extents not negative, sizes in 64 bits) are derived from its operations, not trusted to its text
//!   (`ir::requirements`); those that its `where` lines do not imply are checked by every call, interpreted or compiled. A pass
//!   that drops an operation keeps its requirements. Conditions on loop counters and elements are checked where they are used.
//! * **The pipeline runs to a fixed point**, so the dumped IR of a program compiles to the same library as the program.
//! * **Errors stop a call at once.** An index out of range is reported and ends the kernel and the plan; nothing is read.
//!
//! # Numerics
//!
//! `bf16` and `f16` are computed in `f32` and rounded after each operation of the program, fused or not. The exception is fused
//! attention, which `--float strict` forbids: its scores are not rounded, and its weights are rounded before they are divided
//! by their sum, or not at all (`passes::fuse_attention`). At the `bf16` levels, instructions flush subnormal `bf16` numbers
//! to 0, both when they round to the type and when they multiply: such products are lost whatever the other factor is. What is
//! multiplied by weights that `--pack bf16` rounded is rounded to `bf16` there, too (`tile/schedule/halves.rs`).
//! On a GPU's tensor cores, sums of products are `f32` in the order of the unit, operands of `tf32` are rounded to 11 bits before, and powers of 2 in attention have a relative
//! error of 2.5 * 2^-23 (`tile/schedule/tensor_cores`). Matmuls and reductions accumulate in `f32` (`i8` in `i32`), in blocks: with K steps in blocks of B, 512 for most products
//! of more than 1024, the error of an element of a product is at most `(B + K / B) 2^-24` times the sum of the magnitudes of
//! its products, and that of a sum of any length at most that of 512 terms in four lanes, about `140 * 2^-24` times the sum of
//! magnitudes (`lowering/tile/rows.rs`); on a GPU too, where blocks sum parts of a row. A difference from the mean of
//! its row, and the variance of the row, have errors relative to the differences, not to the mean; a mean overflows only where it is
//! beyond `f32` itself, not where its sum is (`lowering/tile/means.rs`). The error of a running sum does not grow with the place: on a GPU it is at most `384 * 2^-24` times the sum of
//! the magnitudes up to there (`tile/scan.rs`). The bits do not depend on the number of threads: reductions are partitioned by shape
//! alone. `%` of floats is exact. Each pass that changes rounding documents its error bound, and `--float` allows or forbids
//! it.
//!
//! A masked key contributes nothing to a query in fused attention, even if its value is NaN or infinite, on every instruction
//! set of CPUs and on GPUs. Unfused attention (`-O0`, or where a remark says why) follows the formula, where a weight of 0 times NaN is NaN. The row
//! of the key itself may be NaN too if the mask is a `where` or causal; a mask that is added to a NaN score leaves it NaN.

pub mod bench;
pub mod cfg;
pub mod cli;
pub mod codegen;
pub mod diagnostics;
pub mod driver;
pub mod files;
pub mod import;
pub mod interface;
pub mod interp;
pub mod ir;
pub mod irtext;
pub mod lowering;
pub mod panics;
pub mod passes;
pub mod ptx;
pub mod random;
pub mod reference;
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
