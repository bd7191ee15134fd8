//! Chooses the kernels of an attention, and the copies of its keys and values.
//!
//! In: the unscheduled kernel of an attention, and a machine's parameters. Out: the launches that
//! replace a launch of it ([`Variant`]), and their kernels. An attention kernel reads all keys and
//! values once for each tile of queries. Interleaved heads (`[S, H * D]`, as a projection leaves
//! them) are slow to read in place: each row of a head is on another page, and the rows map to few
//! cache sets. With many queries, each head's keys and values are first copied to contiguous rows,
//! as `f32`; so are keys and values of other types, which the kernel would otherwise convert again
//! for each tile of queries. Few queries have a kernel that processes one at a time
//! ([`QueryLayout`]). Where all operands are `bf16` and the machine multiplies pairs of k steps,
//! several queries have a kernel that does so: keys are copied to contiguous rows without
//! conversion, values to panels, one per block of keys. If the number of queries is known only at
//! run time, the call chooses.
//!
//! This must not know plans. An operand is a [`View`] whose root is its index among the parameters
//! of the unscheduled kernel; the roots after those are slots of the arena.

use super::parts::{FEW_QUERIES, Group, PartialResults, Reads, Whole};
use super::{CHUNK, KEYS, QueryLayout, kernel, part};
use crate::shape::{Dim, Elem, TensorType};
use crate::tile::attention::{Described, KEYS as KEYS_PARAM, QUERIES, VALUES};
use crate::tile::schedule::packing::{in_columns, with_repeats, without_repeats};
use crate::tile::{BufferType, Kernel, Kernels, Machine, State, Value, View, copy, tile_size};

/// Smallest number of queries for which interleaved keys and values are copied. Measured on 12
/// heads of 64: copying saves a twentieth of the time for 256 queries, a quarter for 1024, two
/// fifths for 2048.
const MIN_COPIED_QUERIES: i64 = 256;
/// The same for keys and values that each tile of queries would convert again.
const MIN_CONVERTED_QUERIES: i64 = 64;

/// How an attention is computed.
pub(super) enum Variant {
    /// `more` if `count >= least`, else `less`.
    Either { count: Dim, least: i64, more: Box<Variant>, less: Box<Variant> },
    /// Launches, in order.
    Launches(Vec<Launch>),
}

/// A launch: the name of its kernel, and its buffers.
pub(super) struct Launch {
    pub(super) kernel: String,
    pub(super) buffers: Vec<View>,
}

/// A slot of the arena for intermediate data.
pub(super) struct ScratchSlot {
    pub(super) bytes: Dim,
    pub(super) ty: BufferType,
}

/// The replacement of a launch of an unscheduled attention kernel.
pub(super) struct Variants {
    pub(super) variant: Variant,
    /// The slots that a launch needs, in order.
    pub(super) slots: Vec<ScratchSlot>,
    /// The names of the kernels that its launches run, in order.
    pub(super) kernels: Vec<String>,
    /// The kernels among them that compute a part of the keys.
    pub(super) of_keys: Vec<String>,
    /// Into how many parts calls with few queries divide their keys on a GPU.
    pub(super) keys: Option<Result<i64, Whole>>,
}

/// Kernels made for an attention by an earlier step: one for many queries, and two for few, whose
/// keys are divided among blocks. All but `combine` are scheduled.
pub(in crate::tile::schedule) struct Divided {
    /// Into how many parts keys are divided; at least one, because heads share keys.
    pub(in crate::tile::schedule) keys: Result<i64, Whole>,
    /// Largest number of queries for which keys are divided.
    pub(in crate::tile::schedule) queries: i64,
    /// The kernel for more queries, with the attention's parameters.
    pub(in crate::tile::schedule) whole: Kernel,
    /// The kernel of a part of the keys: its parameters are the attention's at the indices
    /// `params`, then the partial results.
    pub(in crate::tile::schedule) part: Kernel,
    pub(in crate::tile::schedule) params: Vec<usize>,
    /// Replaces `part` in calls of at most this many queries, where heads share keys and values.
    pub(in crate::tile::schedule) of_groups: Option<(i64, Kernel)>,
    /// The unscheduled kernel that combines the results: its parameters are the attention's, then
    /// the partial results.
    pub(in crate::tile::schedule) combine: Kernel,
    pub(in crate::tile::schedule) results: PartialResults,
}

