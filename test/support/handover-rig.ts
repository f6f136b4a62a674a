/** The program with a handover socket, and endpoints behind it, for tests that restart it under load. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { startCli, type Cli } from './cli.ts';
import { ceaseless, echoServers, LongConnection } from './restart-load.ts';
import { shortDir } from './short-dir.ts';
import { freePort } from './sockets.ts';

/** How often each is restarted; more by hand. */
export const RESTARTS = Number(process.env['RESTARTS'] ?? 1);

function state(port: number, targetPort: number): string {
  const ports = [1, 2].map(
    (protocol) =>
      `{name: p${protocol}, protocol: ${protocol}, port: ${port}, targetport: ${targetPort}}`,
  );
  return `
nodes: [{name: n1}]
services:
- service:
    name: echo
    ips: {clusterips: {v4: [127.0.0.1]}}
    ports: [${ports.join(', ')}]
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.1]}}
    topology: {node: n1}
`;
}

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

export interface HandoverRig {
  readonly backend: number;
  readonly port: number;
  readonly socket: string;
  /** Of the admin API; the program has it only on request. */
  readonly admin: string;
  /** What is in the state file. */
  readonly state: string;
  start(...flags: readonly string[]): Cli;
}

export async function handoverRig(t: Test, portal = '--portal address'): Promise<HandoverRig> {
  const [backend, port, folder] = [await echoServers(t), await freePort(), shortDir(t)];
  const input = join(folder, 'state.yaml');
  const socket = join(folder, 'handover');
  const admin = join(folder, 'run', 'admin');
  const text = state(port, backend);
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
  return { backend, port, socket, admin, state: text, start };
}

/** Restarts the program again and again under load. No client may notice. Returns the last process. */
export function restart(
  t: Test,
  rig: HandoverRig,
  port: number,
  flags: readonly string[],
): Promise<Cli> {
  return changingRestarts(
    t,
    rig,
    port,
    Array.from({ length: RESTARTS + 1 }, () => flags),
  );
}

/** Starts the program with these flags, one after the other, under load. No client may notice. Returns the last process. */
export async function changingRestarts(
  t: Test,
  rig: HandoverRig,
  port: number,
  [flags = [], ...others]: readonly (readonly string[])[],
): Promise<Cli> {
  let running = rig.start(...flags);
  await running.line('The first complete state is in place');
  const stop = ceaseless('127.0.0.1', port);
  for (const each of others) {
    const long = await LongConnection.open('127.0.0.1', port);
    const successor = rig.start(...each);
    await successor.line('Took over from the previous process', { pid: running.child.pid });
    await running.line('Waiting for connections to end');
    await long.exchange('over the process that was there when it began');
    t.equal(running.child.exitCode, null, 'that one waits for it');
    await long.end();
    t.match(await running.exited, { code: 0 });
    running = successor;
  }
  const { ok, failed, answered, lost } = await stop();
  t.same(failed, {}, `${ok} connections`);
  t.ok(ok > others.length * 10 && answered > others.length * 10);
  t.equal(lost, 0, `of ${answered} datagrams`);
  t.comment(`${others.length} restarts, ${ok} connections, ${lost} of ${answered} datagrams lost`);
  return running;
}
