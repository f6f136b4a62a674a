/**
 * Runs in the client's namespace: so many requests a second, evenly spread, on connections that are
 * kept. A request that finds every connection busy waits, and its waiting counts. Prints a `Sample`.
 *
 * Known tools either have no fixed rate (wrk) or send on all connections at once (h2load).
 */
import { connect, type Socket } from 'node:net';
import { once } from 'node:events';
import { answer, settings } from '../../support/worker.ts';
import { cpuUse, since } from '../usage.ts';
import type { Sample } from './load.ts';

export interface PacedSettings {
  readonly address: string;
  readonly port: number;
  readonly connections: number;
  readonly perSecond: number;
  readonly seconds: number;
  /** Processes of the proxy. */
  readonly pids: readonly number[];
}

/** Before it counts. Milliseconds. */
const WARM_UP = 200;
const NEWLINE = 10;

const { address, port, connections, perSecond, seconds, pids } = settings() as PacedSettings;
const request = Buffer.from(`GET / HTTP/1.1\r\nHost: ${address}\r\n\r\n`);
const latencies = new Float64Array(Math.ceil(perSecond * seconds * 1.1) + 1000);
let answered = 0;
/** When the requests that wait for a connection were due. */
const waiting: number[] = [];
let failed = 0;

class Connection {
  readonly socket: Socket;
  #askedAt = 0;

  constructor() {
    this.socket = connect({
      host: address,
      port,
      noDelay: true,
      onread: { buffer: Buffer.alloc(4096), callback: (length, data) => this.#read(length, data) },
    });
    this.socket.on('error', () => undefined);
    this.socket.on('close', () => {
      failed += 1;
    });
  }

  ask(at: number): void {
    this.#askedAt = at;
    this.socket.write(request);
  }

  /** The page ends with the only newline that is the last byte of what comes. */
  #read(length: number, data: Uint8Array): boolean {
    if (data[length - 1] !== NEWLINE || data[length - 2] === 13) return true;
    if (answered < latencies.length) latencies[answered] = performance.now() - this.#askedAt;
    answered += 1;
    const due = waiting.shift();
    if (due === undefined) free.push(this);
    else this.ask(due);
    return true;
  }
}

const all = Array.from({ length: connections }, () => new Connection());
await Promise.all(all.map(({ socket }) => once(socket, 'connect')));
const free = [...all];

const begin = performance.now();
let sent = 0;
const pace = setInterval(() => {
  const now = performance.now();
  for (const due = ((now - begin) / 1000) * perSecond; sent < due; sent += 1) {
    const connection = free.shift();
    if (connection === undefined) waiting.push(begin + (sent / perSecond) * 1000);
    else connection.ask(now);
  }
}, 1);

setTimeout(() => {
  answered = 0;
  const [start, used] = [performance.now(), cpuUse(pids)];
  setTimeout(() => {
    clearInterval(pace);
    const cpu = since(used, pids);
    const elapsed = (performance.now() - start) / 1000;
    const sorted = latencies.subarray(0, Math.min(answered, latencies.length)).sort();
    const at = (share: number): number =>
      Math.round(1000 * (sorted[Math.floor((sorted.length - 1) * share)] ?? 0));
    const sample: Sample = {
      total: answered,
      rate: answered / elapsed,
      cpu,
      latency: { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999) },
      lost: failed / connections,
    };
    answer(sample);
    process.stdout.end(() => process.exit(0));
  }, seconds * 1000);
}, WARM_UP);
