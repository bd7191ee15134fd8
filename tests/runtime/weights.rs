//! Weights files that are broken or do not fit: each is an error with its reason, and none a crash.

use std::path::Path;

use attnc::runtime::load::CompiledModel;

use crate::toy::{self, good_weights, safetensors};

/// What opening the toy with this file says.
fn opening(file: &[u8]) -> Result<Vec<String>, String> {
    // Not the same file for two tests that run at the same time.
    let folder = tempfile::tempdir_in(toy::folder()).unwrap();
    let path = folder.path().join("w.safetensors");
    std::fs::write(&path, file).unwrap();
    opening_path(&path).map_err(|e| e.replace(&path.display().to_string(), "FILE"))
}

fn opening_path(path: &Path) -> Result<Vec<String>, String> {
    // SAFETY: the toy is linked from our own objects.
    let model = unsafe { CompiledModel::open(toy::so(), Some(path), 0) }.map_err(|e| e.text)?;
    let unused = model.unused_weights();
    // It must also run.
    let y = model.session().unwrap().call(0, &[toy::counting(&[1, 4])]).unwrap();
    assert_eq!(y[0].to_f32(), toy::scaled(&[0.0, 1.0, 2.0, 3.0]).0);
    Ok(unused)
}

/// A header that describes one tensor of 4 floats, for `body` to be wrong in.
fn one(body: &str) -> Vec<u8> {
    safetensors(&format!("{{\"scale\":{body}}}"), &[0; 16])
}

#[test]
fn good_files_open() {
    let (header, data) = good_weights();
    assert_eq!(opening(&safetensors(&header, &data)), Ok(vec![]));
    // Padded with spaces, as the format's own writer does; spaces within; escapes in names.
    assert_eq!(opening(&safetensors(&format!("{header}     "), &data)), Ok(vec![]));
    let spaced = header.replace(':', " :\n ").replace(',', "\t,\r ");
    assert_eq!(opening(&safetensors(&spaced, &data)), Ok(vec![]));
    let escaped = header.replace("\"scale\"", "\"\\u0073c\\u0061le\"");
    assert_eq!(opening(&safetensors(&escaped, &data)), Ok(vec![]));
    // Unknown fields, nested.
    let more = header.replace("\"dtype\"", "\"note\":[1,-2.5e3,null,{\"a\":[true,\"b\"]}],\"dtype\"");
    assert_eq!(opening(&safetensors(&more, &data)), Ok(vec![]));
    // Badly aligned data is copied.
    for pad in 1..8 {
        let padded = format!("{header}{}", " ".repeat(pad));
        assert_eq!(opening(&safetensors(&padded, &data)), Ok(vec![]), "{pad}");
    }
}

/// The good weights, each tensor stored in a type.
fn as_types(types: &[&str]) -> Vec<u8> {
    let (_, good) = good_weights();
    let (mut header, mut data, mut at) = (String::new(), Vec::new(), 0);
    for ((name, shape), dtype) in
        [("scale", "[4]"), ("h.0.bias", "[4]"), ("h.1.bias", "[4]"), ("h.2.bias", "[4]"), ("table", "[5,4]")]
            .iter()
            .zip(types)
    {
        let begin = data.len();
        let count = if *name == "table" { 20 } else { 4 };
        for bytes in good[at..].chunks(4).take(count) {
            let x = f32::from_le_bytes(bytes.try_into().unwrap());
            match *dtype {
                "BF16" => data.extend_from_slice(&half::bf16::from_f32(x).to_le_bytes()),
                "F16" => data.extend_from_slice(&half::f16::from_f32(x).to_le_bytes()),
                "I8" => data.push(0),
                "F64" => data.extend_from_slice(&f64::from(x).to_le_bytes()),
                _ => data.extend_from_slice(bytes),
            }
        }
        at += 4 * count;
        let comma = if header.is_empty() { "" } else { "," };
        header += &format!(
            "{comma}\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{begin},{}]}}",
            data.len()
        );
    }
    safetensors(&format!("{{{header}}}"), &data)
}

