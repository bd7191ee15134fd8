// The record as rows: what a column shows, and which rows belong to a selection.
const R = JSON.parse(document.getElementById('record').textContent);
const CODE = new Set(['vector', 'mir', 'asm', 'ptx']);
const NAME = /%[A-Za-z0-9_.]+/g;
const placeKey = (p) => p.join(':');
const esc = (t) => t.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
const unique = (list) => [...new Set(list)];

// Line numbers of a text.
const expanded = new Map();
function idsOf(n) {
  if (!expanded.has(n)) {
    const ids = [], runs = R.texts[n].runs;
    for (let i = 0; i < runs.length; i += 2) for (let k = 0; k < runs[i + 1]; k++) ids.push(runs[i] + k);
    expanded.set(n, ids);
  }
  return expanded.get(n);
}

// The lines of the parts of the scheduled tile IR, to which `of` refers.
const scheduled = R.levels.find((l) => l.name === 'scheduled');
const parts = new Map();
if (scheduled) {
  const n = scheduled.steps.at(-1).text, ids = idsOf(n), list = R.texts[n].parts;
  list.forEach(([name, start], i) => parts.set(name, ids.slice(start, i + 1 < list.length ? list[i + 1][1] : ids.length)));
}
const targetLine = (part, of) => R.lines[(parts.get(part) || [])[of]];

// Expressions by where they start: the longest first.
const expressions = new Map();
for (const e of R.expressions) {
  const key = placeKey(e.slice(0, 3));
  expressions.set(key, [...(expressions.get(key) || []), e].sort((a, b) => b[3] - a[3] || b[4] - a[4]));
}
const placesOfLine = new Map();
for (const line of R.lines) for (const p of line[1] || []) {
  const key = p[0] + ':' + p[1];
  if (!placesOfLine.has(key)) placesOfLine.set(key, new Set());
  placesOfLine.get(key).add(placeKey(p));
}

// Rows of one text: {text, at, of, part, offset, id, kind}.
function rowsOfText(n, format) {
  const ids = idsOf(n), list = R.texts[n].parts, rows = [];
  let p = -1, part = '', start = 0, last = null;
  rows.source = n;
  ids.forEach((id, i) => {
    if (p + 1 < list.length && list[p + 1][1] === i) { p++; [part, start] = list[p]; last = null; }
    const [text, own, of] = R.lines[id];
    const target = of == null ? null : targetLine(part, of);
    if (target && of !== last && format !== 'vector') {
      rows.push({ text: '    ' + target[0].trim(), at: target[1] || [], of, part, id: -1, kind: 'comment' });
    }
    if (of != null) last = of;
    const at = own && own.length ? own : target ? target[1] || [] : [];
    const kind = i === start && part ? 'head' : /^\s*(\^|\.?[\w.]+:$|\/\/|#)/.test(text) ? 'label' : '';
    rows.push({ text, at, of: of ?? null, part, offset: i - start, id, kind });
  });
  return rows;
}

// A line as another step may have it too: in graph IR a number is the same value in each step; elsewhere it is not.
const lineKey = (format, row) => format === 'graph' ? row.id : row.text.replace(NAME, '%').replace(/\s+/g, ' ') + (row.at || []).join();

// Pairs of equal keys in order, as many as possible; of very long lists, those that occur once in each.
function aligned(a, b) {
  let from = 0, end = 0, pairs = [];
  while (from < Math.min(a.length, b.length) && a[from] === b[from]) pairs.push([from, from++]);
  while (end < Math.min(a.length, b.length) - from && a.at(-1 - end) === b.at(-1 - end)) end++;
  const n = a.length - from - end, m = b.length - from - end;
  if (n * m > 4e6) {
    const once = (list) => { const seen = new Map(); list.forEach((k, i) => seen.set(k, seen.has(k) ? -1 : i)); return seen; };
    const there = once(a);
    let last = from - 1;
    for (const [k, j] of once(b)) {
      const i = there.get(k) ?? -1;
      if (j >= from && j < from + m && i > last && i < from + n) { pairs.push([i, j]); last = i; }
    }
  } else if (n * m) {
    const w = m + 1, best = new Uint16Array((n + 1) * w);
    for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--) {
      best[i * w + j] = a[from + i] === b[from + j] ? best[(i + 1) * w + j + 1] + 1 : Math.max(best[(i + 1) * w + j], best[i * w + j + 1]);
    }
    for (let i = 0, j = 0; i < n && j < m;) {
      if (a[from + i] === b[from + j]) pairs.push([from + i++, from + j++]);
      else if (best[(i + 1) * w + j] >= best[i * w + j + 1]) i++; else j++;
    }
  }
  for (let k = end; k > 0; k--) pairs.push([a.length - k, b.length - k]);
  return pairs;
}

