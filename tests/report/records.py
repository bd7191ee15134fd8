"""Makes the record of every example for several targets and checks it: `python3 tests/report/records.py ATTNC`.

Each record fits `src/record/schema.json` and is consistent: numbers refer to lines, texts, files and operations that
exist, locations are inside their files, and the last graph IR has the operations of `--emit ir`. Each instruction of a
kernel has a source line, at every level; at most a sixth of its code belongs to no operation but to the kernel: entry,
exit, the loop over the grid."""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = [["--cpu", "portable"], ["--cpu", "avx2"], ["-O0"], ["--target", "cuda"]]


def valid(value, schema, root, where="record"):
    """Checks the part of JSON Schema that schema.json uses; returns the first error, or None."""
    if "$ref" in schema:
        return valid(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, where)
    if "anyOf" in schema:
        errors = [valid(value, one, root, where) for one in schema["anyOf"]]
        return None if None in errors else errors[0]
    if "const" in schema and value != schema["const"] or "enum" in schema and value not in schema["enum"]:
        return f"{where}: {value!r} is not allowed"
    kinds = {"string": str, "integer": int, "array": list, "object": dict, "boolean": bool, "null": type(None)}
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(type(value) is kinds[t] for t in types):
        return f"{where}: expected {types}, found {value!r:.60}"
    if value is not None and value < schema["minimum"] if "minimum" in schema else False:
        return f"{where}: {value} is below {schema['minimum']}"
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return f"{where}: {len(value)} items"
        first = schema.get("prefixItems", [])
        for n, item in enumerate(value):
            one = first[n] if n < len(first) else schema.get("items", {})
            if error := valid(item, one, root, f"{where}[{n}]"):
                return error
    if isinstance(value, dict):
        known = schema.get("properties", {})
        if missing := [name for name in schema.get("required", []) if name not in value]:
            return f"{where}: {missing} are missing"
        for name, item in value.items():
            one = known.get(name, schema.get("additionalProperties", {}))
            if one is False:
                return f"{where}: unexpected `{name}`"
            if error := valid(item, one, root, f"{where}.{name}"):
                return error
    return None


def ids(text):
    runs = text["runs"]
    return [i for k in range(0, len(runs), 2) for i in range(runs[k], runs[k] + runs[k + 1])]


def parts(text):
    """The lines of each part; parts of one name follow each other."""
    all_ids, out = ids(text), {}
    ends = [start for _, start in text["parts"][1:]] + [len(all_ids)]
    for (name, start), end in zip(text["parts"], ends):
        out.setdefault(name, []).extend(all_ids[start:end])
    return out


def is_instruction(text):
    inside = text.strip()
    return text.startswith("  ") and inside and not inside.startswith(("}", "doc ", "^", ".", "//", "#"))


def consistent(record):
    """The first inconsistency, or None; and for each level, instructions in kernels, those with a location, and those
    that belong to the head of their kernel."""
    files = [f["text"].split("\n") for f in record["files"]]
    lines, texts, shares = record["lines"], record["texts"], {}
    for text, *rest in lines:
        for file, line, column in rest[0] if rest else []:
            if line > len(files[file]) or column > len(files[file][line - 1]) + 1:
                return f"`{text}`: {line}:{column} is not in {record['files'][file]['name']}", shares
    tiles = {}
    for level in record["levels"]:
        last = level["steps"][-1]["text"]
        for step in level["steps"]:
            if step["text"] >= len(texts) or any(r >= len(record["remarks"]) for r in step["remarks"]):
                return f"{level['name']}.{step['name']}: a number refers to nothing", shares
        all_parts = parts(texts[last])
        if level["name"] == "scheduled":
            tiles = all_parts
        for name, own in all_parts.items():
            for i in own:
                of = lines[i][2] if len(lines[i]) > 2 else None
                if of is not None and of >= len(tiles.get(name, [])):
                    return f"{level['name']}: `{lines[i][0]}` of {name} has no origin {of}", shares
                if name.startswith("kernel ") and is_instruction(lines[i][0]):
                    at = lines[i][1] if len(lines[i]) > 1 and lines[i][1] else None
                    if of is not None:
                        target = lines[tiles[name][of]]
                        at = at or (target[1] if len(target) > 1 else None)
                    total, located, heads = shares.get(level["name"], (0, 0, 0))
                    shares[level["name"]] = (total + 1, located + bool(at), heads + (of == 0))
    return None, shares


def operations(text):
    return sorted(m.group(1) for m in re.finditer(r"^ +(?:%[\w.]+ = )?([a-z_]+)", text, re.M))


def main():
    attnc = sys.argv[1]
    schema = json.loads((ROOT / "src/record/schema.json").read_text())
    assert valid({"format": "attnc-record", "version": 2}, schema, schema)
    total, failures = {}, 0
    for example in sorted((ROOT / "examples").glob("*.attn")):
        entries = re.findall(r"^model (\w+)", example.read_text(), re.M)
        for target in TARGETS:
            entry = ["--entry", entries[-1]] if len(entries) > 1 else []
            command = [attnc, example, *entry, *target, "--emit=record=-"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            record = json.loads(done.stdout or "{}")
            error = valid(record, schema, schema)
            shares = {}
            if error is None:
                error, shares = consistent(record)
            if error is None and done.returncode == 0:
                ir = subprocess.run([*command[:-1], "--emit=ir=-"], capture_output=True, text=True, check=True).stdout
                last = record["texts"][record["levels"][0]["steps"][-1]["text"]]
                own = "\n".join(record["lines"][i][0] for i in ids(last))
                if operations(ir) != operations(own):
                    error = "the last graph IR has other operations than `--emit ir`"
            if error or done.returncode:
                failures += 1
                print(f"{example.name} {' '.join(target)}: {error or done.stderr}")
            for level, counts in shares.items():
                total[level] = [a + b for a, b in zip(total.get(level, (0, 0, 0)), counts)]
            if example.name.startswith(("02", "08")):
                print(f"{example.name} {' '.join(target)}: {len(done.stdout)} bytes")
    for level, (n, located, heads) in total.items():
        print(f"{level}: {located} of {n} kernel instructions have a source line, {heads} that of their kernel")
        failures += located < n or heads * 6 > n
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