/// Narrower floats become the program's `f32`, which is exact, and it is told which.
#[test]
fn narrower_floats_are_converted() {
    let folder = tempfile::tempdir_in(toy::folder()).unwrap();
    let path = folder.path().join("w.safetensors");
    for (types, expected) in [
        (["F32"; 5], &[][..]),
        (["F16"; 5], &["scale", "h.0.bias", "h.1.bias", "h.2.bias", "table"]),
        (["BF16", "BF16", "BF16", "F32", "F32"], &["scale", "h.0.bias", "h.1.bias"]),
        (["F32", "F32", "F16", "F32", "BF16"], &["h.1.bias", "table"]),
    ] {
        let file = as_types(&types);
        assert_eq!(opening(&file), Ok(vec![]), "{types:?}");
        std::fs::write(&path, &file).unwrap();
        // SAFETY: the toy is linked from our own objects.
        let model = unsafe { CompiledModel::open(toy::so(), Some(&path), 0) }.map_err(|e| e.text).unwrap();
        let mut found = model.converted_weights();
        found.sort();
        let mut expected: Vec<&str> = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{types:?}");
    }
}

/// Every `f16` there is, through a model of the compiler's: the numbers are those of another conversion, bit for bit.
#[test]
fn every_f16_becomes_the_same_f32() {
    use attnc::codegen::{Generator, compile, cpu, descriptor};
    use attnc::runtime::link;
    use attnc::tile::Cpu;
    let text = "param \"w\" : f32[65536]\n\nfunc @f(%0 \"n\": i32[1]) -> (f32[65536]) {\n^bb0:\n  \
                %1 = param \"w\" : f32[65536]\n  return %1\n}\n";
    let module = attnc::ir::text::parse(text, Default::default()).unwrap_or_else(|e| panic!("{:?}", e.sorted())).module;
    let tiles = attnc::lowering::tile::lower(attnc::ir::verify(&module).unwrap()).unwrap();
    let tiles = attnc::tile::schedule(&tiles, Cpu::PORTABLE, &attnc::tile::WeightChoice::default())
        .unwrap_or_else(|complaint| panic!("{complaint}"));
    let model =
        descriptor::describe(&module.interface(), "Halves", "", &cpu::Arch::host().triple().to_string()).unwrap();
    let tier = cpu::Tier { level: Cpu::PORTABLE, module: tiles.verified(), gpu: None };
    let code =
        compile(Generator::Cranelift, &[tier], &model, cpu::EmitOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let folder = tempfile::tempdir().unwrap();
    let (so, weights) = (folder.path().join("halves.so"), folder.path().join("w.safetensors"));
    link::link(&code.objects(), &so).unwrap_or_else(|e| panic!("{e}"));
    for (dtype, widen) in [
        ("F16", (|bits| half::f16::from_bits(bits).to_f32()) as fn(u16) -> f32),
        ("BF16", |bits| half::bf16::from_bits(bits).to_f32()),
    ] {
        let header = format!("{{\"w\":{{\"dtype\":\"{dtype}\",\"shape\":[65536],\"data_offsets\":[0,131072]}}}}");
        let data: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        std::fs::write(&weights, safetensors(&header, &data)).unwrap();
        // SAFETY: linked just above.
        let model = unsafe { CompiledModel::open(&so, Some(&weights), 1) }.unwrap_or_else(|e| panic!("{e}"));
        let n = attnc::tensor::Tensor::from_ints(attnc::shape::Elem::I32, vec![1], &[0]).unwrap();
        let got = model.session().unwrap().call(0, &[n]).unwrap()[0].to_f32();
        for (bits, x) in (0..=u16::MAX).zip(got) {
            let wanted = widen(bits);
            assert!(
                x.to_bits() == wanted.to_bits() || x.is_nan() && wanted.is_nan(),
                "{dtype} {bits:#x}: {x}, not {wanted}"
            );
        }
    }
}

#[test]
fn tensors_that_are_not_used_are_a_note() {
    let (header, mut data) = good_weights();
    let end = data.len();
    let more = format!(
        "{},\"lm_head\":{{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[{end},{}]}},\
         \"none\":{{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[{},{}]}}}}",
        header.trim_end_matches('}').to_owned() + "}",
        end + 2,
        end + 2,
        end + 2
    );
    data.extend_from_slice(&[1, 2]);
    assert_eq!(opening(&safetensors(&more, &data)), Ok(vec!["lm_head".to_owned(), "none".to_owned()]));
    // A name goes on after a NUL, which no C string could hold.
    let nul = more.replace("lm_head", "lm\\u0000head");
    assert_eq!(opening(&safetensors(&nul, &data)), Ok(vec!["lm?head".to_owned(), "none".to_owned()]));
}

/// An index names files beside it, and they are the files that it names.
#[test]
fn an_index_names_files_beside_it() {
    let folder = tempfile::tempdir_in(toy::folder()).unwrap();
    let (header, data) = good_weights();
    std::fs::write(folder.path().join("w1.safetensors"), safetensors(&header, &data)).unwrap();
    let opened = |file: &str| {
        let path = folder.path().join("model.safetensors.index.json");
        std::fs::write(&path, format!("{{\"weight_map\":{{\"scale\":\"{file}\"}}}}")).unwrap();
        opening_path(&path)
    };
    assert_eq!(opened("w1.safetensors"), Ok(vec![]));
    let beside = folder.path().file_name().and_then(|name| name.to_str()).unwrap();
    for (file, shown) in [
        ("w1.safetensors\\u0000.other", "w1.safetensors\\u{0}.other"),
        ("\\u0000", "\\u{0}"),
        ("", ""),
        ("./w1.safetensors", "./w1.safetensors"),
        (&format!("../{beside}/w1.safetensors"), &format!("../{beside}/w1.safetensors")),
    ] {
        let said = opened(file).expect_err(file);
        assert!(said.ends_with(&format!("it names the file `{shown}`, which is not beside it")), "{file}: {said}");
    }
}

/// Files that are wrong: what is wrong with them, and the bytes.
fn broken_files() -> Vec<(String, Vec<u8>)> {
    let (header, data) = good_weights();
    let good = safetensors(&header, &data);
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |what: &str, file: Vec<u8>| files.push((what.to_owned(), file));
    // Truncated, too long, not a file of weights at all.
    for cut in [0, 1, 7, 8, 9, 100, 8 + header.len() - 1, 8 + header.len(), good.len() - 16, good.len() - 1] {
        add(&format!("cut to {cut} bytes"), good[..cut].to_vec());
    }
    add("a byte too long", [good.as_slice(), b"x"].concat());
    add("text", b"this is no weights file, and never was one".to_vec());
    add("a pickle", [b"PK\x03\x04".as_slice(), &[0; 100]].concat());
    // The length of the header.
    for length in [0, 1, 100_000_001, u64::MAX, u64::MAX - 7, i64::MAX as u64, good.len() as u64] {
        let mut file = good.clone();
        file[..8].copy_from_slice(&length.to_le_bytes());
        add(&format!("a header of {length} bytes"), file);
    }
    // The header as text.
    for (what, text) in [
        ("empty", ""),
        ("a list", "[]"),
        ("a number", "7"),
        ("an open object", "{"),
        ("only a name", "{\"scale\""),
        ("no value", "{\"scale\":"),
        ("two objects", "{}{}"),
        ("a comma at the end", "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},}"),
        ("no comma", "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}\"b\":{}}"),
        ("a key without quotes", "{scale:{}}"),
        ("an open string", "{\"scale"),
        ("a bad escape", "{\"a\\x\":{}}"),
        ("half a surrogate pair", "{\"\\ud800\":{}}"),
        ("the wrong half of one", "{\"\\udc00\":{}}"),
        ("two first halves", "{\"\\ud800\\ud800\":{}}"),
        ("a control character in a string", "{\"a\nb\":{}}"),
        ("metadata that is a list", "{\"__metadata__\":[]}"),
        ("metadata with a number", "{\"__metadata__\":{\"a\":1}}"),
    ] {
        add(&format!("a header that is {what}"), safetensors(text, &[]));
    }
    add("a header that is not UTF-8", {
        let mut file = good.clone();
        file[20] = 0xff;
        file
    });
    let deep = |open: &str, n: usize| one(&format!("{{\"x\":{}", open.repeat(n)));
    add("a header nested without end", deep("[", 100_000));
    add("a header of objects without end", deep("{\"a\":", 100_000));
    // One tensor.
    for (what, body) in [
        ("no dtype", "{\"shape\":[4],\"data_offsets\":[0,16]}"),
        ("no shape", "{\"dtype\":\"F32\",\"data_offsets\":[0,16]}"),
        ("no offsets", "{\"dtype\":\"F32\",\"shape\":[4]}"),
        ("nothing", "{}"),
        ("a list for an object", "[]"),
        ("a number for a dtype", "{\"dtype\":32,\"shape\":[4],\"data_offsets\":[0,16]}"),
        ("two dtypes", "{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"),
        ("two shapes", "{\"dtype\":\"F32\",\"shape\":[4],\"shape\":[4],\"data_offsets\":[0,16]}"),
        ("one offset", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}"),
        ("three offsets", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,8,16]}"),
        ("offsets in the wrong order", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}"),
        ("an end beyond the file", "{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}"),
        ("a beginning beyond the file", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[1600,1616]}"),
        (
            "offsets near 2^64",
            "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[18446744073709551600,18446744073709551615]}",
        ),
        ("an offset of 2^64", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,18446744073709551616]}"),
        ("a negative offset", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-16,0]}"),
        ("an offset with a point", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16.0]}"),
        ("an offset with an exponent", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,1e1]}"),
        ("an offset that begins with 0", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,016]}"),
        ("an offset that is text", "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[\"0\",16]}"),
        ("too few bytes", "{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,16]}"),
        ("too many bytes", "{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}"),
        ("a shape that overflows", "{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,16]}"),
        (
            "a shape that wraps to the right size",
            "{\"dtype\":\"F32\",\"shape\":[4611686018427387908],\"data_offsets\":[0,16]}",
        ),
        ("a negative extent", "{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}"),
        ("a shape that is a number", "{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}"),
        ("bytes before it", "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}"),
        ("bytes after it", "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"),
    ] {
        add(&format!("a tensor with {what}"), one(body));
    }
    let axes = vec!["1"; 100].join(",");
    add("a tensor of 100 axes", one(&format!("{{\"dtype\":\"F32\",\"shape\":[{axes}],\"data_offsets\":[0,16]}}")));
    let tensor = "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":";
    for (what, second) in [("overlap", "[4,12]"), ("lie over each other", "[0,8]"), ("leave a hole", "[12,20]")] {
        let text = format!("{{\"a\":{tensor}[0,8]}},\"b\":{tensor}{second}}}}}");
        add(&format!("two tensors that {what}"), safetensors(&text, &[0; 20]));
    }
    let text = format!("{{\"a\":{tensor}[0,8]}},\"a\":{tensor}[8,16]}}}}");
    add("two tensors of one name", safetensors(&text, &[0; 16]));
    // Files that fit the format but not the program.
    let swapped = |from: &str, to: &str| safetensors(&header.replacen(from, to, 1), &data);
    add("a missing tensor", swapped("\"scale\"", "\"scales\""));
    add("one of a layer missing", swapped("h.1.bias", "h.3.bias"));
    add("a prefix before every name", safetensors(&header.replace("h.", "transformer.h."), &data));
    add("another shape", swapped("[5,4]", "[4,5]"));
    add("another rank", swapped("\"shape\":[4]", "\"shape\":[4,1]"));
    add("another type of the same size", swapped("\"F32\"", "\"I32\""));
    add("i8 where f32 is wanted", as_types(&["I8", "F32", "F32", "F32", "F32"]));
    add("f64 where f32 is wanted", as_types(&["F16", "F64", "BF16", "F32", "F32"]));
    add("a type that nobody knows", swapped("\"F32\"", "\"F4711\""));
    add("no tensors", safetensors("{}", &[]));
    add("a terminal's control characters in a name", swapped("\"scale\"", "\"\\u001b[31mred\\u0000\\nline\""));
    files
}

