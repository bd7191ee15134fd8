//! Soundness of the prover: hand-written cases, and a check against all small values of the
//! dimensions.

use super::*;
use crate::random::Random;

const NAMES: [&str; 4] = ["A", "B", "C", "D"];

fn s(name: &str) -> Dim {
    Dim::symbol(name)
}

fn n(n: i64) -> Dim {
    Dim::from(n)
}

fn prover(known: &[Dim]) -> Prover {
    let names = NAMES.map(str::to_string);
    let mut prover = Prover::new(&names, Sizes::default());
    prover.assume_dimensions(known);
    prover
}

fn proved(known: &[Dim], claim: &Dim) -> bool {
    let mut prover = prover(known);
    let form = prover.dim(claim).expect("a short form of these symbols");
    prover.proves(&form, [])
}

fn value(d: &Dim, at: &[i64; 4]) -> Option<i64> {
    d.eval(&|name| NAMES.iter().position(|n| *n == name).map(|i| at[i])).ok()
}

/// All assignments of values below `below` to the first `symbols` symbols that satisfy `known`.
fn models(known: &[Dim], symbols: u32, below: i64) -> Vec<[i64; 4]> {
    let all = (0..below.pow(symbols)).map(|i| [1, below, below.pow(2), below.pow(3)].map(|by| i / by % below));
    all.filter(|at| known.iter().all(|d| value(d, at).is_some_and(|v| v >= 0))).collect()
}

/// Products of rounded terms and their slacks: what is proved, and claims that are false and must
/// not be proved.
#[test]
fn products_are_proved_by_their_factors() {
    let (a, b, c, d) = (s("A"), s("B"), s("C"), s("D"));
    let floor = |x: &Dim, by: i64| x.floor_div(&n(by)).unwrap();
    let ceil = |x: &Dim, by: i64| x.ceil_div(&n(by)).unwrap();
    let windows = ceil(&a, 2).sub(&n(1));
    let thirds = floor(&b, 3).sub(&n(1));
    let both = [a.sub(&n(2)), b.sub(&n(3))];
    let rest = a.sub(&c).sub(&n(3));
    let shifted = floor(&a.sub(&c).sub(&n(1)), 2);
    let within = [c.sub(&ceil(&a, 2)), d.sub(&ceil(&b, 3))];
    let by_symbol = |x: &Dim, y: &Dim| x.floor_div(y).unwrap();
    let least = a.min_with(&b.add(&n(2))).sub(&n(2));
    let claims: Vec<(&[Dim], Dim)> = vec![
        (&both[..1], windows.mul(&windows).mul(&b)),
        (&both, windows.mul(&thirds)),
        (&both, windows.mul(&thirds).mul(&windows).mul(&c)),
        (&both[..1], windows.mul(&windows).sub(&windows).add(&windows.mul(&n(8)))),
        (std::slice::from_ref(&rest), shifted.sub(&n(1)).mul(&shifted.sub(&n(1)))),
        (std::slice::from_ref(&rest), shifted.sub(&n(1)).mul(&rest)),
        (&within, c.mul(&d).sub(&ceil(&a, 2).mul(&ceil(&b, 3)))),
        (&within, c.mul(&d).mul(&d).sub(&ceil(&a, 2).mul(&ceil(&b, 3)).mul(&d))),
        (&both[..1], least.mul(&least)),
        // A slot of `S*(S+1)*(S/3+1)` elements, and a part of it; `S` squared, which is less than
        // the square of `S/2 + 1`.
        (&[], a.mul(&floor(&a, 3).add(&n(1))).mul(&a.sub(&floor(&a, 3)))),
        (&[], a.mul(&floor(&a, 2).add(&n(1))).mul(&floor(&a, 2).add(&n(1))).sub(&a.mul(&a))),
        (&both[1..], d.mul(&b).sub(&d.mul(&n(3)))),
    ];
    for (known, claim) in &claims {
        let all = models(known, 4, 7);
        assert!(all.len() > 50 && all.iter().all(|at| value(claim, at).unwrap() >= 0), "{claim}");
        assert!(proved(known, claim), "{claim} where {known:?}");
        // The claim minus one is false somewhere.
        let less = claim.sub(&Dim::one());
        assert!(all.iter().any(|at| value(&less, at).unwrap() < 0), "{less}");
        assert!(!proved(known, &less), "{less} where {known:?}");
    }
    for (known, claim) in [
        (&both[1..], windows.mul(&b)),
        (&both[..1], windows.mul(&thirds)),
        (&within[..1], c.mul(&d).sub(&ceil(&a, 2).mul(&ceil(&b, 3)))),
        (&[], by_symbol(&a, &b).sub(&n(1)).mul(&c)),
        (&[], a.mul(&a).sub(&a.mul(&b))),
    ] {
        assert!(models(known, 4, 7).iter().any(|at| value(&claim, at).is_some_and(|v| v < 0)), "{claim}");
        assert!(!proved(known, &claim), "{claim} where {known:?}");
    }
}

