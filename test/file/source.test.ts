import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { renameOver } from '../../src/util/atomic-file.ts';
import { followFile, lines, put } from '../support/file-rig.ts';
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

t.test('a broken file keeps the previous state, and is read when it is fixed', async (t) => {
  const { path, sink, heard } = followFile(t, `services:\n${WEB}`);
  await sink.next();
  heard.length = 0;
  await put(path, `services:\n${WEB}- service: {name: x, ports: [{port: 70000}]}\n`);
  await until(() => heard.length === 1);
  await put(path, '');
  await until(() => heard.length === 2);
  await put(path, `services:\n${WEB}${DNS}`);
  t.strictSame((await sink.next()).changed, ['default/dns'], 'nothing was delivered in between');
  const kept = 'KPNG_STATE_FILE_INVALID: the state file has an error; the last known state is kept';
  t.match(heard, [
    `${kept}\n${path}:10:37: services[1].service.ports[0].port: 70000 is not a port (1 to 65535)`,
    `${kept}\n${path}:1:1: the file is empty`,
    'loaded 2, parsed 1',
    'synced 2, changed 1',
  ]);
});

t.test('nothing is delivered before the first valid file', async (t) => {
  const { path, sink, heard } = followFile(t, undefined);
  await until(() => heard.length === 1);
  await put(path, 'services: {}\n');
  await until(() => heard.length === 2);
  await put(path, Buffer.from([0x23, 0x0a, 0x23, 0x20, 0xff, 0xfe]));
  await until(() => heard.length === 3);
  await put(path, `\ufeffservices:\n${DNS}`);
  t.strictSame((await sink.next()).shape, ['default/dns()']);
  const refused = 'KPNG_STATE_FILE_INVALID: the state file has an error; no state is served yet\n';
  t.strictSame(heard, [
    `KPNG_STATE_FILE_READ: cannot read the state file ${path}: there is no such file (ENOENT)`,
    `${refused}${path}:1:11: services: a map is not a list of services`,
    `${refused}${path}:2:3: the file is not UTF-8 text`,
    'loaded 1, parsed 1',
    'synced 1, changed 1',
  ]);
});

t.test('a file that is gone for a while is what it was before, broken or valid', async (t) => {
  const { path, sink, heard } = followFile(t, `services:\n${DNS}`);
  await sink.next();
  const goAndReturn = async (): Promise<void> => {
    await renameOver(path, `${path}.away`);
    await until(() => heard.at(-1)?.includes('ENOENT') === true);
    await renameOver(`${path}.away`, path);
    await until(() => heard.at(-1)?.includes('ENOENT') === false);
  };
  await put(path, 'services: 1\n');
  await until(() => heard.length === 3);
  await goAndReturn();
  t.match(heard[2], /INVALID/);
  t.equal(heard[4], heard[2]);
  await put(path, `services:\n${DNS}`);
  await until(() => heard.length === 6);
  await goAndReturn();
  t.match(heard.slice(5), ['loaded 1, parsed 0', /ENOENT/, 'recovered']);
  t.equal(sink.unread, 0);
});

t.test('it ends when aborted, after the sink has finished', async (t) => {
  const sink = new RecordingSink({ automatic: false });
  const { path, abort, done } = followFile(t, `services:\n${DNS}`, { sink });
  const call = await sink.next();
  let ended = false;
  const end = done.then(() => (ended = true));
  abort.abort();
  await put(path, `services:\n${WEB}`);
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(ended, false);
  call.settle();
  await end;
  t.equal(sink.unread, 0);
});

t.test('parsing a large file does not block anything else', async (t) => {
  const pods = Array.from({ length: 2000 }, (_, n) => `  - {podname: web-${n}}\n`).join('');
  const { heard, sink } = followFile(t, `services:\n- service: {name: web}\n  endpoints:\n${pods}`);
  let turns = 0;
  // Parsing takes hundreds of times as long as a turn that does nothing else.
  await until(() => {
    turns += 1;
    return heard.length > 0;
  });
  t.ok(turns > 100, `${turns} turns of the event loop until then`);
  await sink.next();
});

t.test('a source that waits for its file keeps the process alive until it ends', async (t) => {
  const { href } = new URL('../../src/file/source.ts', import.meta.url);
  // Node exits with 13 if there is nothing left to wait for.
  const program = `
    import { fileSource } from '${href}';
    const abort = new AbortController();
    setTimeout(() => abort.abort(), 1000).unref();
    await fileSource({ path: '/nowhere/state.yaml' }).feed({}, abort.signal);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  t.strictSame(await once(child, 'exit'), [0, null]);
});

t.test('V22 (kept, different): the hint of one endpoint alone takes nothing away', async (t) => {
  const text = lines(
    'nodes: [{name: edge-1, topology: {node: edge-1, zone: north}}]',
    'services:',
    '- service: {namespace: bakery, name: oven, externaltraffictolocal: true}',
    '  endpoints:',
    '  - {podname: oven-0, endpoint: {ips: {v4: [10.244.1.11]}}, topology: {node: edge-1}}',
    '  - endpoint: {ips: {v4: [10.244.2.22]}}',
    '    topology: {node: edge-2, zone: south}',
    '    hints: {zones: [south]}',
  );
  const { view } = await followFile(t, text, { nodeName: 'edge-1' }).sink.next();
  const endpoints = [...(view.get('bakery/oven')?.endpoints.values() ?? [])];
  t.match(
    endpoints.sort((a) => (a.local ? -1 : 1)),
    [
      { local: true, scopes: { internal: true, external: true } },
      { local: false, scopes: { internal: true, external: false } },
    ],
  );
});
