//! An emulator for AMX leaves: tests their results on machines without AMX, and counts loads.
//!
//! In: code that uses the instructions of `amx`, memory as regions with addresses. Out: the final
//! memory, and counts: tile products, tiles loaded and stored, and misses of a 48 KiB L1 cache. An
//! access outside of the regions is an error, and so is an unknown instruction.

use std::collections::BTreeMap;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// The L1 cache: bytes of a line, sets, ways.
const LINE: u64 = 64;
const SETS: u64 = 64;
const WAYS: usize = 12;
/// Initial stack pointer.
const STACK: u64 = 0x7000_0000;
const STACK_BYTES: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) products: u64,
    pub(super) loads: u64,
    pub(super) stores: u64,
    /// L1 misses of tile loads, in lines.
    pub(super) far_lines: u64,
}

/// Registers and memory of a machine with AMX.
pub(super) struct Emulator {
    general: [u64; 16],
    vectors: BTreeMap<usize, [u8; 64]>,
    masks: [u64; 8],
    tiles: [Vec<[u8; 64]>; 8],
    /// Rows and bytes per row of each tile; all 0 without a configuration.
    shapes: [(usize, usize); 8],
    /// Flags: zero, less (signed), below (unsigned).
    flags: (bool, bool, bool),
    memory: BTreeMap<u64, Vec<u8>>,
    /// Lines of each set, most recently used last.
    cache: Vec<Vec<u64>>,
    pub(super) counts: Counts,
}

impl Emulator {
    /// A machine with these regions of memory.
    pub(super) fn new(regions: Vec<(u64, Vec<u8>)>) -> Emulator {
        let mut memory: BTreeMap<u64, Vec<u8>> = regions.into_iter().collect();
        memory.insert(STACK - STACK_BYTES, vec![0xa5; usize::try_from(STACK_BYTES).expect("a size")]);
        Emulator {
            general: [0; 16],
            vectors: BTreeMap::new(),
            masks: [0; 8],
            tiles: std::array::from_fn(|_| Vec::new()),
            shapes: [(0, 0); 8],
            flags: (false, false, false),
            memory,
            cache: vec![Vec::new(); usize::try_from(SETS).expect("a size")],
            counts: Counts::default(),
        }
    }

    /// The contents of the region that begins at `start`.
    pub(super) fn region(&self, start: u64) -> &[u8] {
        &self.memory[&start]
    }

    /// Calls a leaf; `words` is the address of the arguments.
    pub(super) fn call(&mut self, code: &[u8], words: u64) {
        self.general[7] = words;
        self.general[4] = STACK - 8;
        let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
        let mut known: BTreeMap<u64, Instruction> = BTreeMap::new();
        let mut at = 0;
        loop {
            let i = *known.entry(at).or_insert_with(|| {
                decoder.set_position(usize::try_from(at).expect("a place")).expect("a place in the code");
                decoder.set_ip(at);
                decoder.decode()
            });
            if i.mnemonic() == Mnemonic::Ret {
                assert_eq!(self.general[4], STACK - 8, "the stack pointer is restored");
                return;
            }
            at = self.step(&i).unwrap_or(i.next_ip());
        }
    }

    fn place(&self, at: u64, bytes: usize) -> (u64, usize) {
        let region = self.memory.range(..=at).next_back();
        let inside = region.filter(|(start, all)| usize::try_from(at - **start).expect("a place") + bytes <= all.len());
        let (start, _) = inside.unwrap_or_else(|| panic!("{bytes} bytes at {at:#x} are outside of all regions"));
        (*start, usize::try_from(at - start).expect("a place"))
    }