/// Rounded terms that are lower bounds of each other, or of terms that contain them: computing
/// lower bounds terminates.
#[test]
fn rounded_terms_that_bound_each_other() {
    let floor = |x: &str, by: i64| s(x).floor_div(&n(by)).unwrap();
    for other in [floor("B", 3), floor("B", 3).add(&floor("A", 5)), floor("B", 3).min_with(&floor("C", 2))] {
        let slack = floor("A", 2).sub(&other);
        let known = [slack.clone(), slack.neg()];
        let claim = s("A").sub(&other.mul(&n(2)));
        let all = models(&known, 3, 9);
        assert!(all.len() > 10 && all.iter().all(|at| value(&claim, at).unwrap() >= 0), "{claim}");
        assert!(proved(&known, &claim) && !proved(&known, &claim.sub(&n(1))), "{claim}");
    }
}

/// A random dimension: sums and products of symbols, small numbers and rounded terms.
fn form(random: &mut Random, depth: usize) -> Dim {
    if depth == 0 {
        return match random.below(4) {
            0 => n(1 + random.below(4) as i64),
            _ => s(random.pick(&NAMES[..3])),
        };
    }
    let x = form(random, depth - 1);
    let by = n(2 + random.below(3) as i64);
    match random.below(11) {
        9 => x.div(&by).unwrap(),
        10 => x.div(&form(random, 0)).unwrap_or(x),
        0 => x.add(&form(random, depth - 1)),
        1 => x.sub(&form(random, 0)),
        2 => x.mul(&form(random, 0)),
        3 => x.floor_div(&by).unwrap(),
        4 => x.ceil_div(&by).unwrap(),
        5 => x.floor_div(&form(random, 0)).unwrap_or(x),
        6 => x.min_with(&form(random, 0)),
        7 => x.max_with(&form(random, 0)),
        _ => x.sub(&by),
    }
}

/// Random facts and claims, mostly about products: each claim proved holds for all small values
/// that satisfy the facts.
#[test]
fn what_is_proved_holds() {
    let mut random = Random::new(31);
    let (mut plain, mut found, mut missed, mut possible) = (0, 0, 0, 0);
    for _ in 0..120 {
        let known: Vec<Dim> = (0..random.below(4)).map(|_| form(&mut random, 1).sub(&form(&mut random, 1))).collect();
        let all = models(&known, 3, 6);
        possible += usize::from(!all.is_empty());
        let mut prover = prover(&known);
        for _ in 0..8 {
            let factor = |random: &mut Random| match random.below(3) {
                0 if !known.is_empty() => random.pick(&known).clone(),
                0 | 1 => form(random, 2),
                _ => form(random, 1),
            };
            let (x, y) = (factor(&mut random), factor(&mut random));
            let claim = match random.below(5) {
                0 => x,
                1 => x.mul(&y),
                2 => x.mul(&x).mul(&y),
                3 => x.mul(&y).sub(&factor(&mut random)),
                _ => x.mul(&y).sub(&factor(&mut random).mul(&factor(&mut random))),
            };
            let Some(p) = prover.dim(&claim) else { continue };
            let holds = all.iter().all(|at| value(&claim, at).is_none_or(|v| v >= 0));
            if prover.proves(&p, []) {
                let refuted = all.iter().find(|at| value(&claim, at).is_some_and(|v| v < 0));
                assert!(holds, "{claim} does not follow from {known:?}: at {:?}", refuted.unwrap());
                *if prover.plain(&p) { &mut plain } else { &mut found } += 1;
            } else {
                missed += usize::from(holds && !all.is_empty());
            }
        }
    }
    println!("{plain} by their terms, {found} by a search, {missed} hold for small values and are not proved");
    assert!(possible > 80 && found > 150 && missed < found, "{possible}: {plain} {found} {missed}");
}