// Rows of a text with what the step before had instead, part by part: kernels keep their names.
function rowsOfDiff(before, after, format) {
  const out = [];
  const grouped = (n) => {
    const map = new Map();
    for (const r of rowsOfText(n, format)) { if (!map.has(r.part)) map.set(r.part, []); map.get(r.part).push(r); }
    return map;
  };
  const removed = (rows) => { for (const r of rows) out.push({ ...r, of: null, kind: 'del' }); };
  const had = grouped(before), has = grouped(after), names = [...had.keys()];
  let next = 0;
  for (const [part, rows] of has) {
    const at = names.indexOf(part);
    for (; next < at; next++) if (!has.has(names[next])) removed(had.get(names[next]));
    next = Math.max(next, at + 1);
    const own = had.get(part) || [], keys = (list) => list.map((r) => lineKey(format, r));
    let i = 0, j = 0;
    for (const [p, q] of [...aligned(keys(own), keys(rows)), [own.length, rows.length]]) {
      removed(own.slice(i, p));
      for (; j < q; j++) out.push({ ...rows[j], kind: 'add' });
      if (q < rows.length) out.push(rows[q]);
      [i, j] = [p + 1, q + 1];
    }
  }
  for (; next < names.length; next++) if (!has.has(names[next])) removed(had.get(names[next]));
  out.source = after;
  return out;
}

// Rows of the sources, each line with its remarks and diagnostics below it.
function sourceRows() {
  const notes = new Map(), add = (key, note) => notes.set(key, [...(notes.get(key) || []), note]);
  R.remarks.forEach((r) => r.at && add(r.at[0] + ':' + r.at[1], { text: `${r.missed ? 'not done' : 'done'} · ${r.pass}: ${r.message}`, at: [r.at], kind: r.missed ? 'remark missed' : 'remark' }));
  R.remarks.forEach((r) => r.at && r.edit && add(r.at[0] + ':' + r.at[1], { text: `to get it: ${r.edit.title}`, at: [r.at], kind: 'remark edit' }));
  for (const d of R.diagnostics) for (const s of d.spans.filter((s) => s.is_primary)) {
    const file = R.files.findIndex((f) => f.name === s.file_name);
    add(file + ':' + s.line_start, { text: `${d.level}: ${d.message}`, at: [[file, s.line_start, s.column_start]], kind: 'remark error' });
  }
  const rows = [];
  R.files.forEach((file, f) => {
    if (R.files.length > 1) rows.push({ text: file.name, at: [], kind: 'head', part: file.name });
    file.text.replace(/\n$/, '').split('\n').forEach((text, i) => {
      const key = f + ':' + (i + 1);
      rows.push({ text, at: [], line: key, number: i + 1, part: file.name, kind: '' });
      const seen = new Set();
      for (const note of notes.get(key) || []) if (!seen.has(note.text)) { seen.add(note.text); rows.push({ ...note, part: file.name }); }
    });
  });
  return rows;
}

// What finds rows by location, by origin and by part.
function indexed(rows) {
  if (rows.index) return rows.index;
  const place = new Map(), of = new Map(), part = new Map();
  const add = (map, key, i) => { const l = map.get(key); if (l) l.push(i); else map.set(key, [i]); };
  rows.forEach((row, i) => {
    if (row.kind === 'comment' || row.kind === 'del') return;
    for (const p of row.at) add(place, placeKey(p), i);
    if (row.of != null) add(of, row.part + '#' + row.of, i);
    if (row.line) add(place, row.line, i);
    add(part, row.part, i);
  });
  return (rows.index = { place, of, part });
}

