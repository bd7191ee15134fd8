//! Plans and kernels of the toy model, as code generation would make them: pointers and loops, nothing else.
//!
//! Compiled by rustc to an object file when the tests run (see `toy.rs`).

#![no_std]

#[path = "../../src/runtime/abi.rs"]
mod abi;

use abi::PlanContext;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Elements of an axis that is fixed in the toy model.
const D: usize = 4;

unsafe fn launch(ctx: *mut PlanContext, kernel: abi::Kernel, args: &[u64], total: i64) -> i32 {
    match (*ctx).launch {
        // So large that every thread takes part; nothing follows.
        Some(launch) => launch(ctx, kernel, args.as_ptr(), total, i64::MAX, core::ptr::null(), 0),
        None => 1,
    }
}

/// y = x * scale + bias[0] + bias[1] + bias[2]; the tap is what has been added up after each bias.
unsafe extern "C" fn scale_kernel(args: *const u64, start: i64, end: i64, scratch: *mut u8, _: *mut PlanContext) {
    let x = *args as *const f32;
    let y = *args.add(1) as *mut f32;
    let params = *args.add(2) as *const *const *const u8;
    let tap = *args.add(3) as *mut f32;
    let rows = *args.add(4) as usize;
    let scale = *(*params) as *const f32;
    let biases = *params.add(1);
    let row = scratch as *mut f32;
    let mut i = start as usize;
    while i < end as usize {
        let mut j = 0;
        while j < D {
            *row.add(j) = *x.add(i * D + j) * *scale.add(j);
            j += 1;
        }
        let mut h = 0;
        while h < 3 {
            let bias = *biases.add(h) as *const f32;
            j = 0;
            while j < D {
                *row.add(j) += *bias.add(j);
                if !tap.is_null() {
                    *tap.add((h * rows + i) * D + j) = *row.add(j);
                }
                j += 1;
            }
            h += 1;
        }
        j = 0;
        while j < D {
            *y.add(i * D + j) = *row.add(j);
            j += 1;
        }
        i += 1;
    }
}

/// Is a pointer what generated code takes for granted: not null, and aligned to elements of so many bytes?
unsafe fn is_placed(pointer: *const u8, size: usize) -> bool {
    !pointer.is_null() && pointer as usize % size == 0
}

unsafe fn scale_with(ctx: *mut PlanContext, tap: *mut u8) -> i32 {
    let bias = *(*ctx).params.add(1);
    let parameters = is_placed(**(*ctx).params, 4) && is_placed(*bias, 4) && is_placed(*bias.add(2), 4);
    if !(parameters && is_placed(*(*ctx).args, 4) && is_placed(*(*ctx).outs, 4)) {
        return 1;
    }
    // dims: the batch, S.
    let rows = *(*ctx).dims * *(*ctx).dims.add(1);
    let args = [*(*ctx).args as u64, *(*ctx).outs as u64, (*ctx).params as u64, tap as u64, rows as u64];
    launch(ctx, scale_kernel, &args, rows)
}

#[no_mangle]
unsafe extern "C" fn toy_scale(ctx: *mut PlanContext) -> i32 {
    scale_with(ctx, core::ptr::null_mut())
}

#[no_mangle]
unsafe extern "C" fn toy_scale_tapped(ctx: *mut PlanContext) -> i32 {
    // The flags come after the only tap.
    let flags = *(*ctx).taps.add(1);
    let mut h = 0;
    while h < 3 {
        *flags.add(h) = 1;
        h += 1;
    }
    scale_with(ctx, *(*ctx).taps)
}

/// y[i] = table[tokens[i]]
unsafe extern "C" fn gather_kernel(args: *const u64, start: i64, end: i64, _: *mut u8, ctx: *mut PlanContext) {
    let tokens = *args as *const i32;
    let y = *args.add(1) as *mut f32;
    let table = *args.add(2) as *const f32;
    let mut i = start as usize;
    while i < end as usize {
        let token = *tokens.add(i);
        if token < 0 || token >= 5 {
            if let Some(fail) = (*ctx).fail {
                fail(ctx, 0, token as i64, 5, i as i64);
            }
            return;
        }
        let mut j = 0;
        while j < D {
            *y.add(i * D + j) = *table.add(token as usize * D + j);
            j += 1;
        }
        i += 1;
    }
}

#[no_mangle]
unsafe extern "C" fn toy_gather(ctx: *mut PlanContext) -> i32 {
    let table = *(*(*ctx).params.add(2));
    let args = [*(*ctx).args as u64, *(*ctx).outs as u64, table as u64];
    launch(ctx, gather_kernel, &args, *(*ctx).dims)
}

