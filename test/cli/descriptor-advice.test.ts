import t from 'tap';
import { adviseOnDescriptors } from '../../src/cli/sinks/userspace-runtime.ts';
import type { Log } from '../../src/observe/log.ts';
import { defaultReserve } from '../../src/proxysocket/core/descriptors.ts';

/** What is said about a limit and a reserve. */
function advice(limit: number, reserve: number): string[] {
  const lines: string[] = [];
  const note =
    (level: string): Log['warn'] =>
    (message, keys) =>
      void lines.push(`${level}: ${message} ${JSON.stringify(keys)}`);
  adviseOnDescriptors({ warn: note('warn'), error: note('error') } as Log, limit, reserve);
  return lines;
}

t.test('a process that may open enough files says nothing', (t) => {
  for (const limit of [1024, 65_536]) t.same(advice(limit, defaultReserve(limit)), []);
  t.end();
});

t.test('few files are a warning, with what is left of them', (t) => {
  t.match(advice(256, defaultReserve(256)), [
    /^warn: .*raise ulimit -n \{"limit":256,"reserved":64,"left":192\}$/,
  ]);
  t.end();
});

t.test('a reserve that leaves nothing is kept, and an error', (t) => {
  for (const limit of [256, 100]) {
    t.match(advice(limit, 256), [/^error: No .*"left":0,"code":"KPNG_LIMIT_REACHED"\}$/]);
  }
  t.end();
});
