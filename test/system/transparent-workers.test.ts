import { eventually } from '../support/until.ts';
import type { Machine } from './support/machine.ts';
import { ADDRESSES, STRANGER } from './support/network.ts';
import { testEachKind } from './support/rule-kinds.ts';
import { everywhere, SERVICE, simple } from './support/proxy.ts';

const WEB = `${SERVICE.cluster.v4}:80`;

/** The answers to many clients at once, each once, without the client's address. */
async function answers(machine: Machine, place: string): Promise<string[]> {
  const all = await Promise.all(Array.from({ length: 24 }, () => machine.ask(place)));
  return [...new Set(all.map((each) => each.split(' ')[0] ?? ''))].sort();
}

testEachKind(
  'several workers share the socket of all services, and a crash of one changes no rule',
  async (t, here) => {
    const proxy = here.start({ workers: 3 });
    t.same((await proxy.sync({ 'd/all': everywhere() })).problems, []);
    t.same(await answers(here.client, WEB), ['pod-a', 'pod-b']);
    t.same(await answers(here.podA, `[${SERVICE.cluster.v6}]:80`), ['pod-a', 'pod-b']);

    const rules = await here.rules();
    for (const index of [0, 2]) {
      await proxy.loseWorker(index);
      const isServed = async () => (await answers(here.client, WEB)).join() === 'pod-a,pod-b';
      t.ok(await eventually(isServed), `after worker ${index}`);
    }
    t.equal(await here.rules(), rules);
    await proxy.sync({ 'd/more': simple('10.96.0.77', 'TCP 80') });
    t.same(
      await answers(here.client, '10.96.0.77:80'),
      ['pod-a'],
      'all workers have the new service',
    );
    await proxy.sync({}, ['d/all', 'd/more']);
    await proxy.sync({ 'd/more': simple('10.96.0.77', 'TCP 80') });
    t.same(await answers(here.client, '10.96.0.77:80'), ['pod-a'], 'after there was none');
  },
  ['transparent'],
);

testEachKind(
  'with several workers, a client with affinity keeps its endpoint',
  async (t, here) => {
    const all = everywhere();
    const sessionAffinity = { $case: 'clientIP', value: { timeoutSeconds: 600 } } as const;
    await here
      .start({ workers: 3 })
      .sync({ 'd/all': { ...all, service: { ...all.service, sessionAffinity } } });
    for (const source of [ADDRESSES.client.v4, STRANGER.v4]) {
      const pods = new Set<string>();
      for (let n = 0; n < 12; n += 1) {
        pods.add((await here.client.ask(WEB, { source })).split(' ')[0] ?? '');
      }
      t.equal(pods.size, 1, `${source} at ${[...pods].join()}`);
      t.match([...pods][0], /^pod-[ab]$/);
    }
  },
  ['transparent'],
);