/// Expressions in symbols, from numeric lower bounds and from two-sided bounds of another symbol.
#[test]
fn forms_of_symbols_are_proved_by_numbers_and_by_pairs_of_facts() {
    let (a, b, c) = (s("A"), s("B"), s("C"));
    let product = || vec![a.mul(&b).sub(&a).sub(&n(11)), n(4).sub(&b)];
    let cube = a.mul(&a).mul(&a).sub(&a.mul(&a).mul(&n(4))).sub(&a);
    let boxed = a.mul(&b).mul(&b).sub(&b.mul(&b).mul(&n(2))).sub(&b);
    let claims: Vec<(Vec<Dim>, Dim)> = vec![
        // A cube whose corner is (4, 1, 4), and another box.
        (vec![a.sub(&n(5))], cube.sub(&n(20))),
        (vec![a.sub(&n(3)), b.sub(&n(2))], boxed.sub(&n(2))),
        (vec![b.sub(&n(4)), a.add(&n(3)).sub(&b)], a.sub(&n(1))),
        (vec![b.sub(&n(1)), a.mul(&n(4)).sub(&b)], a.sub(&n(1))),
        (vec![c.sub(&b).sub(&n(1)), b.sub(&n(2)), a.add(&n(1)).sub(&c)], a.sub(&n(2))),
        // Windows: half of `n + 1` is at least 3.
        (vec![a.ceil_div(&n(2)).unwrap().sub(&n(3))], a.sub(&n(5))),
        (vec![a.ceil_div(&n(2)).unwrap().sub(&n(1)).floor_div(&n(2)).unwrap().sub(&n(1))], a.sub(&n(5))),
        (vec![a.sub(&b).sub(&n(2))], a.mul(&b).sub(&b).sub(&b).add(&a).sub(&n(2))),
        (product(), a.mul(&n(8)).sub(&n(32))),
        (product(), a.mul(&a).sub(&a.mul(&n(3))).sub(&n(4))),
    ];
    for (known, claim) in &claims {
        let all = models(known, 3, 9);
        assert!(!all.is_empty() && all.iter().all(|at| value(claim, at).unwrap() >= 0), "{claim}");
        assert!(proved(known, claim), "{claim} where {known:?}");
        let less = claim.sub(&Dim::one());
        assert!(all.iter().any(|at| value(&less, at).unwrap() < 0), "{less}");
        assert!(!proved(known, &less), "{less} where {known:?}");
    }
    for (known, claim) in [
        (vec![a.sub(&n(4))], cube.sub(&n(5))),
        (vec![b.sub(&n(4)), a.add(&b).sub(&n(3))], a.sub(&n(1))),
        (vec![b.sub(&n(4)), a.add(&n(4)).sub(&b)], a.sub(&n(1))),
    ] {
        assert!(models(&known, 3, 9).iter().any(|at| value(&claim, at).is_some_and(|v| v < 0)), "{claim}");
        assert!(!proved(&known, &claim), "{claim} where {known:?}");
    }
}

/// Random facts about two symbols each, some of them products, and claims about one: each claim
/// proved holds for all small values, and most claims that hold are proved.
#[test]
fn what_facts_say_together_holds() {
    let mut random = Random::new(5);
    let (mut found, mut alone, mut missed) = (0, 0, 0);
    for _ in 0..400 {
        let fact = |random: &mut Random| {
            let (x, y) = (s(random.pick(&NAMES[..3])), s(random.pick(&NAMES[..3])));
            let x = if random.below(4) == 0 { x.mul(&s(random.pick(&NAMES[..3]))) } else { x };
            let times = |random: &mut Random| n(1 + random.below(3) as i64);
            let (a, b) = (times(random), times(random));
            let rest = n(random.below(13) as i64 - 6);
            let sum = if random.below(3) == 0 { rest } else { rest.sub(&y.mul(&b)) };
            if random.below(4) == 0 { sum.sub(&x.mul(&a)).add(&n(6)) } else { sum.add(&x.mul(&a)) }
        };
        let known: Vec<Dim> = (0..1 + random.below(4)).map(|_| fact(&mut random)).collect();
        let all = models(&known, 3, 12);
        let x = s(random.pick(&NAMES[..3]));
        let form = if random.below(2) == 0 { x.clone() } else { x.mul(&x).sub(&x) };
        let Some(least) = all.iter().filter_map(|at| value(&form, at)).min() else { continue };
        let holds = form.sub(&n(least));
        if proved(&known, &holds) {
            found += 1;
            alone += usize::from(known.contains(&holds) || holds.is_provably_nonnegative());
        } else {
            missed += 1;
        }
        assert!(!proved(&known, &holds.sub(&Dim::one())), "{holds} is 0 somewhere: {known:?}");
    }
    println!(
        "{found} are proved, {alone} of them by one fact or none, {missed} hold for small values and are not proved"
    );
    assert!(found > 3 * missed && found - alone > 30, "{found} {alone} {missed}");
}

