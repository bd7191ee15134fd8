//! The conditions of hoist-products, one by one, and random loops: what is multiplied before the loop gives the same bits.

use attnc::passes::Float;
use attnc::random::Random;

use crate::values::{becomes, keeps, stays};

const STRICT: Float = Float::Strict;
/// What does not change stands before the loop when the pass comes.
const PASS: &str = "licm,hoist-products";

/// Rows of x, by the counter, times w; what the loop is, in parts that a case replaces.
struct Case {
    x: &'static str,
    /// Before the loop.
    first: String,
    /// The counter starts there, and is compared with this.
    start: &'static str,
    end: &'static str,
    /// In the loop: makes `%50`.
    lines: String,
    /// Between the loop's body and its jump back; makes `%62` of `%50` and the product of the state `%60`.
    last: String,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            x: "f32[S, B, 3]",
            first: String::new(),
            start: "0",
            end: "dim S",
            lines: ROW_AND_PRODUCT.to_string(),
            last: "  %61 = add %50, %60 : f32[B, 4]\n  %62 = tanh %61 : f32[B, 4]\n".to_string(),
        }
    }
}

const ROW: &str = "  %9 = index %0, %6, axis=0 : f32[B, 3]\n";
const ROW_AND_PRODUCT: &str =
    "  %9 = index %0, %6, axis=0 : f32[B, 3]\n  %10 = matmul %9, %2 : f32[B, 4]\n  %50 = add %10, %4 : f32[B, 4]\n";
/// What is left of it.
const HOISTED: &str = "dim matmul add lt index matmul add tanh add";

impl Case {
    fn text(&self) -> String {
        format!(
            "func @f(%0 \"x\": {}, %1 \"h\": f32[B, 4], %2 \"w\": f32[3, 4], %3 \"u\": f32[4, 4], %4 \"b\": f32[4], %90 \"n\": i32[], \
             %91 \"table\": f32[4, 3], %92 \"words\": i32[S, B]) -> (f32[B, 4]) {{\n^bb0:\n  %5 = {} : index\n{}  br ^bb1({}, %1)\n\
             ^bb1(%6: index, %7: f32[B, 4]):\n  %8 = lt %6, %5 : bool[]\n  br_if %8, ^bb2, ^bb3\n^bb2:\n{}\
             \n  %60 = matmul %7, %3 : f32[B, 4]\n{}  %63 = add %6, 1 : index\n  br ^bb1(%63, %62)\n^bb3:\n  return %7\n}}\n",
            self.x, self.end, self.first, self.start, self.lines, self.last
        )
    }

    fn becomes(&self, left: &str) {
        becomes(PASS, STRICT, &self.text(), left);
    }

    fn stays(&self) {
        stays(PASS, STRICT, &self.text());
    }
}

fn lines(text: &str) -> Case {
    Case { lines: text.to_string(), ..Case::default() }
}

#[test]
fn rows_by_the_counter() {
    Case::default().becomes(HOISTED);
    // Along another axis, and as a window of one row.
    let product = "  %10 = matmul %9, %2 : f32[B, 4]\n  %50 = add %10, %4 : f32[B, 4]\n";
    let along = format!("  %9 = index %0, %6, axis=1 : f32[B, 3]\n{product}");
    Case { x: "f32[B, S, 3]", ..lines(&along) }.becomes("dim transpose matmul add lt index matmul add tanh add");
    let window = "  %9 = extract %0, %6, axes=[0] : f32[1, B, 3]\n  %10 = matmul %9, %2 : f32[1, B, 4]\n  %11 = add %10, %4 : f32[1, B, 4]\n\
                  \n  %50 = reshape %11 : f32[B, 4]\n";
    lines(window).becomes("dim reshape matmul add reshape lt extract reshape matmul add tanh add");
    // Backwards; rows behind the counter, of which there is one more.
    let behind = |at: &str| format!("  %20 = {at} : index\n  %9 = index %0, %20, axis=0 : f32[B, 3]\n{product}");
    let last = "  %21 = dim S - 1 : index\n";
    Case { first: last.to_string(), ..lines(&behind("sub %21, %6")) }
        .becomes("dim dim matmul add lt sub index matmul add tanh add");
    Case { end: "dim S - 1", ..lines(&behind("add %6, 1")) }.becomes("dim matmul add lt add index matmul add tanh add");
    Case { start: "1", ..lines(&behind("sub %6, 1")) }.becomes("dim matmul add lt sub index matmul add tanh add");
    // By the element of a list that counts, as `x[S - 1 - t]` is written.
    let counted = "  %22 = iota axis=0 : i32[S]\n";
    let by_list = format!(
        "  %23 = index %22, %6, axis=0 : i32[]\n  %20 = sub %90, %23 : i32[]\n  %9 = index %0, %20, axis=0 : f32[B, 3]\n{product}"
    );
    Case { first: counted.to_string(), ..lines(&by_list) }
        .becomes("dim iota matmul add lt index sub index matmul add tanh add");
}