#[test]
fn broken_files_are_errors() {
    let files = broken_files();
    assert!(files.len() >= 50, "{}", files.len());
    let mut told = String::new();
    for (what, file) in files {
        let said = match opening(&file) {
            Ok(_) => panic!("{what}: opened"),
            Err(said) => said,
        };
        assert!(said.starts_with("weights file `FILE`: "), "{what}: {said}");
        assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{what}: {said:?}");
        assert!(said.len() < 2000, "{what}: {said}");
        told += &format!("{what}\n    {}\n", said.trim_start_matches("weights file `FILE`: ").replace('\n', "\n    "));
    }
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/runtime"),
        prepend_module_to_snapshot => false,
    }, {
        insta::assert_snapshot!("broken_weights", told);
    });
}

/// Every byte of a good file changed, a few ways: whatever is said, nothing crashes, and what opens also runs.
#[test]
fn no_changed_byte_crashes() {
    let (header, data) = good_weights();
    let good = safetensors(&header, &data);
    let folder = tempfile::tempdir_in(toy::folder()).unwrap();
    let path = folder.path().join("w.safetensors");
    for at in 0..8 + header.len() {
        for change in [1u8, 0x80, 0x10] {
            let mut file = good.clone();
            file[at] ^= change;
            std::fs::write(&path, &file).unwrap();
            // SAFETY: the toy is linked from our own objects.
            if let Ok(model) = unsafe { CompiledModel::open(toy::so(), Some(&path), 0) } {
                model.session().unwrap().call(0, &[toy::counting(&[2, 4])]).unwrap();
            }
        }
    }
}