const names = (text) => text.match(NAME) || [];
const hasName = (row, name) => names(row.text).includes(name);
const defines = (row, name) => row.text.trimStart().startsWith(name + ' = ');

// What a click on a row, or on a value in it, selects.
function selectionOf(column, row, name) {
  const source = column.rows.source;
  const selection = { column: column.key, source, part: row.part, name, places: new Set(), lines: new Set(), target: null, row };
  if (row.line) {
    for (const p of placesOfLine.get(row.line) || []) selection.places.add(p);
    selection.lines.add(row.line);
    return selection;
  }
  let origin = row;
  // In graph IR, a value is its operation's; `%7.2` is inside that of `%7`.
  if (column.key === 'graph') selection.operation = [row.part, (name || (/^\s*(%\S+) = /.exec(row.text) || [])[1] || '').split('.')[0]].join();
  if (name) {
    const own = (indexed(column.rows).part.get(row.part) || []).map((i) => column.rows[i]);
    const found = own.find((r) => defines(r, name));
    if (found) origin = found;
    else if (!CODE.has(column.key)) origin = { at: [], of: null };
  }
  for (const p of origin.at) { selection.places.add(placeKey(p)); selection.lines.add(p[0] + ':' + p[1]); }
  if (column.key === 'scheduled' && source === scheduled.steps.at(-1).text && origin.offset != null) selection.target = { part: row.part, of: origin.offset };
  if (CODE.has(column.key) && origin.of != null) selection.target = { part: row.part, of: origin.of };
  return selection;
}

// The kernels that were launched for an operation of graph IR; null if none is known.
function kernelsOf(column, rows, operation) {
  const tile = R.levels.find((l) => l.name === 'tile');
  const before = column.key === 'tile' || tile && rows.source === tile.steps.at(-1).text;
  const after = CODE.has(column.key) || scheduled && rows.source === scheduled.steps.at(-1).text;
  const known = operation && (before ? R.kernels.tile : after ? R.kernels.scheduled : null) || {};
  const found = Object.keys(known).filter((k) => known[k].some((o) => o.join() === operation)).map((k) => 'kernel ' + k);
  return found.length ? found : null;
}

// The rows of a column that belong to a selection, in order.
function matching(column, rows, s) {
  s.known ||= new Map();
  if (!s.known.has(rows)) s.known.set(rows, found(column, rows, s));
  return s.known.get(rows);
}

function found(column, rows, s) {
  const index = indexed(rows);
  // A name is known in its own text, and in graph IR in each.
  const same = column.key === s.column && (column.key === 'graph' || !s.row.id || rows.source === s.source);
  if (same && s.name) return (index.part.get(s.part) || []).filter((i) => hasName(rows[i], s.name));
  if (s.target && CODE.has(column.key)) return index.of.get(s.target.part + '#' + s.target.of) || [];
  if (s.target && column.key === 'scheduled' && rows.source === scheduled.steps.at(-1).text) {
    return (index.part.get(s.target.part) || []).filter((i) => rows[i].offset === s.target.of);
  }
  if (same && !s.row.line && !s.places.size) return [rows.indexOf(s.row)].filter((i) => i >= 0);
  const marks = new Uint8Array(rows.length), out = [], kernels = kernelsOf(column, rows, s.operation);
  for (const key of column.key === 'source' ? s.lines : s.places) for (const i of index.place.get(key) || []) {
    if (!kernels || !rows[i].part.startsWith('kernel ') || kernels.includes(rows[i].part)) marks[i] = 1;
  }
  if (kernels && !s.name.includes('.')) for (const part of kernels) for (const i of index.part.get(part) || []) if (rows[i].at.length) marks[i] = 1;
  for (let i = 0; i < marks.length; i++) if (marks[i]) out.push(i);
  return out;
}