#[test]
fn what_goes_along() {
    let with = |before: &str, after: &str| lines(&format!("{ROW}{before}{after}"));
    let product = "  %10 = matmul %12, %2 : f32[B, 4]\n  %50 = add %10, %4 : f32[B, 4]\n";
    with("  %12 = exp %9 : f32[B, 3]\n", product).becomes("dim exp matmul add lt index matmul add tanh add");
    with("  %12 = mul %9, 2.0 : f32[B, 3]\n", product).becomes("dim mul matmul add lt index matmul add tanh add");
    let wide = "  %11 = slice %9, axis=1, start=1, stop=4 : f32[B, 3]\n  %10 = matmul %11, %2 : f32[B, 4]\n  %50 = add %10, %4 : f32[B, 4]\n";
    Case { x: "f32[S, B, 5]", ..lines(&format!("  %9 = index %0, %6, axis=0 : f32[B, 5]\n{wide}")) }
        .becomes("dim slice matmul add lt index matmul add tanh add");
    let turned = "  %9 = index %0, %6, axis=0 : f32[3, B]\n  %12 = transpose %9, perm=[1, 0] : f32[B, 3]\n";
    Case { x: "f32[S, 3, B]", ..lines(&format!("{turned}{product}")) }
        .becomes("dim transpose matmul add lt index matmul add tanh add");
    let vector = "  %9 = index %0, %6, axis=0 : f32[3]\n  %12 = reshape %9 : f32[1, 3]\n  %10 = matmul %12, %2 : f32[1, 4]\n\
                  \n  %13 = reshape %10 : f32[4]\n  %50 = add %13, %4 : f32[4]\n";
    Case { x: "f32[S, 3]", ..lines(vector) }.becomes("dim reshape matmul reshape add lt index matmul add tanh add");
    // Two products, one after another: what is between them goes along too.
    let two = "  %10 = matmul %9, %2 : f32[B, 4]\n  %11 = tanh %10 : f32[B, 4]\n  %50 = matmul %11, %3 : f32[B, 4]\n";
    with("", two).becomes("dim matmul tanh matmul lt index matmul add tanh add");
    // What is used twice is kept as it is, and only that.
    let twice =
        "  %10 = matmul %9, %2 : f32[B, 4]\n  %11 = sigmoid %10 : f32[B, 4]\n  %50 = mul %10, %11 : f32[B, 4]\n";
    with("", twice).becomes("dim matmul lt index sigmoid mul matmul add tanh add");
    let both = "  %10 = matmul %9, %2 : f32[B, 4]\n  %11 = matmul %9, %2 : f32[B, 4]\n  %12 = mul %7, %10 : f32[B, 4]\n  %50 = add %11, %12 : f32[B, 4]\n";
    with("", both).becomes("dim matmul matmul lt index index mul add matmul add tanh add");
}

#[test]
fn loops_that_may_not_come_to_all_rows() {
    let product = "  %10 = matmul %9, %2 : f32[B, 4]\n  %50 = add %10, %4 : f32[B, 4]\n";
    // The same row in each iteration, a row by an argument, fewer iterations than rows.
    let by = |at: &str| lines(&format!("  %9 = index %0, {at}, axis=0 : f32[B, 3]\n{product}"));
    by("%90").stays();
    Case { first: "  %20 = dim S - 1 : index\n".to_string(), ..by("%20") }.stays();
    Case { end: "dim B", ..Case::default() }.stays();
    let twice = format!("  %20 = mul %6, 1 : index\n  %9 = index %0, %20, axis=0 : f32[B, 3]\n{product}");
    lines(&twice).stays();
    // A loop that is left in the middle.
    let broken = Case::default().text().replace(
        "  %60 = ",
        "  %55 = index %92, %6, axis=0 : i32[B]\n  %56 = reduce_max %55, axes=[0] : i32[]\n  %57 = lt %90, %56 : bool[]\n  br_if %57, ^bb3, ^bb4\n^bb4:\n  %60 = ",
    );
    stays(PASS, STRICT, &broken);
    // A product in one way alone.
    let sometimes = "func @f(%0 \"x\": f32[S, B, 3], %1 \"h\": f32[B, 4], %2 \"w\": f32[3, 4], %3 \"c\": bool[S]) -> (f32[B, 4]) {\n\
        ^bb0:\n  %5 = dim S : index\n  br ^bb1(0, %1)\n^bb1(%6: index, %7: f32[B, 4]):\n  %8 = lt %6, %5 : bool[]\n  br_if %8, ^bb2, ^bb5\n\
        ^bb2:\n  %9 = index %3, %6, axis=0 : bool[]\n  br_if %9, ^bb3, ^bb4(%7)\n^bb3:\n  %10 = index %0, %6, axis=0 : f32[B, 3]\n\
        \n  %11 = matmul %10, %2 : f32[B, 4]\n  %12 = sub %11, %7 : f32[B, 4]\n  br ^bb4(%12)\n^bb4(%13: f32[B, 4]):\n  %14 = add %6, 1 : index\n\
        \n  br ^bb1(%14, %13)\n^bb5:\n  return %7\n}\n";
    stays(PASS, STRICT, sometimes);
}

