/** Runs clients of this project. */
import { join } from 'node:path';
import { PORTS } from '../ports.ts';
import { runProgram } from '../program.ts';
import type { EchoSettings } from './echo-client.ts';
import type { FreshSettings } from './fresh-client.ts';
import type { LoadRun, Sample } from './load.ts';
import type { PacedSettings } from './paced-client.ts';

const script = (name: string): string => join(import.meta.dirname, name);

/** Runs a client where clients are; `settings`: what is not in `how`. */
export async function runClient<Settings extends Pick<LoadRun, 'address' | 'seconds' | 'pids'>>(
  { address, seconds, pids, client }: LoadRun,
  file: string,
  settings: Omit<Settings, 'address' | 'seconds' | 'pids'>,
): Promise<Sample> {
  const all = JSON.stringify({ address, seconds, pids, ...settings });
  const output = await runProgram(client(process.execPath, file, all), (seconds + 15) * 1000);
  const sample = JSON.parse(output) as Sample;
  if (sample.total === 0) throw new Error('no answer came');
  return sample;
}

/** Requests on so many connections that are kept: so many a second, or 0: as fast as answers come. */
export function ownRequests(how: LoadRun, connections: number, perSecond: number): Promise<Sample> {
  const { http: port } = how.ports ?? PORTS;
  const settings = { port, connections, perSecond };
  return runClient<PacedSettings>(how, script('paced-client.ts'), settings);
}

/** A connection for each request. */
export function ownConnections(how: LoadRun, clients: number): Promise<Sample> {
  const { http: port } = how.ports ?? PORTS;
  return runClient<FreshSettings>(how, script('fresh-client.ts'), { port, clients });
}

/** Datagrams there and back. */
export function ownEcho(
  how: LoadRun,
  clients: number,
  from: readonly string[] = [],
): Promise<Sample> {
  const { echo: port } = how.ports ?? PORTS;
  return runClient<EchoSettings>(how, script('echo-client.ts'), { port, clients, from });
}
