/** Clients of this project, for what no tool measures, and in place of a tool that is missing. */
import { join } from 'node:path';
import { startScript } from '../../support/dialogue.ts';
import { PORTS } from '../ports.ts';
import type { LoadRun, Sample } from './load.ts';

/** What they do. */
export type OwnWork =
  /** Requests on connections that are kept: so many a second, or 0: as fast as answers come. */
  | { readonly kind: 'requests'; readonly clients: number; readonly perSecond: number }
  /** A connection for each request. */
  | { readonly kind: 'connections'; readonly clients: number }
  /** Small datagrams there and back; `from`: addresses that the clients take turns in having. */
  | { readonly kind: 'echo'; readonly clients: number; readonly from?: readonly string[] }
  /** One connection that reads, or writes, as fast as it can. Counts bytes. */
  | { readonly kind: 'down' | 'up' };

/** Settings of own-client.ts. */
export interface OwnSettings extends Pick<LoadRun, 'address' | 'seconds' | 'pids'> {
  readonly port: number;
  readonly work: OwnWork;
}

const CLIENT = join(import.meta.dirname, 'own-client.ts');
const SERVERS = {
  requests: 'http',
  connections: 'http',
  echo: 'echo',
  down: 'source',
  up: 'sink',
} as const;

/** Runs them, and ends them as soon as they have measured: busy clients may take long to end by themselves. */
export async function runOwn(
  { address, seconds, pids, client, ports = PORTS }: LoadRun,
  work: OwnWork,
): Promise<Sample> {
  const port = ports[SERVERS[work.kind]] ?? 0;
  const settings: OwnSettings = { address, port, seconds, pids, work };
  const program = startScript(CLIENT, settings, client());
  const timer = setTimeout(() => void program.kill(), (seconds + 15) * 1000);
  try {
    const sample = await program.ask<Sample>({});
    if (sample.total === 0) throw new Error('no answer came');
    return sample;
  } finally {
    clearTimeout(timer);
    await program.kill();
  }
}