impl Variants {
    /// Chooses the variants of an attention, or uses those made before (`divided`);
    /// `keys_are_values` is true if its launches have one buffer for both. Adds their kernels to
    /// `kernels`.
    ///
    /// # Errors
    /// A kernel that cannot be written, a bug in attnc.
    pub(super) fn choose(
        unscheduled: &Kernel,
        found: &Described,
        machine: Machine,
        keys_are_values: bool,
        divided: Option<&Divided>,
        kernels: &mut Kernels,
    ) -> Result<Variants, String> {
        let mut operands = Vec::new();
        for (n, p) in (0u32..).zip(&unscheduled.params) {
            let ty = unscheduled.body.ty(p.value).buffer().ok_or("an attention of something that is not in memory")?;
            let BufferType { elem, shape, strides } = ty.clone();
            let (root, offset, dynamic) = (Value::from_u32(n), Dim::zero(), Vec::new());
            operands.push(View { root, elem, offset, dynamic, shape, strides });
        }
        let (slots, made, of_keys, keys) = (Vec::new(), Vec::new(), Vec::new(), None);
        let mut choice =
            Choice { unscheduled, found, machine, keys_are_values, kernels, operands, slots, made, of_keys, keys };
        let variant = match divided {
            Some(divided) => choice.divided(divided)?,
            None => choice.any()?,
        };
        let Choice { slots, made, of_keys, keys, .. } = choice;
        Ok(Variants { variant, slots, kernels: made, of_keys, keys })
    }
}

struct Choice<'a> {
    unscheduled: &'a Kernel,
    found: &'a Described,
    machine: Machine,
    keys_are_values: bool,
    kernels: &'a mut Kernels,
    /// Views of the original operands.
    operands: Vec<View>,
    slots: Vec<ScratchSlot>,
    made: Vec<String>,
    of_keys: Vec<String>,
    keys: Option<Result<i64, Whole>>,
}

