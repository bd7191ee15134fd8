'use strict';
// The course: chapters from Markdown, exercises with their judge, examples.
const passed = new Set(kept());

// What was passed before the page was loaded again.
function kept() {
  try { return JSON.parse(localStorage.getItem('passed')) || []; } catch { return []; }
}

function keep(name) {
  passed.add(name);
  try { localStorage.setItem('passed', JSON.stringify([...passed])); } catch { /* The browser keeps nothing. */ }
}

const drafts = new Map();

// Markdown, as far as the chapters use it. All content becomes text nodes.
function inline(text, into) {
  const part = /`([^`]+)`|!\[([^\]]*)\]\(([^)]+)\)|\[((?:[^\]`]|`[^`]*`)+)\]\(([^)]+)\)|\*\*([^*]+)\*\*|\*([^*]+)\*/g;
  let last = 0;
  for (const m of text.matchAll(part)) {
    into.append(text.slice(last, m.index));
    last = m.index + m[0].length;
    if (m[1] != null) into.append(make('code', {}, m[1]));
    else if (m[3] != null) into.append(make('img', { src: 'picture/' + m[3].split('/').pop(), alt: m[2] }));
    else if (m[5] != null) into.append(link(m[4], m[5]));
    else into.append(inline(m[6] ?? m[7], make(m[6] != null ? 'strong' : 'em')));
  }
  into.append(text.slice(last));
  return into;
}

// A chapter is opened here; other pages are named, since nothing is loaded from elsewhere.
function link(text, to) {
  const chapter = /^([\w-]+)\.md/.exec(to);
  if (!chapter || !state.course.chapters.some((c) => c.name === chapter[1])) return inline(text, make('span', { title: to }));
  const go = (e) => { e.preventDefault(); showChapter(chapter[1]); };
  return inline(text, make('a', { href: '#chapter=' + chapter[1], onclick: go }));
}

function fenced(kind, lines) {
  const text = lines.join('\n');
  if (kind !== 'attn' && kind !== 'text' || kind === 'text' && !/^(module|func)\b/m.test(text)) return make('pre', { tabindex: 0 }, make('code', {}, text));
  const open = make('button', { type: 'button', onclick: () => { openProgram(text + '\n', fileOf(text)); showTab('program'); } }, 'Open in the editor');
  return make('div', { class: 'program' }, make('pre', { tabindex: 0 }, coloured(text)), kind === 'attn' ? open : '');
}

const fileOf = (text) => (/^\/\/ ([\w-]+\.(?:attn|air|tir|vir))\s*$/m.exec(text) || [null, 'program.attn'])[1];

function markdown(text) {
  const out = document.createDocumentFragment(), lines = text.split('\n');
  const starts = /^(#{1,4} |```|> |[-*] |\d+\. |\|)/;
  let i = 0;
  const while_ = (test) => { const own = []; while (i < lines.length && test(lines[i])) own.push(lines[i++]); return own; };
  while (i < lines.length) {
    const line = lines[i], head = /^(#{1,4}) (.*)/.exec(line);
    if (!line.trim()) i++;
    else if (head) { i++; out.append(inline(head[2], make('h' + head[1].length))); }
    else if (line.startsWith('```')) {
      i++;
      const own = while_((l) => !l.startsWith('```'));
      i++;
      out.append(fenced(line.slice(3).trim(), own));
    } else if (line.startsWith('> ')) out.append(make('blockquote', {}, markdown(while_((l) => l.startsWith('>')).map((l) => l.replace(/^> ?/, '')).join('\n'))));
    else if (line.startsWith('|')) {
      const cells = (l) => l.replace(/^\||\|$/g, '').split('|').map((c) => c.trim()), rows = while_((l) => l.startsWith('|'));
      out.append(make('div', { class: 'scroll', tabindex: 0 }, make('table', {}, ...rows.filter((_, n) => n !== 1).map((l, n) => make('tr', {}, ...cells(l).map((c) => inline(c, make(n ? 'td' : 'th'))))))));
    } else if (/^([-*]|\d+\.) /.test(line)) {
      const list = out.appendChild(make(/^\d/.test(line) ? 'ol' : 'ul', { start: /^\d+/.exec(line)?.[0] }));
      while (i < lines.length && /^([-*]|\d+\.) /.test(lines[i])) {
        const own = [lines[i++].replace(/^([-*]|\d+\.) /, ''), ...while_((l) => /^\s+\S/.test(l)).map((l) => l.trim())];
        list.append(inline(own.join(' '), make('li')));
      }
    } else {
      const own = [lines[i++], ...while_((l) => l.trim() && !starts.test(l))];
      out.append(inline(own.join(' '), make('p')));
    }
  }
  return out;
}