#[test]
fn operands_that_change_or_are_wide() {
    let with = |text: &str| lines(&format!("{ROW}{text}"));
    // The left operand has something of the state in it; the right one has.
    with("  %11 = reduce_sum %7, axes=[1], keep=true : f32[B, 1]\n  %12 = add %9, %11 : f32[B, 3]\n  %50 = matmul %12, %2 : f32[B, 4]\n").stays();
    let right = "  %11 = slice %60, axis=0, start=0, stop=3 : f32[3, 4]\n";
    let state = Case::default()
        .text()
        .replace("[B, 4]", "[4, 4]")
        .replace("[S, B, 3]", "[S, 4, 3]")
        .replace("[B, 3]", "[4, 3]");
    let changed = state
        .replace("matmul %9, %2", "matmul %9, %11")
        .replace("  %10 = ", &format!("  %65 = exp %7 : f32[4, 4]\n{}  %10 = ", right.replace("%60", "%65")));
    stays(PASS, STRICT, &changed);
    // A row that is reduced, and rows of two places.
    with("  %11 = softmax %9, axis=1 : f32[B, 3]\n  %50 = matmul %11, %2 : f32[B, 4]\n").stays();
    let two = "  %20 = sub %6, 0 : index\n  %21 = index %0, %20, axis=0 : f32[B, 3]\n  %22 = mul %9, %21 : f32[B, 3]\n  %50 = matmul %22, %2 : f32[B, 4]\n";
    with(two).stays();
    // 64 columns for each row, and one more.
    let wide = |columns: i64| {
        format!(
            "func @f(%0 \"x\": f32[S, B, 1], %1 \"h\": f32[B, {columns}], %2 \"w\": f32[1, {columns}]) -> (f32[B, {columns}]) {{\n^bb0:\n\
             \n  %5 = dim S : index\n  br ^bb1(0, %1)\n^bb1(%6: index, %7: f32[B, {columns}]):\n  %8 = lt %6, %5 : bool[]\n  br_if %8, ^bb2, ^bb3\n\
             ^bb2:\n  %9 = index %0, %6, axis=0 : f32[B, 1]\n  %10 = matmul %9, %2 : f32[B, {columns}]\n  %11 = sub %10, %7 : f32[B, {columns}]\n\
             \n  %12 = add %6, 1 : index\n  br ^bb1(%12, %11)\n^bb3:\n  return %7\n}}\n"
        )
    };
    becomes(PASS, STRICT, &wide(64), "dim matmul lt index sub add");
    stays(PASS, STRICT, &wide(65));
}

#[test]
fn words_of_a_table() {
    let gather = "  %20 = index %92, %6, axis=0 : i32[B]\n  %9 = gather %91, %20, axis=0 : f32[B, 3]\n  %10 = matmul %9, %2 : f32[B, 4]\n\
                  \n  %50 = add %10, %4 : f32[B, 4]\n";
    // Integers out of range are errors of the call either way.
    lines(gather).becomes("dim gather matmul add lt index matmul add tanh add");
    keeps(PASS, STRICT, &lines(gather).text().replace("f32[4, 3]", "f32[2, 3]"));
    // The last word is never looked up.
    Case { end: "dim S - 1", ..lines(gather) }.stays();
    Case { start: "1", ..lines(gather) }.stays();
    // A state would have been set before the error.
    let state = format!("state \"seen\" : f32[4]\n\n{}", lines(gather).text());
    let set = state.replace("  %60 = ", "  set_state %4, \"seen\"\n  %60 = ");
    stays(PASS, STRICT, &set);
}

