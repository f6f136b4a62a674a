import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { fileInvalid, fileLoaded, fileReadFailed, fileRecovered } from '../../src/file/events.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { FileSource } from '../../src/file/source.ts';
import { sourceSynced } from '../../src/store/events.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import type { LocalChange } from '../../src/store/local-view.ts';
import { renameOver } from '../../src/util/atomic-file.ts';
import type { TypedChannel } from '../../src/util/channel.ts';
import {
  feedSink,
  followFile,
  heard as eventsOf,
  lines,
  put,
  servicesText,
} from '../support/file-rig.ts';
import { listening } from '../support/mailbox.ts';
import { holdsAsync } from '../support/property.ts';
import { RecordingSink } from '../support/recording-sink.ts';
import { until } from '../support/until.ts';

const WEB = lines(
  '- service: {name: web, ports: [{port: 80}]}',
  '  endpoints:',
  '  - podname: web-0',
  '    endpoint: {ips: {v4: [10.0.0.1]}}',
  '    topology: {node: n1}',
  '  - podname: web-1',
  '    endpoint: {ips: {v4: [10.0.0.2]}}',
  '    topology: {node: n2}',
);
const DNS = lines('- service: {name: dns, ports: [{port: 53, protocol: UDP}]}');

/** Notes the events of the source of one path, in a few words each. */
function listen(t: Test, path: string): string[] {
  const heard: string[] = [];
  const note = <Event extends { path: string }>(
    channel: TypedChannel<Event>,
    wordsOf: (event: Event) => string,
  ): void =>
    listening(t, channel, (event) => {
      if (event.path === path) heard.push(wordsOf(event));
    });
  note(fileLoaded, ({ services, parsedItems }) => `loaded ${services}, parsed ${parsedItems}`);
  note(fileInvalid, ({ error }) => error.message);
  note(fileReadFailed, ({ error }) => error.message);
  note(fileRecovered, () => 'recovered');
  listening(t, sourceSynced, ({ source, services, changed }) => {
    if (source === `state file ${path}`) heard.push(`synced ${services}, changed ${changed}`);
  });
  return heard;
}

/** Follows a file, and notes the events. */
function run(t: Test, text: string | undefined, options: Parameters<typeof followFile>[2] = {}) {
  const heard = listen(t, join(t.testdirName, 'state.yaml'));
  return { ...followFile(t, text, options), heard };
}

t.test('the view of the node is delivered, and after a change what differs', async (t) => {
  const { path, sink, heard } = run(t, `services:\n${WEB}${DNS}`);
  const first = await sink.next();
  t.strictSame(first.changed, ['default/dns', 'default/web']);
  t.strictSame(first.shape, ['default/dns()', 'default/web(web-0 web-1)']);
  t.strictSame(
    [...(first.view.get('default/web')?.endpoints ?? [])].map(([key, { local }]) => [key, local]),
    [
      ['web-0', true],
      ['web-1', false],
    ],
  );
  await put(path, `services:\n${WEB.replace('10.0.0.2', '10.0.0.3')}${DNS}`);
  t.strictSame((await sink.next()).changed, ['default/web']);
  await put(path, `services:\n${DNS}`);
  const third = await sink.next();
  t.strictSame(third.changed, ['default/web']);
  t.strictSame(third.shape, ['default/dns()']);
  t.strictSame(heard, [
    'loaded 2, parsed 2',
    'synced 2, changed 2',
    'loaded 2, parsed 1',
    'synced 2, changed 1',
    'loaded 1, parsed 0',
    'synced 1, changed 1',
  ]);
});

t.test('a broken file keeps the previous state, says why, and is read when fixed', async (t) => {
  const { path, sink, loads, invalid, heard } = run(t, `services:\n${WEB}`);
  await sink.next();
  await put(path, `services:\n${WEB}- service: {name: x, ports: [{port: 70000}]}\n`);
  await until(() => invalid.length === 1);
  t.match(invalid[0]?.error, { code: 'KPNG_STATE_FILE_INVALID' });
  t.equal(
    heard.at(-1),
    `the state file has an error; the last known state is kept\n${path}:10:37: services[1].service.ports[0].port: 70000 is not a port (1 to 65535)`,
  );
  await put(path, '');
  await until(() => invalid.length === 2);
  await put(path, `services:\n${WEB}${DNS}`);
  t.strictSame((await sink.next()).changed, ['default/dns']);
  t.equal(loads.length, 2);
  t.equal(sink.unread, 0, 'nothing was delivered in between');
});

t.test('nothing is delivered before the first valid file', async (t) => {
  const { path, sink, invalid, failures, heard } = run(t, undefined);
  await until(() => failures.length === 1);
  t.match(failures[0]?.error, { code: 'KPNG_STATE_FILE_READ' });
  await put(path, 'services: {}\n');
  await until(() => invalid.length === 1);
  t.match(invalid[0]?.error, { code: 'KPNG_STATE_FILE_INVALID' });
  await put(path, Buffer.from([0x23, 0x0a, 0x23, 0x20, 0xff, 0xfe]));
  await until(() => invalid.length === 2);
  t.equal(sink.unread, 0);
  await put(path, `\ufeffservices:\n${DNS}`);
  t.strictSame((await sink.next()).shape, ['default/dns()']);
  t.strictSame(heard, [
    `cannot read the state file ${path}: there is no such file (ENOENT)`,
    `the state file has an error; no state is served yet\n${path}:1:11: services: a map is not a list of services`,
    `the state file has an error; no state is served yet\n${path}:2:3: the file is not UTF-8 text`,
    'loaded 1, parsed 1',
    'synced 1, changed 1',
  ]);
});