impl Choice<'_> {
    fn operand(&self, n: usize) -> Result<&View, String> {
        self.operands.get(n).ok_or_else(|| "an attention without its operands".to_string())
    }

    /// Number of rows of an operand: of queries or keys.
    fn rows(&self, n: usize) -> Result<Dim, String> {
        let rows = self.operand(n)?.shape.iter().nth_back(1).cloned();
        rows.ok_or_else(|| "an operand of attention has no rows".to_string())
    }

    /// Launches of the kernels that were made before.
    fn divided(&mut self, divided: &Divided) -> Result<Variant, String> {
        self.keys = Some(divided.keys);
        let count = self.rows(QUERIES)?;
        self.from(&count, divided.queries + 1, |choice, enough| {
            let operands = choice.operands.clone();
            if enough {
                return Ok(Variant::Launches(vec![choice.launch_as_it_is("attention", &divided.whole, operands)]));
            }
            let results = choice.slots_of(&divided.results)?;
            let by = |choice: &mut Self, part: &Kernel| {
                let part = Kernel { name: "attention_part".into(), ..part.clone() };
                choice.by_parts(part, &divided.params, divided.combine.clone(), &results)
            };
            match &divided.of_groups {
                None => Ok(by(choice, &divided.part)),
                Some((most, of_groups)) => choice.from(&count, most + 1, |choice, enough| {
                    Ok(by(choice, if enough { &divided.part } else { of_groups }))
                }),
            }
        })
    }

    /// Slots for the partial results.
    fn slots_of(&mut self, results: &PartialResults) -> Result<Vec<View>, String> {
        let mut slots = Vec::new();
        for BufferType { elem, shape, .. } in results.types() {
            let whole = View::whole(self.next_slot()?, &TensorType::new(elem, shape.clone()));
            let bytes = Dim::product(&shape).mul(&4.into());
            self.slots.push(ScratchSlot { bytes, ty: whole.buffer_type() });
            slots.push(whole);
        }
        Ok(slots)
    }

    /// Launches the kernel of a part of the keys, on the parameters that it keeps, then the one
    /// that combines the results.
    fn by_parts(&mut self, part: Kernel, params: &[usize], combine: Kernel, results: &[View]) -> Variant {
        let operands = self.operands.clone();
        let own = params.iter().filter_map(|n| operands.get(*n).cloned());
        let of_part = own.chain(results.iter().cloned()).collect();
        let part = match part.state {
            State::Unscheduled => self.launch(part, of_part),
            State::Cpu(_) | State::Gpu { .. } => self.launch_as_it_is("attention_part", &part, of_part),
        };
        self.of_keys.push(part.kernel.clone());
        let combine = self.launch(combine, [operands.as_slice(), results].concat());
        Variant::Launches(vec![part, combine])
    }

    /// Launches for few queries, with keys divided among blocks, by kernels that work in runs.
    fn in_parts(&mut self, parts: i64, side_by_side: bool) -> Result<Variant, String> {
        let (q, v) = (self.operand(QUERIES)?, self.operand(VALUES)?);
        let (Some((lead, [queries, _])), Some(width)) = (q.shape.split_last_chunk::<2>(), v.shape.last()) else {
            return Err("an attention without rows".into());
        };
        let results = PartialResults::new(lead, queries, parts, width);
        let count = queries.clone();
        let slots = self.slots_of(&results)?;
        let by = |choice: &mut Self, layout: QueryLayout| {
            let made = part(choice.unscheduled, choice.found, choice.machine, layout, &results);
            let (part, params, exponents) = made.ok_or("an attention has no kernel of a part of the keys")?;
            let combine = results.combine(choice.unscheduled, choice.found, exponents);
            let combine = combine.ok_or("an attention has no kernel that combines parts")?;
            Ok(choice.by_parts(part, &params, combine, &slots))
        };
        if !side_by_side {
            return by(self, QueryLayout::InLanes);
        }
        self.from(&count, self.machine.single_queries + 1, |choice, enough| {
            by(choice, if enough { QueryLayout::InLanes } else { QueryLayout::KeysInLanes })
        })
    }

    /// A launch of an already scheduled kernel.
    fn launch_as_it_is(&mut self, kind: &str, kernel: &Kernel, buffers: Vec<View>) -> Launch {
        let kernel = self.kernels.add_as_it_is(Kernel { name: kind.into(), ..kernel.clone() });
        self.made.push(kernel.clone());
        Launch { kernel, buffers }
    }

    fn any(&mut self) -> Result<Variant, String> {
        let count = self.rows(QUERIES)?;
        if !self.is_paired()? {
            return self.of_f32(true);
        }
        // With fewer queries, copies do not pay.
        self.from(&count, MIN_CONVERTED_QUERIES, |choice, enough| match enough {
            true => choice.in_pairs(),
            false => choice.of_f32(false),
        })
    }

    /// A kernel that computes in `f32` whatever the operands' types, after copies if allowed and
    /// worthwhile.
    fn of_f32(&mut self, copies: bool) -> Result<Variant, String> {
        let tiles = |choice: &mut Self| match copies {
            true => choice.many(),
            false => choice.in_place(QueryLayout::InLanes),
        };
        let (count, others) = (self.rows(QUERIES)?, self.rows(KEYS_PARAM)?);
        // If queries and keys have the same extent, few queries mean few keys, and no variant is
        // needed.
        let side_by_side = is_row_after_row(self.operand(KEYS_PARAM)?) && is_row_after_row(self.operand(VALUES)?);
        self.keys = parts_in_runs(self.unscheduled, self.found, self.machine);
        if count == others {
            return tiles(self);
        }
        if let Some(Ok(parts)) = self.keys {
            return self.from(&count, FEW_QUERIES + 1, |choice, enough| match enough {
                true => tiles(choice),
                false => choice.in_parts(parts, side_by_side),
            });
        }
        if !side_by_side {
            return tiles(self);
        }
        self.from(&count, self.machine.single_queries + 1, |choice, enough| match enough {
            true => tiles(choice),
            false => choice.in_place(QueryLayout::KeysInLanes),
        })
    }

    /// Builds a variant for `count >= least` (`true`) and one for less (`false`): only the one
    /// taken if `count` is known at compile time, else both and a run-time choice.
    fn from(
        &mut self,
        count: &Dim,
        least: i64,
        mut variant: impl FnMut(&mut Self, bool) -> Result<Variant, String>,
    ) -> Result<Variant, String> {
        if let Some(n) = count.as_const() {
            return variant(self, n >= least);
        }
        let (more, less) = (Box::new(variant(self, true)?), Box::new(variant(self, false)?));
        Ok(Variant::Either { count: count.clone(), least, more, less })
    }

    /// The kernel for tiles of queries, after copies where they pay.
    fn many(&mut self) -> Result<Variant, String> {
        let (mut moved, mut enough) = (Vec::new(), i64::MAX);
        for n in [KEYS_PARAM, VALUES] {
            if let Some(least) = queries_that_pay(self.operand(n)?).filter(|_| !self.machine.reads_in_place)
                && !(n == VALUES && self.keys_are_values)
            {
                moved.push(n);
                enough = enough.min(least);
            }
        }
        if moved.is_empty() {
            return self.in_place(QueryLayout::InLanes);
        }
        let count = self.rows(QUERIES)?;
        self.from(&count, enough, |choice, enough| match enough {
            true => choice.after_copies(&moved),
            false => choice.in_place(QueryLayout::InLanes),
        })
    }

    /// Whether matmuls use pairs of `bf16` k steps. Not where the machine has no such instructions,
    /// operands have other types, or heads have an odd or unknown width.
    fn is_paired(&self) -> Result<bool, String> {
        let (q, k, v) = (self.operand(QUERIES)?, self.operand(KEYS_PARAM)?, self.operand(VALUES)?);
        let width = |v: &View| v.shape.last().and_then(Dim::as_const);
        let fits = width(q).is_some_and(|d| d > 0 && d % 2 == 0) && width(v).is_some_and(|e| e > 0);
        Ok(self.machine.pairs.is_some() && fits && [q, k, v].iter().all(|v| v.elem == Elem::BF16))
    }

    /// The kernel with matmuls over pairs, after keys and values have been packed for it.
    fn in_pairs(&mut self) -> Result<Variant, String> {
        let mut operands = self.operands.clone();
        let mut launches = Vec::new();
        let (k, v) = (self.operand(KEYS_PARAM)?.clone(), self.operand(VALUES)?.clone());
        let in_order = |v: &View| matches!(v.strides.as_slice(), [.., row, _] if Some(row) == v.shape.last());
        if !(in_order(&k) && is_row_after_row(&k)) {
            operands[KEYS_PARAM] = self.row_after_row(&k, Elem::BF16, &mut launches)?;
        }
        let rank = v.shape.len();
        let mut transposed: Vec<usize> = (0..rank).collect();
        transposed.swap(rank - 1, rank - 2);
        let packed = in_columns("values", KEYS, &v.transpose(&transposed), self.next_slot()?);
        self.slots.push(ScratchSlot { bytes: packed.bytes, ty: packed.whole.buffer_type() });
        launches.push(self.launch(packed.kernel, [packed.sources, vec![packed.whole]].concat()));
        operands[VALUES] = packed.panels;
        launches.push(self.attention(QueryLayout::InLanePairs, operands)?);
        Ok(Variant::Launches(launches))
    }

    /// A kernel on the original operands.
    fn in_place(&mut self, layout: QueryLayout) -> Result<Variant, String> {
        let operands = self.operands.clone();
        Ok(Variant::Launches(vec![self.attention(layout, operands)?]))
    }

    /// Copies of some of the operands, then the kernel on the copies.
    fn after_copies(&mut self, moved: &[usize]) -> Result<Variant, String> {
        let (mut operands, mut launches) = (self.operands.clone(), Vec::new());
        for n in moved {
            operands[*n] = self.row_after_row(&self.operands[*n].clone(), Elem::F32, &mut launches)?;
        }
        if self.keys_are_values {
            operands[VALUES] = operands[KEYS_PARAM].clone();
        }
        launches.push(self.attention(QueryLayout::InLanes, operands)?);
        Ok(Variant::Launches(launches))
    }

    /// The kernel of a layout on these operands.
    fn attention(&mut self, layout: QueryLayout, operands: Vec<View>) -> Result<Launch, String> {
        let [k, v] = [KEYS_PARAM, VALUES].map(|n| operands[n].buffer_type());
        let made = kernel(self.unscheduled, self.found, self.machine, layout, [&k, &v]);
        Ok(self.launch(made.ok_or("an attention has no kernel of a layout")?, operands))
    }

    fn launch(&mut self, kernel: Kernel, buffers: Vec<View>) -> Launch {
        let kernel = self.kernels.add(kernel);
        self.made.push(kernel.clone());
        Launch { kernel, buffers }
    }

    /// The root value that denotes the next slot.
    fn next_slot(&self) -> Result<Value, String> {
        let number = u32::try_from(self.operands.len() + self.slots.len());
        number.map(Value::from_u32).map_err(|_| "an attention has too many operands".to_string())
    }

    /// Copies a view, converted to `elem`, to row-major order; axes along which it repeats are not
    /// copied.
    fn row_after_row(&mut self, view: &View, elem: Elem, launches: &mut Vec<Launch>) -> Result<View, String> {
        let (from, kept) = without_repeats(view);
        let whole = View::whole(self.next_slot()?, &TensorType::new(elem, from.shape.clone()));
        let size = i64::try_from(elem.size()).unwrap_or(8);
        let bytes = Dim::product(&whole.shape).mul(&Dim::from(size));
        self.slots.push(ScratchSlot { bytes, ty: whole.buffer_type() });
        let order = order_in_memory(&from);
        let (made, buffers) = copy("heads", &from.transpose(&order), &whole.transpose(&order));
        launches.push(self.launch(made, buffers.into()));
        let (shape, strides) = with_repeats(view, &kept, &whole.shape, &whole.strides);
        Ok(View { shape, strides, ..whole })
    }
}

