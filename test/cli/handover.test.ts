/** The program is restarted under load: the new process takes over while it runs. */
import { once } from 'node:events';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import { stateText, type Cli } from '../support/cli.ts';
import {
  handoverRig,
  pageOutcome,
  pages,
  RESTARTS,
  ceaseless,
  ceaselessPages,
} from '../support/handover-rig.ts';
import { linuxTest } from '../support/linux-sys.ts';
import { shortDir } from '../support/short-dir.ts';
import { echoed, tcpClient } from '../support/tcp-peers.ts';
import { UdpBackend, UdpClient } from '../support/udp-peers.ts';

/** Engines and workers of processes that follow each other. */
const CHAINS = [
  Array.from({ length: RESTARTS + 1 }, () => 'node 1'),
  ['linux 1', 'linux 2', 'node 1', 'linux 2', 'linux 1'],
];

for (const chain of CHAINS) {
  linuxTest(`${chain.join(', ')}: no connection fails, and long ones end normally`, async (t) => {
    const rig = await handoverRig(t);
    const flags = chain.map((each) => {
      const [engine, workers] = each.split(' ');
      return [`--engine=${engine}`, `--workers=${workers}`];
    });
    let last = await rig.serve(...(flags.shift() ?? []));
    const stop = ceaseless('127.0.0.1', rig.port);
    for (const each of flags) {
      const long = await tcpClient(t, rig.port);
      t.ok(await echoed(long, 'first'));
      const successor = rig.start(...each);
      await successor.line('Took over from the previous process', { pid: last.child.pid });
      await last.line('Waiting for connections to end');
      t.ok(await echoed(long, 'over the process that was there when it began'));
      t.equal(last.child.exitCode, null, 'that one waits for it');
      await once(long.end(), 'end');
      t.match(await last.exited, { code: 0 });
      last = successor;
    }
    const { ok, failed, answered, lost } = await stop();
    t.same(failed, {}, `${ok} connections`);
    t.ok(ok > flags.length * 10 && answered > flags.length * 10);
    t.equal(lost, 0, `of ${answered} datagrams`);
    t.comment(`${flags.length} restarts, ${ok} connections, ${lost} of ${answered} datagrams lost`);
    t.equal(statSync(rig.socket).mode & 0o777, 0o600, 'a new process of the same user may have it');
    last.kill('SIGTERM');
    t.match(await last.exited, { code: 0 });
    t.notOk(existsSync(rig.socket), 'no one is left to take over from');
  });
}

linuxTest('probes and scrapes are answered all the time, and nothing is a warning', async (t) => {
  const rig = await handoverRig(t);
  const { flags: ports, urls } = await pages();
  const flags = [...ports, `--admin-socket=${rig.admin}`, '--status-bind-address=127.0.0.1:0'];
  let running = await rig.serve(...flags);
  const stop = ceaselessPages(urls, rig.admin);
  for (let round = 0; round < RESTARTS; round += 1) {
    const successor = rig.start(...flags);
    await successor.line('Took over from the previous process', { pid: running.child.pid });
    t.match(await running.exited, { code: 0 });
    t.same(
      running.log.filter(({ level }) => level !== 'info'),
      [],
    );
    running = successor;
  }
  const { ok, failed } = await stop();
  t.same(failed, {}, `${ok} answers`);
  t.ok(ok > RESTARTS * 10);
  t.comment(`${RESTARTS} restarts, ${ok} answers`);
});

linuxTest('--portal none keeps its proxy ports', async (t) => {
  // Below those that connections of this machine begin from.
  const range = '--port-range 23000-23900';
  const rig = await handoverRig(t, `--portal none --bind-address 127.0.0.1 -v=2 ${range}`);
  const proxyPort = async (cli: Cli, protocol: 'TCP' | 'UDP'): Promise<number> => {
    const line = await cli.line('Proxying for service', { protocol });
    return Number(String(line['address']).split(':').at(-1));
  };
  const first = rig.start();
  const [tcp, udp] = [await proxyPort(first, 'TCP'), await proxyPort(first, 'UDP')];
  const stop = ceaseless('127.0.0.1', tcp, udp);
  const second = rig.start();
  await second.line('Took over from the previous process');
  t.same([await proxyPort(second, 'TCP'), await proxyPort(second, 'UDP')], [tcp, udp]);
  t.match(await first.exited, { code: 0 });
  const { failed, answered } = await stop();
  t.same(failed, {});
  t.ok(answered > 10);
});

