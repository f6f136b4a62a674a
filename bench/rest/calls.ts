import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import { isInstalled } from '../support/tools.ts';

/** How many of each system call, by name. */
export type Calls = Readonly<Record<string, number>>;

/**
 * System calls of all threads of a process, for each second, by name; undefined where there is no strace.
 * What is counted is what ends in that time, so a thread that sleeps in one call counts nothing.
 */
export async function callsPerSecond(pid: number, seconds: number): Promise<Calls | undefined> {
  if (!isInstalled('strace')) return undefined;
  const strace = spawn('strace', ['-f', '-c', '-U', 'calls,name', '-p', String(pid)], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const written = text(strace.stderr);
  const ended = once(strace, 'exit');
  await wait(seconds * 1000);
  strace.kill('SIGINT');
  await ended;
  const calls = Object.entries(countCalls(await written));
  return Object.fromEntries(calls.map(([name, count]) => [name, count / seconds]));
}

/** From the table that `strace -c -U calls,name` writes; none is written where there was no call. */
export function countCalls(table: string): Calls {
  const rows = [...table.matchAll(/^\s*(\d+)\s+(\w+)$/gm)];
  if (rows.length === 0 && !table.includes('attached')) throw new Error(`strace: ${table.trim()}`);
  return Object.fromEntries(
    rows.flatMap(([, count, name = '']) => (name === 'total' ? [] : [[name, Number(count)]])),
  );
}

export function totalCalls(calls: Calls): number {
  return Object.values(calls).reduce((sum, each) => sum + each, 0);
}
