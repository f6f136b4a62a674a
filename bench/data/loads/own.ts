/** Runs clients of this project. */
import { join } from 'node:path';
import { PORTS } from '../ports.ts';
import { runProgram } from '../program.ts';
import type { EchoSettings } from './echo-client.ts';
import type { FreshSettings } from './fresh-client.ts';
import type { LoadRun, Sample } from './load.ts';
import type { PacedSettings } from './paced-client.ts';

async function runClient(
  how: LoadRun,
  script: string,
  settings: EchoSettings | FreshSettings | PacedSettings,
): Promise<Sample> {
  const file = join(import.meta.dirname, script);
  const words = how.client(process.execPath, file, JSON.stringify(settings));
  const sample = JSON.parse(await runProgram(words, (how.seconds + 15) * 1000)) as Sample;
  if (sample.total === 0) throw new Error('no answer came');
  return sample;
}

/** Requests on so many connections that are kept: so many a second, or 0: as fast as answers come. */
export function ownRequests(how: LoadRun, connections: number, perSecond: number): Promise<Sample> {
  const { address, seconds, pids } = how;
  const settings = { address, port: PORTS.http, connections, perSecond, seconds, pids };
  return runClient(how, 'paced-client.ts', settings);
}

/** A connection for each request. */
export function ownConnections(how: LoadRun, clients: number): Promise<Sample> {
  const { address, seconds, pids } = how;
  return runClient(how, 'fresh-client.ts', { address, port: PORTS.http, clients, seconds, pids });
}

/** Datagrams there and back. */
export function ownEcho(
  how: LoadRun,
  clients: number,
  from: readonly string[] = [],
): Promise<Sample> {
  const { address, seconds, pids } = how;
  const settings = { address, port: PORTS.echo, clients, from, seconds, pids };
  return runClient(how, 'echo-client.ts', settings);
}
