// The page at /docs: shows openapi.json, and sends requests from it. Whatever comes from outside is
// put into the page as text, never as markup.
'use strict';

const METHODS = ['get', 'post', 'put', 'patch', 'delete'];
const MAX_SHOWN_CHARS = 256 * 1024;
const MAX_SCHEMA_DEPTH = 8;
// It has a field of its own above, for all operations.
const TENANT_HEADER = 'Postrider-Tenant';

let api = {};

const byId = (id) => document.getElementById(id);

/** An element with attributes and children; texts become text nodes. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Follows references within the description. */
function resolve(value) {
  for (let hops = 0; value && value.$ref && hops < 8; hops += 1) {
    const parts = value.$ref.slice(2).split('/');
    const target = parts.reduce((at, part) => (at || {})[part], api);
    value = { ...target, ...(value.description ? { description: value.description } : {}) };
  }
  return value || {};
}

/** The little markup that descriptions have: paragraphs, `code`, **bold**. */
function prose(text) {
  return (text || '').split('\n\n').map((paragraph) => {
    const pieces = paragraph.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((piece) => {
      if (piece.startsWith('`')) return make('code', {}, piece.slice(1, -1));
      if (piece.startsWith('**')) return make('strong', {}, piece.slice(2, -2));
      return piece;
    });
    return make('p', {}, ...pieces);
  });
}

const pretty = (value) => (typeof value === 'string' ? value : JSON.stringify(value, null, 2));

/** A schema in a few words. */
function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split('/').pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((word) => JSON.stringify(word)).join(' | ');
  const choices = schema.anyOf || schema.oneOf;
  if (choices) return choices.map(typeOf).join(' | ');
  if (schema.type === 'array') return `list of ${typeOf(schema.items || {})}`;
  const type = Array.isArray(schema.type) ? schema.type.join(' | ') : schema.type || 'anything';
  const bounds = ['minimum', 'maximum', 'maxLength', 'minItems', 'maxItems', 'pattern', 'default']
    .filter((bound) => schema[bound] !== undefined)
    .map((bound) => `${bound} ${schema[bound]}`);
  return bounds.length ? `${type} (${bounds.join(', ')})` : type;
}

/** The parts of a schema that have fields of their own. */
function objectsIn(schema) {
  const whole = resolve(schema);
  if (whole.properties) return [whole];
  if (whole.items) return objectsIn(whole.items);
  return (whole.anyOf || whole.oneOf || []).flatMap(objectsIn);
}

function schemaTree(schema, depth = 0) {
  const whole = resolve(schema);
  const box = make('div', {});
  if (depth === 0) box.append(make('p', {}, make('code', {}, typeOf(schema)), ` ${whole.description || ''}`));
  if (depth >= MAX_SCHEMA_DEPTH) return box;
  for (const object of objectsIn(schema)) {
    const required = new Set(object.required || []);
    const fields = Object.entries(object.properties).map(([name, field]) => {
      const about = resolve(field).description || '';
      const line = [
        make('code', {}, name), required.has(name) ? ' ' : '? ',
        make('span', { class: 'soft' }, typeOf(field)), about ? ` — ${about}` : '',
      ];
      if (objectsIn(field).length === 0) return make('li', {}, ...line);
      // Built when it is opened, so that schemas that contain themselves end somewhere.
      const inner = make('details', {}, make('summary', {}, ...line));
      inner.addEventListener('toggle', () => inner.append(schemaTree(field, depth + 1)), { once: true });
      return make('li', {}, inner);
    });
    box.append(make('ul', { class: 'schema' }, ...fields));
  }
  return box;
}

function parameterRow(parameter, inputs) {
  const schema = resolve(parameter.schema);
  const id = `p${Math.random().toString(36).slice(2)}`;
  const input = make('input', {
    id, type: 'text', autocomplete: 'off', spellcheck: 'false', placeholder: String((schema.examples || [])[0] || ''),
  });
  inputs.push({ parameter, input });
  return make('div', { class: 'parameter' },
    make('label', { for: id, class: 'name' }, parameter.name, parameter.required ? ' *' : '', make('br'),
      make('span', { class: 'soft' }, parameter.in)),
    input,
    make('div', { class: 'about' }, parameter.description || '', ' ', make('code', {}, typeOf(schema))));
}

