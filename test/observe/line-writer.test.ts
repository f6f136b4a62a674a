import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import { lineWriter } from '../../src/observe/line-writer.ts';
import { holds } from '../support/property.ts';
import { until } from '../support/until.ts';

/** A reader with a buffer of so many bytes, like a pipe. */
function pipe(room: number) {
  let free = room;
  let read = '';
  let pauses = 0;
  const write = lineWriter({
    write(bytes) {
      const size = Math.min(free, bytes.length);
      if (size === 0) throw Object.assign(new Error('busy'), { code: 'EAGAIN' });
      free -= size;
      read += Buffer.from(bytes.subarray(0, size)).toString();
      return size;
    },
    pause: () => void (pauses += 1),
    lostLine: (count) => `lost ${count}\n`,
  });
  return {
    write,
    drain: (bytes: number) => void (free += bytes),
    read: () => read,
    pauses: () => pauses,
  };
}

t.test('a reader that is stuck holds the process up once, for a moment', (t) => {
  const { write, read, pauses } = pipe(4);
  write('one\n');
  for (let n = 0; n < 1000; n += 1) write('two\n');
  t.equal(read(), 'one\n');
  t.equal(pauses(), 50);
  t.end();
});

t.test('whatever the reader does: whole lines in order, and every lost one is counted', (t) => {
  const steps = fc.array(fc.integer({ min: 0, max: 30 }), { maxLength: 50 });
  const property = fc.property(steps, fc.integer({ min: 0, max: 40 }), (drains, room) => {
    const { write, read, drain } = pipe(room);
    for (const [n, bytes] of drains.entries()) {
      write(`line ${n}\n`);
      drain(bytes);
    }
    drain(10_000);
    write('end\n');
    const lines = read().trimEnd().split('\n');
    let expected = 0;
    for (const line of lines.slice(0, -1)) {
      const [, word, number] = /^(line|lost) (\d+)$/.exec(line) ?? [];
      if (word === 'lost') expected += Number(number);
      else if (Number(number) === expected) expected += 1;
      else return false;
    }
    return lines.at(-1) === 'end' && expected === drains.length;
  });
  holds(t, property);
  t.end();
});

/** Runs a script that has a JSON log on standard error, which no one reads until it is resumed. */
function script(t: Test, body: string) {
  const url = new URL('../../src/observe/log.ts', import.meta.url).href;
  const source = `
    import { createLog } from ${JSON.stringify(url)};
    const log = await createLog({ format: 'json', verbosity: 0 });
    ${body}`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source]);
  t.teardown(() => child.kill('SIGKILL'));
  child.stderr.setEncoding('utf8').pause();
  return child;
}

t.test('standard error gets everything before the process ends at once', async (t) => {
  // As many as fit without a reader: lines for a slow reader are dropped after a wait.
  const child = script(t, `for (let n = 0; n < 100; n++) log.info('line ' + n); process.exit(3);`);
  const [written, [code]] = await Promise.all([text(child.stderr), once(child, 'close')]);
  t.equal(code, 3);
  t.match(written, /^([^\n]*\n){99}[^\n]*line 99"[^\n]*\n$/);
});

t.test('a process continues while no one reads its log, and when no one can', async (t) => {
  const child = script(
    t,
    `for (let n = 0; n < 20_000; n++) log.info('line');
     process.stdout.write('done');
     const timer = setInterval(() => log.info('still here'), 5);
     process.stdin.once('data', () => {
       clearInterval(timer);
       for (let n = 0; n < 100; n++) log.info('no one can read this');
       setTimeout(() => process.stdout.write('continues', () => process.exit(0)), 20);
     });`,
  );
  t.equal(String((await once(child.stdout, 'data'))[0]), 'done');
  let seen = '';
  child.stderr.on('data', (piece: string) => (seen += piece)).resume();
  await until(() => seen.endsWith('"still here"}\n'));
  const lines = seen
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { msg: string; lost?: number });
  // The pipe may take a few more lines now and then, so there can be more than one notice.
  const written = lines.filter(({ msg }) => msg === 'line').length;
  const notices = lines.filter(({ lost }) => lost !== undefined);
  t.match(notices[0]?.msg, 'Log lines lost: standard error was not read in time');
  const lost = notices.reduce((sum, notice) => sum + (notice.lost ?? 0), 0);
  t.ok(lost + written >= 20_000, 'every line was written or is in the count of the lost ones');
  t.equal(lines.at(-1)?.msg, 'still here');

  child.stderr.destroy();
  child.stdin.write('go');
  t.equal(String((await once(child.stdout, 'data'))[0]), 'continues');
  t.equal((await once(child, 'close'))[0], 0);
});
