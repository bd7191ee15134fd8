'use strict';
// What the scripts share: elements, calls of the server, the state of the page.
const byId = (id) => document.getElementById(id);

// The program, and what is known about it.
const state = { file: 'program.attn', text: '', lesson: null, course: null };

function make(tag, attributes = {}, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...content);
  return element;
}

// Calls with the same key run one at a time: while one runs, only the newest waits. A call that was replaced gives null.
const running = new Map();
function call(path, body, key = path) {
  return new Promise((done, failed) => {
    const queue = running.get(key) || { busy: false, next: null };
    running.set(key, queue);
    if (queue.next) queue.next.done(null);
    queue.next = { body, done, failed };
    const work = async () => {
      const one = queue.next;
      if (!one) { queue.busy = false; return; }
      queue.busy = true;
      queue.next = null;
      try {
        const answer = await fetch(path, { method: 'POST', body: JSON.stringify(one.body) });
        const text = await answer.text();
        if (answer.ok) one.done(JSON.parse(text)); else one.failed(new Error(text.trim()));
      } catch (error) {
        one.failed(error instanceof TypeError ? new Error('The server has ended. Start `attnc play` again.') : error);
      }
      work();
    };
    if (!queue.busy) work();
  });
}

const tell = (text) => { byId('status').textContent = text; };
const isModel = () => state.file.endsWith('.attn');

// Words of the language with their kinds, for the editor and for programs in lessons.
const KEYWORDS = new Set('model layer rule fn pub use let var in for while if else break where tap train state reset and or not true false inf func module return'.split(' '));
const TYPES = new Set('f32 bf16 f16 i8 i32 i64 bool'.split(' '));
const TOKEN = /\/\/.*|#\[[^\]]*\]|"[^"]*"|\b\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?\b|[A-Za-z_]\w*|%[\w.]+|\s+|./gy;

function kindOf(token) {
  if (token.startsWith('//')) return 'comment';
  if (token.startsWith('#[')) return 'meta';
  if (/^["\d]/.test(token)) return 'number';
  if (TYPES.has(token)) return 'type';
  if (KEYWORDS.has(token)) return 'keyword';
  if (/^%\w/.test(token)) return 'name';
  return '';
}

// A program as spans with colours.
function coloured(text) {
  const code = make('code', { class: 'tokens' });
  for (const [token] of text.matchAll(new RegExp(TOKEN.source, 'g'))) {
    const kind = kindOf(token);
    code.append(kind ? make('span', { class: kind }, token) : token);
  }
  return code;
}

// The program in the fragment of the address: compressed, in base64 for addresses.
async function pack(value) {
  const stream = new Blob([JSON.stringify(value)]).stream().pipeThrough(new CompressionStream('deflate-raw'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return JSON.parse(await new Response(stream).text());
}