/** The body of a request: which kind, and what. */
function bodyEditor(requestBody) {
  const kinds = Object.entries(requestBody.content);
  const area = make('textarea', { 'aria-label': 'Body', spellcheck: 'false' });
  const schema = make('details', {}, make('summary', {}, 'Schema'));
  const select = make('select', { 'aria-label': 'Content type' },
    ...kinds.map(([kind]) => make('option', { value: kind }, kind)));
  const show = () => {
    const media = requestBody.content[select.value];
    area.value = pretty(media.example === undefined ? '' : media.example);
    schema.replaceChildren(make('summary', {}, 'Schema'), schemaTree(media.schema || {}));
  };
  select.addEventListener('change', show);
  show();
  const element = make('div', {},
    make('h3', {}, requestBody.required ? 'Body' : 'Body (may be empty)'),
    kinds.length > 1 ? select : null, area, schema);
  return { element, kind: () => select.value, text: () => area.value };
}

function answerList(responses) {
  return Object.entries(responses).map(([status, reference]) => {
    const response = resolve(reference);
    const box = make('details', {}, make('summary', {}, make('code', {}, status), ` ${response.description || ''}`));
    box.addEventListener('toggle', () => {
      for (const [kind, media] of Object.entries(response.content || {})) {
        box.append(make('p', { class: 'soft' }, kind), schemaTree(media.schema || {}));
        if (media.example !== undefined) box.append(make('pre', {}, pretty(media.example)));
      }
    }, { once: true });
    return box;
  });
}

/** What is to be sent, from what has been filled in. */
function compose(method, path, keyed, inputs, body) {
  const query = new URLSearchParams();
  const headers = new Headers();
  let address = path.slice(1);
  for (const { parameter, input } of inputs) {
    if (parameter.in === 'path') address = address.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value === '') continue;
    else if (parameter.in === 'query') query.set(parameter.name, input.value);
    else headers.set(parameter.name, input.value);
  }
  if (keyed && byId('tenant').value) headers.set(TENANT_HEADER, byId('tenant').value);
  const text = body ? body.text() : '';
  if (text !== '') headers.set('Content-Type', body.kind());
  const url = new URL(address, new URL('.', location.href));
  url.search = query.toString();
  return { method: method.toUpperCase(), url, headers, body: text === '' ? undefined : text };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The key is not in it: what is copied ends up in histories and chats. */
function asCurl(request, keyed) {
  const parts = [`curl -X ${request.method} ${quoted(request.url.href)}`];
  if (keyed) parts.push('-H "Authorization: Bearer $POSTRIDER_KEY"');
  for (const [name, value] of request.headers) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (request.body !== undefined) parts.push(`--data-binary ${quoted(request.body)}`);
  return parts.join(' \\\n  ');
}

/** Sends, and shows what comes as it comes: a stream has no end. */
async function send(request, keyed, output, signal) {
  const headers = new Headers(request.headers);
  const key = byId('key').value.trim();
  if (keyed && key) headers.set('Authorization', `Bearer ${key}`);
  const status = make('p', { class: 'status' }, 'Sending…');
  const head = make('pre', { hidden: true });
  const text = make('pre', { hidden: true, tabindex: '0' });
  output.replaceChildren(status, head, text);
  const started = performance.now();
  try {
    const response = await fetch(request.url, {
      method: request.method, headers, body: request.body, signal,
      cache: 'no-store', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer',
    });
    status.textContent = `${response.status} ${response.statusText} after ${Math.round(performance.now() - started)} ms`;
    head.textContent = [...response.headers].map(([name, value]) => `${name}: ${value}`).join('\n');
    head.hidden = false;
    await showBody(response, text);
  } catch (error) {
    const stopped = error.name === 'AbortError';
    output.append(make('p', { class: 'status' }, stopped ? 'Stopped.' : `No answer: ${error.message}`));
  }
}

async function showBody(response, element) {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    text += decoder.decode(value, { stream: !done });
    const long = text.length > MAX_SHOWN_CHARS;
    element.textContent = long ? `${text.slice(0, MAX_SHOWN_CHARS)}\n… cut here` : text;
    element.hidden = text === '';
    if (long) { await reader.cancel(); return; }
    if (done) break;
  }
  if ((response.headers.get('Content-Type') || '').includes('json')) {
    try { element.textContent = pretty(JSON.parse(text)); } catch { /* Shown as it came. */ }
  }
}

