// Columns, selections and keys.
const ROW = 20, byId = (id) => document.getElementById(id);
const make = (tag, attributes = {}, text = '') => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text) e.textContent = text;
  return e;
};
const columns = [], narrow = matchMedia('(max-width: 760px)');
let selections = [], active = null;

class Column {
  constructor(key, title, level) {
    Object.assign(this, { key, title, level, cursor: 0, token: -1, hits: new Map(), diff: false, open: false });
    this.step = level ? level.steps.length - 1 : 0;
    this.element = make('section', { class: 'column', 'aria-label': title });
    this.heading = make('h2', {}, title);
    this.small = this.heading.appendChild(make('small'));
    this.element.append(this.heading);
    if (level && level.steps.length > 1) this.element.append((this.strip = make('div', { class: 'strip', role: 'group', 'aria-label': 'Steps' })));
    this.box = make('div', { class: 'rows', role: 'listbox', tabindex: '0', 'aria-label': title + ', lines' });
    this.sheet = this.box.appendChild(make('div', { class: 'sheet', role: 'presentation' }));
    this.element.append(this.box);
    this.box.addEventListener('scroll', () => { this.draw(); bridgesSoon(); });
    this.box.addEventListener('click', (e) => this.clicked(e));
    this.box.addEventListener('keydown', (e) => this.pressed(e));
    this.box.addEventListener('focus', () => {
      active = this;
      // Not while a mouse button goes down: the click would lose its row.
      if (this.box.matches(':focus-visible')) this.draw();
    });
  }

  get rows() {
    const level = this.level, step = level && level.steps[this.step];
    const before = this.diff ? this.before() : null;
    if (level && before == null) return this.textRows(step);
    const key = level ? 'd' + step.text : 's';
    this.cache ||= new Map();
    if (!this.cache.has(key)) this.cache.set(key, level ? rowsOfDiff(before, step.text, this.key) : sourceRows());
    return this.cache.get(key);
  }

  // The rows of a step's text.
  textRows(step) {
    const key = 't' + step.text;
    this.cache ||= new Map();
    if (!this.cache.has(key)) this.cache.set(key, rowsOfText(step.text, this.key));
    return this.cache.get(key);
  }

  before() {
    const steps = this.level.steps;
    for (let i = this.step - 1; i >= 0; i--) if (steps[i].text !== steps[this.step].text) return steps[i].text;
    return null;
  }

  show(step, diff = this.diff) {
    this.step = step;
    this.diff = diff;
    this.cursor = Math.min(this.cursor, this.rows.length - 1);
    this.refresh();
    if (this.strip) this.drawStrip();
    highlight();
  }

  refresh() {
    this.sheet.style.height = this.rows.length * ROW + 'px';
    const lines = this.rows.filter((r) => r.kind !== 'comment' && r.kind !== 'del').length;
    this.small.textContent = `${lines.toLocaleString('en')} lines`;
    this.first = this.last = -1;
    this.draw();
  }

  drawStrip() {
    const add = (text, attributes, run) => {
      const b = this.strip.appendChild(make('button', attributes, text));
      b.addEventListener('click', run);
    };
    this.strip.replaceChildren();
    add('diff', { 'aria-pressed': this.diff, title: 'Show what the step changed (d)' }, () => this.show(this.step, !this.diff));
    let folded = [];
    const fold = () => {
      if (!folded.length) return;
      const all = folded;
      folded = [];
      add('·'.repeat(Math.min(all.length, 9)), { class: 'fold', title: 'unchanged: ' + all.map((i) => this.level.steps[i].name).join(', '), 'aria-label': all.length + ' steps without a change' }, () => this.show(all.at(-1)));
    };
    this.level.steps.forEach((s, i) => {
      if (!s.changed && i !== this.step) return folded.push(i);
      fold();
      add(s.name, { 'aria-pressed': i === this.step }, () => this.show(i));
    });
    fold();
  }

