/** The program is restarted under load: its successor takes over while it runs. */
import { once } from 'node:events';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CrashBreaker } from '../../src/proxysocket/linux/breaker.ts';
import { startCli, type Cli } from '../support/cli.ts';
import { linuxTest } from '../support/linux-sys.ts';
import { ceaseless, ceaselessPages, echoServers, LongConnection } from '../support/restart-load.ts';
import { shortDir } from '../support/short-dir.ts';
import { freePort } from '../support/sockets.ts';

/** How often each is restarted; more by hand. */
const RESTARTS = Number(process.env['RESTARTS'] ?? 1);

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
async function pages(): Promise<{ readonly flags: string[]; readonly urls: string[] }> {
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

interface Rig {
  readonly backend: number;
  readonly port: number;
  readonly socket: string;
  start(...flags: readonly string[]): Cli;
}

async function setup(t: Test, portal = '--portal address'): Promise<Rig> {
  const [backend, port, folder] = [await echoServers(t), await freePort(), shortDir(t)];
  const input = join(folder, 'state.yaml');
  const socket = join(folder, 'handover');
  writeFileSync(input, state(port, backend));
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
  return { backend, port, socket, start };
}

/** Restarts the program again and again under load. No client may notice. */
async function restart(t: Test, rig: Rig, port: number, flags: readonly string[]): Promise<Cli> {
  let running = rig.start(...flags);
  await running.line('The first complete state is in place');
  const stop = ceaseless('127.0.0.1', port);
  for (let round = 0; round < RESTARTS; round += 1) {
    const long = await LongConnection.open('127.0.0.1', port);
    const successor = rig.start(...flags);
    await successor.line('Took over from the former process', { pid: running.child.pid });
    await running.line('Waiting for connections to end');
    await long.exchange('over the process that was there when it began');
    t.equal(running.child.exitCode, null, 'that one waits for it');
    await long.end();
    t.match(await running.exited, { code: 0 });
    running = successor;
  }
  const { ok, failed, answered, lost } = await stop();
  t.same(failed, {}, `${ok} connections`);
  t.ok(ok > RESTARTS * 10 && answered > RESTARTS * 10);
  t.equal(lost, 0, `of ${answered} datagrams`);
  t.comment(`${RESTARTS} restarts, ${ok} connections, ${lost} of ${answered} datagrams lost`);
  return running;
}

// Runs that other tests have killed are no reason to do without the engine.
t.before(() => new CrashBreaker().lasted());

for (const engine of ['node', 'linux']) {
  linuxTest(`--engine ${engine}: no connection fails, and long ones end in peace`, async (t) => {
    const rig = await setup(t);
    const last = await restart(t, rig, rig.port, [`--engine=${engine}`]);
    t.equal(statSync(rig.socket).mode & 0o777, 0o600, 'a successor of the same user may have it');
    last.kill('SIGTERM');
    t.match(await last.exited, { code: 0 });
    t.notOk(existsSync(rig.socket), 'nobody is left to take over from');
  });
}

linuxTest('probes and scrapes are answered all the time', async (t) => {
  const rig = await setup(t);
  const { flags, urls } = await pages();
  let running = rig.start(...flags);
  await running.line('The first complete state is in place');
  const stop = ceaselessPages(urls);
  for (let round = 0; round < RESTARTS; round += 1) {
    const successor = rig.start(...flags);
    await successor.line('Took over from the former process', { pid: running.child.pid });
    t.match(await running.exited, { code: 0 });
    running = successor;
  }
  const { ok, failed } = await stop();
  t.same(failed, {}, `${ok} answers`);
  t.ok(ok > RESTARTS * 10);
  t.comment(`${RESTARTS} restarts, ${ok} answers`);
});

linuxTest('the other engine can take over, too', async (t) => {
  const rig = await setup(t);
  const first = rig.start('--engine=linux');
  await first.line('The first complete state is in place');
  const stop = ceaseless('127.0.0.1', rig.port);
  const second = rig.start('--engine=node');
  await second.line('Took over from the former process');
  t.match(await first.exited, { code: 0 });
  t.same((await stop()).failed, {});
});

linuxTest('--portal none keeps its proxy ports', async (t) => {
  // Below those that connections of this machine begin from.
  const range = '--port-range 23000-23900';
  const rig = await setup(t, `--portal none --bind-address 127.0.0.1 -v=2 ${range}`);
  const proxyPort = async (cli: Cli, protocol: 'TCP' | 'UDP'): Promise<number> => {
    const line = await cli.line('Proxying for service', { protocol });
    return Number(String(line['address']).split(':').at(-1));
  };
  const first = rig.start();
  const [tcp, udp] = [await proxyPort(first, 'TCP'), await proxyPort(first, 'UDP')];
  const stop = ceaseless('127.0.0.1', tcp, udp);
  const second = rig.start();
  await second.line('Took over from the former process');
  t.same([await proxyPort(second, 'TCP'), await proxyPort(second, 'UDP')], [tcp, udp]);
  t.match(await first.exited, { code: 0 });
  const { failed, answered } = await stop();
  t.same(failed, {});
  t.ok(answered > 10);
});

linuxTest('a successor that dies before it serves changes nothing', async (t) => {
  const rig = await setup(t);
  const first = rig.start();
  await first.line('The first complete state is in place');
  const stop = ceaseless('127.0.0.1', rig.port);
  // Without a state it cannot serve.
  const second = rig.start(`--input=${rig.socket}.missing`);
  await second.line('Taking over from a process that runs');
  second.kill('SIGKILL');
  await first.line('A successor did not take over; going on');
  const third = rig.start();
  await third.line('Took over from the former process', { pid: first.child.pid });
  t.match(await first.exited, { code: 0 });
  t.same((await stop()).failed, {});
});

linuxTest('--handover-wait: the old process stays until it is told to end', async (t) => {
  const rig = await setup(t);
  const first = rig.start('--handover-wait');
  await first.line('The first complete state is in place');
  const second = rig.start('--handover-wait');
  await first.line('Waiting for a signal, or for the successor to end');
  first.kill('SIGTERM');
  t.match(await first.exited, { code: 0 });
  const third = rig.start('--handover-wait');
  await third.line('Took over from the former process', { pid: second.child.pid });
  await second.line('Waiting for a signal, or for the successor to end');
  third.kill('SIGKILL');
  t.match(await second.exited, { code: 1 }, 'whoever starts it anew restores the service');
  await second.line('The successor has ended: ending, to be started anew');
});

linuxTest('a socket of something else, and a path that is no socket, are told', async (t) => {
  const rig = await setup(t);
  const foreign = createServer((socket) => socket.destroy()).listen(rig.socket);
  await once(foreign, 'listening');
  const first = rig.start();
  t.match(await first.line('Cannot take over; starting as if nobody ran'), {
    reason: /has gone|ECONNRESET|EPIPE/,
  });
  await first.line('The first complete state is in place');
  foreign.close();

  const other = await setup(t);
  writeFileSync(other.socket, 'a file');
  const second = other.start();
  t.match(await second.line('A successor will not be able to take over'), {
    reason: /is there, and is no socket/,
  });
  t.equal(statSync(other.socket).size, 6, 'the file is as it was');
});