/// x: f32[S], y: f32[2*S + 1] -> (f32[S], i64[S + 1], bool[]): x + y[..S] by way of the arena, 0..=S, S == 0.
#[no_mangle]
unsafe extern "C" fn toy_pair(ctx: *mut PlanContext) -> i32 {
    let s = *(*ctx).dims as usize;
    let x = *(*ctx).args as *const f32;
    let y = *(*ctx).args.add(1) as *const f32;
    let arena = (*ctx).arena as *mut f32;
    let (args, outs) = ((*ctx).args, (*ctx).outs);
    if !(is_placed(*args.add(1), 4) && is_placed(*outs, 4) && is_placed(*outs.add(1), 8)) {
        return 1;
    }
    let (a, b, c) = (*(*ctx).outs as *mut f32, *(*ctx).outs.add(1) as *mut i64, *(*ctx).outs.add(2));
    let mut i = 0;
    while i < s {
        *arena.add(i) = *y.add(i);
        i += 1;
    }
    i = 0;
    while i < s {
        *a.add(i) = *x.add(i) + *arena.add(i);
        i += 1;
    }
    i = 0;
    while i <= s {
        *b.add(i) = i as i64;
        i += 1;
    }
    *c = (s == 0) as u8;
    0
}

/// Copies each argument to the result of the same index; sizes of elements by index.
#[no_mangle]
unsafe extern "C" fn toy_copy(ctx: *mut PlanContext) -> i32 {
    let sizes = [2usize, 2, 1, 8, 1];
    let s = *(*ctx).dims as usize;
    let mut t = 0;
    while t < 5 {
        let size = *sizes.as_ptr().add(t);
        let (from, to) = (*(*ctx).args.add(t), *(*ctx).outs.add(t));
        let mut i = 0;
        while i < s * size {
            *to.add(i) = *from.add(i);
            i += 1;
        }
        t += 1;
    }
    0
}

/// x, y: f32[.., D] -> x + y
#[no_mangle]
unsafe extern "C" fn toy_add(ctx: *mut PlanContext) -> i32 {
    let (x, y) = (*(*ctx).args as *const f32, *(*ctx).args.add(1) as *const f32);
    let z = *(*ctx).outs as *mut f32;
    let mut i = 0;
    while i < *(*ctx).dims as usize * D {
        *z.add(i) = *x.add(i) + *y.add(i);
        i += 1;
    }
    0
}

/// x: f32[S] -> x
#[no_mangle]
unsafe extern "C" fn toy_same(ctx: *mut PlanContext) -> i32 {
    let (x, y) = (*(*ctx).args as *const f32, *(*ctx).outs as *mut f32);
    let mut i = 0;
    while i < *(*ctx).dims as usize {
        *y.add(i) = *x.add(i);
        i += 1;
    }
    0
}

/// x, y: f32[.., D] -> x - y
#[no_mangle]
unsafe extern "C" fn toy_subtract(ctx: *mut PlanContext) -> i32 {
    let (x, y) = (*(*ctx).args as *const f32, *(*ctx).args.add(1) as *const f32);
    let z = *(*ctx).outs as *mut f32;
    let mut i = 0;
    while i < *(*ctx).dims as usize * D {
        *z.add(i) = *x.add(i) - *y.add(i);
        i += 1;
    }
    0
}

/// States i32[2], i64[3], i32[5]: each element is counted up; gives the sum of each state.
#[no_mangle]
unsafe extern "C" fn toy_states(ctx: *mut PlanContext) -> i32 {
    let (a, b) = (*(*ctx).states as *mut i32, *(*ctx).states.add(1) as *mut i64);
    let (c, y) = (*(*ctx).states.add(2) as *mut i32, *(*ctx).outs as *mut i64);
    let (mut first, mut second, mut third) = (0, 0, 0);
    let mut i = 0;
    while i < 5 {
        if i < 2 {
            *a.add(i) += 1;
            first += *a.add(i) as i64;
        }
        if i < 3 {
            *b.add(i) += 1;
            second += *b.add(i);
        }
        *c.add(i) += 1;
        third += *c.add(i) as i64;
        i += 1;
    }
    *y = first;
    *y.add(1) = second;
    *y.add(2) = third;
    0
}

unsafe extern "C" fn product_kernel(args: *const u64, start: i64, end: i64, scratch: *mut u8, _: *mut PlanContext) {
    let (x, y, z) = (*args as *const f32, *args.add(1) as *const f32, *args.add(2) as *mut f32);
    let mark = scratch as *mut i64;
    let mut i = start;
    while i < end {
        // Scratch is this thread's own: what another writes meanwhile would be seen.
        core::ptr::write_volatile(mark, i);
        core::ptr::write_volatile(mark.add(1), -i);
        let product = *x.add(i as usize) * *y.add(i as usize);
        let mut wait = 0;
        while wait < 20 {
            core::hint::spin_loop();
            wait += 1;
        }
        let own = core::ptr::read_volatile(mark) == i && core::ptr::read_volatile(mark.add(1)) == -i;
        *z.add(i as usize) = if own { product } else { -1.0 };
        i += 1;
    }
}