for (const engine of ['node', 'linux']) {
  linuxTest(`--engine ${engine}: UDP clients keep their endpoints`, async (t) => {
    const rig = await handoverRig(t);
    const servers = await Promise.all(['a', 'b', 'c'].map((name) => UdpBackend.named(t, name)));
    const endpoints = servers.map(({ spec }) => spec.port);
    const input = `${rig.socket}.endpoints.yaml`;
    const service = { name: 'many', endpoints, protocol: 'UDP' } as const;
    writeFileSync(input, stateText([service], { many: rig.port }));
    // The new process may take long to start, and learns of no session that is over.
    const flags = [`--engine=${engine}`, `--input=${input}`, '--udp-idle-timeout=1m'];
    const first = await rig.serve(...flags);
    const clients = [];
    for (let count = 0; count < 12; count += 1) clients.push(await UdpClient.open(t));
    const before = new Map<UdpClient, string>();
    for (const client of clients) before.set(client, await client.ask('who?', rig.port));
    t.equal(new Set(before.values()).size, 3);
    const second = rig.start(...flags);
    await second.line('Took over from the previous process');
    await first.line('Waiting for connections to end');
    // Not by turns: those of one endpoint come one after the other.
    const inOrder = [...before].sort(([, one], [, other]) => one.localeCompare(other));
    for (const [client, endpoint] of inOrder) {
      t.equal(await client.ask('who?', rig.port), endpoint);
    }
  });
}

linuxTest('--handover-wait: the old process stays until stopped', async (t) => {
  const rig = await handoverRig(t);
  const first = await rig.serve('--handover-wait');
  const second = rig.start('--handover-wait');
  await first.line('Waiting for a signal, or for the new process to end');
  first.kill('SIGTERM');
  t.match(await first.exited, { code: 0 });
  const third = rig.start('--handover-wait');
  await third.line('Took over from the previous process', { pid: second.child.pid });
  await second.line('Waiting for a signal, or for the new process to end');
  third.kill('SIGKILL');
  t.match(
    await second.exited,
    { code: 1 },
    'a service manager that restarts it restores the service',
  );
  await second.line('New process has ended; exiting, to be restarted');
});

linuxTest('a socket of something else is reported, and left alone', async (t) => {
  const rig = await handoverRig(t);
  const foreign = createServer((socket) => socket.destroy()).listen(rig.socket);
  await once(foreign, 'listening');
  const first = rig.start();
  t.match(await first.line('Cannot take over; starting without handed-off sockets'), {
    reason: /has ended|ECONNRESET|EPIPE/,
  });
  await first.line('The first complete state is in place');
  const unavailable = 'Handover socket unavailable; a new process cannot take over; retrying';
  t.match(await first.line(unavailable), { reason: /another process listens/ });
  foreign.close();
});

/** Connects while no process has a state, writes the state file, and checks that the client is served. */
async function waitsForState(t: Test, rig: { port: number; state: string }, late: string) {
  const client = connect(rig.port, '127.0.0.1');
  await once(client, 'connect');
  client.write('hello');
  writeFileSync(late, rig.state);
  const [answer] = (await once(client, 'data')) as [Buffer];
  t.equal(String(answer), 'hello', 'a client that came in between has waited, and is served');
  client.destroy();
}

linuxTest('clients wait while a process has died whose new process has no state yet', async (t) => {
  const rig = await handoverRig(t);
  const { flags, urls } = await pages();
  const [, healthz = '', readyz = ''] = urls;
  const first = await rig.serve(...flags);
  const late = join(shortDir(t), 'late.yaml');
  const admin = `--admin-socket=${rig.admin}`;
  const second = rig.start(...flags, admin, `--input=${late}`);
  await second.line('Taking over from the running process');
  first.kill('SIGKILL');
  await first.exited;
  const { pid } = first.child;
  const line = await second.line('Previous process ended before this one could serve', { pid });
  t.equal(line.level, 'warn');

  // Probes are answered with the truth, by the process that is left.
  await second.line('Serving health');
  t.same([await pageOutcome(healthz), await pageOutcome(readyz)], ['503', '503']);

  await waitsForState(t, rig, late);
  await second.line('The first complete state is in place');
  t.equal(await pageOutcome(readyz), '200');
  const third = rig.start();
  await third.line('Took over from the previous process', { pid: second.child.pid });
});

linuxTest('TERM while a new process is starting ends the old process promptly', async (t) => {
  const rig = await handoverRig(t);
  const first = await rig.serve('--drain-timeout=2s');
  const late = join(shortDir(t), 'late.yaml');
  const second = rig.start(`--input=${late}`);
  await second.line('Taking over from the running process');
  first.kill('SIGTERM');
  await first.line('New process did not take over in time; stopping without it');
  t.match(await first.exited, { code: 0 }, 'nothing was cut');
  await waitsForState(t, rig, late);
});