/** Everything about one operation. */
function operationPanel(method, path, operation) {
  const keyed = operation.security.length > 0;
  const inputs = [];
  const parameters = (operation.parameters || []).map(resolve).filter(({ name }) => name !== TENANT_HEADER);
  const body = operation.requestBody ? bodyEditor(operation.requestBody) : null;
  const output = make('div', { 'aria-live': 'polite' });
  let running = null;
  const stop = make('button', { type: 'button', disabled: true, onclick: () => running && running.abort() }, 'Stop');
  const go = make('button', { type: 'button', class: 'main', onclick: async () => {
    running = new AbortController();
    go.disabled = true;
    stop.disabled = false;
    await send(compose(method, path, keyed, inputs, body), keyed, output, running.signal);
    go.disabled = false;
    stop.disabled = true;
  } }, 'Send');
  const copy = make('button', { type: 'button', onclick: async () => {
    const command = asCurl(compose(method, path, keyed, inputs, body), keyed);
    try {
      await navigator.clipboard.writeText(command);
      copy.textContent = 'Copied';
      setTimeout(() => { copy.textContent = 'Copy as curl'; }, 1500);
    } catch {
      // Without permission it can still be copied by hand.
      output.replaceChildren(make('pre', { tabindex: '0' }, command));
    }
  } }, 'Copy as curl');
  return make('div', {},
    ...prose(operation.description),
    keyed ? null : make('p', { class: 'soft' }, 'No key is needed.'),
    parameters.length ? make('h3', {}, 'Parameters') : null,
    ...parameters.map((parameter) => parameterRow(parameter, inputs)),
    body && body.element,
    make('div', { class: 'actions' }, go, stop, copy),
    output,
    make('h3', {}, 'Answers'),
    ...answerList(operation.responses));
}

function operationBox(method, path, operation) {
  const box = make('details', { class: 'operation', id: operation.operationId },
    make('summary', {},
      make('span', { class: `method ${method}` }, method),
      make('span', { class: 'path' }, path),
      make('span', { class: 'summary' }, operation.summary)));
  box.addEventListener('toggle', () => box.append(operationPanel(method, path, operation)), { once: true });
  box.dataset.words = `${method} ${path} ${operation.summary} ${operation.operationId}`.toLowerCase();
  return box;
}

function openNamed() {
  const box = byId(decodeURIComponent(location.hash.slice(1)));
  if (box && box.matches('details.operation')) {
    box.open = true;
    box.scrollIntoView();
  }
}

function find() {
  const wanted = byId('find').value.trim().toLowerCase();
  for (const section of document.querySelectorAll('section.tag')) {
    const boxes = [...section.querySelectorAll('details.operation')];
    for (const box of boxes) box.hidden = !box.dataset.words.includes(wanted);
    section.hidden = boxes.every((box) => box.hidden);
  }
}

function show() {
  byId('version').textContent = api.info.version;
  byId('about').append(...prose(api.info.description));
  for (const { name, description } of api.tags) {
    const boxes = Object.entries(api.paths).flatMap(([path, item]) => METHODS
      .filter((method) => item[method] && item[method].tags.includes(name))
      .map((method) => operationBox(method, path, item[method])));
    if (boxes.length === 0) continue;
    const id = `tag-${name.toLowerCase().replaceAll(' ', '-')}`;
    byId('tags').append(make('a', { href: `#${id}` }, name));
    byId('operations').append(make('section', { class: 'tag', id },
      make('h2', {}, name), make('p', { class: 'soft' }, description), ...boxes));
  }
  byId('find').addEventListener('input', find);
  window.addEventListener('hashchange', openNamed);
  openNamed();
}

async function start() {
  try {
    const response = await fetch('openapi.json', { credentials: 'omit' });
    if (!response.ok) throw new Error(`openapi.json was answered with ${response.status}`);
    api = await response.json();
    show();
  } catch (error) {
    byId('about').append(make('p', {}, `The description could not be shown: ${error.message}`));
  }
}

start();