/// An access to a matrix of random extents, with a row step: if it is proved to end before `n`
/// elements, it does for all small values, and `n - 1` elements are not proved.
#[test]
fn accesses_that_are_proved_end_before() {
    let mut random = Random::new(77);
    let (mut found, mut refused) = (0, 0);
    for _ in 0..150 {
        let known: Vec<Dim> = (0..random.below(3)).map(|_| form(&mut random, 1).sub(&form(&mut random, 0))).collect();
        let all = models(&known, 3, 6);
        let (rows, columns) = (form(&mut random, 2), form(&mut random, 2));
        let step = 1 + random.below(3) as i64;
        let mut prover = prover(&known);
        let (Some(r), Some(c)) = (prover.dim(&rows), prover.dim(&columns)) else { continue };
        // Every `step`-th row, and some adjacent columns.
        let last = |p: &Poly| p.sub(&Poly::int(1)).unwrap();
        let row = Bounds { natural: true, upper: vec![(i128::from(step), last(&r))], ..Bounds::default() };
        let row = prover.fresh(row);
        let column = Bounds { natural: true, upper: vec![(1, last(&c))], ..Bounds::default() };
        let column = prover.fresh(column);
        let begin = product(&row.scale(i128::from(step)).unwrap(), &c).unwrap();
        let end = begin.add(&column).unwrap().add(&Poly::int(1)).unwrap();
        let present = [last(&r).tightened(), last(&c).tightened()];
        for spare in [0, 1] {
            let room = rows.mul(&columns).sub(&n(spare));
            let Some(rest) = prover.dim(&room).and_then(|room| room.sub(&end)) else { continue };
            if !prover.proves(&rest, &present) {
                refused += 1;
                continue;
            }
            found += 1;
            for at in &all {
                let (Some(r), Some(c), Some(room)) = (value(&rows, at), value(&columns, at), value(&room, at)) else {
                    continue;
                };
                let ends = (0..).map(|i| i * step).take_while(|i| *i < r).map(|i| i * c + c);
                if c > 0 {
                    let beyond = ends.filter(|end| *end > room).count();
                    assert_eq!(beyond, 0, "{rows} times {columns}, of which {spare} is missing, at {at:?}: {known:?}");
                }
            }
        }
    }
    println!("{found} are proved, {refused} are refused");
    assert!(found > 50 && refused > 50, "{found} {refused}");
}

/// Indices as control flow produces them, with all small values: each model has a value for
/// each atom.
struct Indices {
    prover: Prover,
    models: Vec<Vec<i128>>,
    atoms: Vec<Poly>,
    /// Polynomials that are non-negative by the bounds of the atoms.
    slack: Vec<Poly>,
}

impl Indices {
    fn new() -> Indices {
        let prover = Prover::new(&["A".to_string(), "B".to_string()], Sizes::default());
        let atoms: Vec<Poly> = [0, 1].map(Poly::variable).into();
        let models = (0..25).map(|i| vec![i % 5, i / 5]).collect();
        Indices { prover, models, slack: atoms.clone(), atoms }
    }

    /// The value of a polynomial's numerator.
    fn numerator(&self, p: &Poly, at: &[i128]) -> i128 {
        let value = |m: &AtomMonomial| -> i128 {
            let factors = m.factors().iter();
            factors.map(|(a, e)| at[*a as usize].pow(e.unsigned_abs())).product()
        };
        p.terms().iter().map(|(m, c)| c * value(m)).sum()
    }

    /// A polynomial as text.
    fn text(&self, p: &Poly) -> String {
        let terms = p.terms().iter().map(|(m, c)| {
            let factors = m.factors().iter();
            format!("{c:+}{}", factors.map(|(a, e)| format!("*x{a}").repeat(*e as usize)).collect::<String>())
        });
        format!("({})/{}", terms.collect::<String>(), p.denominator())
    }

