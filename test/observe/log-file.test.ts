/** Log lines and health of the state file source, from the real source. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { FileSource } from '../../src/file/source.ts';
import { Health } from '../../src/observe/health.ts';
import { followSources } from '../../src/observe/health-events.ts';
import { SOURCE_RULES } from '../../src/observe/log-sources.ts';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { captureLog } from '../support/captured-log.ts';
import { feedSink } from '../support/file-rig.ts';
import { shortDir } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

const GOOD = 'services:\n- service: {name: web}\n';

/** Follows a file with the given text, or none, until the test ends. */
async function follow(t: Test, text?: string) {
  const path = join(shortDir(t), 'state.yaml');
  if (text !== undefined) writeFileSync(path, text);
  const { log, lines } = await captureLog();
  const health = new Health();
  const ends = [subscribeLog(log, SOURCE_RULES), followSources(health)];
  const stop = new AbortController();
  const source = new FileSource({ path });
  const ended = feedSink(source, 'n', { sync: async () => {} }, stop.signal);
  t.teardown(async () => {
    stop.abort();
    await ended;
    for (const end of ends) end();
  });
  const line = async (msg: string) => {
    await until(() => lines().some((each) => each.msg === msg));
    return lines().find((each) => each.msg === msg);
  };
  return { path, health, lines, line };
}

t.test('a good file', async (t) => {
  const { line, path, health } = await follow(t, GOOD);
  const loaded = await line('Loaded the state file');
  t.match(loaded, { level: 'info', path, services: 1, nodes: 0, bytes: GOOD.length, ms: Number });
  t.equal(health.facts.sourceLost, undefined);
});

t.test('a file with several errors: a line for each, at its place', async (t) => {
  const text = 'services:\n- service: {nam: web}\n- service: {name: x, prots: []}\nnoodles: []\n';
  const { line, lines, path, health } = await follow(t, text);
  const msg = 'State file invalid; nothing is served yet';
  await line(msg);
  const errors = lines().filter((each) => each.msg === msg);
  t.ok(errors.length >= 3);
  for (const error of errors) {
    t.match(error, { level: 'error', path, code: 'KPNG_STATE_FILE_INVALID', err: String });
  }
  t.same(new Set(errors.map((error) => error['line'])), new Set([2, 3, 4]));
  t.equal(health.facts.sourceLost?.code, 'KPNG_STATE_FILE_INVALID');
  writeFileSync(path, GOOD);
  await line('Loaded the state file');
  t.equal(health.facts.sourceLost, undefined, 'mended');
  writeFileSync(path, text);
  await line('State file invalid; serving the last good state');
  t.equal(lines().filter((each) => each.msg === msg).length, errors.length, 'as there is one now');
});

t.test('more errors than are listed: the rest is counted', async (t) => {
  const items = Array.from({ length: 30 }, (_, n) => `- service: {name: s${n}, x: 1}\n`);
  const { lines } = await follow(t, `services:\n${items.join('')}`);
  await until(() => lines().some(({ err }) => err === 'and 10 more'));
  t.equal(lines().length, 21);
});

t.test('a file that is not there, comes, goes and comes again', async (t) => {
  const { line, lines, path, health } = await follow(t);
  const failed = await line('Reading the state file failed; retrying');
  t.match(failed, { level: 'error', path, code: 'KPNG_STATE_FILE_READ', err: /state\.yaml/ });
  t.equal(health.facts.sourceLost?.code, 'KPNG_STATE_FILE_READ');
  writeFileSync(path, GOOD);
  await line('Loaded the state file');
  t.equal(health.facts.sourceLost, undefined);
  rmSync(path);
  await until(() => lines().filter(({ code }) => code === 'KPNG_STATE_FILE_READ').length === 2);
  t.equal(health.facts.sourceLost?.code, 'KPNG_STATE_FILE_READ');
  writeFileSync(path, GOOD);
  await line('The state file can be read again');
  t.equal(health.facts.sourceLost, undefined);
});

t.test('what has no effect is told once, until it has gone and comes back', async (t) => {
  const { line, lines, path } = await follow(t, GOOD);
  await line('Loaded the state file');
  const item = (name: string, servicename: string) =>
    `- service: {name: ${name}}\n  endpoints: [{servicename: ${servicename}}]\n`;
  const msg = 'A part of the state file has no effect';
  let loads = 1;
  /** The places of the warnings that are logged when the file gets this content. */
  const told = async (...items: string[]): Promise<unknown[]> => {
    const before = lines().length;
    writeFileSync(path, `services:\n${items.join('')}`);
    loads += 1;
    const loaded = () => lines().filter((each) => each.msg === 'Loaded the state file').length;
    await until(() => loaded() === loads);
    return lines()
      .slice(before)
      .filter((each) => each.msg === msg)
      .map((each) => each['at']);
  };
  const at = (service: number) => `services[${service}].endpoints[0].servicename`;
  t.strictSame(await told(item('a', 'x')), [at(0)]);
  t.strictSame(await told(item('b', 'b'), item('a', 'x')), [], 'the same, further down');
  t.strictSame(await told(item('b', 'y'), item('a', 'x')), [at(0)], 'another one');
  t.strictSame(await told(item('b', 'z'), item('a', 'x')), [at(0)], 'with another text');
  t.strictSame(await told(item('b', 'z')), []);
  t.strictSame(await told(item('b', 'z'), item('a', 'x')), [at(1)], 'it has come back');
  writeFileSync(path, 'services: 1\n');
  await line('State file invalid; serving the last good state');
  t.strictSame(await told(item('b', 'z'), item('a', 'x'), item('c', 'c')), [], 'after an error');
});
