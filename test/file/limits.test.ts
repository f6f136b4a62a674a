/** Limits of time and memory, and files that were made to reach them. */
import { existsSync } from 'node:fs';
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

/** Keys with values. */
function pairs(count: number, separator: string): string {
  return Array.from({ length: count }, (_, n) => `key-${n}: value`).join(separator);
}

for (const [name, options, bad, why] of [
  [
    'memory',
    { limits: { maxParserBytes: 48 * 1024 * 1024 } },
    `services: [service: {name: big, labels: {${pairs(400_000, ', ')}}}]\n`,
    'it takes more than 48Mi of memory',
  ],
  [
    'time',
    { limits: { maxParseMs: 5000 }, parserModule: HANGS },
    servicesText('a', 'HANG'),
    'it takes longer than 5 s',
  ],
] as const) {
  t.test(`${name}: the file is refused, the state stays, a new thread continues`, async (t) => {
    const { path, sink, heard } = followFile(t, servicesText('a', 'b'), options);
    t.strictSame((await sink.next()).shape, ['default/a()', 'default/b()']);
    await put(path, bad);
    await until(() => heard.length === 3, PATIENCE_MS);
    t.equal(heard[2], `KPNG_STATE_FILE_LIMIT: cannot parse the state file ${path}: ${why}`);
    await put(path, servicesText('b', 'c'));
    const { changed } = await sink.next();
    t.strictSame(changed, ['default/a', 'default/c'], 'the sink kept what it had');
  });
}

t.test('a thread that ends while sending changes is replaced, and none count', async (t) => {
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
  const { path, sink, heard } = followFile(t, servicesText('a', 'b'), { parserModule });
  await sink.next();
  await put(path, servicesText('b', ...names));
  const next = await sink.next();
  const why = `cannot parse the state file ${path}: its thread ended with 3`;
  t.equal(heard[2], `KPNG_STATE_FILE_READ: ${why}`);
  t.equal(next.shape.length, 3001, 'all of it, in one change set');
  t.equal(next.changed.length, 3001);
  t.ok(next.changed.includes('default/a'), 'with what has gone');
  t.notOk(next.changed.includes('default/b'), 'but not what is as it was');
});

t.test('a thread that does not start', async (t) => {
  const parserModule = pathToFileURL(join(t.testdirName, 'nowhere.mjs'));
  const { heard, abort, done } = followFile(t, servicesText('a'), { parserModule });
  await until(() => heard.length === 1);
  t.match(heard[0], /^KPNG_STATE_FILE_READ: cannot parse .*nowhere/);
  abort.abort();
  await done;
});

t.test('it ends at once, also in the middle of a large file', async (t) => {
  const flag = join(t.testdirName, 'parsing');
  const parserModule = module(`
    parentPort.on('message', () => {
      writeFileSync(${JSON.stringify(flag)}, '');
      for (;;);
    });`);
  const options = { parserModule, limits: { maxParseMs: 2 ** 30 } };
  const { heard, abort, done } = followFile(t, servicesText('a'), options);
  await until(() => existsSync(flag));
  abort.abort();
  await done;
  t.strictSame(heard, [], 'which is no failure');
});

/** Files that took minutes or gigabytes with other parsers; whether they are valid. */
const HOSTILE: Readonly<Record<string, readonly [text: string, isValid: boolean]>> = {
  '100,000 labels in block style': [
    `services:\n- service:\n    name: big\n    labels:\n      ${pairs(100_000, '\n      ')}\n`,
    true,
  ],
  '20,000 labels in flow style': [
    `services: [service: {name: big, labels: {${pairs(20_000, ', ')}}}]\n`,
    true,
  ],
  '8 MB of [': ['['.repeat(8_000_000), false],
  'JSON of 8 MB, nested deeply': [`{"services": ${'['.repeat(4e6)}${']'.repeat(4e6)}}`, false],
  '"? " 31 times': [`${'? '.repeat(31)}x`, false],
  '100,000 nodes of one name': [`services: []\nnodes:\n${'- {name: a}\n'.repeat(100_000)}`, false],
  '100,000 unknown keys': [`services: []\n${pairs(100_000, '\n')}\n`, false],
};

for (const [name, [text, isValid]] of Object.entries(HOSTILE)) {
  t.test(`${name}: ${isValid ? 'parsed' : 'refused'} within the limits`, async (t) => {
    const { path, heard, sink } = followFile(t, text);
    await until(() => heard.length > 0, PATIENCE_MS);
    t.match(heard[0], isValid ? /^loaded/ : /^KPNG_STATE_FILE_INVALID/);
    if (isValid) await sink.next();
    await put(path, servicesText('good'));
    t.strictSame((await sink.next()).shape, ['default/good()']);
  });
}
