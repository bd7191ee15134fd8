//! The verifier of functions over virtual registers.
//!
//! In: a function. Out: an error, if there is one. Checked: registers are defined once, and the
//! definition dominates the uses; operands have the class that the instruction expects; an
//! instruction that overwrites an operand has a tied operand; jumps pass an argument to each
//! parameter.

use super::op::OperandKind;
use super::{Base, Block, Function, Inst, Mem, Op, Operand, Reg, Terminator};
use crate::cfg::{Cfg, Flow};
use crate::codegen::cpu::wide::machine::Class;
use iced_x86::Code;

/// The jumps of a function.
struct Jumps<'a> {
    function: &'a Function,
    layout: Vec<Block>,
}

impl Flow for Jumps<'_> {
    type Block = Block;

    fn layout(&self) -> &[Block] {
        &self.layout
    }

    fn targets(&self, block: Block) -> Vec<Block> {
        self.function.blocks[block.as_u32() as usize].end.targets().iter().map(|t| t.block).collect()
    }
}

/// Verifies a function.
///
/// # Errors
/// The first violation, with its block.
pub(in super::super) fn verify(function: &Function) -> Result<(), String> {
    let layout: Vec<Block> = function.named_blocks().map(|(b, _)| b).collect();
    let Some(entry) = function.blocks.first() else { return Err("the function has no block".into()) };
    if !entry.params.is_empty() {
        return Err("the entry block has parameters".into());
    }
    // Definition of each register: the block, and the number of instructions before it.
    let mut written: Vec<Option<(Block, usize)>> = vec![None; function.classes.len()];
    for (b, block) in function.named_blocks() {
        let params = block.params.iter().map(|r| (*r, 0));
        let results = block.insts.iter().enumerate().filter_map(|(n, i)| i.dst.map(|r| (r, n + 1)));
        for (r, n) in params.chain(results) {
            let place = written.get_mut(r.index()).ok_or_else(|| format!("{r} has no class"))?;
            if place.replace((b, n)).is_some() {
                return Err(format!("{r} is written twice"));
            }
        }
        if let Some(t) = block.end.targets().iter().find(|t| !layout.contains(&t.block)) {
            return Err(format!("{b}: there is no block {}", t.block));
        }
    }
    let cfg = Cfg::new(&Jumps { function, layout });
    for (b, block) in function.named_blocks() {
        let read = |r: Reg, n: usize| match written.get(r.index()).copied().flatten() {
            Some((w, m)) if w == b && m <= n || w != b && cfg.dominates(w, b) => Ok(()),
            _ => Err(format!("{b}: {r} is read before it is written")),
        };
        for (n, inst) in block.insts.iter().enumerate() {
            inst.reads().try_for_each(|r| read(r, n))?;
            instruction(function, inst).map_err(|complaint| format!("{b}: {}: {complaint}", inst.op.name()))?;
        }
        let n = block.insts.len();
        if let Terminator::Branch { compare, .. } = &block.end {
            compare.reads().try_for_each(|r| read(r, n))?;
            instruction(function, compare).map_err(|complaint| format!("{b}: branch: {complaint}"))?;
            if !matches!(compare.op, Op::Compare | Op::CompareImm) {
                return Err(format!("{b}: the condition of a branch is not a comparison"));
            }
        }
        for target in block.end.targets() {
            let params = &function.blocks[target.block.as_u32() as usize].params;
            let classes = |all: &[Reg]| all.iter().map(|r| function.class(*r)).collect::<Vec<_>>();
            target.args.iter().try_for_each(|r| read(*r, n))?;
            if classes(params) != classes(&target.args) {
                return Err(format!("{b}: {} expects other arguments", target.block));
            }
        }
    }
    Ok(())
}

fn instruction(function: &Function, inst: &Inst) -> Result<(), String> {
    let (op, wide) = (inst.op, function.wide());
    if op.code(function.width) == Code::INVALID {
        return Err(format!("the instruction does not exist at {}", function.width.name()));
    }
    let is = |r: Reg, class: Class| match function.class(r) == class {
        true => Ok(()),
        false => Err(format!("{r} is not a {} register", class.name())),
    };
    let memory = |m: &Mem| {
        if let Some((_, scale)) = m.index
            && !matches!(scale, 1 | 2 | 4 | 8)
        {
            return Err(format!("invalid scale of an index: {scale}"));
        }
        if let Base::Pool(n) = m.base
            && (n as usize >= function.pool.len() || m.index.is_some() || m.offset != 0)
        {
            return Err("a constant is out of range".to_string());
        }
        m.regs().try_for_each(|r| is(r, Class::General))
    };
    // The memory form of the conversion to `f16` has no result.
    let to_memory = op == Op::ToHalf && inst.dst.is_none();
    match (op.result(wide), inst.dst) {
        (Some(class), Some(dst)) => is(dst, class)?,
        (None, None) => {}
        (Some(_), None) if to_memory => {}
        _ => return Err("its result is missing or unexpected".into()),
    }
    match (op.is_tied(), inst.tied, op.result(wide)) {
        (false, None, _) => {}
        (true, Some(r), Some(class)) => is(r, class)?,
        _ => return Err("a tied operand is missing or unexpected".into()),
    }
    let place = to_memory.then_some(&OperandKind::Memory);
    let mut takes = place.into_iter().chain(op.signature().0.iter().filter(|kind| **kind != OperandKind::Tied));
    for src in &inst.srcs {
        let kind = takes.next().ok_or("it has too many operands")?;
        match (src, kind) {
            (Operand::Imm(_), OperandKind::Number) => {}
            (Operand::Mem(m), kind) if *kind != OperandKind::Number => memory(m)?,
            (Operand::Reg(r), kind) => {
                is(*r, kind.class(wide).ok_or_else(|| format!("{r} is not a {}", kind.name()))?)?
            }
            _ => return Err(format!("{src:?} is not a {}", kind.name())),
        }
    }
    // With AVX-512 the mask is a separate field.
    if takes.any(|kind| *kind != OperandKind::Lanes || !wide) {
        return Err("operands are missing".into());
    }
    if let Some((k, _)) = inst.mask {
        is(k, Class::Mask)?;
        if !wide {
            return Err("masks require AVX-512".into());
        }
    }
    Ok(())
}