const titleOf = (text) => (/^# (.*)/m.exec(text) || [null, ''])[1];

// Opens a program; what was in the editor is kept if it belongs to an exercise.
function openProgram(text, file) {
  keepDraft();
  state.opened = text;
  open(text, file);
}

function keepDraft() {
  if (state.lesson && state.lesson.kind === 'exercise') drafts.set(state.lesson.name, state.text);
}

function showChapter(name, withProgram = state.text === state.opened) {
  const chapter = state.course.chapters.find((c) => c.name === name);
  if (!chapter) return;
  keepDraft();
  state.lesson = { kind: 'chapter', name };
  const own = state.course.exercises.filter((e) => Number(e.chapter) === parseInt(name, 10));
  byId('lesson').replaceChildren(markdown(chapter.text), ...(own.length ? [make('p', {}, ...own.map((e) => make('button', { type: 'button', onclick: () => showExercise(e.name) }, `Exercise ${parseInt(e.name, 10)}: ${e.title}`)))] : []));
  byId('lesson').scrollTop = 0;
  const first = /```attn\n([\s\S]*?)```/.exec(chapter.text);
  if (withProgram && first) { state.opened = first[1]; open(first[1], fileOf(first[1])); }
  location.hash = 'chapter=' + name;
  lessonChosen();
}

function showExercise(name) {
  const exercise = state.course.exercises.find((e) => e.name === name);
  if (!exercise) return;
  keepDraft();
  state.lesson = { kind: 'exercise', name };
  const result = make('div', { 'aria-live': 'polite' });
  const judge = make('button', { type: 'button', class: 'main', onclick: () => judged(exercise, judge, result) }, 'Judge');
  const again = make('button', { type: 'button', onclick: () => { drafts.delete(name); state.opened = exercise.text; open(exercise.text, exercise.file); } }, 'Start again');
  const hints = exercise.hints.map((h, i) => make('details', {}, make('summary', {}, `Hint ${i + 1}`), inline(h.replace(/\n\s*/g, ' '), make('p'))));
  const outside = 'This exercise changes attnc itself: solve it in a checkout, with `attnc learn ' + parseInt(name, 10) + '`.';
  byId('lesson').replaceChildren(make('h1', {}, `Exercise ${parseInt(name, 10)}: ${exercise.title}`), markdown(exercise.task), exercise.text == null ? inline(outside, make('p')) : make('p', {}, judge, ' ', again), result, ...hints);
  byId('lesson').scrollTop = 0;
  if (exercise.text != null) { state.opened = exercise.text; open(drafts.get(name) ?? exercise.text, exercise.file); }
  location.hash = 'exercise=' + name;
  lessonChosen();
}

async function judged(exercise, button, result) {
  button.disabled = true;
  result.replaceChildren(make('p', { class: 'soft' }, 'Judging'));
  try {
    const answer = await call('judge', { text: state.text, file: exercise.file, exercise: exercise.name });
    if (!answer) return;
    if (answer.passed) keep(exercise.name);
    // The task, which attnc prints first, is above.
    const said = answer.messages.split(exercise.task).pop().trim();
    result.replaceChildren(make('p', { class: answer.passed ? 'good' : 'error' }, answer.passed ? 'Passed.' : 'Not yet.'), make('pre', { class: 'messages', tabindex: 0 }, said));
    contents();
  } catch (error) {
    result.replaceChildren(make('p', { class: 'error' }, error.message));
  } finally {
    button.disabled = false;
  }
}

function showExample(name) {
  const example = state.course.examples.find((e) => e.name === name);
  if (!example) return;
  openProgram(example.text, name.replace(/^\d+_/, '') + '.attn');
  state.lesson = { kind: 'example', name };
  location.hash = 'example=' + name;
  contents();
  showTab('program');
}

function lessonChosen() {
  contents();
  showTab('lesson');
}

// The list of all lessons.
function contents() {
  const { chapters, exercises, examples } = state.course, now = state.lesson || {};
  const entry = (kind, name, number, title, go) => {
    const own = make('button', { type: 'button', onclick: () => { byId('lessons').classList.remove('open'); byId('menu').setAttribute('aria-expanded', 'false'); go(name); } }, make('span', { class: 'n' }, number), make('span', {}, title, kind === 'exercise' && passed.has(name) ? make('span', { class: 'done' }, ' passed') : ''));
    if (now.kind === kind && now.name === name) own.setAttribute('aria-current', 'true');
    return make('li', { class: kind === 'exercise' ? 'own' : false }, own);
  };
  const list = make('ol'), last = make('ol'), front = chapters.find((c) => c.name === 'index');
  if (front) list.append(entry('chapter', 'index', '', titleOf(front.text), showChapter));
  for (const c of chapters.filter((c) => /^\d/.test(c.name))) {
    list.append(entry('chapter', c.name, String(parseInt(c.name, 10)), titleOf(c.text), showChapter));
    for (const e of exercises.filter((e) => Number(e.chapter) === parseInt(c.name, 10))) list.append(entry('exercise', e.name, '', e.title, showExercise));
  }
  for (const e of examples) last.append(entry('example', e.name, e.name.slice(0, 2).replace(/^0/, ''), e.name.slice(3).replaceAll('_', ' '), showExample));
  const scroll = byId('lessons').scrollTop;
  byId('lessons').replaceChildren(make('h2', {}, 'Course'), list, make('h2', {}, 'Examples'), last);
  byId('lessons').scrollTop = scroll;
}