    /// The bounds of all atoms as text.
    fn texts(&self) -> String {
        let list = |name: &str, all: &[(i128, Poly)]| -> String {
            all.iter().map(|(c, p)| format!(" {c}*x {name} {};", self.text(p))).collect()
        };
        let atoms = self.prover.atoms.iter().enumerate().map(|(n, b)| {
            let one_of: String = b.one_of.iter().map(|p| format!(" x = {} or", self.text(p))).collect();
            let natural = if b.natural { " x >= 0;" } else { "" };
            format!("x{n}:{natural}{}{}{one_of}\n", list(">=", &b.lower), list("<=", &b.upper))
        });
        atoms.collect()
    }

    fn is_natural(&self, p: &Poly, at: &[i128]) -> bool {
        self.numerator(p, at) >= 0
    }

    /// A small number, an atom, or a sum or product of these.
    fn form(&mut self, random: &mut Random, depth: usize) -> Poly {
        if depth == 0 || random.below(3) == 0 {
            return match random.below(4) {
                0 => Poly::int(random.below(5) as i128 - 1),
                _ => random.pick(&self.atoms).clone(),
            };
        }
        let (x, y) = (self.form(random, depth - 1), self.form(random, depth - 1));
        match random.below(5) {
            0 => x.add(&y),
            1 => x.sub(&y),
            2 => product(&x, &y),
            3 => x.over(1 + random.below(3) as i128),
            _ => x.combine(1 + random.below(3) as i128, &y, random.below(5) as i128 - 2),
        }
        .unwrap()
    }

    /// Adds an atom with bounds and all of its values: the listed ones, or all small ones within
    /// the bounds.
    fn add(&mut self, random: &mut Random, bounds: Bounds, values: impl Fn(&Indices, &[i128]) -> Vec<i128>) {
        let mut models = Vec::new();
        for at in &self.models {
            let mut all = values(self, at);
            all.sort_unstable();
            all.dedup();
            models.extend(all.into_iter().map(|v| [at.as_slice(), &[v]].concat()));
        }
        while models.len() > 2500 {
            models.swap_remove(random.below(models.len()));
        }
        self.models = models;
        let atom = self.prover.fresh(bounds.clone());
        self.slack.extend(bounds.natural.then(|| atom.clone()));
        self.slack.extend(bounds.lower.iter().map(|(c, p)| atom.combine(*c, p, -1).unwrap()));
        self.slack.extend(bounds.upper.iter().map(|(c, p)| p.combine(1, &atom, -c).unwrap()));
        self.atoms.push(atom);
    }

    fn index(&mut self, random: &mut Random) {
        let (p, q) = (self.form(random, 2), self.form(random, 2));
        let exact = |own: &Indices, p: &Poly, at: &[i128]| -> Vec<i128> {
            let n = own.numerator(p, at);
            if n % p.denominator() == 0 { vec![n / p.denominator()] } else { Vec::new() }
        };
        match random.below(6) {
            // A grid index, or a counter: every `c`-th value below a bound.
            0 | 1 => {
                let c = 1 + random.below(3) as i128;
                let last = p.sub(&Poly::int(1)).unwrap();
                let bounds = Bounds { natural: true, upper: vec![(c, last.clone())], ..Bounds::default() };
                let within =
                    |own: &Indices, at: &[i128], i: i128| c * i * last.denominator() <= own.numerator(&last, at);
                self.add(random, bounds, |own, at| (0..7).filter(|i| within(own, at, *i)).collect());
            }
            // A minimum or a maximum.
            n @ (2 | 3) => {
                let both = || vec![(1, p.clone()), (1, q.clone())];
                let natural = self.prover.proves(&p, []) && self.prover.proves(&q, []);
                let (lower, upper) = if n == 2 { (Vec::new(), both()) } else { (both(), Vec::new()) };
                let bounds = Bounds { natural, lower, upper, one_of: vec![p.clone(), q.clone()], ..Bounds::default() };
                self.add(random, bounds, |own, at| {
                    let both: Vec<i128> = [&p, &q].iter().flat_map(|p| exact(own, p, at)).collect();
                    let chosen = if n == 2 { both.iter().min() } else { both.iter().max() };
                    chosen.filter(|_| both.len() == 2).copied().into_iter().collect()
                });
            }
            // A quotient, rounded down.
            4 => {
                let c = 2 + random.below(3) as i128;
                let p = p.scale(p.denominator()).unwrap();
                let natural = self.prover.proves(&p, []);
                let lower = vec![(c, p.sub(&Poly::int(c - 1)).unwrap())];
                let bounds = Bounds { natural, lower, upper: vec![(c, p.clone())], ..Bounds::default() };
                self.add(random, bounds, |own, at| vec![own.numerator(&p, at).div_euclid(c)]);
            }
            // One of two values.
            _ => {
                let bounds = Bounds { one_of: vec![p.clone(), q.clone()], ..Bounds::default() };
                self.add(random, bounds, |own, at| [&p, &q].iter().flat_map(|p| exact(own, p, at)).collect());
            }
        }
    }
}

