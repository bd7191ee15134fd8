//! Is an expert of the mixture (26_mixture) computed only for the words that chose it?

use std::collections::BTreeMap;

use crate::{compiled, fixtures, front, host};

use attnc::passes;
use attnc::tensor::Tensor;
use host::host;

/// Words, all of those that did not choose one expert, whose weights are NaN: results are the reference's. So they are for no word.
#[test]
fn an_expert_that_nobody_chose_is_not_computed() {
    let fixture = fixtures::load("26_mixture");
    let dims: Vec<(&str, i64)> = fixture.dims.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    let source = std::fs::read_to_string(fixtures::program("26_mixture")).unwrap();
    let module = front::module("26_mixture", &source, &front::options(&dims)).unwrap_or_else(|e| panic!("{e}"));
    let module = compiled::optimised(module, &passes::Options::default());
    let case = fixture.cases.iter().find(|case| !case.taps.is_empty()).unwrap();
    let (x, weights, out) = (&case.inputs[0].1, &case.taps[0].1, &case.output);
    let [words, experts] = weights.shape[..] else { panic!("two axes") };
    let rows = |of: &fixtures::Tensor, which: &[usize]| {
        let width = of.shape[1];
        let values: Vec<f32> = which.iter().flat_map(|i| of.to_f32()[i * width..(i + 1) * width].to_vec()).collect();
        Tensor::from_f32(vec![which.len(), width], &values).unwrap()
    };
    let mut without = 0;
    for expert in 0..experts {
        let which: Vec<usize> = (0..words).filter(|n| weights.to_f32()[n * experts + expert] == 0.0).collect();
        without += which.len();
        let params: BTreeMap<String, Tensor> =
            fixture.weights().iter().map(|(name, t)| (name.clone(), host(t))).collect();
        let spoilt = params.into_iter().map(|(name, t)| {
            let nan = vec![f32::NAN; t.to_f32().len()];
            let own = name.starts_with(&format!("experts.{expert}."));
            (name, if own { Tensor::from_f32(t.shape().to_vec(), &nan).unwrap() } else { t })
        });
        let folder = tempfile::tempdir().unwrap();
        let model = compiled::load(&module, &spoilt.collect(), folder.path());
        let entry = model.entry("forward").unwrap();
        let mut session = model.session().unwrap();
        for some in [&which[..], &[]] {
            let given = session.call(entry, &[rows(x, some)]).unwrap().remove(0);
            let far = fixtures::difference(&given.to_f32(), &rows(out, some).to_f32());
            assert!(far <= case.tolerance, "expert {expert}, words {some:?}: {far}");
        }
        // It is computed for those that chose it.
        let given = session.call(entry, &[host(x)]).unwrap().remove(0);
        let spoilt = |n: usize| given.to_f32()[n * x.shape[1]..(n + 1) * x.shape[1]].iter().all(|y| y.is_nan());
        assert!((0..words).all(|n| spoilt(n) != which.contains(&n)), "expert {expert}: {which:?}");
    }
    // Two of them for each word.
    assert_eq!(without, words * (experts - 2));
}
