/** One of the two processes of a restart dies, or they do not fit together. */
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { messageOf } from '../../src/errors.ts';
import { helloFrom, networkNamespace } from '../../src/handover/protocol.ts';
import { handoverRig, pages, ceaseless, LongConnection } from '../support/handover-rig.ts';
import { linuxTest } from '../support/linux-sys.ts';
import { shortDir } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

/** The status of an answer, or the code of the error. */
function statusOf(url: string): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  get(url, { agent: false }, (response) => {
    response.resume();
    resolve(String(response.statusCode));
  }).on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  return promise;
}

linuxTest('clients wait while a process has died whose new process has no state yet', async (t) => {
  const rig = await handoverRig(t);
  const { flags, urls } = await pages();
  const [, healthz = '', readyz = ''] = urls;
  const first = rig.start(...flags);
  await first.line('The first complete state is in place');
  const late = join(shortDir(t), 'late.yaml');
  const admin = `--admin-socket=${rig.admin}`;
  const second = rig.start(...flags, admin, `--input=${late}`);
  await second.line('Taking over from the running process');
  first.kill('SIGKILL');
  await first.exited;
  const { pid } = first.child;
  const line = await second.line('Previous process ended before this one could serve', {
    pid,
  });
  t.equal(line.level, 'warn');

  // Probes are answered with the truth, by the process that is left.
  await second.line('Serving health');
  t.same([await statusOf(healthz), await statusOf(readyz)], ['503', '503']);

  const client = connect(rig.port, '127.0.0.1');
  await once(client, 'connect');
  client.write('hello');
  writeFileSync(late, rig.state);
  const [answer] = (await once(client, 'data')) as [Buffer];
  t.equal(String(answer), 'hello', 'who came in between has waited, and is served');
  client.destroy();
  await second.line('The first complete state is in place');
  t.equal(await statusOf(readyz), '200');
  const third = rig.start();
  await third.line('Took over from the previous process', { pid: second.child.pid });
});

linuxTest(
  'a process that dies right after a hand-over loses only its own connections',
  async (t) => {
    const rig = await handoverRig(t);
    const first = rig.start();
    await first.line('The first complete state is in place');
    const second = rig.start();
    await second.line('Took over from the previous process', { pid: first.child.pid });
    first.kill('SIGKILL');
    await first.exited;
    const stop = ceaseless('127.0.0.1', rig.port);
    const third = rig.start();
    await third.line('Took over from the previous process', { pid: second.child.pid });
    t.match(await second.exited, { code: 0 });
    t.same((await stop()).failed, {});
  },
);

linuxTest('a new process that speaks an unknown version gets nothing, and says why', async (t) => {
  const rig = await handoverRig(t);
  const first = rig.start();
  await first.line('The first complete state is in place');
  await until(() => existsSync(rig.socket));
  const socket = connect(rig.socket).setEncoding('utf8');
  socket.write(`${JSON.stringify({ ...helloFrom(4711, networkNamespace()), handover: 99 })}\n`);
  const [offer] = (await once(socket, 'data')) as [string];
  t.match(JSON.parse(offer), {
    ok: false,
    reason: /speaks version 99 of the handover, this one 1/,
  });
  await first.line('New process did not take over; still serving');
  const second = rig.start();
  await second.line('Took over from the previous process', { pid: first.child.pid });
});

linuxTest(
  'a running process with an unknown protocol version is reported and left alone',
  async (t) => {
    const rig = await handoverRig(t);
    const strange = createServer((socket) => {
      const offer = { ok: false, reason: 'it speaks version 1 of the handover, this one 99' };
      socket.once('data', () => socket.end(`${JSON.stringify(offer)}\n`));
    }).listen(rig.socket);
    await once(strange, 'listening');
    const first = rig.start();
    const { reason } = await first.line('Cannot take over; starting without handed-off sockets');
    t.match(reason, /the predecessor refuses: it speaks version 1 of the handover/);
    await first.line('The first complete state is in place');
    strange.close();
  },
);

linuxTest('a new process with lower limits applies them without closing connections', async (t) => {
  const rig = await handoverRig(t);
  const first = rig.start();
  await first.line('The first complete state is in place');
  const long: LongConnection[] = [];
  for (let count = 0; count < 3; count += 1)
    long.push(await LongConnection.open('127.0.0.1', rig.port));
  const second = rig.start('--max-connections=1', '--max-udp-sessions=1');
  await second.line('Took over from the previous process', { pid: first.child.pid });
  // The first ones may still get to the process that runs.
  let refusal = '';
  for (let count = 0; count < 10 && refusal === ''; count += 1) {
    try {
      long.push(await LongConnection.open('127.0.0.1', rig.port));
    } catch (error) {
      refusal = messageOf(error);
    }
  }
  t.match(refusal, /ECONNRESET/, 'the limit is that of the new process');
  for (const each of long) {
    await each.exchange('continues');
    await each.end();
  }
  t.match(await first.exited, { code: 0 });
});

linuxTest('TERM while a new process is starting ends the old process promptly', async (t) => {
  const rig = await handoverRig(t);
  const first = rig.start('--drain-timeout=2s');
  await first.line('The first complete state is in place');
  const late = join(shortDir(t), 'late.yaml');
  const second = rig.start(`--input=${late}`);
  await second.line('Taking over from the running process');
  first.kill('SIGTERM');
  await first.line('New process did not take over in time; stopping without it');
  t.match(await first.exited, { code: 0 }, 'nothing was cut');

  const client = connect(rig.port, '127.0.0.1');
  await once(client, 'connect');
  client.write('hello');
  writeFileSync(late, rig.state);
  const [answer] = (await once(client, 'data')) as [Buffer];
  t.equal(String(answer), 'hello', 'a client that came in between has waited, and is served');
  client.destroy();
});

linuxTest('of two new processes at once the loser leaves the socket to the winner', async (t) => {
  const rig = await handoverRig(t);
  const first = rig.start();
  await first.line('The first complete state is in place');
  const late = join(shortDir(t), 'late.yaml');
  const winner = rig.start(`--input=${late}`);
  await winner.line('Taking over from the running process');
  const loser = rig.start();
  await loser.line('Cannot take over; starting without handed-off sockets');
  await loser.line('Handover socket unavailable; a new process cannot take over; retrying');
  writeFileSync(late, rig.state);
  await winner.line('Took over from the previous process', { pid: first.child.pid });
  loser.kill('SIGTERM');
  await loser.exited;
  const next = rig.start();
  await next.line('Took over from the previous process', { pid: winner.child.pid });
});
