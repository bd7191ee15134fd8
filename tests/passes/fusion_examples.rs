//! What do the passes make of the examples? Every attention is fused, in the loop over layers too, whether taps show its inside
//! or not.

use crate::front;

use attnc::ir::{Function, Module, Op, text};
use attnc::passes::{Collected, Options, optimise, render_remarks};

/// The examples, with how many attentions each has in all its entry points.
const EXAMPLES: &[(&str, usize)] = &[
    ("01_linear", 0),
    ("02_self_attention", 1),
    ("03_masks", 4),
    ("04_multi_head_attention", 2),
    ("05_cross_attention", 1),
    ("06_encoder_layer", 2),
    ("07_encoder", 1),
    ("08_gpt2", 1),
    ("09_minilm", 1),
    ("10_positions", 3),
    ("11_norms", 0),
    ("12_losses", 0),
    ("13_recurrent", 0),
    ("14_seq2seq", 1),
    ("15_encoder_decoder", 3),
    ("16_bert", 1),
    ("17_linformer", 1),
    ("18_windows", 5),
    ("19_llama", 4),
    ("20_t5", 3),
    ("21_bart", 3),
    ("22_vit", 1),
    ("23_swin", 2),
    ("24_gemma", 6),
    ("25_mamba", 0),
    ("26_mixture", 0),
    ("27_bleu", 0),
    ("28_whisper", 1),
    ("30_voice", 0),
    ("33_translate", 11),
];

fn lowered(name: &str) -> Module {
    let path = format!("{}/examples/{name}.attn", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(&path).expect("an example");
    front::module(&format!("{name}.attn"), &source, &Default::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn is_attention(op: &Op) -> bool {
    match op {
        Op::Attention { .. } => true,
        Op::Fused { body, .. } => body.insts().any(|(_, _, d)| is_attention(&d.op)),
        _ => false,
    }
}

fn attentions(f: &Function) -> usize {
    f.insts().filter(|(_, _, d)| is_attention(&d.op)).count()
}

#[test]
fn examples_are_fused() {
    for (name, expected) in EXAMPLES {
        let mut module = lowered(name);
        let before = text::print(&module);
        let mut sink = Collected::default();
        let remarks = optimise(&mut module, &Options::default(), &mut sink).unwrap_or_else(|e| panic!("{name}: {e}"));
        let found: usize = module.functions.iter().filter(|f| !f.tapped).map(attentions).sum();
        let remarks = render_remarks(&remarks, &module);
        let after = text::print(&module);
        assert_eq!(found, *expected, "{name}\n{before}\n{after}\n{remarks}");
        for tapped in module.functions.iter().filter(|f| f.tapped) {
            let plain = module.functions.iter().find(|f| !f.tapped && f.name == tapped.name).expect("a plain variant");
            assert_eq!(
                attentions(tapped),
                attentions(plain),
                "{name}, {} with its taps\n{after}\n{remarks}",
                tapped.name
            );
        }
        match *name {
            // The whole of it, without the tapped variant.
            "08_gpt2" => {
                let tapped =
                    after.find("\nfunc @forward(").and_then(|first| after[first + 1..].find("\nfunc @forward("));
                let end = tapped.map_or(after.len(), |t| after.find("\nfunc").map_or(0, |first| first + 1 + t));
                snapshot("example_gpt2", &after[..end]);
            }
            "09_minilm" => snapshot("example_minilm_remarks", &remarks),
            _ => {}
        }
    }
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/passes"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!(name, text);
    });
}
