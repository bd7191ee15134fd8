//! Packs right operands of `bf16` matmuls with interleaved pairs of k indices: panels `[batch.., P,
//! ceil(K / 2), NR, 2]` of a view `[batch.., K, N]` of `bf16`, or of `f32` that is rounded, in
//! which the elements of a column at an even k index and at the next one are adjacent, 4 bytes, as
//! `vdpbf16ps` and `tdpbf16ps` expect. The rest of the last panel and of the last pair is zero.
//!
//! In: operands of a matmul. Out: whether its right operand should be in pairs, and the kernel that
//! packs it.
//!
//! ```text
//! grid (batch.., P, ceil(K / 2 / 64))
//!   zeros where panel or pairs are not full;  the even steps: load, store;  the odd steps: load, store
//! ```

use crate::scalar::BinaryOp;
use crate::scalar::Scalar;
use crate::shape::{Dim, Elem, TensorType};
use crate::tile::{
    self, BufferType, Extent, Kernel, KernelBuilder, Machine, ParamMode, Type, View, row_major, tile_size,
};

/// Pairs packed at a time.
const PAIRS: i64 = 64;

/// Number of pairs of k indices.
pub(super) fn count_pairs(steps: i64) -> i64 {
    steps.div_euclid(2) + steps.rem_euclid(2)
}

/// Should a matmul of these operands, `[batch.., M, K]` and `[batch.., K, N]`, have panels of
/// pairs? Both must be `bf16`, the left one contiguous along K, and K a constant; if matmuls read
/// pairs of the left one too, K must be even.
pub(super) fn are_wanted(machine: &Machine, a: &BufferType, b: &BufferType) -> bool {
    let steps = a.shape.last().and_then(Dim::as_const).filter(|k| *k > 0);
    let dense = a.strides.last().and_then(Dim::as_const) == Some(1);
    let fits = machine.pairs.is_some_and(|pairs| steps.is_some_and(|k| k % 2 == 0 || pairs.odd));
    let columns = b.shape.last().and_then(Dim::as_const);
    fits && dense && a.elem == Elem::BF16 && b.elem == Elem::BF16 && columns != Some(1)
}

/// The kernel that packs a view, the views that it reads, and the view it writes. They have the
/// same roots as the given view.
pub(super) struct Pairs {
    pub(super) kernel: Kernel,
    pub(super) sources: Vec<View>,
    pub(super) panels: View,
}

/// The kernel for a view with constant K, into panels of this width.
///
/// # Errors
/// A view of another shape, which is a bug in attnc.
pub(super) fn pack(columns: i64, from: &View) -> Result<Pairs, String> {
    let (lead, [k, n]) = from.shape.split_last_chunk::<2>().ok_or("an operand of a product has two axes or more")?;
    let k = k.as_const().filter(|k| *k > 0).ok_or("pairs of an unknown number of steps")?;
    let (rank, all) = (from.shape.len(), count_pairs(k));
    let count = match n.as_const() {
        Some(n) => Dim::from(n.saturating_add(columns - 1).div_euclid(columns)),
        None => n.clone(),
    };
    let own = [count, Dim::from(all), Dim::from(columns), Dim::from(2)];
    let shape = [lead, &own].concat();
    let mut panels = View::whole(from.root, &TensorType::new(Elem::BF16, shape));
    // The batch stride is the size of one element's memory, whatever P is.
    let pitch = Dim::product([&Dim::from(2 * all), &padded_columns(n, columns)]);
    let strides = row_major(lead);
    for (to, own) in panels.strides.iter_mut().zip(strides) {
        *to = own.mul(&pitch);
    }
    let half = |first: i64| {
        let mut view = from.slice(rank - 2, &Dim::from(first), &Dim::from(k));
        if let (Some(extent), Some(stride)) = (view.shape.get_mut(rank - 2), view.strides.get_mut(rank - 2)) {
            *extent = Dim::from(count_pairs(k - first));
            *stride = stride.mul(&Dim::from(2));
        }
        view
    };
    let sources: Vec<View> = (0..k.min(2)).map(half).collect();

    let mut kb = KernelBuilder::new("pack_pairs");
    let buffers: Vec<tile::Value> = sources.iter().map(|v| kb.buffer(v.buffer_type(), ParamMode::In)).collect();
    let to = kb.buffer(panels.buffer_type(), ParamMode::Out);
    let points: Vec<tile::Value> = lead.iter().map(|d| kb.grid_axis(d, 1)).collect();
    let most = tile_size(n, columns);
    let step = all.min(PAIRS);
    let panel = kb.grid_axis(n, most);
    let block = kb.grid_axis(&Dim::from(all), step);
    let (row, column) = (kb.times(block, step), kb.times(panel, most));
    let cols = kb.extent_at(n, column, most);
    let height = kb.extent_at(&Dim::from(all), row, step);
    // If K is odd, there is one odd k index less.
    let odd = if k % 2 == 0 {
        height
    } else {
        let (end, max) = (kb.index(all - 1), kb.index(step));
        let rest = kb.index_binary(BinaryOp::Sub, end, row);
        Extent::Bounded { value: kb.index_binary(BinaryOp::Min, rest, max), max: step }
    };
    let along = (Some(rank - 1), Some(rank));
    let halves = [kb.index(0), kb.index(1)];
    let place = |half: usize| [points.as_slice(), &[panel, row, halves[0], halves[half.min(1)]]].concat();
    if k % 2 != 0 || n.as_const().is_none_or(|n| n % columns != 0) {
        for half in 0..2 {
            let zeros = kb.full(Scalar::Float(0.0), Elem::F32, height, Extent::Static(columns));
            kb.store(to, &place(half), along, zeros);
        }
        let (next, _) = kb.new_block(Vec::new());
        kb.br(next, &[]);
        kb.switch_to(next);
    }
    let is_dense = |axis: usize| from.strides.get(axis).and_then(Dim::as_const) == Some(1);
    let transposed = is_dense(rank - 2) && !is_dense(rank - 1);
    let at = [points.as_slice(), &[row, column]].concat();
    for (half, (buffer, rows)) in buffers.iter().zip([height, odd]).enumerate() {
        let tile = if transposed {
            let loaded = kb.load(*buffer, &at, (Some(rank - 1), Some(rank - 2)), cols, rows);
            let ty = Type::Tile(KernelBuilder::tile_type(Elem::F32, rows, cols));
            kb.value(tile::Op::Transpose, vec![loaded], ty)
        } else {
            kb.load(*buffer, &at, (Some(rank - 2), Some(rank - 1)), rows, cols)
        };
        let tile = if from.elem == Elem::BF16 { tile } else { kb.narrow(tile, Elem::BF16) };
        kb.store(to, &place(half), along, tile);
    }
    Ok(Pairs { kernel: kb.finish(), sources, panels })
}

/// Upper bound of the columns of all panels: `n` rounded up to whole panels.
pub(super) fn padded_columns(n: &Dim, columns: i64) -> Dim {
    match n.as_const() {
        Some(n) => Dim::from(n.saturating_add(columns - 1).div_euclid(columns).saturating_mul(columns)),
        None => n.add(&Dim::from(columns - 1)),
    }
}
