/** Limits of time and memory, and files that were made to reach them. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { followFile, put, servicesText } from '../support/file-rig.ts';
import { until } from '../support/until.ts';

const WORKER = new URL('../../src/file/parser-worker.ts', import.meta.url).href;
/** Only decides how long a failing test takes. */
const PATIENCE_MS = 120_000;

/** A thread that does what the text says, which may import the real one as WORKER. */
function module(text: string): URL {
  const source = `import { parentPort } from 'node:worker_threads';
    import { existsSync, writeFileSync } from 'node:fs';
    ${text.replaceAll('WORKER', JSON.stringify(WORKER))}`;
  return new URL(`data:text/javascript,${encodeURIComponent(source)}`);
}

/** Parses without end where a content has the word HANG in it. */
const HANGS = module(`
  parentPort.on('message', (request) => {
    if (Buffer.from(request).includes('HANG')) for (;;);
  });
  await import(WORKER);`);

const pairs = Array.from({ length: 400_000 }, (_, n) => `k${n}: v`).join(', ');

for (const [name, options, bad, why] of [
  [
    'memory',
    { limits: { maxParserBytes: 48 * 1024 * 1024 } },
    `services: [service: {name: big, labels: {${pairs}}}]\n`,
    'it takes more than 48Mi of memory',
  ],
  [
    'time',
    { limits: { maxParseMs: 2000 }, parserModule: HANGS },
    servicesText('a', 'HANG'),
    'it takes longer than 2 s',
  ],
] as const) {
  t.test(`${name}: the file is refused, the state stays, a new thread continues`, async (t) => {
    const { path, loads, sink, failures } = followFile(t, servicesText('a', 'b'), options);
    t.strictSame((await sink.next()).shape, ['default/a()', 'default/b()']);
    await put(path, bad);
    await until(() => failures.length === 1, PATIENCE_MS);
    t.match(failures[0]?.error, {
      code: 'KPNG_STATE_FILE_LIMIT',
      message: `cannot parse the state file ${path}: ${why}`,
    });
    t.equal(loads.length, 1);
    t.equal(sink.unread, 0, 'the sink keeps what it has');
    await put(path, servicesText('b', 'c'));
    t.strictSame((await sink.next()).changed, ['default/a', 'default/c']);
    t.equal(loads.length, 2);
  });
}

t.test('a good file does not wait for a bad one that is being parsed', async (t) => {
  // Without the limit for contents that are out of date it would wait for days.
  const limits = { maxParseMs: 2 ** 30, maxOutdatedParseMs: 50 };
  const { path, sink, failures } = followFile(t, servicesText('HANG'), {
    limits,
    parserModule: HANGS,
  });
  await put(path, servicesText('good'));
  t.strictSame((await sink.next()).shape, ['default/good()']);
  t.match(failures.at(-1)?.error.message ?? '', /takes long, and the file has newer content$|^$/);
});

t.test('a file that changes constantly is still parsed now and then', async (t) => {
  // The first content of each thread takes until the file has changed, and longer than that may take.
  const slow = module(`
    parentPort.on('message', () => {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
    });
    await import(WORKER);`);
  const limits = { maxOutdatedParseMs: 1, settleMs: 1 };
  const { path, loads } = followFile(t, servicesText('n0'), { limits, parserModule: slow });
  for (let n = 1; loads.length < 2; n += 1) {
    await put(path, servicesText(`n${n}`));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  t.pass();
});

t.test(
  'a thread that ends while sending changes is replaced, and none of them count',
  async (t) => {
    const flag = join(t.testdirName, 'failed');
    // Lets the first thread end in the middle of the parts of the second content.
    const parserModule = module(`
    const post = parentPort.postMessage.bind(parentPort);
    let contents = 0;
    let parts = 0;
    parentPort.on('message', () => (contents += 1));
    parentPort.postMessage = (answer, transfer) => {
      post(answer, transfer);
      if (contents === 2) parts += 1;
      if (parts < 2 || existsSync(${JSON.stringify(flag)})) return;
      writeFileSync(${JSON.stringify(flag)}, '');
      process.exit(3);
    };
    await import(WORKER);`);
    const names = Array.from({ length: 3000 }, (_, n) => `s${n}`);
    const { path, sink, failures } = followFile(t, servicesText('a', 'b'), { parserModule });
    await sink.next();
    await put(path, servicesText('b', ...names));
    await until(() => failures.length === 1);
    t.match(failures[0]?.error, {
      code: 'KPNG_STATE_FILE_READ',
      message: `cannot parse the state file ${path}: its thread ended with 3`,
    });
    t.equal(sink.unread, 0);
    const next = await sink.next();
    t.equal(next.shape.length, 3001, 'all of it, in one change set');
    t.equal(next.changed.length, 3001);
    t.ok(next.changed.includes('default/a'), 'with what has gone');
    t.notOk(next.changed.includes('default/b'), 'but not what is as it was');
  },
);

t.test('a thread that does not start', async (t) => {
  const parserModule = pathToFileURL(join(t.testdirName, 'nowhere.mjs'));
  const { failures, abort, done } = followFile(t, servicesText('a'), { parserModule });
  await until(() => failures.length === 1);
  t.match(failures[0]?.error, { code: 'KPNG_STATE_FILE_READ', message: /cannot parse .*nowhere/ });
  abort.abort();
  await done;
});

t.test('it ends at once, also in the middle of a large file', async (t) => {
  const { loads, sink, abort, done, failures } = followFile(t, servicesText('HANG'), {
    parserModule: HANGS,
  });
  // By then the file is being parsed, if not before.
  await new Promise((resolve) => setImmediate(resolve));
  abort.abort();
  await done;
  t.equal(sink.unread, 0);
  t.equal(loads.length, 0);
  t.strictSame(failures, [], 'which is no failure');
});

const labels = (count: number, form: (pairs: string[]) => string): string =>
  form(Array.from({ length: count }, (_, n) => `key-${n}: value`));
/** Files that took minutes or gigabytes with other parsers; whether they are valid. */
const HOSTILE: Readonly<Record<string, readonly [text: string, isValid: boolean]>> = {
  '100,000 labels in block style': [
    `services:\n- service:\n    name: big\n    labels:\n${labels(100_000, (pairs) => pairs.map((pair) => `      ${pair}\n`).join(''))}`,
    true,
  ],
  '20,000 labels in flow style': [
    `services: [service: {name: big, labels: {${labels(20_000, (pairs) => pairs.join(', '))}}}]\n`,
    true,
  ],
  '8 MB of [': ['['.repeat(8_000_000), false],
  'JSON of 8 MB, nested deeply': [`{"services": ${'['.repeat(4e6)}${']'.repeat(4e6)}}`, false],
  '"? " 31 times': [`${'? '.repeat(31)}x`, false],
  '100,000 nodes of one name': [`services: []\nnodes:\n${'- {name: a}\n'.repeat(100_000)}`, false],
  '100,000 unknown keys': [
    `services: []\n${Array.from({ length: 100_000 }, (_, n) => `k${n}:\n`).join('')}`,
    false,
  ],
};

for (const [name, [text, isValid]] of Object.entries(HOSTILE)) {
  t.test(`${name}: ${isValid ? 'parsed' : 'refused'} within the limits`, async (t) => {
    const { path, loads, invalid, sink } = followFile(t, text);
    await until(() => loads.length + invalid.length === 1, PATIENCE_MS);
    t.equal(loads.length, isValid ? 1 : 0);
    if (isValid) await sink.next();
    await put(path, servicesText('good'));
    t.strictSame((await sink.next()).shape, ['default/good()']);
  });
}
