// The numbers of a run: the range of each value, and its distance from the value in f64.
const LEVELS = R.values ? R.values.levels : [];
const MEANT = { written: 'As written', optimised: 'After the passes' };
const shortNumber = (x) => (x == null ? '' : typeof x === 'string' ? x : Number.isInteger(x) && Math.abs(x) < 1e6 ? String(x) : Math.abs(x) >= 1e-3 && Math.abs(x) < 1e5 ? x.toFixed(4) : x.toExponential(2));

// The first value that is outside of its error bound, if there is one.
function firstWrong() {
  for (const level of LEVELS) for (const value of level.values) if (value.outside) return { level, value };
  return null;
}

// Where a value is in the graph IR of its level: [column, row, step].
function rowOf(level, value) {
  const column = columns.find((c) => c.key === 'graph');
  if (!column || !value.name.startsWith('%')) return null;
  const steps = column.level.steps, step = level.name === 'written' ? 0 : steps.length - 1;
  const i = column.textRows(steps[step]).findIndex((r) => r.part === 'func ' + value.function && r.text.trimStart().startsWith(value.name + ' = '));
  return i < 0 ? null : [column, i, step];
}

const distance = (v) => (v.worst ? shortNumber(v.worst.units) : v.unbounded ? 'no bound' : '');
const range = (v) => (v.least == null ? 'nothing finite' : `${shortNumber(v.least)} to ${shortNumber(v.most)}`);

function shaded(v) {
  const columnsOf = v.shape.at(-1), rows = v.shape.at(-2), t = make('table', { class: 'heat' });
  const most = Math.max(1e-30, ...v.elements.filter((x) => typeof x === 'number').map(Math.abs));
  for (let i = 0; i < rows; i++) {
    const tr = t.appendChild(make('tr'));
    for (let j = 0; j < columnsOf; j++) {
      const x = v.elements[i * columnsOf + j], td = tr.appendChild(make('td', {}, typeof x === 'number' ? x.toFixed(2) : String(x)));
      td.style.background = `color-mix(in srgb, var(--c1) ${typeof x === 'number' ? (Math.abs(x) / most * 100).toFixed(0) : 0}%, transparent)`;
    }
  }
  const figure = make('figure');
  figure.append(make('figcaption', {}, `${v.name}, ${v.op} of ${v.elem}[${v.shape.join(', ')}]${v.shape.length > 2 ? ', the first matrix' : ''}`), t);
  return figure;
}

function numbersPanel() {
  const wrong = firstWrong(), out = [];
  const many = LEVELS.reduce((n, level) => n + level.values.length, 0);
  out.push(make('p', {}, wrong ? `${wrong.value.name} is the first value outside of its error bound (${wrong.level.label}): ${shortNumber(wrong.value.worst.computed)} instead of ${shortNumber(wrong.value.worst.meant)} at [${wrong.value.worst.index}], ${shortNumber(wrong.value.worst.units)} bounds away.` : `All ${count(many, 'value')} are within their error bounds. The bound of a value is the largest error that a correct computation can have.`));
  for (const level of LEVELS) {
    out.push(make('p', {}, `${MEANT[level.name] || level.name}: ${level.label}`));
    const t = table(['value', 'operation', 'shape', 'range', 'NaN', 'infinite', 'error / bound', 'first elements'], level.values.map((v) => {
      const go = rowOf(level, v), b = make(go ? 'button' : 'span', { class: go ? 'v' : '' }, v.name);
      if (go) b.addEventListener('click', () => goTo(...go));
      return [b, v.op, `${v.elem}[${v.shape.join(', ')}]`, range(v), v.nan, v.infinite, distance(v), v.elements.slice(0, 4).map(shortNumber).join(', ')];
    }), ['code', 'code', 'code', 'code', '', '', '', 'code']);
    level.values.forEach((v, i) => { if (v.outside) t.tBodies[0].rows[i].className = 'wrong'; });
    out.push(t);
    if (level.name === 'written') for (const v of level.values.filter((v) => v.op === 'softmax' && v.shape.length > 1 && v.elements.length > 8 && v.shape.at(-1) <= 32 && v.shape.at(-2) <= 32).slice(0, 8)) out.push(shaded(v));
  }
  return out;
}

// What the run says of a selected value of graph IR.
function numbersOf(s) {
  const of = (level) => level.values.filter((v) => v.name === s.name && s.part === 'func ' + v.function);
  return LEVELS.flatMap((level) => of(level).map((v) => make('p', {}, `${MEANT[level.name]}: ${v.elem}[${v.shape.join(', ')}], ${range(v)}, ${count(v.nan, 'NaN')}, error / bound ${distance(v)}`)));
}
