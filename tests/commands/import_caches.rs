//! How much do the programs that `attnc import` writes keep of a text: what a window sees, and what has a position?

use crate::front;
use crate::import::{attnc, changed, folder, weights};

use attnc::lowering::graph::Options;
use attnc::runtime::load::{CompiledModel, Session};
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use serde_json::json;

/// A layer that has a window keeps no more than that. A model all of whose layers have one goes on to its last position.
#[test]
fn windows_keep_what_they_see() {
    let program = changed("mistral", &json!({})).expect("a program");
    assert!(program.contains("W = 4, Kept = f32>") && program.contains("state keys:   Kept[K, W, E]"), "{program}");
    assert!(!program.contains("Kept[K, C, E]"), "{program}");
    // Of each kind as many as the configuration lists; and not more statements for more layers.
    for (checkpoint, changes, rings, caches) in [
        ("qwen2_windows", json!({}), 2, 1),
        ("gemma2", json!({}), 2, 1),
        ("gemma3", json!({}), 3, 1),
        ("gemma3_deep", json!({}), 6, 2),
        ("qwen3_windows", json!({}), 4, 3),
        // Gemma 3 (27B) has as many.
        ("gemma3", json!({"layer_types": null, "num_hidden_layers": 62}), 52, 10),
    ] {
        let program = changed(checkpoint, &changes).expect("a program");
        assert!(program.contains(&format!("[Ring<H, K, E, min(W, C), Kept>; {rings}]")), "{checkpoint}: {program}");
        assert!(program.contains(&format!("[Cache<H, K, E, C, Kept>; {caches}]")), "{checkpoint}: {program}");
        let layers = program.matches(".attend(q, k, v, past))").count();
        assert!(layers <= 9, "{checkpoint}: {layers}");
        front::module("mixed.attn", &program, &Options::default()).unwrap_or_else(|e| panic!("{checkpoint}: {e}"));
    }
    let many = changed("gemma3", &json!({"layer_types": null, "num_hidden_layers": 2_000_000_000}));
    assert!(many.as_ref().is_err_and(|why| why.contains("`num_hidden_layers` is 2000000000")), "{many:?}");
    // What sees everything, or nearly everything, has no ring.
    for (checkpoint, changes) in [
        ("mistral", json!({"sliding_window": null})),
        ("mistral", json!({"sliding_window": 64})),
        ("mistral", json!({"sliding_window": 5000, "max_position_embeddings": 9000})),
    ] {
        let program = changed(checkpoint, &changes).expect("a program");
        assert!(program.contains("state keys:   Kept[K, C, E]"), "{checkpoint} {changes}: {program}");
        assert!(!program.contains("Kept[K, W, E]"), "{checkpoint} {changes}: {program}");
    }
    // All layers of a Gemma with windows.
    let near = changed("gemma3", &json!({"layer_types": vec!["sliding_attention"; 4]})).expect("a program");
    assert!(near.contains("state keys:   Kept[K, W, E]"), "{near}");
    front::module("near.attn", &near, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let path = folder().join("mistral");
    let made = tempfile::tempdir().expect("a folder");
    let (program, so) = (made.path().join("model.attn"), made.path().join("model.so"));
    let [path_text, program, so_text] = [&path, &program, &so].map(|path| path.to_str().expect("UTF-8"));
    assert_eq!(attnc(&["import", path_text, "-o", program]), (0, String::new(), String::new()));
    assert_eq!(attnc(&[program, "-o", so_text, "--dim", "T=20"]), (0, String::new(), String::new()));
    let (code, _, err) = attnc(&[program, "--dim", "W=0", "--emit", "ir=/dev/null"]);
    assert!(code == 1 && err.contains("W >= 1"), "{err}");
    // SAFETY: it was compiled just above.
    let model = unsafe { CompiledModel::open(&so, Some(&weights(&path)), 1) };
    let model = model.unwrap_or_else(|e| panic!("{e}"));
    let mut session = model.session().unwrap_or_else(|e| panic!("{e}"));
    let call = |session: &mut Session<'_>, name: &str, tokens: Tensor| {
        let entry = model.entry(name).unwrap_or_else(|e| panic!("{e}"));
        session.call(entry, &[tokens]).map(|results| results[0].to_f32()).map_err(|error| error.text)
    };
    let ints = |shape, values: &[i64]| Tensor::from_ints(Elem::I32, shape, values).expect("a tensor");
    // Of 20 positions.
    assert!(call(&mut session, "prefill", ints(vec![19], &[1; 19])).is_ok());
    let full = |given: Result<Vec<f32>, String>| {
        given.is_err_and(|why| why.contains("N is 21, but must be") && why.contains("the cache is full"))
    };
    assert!(full(call(&mut session, "prefill", ints(vec![2], &[1; 2]))));
    // The caches are lost until they are reset.
    assert!(call(&mut session, "step", ints(vec![], &[1])).is_err_and(|why| why.contains("reset")));
    session.reset().unwrap_or_else(|e| panic!("{e}"));
    assert!(call(&mut session, "prefill", ints(vec![19], &[1; 19])).is_ok());
    assert!(call(&mut session, "step", ints(vec![], &[1])).is_ok());
    assert!(full(call(&mut session, "step", ints(vec![], &[1]))));
}

/// Every position that a cache has room for is one of the model's: a larger cache would go on where the model has none.
#[test]
fn caches_end_where_positions_end() {
    for checkpoint in ["llama", "gemma3"] {
        let path = folder().join(checkpoint);
        let made = tempfile::tempdir().expect("a folder");
        let program = made.path().join("model.attn");
        let [path, program] = [&path, &program].map(|path| path.to_str().expect("UTF-8"));
        assert_eq!(attnc(&["import", path, "-o", program]), (0, String::new(), String::new()), "{checkpoint}");
        let compiled = |dims: &str| attnc(&[program, "--dim", dims, "--emit", "ir=/dev/null"]);
        // Both have 64 positions.
        for dims in ["C=64", "C=65,T=65"] {
            assert_eq!(compiled(dims), (0, String::new(), String::new()), "{checkpoint} {dims}");
        }
        for dims in ["C=65", "T=63"] {
            let (code, _, err) = compiled(dims);
            assert_eq!(code, 1, "{checkpoint} {dims}: {err}");
            assert!(err.contains("C <= T"), "{checkpoint} {dims}: {err}");
        }
    }
}
