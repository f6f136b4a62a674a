import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t, { type Test } from 'tap';
import { fileReadFailed, type FileReadFailed } from '../../src/file/events.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import type { FileLoaderOptions } from '../../src/file/loader.ts';
import { FileSource } from '../../src/file/source.ts';
import { renameOver } from '../../src/util/rename-over.ts';
import { RecordingSink } from '../support/recording-sink.ts';
import { until } from '../support/until.ts';

const WORKER = new URL('../../src/file/parser-worker.ts', import.meta.url).href;
const LIMITS = { ...DEFAULT_FILE_LIMITS, settleMs: 10 };

async function put(path: string, text: string): Promise<void> {
  await writeFile(`${path}.new`, text);
  await renameOver(`${path}.new`, path);
}

/** Follows a file until the test ends, and notes what is told of reads that fail. */
function follow(
  t: Test,
  text: string,
  more: Partial<FileLoaderOptions> = {},
  sink = new RecordingSink(),
) {
  const path = join(t.testdir({ 'state.yaml': text }), 'state.yaml');
  const source = new FileSource({ path, limits: LIMITS, ...more });
  const failures: FileReadFailed[] = [];
  const note = (event: FileReadFailed): void => {
    if (event.path === path) failures.push(event);
  };
  fileReadFailed.subscribe(note);
  const abort = new AbortController();
  const done = source.feedLocal({ nodeName: 'n1' }, sink, abort.signal);
  t.teardown(async () => {
    abort.abort();
    await done;
    fileReadFailed.unsubscribe(note);
  });
  return { path, source, sink, failures, abort, done };
}

/** A thread that does what the text says, which may import the real one as WORKER. */
function module(text: string): URL {
  const source = text.replaceAll('WORKER', JSON.stringify(WORKER));
  return new URL(`data:text/javascript,${encodeURIComponent(source)}`);
}

const services = (...names: string[]): string =>
  `services:\n${names.map((name) => `- service: {name: ${name}}\n`).join('')}`;

t.test(
  'a file that takes more memory than it may is refused, and the former state stays',
  async (t) => {
    const limits = { ...LIMITS, maxParserBytes: 48 * 1024 * 1024 };
    const { path, source, sink, failures } = follow(t, services('a', 'b'), { limits });
    t.strictSame((await sink.next()).shape, ['default/a()', 'default/b()']);
    // In flow style it is parsed in one piece.
    const many = Array.from(
      { length: 40_000 },
      (_, n) => `{service: {name: s${n}, ports: [{port: 80}]}}`,
    );
    await put(path, `services: [${many.join(', ')}]\n`);
    await until(() => failures.length === 1, 60_000);
    t.match(failures[0]?.error, {
      code: 'KPNG_STATE_FILE_INVALID',
      message: `${path}: more than 48Mi of memory would be needed to parse the file`,
    });
    t.match(source.snapshot(), { state: 'stale', loads: 1, error: failures[0]?.error });
    t.equal(sink.unread, 0, 'the sink keeps what it has');
    await put(path, services('b', 'c'));
    const next = await sink.next();
    t.strictSame(next.changed, ['default/a', 'default/c'], 'a new thread knows what differs');
    t.match(source.snapshot(), { state: 'loaded', loads: 2, error: undefined });
  },
);

t.test('a thread that ends is begun anew after a while, with the same content', async (t) => {
  const flag = join(t.testdirName, 'failed');
  const parserModule = module(
    `import { existsSync, writeFileSync } from 'node:fs';
     import { parentPort } from 'node:worker_threads';
     if (existsSync(${JSON.stringify(flag)})) await import(WORKER);
     else parentPort.once('message', () => {
       writeFileSync(${JSON.stringify(flag)}, '');
       process.exit(3);
     });`,
  );
  const { path, source, sink, failures } = follow(t, services('a'), {
    parserModule,
    random: () => 0.5,
  });
  await until(() => failures.length === 1);
  t.match(failures[0]?.error, {
    code: 'KPNG_STATE_FILE_READ',
    message: `cannot parse the state file ${path}: its thread ended with 3`,
  });
  t.match(source.snapshot(), { state: 'waiting', error: { code: 'KPNG_STATE_FILE_READ' } });
  t.strictSame((await sink.next()).shape, ['default/a()'], 'though the file has not changed');
  t.match(source.snapshot(), { state: 'loaded', readFailures: 1, error: undefined });
});

t.test('a thread that ends while it hands over: nothing of that is delivered', async (t) => {
  const flag = join(t.testdirName, 'failed');
  // Lets the first thread end in the middle of the parts of the second content.
  const parserModule = module(
    `import { existsSync, writeFileSync } from 'node:fs';
     import { parentPort } from 'node:worker_threads';
     await import(WORKER);
     let contents = 0;
     let parts = 0;
     parentPort.on('message', ({ kind }) => {
       if (kind === 'parse') contents += 1;
       else if (contents === 2) parts += 1;
       if (parts < 2 || existsSync(${JSON.stringify(flag)})) return;
       writeFileSync(${JSON.stringify(flag)}, '');
       process.exit(3);
     });`,
  );
  const names = Array.from({ length: 3000 }, (_, n) => `s${n}`);
  const { path, sink, failures } = follow(t, services('a', 'b'), { parserModule });
  await sink.next();
  await put(path, services('b', ...names));
  await until(() => failures.length === 1);
  t.equal(sink.unread, 0);
  const next = await sink.next();
  t.equal(next.shape.length, 3001, 'all of it, in one change set');
  t.equal(next.changed.length, 3001);
  t.ok(next.changed.includes('default/a'), 'with what has gone');
  t.notOk(next.changed.includes('default/b'), 'but not what is as it was');
});

t.test('a thread that cannot be had', async (t) => {
  const parserModule = pathToFileURL(join(t.testdirName, 'nowhere.mjs'));
  const { source, failures, abort, done } = follow(t, services('a'), { parserModule });
  await until(() => failures.length === 1);
  t.match(failures[0]?.error, { code: 'KPNG_STATE_FILE_READ', message: /cannot parse .*nowhere/ });
  t.equal(source.snapshot().state, 'waiting');
  abort.abort();
  await done;
  t.pass('and it ends all the same');
});

t.test('it ends at once, also in the middle of a large file', async (t) => {
  const many = Array.from({ length: 20_000 }, (_, n) => `{service: {name: s${n}}}`);
  const { source, sink, abort, done, failures } = follow(t, `services: [${many.join(', ')}]\n`);
  // By then the file is being parsed, if not before.
  await new Promise((resolve) => setImmediate(resolve));
  abort.abort();
  await done;
  t.equal(sink.unread, 0);
  t.equal(source.snapshot().loads, 0);
  t.strictSame(failures, [], 'which is no failure');
});