/// x, y: f32[S] -> x * y, by all threads.
#[no_mangle]
unsafe extern "C" fn toy_product(ctx: *mut PlanContext) -> i32 {
    let args = [*(*ctx).args as u64, *(*ctx).args.add(1) as u64, *(*ctx).outs as u64];
    launch(ctx, product_kernel, &args, *(*ctx).dims)
}

unsafe extern "C" fn failing_kernel(args: *const u64, start: i64, end: i64, _: *mut u8, ctx: *mut PlanContext) {
    let mut i = start;
    while i < end {
        if i % 1000 == 7 {
            // Others report before the first does.
            let mut wait = 0;
            while i == 7 && wait < 100_000 {
                core::hint::spin_loop();
                wait += 1;
            }
            if let Some(fail) = (*ctx).fail {
                fail(ctx, 0, i, 20, 30);
                fail(ctx, 0, -1, -2, -3);
            }
            return;
        }
        i += 1;
    }
    let _ = args;
}

unsafe extern "C" fn counting_kernel(args: *const u64, start: i64, end: i64, _: *mut u8, _: *mut PlanContext) {
    let count = &*(*args as *const core::sync::atomic::AtomicI32);
    count.fetch_add((end - start) as i32, core::sync::atomic::Ordering::Relaxed);
}

/// x: f32[S] -> i32[]; a kernel that reports, and one after it that must not run: it would count into the state.
#[no_mangle]
unsafe extern "C" fn toy_failing(ctx: *mut PlanContext) -> i32 {
    let args = [*(*ctx).states as u64];
    *(*(*ctx).outs as *mut i32) = *(*(*ctx).states as *const i32);
    let first = launch(ctx, failing_kernel, &args, *(*ctx).dims);
    let second = launch(ctx, counting_kernel, &args, *(*ctx).dims);
    first | second
}

/// p: bool[4] -> i32[4]: the bytes of the parameter.
#[no_mangle]
unsafe extern "C" fn toy_truths(ctx: *mut PlanContext) -> i32 {
    let (p, y) = (**(*ctx).params, *(*ctx).outs as *mut i32);
    let mut i = 0;
    while i < 4 {
        *y.add(i) = *p.add(i) as i32;
        i += 1;
    }
    0
}

extern "C" {
    fn usleep(microseconds: u32) -> i32;
}

unsafe extern "C" fn wait_kernel(args: *const u64, _: i64, _: i64, _: *mut u8, _: *mut PlanContext) {
    usleep(10_000);
    *(*args as *mut i32) += 1;
}

/// n launches that take a hundredth of a second each; gives how many there were.
#[no_mangle]
unsafe extern "C" fn toy_wait(ctx: *mut PlanContext) -> i32 {
    let n = **((*ctx).args as *const *const i64);
    let count = *(*ctx).outs as *mut i32;
    *count = 0;
    let args = [count as u64];
    let mut i = 0;
    while i < n {
        let failed = launch(ctx, wait_kernel, &args, 1);
        if failed != 0 {
            return failed;
        }
        i += 1;
    }
    0
}

/// Nothing.
#[no_mangle]
unsafe extern "C" fn toy_nothing(_: *mut PlanContext) -> i32 {
    0
}

/// x: f32[S] -> x by way of the end of an arena of S MiB, and as a tap.
#[no_mangle]
unsafe extern "C" fn toy_arena(ctx: *mut PlanContext) -> i32 {
    let rows = *(*ctx).dims as usize;
    let (x, y, tap) = (*(*ctx).args as *const f32, *(*ctx).outs as *mut f32, *(*ctx).taps as *mut f32);
    let mut i = 0;
    while i < rows {
        // The last four bytes of each MiB.
        let place = (*ctx).arena.add((i + 1) * (1 << 20) - 4) as *mut f32;
        *place = *x.add(i);
        *y.add(i) = *place;
        *tap.add(i) = *place;
        i += 1;
    }
    0
}

/// Counts the calls of the session.
#[no_mangle]
unsafe extern "C" fn toy_count(ctx: *mut PlanContext) -> i32 {
    let n = *(*ctx).states as *mut i32;
    *n += 1;
    *(*(*ctx).outs as *mut i32) = *n;
    0
}

/// Packs the sum of the table; checks that nothing else is there yet.
#[no_mangle]
unsafe extern "C" fn toy_prepare(ctx: *mut PlanContext) -> i32 {
    let table = *(*(*ctx).params.add(2)) as *const f32;
    let mut sum = 0.0;
    let mut i = 0;
    while i < 5 * D {
        sum += *table.add(i);
        i += 1;
    }
    *((*ctx).packed as *mut f32) = sum;
    0
}

#[no_mangle]
unsafe extern "C" fn toy_packed(ctx: *mut PlanContext) -> i32 {
    *(*(*ctx).outs as *mut f32) = *((*ctx).packed as *const f32);
    0
}