#[test]
fn what_is_no_file_is_an_error() {
    let none = toy::folder().join("none.safetensors");
    let e = opening_path(&none).unwrap_err();
    assert!(e.starts_with("cannot read weights file `") && e.ends_with("No such file or directory"), "{e}");
    let e = opening_path(toy::folder()).unwrap_err();
    assert!(e.ends_with("it is a directory"), "{e}");
    let e = opening_path(Path::new("/dev/null")).unwrap_err();
    assert!(e.contains("it has 0 bytes") || e.contains("not a regular file"), "{e}");
    let pipe = toy::folder().join("pipe");
    if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()) {
        let e = opening_path(&pipe).unwrap_err();
        assert!(e.ends_with("it is not a regular file"), "{e}");
    }
    // SAFETY: the toy is linked from our own objects.
    let e = unsafe { CompiledModel::open(toy::so(), None, 0) }.err().map(|e| e.text);
    assert_eq!(e.as_deref(), Some("Toy needs a weights file: it has 5 tensors, `scale` first"));
    for (path, text) in [(toy::weights(), "toy.safetensors"), (none.as_path(), "none.safetensors")] {
        // SAFETY: neither is a library, so nothing is run.
        let e = unsafe { CompiledModel::open(path, None, 0) }.err().map(|e| e.text).unwrap_or_default();
        assert!(e.contains(text), "{e}");
    }
}
