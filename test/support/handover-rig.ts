/** Clients that ask without a pause, for tests that restart what serves them. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Test } from 'tap';
import { startCli, stateText, type Cli } from './cli.ts';
import { shortDir } from './short-dir.ts';
import { type Teardown, freePort } from './sockets.ts';
import { echoServer } from './tcp-peers.ts';
import { UdpBackend } from './udp-rig.ts';

/** How long a datagram may take before it counts as lost. */
const LOST_MS = 1000;
const REQUEST = 'x'.repeat(100);
/** So that a machine with other work can start programs meanwhile. None when it is measured. */
const PAUSE_MS = process.env['RESTARTS'] === undefined ? 3 : 0;

export interface Tally {
  /** Connections that got back what they sent. */
  readonly ok: number;
  /** The others, by what came of them. */
  readonly failed: Readonly<Record<string, number>>;
  /** Datagrams that were answered, and that were not. */
  readonly answered: number;
  readonly lost: number;
}

/** A TCP server and a UDP socket at one port that send back what they get. */
async function echoServers(t: Teardown): Promise<number> {
  const { port } = await echoServer(t);
  await UdpBackend.start(t, undefined, { port });
  return port;
}

/** Does something again and again, so many times at once. Other outcomes than `good` have failed. Ends on request. */
function repeated(times: number, good: string, action: () => Promise<string>) {
  const failed: Record<string, number> = {};
  let ok = 0;
  const stop = new AbortController();
  const loop = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      if (PAUSE_MS > 0) await delay(PAUSE_MS);
      const outcome = await action();
      if (outcome === good) ok += 1;
      else failed[outcome] = (failed[outcome] ?? 0) + 1;
    }
  };
  const work = Promise.all(Array.from({ length: times }, loop));
  return async (): Promise<Pick<Tally, 'ok' | 'failed'>> => {
    stop.abort();
    await work;
    return { ok, failed };
  };
}

/** A connection for each request, some at a time, and a datagram socket that stays. Ends on request. */
export function ceaseless(host: string, port: number, udpPort = port): () => Promise<Tally> {
  const socket = createSocket('udp4').on('error', () => {});
  socket.connect(udpPort, host);
  const connected = once(socket, 'connect');
  let number = 0;
  const tcp = repeated(4, 'ok', () => request(host, port));
  const udp = repeated(1, 'answered', async () => {
    await connected;
    number += 1;
    return (await exchangeDatagram(socket, `datagram ${number}`)) ? 'answered' : 'lost';
  });
  return async () => {
    const [requests, datagrams] = await Promise.all([tcp(), udp()]);
    socket.close();
    return { ...requests, answered: datagrams.ok, lost: datagrams.failed['lost'] ?? 0 };
  };
}

/** Asks for pages, a connection for each, until stopped. What is not a 200 has failed. */
export function ceaselessPages(
  urls: readonly string[],
  admin: string,
): () => Promise<Pick<Tally, 'ok' | 'failed'>> {
  let asked = 0;
  return repeated(urls.length + 1, '200', () => {
    asked += 1;
    const url = urls[asked % (urls.length + 1)];
    return url === undefined
      ? pageOutcome('http://localhost/v1/status', { socketPath: admin })
      : pageOutcome(url);
  });
}

/** The status of an answer, or the code of the error. */
export function pageOutcome(url: string, options = {}): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const asked = get(url, { agent: false, ...options }, (response) => {
    response.on('end', () => resolve(String(response.statusCode))).resume();
  });
  asked.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  return promise;
}

function request(host: string, port: number): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = connect({ host, port, allowHalfOpen: true });
  let answer = '';
  socket.setEncoding('latin1').on('data', (text: string) => {
    answer += text;
  });
  socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  socket.on('close', () => resolve(answer === REQUEST ? 'ok' : `${answer.length} bytes`));
  socket.end(REQUEST);
  return promise;
}

async function exchangeDatagram(
  socket: ReturnType<typeof createSocket>,
  text: string,
): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const onMessage = (message: Buffer): void => {
    if (String(message) === text) resolve(true);
  };
  socket.on('message', onMessage);
  const timer = setTimeout(() => resolve(false), LOST_MS);
  socket.send(text);
  const wasAnswered = await promise;
  clearTimeout(timer);
  socket.off('message', onMessage);
  return wasAnswered;
}

/** A connection that stays until it is ended; rejects if an answer does not come. */
export async function longConnection(port: number) {
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  socket.setEncoding('latin1').on('error', () => undefined);
  const next = (event: string) =>
    once(socket, event, { signal: AbortSignal.timeout(20_000) }) as Promise<string[]>;
  const exchange = async (text: string): Promise<void> => {
    socket.write(text);
    let answer = '';
    while (answer.length < text.length) answer += (await next('data'))[0];
    if (answer !== text) throw new Error(`the answer is ${answer}`);
  };
  const end = async (): Promise<void> => {
    socket.end();
    await next('end');
  };
  await exchange('first');
  return { exchange, end };
}

/** How often each is restarted; more by hand. */
export const RESTARTS = Number(process.env['RESTARTS'] ?? 1);

/** Flags for pages on two free ports, for restarts that are watched. */
export async function pages(): Promise<{ readonly flags: string[]; readonly urls: string[] }> {
  const [metrics, health] = [await freePort(), await freePort()];
  const flags = [
    `--metrics-bind-address=127.0.0.1:${metrics}`,
    `--healthz-bind-address=127.0.0.1:${health}`,
  ];
  const urls = [
    `http://127.0.0.1:${metrics}/metrics`,
    `http://127.0.0.1:${health}/healthz`,
    `http://127.0.0.1:${health}/readyz`,
  ];
  return { flags, urls };
}

interface HandoverRig {
  readonly port: number;
  readonly socket: string;
  /** Of the admin API; the program has it only on request. */
  readonly admin: string;
  /** What is in the state file. */
  readonly state: string;
  start(...flags: readonly string[]): Cli;
  /** The same, and waits until it serves. */
  serve(...flags: readonly string[]): Promise<Cli>;
}

/** The program with a handover socket, and endpoints behind it. */
export async function handoverRig(t: Test, portal = '--portal address'): Promise<HandoverRig> {
  const [backend, port, folder] = [await echoServers(t), await freePort(), shortDir(t)];
  const input = join(folder, 'state.yaml');
  const socket = join(folder, 'handover');
  const admin = join(folder, 'run', 'admin');
  const text = stateText(
    [
      { name: 'echo', endpoints: [backend] },
      { name: 'datagrams', endpoints: [backend], protocol: 'UDP' },
    ],
    { echo: port, datagrams: port },
  );
  writeFileSync(input, text);
  const start = (...flags: readonly string[]): Cli =>
    startCli(t, [
      ...`file -i ${input} to-local to-userspace --node-name n1 ${portal}`.split(' '),
      '--metrics-bind-address=',
      '--healthz-bind-address=',
      `--handover-socket=${socket}`,
      '--drain-timeout=1h',
      // The old process waits as long for answers.
      '--udp-idle-timeout=1s',
      ...flags,
    ]);
  const serve = async (...flags: readonly string[]): Promise<Cli> => {
    const cli = start(...flags);
    await cli.line('The first complete state is in place');
    return cli;
  };
  return { port, socket, admin, state: text, start, serve };
}