/// The number of random systems of indices.
const SYSTEMS: usize = 1500;

/// Random indices and facts, and claims that are close to a consequence: each claim proved holds
/// for all small values.
#[test]
fn what_is_proved_of_indices_holds() {
    let mut random = Random::new(5);
    let (mut plain, mut found, mut refused) = (0, 0, 0);
    for _ in 0..SYSTEMS {
        let mut all = Indices::new();
        for _ in 0..1 + random.below(3) {
            all.index(&mut random);
        }
        let facts: Vec<Poly> = (0..random.below(3)).map(|_| all.form(&mut random, 2).tightened()).collect();
        let holds = |at: &&Vec<i128>| facts.iter().all(|f| all.is_natural(f, at));
        let models: Vec<Vec<i128>> = all.models.iter().filter(holds).cloned().collect();
        if models.is_empty() {
            continue;
        }
        let natural: Vec<Poly> = all.slack.iter().chain(&facts).cloned().collect();
        for _ in 0..8 {
            // Sums of products of non-negative polynomials, perhaps minus a little.
            let mut claim = Poly::int(-(random.below(3) as i128)).over(1 + random.below(2) as i128).unwrap();
            for _ in 0..1 + random.below(3) {
                let (x, y) = (random.pick(&natural).clone(), random.pick(&natural).clone());
                let term = match random.below(3) {
                    0 => product(&x, &y),
                    1 => x.add(&y),
                    _ => Some(x),
                };
                claim = claim.combine(1, &term.unwrap(), random.below(4) as i128).unwrap();
            }
            if random.below(3) == 0 {
                claim = claim.sub(&all.form(&mut random, 2)).unwrap();
            }
            if !all.prover.proves(&claim, &facts) {
                refused += 1;
                continue;
            }
            let refuted = models.iter().find(|at| !all.is_natural(&claim, at));
            let facts = || facts.iter().map(|f| all.text(f)).collect::<Vec<String>>();
            assert_eq!(refuted, None, "{}\nof {}where {:?}", all.text(&claim), all.texts(), facts());
            *if all.prover.plain(&claim) { &mut plain } else { &mut found } += 1;
        }
    }
    println!("{plain} by their terms, {found} by a search, {refused} are refused");
    assert!(found > SYSTEMS / 2 && refused > SYSTEMS / 2, "{plain} {found} {refused}");
}

/// A third of a symbol need not be an integer.
#[test]
fn forms_over_a_number_are_no_integers() {
    // The larger of two thirds is not the whole of one.
    let mut thirds = prover(&[]);
    let whole = thirds.dim(&s("A")).unwrap();
    let third = whole.clone().over(3).unwrap();
    let lower = vec![(1, third.clone()), (1, third.clone())];
    let largest = thirds.fresh(Bounds { natural: true, lower, one_of: vec![third; 2], ..Bounds::default() });
    assert!(thirds.proves(&largest.combine(3, &whole, -1).unwrap(), []));
    assert!(!thirds.proves(&largest.sub(&whole).unwrap(), []));
    // Of `(A+3)/2` and `(B+D)/2`, where `B >= A`, each is `A/2` plus a slack, which is not an
    // integer if `A` is odd.
    let known = [s("B").sub(&s("A"))];
    let half = |d: &Dim| d.div(&n(2)).unwrap();
    let smallest = half(&s("A").add(&n(3))).min_with(&half(&s("B").add(&s("D"))));
    let claim = s("A").add(&n(2)).sub(&smallest.mul(&n(2)));
    assert!(models(&known, 4, 7).iter().any(|at| value(&claim, at).is_some_and(|v| v < 0)), "{claim}");
    assert!(!proved(&known, &claim), "{claim} where {known:?}");
}