    fn read(&self, at: u64, bytes: usize) -> &[u8] {
        let (start, offset) = self.place(at, bytes);
        &self.memory[&start][offset..offset + bytes]
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let (start, offset) = self.place(at, bytes.len());
        self.memory.get_mut(&start).expect("a region")[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Accesses a line; was it in the cache?
    fn touch(&mut self, at: u64) -> bool {
        let line = at / LINE;
        let set = &mut self.cache[usize::try_from(line % SETS).expect("a set")];
        let found = set.iter().position(|l| *l == line);
        if let Some(n) = found.or((set.len() == WAYS).then_some(0)) {
            set.remove(n);
        }
        set.push(line);
        found.is_some()
    }

    fn register(&self, r: Register) -> u64 {
        if r == Register::None {
            return 0;
        }
        let all = self.general[r.full_register().number()];
        match r.size() {
            8 => all,
            4 => all & 0xffff_ffff,
            _ => all & 0xff,
        }
    }

    fn address(&self, i: &Instruction) -> u64 {
        let index = self.register(i.memory_index()).wrapping_mul(u64::from(i.memory_index_scale()));
        let start = self.register(i.memory_base()).wrapping_add(i.memory_displacement64());
        // For tiles, the index register is the row stride.
        let of_tiles = matches!(i.mnemonic(), Mnemonic::Tileloadd | Mnemonic::Tilestored);
        if of_tiles { start } else { start.wrapping_add(index) }
    }

    fn operand(&self, i: &Instruction, n: u32) -> u64 {
        match i.op_kind(n) {
            OpKind::Register => self.register(i.op_register(n)),
            OpKind::Memory => {
                let mut bytes = [0; 8];
                let size = i.memory_size().size();
                bytes[..size].copy_from_slice(self.read(self.address(i), size));
                u64::from_le_bytes(bytes)
            }
            _ => i.immediate(n),
        }
    }

    fn set(&mut self, i: &Instruction, value: u64) {
        match i.op0_kind() {
            OpKind::Register => self.general[i.op0_register().full_register().number()] = value,
            _ => {
                let (at, size) = (self.address(i), i.memory_size().size());
                self.write(at, &value.to_le_bytes()[..size]);
            }
        }
    }

    fn vector(&self, r: Register) -> [u8; 64] {
        self.vectors.get(&r.number()).copied().unwrap_or([0xa5; 64])
    }

    /// Executes one instruction; returns the target if it jumps.
    fn step(&mut self, i: &Instruction) -> Option<u64> {
        let holds = |yes: bool| yes.then(|| i.near_branch_target());
        let (zero, less, below) = self.flags;
        let tile = |n: u32| i.op_register(n) as usize - Register::TMM0 as usize;
        match i.mnemonic() {
            Mnemonic::Jmp => return holds(true),
            Mnemonic::Je => return holds(zero),
            Mnemonic::Jne => return holds(!zero),
            Mnemonic::Jl => return holds(less),
            Mnemonic::Jge => return holds(!less),
            Mnemonic::Jle => return holds(less || zero),
            Mnemonic::Jg => return holds(!less && !zero),
            Mnemonic::Push => {
                self.general[4] -= 8;
                self.write(self.general[4], &self.register(i.op0_register()).to_le_bytes());
            }
            Mnemonic::Pop => {
                let bytes = self.read(self.general[4], 8).try_into().expect("eight bytes");
                self.general[i.op0_register().number()] = u64::from_le_bytes(bytes);
                self.general[4] += 8;
            }
            Mnemonic::Mov => self.set(i, self.operand(i, 1)),
            Mnemonic::Lea => self.set(i, self.address(i)),
            Mnemonic::Cmovae if !below => self.set(i, self.operand(i, 1)),
            Mnemonic::Cmovg if !less && !zero => self.set(i, self.operand(i, 1)),
            Mnemonic::Cmovae | Mnemonic::Cmovg => {}
            Mnemonic::Imul => self.set(i, self.operand(i, 1).wrapping_mul(self.operand(i, 2))),
            Mnemonic::Cmp | Mnemonic::Sub => {
                let (a, b) = (self.operand(i, 0), self.operand(i, 1));
                self.flags = (a == b, a.cast_signed() < b.cast_signed(), a < b);
                if i.mnemonic() == Mnemonic::Sub {
                    self.set(i, a.wrapping_sub(b));
                }
            }
            Mnemonic::Add | Mnemonic::And | Mnemonic::Test | Mnemonic::Shl | Mnemonic::Shr => {
                let (a, b) = (self.operand(i, 0), self.operand(i, 1));
                let x = match i.mnemonic() {
                    Mnemonic::Add => a.wrapping_add(b),
                    Mnemonic::Shl => a << (b & 63),
                    Mnemonic::Shr => a >> (b & 63),
                    _ => a & b,
                };
                self.flags = (x == 0, x.cast_signed() < 0, false);
                if i.mnemonic() != Mnemonic::Test {
                    self.set(i, x);
                }
            }
            Mnemonic::Prefetcht0 | Mnemonic::Vzeroupper => {}
            Mnemonic::Kmovd => self.masks[i.op0_register().number()] = self.operand(i, 1),
            Mnemonic::Vpxord => {
                assert!(i.op1_register() == i.op2_register(), "zeros are made so");
                self.vectors.insert(i.op0_register().number(), [0; 64]);
            }
            Mnemonic::Vmovups | Mnemonic::Vmovdqu16 => self.vector_move(i),
            Mnemonic::Vaddps => {
                let (mut x, y) = (self.vector(i.op1_register()), self.read(self.address(i), 64).to_vec());
                for (x, y) in x.chunks_mut(4).zip(y.chunks(4)) {
                    x.copy_from_slice(&(float(x) + float(y)).to_le_bytes());
                }
                self.vectors.insert(i.op0_register().number(), x);
            }
            Mnemonic::Ldtilecfg => {
                let config = self.read(self.address(i), 64).to_vec();
                assert!(config[0] == 1 && config[1..16].iter().all(|b| *b == 0), "the first palette");
                for n in 0..8 {
                    let bytes = u16::from_le_bytes([config[16 + 2 * n], config[17 + 2 * n]]);
                    self.shapes[n] = (usize::from(config[48 + n]), usize::from(bytes));
                    assert!(
                        (1..=16).contains(&self.shapes[n].0) && (4..=64).contains(&bytes) && bytes.is_multiple_of(4)
                    );
                    self.tiles[n] = vec![[0; 64]; 16];
                }
            }
            Mnemonic::Tilerelease => self.shapes = [(0, 0); 8],
            Mnemonic::Tilezero => self.tiles[tile(0)] = vec![[0; 64]; 16],
            Mnemonic::Tileloadd => {
                self.counts.loads += 1;
                let (rows, bytes) = self.shape(tile(0));
                let mut to = vec![[0; 64]; 16];
                for (at, row) in self.rows(i, rows).zip(&mut to) {
                    row[..bytes].copy_from_slice(self.read(at, bytes));
                    let first = at / LINE;
                    let last = (at + bytes as u64 - 1) / LINE;
                    for line in first..=last {
                        self.counts.far_lines += u64::from(!self.touch(line * LINE));
                    }
                }
                self.tiles[tile(0)] = to;
            }
            Mnemonic::Tilestored => {
                self.counts.stores += 1;
                let (rows, bytes) = self.shape(tile(1));
                let from = self.tiles[tile(1)].clone();
                for (at, row) in self.rows(i, rows).zip(&from) {
                    self.write(at, &row[..bytes]);
                    self.touch(at);
                }
            }
            Mnemonic::Tdpbf16ps => self.product(tile(0), tile(1), tile(2)),
            _ => panic!("the emulator does not know {:?}", i.mnemonic()),
        }
        None
    }

    /// Rows and bytes per row of a configured tile.
    fn shape(&self, tile: usize) -> (usize, usize) {
        assert!(self.shapes[tile].0 > 0, "tile {tile} has no configuration");
        self.shapes[tile]
    }

    /// Addresses of the rows of a tile operand.
    fn rows(&self, i: &Instruction, rows: usize) -> impl Iterator<Item = u64> + use<> {
        let (start, stride) = (self.address(i), self.register(i.memory_index()));
        (0..rows as u64).map(move |n| start.wrapping_add(n.wrapping_mul(stride)))
    }

    fn vector_move(&mut self, i: &Instruction) {
        let at = self.address(i);
        if i.op0_kind() == OpKind::Memory {
            return self.write(at, &self.vector(i.op1_register()));
        }
        let mut x = [0; 64];
        if i.code() == Code::EVEX_Vmovdqu16_zmm_k1z_zmmm512 {
            let mask = self.masks[i.op_mask().number()];
            for n in (0..32).filter(|n| mask >> n & 1 == 1) {
                let element: Vec<u8> = self.read(at + 2 * n as u64, 2).to_vec();
                x[2 * n..2 * n + 2].copy_from_slice(&element);
            }
        } else {
            x.copy_from_slice(self.read(at, 64));
        }
        self.vectors.insert(i.op0_register().number(), x);
    }

    /// Intel's definition: two FMA chains from 0, over the even and the odd steps, whose sum is
    /// added.
    fn product(&mut self, sums: usize, left: usize, right: usize) {
        self.counts.products += 1;
        let ((rows, bytes), (left_rows, steps), (pairs, columns)) =
            (self.shape(sums), self.shape(left), self.shape(right));
        assert!(rows == left_rows && bytes == columns && steps == 4 * pairs, "tile shapes do not match");
        let (a, b) = (self.tiles[left].clone(), self.tiles[right].clone());
        let short = |row: &[u8; 64], n: usize| {
            f32::from_bits(u32::from(u16::from_le_bytes([row[2 * n], row[2 * n + 1]])) << 16)
        };
        for (to, a) in self.tiles[sums].iter_mut().zip(&a).take(rows) {
            for n in 0..bytes / 4 {
                let chain = |odd: usize| {
                    let all = b.iter().take(pairs).enumerate();
                    all.fold(0.0, |x: f32, (k, b)| short(a, 2 * k + odd).mul_add(short(b, 2 * n + odd), x))
                };
                let x = float(&to[4 * n..4 * n + 4]) + (chain(0) + chain(1));
                to[4 * n..4 * n + 4].copy_from_slice(&x.to_le_bytes());
            }
        }
    }
}

fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes.try_into().expect("four bytes"))
}
