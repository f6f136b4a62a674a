/** A program of the benchmark: one client of the local API, until it has the state. */
import { KpngClient } from '../../src/client/client.ts';
import { parseTarget } from '../../src/client/target.ts';
import { answer, settings } from '../support/worker.ts';
import { nodeName } from './cluster.ts';

export interface FirstSync {
  /** From connecting until the sink has the whole state. Milliseconds. */
  readonly ms: number;
  readonly services: number;
  readonly endpoints: number;
}

const { port } = settings() as { readonly port: number };
const client = new KpngClient({
  target: parseTarget(`127.0.0.1:${port}`),
  nodeName: nodeName(1),
  once: true,
});
const begin = performance.now();
await client.run({
  async sync({ view }) {
    let endpoints = 0;
    const ms = performance.now() - begin;
    for (const entry of view.entries()) endpoints += entry.endpoints.size;
    answer({ ms, services: view.size, endpoints } satisfies FirstSync);
  },
});