/// Smallest number of queries for which it pays to copy keys or values; `None` where it never does.
fn queries_that_pay(from: &View) -> Option<i64> {
    let [.., row, col] = from.strides.as_slice() else { return None };
    let width = from.shape.last()?;
    let dense = |stride: &Dim| stride.as_const() == Some(1);
    if from.elem != Elem::F32 || !dense(row) && !dense(col) {
        return Some(MIN_CONVERTED_QUERIES);
    }
    // Row-major or column-major already.
    if dense(row) || row == width { None } else { Some(MIN_COPIED_QUERIES) }
}

/// Whether each row is contiguous.
fn is_row_after_row(v: &View) -> bool {
    v.strides.last().is_some_and(|d| d.as_const() == Some(1))
}

/// Number of parts into which kernels that work in runs divide the keys of an attention, or why
/// they do not; `None` without a GPU, or if the kernel does not have the operands of an attention.
fn parts_in_runs(unscheduled: &Kernel, found: &Described, machine: Machine) -> Option<Result<i64, Whole>> {
    let ty = |n: usize| unscheduled.buffer_type(n);
    let [q, k, v] = [ty(QUERIES)?, ty(KEYS_PARAM)?, ty(VALUES)?];
    let (lead, [queries, _]) = q.shape.split_last_chunk::<2>()?;
    let keys = k.shape.get(lead.len())?;
    let mut points = lead.to_vec();
    let side_by_side = [k, v].iter().all(|b| b.is_dense(lead.len() + 1));
    if let Some(Group { axis, heads }) = Group::find(unscheduled, found, machine).filter(|_| side_by_side)
        && let Some(n) = points.get(axis).and_then(Dim::as_const)
    {
        points[axis] = (n / heads).into();
    }
    let bytes = |b: &BufferType| {
        let width = b.shape.last().and_then(Dim::as_const).unwrap_or(CHUNK);
        width.saturating_mul(i64::try_from(b.elem.size()).unwrap_or(8))
    };
    let bytes = bytes(k).saturating_add(bytes(v));
    // A block of eight warps waits for a block of keys, then for their values: half of the time is
    // spent waiting for memory.
    let busy = 4;
    Some(
        Reads {
            arch: machine.gpu()?.arch,
            points: &points,
            queries,
            keys,
            block: tile_size(keys, machine.keys),
            bytes,
            busy,
        }
        .parts(),
    )
}

/// The axes of a view in memory order: heads after rows where they are interleaved within a row.
fn order_in_memory(from: &View) -> Vec<usize> {
    let mut order: Vec<usize> = (0..from.shape.len()).collect();
    if let [.., heads, rows, _] = from.strides.as_slice()
        && let (Some(heads), Some(rows)) = (heads.as_const(), rows.as_const())
        && heads < rows
    {
        let n = order.len();
        order.swap(n - 3, n - 2);
    }
    order
}