  draw() {
    if (!this.open) return;
    const rows = this.rows, height = this.box.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 10);
    const last = Math.min(rows.length, Math.ceil((this.box.scrollTop + height) / ROW) + 10);
    let html = '';
    for (let i = first; i < last; i++) html += this.row(rows[i], i);
    this.sheet.innerHTML = html;
    // The cursor may be out of sight.
    const drawn = this.cursor >= first && this.cursor < last;
    if (drawn) this.box.setAttribute('aria-activedescendant', `${this.key}-${this.cursor}`); else this.box.removeAttribute('aria-activedescendant');
  }

  row(row, i) {
    const hit = this.hits.get(i), cursor = active === this && i === this.cursor;
    const named = hit && hit.name && hit.column === this.key;
    const classes = ['row', row.kind, hit && !named && !row.line ? 'hit' : '', cursor ? 'cursor' : ''].filter(Boolean).join(' ');
    const style = `top:${i * ROW}px` + (hit ? `;--h:var(--c${hit.colour})` : '');
    const number = row.number ? `<span class="n" aria-hidden="true">${row.number}</span>` : '';
    const text = row.line ? this.sourceText(row, hit) : marked(row.text, named ? hit.name : '', cursor ? this.token : -1);
    return `<div class="${classes}" role="option" id="${this.key}-${i}" ${row.text.trim() ? '' : 'aria-label="empty line" '}aria-selected="${!!hit}" aria-posinset="${i + 1}" aria-setsize="${this.rows.length}" data-i="${i}" style="${style}" title="${row.text.length > 90 ? esc(row.text) : ''}">${number}<span>${text || ' '}</span></div>`;
  }

  // A source line: the expressions of a selection are marked.
  sourceText(row, hit) {
    if (!hit) return esc(row.text);
    const spans = [];
    for (const p of hit.places) {
      const [f, l, c] = p.split(':').map(Number);
      if (f + ':' + l !== row.line) continue;
      const e = (expressions.get(p) || [])[0];
      spans.push([c - 1, e ? (e[3] === l ? e[4] - 1 : row.text.length) : row.text.length]);
    }
    spans.sort((a, b) => a[0] - b[0]);
    const chars = [...row.text];
    let html = '', at = 0;
    for (const [a, b] of spans) {
      if (b <= at) continue;
      const from = Math.max(a, at);
      html += esc(chars.slice(at, from).join('')) + '<span class="hit">' + esc(chars.slice(from, b).join('')) + '</span>';
      at = b;
    }
    return html + esc(chars.slice(at).join(''));
  }

  clicked(e) {
    const element = e.target.closest('.row');
    if (!element) return;
    active = this;
    this.cursor = +element.dataset.i;
    const value = e.target.closest('.v');
    this.choose(value ? value.textContent : '', e.shiftKey || e.ctrlKey || e.metaKey);
  }

  choose(name, add) {
    const row = this.rows[this.cursor];
    if (row) select(selectionOf(this, row, name), add);
  }

  pressed(e) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
    const tokens = names((this.rows[this.cursor] || { text: '' }).text);
    if (e.key in moves) {
      this.cursor = Math.max(0, Math.min(this.rows.length - 1, this.cursor + moves[e.key]));
      this.token = -1;
      this.reveal(this.cursor);
    } else if (e.key === 'ArrowRight') this.token = Math.min(tokens.length - 1, this.token + 1);
    else if (e.key === 'ArrowLeft') this.token = Math.max(-1, this.token - 1);
    else if (e.key === 'Enter' || e.key === ' ') this.choose(tokens[this.token] || '', e.shiftKey);
    else if (this.strip && (e.key === '[' || e.key === ']')) {
      const way = e.key === '[' ? -1 : 1, steps = this.level.steps;
      let i = this.step + way;
      while (steps[i] && !steps[i].changed) i += way;
      if (steps[i]) this.show(i);
    } else if (this.strip && e.key === 'd') this.show(this.step, !this.diff);
    else return;
    e.preventDefault();
    this.draw();
  }

  reveal(i) {
    const top = i * ROW, height = this.box.clientHeight;
    if (top < this.box.scrollTop || top + ROW > this.box.scrollTop + height) this.box.scrollTop = Math.max(0, top - height / 3);
  }

  setOpen(open) {
    this.open = open;
    this.element.hidden = !open;
    if (open) { this.refresh(); if (this.strip) this.drawStrip(); }
  }
}

// A line with its values, strings and types marked.
function marked(text, name, token) {
  let html = '', at = 0, n = 0;
  for (const m of text.matchAll(/%[A-Za-z0-9_.]+|"[^"]*"| : .*$/g)) {
    html += esc(text.slice(at, m.index));
    at = m.index + m[0].length;
    if (m[0][0] === '%') {
      html += `<span class="v${m[0] === name ? ' hit' : ''}${n === token ? ' at' : ''}">${esc(m[0])}</span>`;
      n++;
    } else if (m[0][0] === '"') html += `<span class="s">${esc(m[0])}</span>`;
    else html += '<span class="y">' + esc(m[0]).replace(NAME, (v) => `<span class="v${v === name ? ' hit' : ''}${n++ === token ? ' at' : ''}">${v}</span>`) + '</span>';
  }
  return html + esc(text.slice(at));
}

function select(selection, add) {
  const used = selections.map((s) => s.colour);
  selection.colour = add ? [0, 1, 2, 3, 4, 5].find((c) => !used.includes(c)) ?? 0 : 0;
  selections = add ? [...selections.slice(-5), selection] : [selection];
  highlight(selection);
  showPanel('value');
  const n = columns.reduce((sum, c) => sum + (c.open ? c.hits.size : 0), 0);
  byId('status').textContent = `${selection.name || 'line'} selected: ${n} lines in the open columns`;
}

// Marks the rows of all selections; columns scroll to those of `latest`.
function highlight(latest) {
  for (const c of columns.filter((c) => c.open)) {
    c.hits = new Map();
    const all = c.rows;
    for (const s of selections) for (const i of matching(c, all, s)) c.hits.set(i, s);
    if (latest && c.key !== latest.column) {
      const rows = matching(c, all, latest);
      const from = c.box.scrollTop / ROW, to = from + c.box.clientHeight / ROW - 1;
      if (rows.length && !rows.some((i) => i >= from && i <= to)) c.reveal(rows[0]);
    }
    c.draw();
  }
  bridgesSoon();
}