#[test]
fn remarks_tell_what_was_done_and_why_not() {
    let case = |name: &str, c: Case| c.text().replace("@f", &format!("@{name}"));
    let broken = case("breaks", Case::default()).replace(
        "  %60 = ",
        "  %55 = index %92, %6, axis=0 : i32[B]\n  %56 = reduce_max %55, axes=[0] : i32[]\n  %57 = lt %90, %56 : bool[]\n  br_if %57, ^bb3, ^bb4\n^bb4:\n  %60 = ",
    );
    let wide = case("wide", Case::default()).replace("f32[B, 4]", "f32[B, 200]").replace("f32[4]", "f32[200]");
    let wide = wide.replace("f32[3, 4]", "f32[3, 200]").replace("f32[4, 4]", "f32[200, 200]");
    let source =
        [case("done", Case::default()), case("others", Case { end: "dim B", ..Case::default() }), broken, wide];
    pass_snapshot!("hoist_products_more", PASS, Float::Strict, &source.join("\n"));
}

/// A random loop: how rows are taken, what is done with them before and after products, whether the loop is left early.
fn random_loop(random: &mut Random) -> String {
    let mut text = String::new();
    let mut next = 100;
    let mut fresh = || {
        next += 1;
        next
    };
    // Values of one step, f32[B, 4]; the state is one of them.
    let mut values: Vec<u32> = vec![7];
    let rows = 1 + random.below(3);
    for _ in 0..rows {
        let at = match random.below(5) {
            0 => {
                let v = fresh();
                text += &format!("  %{v} = sub %80, %6 : index\n");
                format!("%{v}")
            }
            1 => "%81".to_string(),
            _ => "%6".to_string(),
        };
        let v = fresh();
        let source = random.pick(&["%0", "%70"]);
        text += &format!("  %{v} = index {source}, {at}, axis=0 : f32[B, 4]\n");
        values.push(v);
    }
    for _ in 0..3 + random.below(8) {
        let a = values[random.below(values.len())];
        let b = values[random.below(values.len())];
        let v = fresh();
        let line = match random.below(9) {
            0..=2 => format!("matmul %{a}, %{}", random.pick(&[2, 3])),
            3 => format!("add %{a}, %4"),
            4 => format!("mul %{a}, %{b}"),
            5 => format!("tanh %{a}"),
            6 => format!("sub %{a}, %{b}"),
            7 => format!("max %71, %{a}"),
            _ => format!("softmax %{a}, axis=1"),
        };
        text += &format!("  %{v} = {line} : f32[B, 4]\n");
        values.push(v);
    }
    let new = values.last().copied().unwrap_or(7);
    let leaves =
        if random.chance(15) { "  %65 = index %5, %6, axis=0 : bool[]\n  br_if %65, ^bb3, ^bb4\n^bb4:\n" } else { "" };
    format!(
        "func @f(%0 \"x\": f32[S, B, 4], %1 \"h\": f32[B, 4], %2 \"w\": f32[4, 4], %3 \"u\": f32[4, 4], %4 \"b\": f32[4], %5 \"c\": bool[S]) \
         -> (f32[B, 4]) {{\n^bb0:\n  %79 = dim S : index\n  %80 = dim S - 1 : index\n  %81 = dim S - 1 : index\n  %70 = neg %0 : f32[S, B, 4]\n\
         \n  %71 = exp %1 : f32[B, 4]\n  br ^bb1(0, %1)\n^bb1(%6: index, %7: f32[B, 4]):\n  %8 = lt %6, %79 : bool[]\n  br_if %8, ^bb2, ^bb3\n\
         ^bb2:\n{text}{leaves}  %63 = add %6, 1 : index\n  br ^bb1(%63, %{new})\n^bb3:\n  return %7\n}}\n"
    )
}

#[test]
fn random_loops_give_the_same_bits() {
    let mut random = Random::new(26);
    let mut hoisted = 0;
    for _ in 0..120 {
        let source = random_loop(&mut random);
        keeps("dce,licm,hoist-products", STRICT, &source);
        keeps("dce,licm,hoist-products,cse,merge-matmuls,fuse-epilogue,fuse-map", STRICT, &source);
        let list = attnc::passes::parse_pass_list("dce,licm,hoist-products").expect("passes");
        let (text, _) = crate::passes::run(&crate::passes::canonical(&source), Some(&list), &Default::default());
        let loop_starts = text.find("^bb1").unwrap_or(0);
        hoisted += usize::from(text[..loop_starts].contains("= matmul"));
    }
    assert!(hoisted > 20, "{hoisted}");
}

/// A length that has its value in the loop is named by what stays in it.
#[test]
fn lengths_of_the_loop() {
    lines(
        "  length %90, name=\"N\", most=B\n  %9 = index %0, %6, axis=0 : f32[B, 3]\n\
         \x20 %70 = slice %9, axis=0, start=0, stop=N : f32[N, 3]\n  %10 = matmul %70, %2 : f32[N, 4]\n\
         \x20 %71 = reduce_sum %10, axes=[0] : f32[4]\n  %50 = add %71, %4 : f32[4]\n",
    )
    .stays();
}