t.test('a first file with an error leaves nothing behind', async (t) => {
  const bad = lines('- service: {name: bad, ports: [{port: 0}]}', '- hello', '- service:', '- {}');
  const path = join(t.testdir({ 'state.yaml': `services:\n${WEB}${DNS}${bad}` }), 'state.yaml');
  const source = new FileSource({ path });
  const invalid = eventsOf(t, fileInvalid, path);
  const store = new GlobalStore({ hasher: await loadHasher() });
  const abort = new AbortController();
  const done = source.feed(store, abort.signal);
  await until(() => invalid.length === 1);
  await until(() => store.services.cells().length === 0);
  t.equal(store.synced, false);
  await put(path, `services:\n${DNS}`);
  await until(() => store.synced);
  t.strictSame(
    [...store.services.cells()].map(({ key }) => key),
    ['default/dns'],
  );
  abort.abort();
  await done;
});

t.test('a file that is gone for a while is what it was before, valid or broken', async (t) => {
  const { path, sink, loads, invalid, failures, heard } = run(t, `services:\n${DNS}`);
  await sink.next();
  const goAndReturn = async (): Promise<void> => {
    const before = failures.length;
    await renameOver(path, `${path}.away`);
    await until(() => failures.length > before);
    await renameOver(`${path}.away`, path);
  };
  await goAndReturn();
  await until(() => heard.at(-1) === 'recovered');
  await put(path, 'services: 1\n');
  await until(() => invalid.length === 1);
  const said = heard.at(-1);
  await goAndReturn();
  await until(() => invalid.length === 2);
  t.equal(heard.at(-1), said);
  t.equal(loads.length, 1);
  t.equal(sink.unread, 0);
});

t.test('it ends when aborted, after the sink has finished', async (t) => {
  const sink = new RecordingSink({ automatic: false });
  const { path, loads, abort, done } = run(t, `services:\n${DNS}`, { sink });
  const call = await sink.next();
  let ended = false;
  const end = done.then(() => {
    ended = true;
  });
  abort.abort();
  await put(path, `services:\n${WEB}`);
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(ended, false);
  call.settle();
  await end;
  t.equal(sink.unread, 0);

  const source = new FileSource({ path });
  await feedSink(source, '', sink, AbortSignal.abort());
  t.equal(loads.length, 1, 'aborted before it began');
});

t.test('parsing a large file does not block anything else', async (t) => {
  const pods = Array.from({ length: 2000 }, (_, n) => `  - {podname: web-${n}}\n`).join('');
  const { loads, sink } = run(t, `services:\n- service: {name: web}\n  endpoints:\n${pods}`);
  let turns = 0;
  // Parsing takes hundreds of times as long as a turn that does nothing else.
  await until(() => {
    turns += 1;
    return loads.length === 1;
  });
  t.ok(turns > 100, `${turns} turns of the event loop until then`);
  await sink.next();
});

const href = (path: string): string =>
  JSON.stringify(new URL(`../../src/${path}`, import.meta.url).href);
const PROGRAM = `
import { FileSource } from ${href('file/source.ts')};
import { fileReadFailed } from ${href('file/events.ts')};
import { GlobalStore } from ${href('store/global-store.ts')};
fileReadFailed.subscribe(() => process.stdout.write('waiting\\n'));
const abort = new AbortController();
const store = new GlobalStore({ hasher: undefined });
store.onChange(() => {
  process.stdout.write('loaded\\n');
  abort.abort();
});
await new FileSource({ path: process.argv[1] }).feed(store, abort.signal);
process.stdout.write('done\\n');
`;

t.test('a source that waits for its file keeps the process alive until it ends', async (t) => {
  const path = join(t.testdir({}), 'state.yaml');
  const child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM, path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const exited = once(child, 'exit');
  const said: string[] = [];
  for await (const line of createInterface(child.stdout)) {
    said.push(line);
    if (line === 'waiting') await writeFile(path, 'services: []\n');
  }
  t.strictSame(said, ['waiting', 'loaded', 'done']);
  t.strictSame(await exited, [0, null]);
});

/** Good services, a text that is none, or no file. */
type Step = { services: string[] } | { text: string | undefined };
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ services: fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd')) }),
  fc.record({ text: fc.constantFrom('services: [{]\n', '', undefined) }),
);

async function perform(step: Step, path: string): Promise<void> {
  if ('services' in step) {
    return put(path, step.services.length > 0 ? servicesText(...step.services) : 'services: []\n');
  }
  return step.text === undefined ? rm(path, { force: true }) : put(path, step.text);
}

t.test('whatever happens to the file, the sink ends up with the last good state', async (t) => {
  const dir = t.testdir({});
  let run = 0;
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
      run += 1;
      const path = join(dir, `state-${run}.yaml`);
      const source = new FileSource({ path, limits: { ...DEFAULT_FILE_LIMITS, settleMs: 1 } });
      const seen: string[] = [];
      const abort = new AbortController();
      const sync = async ({ view }: LocalChange): Promise<void> => {
        seen.push([...view.entries()].map(({ key }) => key.replace('default/', '')).join(''));
      };
      const done = feedSink(source, 'n', { sync }, abort.signal);
      for (const step of steps) await perform(step, path);
      // The last word is a good file, so that there is something to wait for.
      await perform({ services: ['z'] }, path);
      await until(() => seen.at(-1) === 'z');
      abort.abort();
      await done;
      const good = new Set(
        steps.flatMap((step) => ('services' in step ? [step.services.toSorted().join('')] : [])),
      );
      return seen.slice(0, -1).every((state) => good.has(state));
    }),
  );
});
