'use strict';
// Starts the page: tabs, the report, the fragment of the address.
const TABS = ['program', 'lesson', 'call', 'report'];
const narrow = matchMedia('(max-width: 900px)');
let tab = 'lesson', stale = true;

function showTab(name) {
  tab = name === 'program' && !narrow.matches ? (tab === 'program' ? 'lesson' : tab) : name;
  for (const own of TABS) {
    const isNow = own === tab, button = byId('tab-' + own);
    byId(own).hidden = own === 'program' ? narrow.matches && !isNow : !isNow;
    button.setAttribute('aria-selected', isNow);
    button.tabIndex = isNow ? 0 : -1;
  }
  if (tab === 'report' && stale) build();
}

function showReport(path, note) {
  stale = false;
  byId('frame').src = path;
  byId('built').textContent = note;
}

async function build() {
  const options = [byId('level').value, ...byId('target').value.split(' ').filter(Boolean)];
  byId('built').textContent = 'compiling';
  try {
    const answer = await call('report', { ...program(), options });
    if (!answer) return;
    if (answer.report) showReport(answer.report, answer.ok ? '' : 'the program has errors');
    else byId('built').textContent = answer.messages.trim().split('\n').pop();
  } catch (error) {
    byId('built').textContent = error.message;
  }
}

const rebuild = soon(() => { if (tab === 'report') build(); }, 400);

async function programChanged() {
  stale = true;
  rebuild();
  refresh();
  if (state.text !== state.opened) {
    const packed = await pack({ text: state.text, file: state.file, lesson: state.lesson });
    state.fragment = '#program=' + packed;
    history.replaceState(null, '', state.fragment);
  }
}

// Shows what a fragment says: a lesson, or a program with its lesson.
async function follow(fragment) {
  const [, kind, value] = /^#?(\w+)=(.*)$/.exec(fragment) || [];
  if (kind === 'chapter') showChapter(value, true);
  else if (kind === 'exercise') showExercise(value);
  else if (kind === 'example') showExample(value);
  else if (kind === 'program') {
    try {
      const { text, file, lesson } = await unpack(value);
      if (typeof text !== 'string' || !/^[\w-]+\.(attn|air|tir|vir)$/.test(file)) throw new Error();
      if (lesson && lesson.kind === 'chapter') showChapter(lesson.name, false);
      if (lesson && lesson.kind === 'exercise') showExercise(lesson.name);
      state.opened = null;
      open(text, file);
    } catch {
      byId('problems').replaceChildren(make('div', { class: 'problem error' }, 'The address has no program that can be read.'));
    }
  } else return false;
  return true;
}

async function share() {
  const fragment = state.text === state.opened && location.hash ? location.hash : '#program=' + await pack({ text: state.text, file: state.file, lesson: state.lesson });
  const text = `attnc play '${fragment}'`;
  try {
    await navigator.clipboard.writeText(text);
    byId('share').textContent = 'Copied';
    setTimeout(() => { byId('share').textContent = 'Share'; }, 1500);
  } catch {
    window.prompt('This command opens the program:', text);
  }
}

async function begin() {
  startEditor(programChanged);
  state.course = await (await fetch('course.json')).json();
  for (const own of TABS) byId('tab-' + own).addEventListener('click', () => showTab(own));
  byId('tabs').addEventListener('keydown', (e) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[e.key], all = TABS.filter((own) => own !== 'program' || narrow.matches);
    if (!way) return;
    showTab(all[(all.indexOf(tab) + way + all.length) % all.length]);
    byId('tab-' + tab).focus();
  });
  narrow.addEventListener('change', () => showTab(tab === 'program' ? 'lesson' : tab));
  byId('start').addEventListener('click', start);
  byId('format').addEventListener('click', format);
  byId('share').addEventListener('click', share);
  byId('menu').addEventListener('click', () => {
    const isOpen = byId('lessons').classList.toggle('open');
    byId('menu').setAttribute('aria-expanded', isOpen);
  });
  addEventListener('keydown', (e) => {
    if (e.key === 'Escape') { byId('lessons').classList.remove('open'); byId('menu').setAttribute('aria-expanded', 'false'); }
  });
  for (const id of ['level', 'target']) byId(id).addEventListener('change', build);
  for (const id of ['inputs', 'build']) byId(id).addEventListener('submit', (e) => { e.preventDefault(); if (id === 'inputs') start(); });
  contents();
  const given = state.course.start || {};
  if (!(await follow(location.hash))) {
    if (given.text != null) { state.opened = given.text; open(given.text, given.file); showChapter('index', false); showTab(narrow.matches ? 'program' : 'call'); }
    else if (!(await follow(given.fragment || (given.exercise ? 'exercise=' + given.exercise : given.chapter ? 'chapter=' + given.chapter : '')))) {
      showChapter('index', false);
      const first = /```attn\n([\s\S]*?)```/.exec(state.course.chapters.find((c) => c.name === '04-attention').text)[1];
      state.opened = first;
      open(first, fileOf(first));
    }
  }
  addEventListener('hashchange', () => {
    const own = state.lesson ? `#${state.lesson.kind}=${state.lesson.name}` : '';
    if (location.hash !== own && location.hash !== state.fragment) follow(location.hash);
  });
  // For tests: the page is ready.
  window.report = { ready: true };
}
begin();