// Bands between the marked rows of neighbouring columns.
let waiting = false;
function bridgesSoon() {
  if (!waiting) requestAnimationFrame(() => { waiting = false; bridges(); });
  waiting = true;
}
function bridges() {
  const open = columns.filter((c) => c.open), paths = [];
  const ends = (c, s) => {
    const box = c.box.getBoundingClientRect();
    const blocks = [], last = (c.box.scrollTop + c.box.clientHeight) / ROW - .5;
    for (let i = Math.max(0, Math.ceil(c.box.scrollTop / ROW - .5)); i <= last; i++) {
      if (c.hits.get(i) !== s) continue;
      if (blocks.length && blocks.at(-1)[1] + 1 >= i) blocks.at(-1)[1] = i; else blocks.push([i, i]);
    }
    return blocks.slice(0, 4).map(([a, b]) => ({ left: box.left, right: box.right, top: Math.max(box.top, box.top + a * ROW - c.box.scrollTop), bottom: Math.min(box.bottom, box.top + (b + 1) * ROW - c.box.scrollTop) }));
  };
  for (let k = 0; k + 1 < open.length; k++) for (const s of selections) {
    const a = ends(open[k], s), b = ends(open[k + 1], s);
    for (let i = 0; a.length && b.length && i < Math.max(a.length, b.length); i++) {
      const p = a[Math.min(i, a.length - 1)], q = b[Math.min(i, b.length - 1)], x = (p.right + q.left) / 2;
      paths.push(`<path fill="var(--c${s.colour})" d="M${p.right} ${p.top}C${x} ${p.top} ${x} ${q.top} ${q.left} ${q.top}V${q.bottom}C${x} ${q.bottom} ${x} ${p.bottom} ${p.right} ${p.bottom}Z"/>`);
    }
  }
  byId('bridges').innerHTML = paths.join('');
}

function openOnly(keys) {
  for (const c of columns) c.setOpen(keys.includes(c.key));
  [...byId('tabs').children].forEach((b, i) => b.setAttribute('aria-pressed', columns[i].open));
  highlight();
}

function goTo(column, i, step) {
  if (!column.open) openOnly(narrow.matches ? [column.key] : [...columns.filter((c) => c.open).map((c) => c.key), column.key]);
  if (step != null && step !== column.step) column.show(step);
  column.cursor = i;
  active = column;
  column.box.focus({ preventScroll: true });
  column.element.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  column.reveal(i);
  column.draw();
}

function searchNext() {
  const wanted = byId('search').value.toLowerCase(), c = active && active.open ? active : columns.find((c) => c.open);
  if (!wanted || !c) return;
  const rows = c.rows, n = rows.length;
  for (let k = 1; k <= n; k++) {
    const i = (c.cursor + k) % n;
    if (rows[i].text.toLowerCase().includes(wanted)) {
      active = c;
      c.cursor = i;
      c.reveal(i);
      c.draw();
      byId('status').textContent = `found in line ${i + 1} of ${c.title}`;
      return;
    }
  }
  byId('status').textContent = 'not found';
}

function startView() {
  columns.push(new Column('source', 'Source', null));
  for (const level of R.levels) columns.push(new Column(level.name, level.title, level));
  active = columns[0];
  for (const c of columns) {
    byId('columns').append(c.element);
    const tab = byId('tabs').appendChild(make('button', { 'aria-pressed': 'false' }, c.title));
    tab.addEventListener('click', () => {
      const open = columns.filter((o) => o.open).map((o) => o.key);
      openOnly(narrow.matches ? [c.key] : open.includes(c.key) ? open.filter((k) => k !== c.key) : [...open, c.key]);
    });
  }
  const start = () => openOnly(narrow.matches ? ['source'] : ['source', 'graph', 'scheduled', 'asm', 'ptx']);
  start();
  narrow.addEventListener('change', start);
  addEventListener('resize', () => { columns.forEach((c) => c.draw()); bridgesSoon(); });
  byId('columns').addEventListener('scroll', bridgesSoon);
  byId('search').addEventListener('keydown', (e) => { if (e.key === 'Enter') searchNext(); });
  addEventListener('keydown', (e) => {
    if (e.key === 'Escape') {
      selections = [];
      highlight();
      showPanel(panel);
      if (document.activeElement === byId('search') && active) active.box.focus();
    } else if (e.key === '/' && e.target.tagName !== 'INPUT') { e.preventDefault(); byId('search').focus(); }
  });
  // Rows and indices are made while nobody waits.
  const later = [...columns];
  const work = () => {
    const c = later.shift();
    if (!c) return;
    if (c.rows) { indexed(c.rows); later.push(...(c.level ? c.level.steps : []).filter((s) => s.changed).map((s) => ({ c, s }))); } else indexed(c.c.textRows(c.s));
    setTimeout(work, 0);
  };
  setTimeout(work, 50);
}
