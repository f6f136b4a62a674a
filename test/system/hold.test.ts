/** Who is let in to wait for an endpoint, and who is not. */
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { shortDir } from '../support/short-dir.ts';
import { eventually } from '../support/until.ts';
import { NODE } from './support/network.ts';
import { PORTALS, testEach } from './support/kinds.ts';
import type { Program } from './support/program.ts';
import { CLUSTER, INTERNAL, NODE_PORTS, OUTSIDE, pod, service } from './support/services.ts';

const DATAGRAMS = [`${CLUSTER.v4}:53/UDP`, `${NODE.v4}:${NODE_PORTS.UDP}/UDP`];
/** Clients are refused by then. Milliseconds. */
const AT_ONCE = 900;
const LONG = { waitMs: 60_000 };

async function heldNow(program: Program): Promise<number> {
  return program.metric('connections_held', { service: 'web', port: 'web' });
}

const areHeld = (program: Program, count: number): Promise<boolean> =>
  eventually(async () => (await heldNow(program)) === count);

/** A configuration file; returns its path and what writes it again. */
function settings(t: Test): { path: string; write: (holdTimeout: string) => void } {
  const path = join(shortDir(t), 'config.yaml');
  const write = (holdTimeout: string): void => {
    const head = ['apiVersion: kpng-userspace/v1alpha1', 'kind: UserspaceProxyConfiguration'];
    writeFileSync(`${path}.next`, [...head, `holdTimeout: ${holdTimeout}`, ''].join('\n'));
    renameSync(`${path}.next`, path);
  };
  return { path, write };
}

// Both kinds of rules learn in the same way whom to let in.
const KINDS = PORTALS.filter((name) => name !== 'iptables-nft');

testEach('with a policy of Local, clients wait for a local endpoint', KINDS, async (t, net) => {
  const program = net.start({ flags: '--hold-timeout=1m' });
  const away = pod('pod-b', { node: 'elsewhere' });
  await program.serve(service([away], { externaltraffictolocal: true }));
  const waiting = Promise.all(OUTSIDE.map((place) => net.client.ask(place, LONG)));
  t.ok(await areHeld(program, OUTSIDE.length), 'those from outside wait');
  for (const place of INTERNAL) t.match(await net.podA.ask(place), /^pod-b/, place);
  await program.serve(service([away, pod('pod-a')], { externaltraffictolocal: true }));
  t.match(
    await waiting,
    OUTSIDE.map(() => /^pod-a/),
  );
  t.ok(await areHeld(program, 0));
  t.same(program.complaints, []);
});

testEach('holding begins and ends with a change of the settings', KINDS, async (t, net) => {
  const { path, write } = settings(t);
  write('0s');
  const program = net.start({ flags: `--config=${path}` });
  const all = [...INTERNAL, ...OUTSIDE];
  const isRefused = async (place: string): Promise<boolean> =>
    net.whoIs(await net.client.ask(place, { waitMs: AT_ONCE })) === 'refused';
  await program.serve(service([]));
  for (const place of all) t.ok(await eventually(() => isRefused(place)), `not at first: ${place}`);
  write('1m');
  for (const place of all) {
    t.ok(await eventually(async () => !(await isRefused(place))), `let in: ${place}`);
  }
  // Those may still be held: one cannot see that a client leaves that has asked for something.
  const before = await heldNow(program);
  const waiting = Promise.all(all.map((place) => net.client.ask(place, LONG)));
  t.ok(await areHeld(program, before + all.length), 'held from then on');
  if (net.kind.refusesDatagrams) {
    for (const place of DATAGRAMS)
      t.equal(await net.client.ask(place, { waitMs: AT_ONCE }), 'ECONNREFUSED', place);
  }
  write('0s');
  for (const place of all) t.ok(await eventually(() => isRefused(place)), `not any more: ${place}`);
  t.ok((await heldNow(program)) >= before + all.length, 'who is held stays');
  await program.serve(service([pod('pod-a')]));
  t.match(
    await waiting,
    all.map(() => /^pod-a/),
  );
  t.same(program.complaints, []);
});
