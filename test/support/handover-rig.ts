/** Clients that ask without a pause, for tests that restart what serves them. */
import { createSocket, type Socket } from 'node:dgram';
import { on, once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import type { Test } from 'tap';
import { get } from '../../examples/support/http.ts';
import { startCli, stateText, type Cli } from './cli.ts';
import { shortDir } from './short-dir.ts';
import { freePort } from './sockets.ts';
import { echoServer } from './tcp-peers.ts';
import { UdpBackend } from './udp-peers.ts';

/** How long a datagram may take before it counts as lost. */
const LOST_MS = 20_000;
const REQUEST = 'x'.repeat(100);
/** So that a machine with other work can start programs meanwhile. None when it is measured. */
const PAUSE_MS = process.env['RESTARTS'] === undefined ? 3 : 0;

/**
 * Does something again and again, so many times at once. Ends on request, with the number of `good` outcomes and that of
 * each other one.
 */
function repeated(times: number, good: string, action: () => Promise<string>) {
  const failed: Record<string, number> = {};
  let ok = 0;
  const stop = new AbortController();
  const loop = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      if (PAUSE_MS > 0) await delay(PAUSE_MS);
      const outcome = await action().catch(codeOf);
      if (outcome === good) ok += 1;
      else failed[outcome] = (failed[outcome] ?? 0) + 1;
    }
  };
  const work = Promise.all(Array.from({ length: times }, loop));
  return async () => {
    stop.abort();
    await work;
    return { ok, failed };
  };
}

/** A connection for each request, some at a time, and a datagram socket that stays. Ends on request. */
export function ceaseless(host: string, port: number, udpPort = port) {
  const socket = createSocket('udp4').on('error', () => {});
  socket.connect(udpPort, host);
  const connected = once(socket, 'connect');
  let number = 0;
  const tcp = repeated(4, 'ok', () => request(host, port));
  const udp = repeated(1, 'answered', async () => {
    await connected;
    number += 1;
    return exchangeDatagram(socket, `datagram ${number}`);
  });
  return async () => {
    const [requests, datagrams] = await Promise.all([tcp(), udp()]);
    socket.close();
    return { ...requests, answered: datagrams.ok, lost: datagrams.failed['lost'] ?? 0 };
  };
}

/** Asks for pages, a connection for each, until stopped. What is not a 200 has failed. */
export function ceaselessPages(urls: readonly string[], admin: string) {
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
export async function pageOutcome(url: string, options = {}): Promise<string> {
  return get(url, options).then(({ status }) => String(status), codeOf);
}

const codeOf = (error: NodeJS.ErrnoException): string => error.code ?? error.message;

async function request(host: string, port: number): Promise<string> {
  const socket = connect({ host, port, allowHalfOpen: true });
  socket.end(REQUEST);
  const answer = await text(socket);
  return answer === REQUEST ? 'ok' : `${answer.length} bytes`;
}

async function exchangeDatagram(socket: Socket, wanted: string): Promise<string> {
  const signal = AbortSignal.timeout(LOST_MS);
  const messages = on(socket, 'message', { signal }) as AsyncIterable<[Buffer]>;
  socket.send(wanted);
  try {
    for await (const [message] of messages) if (String(message) === wanted) break;
    return 'answered';
  } catch {
    return 'lost';
  }
}

/** How often each is restarted; more by hand. */
export const RESTARTS = Number(process.env['RESTARTS'] ?? 1);

/** Flags for pages on two free ports, for restarts that are watched. */
export async function pages() {
  const metrics = `127.0.0.1:${await freePort()}`;
  const health = `127.0.0.1:${await freePort()}`;
  return {
    flags: [`--metrics-bind-address=${metrics}`, `--healthz-bind-address=${health}`],
    urls: [`${metrics}/metrics`, `${health}/healthz`, `${health}/readyz`].map(
      (page) => `http://${page}`,
    ),
  };
}

/** The program with a handover socket, and endpoints behind it. */
export async function handoverRig(t: Test, portal = '--portal address') {
  const [echo, datagrams] = [await echoServer(t), await UdpBackend.start(t)];
  const [port, folder] = [await freePort(), shortDir(t)];
  const input = join(folder, 'state.yaml');
  const socket = join(folder, 'handover');
  const admin = join(folder, 'run', 'admin');
  const state = stateText(
    [
      { name: 'echo', endpoints: [echo.port] },
      { name: 'datagrams', endpoints: [datagrams.spec.port], protocol: 'UDP' },
    ],
    { echo: port, datagrams: port },
  );
  writeFileSync(input, state);
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
  /** The same, and waits until it serves. */
  const serve = async (...flags: readonly string[]): Promise<Cli> => {
    const cli = start(...flags);
    await cli.line('The first complete state is in place');
    return cli;
  };
  return {
    port,
    socket,
    /** Of the admin API; the program has it only on request. */
    admin,
    /** What is in the state file. */
    state,
    start,
    serve,
  };
}
